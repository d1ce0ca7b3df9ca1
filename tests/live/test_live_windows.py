"""Windows of a duration: sampled while pytest runs, measured once, kept where asked."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

import pytest

GATES = "gates: [decode.mbu >= 30%, decode.mbu >= 75%, ttft.p99 <= 2s, running.last <= 20]"


def window(url: str, *more: str, name: str = "decode", gates: str = GATES, duration: str = "0.6s") -> str:
    lines = [f"{name}:", "  phase: decode", f"  telemetry: {url}", f"  duration: {duration}", "  interval: 0.1s"]
    return "\n".join([*lines, *(f"  {line}" for line in more), f"  {gates}"])


def test_a_server_is_sampled_once_for_all_gates(project: Any, server: Any, lasting: Any) -> None:
    project.gates(window(server.url))
    lasting(lambda: server.count() >= 4)
    began = time.monotonic()
    run = project.run()
    # A step moves 141 GB in 26.2 ms: 5.4 of the 13.4 TB/s that four H100 have.
    assert run.verdicts == ["pass", "fail", "pass", "pass"]
    assert run.window["measurements"]["decode.mbu"]["value"] == pytest.approx(0.40, abs=0.02)
    assert run.window["sources"] == [{"kind": "vllm", "location": server.url}]
    assert 0.6 <= run.window["duration_seconds"] < time.monotonic() - began
    # First and last scrape, and one each interval between: gauges become series.
    assert 4 < server.count() <= run.most_scrapes(0.1)
    assert run.window["measurements"]["running.last"]["samples"] >= 4


def test_workers_share_one_measurement(project: Any, server: Any) -> None:
    project.gates(window(server.url) + "\n" + window(server.url + "?other", name="second"))
    run = project.run("-n2")
    assert sorted(run.verdicts) == ["fail"] * 2 + ["pass"] * 6
    assert 4 <= server.count() <= run.most_scrapes(0.1)  # two windows, each once
    values = [each["measurements"]["decode.mbu"]["value"] for each in run.report["windows"]]
    assert values == [pytest.approx(0.40, abs=0.02)] * 2


@pytest.mark.parametrize("options", [(), ("-n2",)])
def test_failures_are_not_measured_again_either(project: Any, server: Any, options: tuple[str, ...]) -> None:
    from loopback import always

    server.answer = always(b"", 500)
    project.gates(window(server.url))
    run = project.run(*options, "--llmroof-unmeasured-exit=75")
    assert run.rc == 75
    assert run.verdicts == ["no data"] * 4
    assert run.reason("llmroof.yaml::decode") == f"{server.url} failed (500)"
    assert server.count() == 3  # one try, and two more as it may pass


def test_a_server_that_is_down(project: Any, refused: str) -> None:
    project.gates(window(f"{refused}/metrics"))
    run = project.run("--llmroof-unmeasured-exit=75")
    assert run.rc == 75
    assert run.verdicts == ["no data"] * 4
    assert f"NOT MEASURED: connection refused at {refused}/metrics" in run.one_line


def test_a_recording_replays_to_the_same_figures(project: Any, server: Any) -> None:
    project.gates(window(server.url))
    live = project.run("--llmroof-record=kept")
    section = live.text[live.text.index("= llmroof =") :]
    assert "llmroof: recorded kept/llmroof/decode" in section
    assert live.window["sources"] == [{"kind": "vllm", "location": "kept/llmroof/decode"}]
    manifest = json.loads((project.path / "kept/llmroof/decode/recording.json").read_text())
    assert manifest["ended"] == "duration"
    assert manifest["interval_seconds"] == 0.1
    count = server.count()
    project.gates(window("kept/llmroof/decode").replace("duration: 0.6s", "flops: model"))
    replayed = project.run()
    assert server.count() == count
    assert replayed.window["measurements"] == live.window["measurements"]
    assert replayed.verdicts == live.verdicts
    # A second run keeps its own: recordings are evidence.
    project.gates(window(server.url))
    assert "llmroof: recorded kept/llmroof/decode-2" in project.run("--llmroof-record=kept").text


def test_a_recording_of_workers_is_named_by_the_controller(project: Any, server: Any) -> None:
    project.gates(window(server.url))
    run = project.run("-n2", "--llmroof-record=kept")
    assert run.text.count("llmroof: recorded kept/llmroof/decode") == 1


def test_names_of_recordings_are_safe(project: Any, server: Any) -> None:
    project.gates(window(server.url, name='"../a b/ü?"', gates="gates: [ttft.p99 <= 2s]"))
    project.run("--llmroof-record=kept")
    assert [path.name for path in (project.path / "kept/llmroof").iterdir()] == ["a-b-ü"]


def test_a_folder_that_cannot_be_written_is_a_usage_error(project: Any, server: Any) -> None:
    project.gates(window(server.url))
    (project.path / "kept").touch()
    run = project.run("--llmroof-record=kept")
    assert run.rc == 4
    assert "is a file, not a folder" in run.one_line
    assert server.count() == 0


def test_repeats_show_all_values_and_judge_the_median(project: Any, server: Any) -> None:
    gates = "gates: [decode.step_time <= 1s, {gate: decode.mbu >= 30%, per: replica}]"
    project.gates(window(server.url, "repeat: 3", "warmup: 0.2s", gates=gates, duration="0.3s"))
    run = project.run("--llmroof-record=kept")
    assert run.verdicts == ["pass", "pass"]
    folders = sorted(path.name for path in (project.path / "kept/llmroof/decode").iterdir())
    assert folders == ["1", "2", "3"]
    (note,) = (note for note in run.window["notes"] if "median" in note)
    assert note.startswith("decode.step_time: median of 3 windows (26")
    assert note.count("ms") == 3
    assert "median of 3 windows" in run.window["measurements"]["decode.step_time"]["method"]


def test_a_warm_up_is_not_in_the_window(project: Any, server: Any) -> None:
    project.gates(window(server.url, "warmup: 0.5s"))
    began = time.monotonic()
    run = project.run()
    assert run.verdicts == ["pass", "fail", "pass", "pass"]
    assert 0.6 <= run.window["duration_seconds"] < time.monotonic() - began - 0.5


def test_it_waits_for_requests(project: Any, server: Any) -> None:
    # Ten requests a second finish (every fourth step of 26.2 ms).
    project.gates(window(server.url, "min_requests: 12", duration="0.2s"))
    run = project.run()
    assert run.verdicts == ["pass", "fail", "pass", "pass"]
    assert run.window["facts"]["finished_requests"] >= 12
    project.gates(window(server.url, "min_requests: 1000", "max_wait: 0.2s", duration="0.2s"))
    run = project.run()
    assert run.verdicts == ["no data"] * 4
    assert "of the 1000 requests asked for (min_requests) finished" in run.one_line


def test_options_set_length_and_interval(project: Any, server: Any, lasting: Any) -> None:
    lasting(lambda: server.count() >= 5)
    began = time.monotonic()
    run = project.run(
        "--llmroof-gpu=h100", "--llmroof-model=llama-3.1-70b", "--llmroof-deployment=tensor_parallel=4",
        f"--llmroof-telemetry={server.url}", "--llmroof-duration=0.4s", "--llmroof-interval=0.05s",
        "--llmroof-gate=decode.mbu >= 30%", "--llmroof-record=kept",
    )  # fmt: skip
    assert run.verdicts == ["pass"]
    assert 0.4 <= run.window["duration_seconds"] < time.monotonic() - began
    assert 5 < server.count() <= run.most_scrapes(0.05)
    assert "llmroof: recorded kept/llmroof/cli" in run.text


def test_servers_side_by_side_and_files_with_them(project: Any, server: Any, start_server: Any) -> None:
    other = start_server()
    (project.path / "notes.txt").write_text("not telemetry\n")
    sources = f"[{server.url}, {{url: '{other.url}', timeout: 5s}}, notes.txt]"
    project.gates(window(sources, gates="gates: [decode.mbu >= 30%, running.last >= 24]"))
    run = project.run()
    assert run.verdicts == ["pass", "pass"]
    assert run.window["facts"]["replicas"] == 2
    assert any(line.startswith("notes.txt") for line in run.window["unread"])


def test_a_variable_without_a_value_asks_nobody(project: Any, server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOKEN", raising=False)
    project.gates(window(f'{{url: "{server.url}", headers: {{Authorization: "Bearer ${{TOKEN}}"}}}}'))
    run = project.run()
    assert run.verdicts == ["no data"] * 4
    assert "environment variable $TOKEN is not set" in run.one_line
    assert server.count() == 0


def _refuse(*_: object, **__: object) -> None:
    raise AssertionError("the network was touched")


def test_nothing_touches_the_network_but_live_windows(project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, _refuse)
    for name in ("getaddrinfo", "gethostbyname"):
        monkeypatch.setattr(socket, name, _refuse)
    project.gates(window("http://some.host.invalid:8000/metrics"))
    project.pytester.makepyfile(
        "import pytest\n"
        "@pytest.mark.llmroof(telemetry='http://some.host.invalid/metrics')\n"
        "@pytest.mark.llmroof_gate('ttft.p99 <= 1s')\n"
        "def test_live(llmroof): pass\n"
        "def test_other(): pass\n"
    )
    listed = project.run("--collect-only", "-q")
    assert listed.rc == 0
    assert "llmroof.yaml::decode::ttft.p99 <= 2s" in listed.text
    run = project.run("-m", "not llmroof_live")
    assert run.rc == 0
    assert "1 passed, 5 deselected" in run.one_line
    chosen = project.run("-m", "llmroof_live")
    assert chosen.verdicts == ["no data"] * 5
    assert "1 deselected" in chosen.one_line
