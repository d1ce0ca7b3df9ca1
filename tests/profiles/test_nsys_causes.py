"""The same schedules as exports of Nsight Systems and as PyTorch traces: the truth, and the same figures of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nsys_files import write_nsys
from timelines import (
    ATTENTION,
    CUSTOM_ALL_REDUCE,
    GEMM,
    MICROSECOND,
    NCCL_ALL_REDUCE,
    NCCL_SEND_RECV,
    Schedule,
    Work,
    write_kineto,
)

from pytest_llmroof.profiles.analyse import analyse_ranks
from pytest_llmroof.profiles.chrome import read_chrome
from pytest_llmroof.profiles.figures import Shares, TimelineFigures
from pytest_llmroof.profiles.nsys import read_nsys

US = MICROSECOND
STEPS = 8


def both(tmp_path: Path, *schedules: Schedule) -> tuple[TimelineFigures, ...]:
    """The figures of an export of Nsight Systems, which are those of PyTorch traces of the same schedules."""
    timelines = read_nsys(write_nsys(tmp_path / "report.sqlite", *schedules, colliding=True))
    assert len(timelines) == len(schedules)
    found = analyse_ranks(timelines)
    traces = [read_chrome(write_kineto(one, tmp_path / f"{rank}.json"))[0] for rank, one in enumerate(schedules)]
    for ours, theirs in zip(found, analyse_ranks(traces), strict=True):
        assert_alike(ours, theirs)
    return found


def assert_alike(ours: TimelineFigures, theirs: TimelineFigures) -> None:
    assert shares(ours.whole) == pytest.approx(shares(theirs.whole), nan_ok=True)
    assert ours.classes == pytest.approx(theirs.classes)
    assert ours.graph_launched == pytest.approx(theirs.graph_launched)
    assert (ours.steps_by, ours.kernels, ours.copies) == (theirs.steps_by, theirs.kernels, theirs.copies)
    assert (ours.waiting_cause, ours.late, ours.ranks) == (theirs.waiting_cause, theirs.late, theirs.ranks)
    np.testing.assert_array_equal(ours.gaps_ns, theirs.gaps_ns)
    assert (ours.host is None) == (theirs.host is None)
    if ours.host and theirs.host:
        assert vars(ours.host) == pytest.approx(vars(theirs.host))
    assert list(ours.steps) == list(theirs.steps)
    for phase, step in ours.steps.items():
        assert shares(step.shares) == pytest.approx(shares(theirs.steps[phase].shares), nan_ok=True)
        assert (step.count, step.decode_tokens) == (theirs.steps[phase].count, theirs.steps[phase].decode_tokens)


def shares(found: Shares) -> dict[str, float]:
    return {name: float("nan") if value is None else value for name, value in vars(found).items()}


def test_many_gaps_of_ten_microseconds_are_the_hosts(tmp_path: Path) -> None:
    """50 kernels of 20 us, 10 us apart, each launched after the one before had ended: idle for 500 of 1500 us."""
    schedule = Schedule()
    for step in range(STEPS):
        schedule.step(step * 1500 * US, (step * 1500 + 1490) * US)
        for kernel in range(50):
            start = (step * 1500 + kernel * 30 + 10) * US
            schedule.launch(start - 8 * US, [(GEMM, start, start + 20 * US)])
    (found,) = both(tmp_path, schedule)
    decode = found.steps["decode"]
    assert decode.median_seconds == pytest.approx(1500e-6)
    assert decode.decode_tokens == 32
    assert decode.shares.host_bound == pytest.approx(1 / 3)
    assert decode.shares.exposed == 0
    assert found.gap_seconds(0.5) == pytest.approx(10e-6)
    assert not found.distortions


def test_a_custom_all_reduce_that_nothing_hides_is_exposed(tmp_path: Path) -> None:
    """GEMM 60 us, all-reduce 40 us, back to back: 40 % of the step."""
    schedule = Schedule()
    for step in range(STEPS):
        begin = step * 1000 * US
        schedule.step(begin - 1000 * US, begin - 500 * US)
        for part in range(10):
            at = begin + part * 100 * US
            schedule.launch(at - 900 * US, [(GEMM, at, at + 60 * US), (CUSTOM_ALL_REDUCE, at + 60 * US, at + 100 * US)])
    (found,) = both(tmp_path, schedule)
    typical = found.typical("decode")
    assert typical.busy == pytest.approx(1)
    assert typical.exposed == typical.transport == pytest.approx(0.4)
    assert typical.waiting == typical.host_bound == pytest.approx(0)


def replayed() -> Schedule:
    """One launch a step, 100 kernels of 9 us, 1 us apart: 90 % busy, and the pauses are the device's own."""
    schedule = Schedule()
    for step in range(STEPS):
        begin = step * 1000 * US
        names = [ATTENTION if kernel % 4 == 0 else GEMM for kernel in range(100)]
        runs = [(name, begin + 10 * k * US, begin + (10 * k + 9) * US) for k, name in enumerate(names)]
        schedule.launch(begin - 300 * US, runs, api="cudaGraphLaunch")
    return schedule


def test_nodes_of_replayed_graphs_are_neither(tmp_path: Path) -> None:
    (found,) = both(tmp_path, replayed())
    assert found.steps_by == "graph replays"
    assert found.graph_launched == 1
    assert found.typical().busy == pytest.approx(0.9)
    assert found.typical().host_bound == found.typical().exposed == 0


def test_replays_that_are_recorded_whole_are_busy_and_nothing_more_is_told_of_them(tmp_path: Path) -> None:
    """999 of 1000 us are a replay's: what runs in it, communication included, is not known."""
    path = write_nsys(tmp_path / "report.sqlite", replayed(), opaque=True)
    (timeline,) = read_nsys(path)
    (found,) = analyse_ranks([timeline])
    assert found.steps_by == "graph replays"
    assert found.graph_replays == STEPS
    assert found.kernels == 0
    shares = found.typical()
    assert shares.busy == pytest.approx(0.999)
    assert shares.communication is shares.exposed is shares.transport is shares.waiting is None
    assert found.classes == {"graph replays": pytest.approx(1)}
    assert any("--cuda-graph-trace=node" in said for said in found.distortions)
    (alone,) = analyse_ranks([replace(timeline, world_size=1)])
    assert alone.typical().exposed == 0


def test_communication_beside_computation_is_hidden(tmp_path: Path) -> None:
    """GEMMs fill the step; an all-reduce of 400 us of 1000 runs beside them."""
    schedule = Schedule()
    for step in range(STEPS):
        begin = step * 1000 * US
        schedule.step(begin - 1000 * US, begin - 500 * US)
        schedule.launch(begin - 900 * US, [(GEMM, begin + k * 100 * US, begin + (k + 1) * 100 * US) for k in range(10)])
        schedule.launch(begin - 800 * US, [(NCCL_ALL_REDUCE, begin + 200 * US, begin + 600 * US)], stream=20)
    (found,) = both(tmp_path, schedule)
    typical = found.typical("decode")
    assert typical.busy == pytest.approx(1)
    assert typical.exposed == 0
    assert typical.hidden == pytest.approx(0.4)


@pytest.mark.parametrize(("late", "cause"), [((40, 0), "host gaps"), ((0, 40), "imbalance"), ((0, 0), None)])
def test_a_straggler_is_told_from_a_slow_network(tmp_path: Path, late: tuple[int, int], cause: str | None) -> None:
    """Both ranks in one export. Rank 0 waits 40 of every 200 us (20 %) for rank 1; the transfer takes 20 us (10 %)."""
    ranks = []
    for rank in range(2):
        schedule = Schedule(rank=rank, world_size=2)
        for step in range(STEPS):
            begin = step * 2000 * US
            schedule.step(begin - 50 * US, begin + 1900 * US)
            for part in range(10):
                at = begin + part * 200 * US
                gemm = at + (late[0] * US if rank else 0)
                arrives = at + 100 * US + (sum(late) * US if rank else 0)
                schedule.launch(gemm - 6 * US, [(GEMM, gemm, arrives)])
                schedule.launch(at + 50 * US, [(NCCL_ALL_REDUCE, arrives, at + (120 + sum(late)) * US)])
        ranks.append(schedule)
    fast, slow = both(tmp_path, *ranks)
    assert fast.typical("decode").transport == pytest.approx(0.1)
    assert slow.typical("decode").transport == pytest.approx(0.1)
    assert fast.typical("decode").waiting == pytest.approx(0.2 if cause else 0)
    assert fast.waiting_cause == cause
    assert fast.ranks == slow.ranks == 2
    assert (fast.rank, slow.rank) == (0, 1)
    if cause:
        assert (fast.late, slow.late) == (0, 1)


def test_a_stage_that_waits_for_another_is_a_pipeline_bubble(tmp_path: Path) -> None:
    """Stage 1 receives for 10 us what it waited 90 us for, of 200."""
    ranks = []
    for rank in range(2):
        schedule = Schedule(rank=rank, world_size=2)
        for step in range(STEPS):
            begin = step * 200 * US
            schedule.step(begin - 50 * US, begin + 90 * US)
            receives = begin if rank else begin + 90 * US
            own = (GEMM, begin + 100 * US, begin + 190 * US) if rank else (GEMM, begin, begin + 90 * US)
            schedule.launch(begin - 20 * US, [own])
            schedule.launch(begin - 10 * US, [(NCCL_SEND_RECV, receives, begin + 100 * US)])
        ranks.append(schedule)
    first, second = both(tmp_path, *ranks)
    assert second.waiting_cause == "pipeline bubble"
    assert second.typical("decode").waiting == pytest.approx(90 / 200)
    assert second.typical("decode").transport == pytest.approx(10 / 200)
    assert first.waiting_cause is None


def test_registered_annotations_tell_the_same_steps(tmp_path: Path) -> None:
    schedule = Schedule()
    for step in range(STEPS):
        begin = step * 100 * US
        schedule.step(begin, begin + 50 * US, f"execute_context_1({100 + step})_generation_3(3)")
        schedule.launch(begin + 10 * US, [(GEMM, begin + 20 * US, begin + 90 * US)])
    told, registered = (
        read_nsys(write_nsys(tmp_path / f"{stored}.sqlite", schedule, registered=stored))[0].steps
        for stored in (False, True)
    )
    assert told == registered
    assert [step.prefill_tokens for step in told] == [100 + step for step in range(STEPS)]


KERNELS = st.tuples(
    st.sampled_from([GEMM, ATTENTION, CUSTOM_ALL_REDUCE, NCCL_ALL_REDUCE]),
    st.integers(0, 400),  # after the one before, in quarters of a microsecond
    st.integers(1, 800),
    st.integers(0, 300),  # submitted so long before
    st.sampled_from([7, 20]),
    st.booleans(),
)


def scheduled(kernels: Sequence[tuple[str, int, int, int, int, bool]]) -> Schedule:
    """Work whose times are multiples of 250 ns, which fractions of microseconds hold exactly."""
    schedule, at = Schedule(), 1000 * US
    for number, (name, gap, lasts, before, stream, known) in enumerate(kernels):
        start = at + gap * 250
        runs = [(name, start, start + lasts * 250)]
        if known:
            # No two calls begin together: which of them stands first in a trace would be chance.
            schedule.launch(start - before * 250 - 7 - number, runs, stream=stream)
        else:
            schedule.work.append(Work(name, start, start + lasts * 250, None, stream))
        at = start + lasts * 125  # some overlap with the next one
    schedule.step(0, at)
    return schedule


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(KERNELS, min_size=1, max_size=40))
def test_both_readers_agree(tmp_path: Path, kernels: list[tuple[str, int, int, int, int, bool]]) -> None:
    both(tmp_path, scheduled(kernels))


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(KERNELS, min_size=1, max_size=12), min_size=2, max_size=3))
def test_both_readers_agree_on_several_ranks(
    tmp_path: Path, ranks: list[list[tuple[str, int, int, int, int, bool]]]
) -> None:
    made = [replace(scheduled(kernels), rank=rank, world_size=len(ranks)) for rank, kernels in enumerate(ranks)]
    both(tmp_path, *made)
