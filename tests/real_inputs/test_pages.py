"""Pages of metrics that people misread, of vLLM where nothing else is said. Figures are worked out beside them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from judging import Judge

ONE = 'engine="0",model_name="m"'
TWO = 'engine="1",model_name="m"'


def page(samples: Mapping[str, float | str], at: float | None = None) -> str:
    """A page of these samples, with a clock where one is given."""
    lines = [f"# scraped_at {at}"] if at is not None else []
    return "\n".join([*lines, *(f"{name} {value}" for name, value in samples.items())]) + "\n"


def both(first: Mapping[str, float | str], last: Mapping[str, float | str]) -> dict[str, str]:
    """Two pages, 10 s apart by the window's ``duration``."""
    return {"before.prom": page(first), "after.prom": page(last)}


TEN_SECONDS = "phase: decode\nduration: 10s"


def test_prompt_tokens_from_the_cache_are_not_computed(judge: Judge) -> None:
    # 737,000 prompt tokens in 10 s, 414,931 of them from the cache: 32,206.9 computed a second.
    # 2 x 37e9 x that / (8 x 1978.9e12) = 15.05 %; with the cached ones 34.4 %.
    last = {
        f"vllm:prompt_tokens_total{{{ONE}}}": 737_000.0,
        f"vllm:prefix_cache_queries_total{{{ONE}}}": 737_000.0,
        f"vllm:prefix_cache_hits_total{{{ONE}}}": 414_931.0,
        f"vllm:num_requests_running{{{ONE}}}": 0.0,
    }
    head = (
        "gpu: h100\n"
        "model: {parameters: 671e9, active_parameters: 37e9, weight_bytes: 500GB, kv_bytes_per_token: 70272}\n"
        "deployment: {tensor_parallel: 8, weights: fp8, compute: fp8}"
    )
    # Two scrapes do not tell for how much of the 10 s prompts were computed: what they come to is a lower bound.
    found = judge(
        "prefill.mfu >= 15%", "prefill.mfu >= 30%", "prefill.tokens_per_second >= 40000",
        "prefix_cache.hit_rate >= 56%",
        head=head, window="phase: prefill\nduration: 10s", files=both(dict.fromkeys(last, 0.0), last),
    )  # fmt: skip
    assert found.verdicts == ["pass", "no data", "no data", "pass"]
    assert found.value("prefill.tokens_per_second") == pytest.approx(32_206.9)
    assert found.value("prefill.mfu") == pytest.approx(2 * 37e9 * 32_206.9 / (8 * 1978.9e12), rel=1e-3)
    assert found.value("prefix_cache.hit_rate") == pytest.approx(0.563, rel=1e-3)


def test_no_hit_at_all_is_a_hit_rate(judge: Judge) -> None:
    last = {
        f"vllm:prompt_tokens_total{{{ONE}}}": 1000.0,
        f"vllm:prefix_cache_queries_total{{{ONE}}}": 1000.0,
        f"vllm:prefix_cache_hits_total{{{ONE}}}": 0.0,
    }
    found = judge(
        "prefix_cache.hit_rate <= 1%", "prefix_cache.hit_rate >= 1%",
        window="phase: prefill\nduration: 10s", files=both(dict.fromkeys(last, 0.0), last),
    )  # fmt: skip
    assert found.value("prefix_cache.hit_rate") == 0
    assert found.verdicts == ["pass", "fail"]


def test_prompts_and_decode_of_one_window_are_told_apart(judge: Judge) -> None:
    # Of 10 s, 2 s of prompts: 80 of 750 tokens in 25 ms each, 2 x 8.03e9 x 60,000 / 2 s / 989.4e12 = 48.7 %; and 8 s of
    # decode: 1,280 steps that read 15.01 GB each, 71.7 % of 3.35 TB/s. Over the whole 10 s, 142,000 tokens come to
    # 23.0 % of the peak, and the steps to 57.4 %: by these the one limit would fail, and so would the other.
    load = {
        "itl": 10 / 1280, "batch": 64, "context": 1262, "output": 1024, "running": 1, "seconds": 10.0, "prefill": 0.025,
        "queue": 0.0,
    }  # fmt: skip
    head = (
        "gpu: h100\nmodel: {parameters: 8030261248, weight_bytes: 15009849344, kv_bytes_per_token: 1}\n"
        "deployment: {tensor_parallel: 1, weights: bf16}"
    )
    found = judge("prefill.mfu >= 45%", "decode.mbu >= 70%", "window.mfu <= 25%", head=head, load=load)
    assert found.verdicts == ["pass", "no data", "pass"], found.text
    assert "window of its own" in found.text
    assert found.value("prefill.mfu") == pytest.approx(2 * 8.03e9 * 60_000 / 2 / 989.4e12, rel=0.02)
    assert found.value("window.mfu") == pytest.approx(0.2304, rel=0.02)
    low, high = found.window["measurements"]["decode.mbu"]["low"], found.window["measurements"]["decode.mbu"]["high"]
    assert low <= 0.5735 + 0.003
    assert high is None or high >= 0.70


def test_engines_of_one_page_add_up_and_their_shares_do_not(judge: Judge) -> None:
    # (3,000 + 5,000) / 10 s; one line alone says 300 or 500. Running 12 + 20; the cache is 90 % full at the worst.
    def at(first: float, second: float) -> dict[str, float | str]:
        return {
            f"vllm:generation_tokens_total{{{ONE}}}": first, f"vllm:generation_tokens_total{{{TWO}}}": second,
            f"vllm:num_requests_running{{{ONE}}}": 12.0, f"vllm:num_requests_running{{{TWO}}}": 20.0,
            f"vllm:kv_cache_usage_perc{{{ONE}}}": 0.3, f"vllm:kv_cache_usage_perc{{{TWO}}}": 0.9,
        }  # fmt: skip

    found = judge(
        "output.tokens_per_second >= 800", "running.max <= 31", "kv_cache.usage.max <= 89%",
        window=TEN_SECONDS, files=both(at(1000, 4000), at(4000, 9000)),
    )  # fmt: skip
    assert found.verdicts == ["pass", "fail", "fail"]
    assert found.value("output.tokens_per_second") == 800
    assert found.value("running.max") == 32
    assert found.value("kv_cache.usage.max") == 0.9


def test_an_engine_that_is_not_among_the_lines_is_missed(judge: Judge) -> None:
    at = {f"vllm:generation_tokens_total{{{ONE}}}": 0.0}, {f"vllm:generation_tokens_total{{{ONE}}}": 3000.0}
    found = judge(
        "output.tokens_per_second >= 100", head="deployment: {data_parallel: 2}", window=TEN_SECONDS, files=both(*at)
    )  # fmt: skip
    assert found.verdicts == ["impossible"]
    assert "data_parallel" in found.text


def test_a_gauge_of_throughput_is_no_throughput(judge: Judge) -> None:
    # SGLang's own rate: one rank's where several attend in parallel, and the last one's where nobody asks any more.
    gauge = {'sglang:gen_throughput{engine_type="unified",model_name="m",tp_rank="0",pp_rank="0"}': 386.2}
    found = judge("output.tokens_per_second >= 300", window=TEN_SECONDS, files=both(dict(gauge), dict(gauge)))
    assert found.verdicts == ["no data"]
    idle = gauge | {'sglang:generation_tokens_total{model_name="m",tp_rank="0"}': 5000.0}
    found = judge("output.tokens_per_second >= 300", window=TEN_SECONDS, files=both(dict(idle), dict(idle)))
    assert found.verdicts == ["no data"]
    assert "idle" in found.text


def test_a_server_that_started_anew_has_no_difference(judge: Judge) -> None:
    before = {f"vllm:generation_tokens_total{{{ONE}}}": 987_654.0, "process_start_time_seconds": 1_700_000_000.0}
    after = {f"vllm:generation_tokens_total{{{ONE}}}": 5000.0, "process_start_time_seconds": 1_700_000_090.0}
    files = {"before.prom": page(before, 1_700_000_000.5), "after.prom": page(after, 1_700_000_100.5)}
    found = judge("output.tokens_per_second >= 30", files=files, window="phase: decode")
    assert found.verdicts == ["no data"]
    assert "the server restarted between before.prom and after.prom" in found.text
    assert not any("-" in str(value) for value in found.measured)


def ttft(counts: dict[str, float], total: float) -> dict[str, float | str]:
    """A histogram of times to first token."""
    rows: dict[str, float | str] = {
        f'vllm:time_to_first_token_seconds_bucket{{{ONE},le="{bound}"}}': count for bound, count in counts.items()
    }
    return rows | {
        f"vllm:time_to_first_token_seconds_sum{{{ONE}}}": total,
        f"vllm:time_to_first_token_seconds_count{{{ONE}}}": counts["+Inf"],
    }


def test_beyond_the_last_bucket_nothing_is_known(judge: Judge) -> None:
    # Of 100, 90 within 60 s: p99 is above it, however far. p50: place 50 of (10, 80] in (1 s, 10 s]: 6.14 s. Mean 30 s.
    last = ttft({"1.0": 10, "10.0": 80, "60.0": 90, "+Inf": 100}, 3000)
    found = judge(
        "ttft.p99 <= 60s", "ttft.p99 <= 90s", "ttft.p99 >= 61s", "ttft.p50 <= 10s", "ttft.p50 <= 6s",
        "ttft.mean <= 29s",
        window=TEN_SECONDS, files=both(dict.fromkeys(last, 0.0), last),
    )  # fmt: skip
    assert found.verdicts == ["fail", "no data", "no data", "pass", "fail", "fail"]
    assert found.approximate == [False, False, False, False, True, False]
    assert found.value("ttft.p50") == pytest.approx(1 + 9 * 40 / 70)
    assert found.value("ttft.mean") == 30


@pytest.mark.parametrize("gate", ["ttft.p99 <= 60s", "ttft.p99 > 1ms", "ttft.mean <= 60s", "ttft.mean > 0s"])
def test_a_histogram_of_nothing_passes_in_no_direction(judge: Judge, gate: str) -> None:
    nothing = ttft({"1.0": 0, "+Inf": 0}, 0)
    moving = {f"vllm:prompt_tokens_total{{{ONE}}}": 0.0}
    files = both({**nothing, **moving}, {**nothing, f"vllm:prompt_tokens_total{{{ONE}}}": 1000.0})
    found = judge(gate, window=TEN_SECONDS, files=files)
    assert found.verdicts == ["no data"]
    assert "0 observations" in found.text


def test_what_was_observed_before_the_window_does_not_count(judge: Judge) -> None:
    # 1,000 slow ones of a cold start, then 100 of which all took less than 0.5 s.
    before = ttft({"0.5": 0, "60.0": 1000, "+Inf": 1000}, 40_000)
    after = ttft({"0.5": 100, "60.0": 1100, "+Inf": 1100}, 40_030)
    found = judge("ttft.p95 <= 500ms", "ttft.mean <= 300ms", window=TEN_SECONDS, files=both(before, after))
    assert found.verdicts == ["pass", "pass"]
    assert found.value("ttft.mean") == pytest.approx(0.3)


def test_a_sum_of_zero_over_many_is_no_latency(judge: Judge) -> None:
    # 100 observations of 0 s each: nobody stamped them.
    last = ttft({"0.001": 100, "60.0": 100, "+Inf": 100}, 0)
    found = judge("ttft.mean <= 1s", "ttft.p99 <= 1s", window=TEN_SECONDS, files=both(dict.fromkeys(last, 0.0), last))
    assert found.verdicts == ["no data", "no data"], found.text


@pytest.mark.parametrize("open_metrics", [False, True])
def test_a_time_of_creation_is_no_count(judge: Judge, open_metrics: bool) -> None:
    # 1,234 prompt tokens in 10 s. Beside them stands when the counter was made, as 1.7e9.
    def at(count: float) -> str:
        rows = [f"vllm:prompt_tokens_total{{{ONE}}} {count}", f"vllm:prompt_tokens_created{{{ONE}}} 1.7e+09"]
        if open_metrics:
            return "\n".join(["# TYPE vllm:prompt_tokens counter", *rows, "# EOF"]) + "\n"
        kinds = ["# TYPE vllm:prompt_tokens_total counter", "# TYPE vllm:prompt_tokens_created gauge"]
        return "\n".join([kinds[0], rows[0], kinds[1], rows[1]]) + "\n"

    files = {"before.prom": at(0.0), "after.prom": at(1234.0)}
    found = judge("input.tokens_per_second <= 124", window="phase: prefill\nduration: 10s", files=files)
    assert found.verdicts == ["pass"]
    assert found.value("input.tokens_per_second") == pytest.approx(123.4)


def test_labels_with_blanks_and_samples_with_times_are_read(judge: Judge) -> None:
    def at(count: float, milliseconds: int) -> str:
        labels = 'engine="0",model_name="my model, v2 {x}",path="a \\"b\\" c"'
        return f"vllm:generation_tokens_total{{{labels}}} {count} {milliseconds}\n"

    files = {"before.prom": at(0.0, 1_700_000_000_000), "after.prom": at(5000.0, 1_700_000_010_000)}
    found = judge("output.tokens_per_second >= 500", window="phase: decode", files=files)
    assert found.verdicts == ["pass"]
    assert found.value("output.tokens_per_second") == 500


def test_a_metric_of_another_name_is_the_same(judge: Judge) -> None:
    # 500 pauses of 25 ms. The older name of the pauses sounds like a time per token of each request, and is none.
    labels = 'model_name="m"'
    old = {
        f"vllm:gpu_cache_usage_perc{{{labels}}}": 0.42,
        f"vllm:time_per_output_token_seconds_sum{{{labels}}}": 12.5,
        f"vllm:time_per_output_token_seconds_count{{{labels}}}": 500.0,
    }
    new = {
        f"vllm:kv_cache_usage_perc{{{labels}}}": 0.42,
        f"vllm:inter_token_latency_seconds_sum{{{labels}}}": 12.5,
        f"vllm:inter_token_latency_seconds_count{{{labels}}}": 500.0,
        f"vllm:request_time_per_output_token_seconds_sum{{{labels}}}": 0.5,
        f"vllm:request_time_per_output_token_seconds_count{{{labels}}}": 20.0,
    }
    gates = ("itl.mean <= 25ms", "tpot.mean <= 25ms", "kv_cache.usage.max <= 41%")
    for pages, tpot in ((old, "no data"), (new, "pass")):
        first = {name: value if "usage" in name else 0.0 for name, value in pages.items()}
        found = judge(*gates, window=TEN_SECONDS, files=both(first, dict(pages)))
        assert found.verdicts == ["pass", tpot, "fail"]
        assert found.value("itl.mean") == pytest.approx(0.025)
        assert found.value("kv_cache.usage.max") == 0.42


def test_a_metric_that_is_not_there_is_no_zero(judge: Judge) -> None:
    at = {f"vllm:generation_tokens_total{{{ONE}}}": 0.0}, {f"vllm:generation_tokens_total{{{ONE}}}": 3000.0}
    found = judge("preemptions <= 0", "prefix_cache.hit_rate <= 1%", window=TEN_SECONDS, files=both(*at))
    assert found.verdicts == ["no data", "no data"]


def test_a_servers_estimates_are_per_gpu_and_stand_beside(judge: Judge) -> None:
    # FLOPs that the server says each of its GPUs did: 3e15 in 10 s are 30.3 % of one, whatever the degree. They are
    # held against what the tokens need, and judge nothing.
    def at(done: float) -> dict[str, float | str]:
        # 85,000 prompt tokens a replica: 2 x 69.5e9 x 85,000 / 4 = 2.95e15 FLOP a GPU.
        return {
            f"vllm:estimated_flops_per_gpu_total{{{ONE}}}": done * 3.0e15,
            f"vllm:estimated_flops_per_gpu_total{{{TWO}}}": done * 2.0e15,
            f"vllm:prompt_tokens_total{{{ONE}}}": done * 85_000,
            f"vllm:prompt_tokens_total{{{TWO}}}": done * 85_000,
            f"vllm:num_requests_running{{{ONE}}}": 0.0,
            f"vllm:num_requests_running{{{TWO}}}": 0.0,
            **{f"vllm:prefix_cache_{what}_total{{{each}}}": 0.0 for what in ("queries", "hits") for each in (ONE, TWO)},
        }

    head = "gpu: h100\nmodel: llama-3.1-70b\ndeployment: {tensor_parallel: 4, weights: bf16, data_parallel: 2}"
    window = "phase: prefill\nduration: 10s"
    found = judge("prefill.mfu >= 25%", head=head, window=window, files=both(at(0), at(1)))
    assert found.verdicts == ["pass"]
    assert found.value("prefill.mfu") == pytest.approx(2 * 69.502e9 * 170_000 / 10 / (8 * 989.4e12), rel=5e-3)
