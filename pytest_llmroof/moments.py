"""The present of a run: ``now`` in a window's ``end`` is one moment, whichever gate or worker asks first."""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_llmroof.gates.spec import TelemetrySource, WindowSpec
from pytest_llmroof.rundir import run_folder
from pytest_llmroof.telemetry.prometheus import end_of


def with_fixed_end(config: pytest.Config, spec: WindowSpec) -> WindowSpec:
    """The specification with the moments that its Prometheus sources end at, so that it is one window in this run."""
    return replace(spec, telemetry=tuple(_fixed(config, spec.id, source) for source in spec.telemetry))


def _fixed(config: pytest.Config, window: str, source: TelemetrySource) -> TelemetrySource:
    end = str(source.options.get("end", "now"))
    if source.kind != "prometheus" or not end.startswith("now"):
        return source
    name = hashlib.sha256(window.encode()).hexdigest()[:32]
    moment = _first(run_folder(config) / f"{name}.now", time.time())
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
