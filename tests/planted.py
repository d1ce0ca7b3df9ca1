"""Schedules with a planted cause each, hand-made in round microseconds, and what each profiler's reader makes of them.

Every case is read from the PyTorch profiler's traces and from an export of Nsight Systems: ``READERS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from nsys_files import write_nsys
from timelines import (
    ATTENTION,
    CUSTOM_ALL_REDUCE,
    GEMM,
    MICROSECOND,
    NCCL_ALL_REDUCE,
    NCCL_SEND_RECV,
    Schedule,
    write_kineto,
)

from pytest_llmroof.profiles.analyse import analyse_ranks
from pytest_llmroof.profiles.chrome import read_chrome
from pytest_llmroof.profiles.figures import TimelineFigures
from pytest_llmroof.profiles.nsys import read_nsys
from pytest_llmroof.profiles.timeline import Timeline

US: Final = MICROSECOND
STEPS: Final = 8


def from_traces(folder: Path, *schedules: Schedule) -> tuple[Timeline, ...]:
    """Timelines of a trace for each schedule."""
    timelines = []
    for rank, schedule in enumerate(schedules):
        (timeline,) = read_chrome(write_kineto(schedule, folder / f"rank{rank}.pt.trace.json"))
        timelines.append(timeline)
    return tuple(timelines)


def from_export(folder: Path, *schedules: Schedule) -> tuple[Timeline, ...]:
    """Timelines of one export of all schedules, whose processes number their calls alike."""
    timelines = read_nsys(write_nsys(folder / "report.sqlite", *schedules, colliding=True))
    assert len(timelines) == len(schedules)
    return timelines


READERS: Final[Mapping[str, Callable[..., tuple[Timeline, ...]]]] = {
    "PyTorch profiler": from_traces,
    "Nsight Systems": from_export,
}


def figures(reader: str, folder: Path, *schedules: Schedule) -> tuple[TimelineFigures, ...]:
    """The figures of schedules, as one profiler's files tell them."""
    return analyse_ranks(READERS[reader](folder, *schedules))


def submitted(
    step: Callable[[int], list[tuple[str, int, int]]], period: int, schedule: Schedule | None = None, stream: int = 7
) -> Schedule:
    """Steps whose work was all submitted one period ahead, a launch for each piece of it."""
    found = schedule or Schedule()
    for number in range(STEPS):
        begin = number * period
        if schedule is None:
            found.step(begin - period, begin - period // 2)
        for name, start, end in step(begin):
            found.launch(begin - period + (start - begin) // 4, [(name, start, end)], stream=stream)
    return found


def short_gaps() -> Schedule:
    """50 kernels of 20 us, 10 us apart, each launched after the one before had ended."""
    schedule = Schedule()
    for step in range(STEPS):
        schedule.step(step * 1500 * US, (step * 1500 + 1490) * US)
        for kernel in range(50):
            start = (step * 1500 + kernel * 30 + 10) * US
            schedule.launch(start - 8 * US, [(GEMM, start, start + 20 * US)])
    return schedule


def exposed(*, together: bool) -> Schedule:
    """GEMM 60 us, custom all-reduce 40 us, back to back, ten times a step; each launched by itself, or in pairs."""
    if not together:
        return submitted(
            lambda at: [
                (GEMM if part % 2 == 0 else CUSTOM_ALL_REDUCE, at + (part // 2 * 100 + part % 2 * 60) * US,
                 at + (part // 2 * 100 + 60 + part % 2 * 40) * US)
                for part in range(20)
            ],
            1000 * US,
        )  # fmt: skip
    schedule = Schedule()
    for step in range(STEPS):
        begin = step * 1000 * US
        schedule.step(begin - 1000 * US, begin - 500 * US)
        for part in range(10):
            at = begin + part * 100 * US
            schedule.launch(at - 900 * US, [(GEMM, at, at + 60 * US), (CUSTOM_ALL_REDUCE, at + 60 * US, at + 100 * US)])
    return schedule


def hidden(*, together: bool) -> Schedule:
    """GEMMs fill a step of 1000 us, launched one by one or together; an all-reduce of 400 us runs beside them, on a
    stream of its own.
    """
    if not together:
        alone = submitted(lambda at: [(GEMM, at + k * 100 * US, at + (k + 1) * 100 * US) for k in range(10)], 1000 * US)
        return submitted(lambda at: [(NCCL_ALL_REDUCE, at + 200 * US, at + 600 * US)], 1000 * US, alone, stream=20)
    schedule = Schedule()
    for step in range(STEPS):
        begin = step * 1000 * US
        schedule.step(begin - 1000 * US, begin - 500 * US)
        schedule.launch(begin - 900 * US, [(GEMM, begin + k * 100 * US, begin + (k + 1) * 100 * US) for k in range(10)])
        schedule.launch(begin - 800 * US, [(NCCL_ALL_REDUCE, begin + 200 * US, begin + 600 * US)], stream=20)
    return schedule


def graphs() -> Schedule:
    """One launch a step of 1000 us, 100 kernels of 9 us, 1 us apart, every fourth of them attention."""
    schedule = Schedule()
    for step in range(STEPS):
        begin = step * 1000 * US
        names = [ATTENTION if kernel % 4 == 0 else GEMM for kernel in range(100)]
        runs = [(name, begin + 10 * k * US, begin + (10 * k + 9) * US) for k, name in enumerate(names)]
        schedule.launch(begin - 300 * US, runs, api="cudaGraphLaunch")
    return schedule


def two_ranks(late_starts: int, late_works: int, clocks_apart_ns: int = 777) -> tuple[Schedule, Schedule]:
    """Two ranks that reduce every 200 us for 20 us; what rank 1 does before lasts longer, or starts later.

    Rank 0 computes 100 us and arrives; rank 1 arrives ``late_starts + late_works`` us after it.
    """
    late = (late_starts + late_works) * US
    ranks = []
    for rank in range(2):
        apart = rank * clocks_apart_ns
        schedule = Schedule(rank=rank, world_size=2, zero_unix_ns=1_795_975_830_000_000_000 + apart)
        for step in range(STEPS):
            begin = step * 2000 * US - apart
            schedule.step(begin - 50 * US, begin + 1900 * US)
            for part in range(10):
                at = begin + part * 200 * US
                gemm = at + (late_starts * US if rank else 0)
                arrives = at + 100 * US + (late if rank else 0)
                schedule.launch(gemm - 6 * US, [(GEMM, gemm, arrives)])
                schedule.launch(at + 50 * US, [(NCCL_ALL_REDUCE, arrives, at + 120 * US + late)])
        ranks.append(schedule)
    return ranks[0], ranks[1]


def two_stages() -> tuple[Schedule, Schedule]:
    """Two stages of a pipeline in turns of 90 us: of 200 us, stage 1 receives for 10 what it waited 90 for."""
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
    return ranks[0], ranks[1]


EVERY: Final[Mapping[str, Callable[[], tuple[Schedule, ...]]]] = {
    "short gaps": lambda: (short_gaps(),),
    "exposed": lambda: (exposed(together=False),),
    "exposed, launched together": lambda: (exposed(together=True),),
    "hidden": lambda: (hidden(together=False),),
    "hidden, launched together": lambda: (hidden(together=True),),
    "graphs": lambda: (graphs(),),
    "late host": lambda: two_ranks(40, 0),
    "late host, one clock": lambda: two_ranks(40, 0, 0),
    "more work": lambda: two_ranks(0, 40),
    "more work, one clock": lambda: two_ranks(0, 40, 0),
    "nobody late": lambda: two_ranks(0, 0),
    "nobody late, one clock": lambda: two_ranks(0, 0, 0),
    "stages": two_stages,
}
"""All of them, made anew each time."""
