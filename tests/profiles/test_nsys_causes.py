"""The same schedules as exports of Nsight Systems and as PyTorch traces: the truth, and the same figures of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import planted
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nsys_files import write_nsys
from planted import STEPS, US
from timelines import ATTENTION, CUSTOM_ALL_REDUCE, GEMM, NCCL_ALL_REDUCE, Schedule, Work

from pytest_llmroof.profiles.analyse import analyse_ranks
from pytest_llmroof.profiles.figures import Shares, TimelineFigures
from pytest_llmroof.profiles.nsys import read_nsys


def both(tmp_path: Path, *schedules: Schedule) -> None:
    """The figures of an export of Nsight Systems are those of PyTorch traces of the same schedules."""
    found, traced = (planted.figures(reader, tmp_path, *schedules) for reader in ("Nsight Systems", "PyTorch profiler"))
    for ours, theirs in zip(found, traced, strict=True):
        assert_alike(ours, theirs)


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


@pytest.mark.parametrize("case", planted.EVERY)
def test_what_is_planted_reads_the_same_of_both(tmp_path: Path, case: str) -> None:
    both(tmp_path, *planted.EVERY[case]())


def test_replays_that_are_recorded_whole_are_busy_and_nothing_more_is_told_of_them(tmp_path: Path) -> None:
    """999 of 1000 us are a replay's: what runs in it, communication included, is not known."""
    path = write_nsys(tmp_path / "report.sqlite", planted.graphs(), opaque=True)
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
