"""Exports of Nsight Systems as people have them: real ones, all schemas, and damaged ones."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nsys_files import KERNEL_3_20, KERNEL_3_25, MINIMAL, OLD_KERNEL, PREFIX, Export, export_of, process
from timelines import GEMM, MICROSECOND, NCCL_ALL_REDUCE, Schedule, Work

from pytest_llmroof.errors import SourceError
from pytest_llmroof.profiles import recognise
from pytest_llmroof.profiles.analyse import analyse, analyse_ranks
from pytest_llmroof.profiles.intervals import union
from pytest_llmroof.profiles.nsys import read_nsys
from pytest_llmroof.profiles.timeline import GRAPH, KERNEL, MEMCPY, UNKNOWN, Timeline

US = MICROSECOND
POINT = 0.0005  # 0.1 point, rounded
SECRET = "sk-never-shown-0123456789"


@pytest.fixture
def schedule() -> Schedule:
    """20 kernels of 30 us in 40, each launched in the pause before it: 600 us busy."""
    made = Schedule()
    for number in range(20):
        at = number * 40 * US + 500 * US
        made.launch(at - 8 * US, [(GEMM, at, at + 30 * US)])
    return made


def only(path: Path) -> Timeline:
    (timeline,) = read_nsys(path)
    return timeline


def busy_us(timeline: Timeline) -> float:
    return union(timeline.work.start, timeline.work.end).total / 1000


def assert_whole(timeline: Timeline) -> None:
    """The figures of the schedule."""
    assert busy_us(timeline) == 600
    assert (timeline.work.launch >= 0).all()
    assert analyse(timeline).whole.host_bound == pytest.approx(190 / 790)


@pytest.mark.parametrize(
    ("name", "busy", "exposed", "host_bound"),
    [
        ("nsys-ai_mfu_2gpu_before.sqlite", (0.913, 0.895), (0.057, 0.028), (0.072, 0.092)),
        ("nsightful_power_iteration_baseline.sqlite", (0.632,), (0,), (0.366,)),
    ],
)
def test_reference_figures(
    shared_data: Path, name: str, busy: tuple[float], exposed: tuple[float], host_bound: tuple[float]
) -> None:
    found = analyse_ranks(read_nsys(shared_data / "profiles" / "nsys" / name))
    assert [one.whole.busy for one in found] == pytest.approx(busy, abs=POINT)
    assert [one.whole.exposed for one in found] == pytest.approx(exposed, abs=POINT)
    assert [one.whole.host_bound for one in found] == pytest.approx(host_bound, abs=POINT)


def test_two_processes_of_one_export_are_two_ranks_that_explain_each_other(shared_data: Path) -> None:
    first, second = read_nsys(shared_data / "profiles" / "nsys" / "nsys-ai_mfu_2gpu_before.sqlite")
    assert (first.device, first.process, second.device, second.process) == (0, 144, 1, 145)
    assert first.zero_unix_ns == second.zero_unix_ns == 1779782330176752435
    # Each rank's launches are its own, although 78 of their numbers are the other's as well.
    for timeline in (first, second):
        known = timeline.work.launch >= 0
        assert known.mean() > 0.99
        assert (timeline.launches.start[timeline.work.launch[known]] <= timeline.work.start[known]).all()
    found = analyse_ranks((first, second))
    assert [one.ranks for one in found] == [2, 2]
    assert found[0].unknown_kernels < 0.02


def test_real_exports_tell_their_devices(shared_data: Path) -> None:
    folder = shared_data / "profiles" / "nsys"
    t4 = only(folder / "nsightful_power_iteration_baseline.sqlite")
    assert (t4.device_name, t4.process, len(t4.syncs)) == ("Tesla T4", 9946, 178)  # 89 copies to pageable memory wait
    assert any("CUDA events may be missing" in said for said in t4.distortions)
    mock = only(folder / "nsys-ai_mock.sqlite")
    assert mock.device_name == "NVIDIA GeForce RTX 3080"
    assert not mock.distortions  # its warning is about unified memory
    assert any("holds 1 warning" in said for said in mock.notes)
    minimal = only(folder / "nsys-ai_healthy_1pct.sqlite")
    assert minimal.device_name == "NVIDIA H100 80GB HBM3"
    assert analyse(minimal).whole.host_bound == pytest.approx(0.0099, abs=POINT)


def test_a_replay_that_is_opaque_is_busy(shared_data: Path) -> None:
    timeline = only(shared_data / "cases" / "68-nsys-cuda-graph-opaque" / "report.sqlite")
    found = analyse(timeline)
    assert busy_us(timeline) == 95_000
    assert found.whole.busy == pytest.approx(0.9543, abs=POINT)
    assert found.whole.communication is None
    assert any("--cuda-graph-trace=node" in said for said in found.distortions)


@pytest.mark.parametrize("kernel", [KERNEL_3_25, KERNEL_3_20, OLD_KERNEL, MINIMAL])
@pytest.mark.parametrize("suffix", ["", "_V3"])
@pytest.mark.parametrize("shuffled", [None, 3])
def test_schemas_and_orders_of_rows(
    tmp_path: Path, schedule: Schedule, kernel: tuple[str, ...], suffix: str, shuffled: int | None
) -> None:
    path = export_of([schedule], kernel=kernel, suffix=suffix).write(tmp_path / "report.sqlite", shuffled)
    assert recognise(path) == "nsys sqlite"
    timeline = only(path)
    assert_whole(timeline)
    assert timeline.device_name == "NVIDIA H100 80GB HBM3"
    assert {timeline.names[name] for name in timeline.work.name.tolist()} == {GEMM}
    assert {timeline.names[name] for name in timeline.launches.name.tolist()} == {"cudaLaunchKernel"}
    assert (timeline.work.size == 64).all()


def test_the_newest_of_old_tables_that_holds_rows_counts(tmp_path: Path, schedule: Schedule) -> None:
    export = export_of([schedule], suffix="_V3")
    export.columns[f"{PREFIX}KERNEL_V2"] = MINIMAL
    export.add(f"{PREFIX}KERNEL_V2", start=0, end=1, deviceId=0)
    assert_whole(only(export.write(tmp_path / "report.sqlite")))


@pytest.mark.parametrize(
    "missing",
    ["TARGET_INFO_GPU", "TARGET_INFO_CUDA_DEVICE", "TARGET_INFO_SESSION_START_TIME", "META_DATA_EXPORT", "NVTX_EVENTS"],
)
def test_tables_that_only_tell_more_may_be_missing(tmp_path: Path, schedule: Schedule, missing: str) -> None:
    export = export_of([schedule])
    export.rows.pop(missing, None)
    timeline = only(export.write(tmp_path / "report.sqlite"))
    assert_whole(timeline)
    if missing == "TARGET_INFO_GPU":
        assert timeline.device_name is None
    if missing == "TARGET_INFO_SESSION_START_TIME":
        assert timeline.zero_unix_ns is None


def test_without_calls_no_cause_is_known(tmp_path: Path, schedule: Schedule) -> None:
    export = export_of([schedule])
    del export.rows[f"{PREFIX}RUNTIME"]
    for sort, start in ((3, 0), (2, 100), (4, 200)):  # 2: a stream waits for an event, the host does not
        export.add(f"{PREFIX}SYNCHRONIZATION", start=start, end=start + 50, deviceId=0, syncType=sort)
    timeline = only(export.write(tmp_path / "report.sqlite"))
    found = analyse(timeline)
    assert busy_us(timeline) == 600
    assert found.whole.unknown == pytest.approx(found.whole.idle)
    assert any("its cause is not known" in said for said in found.distortions)
    assert timeline.syncs.start.tolist() == [0, 200]


def test_numbers_of_calls_collide_between_processes(tmp_path: Path) -> None:
    """The second process launches everything 100 us later by the same numbers, and is never the first one's cause."""
    early, late = Schedule(), Schedule()
    for number in range(20):
        at = number * 1000 * US
        early.launch(at, [(GEMM, at + 10 * US, at + 100 * US)])
        late.launch(at + 500 * US, [(GEMM, at + 510 * US, at + 600 * US)])
    export = export_of([early, late], colliding=True)
    first, second = read_nsys(export.write(tmp_path / "report.sqlite", shuffled=1))
    for timeline in (first, second):
        delay = timeline.work.start - timeline.launches.start[timeline.work.launch]
        assert set(delay.tolist()) == {10 * US}
        assert len(timeline.launches) == 20
    # Where kernels do not tell their process, colliding numbers tell nothing, and it is said.
    export.columns[f"{PREFIX}KERNEL"] = MINIMAL
    for timeline in read_nsys(export.write(tmp_path / "minimal.sqlite")):
        assert (timeline.work.launch == UNKNOWN).all()
        assert any("does not tell processes apart" in said for said in timeline.distortions)
    apart = export_of([early, late], kernel=MINIMAL)
    for timeline in read_nsys(apart.write(tmp_path / "apart.sqlite")):
        delay = timeline.work.start - timeline.launches.start[timeline.work.launch]
        assert set(delay.tolist()) == {10 * US}


def test_processes_on_one_gpu_are_one_timeline(tmp_path: Path) -> None:
    """Two processes take turns of 500 us on one GPU, which is never idle; where nothing tells, it is said."""
    even, odd = Schedule(), Schedule()
    for number in range(20):
        turn = even if number % 2 == 0 else odd
        turn.launch(number * 500 * US, [(GEMM, number * 500 * US + 10 * US, (number + 1) * 500 * US + 10 * US)])
    export = export_of([even, odd], colliding=True)
    for row in export.rows[f"{PREFIX}KERNEL"]:
        row["deviceId"] = 0
    export.rows["TARGET_INFO_CUDA_DEVICE"] = [{"gpuId": 0, "cudaId": 0, "pid": pid} for pid in (1000, 1001)]
    timeline = only(export.write(tmp_path / "one.sqlite", shuffled=5))
    assert analyse(timeline).whole.busy == pytest.approx(1)
    assert (timeline.work.start - timeline.launches.start[timeline.work.launch] == 10 * US).all()
    export.rows["TARGET_INFO_CUDA_DEVICE"] = [{"gpuId": pid - 1000, "cudaId": 0, "pid": pid} for pid in (1000, 1001)]
    assert len(read_nsys(export.write(tmp_path / "two.sqlite"))) == 2
    del export.rows["TARGET_INFO_CUDA_DEVICE"]
    for timeline in read_nsys(export.write(tmp_path / "unknown.sqlite")):
        assert any("if it is the same GPU" in said for said in timeline.distortions)


def test_one_process_with_several_devices_launches_for_each(tmp_path: Path, schedule: Schedule) -> None:
    export = export_of([schedule])
    for number, row in enumerate(export.rows[f"{PREFIX}KERNEL"]):
        row["deviceId"] = number % 2
    del export.rows["TARGET_INFO_CUDA_DEVICE"]
    first, second = read_nsys(export.write(tmp_path / "report.sqlite"))
    assert len(first.work) == len(second.work) == len(first.launches) == 10
    assert not [said for said in analyse(first).distortions if "launched" in said]


def test_what_may_be_null_is_not_known(tmp_path: Path, schedule: Schedule) -> None:
    export = export_of([schedule])
    kernels = export.rows[f"{PREFIX}KERNEL"]
    for number, name in enumerate(("correlationId", "globalPid", "greenContextId", "gridX", "mangledName")):
        kernels[number][name] = None
    # A call that had not returned, and one without a name.
    export.add(f"{PREFIX}RUNTIME", start=0, end=None, globalTid=process(1000), correlationId=900, nameId=10)
    export.add(f"{PREFIX}RUNTIME", start=0, end=9, globalTid=process(1000), correlationId=901, nameId=None)
    export.add("NVTX_EVENTS", start=0, end=None, eventType=59, text="execute_context_0(0)_generation_1(1)")
    timeline = only(export.write(tmp_path / "report.sqlite", shuffled=2))
    assert busy_us(timeline) == 600
    assert int((timeline.work.launch == UNKNOWN).sum()) == 1
    assert any("1 calls without a usable time were left out" in said for said in timeline.notes)
    assert not timeline.steps


def test_times_that_could_not_be_collected_are_no_times(tmp_path: Path) -> None:
    schedule = Schedule()
    for number in range(40):
        at = (number + 1) * 100 * US
        schedule.launch(at - 90 * US, [(GEMM, at, at + 95 * US)], api="cudaGraphLaunch")
    export = export_of([schedule], opaque=True)
    replays = export.rows[f"{PREFIX}GRAPH_TRACE"]
    replays[5].update(start=0, end=0)
    timeline = only(export.write(tmp_path / "report.sqlite"))
    assert busy_us(timeline) == 39 * 95
    assert any("the times of 1 of 40 pieces" in said for said in timeline.distortions)
    for row in replays[6:12]:
        row.update(start=0, end=0)
    with pytest.raises(SourceError, match="the times of 7 of 40 pieces of GPU work could not be collected"):
        read_nsys(export.write(tmp_path / "report.sqlite"))


def test_replays_whose_kernels_are_there_are_not_opaque(tmp_path: Path, schedule: Schedule) -> None:
    export = export_of([schedule])
    export.add(f"{PREFIX}GRAPH_TRACE", start=500 * US, end=1290 * US, deviceId=0, globalPid=process(1000),
               correlationId=1)  # fmt: skip
    timeline = only(export.write(tmp_path / "report.sqlite"))
    assert (timeline.work.kind == KERNEL).all()
    assert_whole(timeline)


def test_graphs_whose_work_is_not_shown_are_refused(tmp_path: Path) -> None:
    """Their replays would seem idle time."""
    schedule = Schedule()
    for number in range(40):
        at = (number + 1) * 100 * US
        schedule.launch(at - 95 * US, [], api="cudaGraphLaunch")
        schedule.launch(at - 90 * US, [(GEMM, at, at + 10 * US)])
    with pytest.raises(SourceError, match="shows the work of 0 of 40 graph launches") as refused:
        read_nsys(export_of([schedule]).write(tmp_path / "report.sqlite"))
    assert "--cuda-graph-trace=node" in str(refused.value.remedy)
    for number, call in enumerate(list(schedule.calls)):
        if "Graph" in call.name and number > 20:
            schedule.work.append(Work(GEMM, call.end + 10 * US, call.end + 60 * US, call.launch))
    timeline = only(export_of([schedule]).write(tmp_path / "report.sqlite"))
    assert any("11 of 40 graph launches show no work" in said for said in timeline.distortions)


def test_copies_are_work_and_those_to_pageable_memory_make_the_host_wait(tmp_path: Path) -> None:
    schedule = Schedule()
    schedule.launch(0, [(GEMM, 10 * US, 20 * US)])
    schedule.launch(30 * US, [], api="cudaMemcpyAsync")
    schedule.launch(60 * US, [], api="cudaMemcpyAsync")
    export = export_of([schedule])
    for number, target in ((2, 0), (3, 1)):  # pageable, pinned
        export.add(f"{PREFIX}MEMCPY", start=number * 30 * US, end=number * 30 * US + 9 * US, deviceId=0, streamId=7,
                   correlationId=number, globalPid=process(1000), bytes=512, copyKind=2, srcKind=2,
                   dstKind=target)  # fmt: skip
    timeline = only(export.write(tmp_path / "report.sqlite"))
    assert timeline.work.kind.tolist() == [KERNEL, MEMCPY, MEMCPY]
    copies = [timeline.names[name] for name in timeline.work.name[1:].tolist()]
    assert copies == ["Memcpy DtoH (Device -> Pageable)", "Memcpy DtoH (Device -> Pinned)"]
    assert timeline.work.size.tolist() == [64, 512, 512]
    assert timeline.syncs.start.tolist() == [30 * US]


def test_what_the_profiler_costs_and_warns_of_is_said(tmp_path: Path, schedule: Schedule) -> None:
    export = export_of([schedule])
    thread = process(1000) | 1000
    export.add("PROFILER_OVERHEAD", start=600 * US, end=700 * US, globalTid=thread, nameId=1, overheadType=3)
    export.add("PROFILER_OVERHEAD", start=0, end=900 * US, globalTid=thread, nameId=1, overheadType=7)  # lazy loading
    for severity, text in (
        (2, "Not all CUDA events might have been collected."),
        (2, f"No OpenGL events collected. {SECRET}"),
        (1, "CUDA events were lost"),
    ):
        export.add("DIAGNOSTIC_EVENT", timestamp=0, severity=severity, text=text)
    found = analyse(only(export.write(tmp_path / "report.sqlite")))
    # 100 of 790 us; modules that are loaded late are the program's own.
    assert any(said.startswith("the profiler itself took 13 %") for said in found.distortions)
    assert any("CUDA events may be missing" in said for said in found.distortions)
    assert any("holds 1 warning" in said for said in found.notes)
    assert SECRET not in repr(found)


def test_an_unknown_schema_is_said(tmp_path: Path, schedule: Schedule) -> None:
    export = export_of([schedule])
    export.rows["META_DATA_EXPORT"] = [{"name": "EXPORT_SCHEMA_VERSION", "value": "4.1.0"}]
    timeline = only(export.write(tmp_path / "report.sqlite"))
    assert timeline.notes == ("report.sqlite has schema 4.1.0 of Nsight Systems; 3.x is known here",)


def test_nothing_private_is_read(tmp_path: Path, schedule: Schedule) -> None:
    export = export_of([schedule])
    export.add("META_DATA_CAPTURE", name="PROCESS_0:ENVIRONMENT_VARIABLE_3", value=f"HF_TOKEN={SECRET}")
    export.columns["ProcessStreams"] = ("globalPid INTEGER", "filenameId INTEGER", "contentId INTEGER")
    export.add("ProcessStreams", globalPid=1, filenameId=export.string("/tmp/stdout"), contentId=export.string(SECRET))
    export.add("NVTX_EVENTS", start=0, end=9, eventType=59, text=f"request {SECRET}", globalTid=process(1000))
    path = export.write(tmp_path / "report.sqlite")
    timeline = only(path)
    assert SECRET not in repr(timeline)
    assert "ENVIRONMENT" not in repr(timeline)
    from pytest_llmroof.profiles.nsys_database import Database

    with Database(path, "report.sqlite") as database:
        for table in ("META_DATA_CAPTURE", "ProcessStreams", "sqlite_master"):
            with pytest.raises(SourceError, match="prohibited"):
                list(database.rows(f"SELECT * FROM {table}"))
        with pytest.raises(SourceError, match="not authorized"):
            list(database.rows("DELETE FROM StringIds"))


def test_nothing_is_written_beside_the_export(tmp_path: Path, schedule: Schedule) -> None:
    path = export_of([schedule]).write(tmp_path / "a report? #1.sqlite")
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = WAL")
    before = path.read_bytes()
    path.chmod(0o400)
    assert_whole(only(path))
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == before


def test_an_export_that_is_still_written_is_refused(tmp_path: Path, schedule: Schedule) -> None:
    path = export_of([schedule]).write(tmp_path / "report.sqlite")
    (tmp_path / "report.sqlite-wal").write_bytes(b"changes")
    with pytest.raises(SourceError, match=r"is not finished: report\.sqlite-wal"):
        read_nsys(path)


def sql(*statements: str) -> Callable[[sqlite3.Connection], None]:
    def change(database: sqlite3.Connection) -> None:
        for statement in statements:
            database.execute(statement)

    return change


KERNELS = f"{PREFIX}KERNEL"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (sql(f"UPDATE {KERNELS} SET end = start - 1 WHERE rowid = 3"), "1 row of its table .* no usable time"),
        (sql(f"UPDATE {KERNELS} SET start = 'soon' WHERE rowid < 3"), "2 rows of its table .* no usable time"),
        (sql(f"UPDATE {KERNELS} SET start = 1.5e300 WHERE rowid = 3"), "1 row of its table .* no usable time"),
        (sql(f"UPDATE {KERNELS} SET end = 9223372036854775807 WHERE rowid = 3"), "1 row of its table .* usable time"),
        (sql(f"UPDATE {KERNELS} SET start = x'00ff' WHERE rowid = 3"), "1 row of its table .* no usable time"),
        (sql(f"DROP TABLE {KERNELS}"), "holds no GPU activity"),
        (sql(f"DELETE FROM {KERNELS}"), "holds no GPU activity"),
        (sql("DELETE FROM StringIds"), "its kernels have no names"),
        (sql("DROP TABLE StringIds"), "its kernels have no names"),
        (sql(f"ALTER TABLE {KERNELS} RENAME COLUMN start TO begin"), "has no columns start and end"),
        (
            sql(f"ALTER TABLE {KERNELS} RENAME TO hidden", f"CREATE VIEW {KERNELS} AS SELECT * FROM hidden"),
            "holds no GPU activity",
        ),
        (
            sql(f"CREATE TABLE seconds AS SELECT *, 0.5 * start AS s FROM {KERNELS}", f"DROP TABLE {KERNELS}",
                "ALTER TABLE seconds RENAME COLUMN start TO old", "ALTER TABLE seconds RENAME COLUMN s TO start",
                f"ALTER TABLE seconds RENAME TO {KERNELS}"),
            "no whole nanoseconds",
        ),
    ],
)  # fmt: skip
def test_damaged_rows_are_refused(
    tmp_path: Path, schedule: Schedule, change: Callable[[sqlite3.Connection], None], said: str
) -> None:
    export = export_of([schedule], kernel=[column.replace(" NOT NULL", "") for column in KERNEL_3_25])
    path = export.write(tmp_path / "report.sqlite")
    with closing(sqlite3.connect(path)) as database:
        change(database)
        database.commit()
    with pytest.raises(SourceError, match=said) as refused:
        read_nsys(path)
    assert "report.sqlite" in refused.value.reason


@pytest.mark.parametrize(
    "change",
    [
        sql(f"UPDATE {KERNELS} SET gridX = 'many', streamId = x'00' WHERE rowid = 3"),
        sql(f"UPDATE {KERNELS} SET gridX = 1 << 40, gridY = 1 << 40 WHERE rowid = 3"),
        sql("INSERT INTO StringIds VALUES (1, CAST(x'fffe00' AS TEXT)), (2, NULL)"),
        sql("CREATE TRIGGER t AFTER INSERT ON StringIds BEGIN SELECT load_extension('x'); END"),
        sql("CREATE TABLE PROFILER_OVERHEAD (start TEXT, nameId)", "INSERT INTO PROFILER_OVERHEAD VALUES ('x', 'y')"),
        sql("CREATE TABLE NVTX_EVENTS (start, end, text, textId, globalTid)",
            "INSERT INTO NVTX_EVENTS VALUES ('a', x'00', 5, 'b', NULL), (1, 2, zeroblob(5000000), 'b', 2.5)"),
        sql("CREATE TABLE DIAGNOSTIC_EVENT (severity, text)",
            "INSERT INTO DIAGNOSTIC_EVENT VALUES ('2', 5), (2, NULL)"),
        sql("UPDATE TARGET_INFO_GPU SET id = 'first', name = 7"),
        sql("UPDATE TARGET_INFO_CUDA_DEVICE SET pid = NULL"),
        sql("UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = 'then'"),
        sql(f"CREATE VIEW {PREFIX}GRAPH_TRACE AS SELECT 0 AS start, 10000000000 AS end, 0 AS deviceId"),
        sql(f"CREATE VIRTUAL TABLE {PREFIX}GRAPH_TRACE USING fts4(start, end)",
            f"INSERT INTO {PREFIX}GRAPH_TRACE VALUES (0, 10000000000)"),
    ],
)  # fmt: skip
def test_what_is_odd_elsewhere_changes_nothing(
    tmp_path: Path, schedule: Schedule, change: Callable[[sqlite3.Connection], None]
) -> None:
    export = export_of([schedule])
    export.columns["StringIds"] = ("id INTEGER PRIMARY KEY", "value TEXT")
    path = export.write(tmp_path / "report.sqlite")
    with closing(sqlite3.connect(path)) as database:
        change(database)
        database.commit()
    timeline = only(path)
    assert_whole(timeline)
    assert not (timeline.work.kind == GRAPH).any()


def test_huge_names_are_cut(tmp_path: Path, schedule: Schedule) -> None:
    export = export_of([schedule])
    export.rows["StringIds"] = [dict(row) for row in export.rows["StringIds"]]
    for row in export.rows["StringIds"]:
        row["value"] += "x" * 5_000_000
    timeline = only(export.write(tmp_path / "report.sqlite"))
    assert busy_us(timeline) == 600
    assert max(map(len, timeline.names)) == 8192


def test_every_truncation_is_told_or_harmless(tmp_path: Path, schedule: Schedule) -> None:
    path = export_of([schedule]).write(tmp_path / "report.sqlite")
    content = path.read_bytes()
    for length in range(0, len(content), 997):
        path.write_bytes(content[:length])
        with pytest.raises(SourceError, match=r"report\.sqlite"):
            read_nsys(path)
    path.unlink()
    with pytest.raises(SourceError, match="cannot be read: No such file"):
        read_nsys(path)
    path.mkdir()
    with pytest.raises(SourceError, match=r"report\.sqlite"):
        read_nsys(path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    schedule = Schedule()
    for number in range(20):
        schedule.step(number * 40 * US, number * 40 * US + 9)
        schedule.launch(number * 40 * US, [(GEMM if number % 3 else NCCL_ALL_REDUCE, number * 40 * US + 8 * US,
                                            number * 40 * US + 30 * US)])  # fmt: skip
    return export_of([schedule]).write(tmp_path_factory.mktemp("nsys") / "whole.sqlite")


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.dictionaries(st.integers(0, 1 << 20), st.integers(0, 255), min_size=1, max_size=30))
def test_damaged_bytes_never_end_in_a_traceback(tmp_path: Path, whole: Path, changes: dict[int, int]) -> None:
    damaged = bytearray(whole.read_bytes())
    for place, value in changes.items():
        damaged[place % len(damaged)] = value
    path = tmp_path / "damaged.sqlite"
    path.write_bytes(damaged)
    try:
        found = analyse_ranks(read_nsys(path))
    except SourceError:
        return
    assert all(np.isfinite(one.whole.busy) and 0 <= one.whole.busy <= 1 for one in found)


def test_an_empty_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE other (a)")
    with pytest.raises(SourceError, match="holds no table of Nsight Systems"):
        read_nsys(path)
    export = Export()
    export.add("META_DATA_EXPORT", name="EXPORT_SCHEMA_VERSION", value="3.25.0")
    with pytest.raises(SourceError, match="holds no GPU activity"):
        read_nsys(export.write(path))


@pytest.mark.parametrize(
    ("column", "value"),
    [("deviceId", 500), ("streamId", 1 << 20), ("streamId", -3), ("correlationId", None), ("globalPid", None)],
)
def test_numbers_of_any_size_are_read(tmp_path: Path, schedule: Schedule, column: str, value: int | None) -> None:
    """Usual ones are read together, others one by one: both ways give the same."""
    export = export_of([schedule])
    usual = only(export.write(tmp_path / "usual.sqlite"))
    rows = export.rows[f"{PREFIX}KERNEL"]
    for row in rows if column == "deviceId" else rows[7:8]:
        row[column] = value
    timeline = only(export.write(tmp_path / "report.sqlite"))
    expected = usual.work.launch.copy()
    if column == "correlationId":
        expected[7] = UNKNOWN
    np.testing.assert_array_equal(timeline.work.start, usual.work.start)
    np.testing.assert_array_equal(timeline.work.launch >= 0, expected >= 0)
    np.testing.assert_array_equal(timeline.work.size, usual.work.size)
    assert timeline.device == (500 if column == "deviceId" else 0)
    assert timeline.work.stream[7] == (value if column == "streamId" else 7)
