"""Which of several profiles speaks for a window, from whose rank, and what they make worth saying: by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gpu_counters import gpus, watched
from hand_facts import decoding, llama_8b, llama_70b
from made_windows import deployment, engine, window

from pytest_llmroof.analysis.diagnose import diagnose
from pytest_llmroof.analysis.facts import Phase, WindowFacts
from pytest_llmroof.analysis.gather import gather
from pytest_llmroof.analysis.measure import measure
from pytest_llmroof.analysis.measurement import NoData
from pytest_llmroof.analysis.observing import observe
from pytest_llmroof.analysis.parts import of_part
from pytest_llmroof.analysis.profile_checks import more_ranks
from pytest_llmroof.analysis.profile_evidence import observed_by_profile
from pytest_llmroof.analysis.profile_notes import profile_notes
from pytest_llmroof.analysis.profiled import Silent, parts, profiled_phase
from pytest_llmroof.profiles.figures import HostTime, Shares, StepFigures, TimelineFigures
from pytest_llmroof.profiles.nsys_stats import StatsSummary, Summed
from pytest_llmroof.profiles.profile import Profile, ProfileFile, Refused
from pytest_llmroof.profiles.recognise import ProfileKind

STEP = 0.0262
#: 70 % work, 20 % exposed communication of which 15 are waiting, 10 % idle: 6 for the host, 1 the device's own pauses.
SHARES = Shares(
    seconds=STEP, busy=0.9, idle=0.1, communication=0.2, exposed=0.2, transport=0.05, waiting=0.15, hidden=0.0,
    host_bound=0.06, launch_in_flight=0.0, back_to_back=0.01, queued=0.0, unknown=0.0, idle_within=0.07,
    idle_between=0.03,
)  # fmt: skip
#: The rank that they wait for: no waiting, but 25 % for its host.
LATE = replace(SHARES, exposed=0.05, waiting=0.0, idle=0.25, busy=0.75, host_bound=0.24, idle_within=0.22)


def figures(shares: Shares = SHARES, rank: int = 0, phase: Phase = "decode", **changes: Any) -> TimelineFigures:
    steps = StepFigures(phase, 9, shares.seconds, shares)
    made = TimelineFigures(
        location=f"rank{rank}.json", whole=shares, steps={None: steps, phase: steps}, collective="all-reduce",
        rank=rank, world_size=4,
    )  # fmt: skip
    return replace(made, **changes)


def profiled(*timelines: TimelineFigures, **kept: Any) -> WindowFacts:
    return replace(decoding(llama_70b(), STEP), profile=Profile(timelines, **kept))


# From whose rank ---------------------------------------------------------------------------------------------------


def test_a_rank_that_its_host_holds_up_tells_what_is_lost() -> None:
    """Three ranks wait 15 % for the fourth, which waits for its host: its idle time is the loss, not their waiting."""
    waiting = [figures(rank=rank, waiting_cause="host gaps") for rank in range(3)]
    observed = observed_by_profile(profiled(*waiting, figures(LATE, rank=3, late=0.9)))
    assert observed is not None
    # 0.22 less 0.01 of pauses; 0.25 - 0.01 - 0.21 between steps.
    assert (observed.idle_within, observed.idle_between) == pytest.approx((0.21, 0.03))
    assert (observed.transport, observed.waiting, observed.waited) == pytest.approx((0.05, 0.0, 0.15))
    assert (observed.late_rank, observed.ranks, observed.captured) == (3, 4, (0, 1, 2, 3))
    assert observed.source == "rank3.json"
    assert "another rank waits for rank 3 for 15 % of the step" in [sign.statement for sign in observed.signs]


def test_without_its_own_trace_the_late_rank_is_not_made_up() -> None:
    """Nobody among the ranks seen is the one that is waited for: the mean over them speaks, waiting and all."""
    observed = observed_by_profile(profiled(*[figures(rank=rank, waiting_cause="host gaps") for rank in range(3)]))
    assert observed is not None
    assert observed.waiting == pytest.approx(0.15)
    assert (observed.waited, observed.late_rank) == (0.0, None)
    half = [figures(rank=0, waiting_cause="host gaps"), figures(LATE, rank=1, late=0.5)]
    observed = observed_by_profile(profiled(*half))  # half of the waiting is not most of it
    assert observed is not None
    assert observed.waiting == pytest.approx(0.075)


@pytest.mark.parametrize(("idle", "doubted"), [(0.05, False), (0.07, True)])
def test_idle_time_with_work_submitted_is_doubted_from_a_twentieth_on(idle: float, doubted: bool) -> None:
    # Less 1 % of the device's own pauses 4 or 6 % on each of two ranks, more than half of it with work in the queue.
    shares = replace(SHARES, idle=idle, queued=0.035)
    observed = observed_by_profile(profiled(*[figures(shares, rank=rank) for rank in range(2)]))
    assert observed is not None
    assert any("had its next work submitted already" in doubt for doubt in observed.distortions) == doubted
    # Of which half had none it was the host's.
    half = observed_by_profile(profiled(*[figures(replace(shares, queued=0.02), rank=rank) for rank in range(2)]))
    assert half is not None
    assert half.distortions == ()


def test_more_work_on_one_rank_is_the_waiting_of_the_one_that_waits_most() -> None:
    longest = replace(SHARES, exposed=0.35, waiting=0.3)
    every = [
        figures(rank=0, waiting_cause="imbalance"),
        figures(longest, rank=1, waiting_cause="imbalance"),
        figures(replace(SHARES, exposed=0.05, waiting=0.0), rank=2, late=0.9),
    ]
    observed = observed_by_profile(profiled(*every))
    assert observed is not None
    assert observed.waiting == pytest.approx(0.3)
    assert (observed.waiting_cause, observed.source) == ("imbalance", "rank1.json")
    # Below a twentieth of the step nobody is singled out: (0.04 + 0) / 2.
    little = replace(SHARES, exposed=0.09, waiting=0.04)
    pair = [figures(little, rank=0, waiting_cause="imbalance"), figures(replace(SHARES, waiting=0.0), rank=1)]
    observed = observed_by_profile(profiled(*pair))
    assert observed is not None
    assert observed.waiting == pytest.approx(0.02)


def test_what_the_host_did_meanwhile_and_which_kernels_ran() -> None:
    host = HostTime(waiting=0.005, calling=0.395, elsewhere=0.6)
    classes = {"GEMM": 0.6, "attention": 0.2, "norm": 0.04, "copy": 0.16}
    observed = observed_by_profile(profiled(figures(host=host, classes=classes)))
    assert observed is not None
    said = {sign.letters: sign.statement for sign in observed.signs}
    # Half a per cent is not worth saying, nor are the fourth kind and what is below a twentieth.
    assert said == {
        ("D",): "of the time without work for the GPU, the host was in other CUDA or HIP calls for 40 %, outside of "
        "such calls (Python, the scheduler) for 60 %",
        ("F",): "of the time of kernels and copies 60 % GEMM, 20 % attention",
    }
    # Less than a twentieth of the step for the host: what it did is no matter. Replays whole hide their kernels.
    brief = replace(SHARES, host_bound=0.04)
    observed = observed_by_profile(profiled(figures(brief, host=host, classes={**classes, "graph replays": 0.01})))
    assert observed is not None
    assert observed.signs == ()


# Which profile -----------------------------------------------------------------------------------------------------


def silent(facts: WindowFacts) -> Silent:
    found = parts(facts)
    assert isinstance(found, Silent)
    return found


def file(name: str, kind: ProfileKind) -> ProfileFile:
    return ProfileFile(Path(name), name, kind)


def test_why_profiles_say_nothing() -> None:
    assert silent(replace(profiled(), profile=None)).reason == "no profile is among the telemetry"
    report = file("run.nsys-rep", "nsys report")
    damaged = Refused(report, "run.nsys-rep is a report, not its export", "nsys export --type=sqlite run.nsys-rep")
    kernels = Refused(file("k.ncu-rep", "ncu report"), "k.ncu-rep is a report", None)
    assert silent(profiled(refused=(kernels, damaged))) == Silent(damaged.reason, damaged.remedy)
    untold = silent(profiled(refused=(replace(damaged, remedy=None),)))
    assert "profile" in str(untold.remedy)
    summary = StatsSummary("sums.csv", "cuda_gpu_kern_sum", (Summed("gemm", 10, 1.0),), "sums hold no times")
    assert silent(profiled(summaries=(summary,))).reason == summary.refusal().reason
    beside = file("k.csv", "ncu csv")
    assert silent(profiled(read=(beside,), refused=(kernels,))).reason == "k.csv holds no timeline: kernels one by one"


def test_kernels_that_could_not_be_read_are_answered_with_what_would() -> None:
    report = file("k.ncu-rep", "ncu report")
    told = Refused(report, "k.ncu-rep is a report, not its export", "ncu --import k.ncu-rep --csv --page raw")
    outcome = measure(profiled(refused=(told,)))["kernels(gemm).mfu"]
    assert outcome == NoData("kernels(gemm).mfu", told.reason, told.remedy)
    silent_one = measure(profiled(refused=(replace(told, remedy=None),)))["kernels(gemm).time_share"]
    assert isinstance(silent_one, NoData)
    assert "ncu" in str(silent_one.remedy)


def test_one_gpu_alone_exchanges_nothing_whatever_replays_hide() -> None:
    opaque = replace(SHARES, communication=None, exposed=None, transport=None, waiting=None, hidden=None)
    alone = replace(decoding(llama_8b(), STEP), profile=Profile((figures(opaque, collective=None, world_size=1),)))
    found = parts(alone)
    assert not isinstance(found, Silent)
    assert (found[0].shares.exposed, found[0].figures.whole.exposed) == (0.0, 0.0)
    # A larger world, or collectives that were seen, are another server's than was said.
    for world, collective in ((2, None), (1, "all-reduce")):
        other = figures(opaque, world_size=world, collective=collective)
        found = parts(replace(alone, profile=Profile((other,))))
        assert not isinstance(found, Silent)
        assert found[0].shares.exposed is None


def test_the_phase_of_a_profile_is_that_of_nearly_all_of_its_steps() -> None:
    def of(decode: int, prefill: int) -> Profile:
        counts: tuple[tuple[Phase | None, int], ...] = (("decode", decode), ("prefill", prefill), (None, 9))
        steps = {phase: StepFigures(phase, count, 0.01, SHARES) for phase, count in counts}
        return Profile((figures(steps=steps),))

    assert profiled_phase(of(96, 4)) == "decode"  # 96 % of the time; 95 % are asked for
    assert profiled_phase(of(94, 6)) == "mixed"
    assert profiled_phase(of(1, 99)) == "prefill"
    assert profiled_phase(Profile((figures(steps={}),))) is None
    assert profiled_phase(None) is None


# What is worth saying ----------------------------------------------------------------------------------------------


def counted(busy: float, *timelines: TimelineFigures, **kept: Any) -> WindowFacts:
    """70B on four GPUs in steps of 26.2 ms, whose counters say how busy they were."""
    load = engine(itl=STEP, outputs=28_400, steps=2290, prompt=1000, output=960, requests=100, present=(12, 12))
    seen = watched(window(load), *gpus(4, gr_engine=busy, dram=0.4, tensor=0.1))
    found = gather(seen, deployment(tensor_parallel=4), "decode")
    return replace(found, profile=Profile(timelines, **kept))


def test_two_figures_of_how_busy_the_gpus_were_are_both_said_where_they_differ() -> None:
    assert profile_notes(counted(0.82, figures())) == ()  # 0.08 is less than a tenth of 0.9
    (note,) = profile_notes(counted(0.7, figures()))
    assert note.startswith("the GPUs were busy 90 % of the step by rank0.json, which is used, and 70 % of the load by")
    assert note.endswith("(DCGM_FI_PROF_GR_ENGINE_ACTIVE)")
    # Without counters, or of another phase, there is nothing to compare.
    assert profile_notes(profiled(figures())) == ()
    (unused,) = profile_notes(counted(0.7, figures(phase="prefill")))
    assert unused.startswith("the profile is not used: rank0.json holds prefill steps only")


def test_what_was_mended_in_a_profile_is_said_once() -> None:
    mended = "the file was cut off: what is whole of it was read"
    facts = profiled(figures(notes=(mended,)), figures(rank=1, notes=(mended,)))
    assert profile_notes(facts) == (mended,)
    assert profile_notes(profiled(refused=())) == ()
    assert profile_notes(replace(facts, profile=None)) == ()


def test_more_ranks_than_gpus_were_profiled() -> None:
    every = [figures(rank=rank) for rank in range(4)]
    assert more_ranks(profiled(*every)) is None
    found = more_ranks(profiled(*every, figures(rank=4)))
    assert found is not None
    assert "rank4.json: 5 ranks, and the deployment has 4 GPUs, tensor_parallel 4 (given)" in found.reason
    # A rank of a larger world counts only where nobody gave the degree.
    one = replace(decoding(llama_8b(), STEP), profile=Profile((figures(),)))
    assert more_ranks(one) is None
    assumed = replace(one.deployment, provenance={"tensor_parallel": "assumed"})
    found = more_ranks(replace(one, deployment=assumed))
    assert found is not None
    assert "a rank of 4, and the deployment has 1 GPU, tensor_parallel 1 (assumed)" in found.reason
    assert more_ranks(replace(one, profile=None)) is None


# Metrics of a part of the time -------------------------------------------------------------------------------------


def test_communication_that_took_no_time_is_hidden_lost_nowhere_or_not_known() -> None:
    none = replace(SHARES, communication=0.1, exposed=0.0, transport=0.0, waiting=0.0, hidden=0.1)
    hidden = of_part(profiled(), None, "communication", observe(profiled(figures(none))))
    assert (hidden.letters, hidden.confidence) == ((), "medium")
    silent_gpus = replace(none, communication=0.0, hidden=0.0)
    lost = of_part(profiled(), None, "communication", observe(profiled(figures(silent_gpus))))
    assert lost.title is not None
    assert hidden.title not in (None, lost.title)
    assert of_part(profiled(), None, "communication", None).confidence == "low"


def test_idle_time_that_is_no_share_of_a_step_was_not_lost_in_one() -> None:
    busy = replace(SHARES, idle=0.0, busy=1.0, idle_within=0.0, idle_between=0.0, back_to_back=0.0, host_bound=0.0)
    found = of_part(profiled(), None, "idle", observe(profiled(figures(busy))))
    assert (found.letters, found.confidence) == ((), "medium")


def test_waiting_for_the_rank_that_is_seen_is_a_breach_of_communication_of_its_host() -> None:
    """Seen from the late rank no communication waits; what the others wait is its host's, D."""
    waiting = [figures(rank=rank, waiting_cause="host gaps") for rank in range(3)]
    facts = profiled(*waiting, figures(replace(LATE, exposed=0.0, transport=0.0), rank=3, late=0.9))
    observed = observe(facts)
    from pytest_llmroof.analysis.attribute import attribute

    found = diagnose(facts, {}, attribute(facts, {}, observed), "communication", observed)
    assert found.scenario == "D"
