"""Timelines whose truth is known, one for each cause, through the profilers' own formats."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import planted
import pytest
from planted import STEPS, US, exposed, graphs, hidden, short_gaps, submitted, two_ranks, two_stages
from timelines import ATTENTION, CUSTOM_ALL_REDUCE, GEMM, NCCL_ALL_REDUCE, Schedule, Work, write_kineto

from pytest_llmroof.errors import SourceError
from pytest_llmroof.profiles.analyse import analyse
from pytest_llmroof.profiles.chrome import read_chrome
from pytest_llmroof.profiles.figures import TimelineFigures

every_reader = pytest.mark.parametrize("reader", planted.READERS)


def figures(tmp_path: Path, *schedules: Schedule) -> tuple[TimelineFigures, ...]:
    """The figures of PyTorch traces."""
    return planted.figures("PyTorch profiler", tmp_path, *schedules)


@every_reader
def test_many_gaps_of_ten_microseconds_are_the_hosts(tmp_path: Path, reader: str) -> None:
    """By their sum, not their length: a step of 50 * 30 = 1500 us is busy for 50 * 20 = 1000 us: 66.7 %, and 33.3 %
    idle for the host.
    """
    (found,) = planted.figures(reader, tmp_path, short_gaps())
    decode = found.steps["decode"]
    assert decode.median_seconds == pytest.approx(1500e-6)
    assert decode.count == STEPS - 2  # without the first, and the last, whose end is not known
    assert decode.decode_tokens == 32
    assert decode.shares.busy == pytest.approx(2 / 3)
    assert decode.shares.host_bound == pytest.approx(1 / 3)
    assert decode.shares.exposed == decode.shares.transport == decode.shares.waiting == 0
    # 49 of 50 gaps lie between kernels of one step, the 50th before the next step's first kernel.
    assert decode.shares.idle_within == pytest.approx(49 / 150)
    assert decode.shares.idle_between == pytest.approx(1 / 150)
    assert np.median(found.gaps_ns) == pytest.approx(10_000)
    assert found.host is not None
    # Of 10 us, the call that launches takes 5.
    assert found.host.calling == pytest.approx(0.5)
    assert found.host.elsewhere == pytest.approx(0.5)
    assert found.graph_launched == 0
    assert not found.distortions


@every_reader
@pytest.mark.parametrize("together", [False, True])
def test_a_custom_all_reduce_that_nothing_hides_is_exposed(tmp_path: Path, reader: str, together: bool) -> None:
    """40 of 100 us of the step, and all of it transport: it never varies."""
    (found,) = planted.figures(reader, tmp_path, exposed(together=together))
    shares = found.typical("decode")
    assert shares.busy == pytest.approx(1)
    assert shares.exposed == shares.communication == pytest.approx(0.4)
    assert shares.transport == pytest.approx(0.4)
    assert shares.waiting == shares.hidden == shares.host_bound == pytest.approx(0)
    assert found.classes["communication"] == pytest.approx(0.4)


@every_reader
def test_replayed_graphs_are_neither(tmp_path: Path, reader: str) -> None:
    """100 kernels of 9 us, 1 us apart: 90 % busy, and the pauses are the device's own."""
    (found,) = planted.figures(reader, tmp_path, graphs())
    assert found.steps_by == "graph replays"
    assert found.graph_launched == 1
    shares = found.typical()
    assert shares.busy == pytest.approx(0.9)
    assert shares.back_to_back == pytest.approx(0.1)
    assert shares.host_bound == shares.launch_in_flight == shares.exposed == 0
    assert found.classes["attention"] == pytest.approx(0.25)


def test_pieces_of_graphs_around_attention_are_no_steps(tmp_path: Path) -> None:
    schedule = Schedule()
    for piece in range(12):
        begin = piece * 100 * US
        schedule.launch(begin - 90 * US, [(GEMM, begin, begin + 50 * US)], api="cudaGraphLaunch")
        schedule.launch(begin - 80 * US, [(ATTENTION, begin + 50 * US, begin + 100 * US)])
    (found,) = figures(tmp_path, schedule)
    assert found.steps_by is None
    assert found.graph_launched == pytest.approx(0.5)
    assert any("steps could not be told apart" in said for said in found.distortions)


@every_reader
@pytest.mark.parametrize("together", [False, True])
def test_communication_beside_computation_is_hidden(tmp_path: Path, reader: str, together: bool) -> None:
    """GEMMs fill the step; an all-reduce of 400 us of 1000 runs beside them."""
    (found,) = planted.figures(reader, tmp_path, hidden(together=together))
    shares = found.typical("decode")
    assert shares.busy == pytest.approx(1)
    assert shares.exposed == shares.transport == shares.waiting == 0
    assert shares.hidden == shares.communication == pytest.approx(0.4)


@every_reader
@pytest.mark.parametrize("apart", [777, 0])
@pytest.mark.parametrize(("late", "cause"), [((40, 0), "host gaps"), ((0, 40), "imbalance")])
def test_a_straggler_is_told_from_a_slow_network(
    tmp_path: Path, reader: str, late: tuple[int, int], cause: str, apart: int
) -> None:
    """Rank 0 waits 40 of every 200 us (20 %) for rank 1; the transfer takes 20 us (10 %) on both."""
    fast, slow = planted.figures(reader, tmp_path, *two_ranks(*late, apart))
    shares = fast.typical("decode")
    assert shares.transport == pytest.approx(0.1)
    assert shares.waiting == pytest.approx(0.2)
    assert fast.waiting_cause == cause
    assert slow.typical("decode").transport == pytest.approx(0.1)
    assert slow.typical("decode").waiting == pytest.approx(0)
    assert slow.waiting_cause is None
    assert (fast.late, slow.late) == (0, 1)  # all of the waiting is for rank 1
    assert fast.ranks == slow.ranks == 2
    assert (fast.rank, slow.rank) == (0, 1)


@every_reader
@pytest.mark.parametrize("apart", [777, 0])
def test_a_slow_network_makes_nobody_wait(tmp_path: Path, reader: str, apart: int) -> None:
    fast, slow = planted.figures(reader, tmp_path, *two_ranks(0, 0, apart))
    assert fast.ranks == slow.ranks == 2
    for found in (fast, slow):
        shares = found.typical("decode")
        assert shares.transport == pytest.approx(0.1)
        assert shares.waiting == pytest.approx(0)
        assert found.waiting_cause is None


def test_one_rank_alone_tells_waiting_by_its_quickest_collectives(tmp_path: Path) -> None:
    """Of the same all-reduces, every tenth takes 20 us and the others 60: 36 us a collective are waiting."""
    schedule = Schedule(world_size=2)
    for number in range(400):
        at = number * 100 * US
        lasts = (20 if number % 5 == 0 else 60) * US
        reduce = (CUSTOM_ALL_REDUCE, at + 40 * US, at + 40 * US + lasts)
        schedule.launch(at - 90 * US, [(GEMM, at, at + 40 * US), reduce])
    (found,) = figures(tmp_path, schedule)
    # 320 of 400 wait 40 of 100 us each: 32 %. Transport is 20 %.
    assert found.whole.transport == pytest.approx(0.2, abs=1e-3)
    assert found.whole.waiting == pytest.approx(0.32, abs=1e-3)
    assert found.waiting_cause is None  # another rank's fault: which, one rank cannot tell


@every_reader
def test_a_stage_that_waits_for_another_is_a_pipeline_bubble(tmp_path: Path, reader: str) -> None:
    """Stage 1 receives for 10 us what it waited 90 us for, of 200."""
    first, second = planted.figures(reader, tmp_path, *two_stages())
    assert second.waiting_cause == "pipeline bubble"
    assert second.typical("decode").waiting == pytest.approx(90 / 200)
    assert second.typical("decode").transport == pytest.approx(10 / 200)
    assert first.late == 1
    assert first.waiting_cause is None


def test_ranks_whose_recordings_begin_apart_are_matched_by_their_clocks(tmp_path: Path) -> None:
    fast, slow = two_ranks(40, 0)
    cut = 7 * 2  # the second rank lacks its first 7 collectives
    slow = replace(slow, work=slow.work[cut:], calls=slow.calls[cut:])
    first, second = figures(tmp_path, fast, slow)
    assert first.late == 0
    assert second.late == 1
    assert first.typical("decode").waiting == pytest.approx(0.2)


def test_ranks_that_never_met_are_not_compared(tmp_path: Path) -> None:
    """Collectives in the same order that end at other times are not the same ones."""
    fast, slow = two_ranks(40, 0)
    later = [replace(one, start=one.start * 3 // 2, end=one.end * 3 // 2) for one in slow.work]
    drifting = replace(slow, work=later, calls=[], steps=[])
    first, second = figures(tmp_path, fast, drifting)
    assert first.ranks == second.ranks == 1
    assert first.late is second.late is None


@pytest.mark.parametrize("numbered", [False, True])
def test_clocks_that_are_apart_only_hide_which_collective_is_which_where_none_is_numbered(
    tmp_path: Path, numbered: bool
) -> None:
    """The second machine's clock is 3.1 ms ahead: as long as 15 collectives and a half."""
    ranks = []
    for rank, schedule in enumerate(two_ranks(40, 0)):
        ahead = replace(schedule, zero_unix_ns=(schedule.zero_unix_ns or 0) + rank * 3_100 * US)
        if numbered:
            reduced = [one for one in ahead.work if one.name == NCCL_ALL_REDUCE]
            places = {id(one): place for place, one in enumerate(reduced)}
            ahead.work = [replace(one, sequence=places.get(id(one))) for one in ahead.work]
        ranks.append(ahead)
    first, second = figures(tmp_path, *ranks)
    assert (first.ranks, second.ranks) == ((2, 2) if numbered else (1, 1))
    assert second.late == (1 if numbered else None)


def test_numbered_collectives_are_matched_by_their_numbers(tmp_path: Path) -> None:
    """The second rank's recording lacks one; without a clock, only the numbers tell which."""
    ranks = []
    for rank in range(2):
        schedule = Schedule(rank=rank, world_size=2, zero_unix_ns=None)
        for number in range(30):
            at, lasts = number * 1000 * US, 100 * US if rank else (100 + number) * US
            schedule.launch(at - 100 * US, [(NCCL_ALL_REDUCE, at, at + lasts)])
            schedule.work[-1] = replace(schedule.work[-1], sequence=number + 5)
        ranks.append(schedule)
    del ranks[1].work[3]
    first, second = figures(tmp_path, *ranks)
    assert first.ranks == second.ranks == 2
    # Waiting: 0 + 1 + ... + 29 us of 29129. Number 3, which rank 1 lacks, took 103 us; the tenth percentile of all is
    # 102.9 us: 0.1 us of it are waiting, not 3.
    assert first.whole.waiting == pytest.approx((435 - 3 + 0.1) / 29129)


def test_an_opaque_replay_hides_its_communication(tmp_path: Path) -> None:
    """Nothing here writes them for PyTorch: a timeline of another profiler, with whole replays as single work."""
    from dataclasses import replace as changed

    import numpy as np

    from pytest_llmroof.profiles.timeline import GRAPH

    schedule = submitted(lambda at: [(GEMM, at, at + 990 * US)], 1000 * US, None)
    (timeline,) = read_chrome(write_kineto(replace(schedule, world_size=2), tmp_path / "t.json"))
    opaque = changed(timeline, work=changed(timeline.work, kind=np.full(len(timeline.work), GRAPH, dtype=np.uint8)))
    found = analyse(opaque)
    assert found.whole.busy == pytest.approx((STEPS * 990) / (STEPS * 1000 - 10))
    assert found.whole.communication is None
    assert found.whole.exposed is None
    assert found.graph_launched == 1
    assert found.classes == {"graph replays": pytest.approx(1)}
    assert any("--cuda-graph-trace=node" in said for said in found.distortions)
    alone = analyse(changed(opaque, world_size=1))
    assert alone.whole.exposed == 0


def test_what_the_profiler_costs_is_said(tmp_path: Path) -> None:
    schedule = submitted(lambda at: [(GEMM, at, at + 990 * US)], 1000 * US, None)
    (found,) = figures(tmp_path, replace(schedule, options=("with_stack", "record_shapes")))
    assert any(said.startswith("recorded with with_stack and record_shapes") for said in found.distortions)


def test_kernels_that_nobody_knows_are_said(tmp_path: Path) -> None:
    mine = submitted(lambda at: [(GEMM, at, at + 600 * US), ("my_kernel", at + 600 * US, at + 990 * US)], 1000 * US)
    (found,) = figures(tmp_path, mine)
    assert found.unknown_kernels == pytest.approx(390 / 990)
    assert any(said.startswith("39 % of the work is of kernels whose names") for said in found.distortions)


def test_the_capture_of_graphs_is_refused(tmp_path: Path) -> None:
    schedule = Schedule()
    schedule.launch(0, [(GEMM, 20 * US, 40 * US)])
    for number in range(100):
        schedule.launch(number * 10 * US, [])
    schedule.launch(1001 * US, [], api="cudaStreamBeginCapture")
    (timeline,) = read_chrome(write_kineto(schedule, tmp_path / "capture.json"))
    with pytest.raises(SourceError, match=r"capture\.json was recorded while graphs were captured \(1 kernels ran"):
        analyse(timeline)


def test_a_trimmed_recording_is_judged_by_its_step(tmp_path: Path) -> None:
    """One kernel, 400 ms of nothing although work had been submitted, then a step of 1 ms that is always busy."""
    schedule = Schedule()
    schedule.step(-10 * US, 400_500 * US)
    schedule.launch(-8 * US, [(GEMM, 0, 5 * US)])
    schedule.launch(20 * US, [(GEMM, 400_000 * US + k * 10 * US, 400_010 * US + k * 10 * US) for k in range(100)])
    (found,) = figures(tmp_path, schedule)
    assert found.whole.busy == pytest.approx(1005 / 401_000)
    assert any("the recording was trimmed" in said for said in found.distortions)
    assert found.typical().busy == pytest.approx(1)
    assert found.typical().seconds == pytest.approx(1e-3)


def test_idle_time_without_launches_has_no_cause(tmp_path: Path) -> None:
    schedule = Schedule()
    for number in range(10):
        at = number * 1000 * US
        schedule.launch(0, [(GEMM, at, at + 500 * US)])
    schedule = replace(schedule, calls=[])
    (found,) = figures(tmp_path, schedule)
    assert found.whole.unknown == pytest.approx(found.whole.idle)
    assert not found.whole.causes_known
    assert any("its cause is not known" in said for said in found.distortions)


def test_steps_of_a_recording_of_the_device_alone_come_from_its_own_annotations(tmp_path: Path) -> None:
    """Annotated on both of its streams: 600 us of every 1000 are busy, and why the rest is not, nobody knows."""
    schedule = Schedule()
    for number in range(6):
        at = number * 1000 * US
        schedule.work += [Work(GEMM, at, at + 400 * US), Work(GEMM, at + 300 * US, at + 600 * US, stream=20)]
        for stream, start, end in ((7, at, at + 400 * US), (20, at + 300 * US, at + 600 * US)):
            name = "execute_context_0(0)_generation_8(8)"
            schedule.work.append(Work(name, start, end, stream=stream, kind="gpu_user_annotation"))
    (found,) = figures(tmp_path, schedule)
    decode = found.steps["decode"]
    assert (decode.count, decode.decode_tokens) == (4, 8)
    assert decode.median_seconds == pytest.approx(1e-3)
    assert decode.shares.busy == pytest.approx(0.6)
    assert decode.shares.idle_within == pytest.approx(0)
    assert decode.shares.unknown == decode.shares.idle_between == pytest.approx(0.4)
    assert not decode.shares.causes_known


def test_work_that_takes_no_time_is_no_activity(tmp_path: Path) -> None:
    schedule = Schedule()
    schedule.launch(0, [(GEMM, 10 * US, 10 * US)])
    with pytest.raises(SourceError, match="holds no GPU activity that took any time"):
        figures(tmp_path, schedule)
    schedule.launch(0, [(GEMM, 20 * US, 30 * US), (GEMM, 35 * US, 35 * US), (GEMM, 40 * US, 50 * US)])
    (found,) = figures(tmp_path, schedule)
    assert found.whole.busy == pytest.approx(20 / 30)


def test_less_than_a_step_is_not_judged(tmp_path: Path) -> None:
    schedule = Schedule()
    schedule.launch(-10 * US, [(GEMM, 0, 100 * US)])
    (found,) = figures(tmp_path, schedule)
    assert found.abstain == "rank0.pt.trace.json holds 100 µs of GPU activity only, less than a step takes"


def test_prefill_and_decode_are_told_apart(tmp_path: Path) -> None:
    """Every third step computes a prompt of 900 tokens for 3 ms; decode steps take 1 ms, half of it idle."""
    schedule, at = Schedule(), 0
    for number in range(30):
        prompt = number % 3 == 2
        name = "execute_context_1(900)_generation_0(0)" if prompt else "execute_context_0(0)_generation_16(16)"
        schedule.step(at, at + 100 * US, name)
        schedule.launch(at + 10 * US, [(GEMM, at + 20 * US, at + (3000 if prompt else 520) * US)])
        at += (3000 if prompt else 1000) * US
    (found,) = figures(tmp_path, schedule)
    prefill, decode = found.steps["prefill"], found.steps["decode"]
    assert (prefill.prefill_tokens, prefill.prefill_requests, decode.decode_tokens) == (900, 1, 16)
    assert decode.median_seconds == pytest.approx(1e-3)
    assert decode.shares.busy == pytest.approx(0.5)
    assert decode.shares.idle_between == pytest.approx(0.5)
    assert prefill.median_seconds == pytest.approx(3e-3)
    assert prefill.shares.busy == pytest.approx(2980 / 3000)
    assert found.steps[None].count == prefill.count + decode.count == 28
