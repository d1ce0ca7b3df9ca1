"""Profiles that lack something: what they cannot tell has no data, with the reason, and what they can is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kernel_tables import wide
from nsys_files import PREFIX, export_of, write_nsys
from profiled_steps import decode, replayed
from timelines import Schedule, write_kineto

Gate = Callable[..., Any]
HEAD = "gpu: h100\nmodel: llama-3.1-70b\ndeployment: {tensor_parallel: 4}\n"
#: Bounds that any figure keeps: what does not pass was not measured.
SHARES = (
    "timeline.busy >= 0%", "timeline.idle <= 100%", "timeline.communication <= 100%",
    "timeline.communication_exposed <= 100%", "timeline.host_bound_idle <= 100%", "timeline.graph_launched >= 0%",
    "timeline.gap.p99 <= 10s",
)  # fmt: skip
COMMUNICATION = {"timeline.communication", "timeline.communication_exposed"}
WRITERS: Mapping[str, Callable[[Schedule, Path], object]] = {
    "decode.json": write_kineto,
    "decode.sqlite": lambda schedule, path: write_nsys(path, schedule),
}
either = pytest.mark.parametrize("name", WRITERS)


def judged(gate: Gate, name: str, gates: tuple[str, ...] = SHARES, head: str = HEAD) -> tuple[Any, set[str]]:
    """A run with one profile and nothing else, and the metrics without data; all others pass."""
    listed = "".join(f"\n      - {one!r}" for one in gates)
    run = gate(f"{head}windows:\n  decode:\n    phase: decode\n    telemetry: [{name}]\n    gates:{listed}\n")
    verdicts = dict(zip((one.split()[0] for one in gates), run.verdicts, strict=True))
    assert set(verdicts.values()) <= {"pass", "no data"}
    missing = {metric for metric, verdict in verdicts.items() if verdict == "no data"}
    assert run.rc == (1 if missing else 0)
    return run, missing


def steps() -> Schedule:
    """Steps of which a fifth is exposed communication, and three tenths are idle for the host."""
    return decode(communication=0.2, idle=0.3)


EVERYTHING = {one.split()[0] for one in SHARES}


@either
def test_without_calls_only_the_cause_of_idle_time_is_unknown(pytester: pytest.Pytester, gate: Gate, name: str) -> None:
    WRITERS[name](replace(steps(), calls=[]), pytester.path / name)
    run, missing = judged(gate, name)
    assert missing == {"timeline.host_bound_idle"}
    assert f"{name}: no launches were recorded for most of the idle time: its cause is not known" in run.one_line
    assert run.value("timeline.idle") == pytest.approx(0.3, abs=0.01)


@either
def test_without_annotations_all_of_the_recording_is_measured(pytester: pytest.Pytester, gate: Gate, name: str) -> None:
    WRITERS[name](replace(steps(), steps=[]), pytester.path / name)
    run, missing = judged(gate, name)
    assert not missing
    idle = run.window["measurements"]["timeline.idle"]
    assert idle["value"] == pytest.approx(0.3, abs=0.01)
    assert "share of the time of all steps" in idle["method"]
    assert "doubtful: steps could not be told apart" in idle["method"]


@either
def test_without_any_work_nothing_is_measured(pytester: pytest.Pytester, gate: Gate, name: str) -> None:
    WRITERS[name](replace(steps(), work=[]), pytester.path / name)
    run, missing = judged(gate, name)
    assert missing == EVERYTHING
    assert f"{name} holds no GPU activity" in run.one_line


@either
@pytest.mark.parametrize("calls", [True, False])
def test_without_kernels_copies_are_no_step_without_communication(
    pytester: pytest.Pytester, gate: Gate, name: str, calls: bool
) -> None:
    """An export without the table KERNEL, or a trace that lost its kernels: 64 of 2560 launches were copies."""
    schedule = steps()
    copies = [replace(one, kind="gpu_memcpy", name="Memcpy") for one in schedule.work[::40]]
    WRITERS[name](replace(schedule, work=copies, calls=schedule.calls if calls else []), pytester.path / name)
    run, missing = judged(gate, name)
    assert missing == EVERYTHING
    lost = f"{name} shows 0 of 2560 kernels that were launched: the profiler lost the others"
    none = f"{name} holds no kernel, only copies: what the GPU computed was not recorded"
    assert (lost if calls else none) in run.one_line


@either
def test_most_kernels_lost_is_not_idle_time(pytester: pytest.Pytester, gate: Gate, name: str) -> None:
    """512 of 2560 are a fifth, from which the rest is believed to be a cut: 510 are fewer."""
    schedule = steps()
    WRITERS[name](replace(schedule, work=schedule.work[:510]), pytester.path / name)
    run, missing = judged(gate, name)
    assert missing == EVERYTHING
    assert f"{name} shows 510 of 2560 kernels that were launched" in run.one_line


def test_an_export_without_times_of_its_kernels_is_refused(pytester: pytest.Pytester, gate: Gate) -> None:
    export = export_of([steps()])
    export.columns[f"{PREFIX}KERNEL"] = tuple(
        column for column in export.columns[f"{PREFIX}KERNEL"] if not column.startswith("end ")
    )
    export.write(pytester.path / "decode.sqlite")
    run, missing = judged(gate, "decode.sqlite")
    assert missing == EVERYTHING
    assert "its table CUPTI_ACTIVITY_KIND_KERNEL has no columns start and end" in run.one_line


def test_kernels_without_durations_have_no_rates(pytester: pytest.Pytester, gate: Gate) -> None:
    values = {"dram__bytes_read.sum": ("byte", "1000000"), "dram__bytes_write.sum": ("byte", "1000")}
    wide(pytester.path / "kernels.csv", [("nvjet_gemm", values)], cc="9.0")
    gates = ("kernels(gemm).mbu >= 0%", "kernels(gemm).mfu >= 0%", "kernels(gemm).time_share >= 0%")
    run, missing = judged(gate, "kernels.csv", gates)
    assert "kernels.csv holds no time (gpu__time_duration) of 1 of 1 launches" in run.one_line
    assert missing == {"kernels(gemm).mbu", "kernels(gemm).mfu", "kernels(gemm).time_share"}


@pytest.mark.parametrize(("degree", "told"), [("{tensor_parallel: 1}", True), ("{}", False)])
def test_replays_recorded_whole_hide_no_communication_of_a_server_that_was_said_to_be_one_gpu(
    pytester: pytest.Pytester, gate: Gate, degree: str, told: bool
) -> None:
    write_nsys(pytester.path / "decode.sqlite", replayed(), opaque=True)
    run, missing = judged(gate, "decode.sqlite", head=f"gpu: h100\nmodel: llama-3.1-8b\ndeployment: {degree}\n")
    assert missing == (set() if told else COMMUNICATION)
    if told:
        assert run.value("timeline.communication_exposed") == 0
    else:
        assert "graph replays were recorded whole" in run.one_line
        assert "write `tensor_parallel: 1` where one GPU serves the model alone, else add a profile" in run.one_line
