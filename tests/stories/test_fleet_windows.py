"""A fleet's window in a run of pytest: measured once, alone, over one stretch of time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fleets import fleet
from profiled_steps import decode
from scripted import Answer, Asked, Script, matrix, scripted, success, vector
from timelines import write_kineto
from vllm_pages import Load

GATES = """
windows:
  fleet:
    telemetry: {{prometheus: "{url}", selector: 'namespace="prod"', duration: 60s, end: "{end}"}}
    {more}
    gates: ["output.tokens_per_second >= 1tok/s", "requests_per_second >= 0.1", "waiting.max <= 100"]
"""


@pytest.fixture
def script() -> Iterator[Script]:
    """A server that speaks Prometheus' API from a script."""
    with scripted() as found:
        yield found


def moving(asked: Asked) -> Answer:
    """A server with a page of vLLM's at every 5 s of whatever window is asked for."""
    query, path = asked.fields.get("query", ""), asked.path
    if path.endswith("/values"):
        return success(sorted({series.partition("{")[0] for series, _, _ in _samples(0.0) if "vllm" in series}))
    end = float(asked.fields["time"] if "time" in asked.fields else asked.fields["end"])
    if query.startswith("count by"):
        return vector()
    found: dict[str, list[list[Any]]] = {}
    for series, at, value in _samples(end):
        if series.partition("{")[0] in query.replace("|", '"').split('"'):
            found.setdefault(series, []).append([at, str(value)])
    if query.startswith("count_over_time"):
        return vector(*((_labels(series), str(len(values))) for series, values in found.items()))
    return matrix(*((_labels(series), values) for series, values in found.items()))


def _samples(end: float) -> list[tuple[str, float, float]]:
    (replica,) = fleet(Load(seconds=60.0), 1, end, interval=5.0)
    return list(replica.series())


def _labels(series: str) -> dict[str, str]:
    name, _, labels = series.partition("{")
    pairs = (pair.partition("=") for pair in labels.rstrip("}").split('",'))
    return {"__name__": name, **{label: value.strip('"') for label, _, value in pairs}}


def test_every_gate_and_worker_sees_the_same_window(
    pytester: pytest.Pytester, gate: Callable[..., Any], script: Script
) -> None:
    script.answer = moving
    run = gate(GATES.format(url=script.url, end="now", more=""), "-n2")
    assert run.rc == 0, run.text
    assert run.verdicts == ["pass"] * 3
    # One worker asks, all of them read what it was told.
    assert len(script.asked) == 5
    assert json.loads((pytester.path / "report.json").read_text())["windows"][0]["duration_seconds"] == 60.0


def test_what_failed_is_not_asked_again_by_another_worker(gate: Callable[..., Any], script: Script) -> None:
    script.answer = lambda asked: (403, "text/plain", b"")
    run = gate(GATES.format(url=script.url, end="now-1h", more=""), "-n2")
    assert run.verdicts == ["no data"] * 3
    assert "refuses these credentials (403)" in run.text
    assert len(script.asked) == 1


@pytest.mark.parametrize(("more", "gist"), [
    ("repeat: 3", "`repeat` measures live servers again"),
    ("min_requests: 100000", "requests asked for (min_requests) finished"),
    ("warmup: 60s", "holds nothing after 60 s of warm-up"),
])  # fmt: skip
def test_what_a_window_of_the_past_cannot_do(
    gate: Callable[..., Any], script: Script, more: str, gist: str
) -> None:
    script.answer = moving
    run = gate(GATES.format(url=script.url, end="1748757600", more=more))
    assert run.rc == 1
    assert run.verdicts == ["no data"] * 3
    assert gist in run.one_line


def test_a_prometheus_stands_alone(gate: Callable[..., Any], script: Script, pages: Callable[..., None]) -> None:
    pages()
    source = f'{{prometheus: "{script.url}", duration: 60s}}'
    for beside, gist in (
        ("before.prom", "holds metrics of vLLM, and so does the Prometheus server"),
        (f'"{script.url}/metrics"', "a live server cannot stand beside a Prometheus server"),
    ):
        run = gate(f"windows: {{w: {{telemetry: [{source}, {beside}], gates: [itl.mean <= 12ms]}}}}\n")
        assert run.verdicts == ["no data"]
        assert gist in run.one_line
    run = gate(f"windows: {{w: {{telemetry: [{source}, {source}], gates: [itl.mean <= 12ms]}}}}\n")
    assert run.verdicts == ["no data"]
    assert "stands twice with the same selector" in run.one_line


def test_errors_of_the_file_come_before_any_question(gate: Callable[..., Any], script: Script) -> None:
    run = gate(f"windows: {{w: {{telemetry: {{prometheus: '{script.url}', selector: 'namespace=prod'}}}}}}\n")
    assert run.rc == 2
    assert "windows.w.telemetry.selector: expected label matchers" in run.one_line
    assert not script.asked


def test_a_secret_reaches_no_output(
    gate: Callable[..., Any], script: Script, monkeypatch: pytest.MonkeyPatch, pytester: pytest.Pytester
) -> None:
    secret = "tok-3n-of-a-tenant"
    monkeypatch.setenv("TENANT_TOKEN", secret)
    script.answer = lambda asked: (422, "application/json", json.dumps(
        {"status": "error", "errorType": "execution", "error": f"tenant {secret} has no data"}).encode())  # fmt: skip
    file = GATES.format(url=script.url, end="now", more="").replace(
        "selector:", 'headers: {Authorization: "Bearer ${TENANT_TOKEN}"}, selector:'
    )
    run = gate(file, "-vv", "--showlocals", "--llmroof-report=r.json")
    assert run.rc == 1
    assert script.asked[0].headers["Authorization"] == f"Bearer {secret}"
    assert "tenant *** has no data" in run.one_line
    written = [path.read_text(errors="replace") for path in pytester.path.glob("*.json")]
    assert not any(secret in text for text in (run.text, *written))


def test_a_profile_beside_a_prometheus_decides_where_the_time_went(
    pytester: pytest.Pytester, gate: Callable[..., Any], script: Script
) -> None:
    script.answer = moving
    write_kineto(decode(idle=0.4, world_size=1), pytester.path / "decode.pt.trace.json")
    text = GATES.format(url=script.url, end="1796000060", more="phase: decode")
    text = text.replace("telemetry: {", "telemetry:\n      - decode.pt.trace.json\n      - {")
    run = gate(text.replace('gates: ["', 'gates: ["timeline.idle <= 5%", "'))
    assert run.verdicts == ["fail", "pass", "pass", "pass"]
    assert run.window["diagnosis"]["scenario"] == "D"
    assert {source["kind"] for source in run.window["sources"]} >= {"pytorch_profiler", "prometheus"}
