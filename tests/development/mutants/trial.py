"""A copy of the repository in which mutants are tried: never the tree that people work in."""

from __future__ import annotations

import ast
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import coverage
from development.mutants.mutations import Mutant, mutants_of, mutated

REPOSITORY: Final = Path(__file__).resolve().parents[3]
ROOMS: Final = ("roofline", "gates", "analysis")
#: Whose tests are the rooms': their own, and those of what hands them their inputs.
TESTS: Final = tuple(f"tests/{name}" for name in ("roofline", "gates", "analysis", "resolve", "profiles", "telemetry"))
_PYTEST: Final = ("-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "--hypothesis-seed=1")
#: CPU seconds of tests that a mutant is tried with at most: in the fork, and in a process of its own.
_FORKED_SECONDS, _OWN_SECONDS = 15.0, 30.0


class Broken(Exception):
    """The run cannot go on: what to look at."""


@dataclass(frozen=True)
class Candidate:
    """A mutant of a file of the copy (``path`` is within the repository)."""

    path: str
    mutant: Mutant

    @property
    def room(self) -> str:
        """The room that it is in."""
        return Path(self.path).parts[1]

    def said(self) -> dict[str, Any]:
        """For the results: where it is, and what it changes."""
        told = asdict(self.mutant)
        return {"path": self.path, **{key: told[key] for key in ("line", "inside", "kind", "before", "after")}}


class Trial:
    """The copy, which tests run which of its lines, and what each test costs."""

    def __init__(self, work: Path) -> None:
        self.folder = work / "repository"
        self._work = work
        if not self.folder.exists():
            subprocess.run(["git", "clone", "--quiet", str(REPOSITORY), str(self.folder)], check=True)
        # A run that was ended may have left its mutant there.
        subprocess.run(["git", "checkout", "--quiet", "--", "."], cwd=self.folder, check=True)
        self._lines: dict[str, Mapping[int, list[str]]] = {}
        self._costs: Mapping[str, float] = {}

    def map(self) -> None:
        """Run the tests once under coverage, unless that was done in this folder. Broken where that comes to nothing.

        Tests that fail are left out.
        """
        lines, costs = self._work / "lines.coverage", self._work / "costs.json"
        if not costs.exists():
            # The project's own settings spread the data over several files.
            settings = self._work / "coverage.ini"
            sources = ", ".join(f"pytest_llmroof/{room}" for room in ROOMS)
            settings.write_text(f"[run]\nbranch = true\nsource = {sources}\n", encoding="utf-8")
            command = ["-m", "coverage", "run", f"--rcfile={settings}", *_PYTEST]
            environment = {"COVERAGE_FILE": str(lines), "MUTANTS_COSTS": str(costs)}
            self._python([*command, "-p", "development.mutants.recorder", *TESTS], environment, None)
        self._costs = json.loads(costs.read_text(encoding="utf-8")) if costs.exists() else {}
        if not self._costs:
            raise Broken(f"no test passes: see {self._work / 'log'}")
        data = coverage.CoverageData(str(lines))
        data.read()
        for file in data.measured_files():
            self._lines[os.path.relpath(file, self.folder)] = data.contexts_by_lineno(file)

    def candidates(self, only: Sequence[str]) -> list[Candidate]:
        """All mutants of the rooms, or of the files whose path begins with one of ``only``."""
        found: list[Candidate] = []
        for room in ROOMS:
            for path in sorted((self.folder / "pytest_llmroof" / room).rglob("*.py")):
                name = path.relative_to(self.folder).as_posix()
                if not only or name.startswith(tuple(only)):
                    found += [Candidate(name, mutant) for mutant in mutants_of(path)]
        return found

    def tests_of(self, candidate: Candidate) -> list[str]:
        """Tests that run the mutant's lines; of a module's own code those that run any of it."""
        by_line = self._lines.get(candidate.path, {})
        lines: Iterable[int] = by_line if candidate.mutant.of_module else candidate.mutant.lines
        names = {name for line in lines for name in by_line.get(line, ()) if name in self._costs}
        if not names and candidate.mutant.of_module:
            names = {name for name in self._costs if name.startswith(f"tests/{candidate.room}/")}
        return self._in_turn(names)

    def _beside(self, candidate: Candidate) -> list[str]:
        """Those, then all that run any line of the file: of what is kept once it was made, only the first ran it."""
        nearest = self.tests_of(candidate)
        every = {name for names in self._lines.get(candidate.path, {}).values() for name in names}
        return [*nearest, *self._in_turn(every.intersection(self._costs) - set(nearest))]

    def _in_turn(self, names: Iterable[str]) -> list[str]:
        """The quickest first, and one of each function before the second of any."""
        seen: dict[str, int] = {}
        turns = []
        for name in sorted(names, key=lambda name: (self._costs.get(name, 0.0), name)):
            function = name.split("[", 1)[0]
            turns.append((seen.get(function, 0), self._costs.get(name, 0.0), name))
            seen[function] = seen.get(function, 0) + 1
        return [name for _, _, name in sorted(turns)]

    def _within(self, tests: Iterable[str], seconds: float) -> tuple[list[str], float]:
        taken: list[str] = []
        spent = 0.0
        for name in tests:
            if taken and spent + self._costs.get(name, 0.0) > seconds:
                break
            taken.append(name)
            spent += self._costs.get(name, 0.0)
        return taken, spent

    def forked(self, candidates: Mapping[int, Candidate], jobs: int, files: Sequence[str] = ()) -> dict[int, str]:
        """What became of each that has tests: ``jobs`` processes collect once and fork for every mutant.

        ``files`` are tried in place of the tests that run its lines.
        """
        tasks: list[dict[str, Any]] = [
            {"id": -1, "path": "", "number": None, "tests": list(files), "seconds": 10 + 2 * _OWN_SECONDS}
        ] * (jobs if files else 0)
        for number, one in candidates.items():
            tests, spent = self._within(self.tests_of(one), _FORKED_SECONDS) if not files else (files, _OWN_SECONDS)
            if tests and not one.mutant.of_module:
                path = str(self.folder / one.path)
                tasks.append({"id": number, "path": path, "number": one.mutant.number, "tests": list(tests),
                              "seconds": 10 + 2 * spent})  # fmt: skip
        running = []
        for job in range(jobs):
            listed, results = self._work / f"jobs-{job}.json", self._work / f"results-{job}.jsonl"
            listed.write_text(json.dumps(tasks[job::jobs]), encoding="utf-8")
            results.write_text("", encoding="utf-8")
            collected = sorted({test.split("::", 1)[0] for task in tasks[job::jobs] for test in task["tests"]})
            environment = {"MUTANTS_JOBS": str(listed), "MUTANTS_RESULTS": str(results)}
            if collected:
                command = [*_PYTEST, "-x", "-p", "development.mutants.forked", *collected]
                running.append((self._start(command, environment), results))
        became: dict[int, str] = {}
        for process, results in running:
            process.wait()
            lines = map(json.loads, results.read_text(encoding="utf-8").splitlines())
            became.update({line["id"]: line["status"] for line in lines})
        if became.pop(-1, "lives") != "lives":
            raise Broken(f"a test fails without any mutant: see {self._work / 'log'}")
        return became

    def alone(self, candidate: Candidate, tests: Sequence[str] = ()) -> str:
        """Try a mutant in a process of its own, with the mutant's source in the copy's file while it runs."""
        if not tests:
            tests, spent = self._within(self._beside(candidate), _OWN_SECONDS)
        else:
            spent = _OWN_SECONDS
        if not tests:
            return "no test"
        path = self.folder / candidate.path
        kept = path.read_text(encoding="utf-8")
        tree = mutated(path, candidate.mutant.number)
        try:
            path.write_text(ast.unparse(tree), encoding="utf-8")
            code = self._python([*_PYTEST, "-x", *tests], {}, 20 + 2 * spent)
        finally:
            path.write_text(kept, encoding="utf-8")
        return "lives" if code == 0 else "killed" if code > 0 else "hangs"

    def _python(self, arguments: Sequence[str], environment: Mapping[str, str], seconds: float | None) -> int:
        return self._start(arguments, environment, seconds).wait()

    def _start(
        self, arguments: Sequence[str], environment: Mapping[str, str], seconds: float | None = None
    ) -> subprocess.Popen[bytes]:
        """An interpreter in the copy, which imports the copy and writes no bytecode; its words go to the log."""
        paths = os.pathsep.join((str(self.folder), str(REPOSITORY / "tests")))
        variables = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", **environment}

        def limited() -> None:
            if seconds is not None:
                resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 1))
                resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))

        with (self._work / "log").open("ab") as log:
            return subprocess.Popen([sys.executable, *arguments], cwd=self.folder, env=variables, stdout=log,
                                    stderr=subprocess.STDOUT, preexec_fn=limited)  # fmt: skip
