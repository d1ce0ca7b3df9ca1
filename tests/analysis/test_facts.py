"""What happened in a window: batch, busy time, context and tokens, on real scrapes and on windows made by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_windows import around, deployment, engine, moving, window

from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.gather import gather
from pytest_llmroof.analysis.lengths import UNKNOWN_CV, coefficient_of_variation, mean_context
from pytest_llmroof.analysis.measure import measure
from pytest_llmroof.analysis.measurement import Measurement, NoData
from pytest_llmroof.analysis.metrics import metric_names
from pytest_llmroof.telemetry.reading import read_window
from pytest_llmroof.telemetry.window import Engine, Histogram, Series, Window

NOTHING = deployment(None, None)


def captured(data: Path, *pages: str) -> Window:
    """A window of the real vLLM's scrapes."""
    folder = data / "vllm-cpu" / "mfu"
    return read_window(
        [(folder / f"{page}.prom", page) for page in pages], served_model_name=None, duration_seconds=None
    )  # fmt: skip


def test_batch_and_step_of_a_real_decode_window(data: Path) -> None:
    facts = gather(captured(data, "after-prefill", "after-decode"), NOTHING)
    decode = facts.decode
    assert decode is not None
    # 12 240 latencies of 58.4328 s in 2 066 steps: 5.92 sequences; 58.4328 s over the 31.0 s window would say 1.88.
    assert decode.batch.value == pytest.approx(12_240 / 2_066)
    assert decode.batch.value == pytest.approx(5.92, abs=0.005)
    assert decode.steps == 2066
    assert decode.step_seconds.value == pytest.approx(58.43275 / 12_240, rel=1e-6)
    assert decode.tokens_per_step == 1.0
    # 20 of the steps held more than 16 tokens, twice what decoding emits: were all of those prompts only, the batch
    # was 12 240 / 2 046 = 5.98.
    assert decode.batch.high == pytest.approx(12_240 / 2_046)
    assert facts.phase == "decode"


def test_two_scrapes_around_an_idle_engine_bound_the_busy_time_only(data: Path) -> None:
    facts = gather(captured(data, "after-prefill", "after-decode"), NOTHING)
    assert facts.duration_seconds == pytest.approx(31.0, abs=0.05)
    assert facts.busy is not None
    # The load took 10.416 s by the client's clock: 2 066 steps x 4.774 ms = 9.86 s lie below it, the window above.
    assert facts.busy.seconds.low == pytest.approx(2066 * 58.43275 / 12_240, rel=1e-6)
    assert facts.busy.seconds.low < 10.416 < facts.busy.seconds.high == facts.duration_seconds
    assert "two scrapes" in facts.busy.basis


def test_samples_tell_how_long_the_engine_was_at_work(data: Path) -> None:
    two = captured(data, "after-prefill", "after-decode")
    assert two.started is not None
    # The same load sampled every 0.2 s: counters move from 12.3 s to 22.7 s after the first scrape, 10.4 s of 31.0.
    samples = moving([two.started + 0.2 * i for i in range(156)], two.started + 12.3, two.started + 22.7)
    facts = gather(replace(two, progress=samples, samples=156), NOTHING)
    assert facts.busy is not None
    assert facts.busy.seconds.value == pytest.approx(10.4, abs=0.2)
    assert facts.busy.seconds.low <= 10.4 <= facts.busy.seconds.high
    assert facts.busy.seconds.high - facts.busy.seconds.low == pytest.approx(0.4)


def test_context_of_a_real_decode_window(data: Path) -> None:
    facts = gather(captured(data, "after-prefill", "after-decode"), NOTHING)
    assert facts.decode is not None
    context = facts.decode.context
    assert context is not None
    # Prompts of 1 542 / 48 = 32.1 tokens; every output was 256 tokens, of which the bucket (200, 500] only says that
    # their variance is at most (500 - 256)(256 - 200) = 13 664: 32.1 + 128 .. 32.1 + 128 (1 + 13 664 / 65 536).
    assert context.low == pytest.approx(32.125 + 128)
    assert context.high == pytest.approx(32.125 + 128 * (1 + 13_664 / 65_536))
    assert context.low < context.value < context.high


def test_tokens_of_a_real_prefill_window(data: Path) -> None:
    facts = gather(captured(data, "before-prefill", "after-prefill"), NOTHING)
    assert facts.prompt_tokens == 40_975
    assert facts.computed_prompt_tokens == 39_823  # 1 152 came from the prefix cache
    assert facts.prefix_hit_rate == pytest.approx(1152 / 40_975)
    assert facts.prefill is not None
    assert facts.prefill.steps.value == 24  # 57 steps, 33 of them of at most 8 tokens
    assert facts.prefill.step.tokens * 24 == pytest.approx(39_823)
    assert facts.phase == "prefill"  # by tokens: 39 823 of 39 823 + 280


@pytest.mark.parametrize(
    ("counters", "histograms", "computed", "hits"),
    [
        ({"prompt_tokens_computed": 600.0, "prompt_tokens_cached": 1.0}, {}, 600.0, 0.4),
        ({"prompt_tokens_cached": 300.0}, {}, 700.0, 0.3),
        ({}, {"computed_length": around(55.0, 10.0)}, 550.0, 0.45),
        ({"prefix_hits": 250.0, "prefix_queries": 1000.0}, {}, 750.0, 0.25),
        ({"prefix_hits": 0.0, "prefix_queries": 1000.0}, {}, 1000.0, 0.0),
        ({}, {}, 1000.0, None),  # taken for computed, but nobody counted hits
    ],
)
def test_computed_tokens_come_from_the_best_source(
    counters: dict[str, float], histograms: dict[str, Histogram], computed: float, hits: float | None
) -> None:
    made = engine(prompt=100, requests=10, counters=counters, histograms=histograms)
    if "prompt_tokens_computed" not in counters:
        kept = {name: value for name, value in made.counters.items() if name != "prompt_tokens_computed"}
        made = replace(made, counters=kept)
    facts = gather(window(made), NOTHING)
    assert facts.computed_prompt_tokens == computed
    assert facts.prefix_hit_rate == (None if hits is None else pytest.approx(hits))


@pytest.mark.parametrize(
    ("running", "told"),
    [
        ((16.0, 16.0), True),  # 32 000 outputs in 1 000 steps are a batch of 32
        ((31.0, 31.0), False),
        ((0.0, 0.0), False),  # idle at both ends: they saw nothing of the load
        ((0.0, 16.0), False),
        ((0.0, *[16.0] * 9), True),  # ten samples
        ((0.0, *[16.0] * 8, 28.0), False),
    ],
)
def test_a_batch_that_no_sample_saw_is_noted(running: tuple[float, ...], told: bool) -> None:
    times = tuple(60.0 * index / (len(running) - 1) for index in range(len(running)))
    made = engine(
        itl=0.02, outputs=32_000, steps=1000, prompt=100, output=1001, requests=32,
        gauges={"running": Series(times, running)},
    )  # fmt: skip
    notes = gather(window(made), NOTHING).notes
    assert len(notes) == told
    for note in notes:
        assert note.startswith("batch 32 by the counters, but vllm:running was 16 at most in ")


@pytest.mark.parametrize(("most", "told"), [(15.0, True), (16.0, False)])
def test_samples_speak_where_load_was_as_high_at_both_ends(most: float, told: bool) -> None:
    # 12 requests at either end and up to 15 between: 12 x 1.25, as good as steady.
    made = engine(
        itl=0.02, outputs=32_000, steps=1000, prompt=100, output=1001, requests=32,
        gauges={"running": Series((0.0, 30.0, 60.0), (12.0, most, 12.0))},
    )  # fmt: skip
    assert len(gather(window(made), NOTHING).notes) == told


def test_prompts_in_flight_at_the_edges_widen_what_was_computed() -> None:
    # Three requests at the first scrape may have been computed before it, two at the last one after their counting.
    facts = gather(window(engine(prompt=100, requests=10, present=(3, 2))), NOTHING)
    assert facts.prefill is not None
    tokens = facts.prefill.tokens
    assert (tokens.value, tokens.low, tokens.high) == (1000, 700, 1200)
    idle = gather(window(engine(prompt=100, requests=10, present=(0, 0))), NOTHING)
    assert idle.prefill is not None
    assert idle.prefill.tokens.exact


def test_repeated_step_counts_of_api_servers_are_not_believed() -> None:
    # Four API servers count each of 3 000 steps: 12 000 x 20 ms = 240 s cannot be in 60 s. Sixteen sequences decode all
    # the time: sum of latencies 960 s over 60 s.
    made = engine(itl=0.02, outputs=48_000, steps=12_000, prompt=100, output=800, requests=60, present=(16, 16))
    decode = gather(window(made), NOTHING).decode
    assert decode is not None
    assert decode.batch.value == pytest.approx(16.0)
    assert "busy time" in decode.basis
    once = replace(made, counters={**made.counters, "steps": 3000.0})
    believed = gather(window(once), NOTHING).decode
    assert believed is not None
    assert believed.batch.value == pytest.approx(16.0)
    assert "engine steps" in believed.basis


def test_latencies_per_token_are_scaled_to_steps() -> None:
    # 2.5 tokens a step: an engine that observes 8 ms per token makes a step in 20 ms.
    counters = {"draft_steps": 1000.0, "accepted_tokens": 1500.0, "draft_tokens": 3000.0}
    made = engine(itl=0.008, outputs=2500, prompt=100, output=2501, requests=1, present=(1, 1), counters=counters)
    decode = gather(window(made, seconds=20.0, conventions=frozenset()), NOTHING).decode
    assert decode is not None
    assert decode.step_seconds.value == pytest.approx(0.02)
    assert decode.batch.value == pytest.approx(1.0)


def test_pipeline_stages_share_the_time_between_outputs() -> None:
    # Two stages with a microbatch each: 3 000 steps x 40 ms / 60 s = 2 under way, so a step passes every 20 ms.
    made = engine(itl=0.04, outputs=24_000, steps=3000, prompt=100, output=800, requests=30, present=(16, 16))
    decode = gather(window(made), deployment(None, None, pipeline_parallel=2)).decode
    assert decode is not None
    assert decode.step_seconds.value == pytest.approx(0.02)
    assert (decode.step_seconds.low, decode.step_seconds.high) == pytest.approx((0.02, 0.04))
    assert decode.batch.value == pytest.approx(8.0)


def test_replicas_are_weighted_by_their_steps() -> None:
    slow = engine(identity="engine 0", itl=0.04, outputs=1000 * 10, steps=1000, prompt=10, output=500, requests=20)
    fast = engine(identity="engine 1", itl=0.02, outputs=3000 * 30, steps=3000, prompt=10, output=500, requests=180)
    facts = gather(window(slow, fast), NOTHING)
    assert facts.decode is not None
    # (1 x 40 + 3 x 20) / 4 = 25 ms and (1 x 10 + 3 x 30) / 4 = 25 sequences.
    assert facts.decode.step_seconds.value == pytest.approx(0.025)
    assert facts.decode.batch.value == pytest.approx(25.0)
    assert facts.deployment.data_parallel == 2
    assert facts.deployment.provenance["data_parallel"] == "telemetry"


def test_context_from_cache_blocks_where_lengths_are_not_counted() -> None:
    made = engine(
        itl=0.02, outputs=8000, steps=1000, gauges={"kv_usage": Series((0.0, 60.0), (0.5, 0.5))}, present=(8, 8),
        facts={"num_gpu_blocks": "1000", "block_size": "16"},
    )  # fmt: skip
    made = replace(made, counters={name: made.counters[name] for name in ("steps",)}, finished={})
    decode = gather(window(made), NOTHING).decode
    assert decode is not None
    assert decode.context is not None
    assert decode.context.value == pytest.approx(0.5 * 1000 * 16 / 8 - 8)  # half a block off the end of each


def test_an_idle_server_says_so_in_its_own_words() -> None:
    idle = measure(gather(window(engine()), deployment("llama-3.1-8b")))
    said = set()
    for name in metric_names():
        outcome = idle[name.replace("...", "ttft<=2s")]
        assert isinstance(outcome, NoData), name
        said.add(outcome.reason)
        assert outcome.remedy
    assert "the engine was idle: no token was computed or generated in this window" in said
    assert list(idle) == []


def test_the_coefficient_of_variation_is_bounded_by_buckets_and_mean() -> None:
    # Half of the outputs in (0, 100], half in (100, 300], mean 125. The least square: as alike as the edges allow, 100
    # and 150: 16 250, variance 625, CV 0.2. The greatest: 0 and 100 below, spread as far as the mean lets it:
    # all lower edges give a mean of 50; 75 more fill half of (100, 300]: 50 x 0 + 50 x ... of 75/200 at 300.
    found = coefficient_of_variation(Histogram((100.0, 300.0, math.inf), (5.0, 5.0, 0.0), 1250.0))
    assert found.low == pytest.approx(math.sqrt((100**2 + 150**2) / 2 / 125**2 - 1))
    greatest = 0.5 * 100**2 + 75 * (100 + 300)  # of the square: lower edges, and what was moved to the upper ones
    assert found.high == pytest.approx(math.sqrt(greatest / 125**2 - 1))
    assert found.low < found.value < found.high


@pytest.mark.parametrize(
    "histogram", [None, Histogram((10.0, math.inf), (0, 0), 0.0), Histogram((10.0, math.inf), (1.0, 1.0), 60.0)]
)
def test_the_coefficient_of_variation_may_be_unknown(histogram: Histogram | None) -> None:
    assert coefficient_of_variation(histogram) == UNKNOWN_CV
    assert mean_context(100, 200, UNKNOWN_CV).value == pytest.approx(100 + 200 * 1.25 / 2)


@given(st.lists(st.integers(1, 999), min_size=1, max_size=40))
def test_the_true_variation_lies_within_its_bounds(lengths: list[int]) -> None:
    bounds = (1.0, 10.0, 50.0, 200.0, 500.0, 1000.0, math.inf)
    counts = [0.0] * len(bounds)
    for length in lengths:
        counts[next(i for i, bound in enumerate(bounds) if length <= bound)] += 1
    mean = sum(lengths) / len(lengths)
    true = math.sqrt(max(0.0, sum(length**2 for length in lengths) / len(lengths) - mean**2)) / mean
    found = coefficient_of_variation(Histogram(bounds, tuple(counts), float(sum(lengths))))
    assert found.low - 1e-6 <= true <= found.high + 1e-6


LOADS = st.builds(
    lambda itl, batch, steps, prompt, output, edge: engine(
        itl=itl, outputs=batch * steps, steps=float(steps), prompt=float(prompt), output=float(output),
        requests=max(1.0, batch * steps / output), present=(float(edge), float(edge)),
    ),
    itl=st.floats(0.001, 0.2), batch=st.floats(1, 200), steps=st.integers(10, 5000), prompt=st.integers(1, 20_000),
    output=st.integers(2, 4000), edge=st.integers(0, 50),
)  # fmt: skip


def facts_of(made: Window) -> WindowFacts:
    return gather(made, deployment("llama-3.1-8b", tensor_parallel=2))


@given(LOADS)
def test_every_interval_holds_its_value(load: Engine) -> None:
    made = window(load, seconds=600.0)
    outcomes = measure(facts_of(made))
    measured = [outcome for name in metric_names() if isinstance(outcome := outcomes[name], Measurement)]
    assert measured
    for outcome in measured:
        assert outcome.bounded.low <= outcome.bounded.value <= outcome.bounded.high
        assert outcome.source
        assert outcome.method


@given(LOADS, st.sampled_from([2.0, 3.0, 10.0]))
def test_a_longer_window_of_the_same_load_measures_the_same(load: Engine, k: float) -> None:
    # Twice the counts in twice the time: utilisations, batch and means are those of the same load.
    one = window(load, seconds=600.0)
    more = window(scaled(one, k), seconds=600.0 * k)
    facts = facts_of(one)
    first, second = measure(facts), measure(facts_of(more))
    names = ["decode.mbu", "decode.mfu", "decode.batch", "decode.context", "window.mfu", "ttft.mean"]
    # Steps with prompts are whole numbers where they are worked out from a budget: of few of them one more is many.
    if facts.prefill is not None and facts.prefill.steps.value >= 20:
        names.append("window.mbu")
    for name in names:
        before, after = first[name], second[name]
        assert type(before) is type(after)
        if isinstance(before, Measurement) and isinstance(after, Measurement):
            tolerance = 0.051 if name == "window.mbu" else 0.02  # one more of twenty
            assert after.value == pytest.approx(before.value, rel=tolerance), name


def scaled(made: Window, k: float) -> Engine:
    (load,) = made.engines
    return replace(
        load,
        counters={name: value * k for name, value in load.counters.items()},
        histograms={
            name: Histogram(held.bounds, tuple(count * k for count in held.counts), held.total * k)
            for name, held in load.histograms.items()
        },
        finished={reason: count * k for reason, count in load.finished.items()},
        gauges={name: Series((0.0, 600.0 * k), series.values) for name, series in load.gauges.items()},
    )
