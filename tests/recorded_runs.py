"""A real engine's run as `python tests/development/real_engine` recorded it: its archive, and gates over it again."""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from development.real_engine import checks

Gate = Callable[..., Any]
Document = dict[str, Any]

_GATES = """\
gpu: run/cpu.yaml
model: run/MODEL
deployment: {tensor_parallel: 1}
windows:
  w: {phase: PHASE, telemetry: run/FOLDER, gates: GATES}
"""


def unpacked(folder: Path, factory: pytest.TempPathFactory) -> Path:
    """Where the archive in a folder of test data lies unpacked, to be read only."""
    place = factory.mktemp(folder.name)
    with tarfile.open(folder / "run.tar.xz") as packed:
        packed.extractall(place, filter="data")
    return place


def judging(archive: Path, pytester: pytest.Pytester, gate: Gate, model: str) -> Gate:
    """Judges gates over one of the recordings, which was moved: its folder is not where it was written."""
    shutil.copytree(archive, pytester.path / "run")

    def judge(folder: str, *gates: str, phase: str = "decode") -> Any:
        text = _GATES.replace("MODEL", model).replace("PHASE", phase).replace("FOLDER", folder)
        return gate(text.replace("GATES", json.dumps(list(gates))))

    return judge


def report(archive: Path, name: str, phase: str = "decode") -> Document:
    """The window of a phase in a report of that day."""
    (window,) = [one for one in checks.report(archive / f"{name}.json") if one["phase"] == phase]
    return window


def counted(path: Path) -> Document:
    """What a client counted."""
    document: Document = json.loads(path.read_text(encoding="utf-8"))
    return document
