"""A pytest plugin that collects once, and runs a mutant's tests in a fork of that process with the mutant in place.

Functions get the mutant's code in place of their own, so that nothing is imported anew. What a test module made at its
import was made without the mutant: a mutant that lives through this is tried again in a process of its own.
"""

from __future__ import annotations

import ast
import gc
import json
import os
import resource
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest
from development.mutants.mutations import mutated

from pytest_llmroof import data

Key = tuple[str, int, int | None]


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """Try one mutant after another instead of running the tests. Results go to a file, a line each."""
    jobs: list[dict[str, Any]] = json.loads(Path(os.environ["MUTANTS_JOBS"]).read_text(encoding="utf-8"))
    items = {item.nodeid: [item] for item in session.items}
    for item in session.items:
        items.setdefault(item.nodeid.split("::", 1)[0], []).append(item)  # a file stands for all of its tests
    for file in Path(data.__file__).parent.glob("*.yaml"):
        data.load(file.name)  # each fork would read them again
    functions = _functions()
    gc.freeze()
    with Path(os.environ["MUTANTS_RESULTS"]).open("a", encoding="utf-8") as results:
        for job in jobs:
            tests = [item for name in job["tests"] for item in items.get(name, ())]
            status = _tried(session, job, tests, functions)
            results.write(json.dumps({"id": job["id"], "status": status, "tests": len(tests)}) + "\n")
            results.flush()
    return True


def _functions() -> dict[str, list[FunctionType]]:
    """The functions that live in this process, by file."""
    found: dict[str, list[FunctionType]] = {}
    gc.unfreeze()  # a test session may keep what it imported out of the collector's sight
    for one in gc.get_objects():
        if isinstance(one, FunctionType):
            found.setdefault(one.__code__.co_filename, []).append(one)
    return found


def _tried(
    session: pytest.Session, job: dict[str, Any], tests: Sequence[pytest.Item], functions: dict[str, list[FunctionType]]
) -> str:
    child = os.fork()
    if child == 0:
        code = 3
        try:
            signal.alarm(int(job["seconds"] * 20))
            resource.setrlimit(resource.RLIMIT_CPU, (int(job["seconds"]), int(job["seconds"]) + 1))
            resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
            code = 2 if not _placed(job, functions) else _ran(session, tests)
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code < 0:
        return "hangs" if -code in (signal.SIGXCPU, signal.SIGALRM, signal.SIGKILL) else "killed"
    return {0: "lives", 1: "killed", 2: "not placed"}.get(code, "broken")


def _ran(session: pytest.Session, tests: Sequence[pytest.Item]) -> int:
    """1 with the first test that fails."""
    for item, following in zip(tests, [*tests[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            return 1
    return 0


def _placed(job: dict[str, Any], functions: dict[str, list[FunctionType]]) -> bool:
    """Whether some function that lives here now runs the mutant's code; without a mutant there is nothing to place."""
    if job["number"] is None:
        return True
    path = Path(job["path"])
    old = compile(ast.parse(path.read_text(encoding="utf-8")), str(path), "exec", dont_inherit=True)
    new = compile(mutated(path, job["number"]), str(path), "exec", dont_inherit=True)
    changed = {_key(one): other for one, other in _pairs(old, new) if one != other}
    placed = False
    for function in functions.get(str(path), ()):
        code = changed.get(_key(function.__code__))
        if code is not None:
            if code.co_freevars != function.__code__.co_freevars:
                return False
            function.__code__ = code
            placed = True
    return placed


def _pairs(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """Code objects that stand at the same place before and after."""
    yield old, new
    inner_old = [one for one in old.co_consts if isinstance(one, CodeType)]
    inner_new = [one for one in new.co_consts if isinstance(one, CodeType)]
    if len(inner_old) == len(inner_new):
        for one, other in zip(inner_old, inner_new, strict=True):
            yield from _pairs(one, other)


def _key(code: CodeType) -> Key:
    """What tells functions of one file apart, two lambdas of one line too."""
    columns = (column for _, _, column, _ in code.co_positions() if column)
    return code.co_qualname, code.co_firstlineno, next(columns, None)
