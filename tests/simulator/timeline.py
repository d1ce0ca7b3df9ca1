"""Some steps of a run as profilers record them: what each rank's host submitted, and what its GPU ran.

A step is cut into pieces of work, each followed by an all-reduce where there are several ranks. Ranks work for unequal
times; each waits for the last one, and then all transfer. Lengths are scaled so that a step lasts as long as it did.
One rank may have more work in each piece, or begin its step late. Hidden exchanges run beside the work, on a stream of
their own.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from nsys_files import write_nsys
from timelines import ATTENTION, CUSTOM_ALL_REDUCE, GEMM, MICROSECOND, NCCL_ALL_REDUCE, Schedule, write_kineto

from simulator.run import Run, Step

#: Steps that are profiled.
STEPS = 10
#: A launch's time from the host's call to the kernel's beginning, when the GPU waits for it.
LAUNCH = 5 * MICROSECOND
NANO = 1e9
GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def profiled(run: Run) -> tuple[Step, ...]:
    """The steps that a profiler was on for: in the middle of the window, one after the other."""
    steps = run.window
    busy = max((step.work.decodes for step in steps), default=0)
    middle = len(steps) // 2
    # Somebody who profiles waits until the server is under load.
    while middle + STEPS < len(steps) and steps[middle].work.decodes < 0.6 * busy:
        middle += 1
    return tuple(steps[max(0, min(middle, len(steps) - STEPS)) :][:STEPS])


def write_timelines(run: Run, folder: Path) -> list[Path]:
    """One trace for each rank that was profiled, or one export of all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    schedules = ranks(run, profiled(run))
    schedules = schedules[: run.plan.traced_ranks or None]
    if run.plan.profiler == "nsys":
        return [write_nsys(folder / "report.sqlite", *schedules)]
    return [write_kineto(one, folder / f"rank{one.rank}.pt.trace.json") for one in schedules]


def ranks(run: Run, steps: Sequence[Step]) -> list[Schedule]:
    """The schedules of all ranks over some steps."""
    plan = run.plan
    random_ = random.Random(plan.seed + 1)
    made = [Schedule(rank=rank, world_size=plan.split, device_name=plan.gpu.product) for rank in range(plan.split)]
    at = 0
    for step in steps:
        at = _Pieces(run, step, random_).write(made, at)
    return made


class _Pieces:
    """One step on all ranks."""

    def __init__(self, run: Run, step: Step, random_: random.Random) -> None:
        self.run, self.step = run, step
        plan = run.plan
        self.count = min(40, plan.net.layers)  # of a large model two layers a piece
        self.eager = plan.causes.idle > 0 and plan.causes.idle_kind == "within"
        prefill = bool(step.work.chunks)
        self.hidden = plan.causes.hidden if plan.split > 1 else 0.0
        self.exchange = NCCL_ALL_REDUCE if prefill or plan.gpu.pcie else CUSTOM_ALL_REDUCE
        parts = step.parts
        self.transfer = _cut(parts.transport, self.count, random_, 0.1)
        self.pause = _cut(parts.within, self.count, random_, 0.5)
        each = _cut(parts.work, self.count, random_, 0.1)
        skew = plan.health.skew
        worked = [[one * (1 + skew * random_.gauss(0, 1)) for one in each] for _ in range(plan.split)]
        slowest = sum(max(column) for column in zip(*worked, strict=True))
        scale = (parts.work + parts.waiting) / slowest
        self.work = [[one * scale for one in row] for row in worked]
        self.late = plan.late_rank
        if self.late is not None and parts.late_work:
            # Where it is the last one in every piece, the others' unequal times are lost in its own.
            row = self.work[self.late]
            more = (parts.work + parts.waiting + parts.late_work - sum(row)) / self.count
            self.work[self.late] = [one + more for one in row]

    def write(self, made: list[Schedule], at: int) -> int:
        """Add the step to the schedules from ``at`` on; where it ends. Nanoseconds."""
        begin = at
        start = at + round(self.step.parts.between * NANO)
        lag = [round(self.step.parts.late_host * NANO) if rank == self.late else 0 for rank in range(len(made))]
        beside: list[list[tuple[str, int, int]]] = [[] for _ in made]
        runs: list[list[tuple[str, int, int]]] = [[] for _ in made]
        launches: list[list[int]] = [[] for _ in made]
        at = start
        for piece in range(self.count):
            gap = round(self.pause[piece] * NANO)
            began = [at + gap + (lag[rank] if not piece else 0) for rank in range(len(made))]
            arrive = [one + max(1000, round(row[piece] * NANO)) for one, row in zip(began, self.work, strict=True)]
            at = meet = max(arrive)
            if len(made) > 1:
                at = meet + max(1000, round(self.transfer[piece] * NANO))
            for rank in range(len(made)):
                name = ATTENTION if piece % 4 == 1 else GEMM
                starts = began[rank]
                beside[rank].append((GATHER, starts, starts + round(self.hidden * (min(arrive) - max(began)))))
                runs[rank].append((name, starts, arrive[rank]))
                launches[rank].append(starts - min(gap, LAUNCH) if gap > 2000 else starts - LAUNCH)
                if len(made) > 1:
                    runs[rank].append((self.exchange, arrive[rank], at))
                    launches[rank].append(starts - min(gap, LAUNCH) if gap > 2000 else starts - LAUNCH)
        for rank, schedule in enumerate(made):
            if self.hidden:
                schedule.launch(begin - 290 * MICROSECOND, beside[rank], stream=9)
            if self.eager:
                first = min(launches[rank][0], start - 1000)
                schedule.step(first - 1000, max(launches[rank][-1] + 6000, at - 3000), self._name)
                for one, submitted in zip(runs[rank], launches[rank], strict=True):
                    schedule.launch(submitted, [one])
                continue
            # One replay, submitted while the step before still runs where the host is quick.
            late = self.step.parts.between > 2e-6 or lag[rank] > 0
            submitted = start + lag[rank] - LAUNCH if late else begin - 300 * MICROSECOND
            schedule.step(
                submitted - 50 * MICROSECOND if not late else max(begin, submitted - 50_000),
                submitted + 20 * MICROSECOND,
                self._name,
            )
            schedule.launch(submitted, runs[rank], api="cudaGraphLaunch")
        return at

    @property
    def _name(self) -> str:
        work = self.step.work
        return (
            f"execute_context_{len(work.chunks)}({work.prompt_tokens})_generation_{work.decodes}({work.decode_tokens})"
        )


def _cut(seconds: float, count: int, random_: random.Random, spread: float) -> list[float]:
    """So many uneven parts of it."""
    weights = [random_.uniform(1 - spread, 1 + spread) for _ in range(count)]
    whole = sum(weights)
    return [seconds * weight / whole for weight in weights]


def totals(schedules: Sequence[Schedule]) -> Iterator[tuple[float, float]]:
    """Of each rank the seconds of its exchanges and of its other work."""
    for schedule in schedules:
        exchanges = [one for one in schedule.work if "AllReduce" in one.name or "cross_device" in one.name]
        whole = sum(one.end - one.start for one in schedule.work)
        exchanged = sum(one.end - one.start for one in exchanges)
        yield exchanged / NANO, (whole - exchanged) / NANO
