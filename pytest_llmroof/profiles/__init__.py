"""Everything that turns profiler exports into one canonical timeline or kernel table."""

from __future__ import annotations

from pytest_llmroof.profiles.recognise import ProfileKind, recognise, refuse_report

__all__ = ["ProfileKind", "recognise", "refuse_report"]
