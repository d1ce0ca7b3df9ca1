"""From a failed gate to its cause: an engine's pages and a profile beside each other, one planted cause each."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kernel_tables import HOST, PROCESS, seconds, wide
from nsys_files import export_of, write_nsys
from profiled_steps import decode, ranks, replayed, stages
from recompute import failing_texts, recompute
from timelines import NCCL_ALL_REDUCE, Schedule, kineto_events, kineto_header, write_kineto

Gate = Callable[..., Any]
Pages = Callable[..., None]
HEAD = """
gpu: h100
model: llama-3.1-70b
deployment: {tensor_parallel: 4, weights: bf16, kv_cache: bf16}
"""
MBU = "decode.mbu >= 75%"
TRACE = "decode.pt.trace.json.gz"


@pytest.fixture
def profiled(pytester: pytest.Pytester, gate: Gate, pages: Pages) -> Callable[..., Any]:
    """A window of 70B decode steps of 26.2 ms (floor 10.8 ms) and the profiles of it, through a gate file."""

    def run(
        schedules: Sequence[Schedule],
        *gates: str,
        head: str = HEAD,
        phase: str | None = "decode",
        engine: bool = True,
        names: Sequence[str] = (),
        options: Sequence[str] = (),
        **load: object,
    ) -> Any:
        files = []
        if engine:
            pages(**load)
            files = ["before.prom", "after.prom"]
        numbered = [f"rank{number}.pt.trace.json" for number in range(len(schedules))]
        names = names or ([TRACE] if len(schedules) == 1 else numbered)
        for schedule, name in zip(schedules, names, strict=True):
            write_kineto(schedule, pytester.path / name)
        written = "".join(f"\n      - {one!r}" for one in gates or (MBU,))
        text = f"{head}windows:\n  decode:\n    telemetry: [{', '.join([*files, *names])}]\n"
        text += f"    phase: {phase}\n" if phase else ""
        return gate(f"{text}    gates:{written}\n", *options)

    return run


def evidence(run: Any, letter: str, supports: bool = True) -> list[str]:
    return [
        one["statement"] for one in run.window["diagnosis"]["evidence"]
        if one["scenario"] == letter and one["supports"] is supports
    ]  # fmt: skip


def effects(run: Any) -> dict[str, tuple[float, float]]:
    return {one["title"]: (one["low"], one["high"]) for one in run.window["diagnosis"]["remedies"]}


def recomputed(run: Any) -> None:
    """Every number of every failing text follows from the others."""
    texts = failing_texts(run.text)
    assert texts
    for text in texts:
        assert recompute(text).wrong == []


def test_exposed_all_reduces_are_c_as_the_documentation_shows(profiled: Callable[..., Any]) -> None:
    run = profiled([decode(communication=0.34, idle=0.04)])
    assert run.verdicts == ["fail"]
    assert "scenario C: communication and interconnect stalls" in run.text
    assert "DIAGNOSIS      Scenario C: communication and interconnect stalls   (confidence: high)" in run.text
    assert "for            all-reduce kernels exposed for 34 % of the step (decode.pt.trace.json.gz)" in run.text
    assert "against D      the GPU was idle 4 % of the step" in run.text
    assert "34 % exposed communication, 4 % idle" in run.one_line
    assert {"kind": "pytorch_profiler", "location": TRACE} in run.window["sources"]
    # 26.2 ms less 34 % is 17.3 ms. At most what 160 all-reduces take on NVLink stays: of 12.4 x 8 192 x 2 B = 203 kB in
    # decode steps 8 us + 1.5 x 203 kB / 360 GB/s = 8.85 us each, 1.4 ms, and a little more in the few with a prompt.
    low, high = effects(run)["Keep tensor parallelism inside the NVLink domain"]
    assert low == pytest.approx(0.0262 * 0.66, rel=1e-3)
    assert low + 0.0014 < high < low + 0.0018
    recomputed(run)


def test_many_gaps_of_ten_microseconds_are_d(profiled: Callable[..., Any]) -> None:
    """900 pieces of 29.1 us, each of which the host launches 10 us after the one before has ended: 35 %."""
    run = profiled([decode(communication=0.03, idle=0.35, pieces=900)])
    assert run.window["diagnosis"]["scenario"] == "D"
    assert run.window["diagnosis"]["confidence"] == "high"
    assert evidence(run, "D")[0] == "the GPU was idle 35 % of the step"
    assert evidence(run, "D")[1].startswith("of the time without work for the GPU, the host was ")
    assert evidence(run, "C", supports=False)[0] == "all-reduce kernels exposed for 3 % of the step"
    low, high = effects(run)["Capture decode steps in CUDA graphs"]
    assert low == high == pytest.approx(0.0262 * 0.65, rel=2e-3)
    recomputed(run)


def test_graph_replays_are_neither(profiled: Callable[..., Any]) -> None:
    """One GPU, one launch a step, pauses of 1 us in 65.5: the rest of the time is work slower than it could be."""
    head = "gpu: h100\nmodel: llama-3.1-8b\ndeployment: {tensor_parallel: 1, weights: bf16, kv_cache: bf16}\n"
    run = profiled([replayed()], MBU, "timeline.graph_launched >= 99%", "timeline.host_bound_idle <= 1%",
                   head=head, model="meta-llama/Llama-3.1-8B-Instruct")  # fmt: skip
    assert run.verdicts == ["fail", "pass", "pass"]
    assert run.window["diagnosis"]["scenario"] == "F"
    assert run.value("timeline.idle") == pytest.approx(1 / 65.5, rel=1e-3)
    assert evidence(run, "D", supports=False)[0] == (
        "the GPU was idle 2 % of the step: 0 % in gaps, 2 % in pauses of microseconds between kernels that were "
        "submitted in time"
    )
    assert "Capture decode steps in CUDA graphs" not in effects(run)


def test_slow_kernels_are_f(profiled: Callable[..., Any]) -> None:
    run = profiled([decode(communication=0.03, idle=0.01)])
    assert run.window["diagnosis"]["scenario"] == "F"
    assert run.window["diagnosis"]["confidence"] == "high"
    (share,) = [one for one in run.window["attribution"] if one["cause"] == "slow kernels"]
    # 41.3 % floor, its ceiling, 4 % lost otherwise: the rest, less the little prefill beside the decodes.
    assert share["share"] == pytest.approx(0.46, abs=0.02)
    low, _ = effects(run)["Fuse and compile kernels"]
    assert low == pytest.approx(0.0262 * (1 - share["share"]), rel=1e-3)
    assert any("gemm" in one for one in evidence(run, "F"))
    recomputed(run)


def test_a_straggler_that_its_host_holds_up_is_d(profiled: Callable[..., Any]) -> None:
    run = profiled(ranks(0.3, working=False))
    assert run.window["diagnosis"]["scenario"] == "D"
    assert run.window["diagnosis"]["confidence"] == "high"
    assert "the GPU was idle 30 % of the step" in evidence(run, "D")
    assert "another rank waits for rank 3 for 30 % of the step" in evidence(run, "D")
    assert evidence(run, "C", supports=False) == ["all-reduce kernels exposed for 5 % of the step"]
    recomputed(run)


def test_a_straggler_with_more_work_is_c_and_told_from_a_slow_network(profiled: Callable[..., Any]) -> None:
    run = profiled(ranks(0.3, working=True))
    diagnosis = run.window["diagnosis"]
    assert (diagnosis["scenario"], diagnosis["confidence"]) == ("C", "high")
    assert diagnosis["title"].endswith("(one rank has more work than the others)")
    assert evidence(run, "C") == [
        "30 % of the step is waiting for rank 3, which has more work than the others (imbalance)"
    ]
    assert effects(run)["Give every rank the same work"][0] == pytest.approx(0.0262 * 0.7, rel=1e-3)
    assert "Keep tensor parallelism inside the NVLink domain" not in effects(run)


def test_some_of_the_ranks_do_not_tell_a_late_one_from_slow_transfers(profiled: Callable[..., Any]) -> None:
    """Ranks 0 and 1 both wait for rank 3, 30 % of the step: to them each transfer lasts 35 %."""
    run = profiled(ranks(0.3, working=True)[:2])
    diagnosis = run.window["diagnosis"]
    assert (diagnosis["scenario"], diagnosis["confidence"]) == ("C", "medium")
    assert "2 of 4 ranks profiled: one that is always late would look the same" in evidence(run, "C", supports=False)
    (line,) = diagnosis["missing"]
    assert line.startswith(
        "2 of 4 ranks were profiled, not ranks 2 and 3: whether all of them wait for another one; add a profile"
    )


def test_the_late_one_of_some_ranks_excludes_a_later_one(profiled: Callable[..., Any]) -> None:
    """Of ranks 2 and 3 the last one comes late. Its own all-reduces last 5 %: nobody comes after it."""
    run = profiled(ranks(0.3, working=True)[2:])
    diagnosis = run.window["diagnosis"]
    assert (diagnosis["scenario"], diagnosis["confidence"]) == ("C", "high")
    assert evidence(run, "C") == [
        "30 % of the step is waiting for rank 3, which has more work than the others (imbalance)"
    ]
    assert diagnosis["missing"] == []


def test_one_rank_that_waits_is_c_or_d_and_the_other_ranks_are_asked_for(profiled: Callable[..., Any]) -> None:
    """Four of five all-reduces last four and a half times as long as the fifth: waiting, and nobody knows for whom."""
    schedule = decode(communication=0.45)
    length = 26_200_000 // 160
    works = []
    for number, one in enumerate(schedule.work):
        collective, which = number % 2 == 1, number // 2
        if collective and which % 5 == 0:
            works.append(replace(one, start=one.end - round(0.1 * length)))
        elif not collective and which % 5 == 0:
            works.append(replace(one, end=one.end + round(0.35 * length)))
        else:
            works.append(one)
    run = profiled([replace(schedule, work=works)])
    assert run.window["diagnosis"]["scenario"] == "C or D"
    # Of 0.8 x 45 + 0.2 x 10 = 38 % that are exposed every all-reduce moves data for 10 % of its piece.
    assert evidence(run, "C or D") == [
        "28 % of the step is waiting for a late rank: a straggler, and its own trace is not here"
    ]
    missing = run.window["diagnosis"]["missing"]
    assert any(line.startswith("1 of 4 ranks was profiled, not the late one; add a profile") for line in missing)


def test_a_pipeline_bubble_is_no_slow_network(profiled: Callable[..., Any]) -> None:
    head = HEAD.replace("tensor_parallel: 4", "tensor_parallel: 1, pipeline_parallel: 2, data_parallel: 1").replace(
        "weights: bf16", "weights: fp8"
    )
    run = profiled(stages(), "decode.step_time <= 10ms", head=head)
    assert run.window["diagnosis"]["scenario"] == "C"
    assert run.window["diagnosis"]["title"].endswith("(pipeline stages wait for each other)")
    assert evidence(run, "C") == ["40 % of the step is waiting for another stage (pipeline bubble)"]
    assert "Fill the pipeline, or shorten it" in effects(run)


def test_hidden_communication_is_no_share(profiled: Callable[..., Any]) -> None:
    """All-reduces of 20 % of the step run on a stream of their own beside GEMMs."""
    schedule = decode(idle=0.02)
    length = 26_200_000 // 160
    for number in range(160 * 8):
        at = number * length
        start = at + length // 2
        schedule.launch(max(at - 20_000, 0), [(NCCL_ALL_REDUCE, start, start + length // 5)], stream=20)
    run = profiled([schedule])
    assert run.window["diagnosis"]["scenario"] == "F"
    against = evidence(run, "C", supports=False)
    assert "communication of a further 20 % of the step is hidden behind computation" in against


def test_kernels_of_unknown_names_may_be_communication(profiled: Callable[..., Any]) -> None:
    """30 % of each step is one kernel that nothing classes: communication is between 0 and 30 %, and C is not out."""
    both = ("timeline.communication <= 5%", "timeline.communication_exposed <= 5%")
    own = decode(communication=0.3, kernel="void my_company::ring<__nv_bfloat16>(float*)")
    run = profiled([own], *both, "timeline.communication_exposed <= 31%", MBU)
    assert run.verdicts == ["no data", "no data", "pass", "fail"]
    for gate in run.window["gates"][:2]:
        assert gate["because"].startswith("kernels whose names are not understood (most of it my_company::ring) ran")
        assert "a further 30 % of the time: they may be communication" in gate["because"]
    assert not evidence(run, "C", supports=False)
    assert any("a further 30 %: they may be communication" in text for text in evidence(run, "C or F"))
    # Nobody said how many GPUs serve, and the recording does not either; then somebody says that it is one.
    alone = replace(own, rank=None, world_size=None)
    assert profiled([alone], *both, head="", engine=False).verdicts == ["no data", "no data"]
    one = "model: llama-3.1-8b\ngpu: h100\ndeployment: {tensor_parallel: 1}\n"
    assert profiled([alone], *both, head=one, engine=False).verdicts == ["pass", "pass"]


def test_a_little_of_unknown_names_widens_the_interval_only(profiled: Callable[..., Any]) -> None:
    """0.5 % of the step: the figure stays, a limit within it is approximate, one beyond it is met."""
    own = decode(communication=0.005, kernel="void my_company::ring<__nv_bfloat16>(float*)")
    run = profiled([own], "timeline.communication_exposed <= 0.2%", "timeline.communication_exposed <= 1%")
    assert run.verdicts == ["pass", "pass"]
    assert [gate["approximate"] for gate in run.window["gates"]] == [True, False]
    assert run.value("timeline.communication_exposed") == 0


def test_what_computation_hides_exposes_nothing_whatever_it_is(profiled: Callable[..., Any]) -> None:
    """Unknown kernels of 20 % of the step on a stream of their own beside GEMMs."""
    schedule = decode(idle=0.02)
    length = 26_200_000 // 160
    for number in range(160 * 8):
        at = number * length
        start = at + length // 2
        schedule.launch(max(at - 20_000, 0), [("my_company_ring", start, start + length // 5)], stream=20)
    gates = ("timeline.communication <= 5%", "timeline.communication_exposed <= 5%")
    assert profiled([schedule], *gates).verdicts == ["no data", "pass"]


def test_a_profile_alone_is_judged_and_asks_for_telemetry_where_it_is_needed(profiled: Callable[..., Any]) -> None:
    gates = ("timeline.idle <= 5%", "timeline.communication_exposed <= 20%", "timeline.gap.p99 <= 20us", MBU)
    run = profiled([decode(communication=0.34, idle=0.04)], *gates, head="gpu: h100\n", phase=None, engine=False)
    assert run.verdicts == ["pass", "fail", "pass", "no data"]
    assert run.window["phase"] == "decode"  # as its annotations say
    assert run.value("timeline.communication_exposed") == pytest.approx(0.34, abs=1e-3)
    assert run.window["diagnosis"]["scenario"] == "C"
    assert [source["kind"] for source in run.window["sources"]] == ["pytorch_profiler"]
    # Neither a GPU nor a model is needed for what a timeline tells.
    run = profiled([decode(communication=0.02, idle=0.3)], *gates[:3], head="", phase=None, engine=False)
    assert run.verdicts == ["fail", "pass", "fail"]
    assert run.window["diagnosis"]["scenario"] == "D"


def test_a_part_of_the_time_is_explained_by_its_own_cause(profiled: Callable[..., Any]) -> None:
    """All-reduces take most of what is lost, 34 %; the 4 % in which the GPU idles are its host's all the same."""
    gates = ("timeline.idle <= 1%", "timeline.host_bound_idle <= 1%", "timeline.gap.p50 <= 1us",
             "timeline.communication_exposed <= 20%")  # fmt: skip
    run = profiled([decode(communication=0.34, idle=0.04)], *gates, MBU)
    assert run.verdicts == ["fail"] * 5
    assert [gate["scenario"] for gate in run.window["gates"]] == ["D", "D", "D", "C", "C"]
    assert "found 4 %, expected timeline.idle <= 1 % (3 points over); scenario D: host launch latency" in run.text
    # The window's is that of its first breach; nothing is said against the cause of what idles.
    assert evidence(run, "D")[0] == "the GPU was idle 4 % of the step"
    assert run.window["diagnosis"]["confidence"] == "high"
    assert {one["scenario"] for one in run.window["diagnosis"]["evidence"]} == {"D"}
    recomputed(run)


def test_exposed_communication_that_waits_for_a_late_host_is_d(profiled: Callable[..., Any]) -> None:
    """Three ranks of four wait 30 % of the step for one whose host is late, beside 5 % of transfer."""
    run = profiled(ranks(0.3, working=False), "timeline.communication_exposed <= 4%")
    assert run.value("timeline.communication_exposed") == pytest.approx(0.05 + 0.3 * 3 / 4, abs=1e-3)
    assert [gate["scenario"] for gate in run.window["gates"]] == ["D"]
    assert "another rank waits for rank 3 for 30 % of the step" in evidence(run, "D")
    run = profiled(ranks(0.3, working=True), "timeline.communication_exposed <= 4%")
    assert [gate["scenario"] for gate in run.window["gates"]] == ["C"]


def test_profiles_in_a_recordings_folder(pytester: pytest.Pytester, gate: Gate, pages: Pages) -> None:
    pages("load")
    write_kineto(decode(communication=0.34, idle=0.04), pytester.path / "load" / TRACE)
    write_nsys(pytester.path / "load" / "old.nsys-rep", decode(communication=0.34, idle=0.04))
    run = gate(HEAD + "windows: {decode: {phase: decode, telemetry: load, gates: [decode.mbu >= 75%]}}\n")
    assert run.window["diagnosis"]["scenario"] == "C"
    assert f"(load/{TRACE})" in run.text
    (unread,) = run.window["unread"]
    assert unread.startswith("load/old.nsys-rep: a report that only Nsight Systems itself can open; export it: nsys ")


def test_a_report_that_only_the_tool_opens_is_no_data_with_its_command(
    pytester: pytest.Pytester, gate: Gate, pages: Pages
) -> None:
    pages()
    (pytester.path / "decode.nsys-rep").write_bytes(b"\0\1\2")
    (pytester.path / "decode.ncu-rep").write_bytes(b"\0\1\2")
    files = "before.prom, after.prom, decode.nsys-rep, decode.ncu-rep"
    gates = "decode.mbu >= 10%, timeline.idle <= 5%, 'kernels(gemm).mfu >= 10%'"
    run = gate(HEAD + f"windows: {{decode: {{phase: decode, telemetry: [{files}], gates: [{gates}]}}}}\n")
    assert run.verdicts == ["pass", "no data", "no data"]
    assert "nsys export --type sqlite --output decode.sqlite decode.nsys-rep" in run.one_line
    assert "ncu --import decode.ncu-rep" in run.one_line
    run = gate("windows: {decode: {telemetry: [decode.nsys-rep], gates: [timeline.idle <= 5%]}}\n")
    assert run.verdicts == ["no data"]


def test_an_export_of_nsight_systems_is_read_the_same(pytester: pytest.Pytester, gate: Gate, pages: Pages) -> None:
    pages()
    write_nsys(pytester.path / "decode.sqlite", decode(communication=0.34, idle=0.04))
    run = gate(HEAD + "windows: {decode: {phase: decode, telemetry: [before.prom, after.prom, decode.sqlite], "
               "gates: [decode.mbu >= 75%, timeline.idle <= 5%]}}\n")  # fmt: skip
    assert run.verdicts == ["fail", "pass"]
    assert run.window["diagnosis"]["scenario"] == "C"
    assert "all-reduce kernels exposed for 34 % of the step (decode.sqlite)" in run.text
    assert {"kind": "nsight_systems", "location": "decode.sqlite"} in run.window["sources"]


def test_a_damaged_trace_takes_nothing_else_with_it(pytester: pytest.Pytester, gate: Gate, pages: Pages) -> None:
    pages()
    path = write_kineto(decode(communication=0.34), pytester.path / "decode.json")
    path.write_bytes(path.read_bytes()[:-5000])
    run = gate(HEAD + "windows: {decode: {phase: decode, telemetry: [before.prom, after.prom, decode.json], "
               "gates: [decode.mbu >= 10%, timeline.idle <= 5%]}}\n")  # fmt: skip
    assert run.verdicts == ["pass", "no data"]
    assert "decode.json is truncated at byte" in run.one_line
    assert run.window["unread"][0].startswith("decode.json: truncated at byte")


def test_a_trace_of_another_device_is_impossible(profiled: Callable[..., Any]) -> None:
    run = profiled([decode(communication=0.34, device_name="NVIDIA A100-SXM4-80GB")], MBU, "timeline.idle <= 5%")
    assert run.verdicts == ["impossible", "impossible"]
    assert "A100-SXM4-80GB" in run.one_line


@pytest.mark.parametrize(("device", "verdict"), [
    ("NVIDIA A100-SXM4-80GB", "impossible"), ("AMD Instinct MI300X", "impossible"),
    ("NVIDIA H100 80GB HBM3", "pass"), ("Graphics Device", "pass"),
])  # fmt: skip
def test_a_timeline_of_another_device_says_nothing_of_this_one(
    profiled: Callable[..., Any], device: str, verdict: str
) -> None:
    """A profile and nothing else: an H100 was given. A name that tells no model may be one."""
    schedule = decode(device_name=device)
    run = profiled([schedule], "timeline.idle <= 5%", head="gpu: h100\n", engine=False)
    assert run.verdicts == [verdict]
    if verdict == "impossible":
        because = run.window["gates"][0]["because"]
        assert because == f"{TRACE} was recorded on {device}, the gpu given is h100-sxm5-80gb"
    # Where nobody gave one, the profile's own is taken.
    assert profiled([schedule], "timeline.idle <= 5%", head="", engine=False).verdicts == ["pass"]


def test_more_ranks_than_the_deployment_has_are_impossible(profiled: Callable[..., Any]) -> None:
    head = HEAD.replace("tensor_parallel: 4, ", "").replace("llama-3.1-70b", "llama-3.1-8b")
    run = profiled([decode(communication=0.34)], MBU, head=head, model="meta-llama/Llama-3.1-8B-Instruct")
    assert run.verdicts == ["impossible"]
    assert "a rank of 4, and the deployment has 1 GPU, tensor_parallel 1 (assumed)" in run.one_line
    # Five ranks, where four GPUs were given: the timelines are of another server.
    five = ranks(0.3, working=True, count=5)
    assert profiled(five, "timeline.idle <= 90%").verdicts == ["impossible"]
    assert profiled(five[:4], "timeline.idle <= 90%").verdicts == ["pass"]


def test_another_steps_profile_is_shown_beside_and_trusted_less(profiled: Callable[..., Any]) -> None:
    """The profile's step is 20 ms, the window's 26.2 ms: 24 % apart."""
    run = profiled([decode(communication=0.34, idle=0.04, step_us=20_000)])
    assert run.window["diagnosis"]["scenario"] == "C"
    assert run.window["diagnosis"]["confidence"] == "medium"
    assert "its own step is 20 ms, the window's 26.2 ms: the shares may differ" in evidence(run, "C", supports=False)


def test_what_the_profiler_cost_lowers_the_confidence(profiled: Callable[..., Any]) -> None:
    run = profiled([decode(idle=0.40, options=("with_stack",))])
    assert run.window["diagnosis"]["scenario"] == "D"
    assert run.window["diagnosis"]["confidence"] == "medium"
    assert any("recorded with with_stack" in one for one in evidence(run, "D", supports=False))


def test_more_lost_than_the_floor_leaves_is_impossible_for_decode_alone(profiled: Callable[..., Any]) -> None:
    """41.3 % of the step are floor, 65 % idle."""
    run = profiled([decode(idle=0.65)], MBU, "decode.step_time <= 30ms", "timeline.idle <= 70%", "itl.mean <= 30ms")
    assert run.verdicts == ["impossible", "pass", "pass", "pass"]
    assert "65 % is idle or exposed communication" in run.one_line


def test_steps_of_another_phase_do_not_count(profiled: Callable[..., Any]) -> None:
    prompts = decode(communication=0.4, name="execute_context_2(4096)_generation_0(0)")
    run = profiled([prompts], MBU, "timeline.idle <= 5%")
    assert run.verdicts == ["fail", "no data"]
    assert "holds prefill steps only, and the window is a decode one" in run.one_line
    assert run.window["diagnosis"]["confidence"] == "low"  # as without a profile


def test_counters_that_say_another_busy_time_are_shown_beside(
    pytester: pytest.Pytester, gate: Gate, pages: Pages
) -> None:
    import dcgm_pages
    from vllm_pages import Load, page

    load, folder = Load(), pytester.mkdir("load")
    values = {"DEV_GPU_UTIL": 100.0, "DEV_SM_CLOCK": 1830.0, "PROF_GR_ENGINE_ACTIVE": 0.98, "PROF_SM_ACTIVE": 0.45,
              "PROF_PIPE_TENSOR_ACTIVE": 0.03, "PROF_DRAM_ACTIVE": 0.42}  # fmt: skip
    for second in range(61):
        at = load.started + second
        (folder / f"vllm.{second:06}.prom").write_text(page(load, second / 60, at), encoding="utf-8")
        text = dcgm_pages.page(at + 0.01, load.started, values)
        (folder / f"dcgm.{second:06}.prom").write_text(text, encoding="utf-8")
    write_kineto(decode(idle=0.4), folder / TRACE)
    run = gate(HEAD + "windows: {decode: {phase: decode, telemetry: load, gates: [decode.mbu >= 75%]}}\n")
    (note,) = [note for note in run.window["notes"] if note.startswith("the GPUs were busy")]
    assert "busy 60 % of the step by load/decode.pt.trace.json.gz, which is used, and 98 % of the load" in note
    assert run.window["diagnosis"]["scenario"] == "D"


def test_nsight_computes_kernels_are_gated(pytester: pytest.Pytester, gate: Gate) -> None:
    # Two launches of 10 us: 2 x 2.0 GFLOP in 20 us are 200 TFLOP/s of 989.4; 2 x 16.75 MB are half of 3.35 TB/s.
    values = {"gpu__time_duration.sum": seconds(10), "dram__bytes_read.sum": ("byte", "16750000"),
              "dram__bytes_write.sum": ("byte", "0"),
              "sm__ops_path_tensor_src_bf16_dst_fp32_sparsity_off.sum": ("", "2000000000")}  # fmt: skip
    wide(pytester.path / "kernels.csv", [("nvjet_gemm", values), ("nvjet_gemm", values)], cc="9.0")
    run = gate("gpu: h100\nwindows: {kernels: {telemetry: [kernels.csv], gates: "
               "['kernels(gemm).mbu >= 40%', 'kernels(gemm).time_share >= 99%', timeline.idle <= 5%]}}\n")  # fmt: skip
    assert run.verdicts == ["pass", "pass", "no data"]
    assert run.window["gates"][0]["value"] == pytest.approx(0.5)
    assert run.window["kernels"]["launches"] == 2
    assert {"kind": "nsight_compute", "location": "kernels.csv"} in run.window["sources"]


def test_nothing_of_profiles_is_imported_without_one(pytester: pytest.Pytester, gate: Gate, pages: Pages) -> None:
    pages()
    pytester.makeconftest(
        "import atexit, sys\n"
        "atexit.register(lambda: open('modules', 'w').write(' '.join(sorted(sys.modules))))\n"
    )
    text = HEAD + "windows: {decode: {phase: decode, telemetry: [FILES], gates: [decode.mbu >= 75%]}}\n"
    gate(text.replace("FILES", "before.prom, after.prom"), apart=True)
    modules = Path(pytester.path / "modules").read_text().split()
    room = "pytest_llmroof.profiles"
    door = {room, *(f"{room}.{one}" for one in ("finding", "profile", "recognise"))}
    assert {one for one in modules if one.startswith(room)} <= door
    assert "numpy" not in modules
    assert "sqlite3" not in modules
    write_kineto(decode(idle=0.4), pytester.path / TRACE)
    gate(text.replace("FILES", f"before.prom, after.prom, {TRACE}"), apart=True)
    assert "pytest_llmroof.profiles.analyse" in Path(pytester.path / "modules").read_text().split()


SECRET = "hf_NotARealTokenButLooksLikeOne"
REPORTS = ("report.json", "report.html", "report.xml", "report.md", "report.prom")


def private_trace(path: Path) -> None:
    """The PyTorch profiler's, with secrets wherever it and its users may put some."""
    schedule = decode(communication=0.34, idle=0.04)
    events = [
        {"ph": "M", "name": "process_name", "pid": 100, "args": {"name": f"python serve.py --api-key={SECRET}"}},
        {"ph": "X", "cat": "user_annotation", "name": SECRET, "pid": 100, "tid": 100, "ts": 0, "dur": 5, "args": {}},
        {"ph": "X", "cat": "python_function", "name": f"login({SECRET})", "pid": 100, "tid": 100, "ts": 0, "dur": 5},
        {"ph": "i", "cat": "cpu_instant_event", "name": SECRET, "pid": 100, "tid": 100, "ts": 1, "s": "t"},
        *({**event, "args": {**event["args"], "Call stack": SECRET, "Concrete Inputs": [SECRET]}}
          for event in kineto_events(schedule)),
    ]  # fmt: skip
    header = {**kineto_header(schedule), "environment": {"HF_TOKEN": SECRET}, "host_name": SECRET, "user": SECRET}
    path.write_text(json.dumps({**header, "traceEvents": events, "traceName": f"/home/{SECRET}/t.json"}))


def private_export(path: Path) -> None:
    """Nsight Systems': the environment, the output, the names of host and user, ranges of the user's own."""
    export = export_of([decode(communication=0.34, idle=0.04)])
    export.columns |= {
        "ProcessStreams": ("globalPid INTEGER", "filenameId INTEGER", "contentId INTEGER"),
        "TARGET_INFO_SYSTEM_ENV": ("nameEnum INTEGER", "name TEXT", "value TEXT"),
        "PROCESSES": ("globalPid INTEGER", "name TEXT"),
    }
    export.add("META_DATA_CAPTURE", name="ENVIRONMENT:HF_TOKEN", value=SECRET)
    export.add("META_DATA_EXPORT", name="EXPORT_SOURCE", value=f"/home/{SECRET}/decode.nsys-rep")
    export.add("ProcessStreams", globalPid=1, filenameId=export.string("stdout"), contentId=export.string(SECRET))
    export.add("TARGET_INFO_SYSTEM_ENV", nameEnum=1, name="Hostname", value=SECRET)
    export.add("PROCESSES", globalPid=1, name=f"python --api-key={SECRET}")
    export.add("NVTX_EVENTS", start=0, end=9, eventType=59, globalTid=1, text=f"request {SECRET}")
    export.add("DIAGNOSTIC_EVENT", timestamp=0, severity=2, text=f"cannot open /home/{SECRET}", globalPid=1)
    export.write(path)


def private_sums(path: Path) -> None:
    """``nsys stats``' ranges, with what it prints before them."""
    head = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Style,Range"
    path.write_text(f"Processing [/home/{SECRET}/decode.sqlite] with [nvtx_sum.py]...\n{head}\n"
                    f"60.0,600,1,600,600,600,600,0,PushPop,:request {SECRET}\n"
                    "40.0,400,1,400,400,400,400,0,PushPop,:execute_context_0(0)_generation_12(12)\n")  # fmt: skip


def private_kernels(path: Path) -> None:
    """Nsight Compute's: the names of process and host."""
    values = {"gpu__time_duration.sum": seconds(10), "dram__bytes_read.sum": ("byte", "16750000"),
              "dram__bytes_write.sum": ("byte", "0")}  # fmt: skip
    wide(path, [("nvjet_gemm", values)], cc="9.0", before=f"==PROF== Connected to /home/{SECRET}/python\n")
    path.write_text(path.read_text().replace(PROCESS, SECRET).replace(HOST, SECRET))


@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.parametrize(
    ("name", "write"),
    [("decode.json", private_trace), ("decode.sqlite", private_export), ("nvtx.csv", private_sums),
     ("kernels.csv", private_kernels)],
)  # fmt: skip
def test_nothing_private_of_an_export_reaches_any_report(
    pytester: pytest.Pytester, gate: Gate, pages: Pages, name: str, write: Callable[[Path], None], damaged: bool
) -> None:
    pages()
    path = pytester.path / name
    write(path)
    assert SECRET.encode() in path.read_bytes()
    if damaged:  # cut in the middle of one of the secrets, or at the end of it
        content = path.read_bytes()
        path.write_bytes(content[: content.rindex(SECRET.encode()) + len(SECRET)])
    gates = "decode.mbu >= 75%, timeline.idle <= 1%, timeline.gap.p99 <= 1us, 'kernels(gemm).mbu >= 99%'"
    text = f"windows: {{decode: {{phase: decode, telemetry: [before.prom, after.prom, {name}], gates: [{gates}]}}}}\n"
    run = gate(HEAD + text, *(f"--llmroof-report={report}" for report in REPORTS), "-vv", "-ra", "--showlocals")
    for report in REPORTS:
        assert SECRET not in (pytester.path / report).read_text(encoding="utf-8"), report
    assert SECRET not in run.text
    assert (name in [source["location"] for source in run.window["sources"]]) or run.window["unread"]
    if write in (private_trace, private_export) and not damaged:
        assert run.window["diagnosis"]["scenario"] == "C"


def test_graphs_recorded_whole_leave_communication_open(pytester: pytest.Pytester, gate: Gate, pages: Pages) -> None:
    pages()
    write_nsys(pytester.path / "decode.sqlite", replayed(), opaque=True)
    gates = "decode.mbu >= 75%, timeline.busy >= 90%, timeline.communication_exposed <= 5%"
    run = gate(HEAD + "windows: {decode: {phase: decode, telemetry: [before.prom, after.prom, decode.sqlite], "
               f"gates: [{gates}]}}}}\n")  # fmt: skip
    assert run.verdicts == ["fail", "pass", "no data"]
    assert "graph replays were recorded whole, without the kernels in them" in run.one_line
    assert "--cuda-graph-trace=node" in run.one_line
    diagnosis = run.window["diagnosis"]
    assert "C" in diagnosis["candidates"]
    assert diagnosis["confidence"] == "low"
    assert evidence(run, "D", supports=False)[0] == "the GPU was idle 0 % of the step"
