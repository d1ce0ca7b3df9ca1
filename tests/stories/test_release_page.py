"""The HTML page of a release manager's run: one for all workers, opened in a real browser, without secrets."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import pytest
from chromium import Browser, opened
from page_checks import visible_text
from vllm_pages import EIGHT_B

GATES = """
gpu: h100
model: llama-3.1-8b
deployment: {tensor_parallel: 1, weights: bf16}
windows:
  decode:
    phase: decode
    telemetry: [before.prom, after.prom]
    gates:
      - {gate: decode.mbu >= 90%, id: REL-7, why: what the last release reached}
      - {gate: itl.mean <= 1s, id: REL-8}
  peak:
    phase: decode
    telemetry: {url: "http://127.0.0.1:9/metrics?key=hunter22", headers: {Authorization: "Bearer ${TOKEN}"}}
    duration: 1s
    gates: [{gate: ttft.p99 <= 2s, id: REL-9}]
"""
PAGE = "--llmroof-report=report.html"


def same(page: str) -> str:
    """Without the moment of the run."""
    return re.sub(r"<time.*?</time>|\d+ ms after", "", page)


def test_the_page_of_a_breach_opens_with_the_verdict(
    gate: Callable[..., Any],
    pages: Callable[..., None],
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    browser: Browser,
) -> None:
    monkeypatch.setenv("TOKEN", "s3cr3t-t0ken")
    pages(**EIGHT_B)
    run = gate(GATES, PAGE, "--llmroof-label=commit=abc123")
    assert run.rc == 1
    page = pytester.path / "report.html"
    written = page.read_text(encoding="utf-8")
    for secret in ("s3cr3t-t0ken", "hunter22", "Bearer", str(pytester.path)):
        assert secret not in written
    with opened(browser, page) as tab:
        text = " ".join(visible_text(tab).split())
        chart = tab.evaluate("document.querySelector('.stack, svg.chart').getBoundingClientRect().top")
        verdict = tab.evaluate("document.querySelector('h1').getBoundingClientRect().top")
        assert tab.said() == []
    assert text.startswith("Blocked: 1 of 3 gates failed, 1 was not measured")
    assert verdict < chart
    assert "Llama 3.1 8B bf16, TP 1" in text
    assert "commit=abc123" in text
    assert "decode.mbu >= 90 % REL-7" in text
    assert "What to do first" in text
    assert "REL-8" in text
    assert text.index("REL-7") < text.index("REL-9") < text.index("Where the time went") < text.index("REL-8")


def test_workers_make_the_same_page(
    gate: Callable[..., Any], pages: Callable[..., None], pytester: pytest.Pytester
) -> None:
    pages(**EIGHT_B)
    gates = GATES[: GATES.index("  peak:")]
    page = pytester.path / "report.html"
    assert gate(gates, PAGE).rc == 1
    alone = page.read_text(encoding="utf-8")
    page.unlink()
    assert gate(gates, PAGE, "-n2").rc == 1
    assert same(page.read_text(encoding="utf-8")) == same(alone)


def test_the_page_can_be_made_from_the_json_report_later(
    gate: Callable[..., Any], pages: Callable[..., None], pytester: pytest.Pytester
) -> None:
    pages(**EIGHT_B)
    assert gate(GATES[: GATES.index("  peak:")], PAGE).rc == 1
    done = pytester.run(sys.executable, "-m", "pytest_llmroof", "render", "report.json", "--html=again.html")
    assert done.ret == 0
    again = (pytester.path / "again.html").read_text(encoding="utf-8")
    assert again == (pytester.path / "report.html").read_text(encoding="utf-8")
