"""The gates of a window that names none."""

from __future__ import annotations

from pytest_llmroof.analysis.facts import Phase
from pytest_llmroof.data import load
from pytest_llmroof.errors import ConfigError
from pytest_llmroof.gates.gate import Gate, Severity
from pytest_llmroof.gates.grammar import parse_gate


def default_gates(phase: Phase | None, severity: Severity = "error") -> tuple[Gate, ...]:
    """The default gates of a phase. ConfigError where there are none: a mixed window, or a phase that is not written.

    A phase that must be found from the traffic is not known when tests are collected, and a default limit says nothing
    of a window whose phases mix.
    """
    data = load("default_gates.yaml")
    if phase in ("decode", "prefill"):
        return tuple(parse_gate(expression, severity=severity, default=True) for expression in data[phase])
    offered = ", ".join(f"'{expression}'" for expression in data["offered"])
    if phase == "mixed":
        raise ConfigError(f"a mixed window has no default gates: write gates:, like {offered}")
    raise ConfigError(f"a window without gates needs its phase (decode or prefill); or write gates:, like {offered}")
