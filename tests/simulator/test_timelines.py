"""The timelines of a run's steps: what lies on each rank's GPU adds up to what the run lost and needed."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from statistics import fmean

import pytest
from timelines import Work

from simulator.draw import draw
from simulator.plan import Causes, IdleKind, LateKind
from simulator.run import Run
from simulator.scheduler import simulate
from simulator.timeline import STEPS, profiled, ranks, totals
from simulator.timing import StepTime


def start_of(work: Work) -> int:
    return work.start


def run_of(split: int, kind: IdleKind) -> Run:
    drawn = next(
        one for one in map(draw, range(400)) if one.plan.split == split and one.typical.decodes and not one.plan.drafted
    )
    causes = Causes(communication=0.25 if split > 1 else 0.0, idle=0.15, idle_kind=kind)
    return simulate(replace(drawn.plan, causes=causes), drawn.typical)


@pytest.mark.parametrize("kind", ["within", "between"])
@pytest.mark.parametrize("split", [1, 2, 4])
def test_shares_of_a_timeline_are_those_of_the_run(split: int, kind: IdleKind) -> None:
    run = run_of(split, kind)
    steps = profiled(run)
    schedules = ranks(run, steps)
    assert len(steps) == STEPS
    assert len(schedules) == split

    def mean(name: str) -> float:
        return sum(float(getattr(step.parts, name)) for step in steps)

    whole = mean("total")
    exchanged, worked = zip(*totals(schedules), strict=True)
    # Waiting is that for the last rank: random, so only its mean over many pieces is that of the run.
    assert fmean(exchanged) / whole == pytest.approx(mean("communication") / whole, abs=0.005)
    assert fmean(worked) / whole == pytest.approx(mean("work") / whole, abs=0.005)
    ends = [max(one.end for one in schedule.work) for schedule in schedules]
    assert ends == pytest.approx([1e9 * whole] * split, rel=1e-3)
    idle = 1 - (fmean(exchanged) + fmean(worked)) / whole
    assert idle == pytest.approx(mean("idle") / whole, abs=0.005)


@pytest.mark.parametrize("kind", ["work", "host"])
def test_others_wait_for_a_late_rank(kind: LateKind) -> None:
    """Its exchanges are the shortest, and the others' longer by what it is late."""
    run = run_of(4, "between")
    drawn = next(one for one in map(draw, range(400)) if one.plan.seed == run.plan.seed)
    run = simulate(replace(run.plan, causes=Causes(late=0.3, late_kind=kind)), drawn.typical)
    steps = profiled(run)
    schedules = ranks(run, steps)
    exchanged = [exchange for exchange, _ in totals(schedules)]
    late = run.plan.late_rank
    assert late is not None
    assert exchanged.index(min(exchanged)) == late
    others = fmean(one for rank, one in enumerate(exchanged) if rank != late)
    assert others - exchanged[late] == pytest.approx(sum(step.parts.late for step in steps), rel=0.15)
    ends = [max(one.end for one in schedule.work) for schedule in schedules]
    assert ends == pytest.approx([1e9 * sum(step.parts.total for step in steps)] * 4, rel=1e-2)


def test_hidden_exchanges_run_beside_the_work() -> None:
    """On a stream of their own, and never outside of it."""
    run = run_of(2, "between")
    hidden = replace(run, plan=replace(run.plan, causes=Causes(hidden=0.6)))
    for schedule in ranks(hidden, profiled(hidden)):
        beside = [one for one in schedule.work if one.stream == 9]
        kernels = [
            one for one in schedule.work if one.stream == 7 and "Reduce" not in one.name and "reduce" not in one.name
        ]
        assert len(beside) == len(kernels)
        inside = zip(sorted(beside, key=start_of), sorted(kernels, key=start_of), strict=True)
        assert all(work.start <= one.start and one.end <= work.end for one, work in inside)
        assert sum(one.end - one.start for one in beside) > 0.5 * sum(one.end - one.start for one in kernels)


def test_nothing_runs_twice_at_once() -> None:
    """One stream of work, in order, on each rank; every kernel behind the call that launched it."""
    run = run_of(2, "within")
    for schedule in ranks(run, profiled(run)):
        work = sorted(schedule.work, key=lambda one: one.start)
        assert all(later.start >= earlier.end for earlier, later in pairwise(work))
        launched = {call.launch: call.start for call in schedule.calls}
        assert all(launched[one.launch] < one.start for one in work)


def test_parts_of_a_step_add_up() -> None:
    run = run_of(4, "between")
    parts: StepTime = run.steps[0].parts
    assert parts.total == pytest.approx(
        parts.kernels + parts.slow + parts.transport + parts.waiting + parts.within + parts.between
    )
