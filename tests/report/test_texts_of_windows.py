"""Texts of whole windows, from the examples' recordings: each is true, says a thing once, and adds up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytest_llmroof.assess import assess
from pytest_llmroof.gates.build import window_spec
from pytest_llmroof.report.document import window_document
from pytest_llmroof.report.text import failing_text

EXAMPLES = Path(__file__).parents[2] / "examples"
H100 = {"gpu": "h100", "model": "llama-3.1-8b", "deployment": {"tensor_parallel": 1, "weights": "bf16"}}


def judged(recording: str, *gates: object, strict: bool = False, **keys: Any) -> dict[str, Any]:
    """The document of a window of one recording of the examples."""
    folder = str(EXAMPLES / "recordings" / recording)
    window = {"telemetry": folder, "gates": list(gates), **H100, **keys}
    given = {key: value for key, value in window.items() if value is not None}
    return window_document(assess(window_spec(given, id="w", name="w", base=EXAMPLES), strict=strict))


def text_of(recording: str, gate: object, strict: bool = False, **keys: Any) -> str:
    """The failing text of its only gate, on one line."""
    window = judged(recording, gate, strict=strict, **keys)
    return " ".join(failing_text(window, window["gates"][0]).split())


def test_figures_of_single_gpus_are_not_promised() -> None:
    text = text_of("decode-8b", {"gate": "decode.mbu >= 75%", "per": "gpu"})
    assert "a DCGM exporter's, which would tell, this version does not read yet" in text
    assert "per: replica" in text
    assert "add " not in text
