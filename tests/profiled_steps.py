"""Decode steps with a planted cause, as schedules of host and device: shares of a step are given, times follow.

A step is cut into equal pieces: a GEMM, then an all-reduce, then nothing until the host has launched the next piece.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from timelines import CUSTOM_ALL_REDUCE, GEMM, MICROSECOND, NCCL_SEND_RECV, Schedule

STEP_US = 26_200
PIECES = 160
STEPS = 8
DECODES = "execute_context_0(0)_generation_12(12)"


def decode(
    communication: float = 0.0,
    idle: float = 0.0,
    *,
    step_us: int = STEP_US,
    pieces: int = PIECES,
    steps: int = STEPS,
    name: str = DECODES,
    kernel: str = CUSTOM_ALL_REDUCE,
    **facts: Any,
) -> Schedule:
    """Steps in which all-reduces are exposed for one share and the device waits for its host for another."""
    schedule = replace(Schedule(rank=0, world_size=4), **facts)
    length = step_us * MICROSECOND // pieces
    for step in range(steps):
        begin = step * length * pieces
        schedule.step(begin, begin + length * pieces - 2 * MICROSECOND, name)
        for piece in range(pieces):
            at = begin + piece * length
            gap, reduce = round(idle * length), round(communication * length)
            starts, ends = at + gap, at + length
            submitted = starts - min(gap, 6 * MICROSECOND) + MICROSECOND // 2 if gap else starts - 50 * MICROSECOND
            if piece == 0 and not gap:  # within the step's annotation
                submitted = begin
            schedule.launch(submitted, [(GEMM, starts, ends - reduce)])
            if reduce:
                schedule.launch(max(submitted, at), [(kernel, ends - reduce, ends)])
    return schedule


def replayed(step_us: int = STEP_US, pieces: int = 400, steps: int = STEPS, pause_ns: int = 1_000) -> Schedule:
    """One launch a step, and kernels with the device's own pauses between them."""
    schedule = Schedule(rank=0, world_size=1)
    length = step_us * MICROSECOND // pieces
    for step in range(steps):
        begin = step * length * pieces
        schedule.step(begin - 400 * MICROSECOND, begin - 200 * MICROSECOND)
        runs = [(GEMM, begin + piece * length, begin + (piece + 1) * length - pause_ns) for piece in range(pieces)]
        schedule.launch(begin - 300 * MICROSECOND, runs, api="cudaGraphLaunch")
    return schedule


def ranks(late: float, *, working: bool, transport: float = 0.05, count: int = 4) -> list[Schedule]:
    """Ranks of which the last comes late to every all-reduce: its work lasts longer, or its host submits it late."""
    schedules = []
    length = STEP_US * MICROSECOND // PIECES
    wait, moves = round(late * length), round(transport * length)
    for rank in range(count):
        last = rank == count - 1
        schedule = Schedule(rank=rank, world_size=count)
        for step in range(STEPS):
            begin = step * length * PIECES
            schedule.step(begin, begin + length * PIECES - 2 * MICROSECOND, DECODES)
            for piece in range(PIECES):
                at = begin + piece * length
                starts = at + (wait if last and not working else 0)
                arrives = at + length - moves - (0 if last else wait)
                late_host = last and not working
                submitted = starts - 6 * MICROSECOND if late_host else max(at - 20 * MICROSECOND, begin)
                schedule.launch(submitted, [(GEMM, starts, arrives)])
                schedule.launch(submitted, [(CUSTOM_ALL_REDUCE, arrives, at + length)])
        schedules.append(schedule)
    return schedules


def stages(bubble: float = 0.4, transfer: float = 0.02) -> list[Schedule]:
    """Two pipeline stages: the second receives, which is mostly waiting for the first."""
    schedules = []
    length, move = STEP_US * MICROSECOND, round(transfer * STEP_US) * MICROSECOND
    wait = round(bubble * STEP_US) * MICROSECOND
    for rank in range(2):
        schedule = Schedule(rank=rank, world_size=2)
        for step in range(STEPS):
            begin = step * length
            schedule.step(begin, begin + length - 2 * MICROSECOND, DECODES)
            meets = begin + wait
            if rank:
                schedule.launch(begin, [(NCCL_SEND_RECV, begin, meets + move)])
                schedule.launch(begin + MICROSECOND, [(GEMM, meets + move, begin + length)])
            else:
                schedule.launch(begin, [(GEMM, begin, meets)])
                schedule.launch(begin + MICROSECOND, [(NCCL_SEND_RECV, meets, meets + move)])
                schedule.launch(begin + 2 * MICROSECOND, [(GEMM, meets + move, begin + length)])
        schedules.append(schedule)
    return schedules
