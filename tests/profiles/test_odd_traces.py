"""Traces of shapes that are seldom, and that would give a wrong figure or an exception if they were read as usual."""

from __future__ import annotations

import gzip
import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from pytest_llmroof.errors import SourceError
from pytest_llmroof.profiles.analyse import analyse, analyse_ranks
from pytest_llmroof.profiles.annotations import step_of
from pytest_llmroof.profiles.chrome import read_chrome
from pytest_llmroof.profiles.figures import TimelineFigures
from pytest_llmroof.profiles.timeline import Timeline


def kernel(start: float, duration: float, number: int | None, **more: Any) -> dict[str, Any]:
    args = {"device": more.pop("device", 0), "stream": 7, "correlation": number, **more.pop("args", {})}
    event = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": start, "dur": duration}
    return {**event, "args": args, **more}


def call(start: float, number: int, name: str = "cudaLaunchKernel", **more: Any) -> dict[str, Any]:
    event = {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": 9, "tid": 9, "ts": start, "dur": 5}
    return {**event, "args": {"correlation": number}, **more}


def annotation(start: float, duration: float, name: str) -> dict[str, Any]:
    return {"ph": "X", "cat": "user_annotation", "name": name, "pid": 9, "tid": 9, "ts": start, "dur": duration}


def launched(count: int = 100, **more: Any) -> list[dict[str, Any]]:
    """Every 100 us a launch of 5 us, and 10 us after its start a kernel of 80 us: 20 us of host-bound idle time."""
    pairs = ((call(100 * i, i + 1), kernel(100 * i + 10, 80, i + 1, **more)) for i in range(count))
    return [event for pair in pairs for event in pair]


def written(tmp_path: Path, content: object, name: str = "trace.json") -> Path:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def figures(tmp_path: Path, events: list[dict[str, Any]], **header: Any) -> tuple[TimelineFigures, ...]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return tuple(map(analyse, read_chrome(written(tmp_path, {**header, "traceEvents": events}))))


def test_steps_that_start_together_or_take_no_time_divide_nothing_by_nothing(tmp_path: Path) -> None:
    """Six replays: two start at one moment on two streams, one holds kernels without a duration only."""
    runs = [(0, 50), (100, 50), (100, 70), (300, 0), (400, 50), (600, 50)]
    events = [call(start - 50, i + 1, "cudaGraphLaunch") for i, (start, _) in enumerate(runs)]
    events += [kernel(start, duration, i + 1) for i, (start, duration) in enumerate(runs)]
    (found,) = figures(tmp_path, events)
    # From 100 to 400 us, and from there to 600; the first and the last one are left out.
    assert found.steps[None].count == 2
    assert found.steps[None].median_seconds == pytest.approx(250e-6)
    assert found.steps[None].shares.busy == pytest.approx((70 + 50) / 500)


@pytest.mark.parametrize("digits", [13, 30, 400, 5000])
@pytest.mark.parametrize(
    "name", ["execute_context_1({})_generation_0(0)", "execute_context_{}(9)_generation_0(0)", "step[DECODE bs={}]"]
)
def test_counts_that_are_none_are_not_read(tmp_path: Path, name: str, digits: int) -> None:
    steps = [annotation(1000 * i, 990, name.format("9" * digits)) for i in range(10)]
    (found,) = figures(tmp_path, [*launched(), *steps, kernel(10_100, 5, None, name="ncclDevKernel_AllReduce")])
    assert all(one.prefill_tokens in (None, 0) for one in found.steps.values())


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("[Executor] _forward_step 12: 0 ctx reqs, 32 gen reqs", ("decode", 0, 0, 32, None)),
        ("[Executor] _forward_step: 2 ctx reqs, 0 gen reqs", ("prefill", 2, None, 0, None)),
        ("[Executor] _forward_step 7: 1 ctx reqs, 900 ctx tokens, 31 gen reqs", ("mixed", 1, 900, 31, None)),
    ],
)
def test_steps_of_tensorrt_llm_are_told(name: str, counts: tuple[object, ...]) -> None:
    told = step_of(name)
    assert told is not None
    found = (told.phase, told.prefill_requests, told.prefill_tokens, told.decode_requests, told.decode_tokens)
    assert found == counts


def test_steps_of_an_older_vllm_are_told_without_a_phase(tmp_path: Path) -> None:
    steps = [annotation(1000 * i, 990, f"execute_new_{i % 2}_cached_32") for i in range(10)]
    (found,) = figures(tmp_path, [*launched(), *steps])
    assert found.steps_by == "step annotations"
    assert {phase: one.count for phase, one in found.steps.items()} == {None: 8}
    assert found.steps[None].shares.host_bound == pytest.approx(0.2)
    assert step_of("execute_new_0_cached_0") is None


def test_the_number_0_joins_nothing(tmp_path: Path) -> None:
    """CUPTI's number of what is not known."""
    events = [{**event, "args": {**event["args"], "correlation": 0}} for event in launched()]
    (found,) = figures(tmp_path, events)
    assert found.whole.unknown == pytest.approx(found.whole.idle)
    assert not found.whole.causes_known


@pytest.mark.parametrize("start", [10_100.0, 1.7e15])
def test_a_duration_beyond_any_is_no_time(tmp_path: Path, start: float) -> None:
    with pytest.raises(SourceError, match="has no usable time"):
        figures(tmp_path, [*launched(), kernel(start, 8.9e15, None)])


def test_launches_on_another_device_are_not_this_ones(tmp_path: Path) -> None:
    """One process drives eight devices, each with an eighth of the kernels; some graph was captured."""
    events = launched(400)
    for i, event in enumerate(events):
        event["args"]["device"] = i // 2 % 8
    found = figures(tmp_path, [*events, call(-50, 0, "cudaStreamBeginCapture")])
    assert len(found) == 8
    for one in found:
        # 50 kernels of 80 us, 800 us from one to the next: all that is idle is the host's.
        assert one.whole.busy == pytest.approx(50 * 80 / (49 * 800 + 80))
        assert one.whole.host_bound == pytest.approx(one.whole.idle)
        assert not any("lost" in said for said in one.distortions)


@pytest.mark.parametrize("devices", [(0, 1), (0, 0)])
@pytest.mark.parametrize("threads", [(120, 121), (1, 1)])
def test_traces_that_were_merged_are_refused(
    tmp_path: Path, devices: tuple[int, int], threads: tuple[int, int]
) -> None:
    events: list[dict[str, Any]] = []
    for rank, (device, thread) in enumerate(zip(devices, threads, strict=True)):
        for event in launched():
            event["pid"] = f"[TP{rank:02}] {event['pid']}"
            event["ts"] += 50 * rank
            event["args"]["device"] = device
            event["tid"] = thread if event["cat"] == "cuda_runtime" else 7
            events.append(event)
    with pytest.raises(SourceError, match="several traces merged into one") as raised:
        figures(tmp_path, events)
    assert "each a file of its own" in str(raised.value.remedy)


def test_the_drivers_call_within_the_runtimes_is_one_launch(tmp_path: Path) -> None:
    events = launched()
    driver = [call(100 * i + 1, i + 1, "cuLaunchKernel", dur=3, cat="cuda_driver") for i in range(100)]
    (found,) = figures(tmp_path, [*events, *driver])
    assert found.whole.host_bound == pytest.approx(found.whole.idle)


@pytest.mark.parametrize("kind", ["objects", "lists", "two lists", "members"])
def test_several_traces_in_one_file_are_refused(tmp_path: Path, kind: str) -> None:
    events = launched()
    one = json.dumps({"traceEvents": events}).encode()
    content = {
        "objects": one + one,
        "lists": json.dumps(events).encode() * 2,
        "two lists": one[:-1] + b', "traceEvents": ' + json.dumps(events).encode() + b"}",
        "members": gzip.compress(one) * 2,
    }[kind]
    with pytest.raises(SourceError, match="several traces, one after the other"):
        read_chrome(written(tmp_path, content))


def test_what_follows_a_bare_list_is_said(tmp_path: Path) -> None:
    (timeline,) = read_chrome(written(tmp_path, json.dumps(launched()).encode() + b" rubbish"))
    assert timeline.notes == ("trace.json: what follows the list of events was left out",)


def test_arguments_nested_beyond_reason_are_no_json(tmp_path: Path) -> None:
    deep = b'{"ph": "X", "cat": "%s", "args": {"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}"
    text = json.dumps(launched()).encode()[:-1]
    (timeline,) = read_chrome(written(tmp_path, text + b"," + deep % b"cpu_op" + b"]"))
    assert len(timeline.work) == 100
    assert "1 host events are no JSON" in timeline.notes[0]
    with pytest.raises(SourceError, match="is no JSON"):
        read_chrome(written(tmp_path, text + b"," + deep % b"kernel" + b"]"))


def test_utf_16_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="UTF-16"):
        read_chrome(written(tmp_path, json.dumps(launched()).encode("utf-16")))


def test_times_since_1970_are_that_whatever_the_header_calls_the_zero(tmp_path: Path) -> None:
    events = [{**event, "ts": event["ts"] + 1.7e15} for event in launched()]
    (timeline,) = read_chrome(
        written(tmp_path, {"baseTimeNanoseconds": 1_700_000_000_000_000_000, "traceEvents": events})
    )
    assert timeline.zero_unix_ns == 0


def test_traces_within_other_json_are_refused_at_once(tmp_path: Path) -> None:
    """Whether each list is the outermost one would take as long as what stands before it: hours, for a long file."""
    traces = [{"traceEvents": launched(1)} for _ in range(20_000)]
    with pytest.raises(SourceError, match="holds traces within something else"):
        read_chrome(written(tmp_path, {"traces": traces}))
    (timeline,) = read_chrome(written(tmp_path, {"traces": traces[:3], "traceEvents": launched(5)}))
    assert len(timeline.work) == 5


def test_a_name_of_megabytes_is_classified_by_its_beginning(tmp_path: Path) -> None:
    events = [*launched(), kernel(10_100, 80, None, name="x" * 2_000_000)]
    (found,) = figures(tmp_path, events)
    assert found.unknown_kernels == pytest.approx(1 / 101)
    (timeline,) = read_chrome(written(tmp_path, {"traceEvents": events}))
    assert max(map(len, timeline.names)) == 8192


@pytest.mark.parametrize("apart_us", [0, 250, 1_000_000])
def test_numbered_collectives_are_matched_however_far_clocks_are_apart(tmp_path: Path, apart_us: int) -> None:
    """Five all-reduces, each of its own transfer time; rank 1 comes 30 us late to each. Its clock is ahead."""
    timelines: list[Timeline] = []
    for rank, waits in enumerate((30, 0)):
        events = []
        for number, transfer in enumerate((10, 20, 40, 15, 5)):
            # Both end at 200 * number + 130; before its all-reduce each rank computes from 200 * number on.
            end = 200 * number + 130 + apart_us * rank
            begin = end - transfer - waits
            events.append(kernel(end - 130, 130 - transfer - waits, None))
            told = {"Seq": number, "Process Group Name": "tp", "In msg nelems": 64, "dtype": "Float"}
            events.append(kernel(begin, transfer + waits, None, name="ncclDevKernel_AllReduce", args=told))
        header = {"distributedInfo": {"rank": rank, "world_size": 2}, "baseTimeNanoseconds": 1_767_000_000_000_000_000}
        timelines += read_chrome(written(tmp_path, {**header, "traceEvents": events}, f"rank{rank}.json"))
    first, second = analyse_ranks(timelines)
    # From 0 to 930 us; transfers take 10 + 20 + 40 + 15 + 5 = 90 us, rank 0 waits 5 * 30 us.
    assert (first.ranks, second.ranks) == (2, 2)
    assert first.whole.transport == pytest.approx(90 / 930)
    assert first.whole.waiting == pytest.approx(150 / 930)
    assert second.whole.transport == pytest.approx(90 / 930)
    assert second.whole.waiting == pytest.approx(0, abs=1e-9)


def test_a_quote_that_is_not_escaped_is_told_from_a_trace_that_was_cut(tmp_path: Path) -> None:
    """A bare quote in a kernel's name opens a text that nothing closes, in a trace that was written to its end."""
    head, event = b'{"schemaVersion": 1, "traceEvents": [', json.dumps(kernel(0, 80, 1)).encode()
    broken = event.replace(b'"gemm"', b'"ge"mm"')
    whole = head + event + b", " + broken + b', {"ph": "M"}], "traceName": "a.json"}'
    at = len(head + event) + 2
    with pytest.raises(SourceError, match=rf"event at byte {at}, after 1 complete ones, does not end"):
        read_chrome(written(tmp_path, whole))
    with pytest.raises(SourceError, match=r"truncated at byte \d+, after 1 complete events"):
        read_chrome(written(tmp_path, whole[: len(head + event) + 40]))
