"""Options: gates of the command line, what overrides what, usage errors, lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

DEPLOYED = (
    "--llmroof-gpu=h100",
    "--llmroof-model=llama-3.1-70b",
    "--llmroof-deployment=tensor_parallel=4",
    "--llmroof-deployment=weights=bf16",
)
TELEMETRY = ("--llmroof-telemetry=before.prom", "--llmroof-telemetry=after.prom")
GATE = "--llmroof-gate=decode.mbu >= 30%"


def test_gates_of_the_command_line_need_no_file(project: Any) -> None:
    result = project.run(*DEPLOYED, *TELEMETRY, GATE, "--llmroof-gate=decode.mbu >= 75%", "-v")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["*collected 2 items", "llmroof::decode.mbu >= 30% PASSED*", "llmroof::decode.mbu >= 75% FAILED*"]
    )


def test_they_are_added_to_what_else_is_collected(project: Any) -> None:
    project.gates("decode.mbu >= 35%")
    (project.path / "test_it.py").write_text("def test_it(): pass\n")
    result = project.run(*TELEMETRY, "--llmroof-gate=itl.mean <= 50ms", "--collect-only", "-q", "test_it.py")
    result.stdout.fnmatch_lines(["test_it.py::test_it", "llmroof::itl.mean <= 50ms", "2 tests collected*"])
    project.run(*TELEMETRY, "--llmroof-gate=itl.mean <= 50ms", "-k", "itl").assert_outcomes(passed=1, deselected=2)
    only_gates = project.run(*TELEMETRY, "--llmroof-gate=itl.mean <= 50ms", "-m", "llmroof")
    only_gates.assert_outcomes(passed=2, deselected=1)


def test_the_same_gate_twice_is_one(project: Any) -> None:
    project.run(*TELEMETRY, *["--llmroof-gate=itl.mean <= 50ms"] * 2).assert_outcomes(passed=1)


def test_telemetry_alone_gets_the_default_gate_of_its_phase(project: Any) -> None:
    (window,) = project.report(*DEPLOYED, *TELEMETRY, "--llmroof-phase=decode")["windows"]
    assert window["name"] == "cli"
    assert [(gate["expression"], gate["default"]) for gate in window["gates"]] == [("decode.mbu >= 75%", True)]


def test_paths_are_relative_to_where_pytest_was_called(project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = project.path / "below"
    folder.mkdir()
    monkeypatch.chdir(folder)
    telemetry = ("--llmroof-telemetry=../before.prom", "--llmroof-telemetry=../after.prom")
    result = project.run(*telemetry, "--llmroof-gate=itl.mean <= 50ms", "--llmroof-report=r.json")
    result.assert_outcomes(passed=1)
    assert (folder / "r.json").exists()


def test_the_command_line_wins_over_the_file_and_the_file_over_the_ini(project: Any) -> None:
    project.gates("decode.mbu >= 30%")
    file = project.path / "llmroof.yaml"
    file.write_text(file.read_text().replace("gpu: h100\n", ""))
    project.pytester.makeini(
        "[pytest]\nllmroof_gpu = h200\nllmroof_model = llama-3.1-8b\nllmroof_deployment =\n"
        "    tensor_parallel=8\n    pipeline_parallel=2\n"
    )
    (window,) = project.report()["windows"]
    assert window["gpu"]["name"] == "h200-sxm-141gb"
    assert window["model"]["name"] == "llama-3.1-70b"
    assert (window["deployment"]["tensor_parallel"], window["deployment"]["pipeline_parallel"]) == (4, 2)
    (window,) = project.report("--llmroof-gpu=b200", "--llmroof-deployment=tensor_parallel=2")["windows"]
    assert window["gpu"]["name"].startswith("b200")
    assert (window["deployment"]["tensor_parallel"], window["deployment"]["pipeline_parallel"]) == (2, 2)
    # The key that the command line leaves alone keeps what the file says.
    assert window["deployment"]["weights"] == "bf16"


def test_the_phase_of_the_command_line_chooses_the_default_gate(project: Any) -> None:
    window = "{phase: decode, telemetry: [before.prom, after.prom]}"
    (project.path / "llmroof.yaml").write_text(f"windows: {{it: {window}}}\n")
    (window,) = project.report("--llmroof-phase=prefill")["windows"]
    assert [gate["expression"] for gate in window["gates"]] == ["prefill.mfu >= 45%"]


def test_a_window_without_telemetry_takes_what_the_command_line_gives(project: Any) -> None:
    (project.path / "llmroof.yaml").write_text("windows: {it: {phase: decode, gates: [itl.mean <= 50ms]}}\n")
    project.run(*TELEMETRY, "--llmroof-gate=itl.mean <= 40ms").assert_outcomes(passed=2)
    project.pytester.makeini("[pytest]\nllmroof_telemetry =\n    before.prom\n    after.prom\n")
    project.run().assert_outcomes(passed=1)


def test_a_duration_stands_for_a_clock(project: Any, vllm_pages: Callable[..., object]) -> None:
    vllm_pages(project.path, clock=False)
    gate = "--llmroof-gate=output.tokens_per_second >= 1tok/s"
    assert project.run(*TELEMETRY, gate).ret == 1
    project.run(*TELEMETRY, gate, "--llmroof-duration=1m").assert_outcomes(passed=1)
    project.pytester.makeini("[pytest]\nllmroof_duration = 60s\n")
    project.run(*TELEMETRY, gate).assert_outcomes(passed=1)


def test_native_types_in_a_toml_file(project: Any) -> None:
    if pytest.version_tuple < (9, 2):
        pytest.skip("pytest reads [tool.pytest] with native types since 9.0, and numbers for texts since 9.2")
    (project.path / "tox.ini").unlink()
    (project.path / "pyproject.toml").write_text(
        '[tool.pytest]\nllmroof_gpu = "h100"\nllmroof_model = "llama-3.1-70b"\nllmroof_duration = 60\n'
        'llmroof_deployment = ["tensor_parallel=4", "weights=bf16"]\n'
        'llmroof_telemetry = ["before.prom", "after.prom"]\n'
        'llmroof_phase = "decode"\nllmroof_strict = true\nllmroof_required = true\n'
    )
    (project.path / "llmroof.yaml").write_text("windows: {it: {gates: [decode.mbu >= 30%]}}\n")
    project.run().assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("line", "gist"),
    [
        ("llmroof_phase = decoding", "*tox.ini: llmroof_phase: 'decoding' is none of decode, prefill, mixed*"),
        ("llmroof_duration = 60MB", "*tox.ini: llmroof_duration: *duration*"),
        ("llmroof_strict = perhaps", "*perhaps*"),
    ],
)
def test_a_wrong_ini_value_is_a_usage_error(project: Any, line: str, gist: str) -> None:
    project.pytester.makeini(f"[pytest]\n{line}\n")
    result = project.run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([gist])


def test_a_wrong_name_in_the_ini_file_is_told_where_gates_are_collected(project: Any) -> None:
    project.gates("decode.mbu >= 30%")
    file = project.path / "llmroof.yaml"
    file.write_text(file.read_text().replace("gpu: h100\n", ""))
    project.pytester.makeini("[pytest]\nllmroof_gpu = h10O\n")
    result = project.run()
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["tox.ini: llmroof_gpu*h10O*h100*"])


@pytest.mark.parametrize(
    ("options", "gist"),
    [
        (["--llmroof-gpu=h10O"], "*--llmroof-gpu: *h10O*did you mean*h100*"),
        (["--llmroof-model=llama-3.1-7b"], "*--llmroof-model: *llama-3.1-7b*llama-3.1-*"),
        (["--llmroof-deployment=tensor_paralel=2"], "*--llmroof-deployment*tensor_parallel*"),
        (["--llmroof-deployment=tp=2"], "*--llmroof-deployment: *did you mean 'tensor_parallel'*"),
        (["--llmroof-deployment=tensor_parallel=two"], "*--llmroof-deployment*tensor_parallel*"),
        (["--llmroof-deployment=tensor_parallel"], "*'tensor_parallel' is not KEY=VALUE*"),
        (["--llmroof-label=engine"], "*'engine' is not KEY=VALUE*"),
        (["--llmroof-phase=decoding"], "*'decoding' is none of decode, prefill, mixed*"),
        (["--llmroof-duration=60MB"], "*--llmroof-duration*duration*"),
        (["--llmroof-duration=0s"], "*not a positive duration*"),
        (["--llmroof-gate=decode.mbu >= 30%"], "*--llmroof-gate needs something to measure*--llmroof-telemetry*"),
        ([*TELEMETRY, "--llmroof-gate=decode.mbuu >= 1%"], "*--llmroof-gate: *did you mean 'decode.mbu'*"),
        (["--llmroof-telemetry=http://127.0.0.1:9/metrics"], "*alone needs a phase*--llmroof-phase=decode*"),
        (["--llmroof-telemetry={url: [}", GATE], "*--llmroof-telemetry*not a mapping*"),
        (["--llmroof-report=report.doc"], "*'report.doc' must end in .json*"),
        (["--llmroof-report=after.prom/report.json"], "*--llmroof-report=*no folder*"),
        (["--llmroof-unmeasured-exit=0"], "*0 would turn no data green*"),
        (["--llmroof-unmeasured-exit=x"], "*not an exit code*"),
        (["--llmroof-list=cpus"], "*gpus*models*metrics*"),
    ],
)
def test_usage_errors_come_before_anything_is_measured(project: Any, options: list[str], gist: str) -> None:
    project.gates("decode.mbu >= 30%")
    result = project.run(*options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([gist])
    result.stdout.no_fnmatch_line("*collected*")
    assert "Traceback" not in result.stderr.str()


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("gpus", "h100-sxm5-80gb *3.35 TB/s*"),
        ("models", "llama-3.1-70b *Llama 3.1 70B*"),
        ("metrics", "ttft.STAT *seconds*p99.9*"),
        ("scenarios", "E *admission saturation*"),
        ("engines", "vllm *vLLM*"),
    ],
)
def test_lists(project: Any, what: str, line: str) -> None:
    result = project.run(f"--llmroof-list={what}")
    assert result.ret == 0
    result.stdout.fnmatch_lines([line])
    result.stdout.no_fnmatch_line("*test session starts*")


ACCELERATORS = """
def pytest_llmroof_accelerators(config):
    return {"lab-card": {"peaks": {"bf16": "400TFLOP/s"}, "memory_bandwidth": "2TB/s", "memory": "80GB"}}
"""


def test_an_accelerator_of_a_conftest_file(project: Any) -> None:
    project.pytester.makeconftest(ACCELERATORS)
    project.gates("decode.mbu >= 30%")
    (window,) = project.report("--llmroof-gpu=lab-card")["windows"]
    assert window["gpu"]["memory_bandwidth_bytes_per_second"] == 2e12
    project.run("--llmroof-list=gpus").stdout.fnmatch_lines(["lab-card *2 TB/s*80 GB*"])
    file = project.path / "llmroof.yaml"
    file.write_text(file.read_text().replace("gpu: h100", "gpu: lab-card"))
    assert project.report()["windows"][0]["gpu"]["name"] == "lab-card"


def test_a_duration_is_one_of_live_windows(project: Any) -> None:
    # The pages lie 60 s apart by their own clock.
    gate = "--llmroof-gate=output.tokens_per_second >= 1"
    project.run(*TELEMETRY, gate, "--llmroof-duration=1s").assert_outcomes(passed=1)
    project.gates("output.tokens_per_second >= 1")
    (window,) = project.report("--llmroof-duration=1s")["windows"]
    assert window["duration_seconds"] == pytest.approx(60.0)
    assert window["asked"]["duration_seconds"] is None
    project.pytester.makeini("[pytest]\nllmroof_duration = 1s\n")
    project.run().assert_outcomes(passed=1)


def test_files_without_a_clock_take_the_duration(project: Any) -> None:
    for page in ("before.prom", "after.prom"):
        text = (project.path / page).read_text()
        (project.path / page).write_text("".join(line for line in text.splitlines(True) if "scraped_at" not in line))
    project.gates("output.tokens_per_second >= 1")
    (window,) = project.report("--llmroof-duration=30s")["windows"]
    assert (window["duration_seconds"], window["asked"]["duration_seconds"]) == (30.0, 30.0)
    # What the gate file says of its own files stands.
    file = project.path / "llmroof.yaml"
    file.write_text(file.read_text().replace("    phase: decode\n", "    phase: decode\n    duration: 60s\n"))
    (window,) = project.report("--llmroof-duration=30s")["windows"]
    assert window["duration_seconds"] == 60.0
