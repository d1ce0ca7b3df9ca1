"""Several frontends beside an engine as one: what one of them cannot tell is no sum of the others."""

from __future__ import annotations

from pytest_llmroof.telemetry.beside import as_one
from pytest_llmroof.telemetry.engines import known_engines
from pytest_llmroof.telemetry.window import Engine, Histogram

INF = float("inf")
NAME = "dynamo_frontend_time_to_first_token_seconds"


def frontend(bounds: tuple[float, ...], *, unusable: dict[str, str] | None = None) -> Engine:
    return Engine(
        "frontend", "m", counters={"generation_tokens": 100.0, "prompt_tokens": 10.0}, finished={"success": 5.0},
        histograms={"ttft": Histogram(bounds, (5.0,) * len(bounds), 1.0)}, names={"ttft": NAME},
        unusable=unusable or {},
    )  # fmt: skip


def test_two_frontends_add_up() -> None:
    said: list[str] = []
    whole = as_one([frontend((1.0, INF)), frontend((1.0, INF))], False, known_engines()["dynamo"], said)
    assert (whole.counters["generation_tokens"], whole.histograms["ttft"].count, said) == (200, 20, [])


def test_other_buckets_are_left_out_and_said() -> None:
    said: list[str] = []
    whole = as_one([frontend((1.0, INF)), frontend((2.0, INF))], False, known_engines()["dynamo"], said)
    assert whole.histograms == {}
    assert said == [f"{NAME} of Dynamo frontend has other buckets on other pages: left out"]


def test_what_one_cannot_tell_is_no_sum_of_the_others() -> None:
    lost = {"generation_tokens": "it is NaN", "requests_finished": "it went down"}
    parts = [frontend((1.0, INF)), frontend((1.0, INF), unusable=lost)]
    whole = as_one(parts, False, known_engines()["dynamo"], [])
    assert (dict(whole.counters), whole.finished) == ({"prompt_tokens": 20}, {})
