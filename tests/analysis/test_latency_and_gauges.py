"""Latencies, gauges and rates: what each definition is, and every way of having no measurement."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from made_windows import around, deployment, engine, moving, window

from pytest_llmroof.analysis.gather import gather
from pytest_llmroof.analysis.measure import Measurements, measure
from pytest_llmroof.analysis.measurement import Measurement, NoData, Outcome
from pytest_llmroof.analysis.metrics import METRICS, list_metrics, metric_names, metric_of
from pytest_llmroof.errors import ConfigError
from pytest_llmroof.telemetry.window import Engine, Histogram, Series, Window

NOTHING = deployment(None, None)


def of(made: Window) -> Measurements:
    return measure(gather(made, NOTHING))


def measured(outcome: Outcome) -> Measurement:
    assert isinstance(outcome, Measurement), outcome
    return outcome


def no_data(outcome: Outcome) -> NoData:
    assert isinstance(outcome, NoData), outcome
    return outcome


def load(**changes: Any) -> Engine:
    figures: dict[str, Any] = {
        "itl": 0.02, "outputs": 8000, "steps": 1000, "prompt": 100, "output": 800, "requests": 10
    }  # fmt: skip
    return engine(**{**figures, **changes})


def test_a_percentile_beyond_the_last_bucket_is_known_from_below_only() -> None:
    slow = Histogram((1.0, 10.0, 60.0, math.inf), (10, 70, 10, 10), 3000.0)
    m = of(window(load(histograms={"ttft": slow})))
    p99, p50, mean = measured(m["ttft.p99"]), measured(m["ttft.p50"]), measured(m["ttft.mean"])
    assert p99.judged_by == "bounds"
    assert (p99.value, p99.bounded.high) == (60.0, math.inf)
    assert "beyond the last bucket" in (p99.undecided or "")
    assert p50.value == pytest.approx(6.142857, rel=1e-6)
    assert p50.bucketed
    assert mean.value == 30.0
    assert mean.bounded.exact


def test_an_empty_histogram_is_no_data_and_an_absent_one_names_the_source() -> None:
    empty = no_data(of(window(load(histograms={"e2e": Histogram((1.0, math.inf), (0, 0), 0.0)})))["e2e.p99"])
    assert "0 observations" in empty.reason
    absent = no_data(of(window(load()))["queue.p99"])
    assert "vllm exports no histogram of queue time in after.prom" in absent.reason
    assert "vllm bench serve" in str(absent.remedy)


def test_latency_between_outputs_is_not_time_per_output_token() -> None:
    # The old time_per_output_token histogram was inter-token latency: telemetry files it there, and TPOT stays absent.
    old = of(window(load(itl=0.025)))
    assert measured(old["itl.mean"]).value == pytest.approx(0.025)
    assert isinstance(old["tpot.mean"], NoData)
    new = of(window(load(itl=0.025, histograms={"tpot": around(0.025, 10)})))
    assert measured(new["tpot.mean"]).value == pytest.approx(0.025)


def test_outputs_of_one_token_have_no_time_per_token() -> None:
    # Six of ten requests gave one token and were observed as 0: the four others took 20 ms each.
    lengths = Histogram((1.0, 100.0, math.inf), (6, 4, 0), 206.0)
    times = Histogram((0.01, 0.025, math.inf), (6, 4, 0), 0.08)
    m = of(window(load(histograms={"generation_length": lengths, "tpot": times})))
    mean, p50 = measured(m["tpot.mean"]), measured(m["tpot.p50"])
    assert mean.value == pytest.approx(0.02)
    assert mean.samples == 4
    assert "single token" in mean.method
    assert p50.bounded.low == 0.01
    only = {"generation_length": around(1.0, 10), "tpot": Histogram((0.01, math.inf), (10, 0), 0.0)}
    only["generation_length"] = Histogram((1.0, math.inf), (10, 0), 10.0)
    for statistic in ("p50", "mean", "max"):
        assert no_data(of(window(load(histograms=only)))[f"tpot.{statistic}"]).reason.startswith("all 10 requests")


def test_engines_that_observe_no_zeros_keep_every_observation() -> None:
    # Ten of 20 ms each, six of them of outputs of one token, which this engine says nothing of by itself.
    lengths = Histogram((1.0, 100.0, math.inf), (6, 4, 0), 206.0)
    made = load(histograms={"generation_length": lengths, "tpot": around(0.02, 10)})
    mean = measured(of(window(made, conventions=frozenset({"itl_per_step"})))["tpot.mean"])
    assert mean.value == pytest.approx(0.02)
    assert mean.samples == 10


def test_a_replica_whose_lengths_are_not_told_has_no_single_tokens_known() -> None:
    """Of engine 0 six of ten outputs had one token; of engine 1 nobody knows: its ten count as they were observed."""
    times = Histogram((0.01, 0.025, math.inf), (6, 4, 0), 0.08)
    lengths = Histogram((1.0, 100.0, math.inf), (6, 4, 0), 206.0)
    first = load(histograms={"generation_length": lengths, "tpot": times})
    second = load(identity="engine 1", histograms={"tpot": times})
    second = replace(second, histograms={name: one for name, one in second.histograms.items() if name == "tpot"})
    mean = measured(of(window(first, second))["tpot.mean"])
    assert mean.value == pytest.approx(0.16 / 14)
    assert mean.samples == 14


@pytest.mark.parametrize("metric", ["ttft.mean", "ttft.p50", "itl.max", "e2e.p99"])
def test_latencies_that_were_never_stamped_are_no_data(metric: str) -> None:
    """A zero would hold every limit. Only a queue can be that short."""
    unstamped = Histogram((0.01, math.inf), (5.0, 0.0), 0.0)
    m = of(window(load(histograms={metric.partition(".")[0]: unstamped, "queue": unstamped})))
    assert "5 observations of" in no_data(m[metric]).reason
    assert "add up to 0 s: nothing of it was measured" in no_data(m[metric]).reason
    assert measured(m["queue.mean"]).value == 0


def test_latencies_of_one_step_are_one_observation() -> None:
    # 8 000 latencies of 100 steps: p99 would need 368 steps.
    p99 = measured(of(window(load(steps=100)))["itl.p99"])
    assert p99.bounded.high == math.inf
    assert p99.samples == 8000
    assert "100 steps" in p99.method
    assert "268 more steps (368 bound" in str(p99.settle)


def test_the_largest_latency_is_bounded_by_its_bucket_and_the_mean() -> None:
    times = Histogram((0.05, 0.1, math.inf), (0, 10, 0), 0.6)  # ten requests of 60 ms on average
    largest = measured(of(window(load(histograms={"ttft": times})))["ttft.max"])
    assert largest.judged_by == "bounds"
    assert largest.bounded.low == pytest.approx(0.06)
    assert largest.bounded.high == 0.1
    assert "between 60 ms and 100 ms" in (largest.undecided or "")


def test_replicas_with_other_buckets_keep_their_means() -> None:
    other = load(identity="engine 1", histograms={"ttft": Histogram((7.0, math.inf), (10, 0), 3.0)})
    m = of(window(load(), other))
    assert measured(m["ttft.mean"]).value == pytest.approx((0.1 * 10 + 3.0) / 20)
    assert "different buckets" in no_data(m["ttft.p99"]).reason


def sampled(values: list[float], running: float = 8.0, every: float = 1.0) -> Window:
    times = tuple(every * i for i in range(len(values)))
    gauges = {"kv_usage": Series(times, tuple(values)), "running": Series(times, (running,) * len(values))}
    progress = moving(times, times[0], times[-1])
    duration = times[-1] - times[0]
    return window(load(gauges=gauges, present=None), seconds=duration, progress=progress, samples=len(values))


def test_the_largest_of_dense_samples_is_evidence() -> None:
    usage = measured(of(sampled([0.1, 0.5, 0.9, 0.7, *[0.6] * 8]))["kv_cache.usage.max"])
    assert usage.value == 0.9
    assert usage.bounded.exact
    assert usage.judged_by == "value"
    assert usage.samples == 12


def test_samples_a_tenth_of_the_load_apart_are_dense_but_no_wider_ones() -> None:
    # Eleven samples 6 s apart in 60 s are; 6.1 s apart, in a window of 60 s, they are not.
    assert measured(of(sampled([0.5] * 11, every=6.0))["kv_cache.usage.mean"]).value == 0.5
    wide = replace(sampled([0.5] * 11, every=6.1), duration_seconds=60.0)
    assert no_data(of(wide)["kv_cache.usage.mean"]).reason.endswith("a gap of 6.10 s in 60 s")


@pytest.mark.parametrize("count", [2, 9])
def test_the_largest_of_few_samples_is_a_lower_bound(count: int) -> None:
    usage = measured(of(sampled([0.2] * (count - 1) + [0.4]))["kv_cache.usage.max"])
    assert usage.judged_by == "bounds"
    assert (usage.bounded.low, usage.bounded.high) == (0.4, 1.0)
    assert f"{count} samples" in (usage.undecided or "")
    assert "record" in str(usage.settle)


def test_a_gap_between_samples_hides_what_was_in_it() -> None:
    times = (*(float(i) for i in range(12)), 30.0)
    made = load(gauges={"kv_usage": Series(times, (0.3,) * 13), "running": Series(times, (8.0,) * 13)}, present=None)
    m = of(window(made, seconds=30.0, progress=moving(times, 0.0, 30.0)))
    usage = measured(m["kv_cache.usage.max"])
    assert usage.judged_by == "bounds"
    # 13 samples are enough: what spoils them is 30 - 11 = 19 s without one.
    assert (usage.undecided or "").endswith("and there is a gap of 19 s in 30 s")
    assert no_data(m["running.mean"]).reason == "13 samples inside the load: a gap of 19 s in 30 s"


def test_a_gap_is_one_of_the_samples_where_no_clock_tells_the_window() -> None:
    times = (*(100.0 + i for i in range(12)), 130.0)
    made = load(gauges={"kv_usage": Series(times, (0.3,) * 13), "running": Series(times, (8.0,) * 13)}, present=None)
    m = of(window(made, seconds=None, progress=moving(times, 100.0, 130.0)))
    assert (measured(m["kv_cache.usage.max"]).undecided or "").endswith("a gap of 19 s in 30 s")


def test_an_engine_that_has_not_verified_yet_says_no_mean_of_it() -> None:
    def lengths(*values: float) -> Measurement:
        times = tuple(float(i) for i in range(len(values)))
        made = load(gauges={"accept_length": Series(times, values)})
        return measured(of(window(made))["speculative.tokens_per_step"])

    seen = lengths(0.0, 3.0, 2.0)
    assert (seen.value, seen.samples) == (2.5, 2)


def test_two_scrapes_that_bracket_the_load_say_nothing_of_it() -> None:
    gauges = {"kv_usage": Series((0.0, 60.0), (0.0, 0.0))}
    m = of(window(load(gauges=gauges, present=(0, 0))))
    usage = measured(m["kv_cache.usage.max"])
    assert usage.judged_by == "bounds"
    assert "2 samples, none of them inside the load" in (usage.undecided or "")
    assert "none of them inside the load" in no_data(m["kv_cache.usage.mean"]).reason
    assert isinstance(m["running.last"], NoData)
    assert "kv_cache.usage.max" not in list(m)


def test_only_samples_inside_the_load_count() -> None:
    # Ten idle seconds on either side of twenty busy ones: the mean is that of the load.
    times = tuple(float(i) for i in range(41))
    running = tuple(8.0 if 10 <= time <= 30 else 0.0 for time in times)
    made = load(gauges={"running": Series(times, running)}, present=None)
    m = of(window(made, seconds=40.0, progress=moving(times, 10.0, 30.0), samples=41))
    assert measured(m["running.mean"]).value == 8.0
    assert measured(m["running.mean"]).samples == 21
    assert measured(m["running.last"]).value == 8.0


def test_replicas_add_up_and_cache_usage_does_not() -> None:
    # 3 000 and 5 000 tokens in 10 s: 800 tok/s. 16 requests on each: 32 running. Usage 0.30 and 0.90: at most 0.90.
    def replica(name: str, generated: float, usage: float) -> Engine:
        gauges = {"kv_usage": Series((0.0, 10.0), (usage, usage))}
        counters = {"generation_tokens": generated}
        return load(identity=name, counters=counters, gauges=gauges, present=(16, 16), span=(0.0, 10.0))

    m = of(window(replica("engine 0", 3000.0, 0.3), replica("engine 1", 5000.0, 0.9), seconds=10.0))
    assert measured(m["output.tokens_per_second"]).value == pytest.approx(800.0)
    assert measured(m["output.tokens_per_second.per_gpu"]).value == pytest.approx(400.0)
    assert measured(m["running.last"]).value == 32.0
    assert "2 replicas" in measured(m["running.last"]).method
    assert measured(m["kv_cache.usage.max"]).bounded.low == 0.9
    assert measured(m["kv_cache.usage.last"]).value == pytest.approx(0.6)


def test_rates_carry_the_error_of_the_clock() -> None:
    made = window(load(), seconds=10.0, clock_error_seconds=1.0)
    rate = measured(of(made)["requests_per_second"])
    assert (rate.value, rate.bounded.low, rate.bounded.high) == pytest.approx((1.0, 10 / 11, 10 / 9))
    clockless = no_data(of(window(load(), seconds=None))["requests_per_second"])
    assert "no clock" in clockless.reason
    assert "scraped_at" in str(clockless.remedy)


def test_errors_are_counted_by_reason() -> None:
    failing = replace(load(), finished={"stop": 30.0, "length": 18.0, "abort": 12.0, "error": 40.0})
    assert measured(of(window(failing))["errors.rate"]).value == pytest.approx(0.52)
    assert "no request finished" in no_data(of(window(replace(load(), finished={"stop": 0.0})))["errors.rate"]).reason


def test_prefix_hits_by_tokens_or_by_the_engines_own_rate() -> None:
    hits = load(counters={"prefix_hits": 414_931.0, "prefix_queries": 737_000.0})
    assert measured(of(window(hits))["prefix_cache.hit_rate"]).value == pytest.approx(414_931 / 737_000)
    rate = load(gauges={"prefix_hit_rate": Series((0.0, 60.0), (0.2, 0.25))}, present=(8, 8))
    assert measured(of(window(rate))["prefix_cache.hit_rate"]).value == 0.25
    off = load(gauges={"prefix_hit_rate": Series((0.0, 60.0), (-1.0, -1.0))}, present=(8, 8))
    assert isinstance(of(window(off))["prefix_cache.hit_rate"], NoData)


def test_counters_that_are_not_there_are_no_data() -> None:
    m = of(window(load()))
    absent = ("preemptions", "speculative.acceptance_rate", "speculative.tokens_per_step", "prefix_cache.hit_rate")
    for metric in absent:
        assert "exports no" in no_data(m[metric]).reason
        assert no_data(m[metric]).remedy
    assert measured(of(window(load(counters={"preemptions": 3.0})))["preemptions"]).value == 3.0


@pytest.mark.parametrize(
    ("metric", "command"),
    [
        ("hfu", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"),
        ("hardware.sm_active", "http://HOST:9400/metrics"),
        ("timeline.idle", "start_profile"),
        ("timeline.gap.p99", "nsys"),
        ("kernels(.*gemm.*).mfu", "ncu"),
        ("goodput(ttft<=2s, tpot<=50ms)", "--save-detailed"),
    ],
)
def test_what_engines_do_not_export_names_what_does(metric: str, command: str) -> None:
    outcome = no_data(measure(gather(window(load()), deployment("llama-3.1-8b")))[metric])
    assert command in str(outcome.remedy)
    assert outcome.reason


@pytest.mark.parametrize("metric", ["timeline.idle", "kernels(.*gemm.*).mfu"])
def test_profiles_that_are_not_there_are_asked_for_first(metric: str) -> None:
    # Neither a GPU nor a model would help: none is named here.
    outcome = no_data(of(window(load()))[metric])
    assert "would tell" in outcome.reason
    assert str(outcome.remedy).startswith("add ")
    assert "`telemetry:`" in str(outcome.remedy)


def test_every_metric_has_an_outcome_and_wrong_names_a_suggestion() -> None:
    m = measure(gather(window(load()), deployment("llama-3.1-8b")))
    for name in metric_names():
        assert m[name.replace("...", ".*")] is m[name.replace("...", ".*")]
        assert name in m
    measurable = list(m)
    assert len(m) == len(measurable) == len(set(measurable))
    assert all(isinstance(m[name], Measurement) for name in measurable)
    assert "decode.mbu" in measurable
    with pytest.raises(ConfigError, match=r"decode\.mbu"):
        m["decode.mbus"]
    assert "decode.mbus" not in m
    with pytest.raises(ConfigError, match="unknown metric"):
        metric_of("goodputs(ttft<=2s)")


def test_the_list_of_metrics_folds_statistics() -> None:
    listed = {entry.name: entry for entry in list_metrics()}
    assert len(listed) == len(METRICS)
    assert "p99.9" in listed["ttft.STAT"].meaning
    assert listed["decode.mbu"].needs == "gpu, model"
    assert "kernels(...).mfu" in listed
