"""Figures of timelines as measurements and observations: by hand, without a file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hand_facts import decoding, llama_8b, llama_70b

from pytest_llmroof.analysis.attribute import attribute, excess
from pytest_llmroof.analysis.diagnose import diagnose
from pytest_llmroof.analysis.diagnosis import Diagnosis
from pytest_llmroof.analysis.facts import Phase, WindowFacts
from pytest_llmroof.analysis.measure import measure
from pytest_llmroof.analysis.measurement import Impossible, Measurement, NoData
from pytest_llmroof.analysis.metrics import Family
from pytest_llmroof.analysis.observed import Observed
from pytest_llmroof.analysis.observing import observe
from pytest_llmroof.analysis.profile_notes import profile_notes
from pytest_llmroof.profiles.figures import Shares, StepFigures, TimelineFigures
from pytest_llmroof.profiles.nsys_stats import StatsSummary, Summed
from pytest_llmroof.profiles.profile import Profile

STEP = 0.0262
#: 60 % work, 25 % communication of which 5 are hidden, 20 % idle: 12 for the host, 3 on their way, 2 pauses, 3 queued.
SHARES = Shares(
    seconds=STEP, busy=0.8, idle=0.2, communication=0.25, exposed=0.2, transport=0.15, waiting=0.05, hidden=0.05,
    host_bound=0.12, launch_in_flight=0.03, back_to_back=0.02, queued=0.03, unknown=0.0, idle_within=0.15,
    idle_between=0.05,
)  # fmt: skip
SPREAD = {"busy": (0.75, 0.85), "communication": (0.2, 0.3), "exposed": (0.18, 0.22), "host": (0.1, 0.2)}


def steps(shares: Shares = SHARES, phase: Phase | None = "decode", count: int = 9) -> StepFigures:
    return StepFigures(phase, count, shares.seconds, shares, spread=SPREAD)


def figures(shares: Shares = SHARES, phase: Phase = "decode", **changes: Any) -> TimelineFigures:
    made = TimelineFigures(
        location="rank0.json", whole=shares, steps={None: steps(shares, None), phase: steps(shares, phase)},
        gaps_ns=np.array([1_000, 2_000, 3_000, 10_000], dtype=np.int64), collective="all-reduce", rank=0, world_size=4,
    )  # fmt: skip
    return replace(made, **changes)


def profiled(*timelines: TimelineFigures, step: float = STEP, **kept: Any) -> WindowFacts:
    made = decoding(llama_70b(), step)
    return replace(made, profile=Profile(timelines, **kept))


def measured(facts: WindowFacts, name: str) -> Measurement:
    outcome = measure(facts)[name]
    assert isinstance(outcome, Measurement)
    return outcome


def no_data(facts: WindowFacts, name: str) -> NoData:
    outcome = measure(facts)[name]
    assert isinstance(outcome, NoData)
    return outcome


def test_a_metric_is_that_of_the_typical_step_between_the_single_ones() -> None:
    facts = profiled(figures())
    idle = measured(facts, "timeline.idle")
    assert (idle.value, idle.low, idle.high) == pytest.approx((0.2, 0.15, 0.25))
    assert (idle.samples, idle.source) == (9, "rank0.json")
    host = measured(facts, "timeline.host_bound_idle")
    assert (host.value, host.low, host.high) == pytest.approx((0.15, 0.1, 0.2))
    assert measured(facts, "timeline.communication").value == 0.25
    assert measured(facts, "timeline.communication_exposed").value == 0.2
    assert "waiting included" in measured(facts, "timeline.communication_exposed").method


def test_of_several_ranks_it_is_the_mean() -> None:
    other = replace(SHARES, busy=0.6, idle=0.4)
    facts = profiled(figures(), figures(other, location="rank1.json", rank=1))
    idle = measured(facts, "timeline.idle")
    assert (idle.value, idle.high) == pytest.approx((0.3, 0.4))
    assert (idle.samples, idle.source) == (18, "rank0.json, rank1.json")
    assert "mean over 2 devices" in idle.method


def test_gaps() -> None:
    facts = profiled(figures())
    assert measured(facts, "timeline.gap.mean").value == pytest.approx(4e-6)
    assert measured(facts, "timeline.gap.max").value == pytest.approx(10e-6)
    median = measured(facts, "timeline.gap.p50")
    assert median.value == pytest.approx(2.5e-6)
    assert (median.low, median.high, median.samples) == pytest.approx((1e-6, 10e-6, 4))
    assert "never idle" in no_data(profiled(figures(gaps_ns=np.zeros(0, dtype=np.int64))), "timeline.gap.p99").reason


@pytest.mark.parametrize(
    ("changes", "metric", "reason"),
    [
        ({"communication": None, "exposed": None}, "timeline.communication_exposed", "replays were recorded whole"),
        ({"communication": None, "exposed": None}, "timeline.communication", "replays were recorded whole"),
        ({"unknown": 0.15}, "timeline.host_bound_idle", "no launches were recorded"),
    ],
)
def test_what_a_recording_cannot_tell_is_no_data(changes: dict[str, Any], metric: str, reason: str) -> None:
    outcome = no_data(profiled(figures(replace(SHARES, **changes))), metric)
    assert reason in outcome.reason
    assert "--cuda-graph-trace=node" in str(outcome.remedy)


def test_a_trimmed_recording_without_steps_tells_no_idle_time() -> None:
    facts = profiled(figures(steps={}, trimmed_seconds=0.4))
    for name in ("timeline.busy", "timeline.idle", "timeline.host_bound_idle"):
        assert "trimmed" in no_data(facts, name).reason
    assert observe(facts) is None
    # With steps, holes belong to none of them.
    assert measured(profiled(figures(trimmed_seconds=0.4)), "timeline.idle").value == pytest.approx(0.2)


def test_what_must_not_be_judged_is_not() -> None:
    facts = profiled(figures(abstain="rank0.json holds 12 us of GPU activity only, less than a step takes"))
    assert "less than a step" in no_data(facts, "timeline.busy").reason
    assert observe(facts) is None
    beside = profiled(figures(abstain="too short"), figures(location="rank1.json", rank=1))
    assert measured(beside, "timeline.busy").source == "rank1.json"


def test_sums_of_kernels_hold_no_time() -> None:
    summary = StatsSummary("sums.csv", "cuda_gpu_kern_sum", (), "sums of kernels, not when they ran")
    outcome = no_data(profiled(summaries=(summary,)), "timeline.busy")
    assert outcome.reason == "sums.csv (cuda_gpu_kern_sum) holds sums of kernels, not when they ran"


def test_sums_of_kernels_tell_which_took_their_time() -> None:
    rows = (Summed("nvjet_gemm", 30, 0.6), Summed("flash_fwd", 10, 0.3), Summed("rms_norm", 10, 0.1))
    summary = StatsSummary("sums.csv", "cuda_gpu_kern_sum", rows, "sums of kernels, not when they ran")
    share = measured(profiled(summaries=(summary,)), "kernels(gemm).time_share")
    assert (share.value, share.low, share.high, share.samples) == pytest.approx((0.6, 0.6, 0.6, 30))
    assert "matches: the longest are nvjet_gemm" in no_data(
        profiled(summaries=(summary,)), "kernels(moe).time_share"
    ).reason
    cut = replace(summary, distortions=("its rows add up to 80 % only: others are missing",))
    share = measured(profiled(summaries=(cut,)), "kernels(gemm).time_share")
    assert (share.low, share.high) == (0, 1)
    several = replace(summary, rows=tuple(Summed(f"kernel-{number}", 1, 0.1) for number in range(4)))
    nothing = no_data(profiled(summaries=(several,)), "kernels(conv).time_share").reason
    assert nothing.endswith("matches: the longest are kernel-0, kernel-1, kernel-2")
    calls = replace(summary, report="cuda_api_sum")
    assert "would tell" in no_data(profiled(summaries=(calls,)), "kernels(gemm).time_share").reason
    assert "would tell" in no_data(profiled(summaries=(summary,)), "kernels(gemm).mfu").reason


def test_fractions_of_the_profiles_step_are_applied_to_the_windows() -> None:
    facts = profiled(figures(), step=0.0280)
    observed = observe(facts)
    assert observed is not None
    split = attribute(facts, {}, observed)
    assert split is not None
    assert split.seconds == 0.0280
    assert split.share("exposed communication: transport") == pytest.approx(0.15)
    assert split.share("exposed communication: waiting") == pytest.approx(0.05)
    # 2 % are the device's own pauses and stay with its work.
    assert split.share("idle: within steps") == pytest.approx(0.13)
    assert split.share("idle: between steps") == pytest.approx(0.05)
    assert all(part.observed for part in split.shares if part.cause.startswith(("exposed", "idle", "slow")))
    assert sum(part.share for part in split.shares) == pytest.approx(1)


def test_pauses_longer_than_the_idle_time_within_steps_are_no_negative_share() -> None:
    shares = replace(SHARES, idle=0.02, busy=0.98, idle_within=0.01, idle_between=0.01, back_to_back=0.015)
    observed = observe(profiled(figures(shares)))
    assert observed is not None
    assert (observed.idle_within, observed.idle_between) == pytest.approx((0.0, 0.005))


def test_transfer_that_cannot_be_told_from_waiting_counts_as_transfer_and_is_doubted() -> None:
    observed = observe(profiled(figures(replace(SHARES, transport=None, waiting=None))))
    assert observed is not None
    assert observed.transport == pytest.approx(0.2)
    assert observed.waiting is None
    assert any("too few collectives" in text for text in observed.distortions)


def test_opaque_replays_leave_communication_open_unless_there_is_one_gpu() -> None:
    opaque = figures(replace(SHARES, communication=None, exposed=None, transport=None, waiting=None, hidden=None))
    several = observe(profiled(opaque))
    assert several is not None
    assert not several.communication_known
    assert not several.sees("F")
    alone = observe(replace(decoding(llama_8b(), 0.0150), profile=Profile((opaque,))))
    assert alone is not None
    assert alone.transport == 0.0
    assert alone.sees("F")


def test_idle_time_that_did_not_wait_for_the_host_is_doubted() -> None:
    observed = observe(profiled(figures(replace(SHARES, host_bound=0.02, launch_in_flight=0.0, queued=0.16))))
    assert observed is not None
    assert any("not the host" in text for text in observed.distortions)


def test_steps_of_another_phase_say_nothing() -> None:
    facts = profiled(figures(phase="prefill"))
    assert "holds prefill steps only, and the window is a decode one" in no_data(facts, "timeline.idle").reason
    assert observe(facts) is None
    # In a mixed window the mean step is of all kinds.
    assert observe(replace(facts, phase="mixed")) is not None


def test_what_exceeds_the_step_contradicts_itself() -> None:
    """70B on four H100: 10.8 ms of 26.2 ms are floor, 41.3 %; 65 % lost are 6 % too much."""
    facts = profiled(figures(replace(SHARES, idle=0.65, idle_within=0.65, idle_between=0, back_to_back=0,
                                     exposed=0, transport=0, waiting=0)))  # fmt: skip
    observed = observe(facts)
    assert observed is not None
    assert excess(facts, observed) == pytest.approx(0.413 + 0.65 - 1, abs=2e-3)
    outcome = measure(facts)["decode.mbu"]
    assert isinstance(outcome, Impossible)
    assert "65 % is idle or exposed communication (rank0.json), and its floor alone takes 10.8 ms" in outcome.reason
    assert isinstance(measure(facts)["decode.step_time"], Measurement)
    # A profile that is doubtful, or of other steps, contradicts nothing.
    for changes in ({"distortions": ("recorded with with_stack, which slow the host",)},
                    {"steps": {"decode": steps(replace(SHARES, seconds=0.040, idle=0.65))}}):  # fmt: skip
        doubtful = replace(facts.profile.timelines[0], **changes) if facts.profile else None
        assert doubtful is not None
        assert isinstance(measure(profiled(doubtful))["decode.mbu"], Measurement)


def test_excess_of_what_fits_is_none() -> None:
    facts = decoding(llama_70b(), STEP)
    assert excess(facts, Observed("trace", transport=0.34, idle_within=0.04)) == 0
    assert excess(replace(facts, decode=None), Observed("trace", transport=0.9)) == 0


def without_model(shares: Shares, **changes: Any) -> WindowFacts:
    """A mixed window of a profile alone: nothing is known of its steps but what the profile says."""
    facts = replace(decoding(llama_8b(), STEP), decode=None, phase="mixed")
    return replace(facts, profile=Profile((figures(shares, **changes),)))


def explained(facts: WindowFacts, of: Family) -> Diagnosis:
    observed = observe(facts)
    return diagnose(facts, {}, attribute(facts, {}, observed), of, observed)


def test_a_recording_without_steps_is_split_as_a_whole() -> None:
    whole = replace(SHARES, seconds=0.5, idle_within=None, idle_between=None, exposed=0.0, transport=0.0, waiting=0.0)
    facts = without_model(whole, steps={})
    split = attribute(facts, {}, observe(facts))
    # 20 % idle, of which 2 are pauses of the GPU's own: 18 % of 0.5 s. The rest is work.
    assert split is not None
    assert (split.of, split.seconds) == ("recording", 0.5)
    assert {part.cause: part.seconds for part in split.shares} == pytest.approx(
        {"idle: within steps": 0.09, "not attributed": 0.41}
    )
    assert [part.observed for part in split.shares] == [True, False]  # nobody saw what the rest of the work is
    found = explained(facts, "idle")
    assert found.scenario == "D"
    told = "the GPU was idle 20 % of the recording: 18 % in gaps, 2 % in pauses of microseconds between kernels that "
    assert f"{told}were submitted in time" in [one.statement for one in found.evidence]


def test_what_is_nearly_nothing_explains_nothing() -> None:
    # Busy 99.4 % of the step: 0.6 % idle, of which 0.1 are pauses. With 1.1 % more it is the host's time.
    nearly = replace(SHARES, idle=0.006, busy=0.994, back_to_back=0.001, idle_within=0.006, idle_between=0.0)
    assert explained(without_model(nearly), "idle").scenario is None
    more = replace(nearly, idle=0.017, busy=0.983, idle_within=0.017)
    assert explained(without_model(more), "idle").scenario == "D"


@pytest.mark.parametrize(
    ("started", "said"),
    [
        (1.8e9 - 3 * 86_400, "rank0.json was recorded 3.0 days before this window"),
        (1.8e9 + 60 + 1.5 * 86_400, "rank0.json was recorded 1.5 days after this window"),  # which took 60 s
        (1.8e9 + 60 + 80_000, None),  # the same day: beside or after the window, as it should be
        (None, None),
    ],
)
def test_a_profile_of_another_day_is_said(started: float | None, said: str | None) -> None:
    facts = profiled(figures(started=started))
    facts = replace(facts, window=replace(facts.window, started=1.8e9, duration_seconds=60.0))
    found = [note for note in profile_notes(facts) if "recorded" in note]
    assert [note.partition(":")[0] for note in found] == ([said] if said else [])
