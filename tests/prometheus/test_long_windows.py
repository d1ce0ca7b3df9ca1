"""Very many seconds of one-second scrapes in a real Prometheus: the same questions, and no more points than it allows.

A whole week is in benchmarks/fleet.py. Here are five hours: more than the 11,000 points that Prometheus answers for a
series, and, by lower bounds of ours, more than is read raw.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from long_history import BATCH, END, REQUESTS, STEPS, TOKENS, history

from pytest_llmroof.telemetry import prometheus as reader
from pytest_llmroof.telemetry.clusters import window_of
from pytest_llmroof.telemetry.fleetsource import api_of
from pytest_llmroof.telemetry.promapi import MOST_TIMES, PrometheusApi, Row
from pytest_llmroof.telemetry.question import question_of
from pytest_llmroof.telemetry.window import Window

SECONDS = 5 * 3600


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with history(tmp_path_factory.mktemp("history"), SECONDS) as address:
        yield address


def read(url: str, seconds: float) -> tuple[Window, int]:
    """The window, and the number of requests for it."""
    api = api_of({"prometheus": url, "timeout": 300.0})
    window = window_of([reader.answer_of(api, question_of("", duration=seconds, end=str(END)))])
    return window, api.asked


def test_many_seconds_take_no_more_questions(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, few = read(url, 600)
    most: list[int] = []
    asked = PrometheusApi.range

    def watched(api: PrometheusApi, *arguments: object) -> list[Row]:
        rows = asked(api, *arguments)  # type: ignore[arg-type]
        most.extend(len(row.times) for row in rows)
        return rows

    monkeypatch.setattr(PrometheusApi, "range", watched)
    # Six series of 18,001 samples are more.
    monkeypatch.setattr(reader, "RAW_SAMPLES", 90_000)
    window, many = read(url, SECONDS)
    assert many == few
    assert SECONDS > MOST_TIMES >= max(most)
    (engine,) = window.engines
    assert engine.seen is not None
    first, last = engine.seen
    assert last == pytest.approx(END, abs=2)
    # The two thirds behind the restart count, within the step at which it was seen; exactly what moved between.
    restart = END - 2 * SECONDS // 3
    assert restart <= first <= restart + 10
    seconds = engine.counters["generation_tokens"] / TOKENS
    assert seconds == pytest.approx(last - first, abs=window.clock_error_seconds)
    assert engine.counters["requests_finished"] == pytest.approx(REQUESTS * seconds)
    assert engine.histograms["itl"].count == pytest.approx(STEPS * BATCH * seconds)
    assert any("restarted once" in note for note in window.notes)
    assert any("too many samples to read all" in note for note in window.notes)


def test_all_of_them_where_they_fit(url: str) -> None:
    """The pulse is raw: what counts lies between two scrapes, exactly, at the times that the rest is read at."""
    window, _ = read(url, SECONDS)
    (engine,) = window.engines
    assert engine.seen is not None
    first, last = engine.seen
    restart = END - 2 * SECONDS // 3
    assert (restart <= first <= restart + 5, last) == (True, END)
    assert engine.counters["generation_tokens"] == TOKENS * (last - first)
