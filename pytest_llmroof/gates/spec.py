"""A window's specification: everything a user said about it, checked, before anything is read or measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pytest_llmroof.analysis.facts import Phase
from pytest_llmroof.errors import Position
from pytest_llmroof.gates.gate import Gate, Severity

SourceKind = Literal["path", "url", "prometheus"]


@dataclass(frozen=True)
class TelemetrySource:
    """One source of telemetry as the user named it.

    ``shown`` is what messages may print (relative path, URL without credentials or query). ``path`` is absolute, for
    files and folders. ``options`` hold the other keys of a mapping (``url``, ``headers``, ``selector``, ...), expanded
    and so possibly secret: they never reach a report, a ``repr`` or a message.
    """

    kind: SourceKind
    shown: str
    path: Path | None = None
    options: Mapping[str, object] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class WindowSpec:
    """One window as specified. Raw values of ``gpu``, ``model`` and ``deployment`` are resolved by ``resolve.py``.

    ``id`` is the node id relative to the root directory; ``base`` the folder that relative paths are relative to.
    Durations are seconds; with ``duration_fallback`` the window's is an option's, which is meant for live windows:
    files use it only where they carry no clock of their own.
    ``unset`` names environment variables without value or default: such a window has no data.
    ``default_severity`` marks a window of files that names neither gates nor phase: its gates are the default ones of
    the phase that its traffic shows, of that severity.
    ``engines`` are entries of serving engines beside the known ones, as data/engines.yaml holds them.
    ``positions`` maps a key (``gpu``, ``model``, ``deployment.tensor_parallel``, ...) to where it stands.
    """

    id: str
    name: str
    base: Path
    telemetry: tuple[TelemetrySource, ...] = ()
    gates: tuple[Gate, ...] = ()
    phase: Phase | None = None
    gpu: str | Mapping[str, object] | None = None
    model: str | Mapping[str, object] | None = None
    deployment: Mapping[str, object] = field(default_factory=dict)
    flops: Literal["model", "exact"] = "model"
    served_model_name: str | None = None
    title: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    duration_seconds: float | None = None
    duration_fallback: bool = False
    interval_seconds: float | None = None
    warmup_seconds: float = 0.0
    repeat: int = 1
    min_requests: int | None = None
    max_wait_seconds: float = 600.0
    unset: tuple[str, ...] = ()
    default_severity: Severity | None = None
    engines: Mapping[str, Mapping[str, object]] = field(default_factory=dict, repr=False)
    positions: Mapping[str, Position] = field(default_factory=dict)

    @property
    def sampled(self) -> bool:
        """Whether measuring means to scrape servers while time passes."""
        return any(source.kind == "url" for source in self.telemetry)

    @property
    def live(self) -> bool:
        """Whether measuring touches a network."""
        return any(source.kind != "path" for source in self.telemetry)
