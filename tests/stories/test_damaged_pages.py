"""Pages that say what cannot be: a figure that rests on them is refused by name, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from vllm_pages import write_pages

from pytest_llmroof.assess import assess
from pytest_llmroof.gates.assessment import Assessment
from pytest_llmroof.gates.build import window_spec
from pytest_llmroof.gates.verdict import Verdict

EIGHT_B = "meta-llama/Llama-3.1-8B-Instruct"
LOOSE = [
    "decode.mbu >= 1%", "itl.mean <= 100s", "ttft.p50 <= 100s", "e2e.mean <= 1000s", "output.tokens_per_second >= 1",
    "input.tokens_per_second >= 1", "requests_per_second >= 0.1", "errors.rate <= 100%", "prefix_cache.hit_rate >= 0%",
    "kv_cache.usage.max <= 100%",
]  # fmt: skip

Pages = Callable[..., Assessment]
Change = Callable[[float], object]


def changed(text: str, start: str, change: Change, engine: str = "0") -> str:
    """A page in which the first series that begins with ``start`` has another value."""
    lines = text.splitlines(keepends=True)
    index = next(i for i, line in enumerate(lines) if line.startswith(start) and f'engine="{engine}"' in line)
    head, _, value = lines[index].rpartition(" ")
    lines[index] = f"{head} {change(float(value))}\n"
    return "".join(lines)


@pytest.fixture
def judged(tmp_path: Path) -> Pages:
    """Judge loose gates on pages of a healthy 8B, of which one or both were changed."""

    def judge(
        first: Callable[[str], str] = str, last: Callable[[str], str] = str, model: str = "llama-3.1-8b"
    ) -> Assessment:
        before, after = write_pages(
            tmp_path, model=EIGHT_B, itl=0.0066, batch=16.0, context=1024.0, output=1024, hit_rate=0.5
        )
        before.write_text(first(before.read_text()))
        after.write_text(last(after.read_text()))
        deployment = {"tensor_parallel": 1, "weights": "bf16"}
        keys = {"gpu": "h100", "model": model, "deployment": deployment, "gates": LOOSE}
        telemetry = ["before.prom", "after.prom"]
        return assess(window_spec({**keys, "telemetry": telemetry}, id="w", name="w", base=tmp_path))

    return judge


def words(found: Assessment) -> dict[str, str]:
    return {verdict.gate.metric: verdict.word for verdict in found.verdicts}


def refused(found: Assessment) -> dict[str, Verdict]:
    return {verdict.gate.metric: verdict for verdict in found.verdicts if verdict.word != "pass"}


def test_the_healthy_window_passes(judged: Pages) -> None:
    assert set(words(judged()).values()) == {"pass"}


@pytest.mark.parametrize("value", ["NaN", "-5", "+Inf", "-Inf"])
@pytest.mark.parametrize("which", ["first", "last"])
@pytest.mark.parametrize(
    ("series", "metric"),
    [
        ("vllm:generation_tokens_total", "output.tokens_per_second"),
        ("vllm:prompt_tokens_total", "input.tokens_per_second"),
        ("vllm:request_success_total", "errors.rate"),
        ("vllm:prefix_cache_hits_total", "prefix_cache.hit_rate"),
    ],
)
def test_a_count_that_is_none(judged: Pages, series: str, metric: str, which: str, value: str) -> None:
    found = judged(**{which: lambda page: changed(page, series, lambda _: value)})
    verdict = refused(found)[metric]
    assert verdict.word == "no data"
    assert series in str(verdict.reason)
    assert words(found)["ttft.p50"] == "pass"


@pytest.mark.parametrize("which", ["first", "last"])
@pytest.mark.parametrize(
    ("suffix", "change"),
    [
        ('_bucket{engine="0",model_name="' + EIGHT_B + '",le="0.01"}', lambda _: 1e9),  # not cumulative
        ("_count", lambda count: count + 1000),
        ("_sum", lambda total: total * 9),
        ("_sum", lambda total: "NaN"),
    ],
)
def test_a_histogram_that_contradicts_itself(judged: Pages, which: str, suffix: str, change: Change) -> None:
    series = "vllm:time_to_first_token_seconds"
    found = judged(**{which: lambda page: changed(page, series + suffix, change)})
    verdict = refused(found)["ttft.p50"]
    assert verdict.word == "no data"
    assert series in str(verdict.reason)
    assert words(found)["e2e.mean"] == "pass"


def test_a_first_page_cut_between_two_lines_does_not_count_from_zero(judged: Pages) -> None:
    def cut(page: str) -> str:
        series = f'vllm:inter_token_latency_seconds_bucket{{engine="0",model_name="{EIGHT_B}",le="0.5"}}'
        return page[: page.index(series)]

    assert words(judged(first=cut))["itl.mean"] == "no data"


@pytest.mark.parametrize("value", ["-1", "1.5", "95"])
def test_a_share_of_the_cache_that_is_none(judged: Pages, value: str) -> None:
    def change(page: str) -> str:
        return changed(page, "vllm:kv_cache_usage_perc", lambda _: value)

    verdict = refused(judged(first=change, last=change))["kv_cache.usage.max"]
    assert verdict.word == "no data"
    assert f"vllm:kv_cache_usage_perc is {value}" in str(verdict.reason)


def test_more_hits_than_look_ups(judged: Pages) -> None:
    found = judged(last=lambda page: changed(page, "vllm:prefix_cache_hits_total", lambda _: 1e9))
    verdict = refused(found)["prefix_cache.hit_rate"]
    assert verdict.word == "impossible"
    assert "vllm:prefix_cache_queries_total" in str(verdict.reason)


def test_a_counter_that_jumps(judged: Pages) -> None:
    found = judged(last=lambda page: changed(page, "vllm:generation_tokens_total", lambda _: 1e15))
    assert refused(found)["output.tokens_per_second"].word == "impossible"
    assert words(found)["ttft.p50"] == "pass"


def test_one_of_two_engines_does_not_stand_for_both(judged: Pages) -> None:
    def two(page: str) -> str:
        second = [line.replace('engine="0"', 'engine="1"') for line in page.splitlines() if not line.startswith("#")]
        return page + "\n".join(second) + "\n"

    series = "vllm:time_to_first_token_seconds_sum"
    found = judged(first=two, last=lambda page: changed(two(page), series, lambda _: "NaN", engine="1"))
    assert refused(found)["ttft.p50"].word == "no data"


def test_the_page_of_another_model(judged: Pages) -> None:
    def other(page: str) -> str:
        return page.replace(EIGHT_B, "meta-llama/Llama-3.1-70B-Instruct")

    found = judged(first=other, last=other)
    verdict = refused(found)["decode.mbu"]
    assert verdict.word == "impossible"
    assert "the served model is meta-llama/Llama-3.1-70B-Instruct" in str(verdict.reason)
    assert words(found)["ttft.p50"] == "pass"  # a latency needs no model


def test_an_alias_that_is_no_model_of_the_catalogue(judged: Pages) -> None:
    def alias(page: str) -> str:
        return page.replace(EIGHT_B, "production")

    assert set(words(judged(first=alias, last=alias)).values()) == {"pass"}
