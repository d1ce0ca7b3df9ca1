"""What Prometheus servers are asked, once in a run: ``now`` in a window's ``end`` is one moment, whoever is first."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import os
import pickle
import time
from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest

from pytest_llmroof.asked import ask, with_common_end
from pytest_llmroof.errors import SourceError
from pytest_llmroof.gates.spec import TelemetrySource, WindowSpec
from pytest_llmroof.rundir import run_folder, writing
from pytest_llmroof.taken import Taken
from pytest_llmroof.telemetry.question import end_of

#: What records hold beside numbers, texts, tuples and mappings.
_HOLDERS: Final = frozenset({("pathlib", "PosixPath"), ("builtins", "frozenset"), ("builtins", "set")})


def asked_once(config: pytest.Config, spec: WindowSpec, taken: Taken | None = None) -> Taken:
    """What the window's servers answer, asked by the first of a run's workers; failures are kept as well.

    The window of a test's own block is that test's: nobody else asks for it.
    """
    if taken is not None and taken.failure is not None:
        return taken
    if taken is not None and taken.block is not None:
        return replace(taken, window=None)
    try:
        with writing():
            return _asked_once(config, spec)
    except SourceError as error:
        return Taken.failed(error)


def _asked_once(config: pytest.Config, spec: WindowSpec) -> Taken:
    spec = with_fixed_end(config, spec)
    if not hasattr(config, "workerinput"):
        return _asked(spec)
    stored = run_folder(config) / f"{_name(spec.id)}.asked"
    with stored.with_suffix(".asking").open("a", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stored.exists():
            with contextlib.suppress(pickle.UnpicklingError):  # then it is no answer of a worker: ask
                # Written by another worker of this run, in a folder that is this user's alone.
                return kept_answer(stored.read_bytes())
        found = _asked(spec)
        partial = stored.with_suffix(".part")
        partial.write_bytes(pickle.dumps(found))
        os.replace(partial, stored)
        return found


class _Answers(pickle.Unpickler):
    """Reads an answer that was kept, and nothing else: what it is made of are this package's own records."""

    def find_class(self, module: str, name: str) -> Any:
        """One of the package's records, or what holds such; pickle.UnpicklingError for everything else."""
        if (module, name) in _HOLDERS:
            return super().find_class(module, name)
        if module.startswith("pytest_llmroof.") and "." not in name:
            found = super().find_class(module, name)
            if isinstance(found, type) and (is_dataclass(found) or issubclass(found, tuple)):
                return found
        raise pickle.UnpicklingError(f"{module}.{name} is no part of an answer")


def kept_answer(content: bytes) -> Taken:
    """The answer that a worker kept. pickle.UnpicklingError where it is something else."""
    found = _Answers(io.BytesIO(content)).load()
    if not isinstance(found, Taken):
        raise pickle.UnpicklingError("no answer")
    return found


def _asked(spec: WindowSpec) -> Taken:
    try:
        return Taken(window=ask(spec))
    except SourceError as error:
        return Taken.failed(error)


def _name(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def with_fixed_end(config: pytest.Config, spec: WindowSpec) -> WindowSpec:
    """The specification with the moments that its Prometheus sources end at, so that it is one window in this run."""
    spec = with_common_end(spec)
    return replace(spec, telemetry=tuple(_fixed(config, spec.id, source) for source in spec.telemetry))


def _fixed(config: pytest.Config, window: str, source: TelemetrySource) -> TelemetrySource:
    end = str(source.options.get("end", "now"))
    if source.kind != "prometheus" or not end.startswith("now"):
        return source
    moment = _first(run_folder(config) / f"{_name(window)}.now", time.time())
    return replace(source, options={**source.options, "end": repr(end_of(end, lambda: moment))})


def _first(path: Path, moment: float) -> float:
    """The moment that a file holds: this one, where no other process wrote it before."""
    own = path.with_suffix(f".{os.getpid()}")
    own.write_text(repr(moment), encoding="ascii")
    try:
        os.link(own, path)  # whole, or not at all
    except FileExistsError:
        return float(path.read_text(encoding="ascii"))
    finally:
        own.unlink()
    return moment
