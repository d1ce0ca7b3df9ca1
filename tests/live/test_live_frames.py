"""Windows around what a test does: its body, or a ``with`` block."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from loopback import always

MARK = """
import os, time, urllib.request, pytest
URL = os.environ["SERVER"]
LLMROOF = pytest.mark.llmroof(
    gpu="h100", model="llama-3.1-70b", deployment={"tensor_parallel": 4, "weights": "bf16"}, interval="0.05s",
    telemetry=URL, phase="decode",
)

def drive(seconds=0.4):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        urllib.request.urlopen(URL.replace("/metrics", "/load")).read()
        time.sleep(0.02)
"""


@pytest.fixture
def module(project: Any, server: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes a test module whose load goes to the server."""
    monkeypatch.setenv("SERVER", server.url)
    server.answers["/load"] = always(b"done")

    def write(source: str) -> None:
        (project.path / "test_it.py").write_text(MARK + source, encoding="utf-8")

    return write


def test_a_body_is_a_window(project: Any, server: Any, module: Any) -> None:
    module(
        "@LLMROOF\n@pytest.mark.llmroof_gate('decode.mbu >= 30%', 'ttft.p99 <= 2s')\ndef test_good(): drive()\n"
        "@LLMROOF\n@pytest.mark.llmroof_gate('decode.mbu >= 75%', 'ttft.p99 <= 1ms')\ndef test_bad(): drive()\n"
        "@LLMROOF\n@pytest.mark.llmroof_gate('decode.mbu >= 30%')\ndef test_fails():\n    drive(0.1)\n    assert 0\n"
        "@LLMROOF\n@pytest.mark.llmroof_gate('decode.mbu >= 30%')\ndef test_skips(): pytest.skip('no')\n"
    )
    began = time.monotonic()
    run = project.run("--llmroof-record=kept")
    assert "2 failed, 1 passed, 1 skipped" in run.one_line
    words = {
        name.split("::")[1]: [gate["verdict"] for gate in window["gates"]] for name, window in run.windows.items()
    }  # fmt: skip
    assert words == {
        "test_good": ["pass", "pass"], "test_bad": ["fail", "fail"], "test_fails": ["not judged"],
        "test_skips": ["not judged"],
    }  # fmt: skip
    assert 0.4 <= run.windows["test_it.py::test_good"]["duration_seconds"] < time.monotonic() - began
    assert "llmroof: recorded kept/test_it/test_good" in run.text
    manifest = json.loads((project.path / "kept/test_it/test_good/recording.json").read_text())
    assert manifest["ended"] == "block"


def test_a_body_is_lengthened_to_its_mark_s_duration_only(project: Any, server: Any, module: Any) -> None:
    gate = "@pytest.mark.llmroof_gate('ttft.p99 <= 2s')\n"
    module(
        f"@LLMROOF\n@pytest.mark.llmroof(duration='3s')\n{gate}def test_longer(): drive(0.1)\n"
        f"@LLMROOF\n{gate}def test_own(): drive(0.3)\n"
    )
    run = project.run("--llmroof-duration=600s", "-k", "own")
    assert run.verdicts == ["pass"]
    run = project.run()
    assert run.windows["test_it.py::test_longer"]["duration_seconds"] >= 3
    assert run.windows["test_it.py::test_own"]["duration_seconds"] < 3


def test_a_block_is_a_window(project: Any, server: Any, module: Any) -> None:
    module(
        "@LLMROOF\ndef test_it(llmroof):\n"
        "    with llmroof.window(phase='decode') as window:\n        drive(1.5)\n"
        "    window.check('decode.mbu >= 30%')\n"
        "    assert window['output.tokens_per_second'].value == pytest.approx(470, rel=0.3)\n"
        "    with llmroof.window(phase='decode') as second: drive(0.3)\n"
        "    second.check('ttft.p99 <= 1ms')\n"
    )
    run = project.run("--llmroof-record=kept", "--showlocals")
    assert run.rc == 1
    assert run.verdicts == ["pass", "fail"]
    assert sorted(path.name for path in (project.path / "kept/test_it").iterdir()) == [
        "test_it-window-1", "test_it-window-2",
    ]  # fmt: skip
    (project.path / "test_it.py").write_text(
        MARK + "@LLMROOF\ndef test_it(llmroof):\n"
        "    with llmroof.window(telemetry='kept/test_it/test_it-window-2') as window: pass\n"
        "    window.check('ttft.p99 <= 1ms')\n"
    )
    replayed = project.run()
    assert replayed.window["measurements"] == run.report["windows"][1]["measurements"]


def test_an_open_window_is_not_read(project: Any, server: Any, module: Any) -> None:
    module(
        "@LLMROOF\ndef test_block(llmroof):\n"
        "    with llmroof.window() as window: window['ttft.p99']\n"
        "@LLMROOF\n@pytest.mark.llmroof_gate('ttft.p99 <= 2s')\ndef test_body(llmroof): llmroof['ttft.p99']\n"
        "@LLMROOF\ndef test_twice(llmroof):\n"
        "    with llmroof.window() as window: pass\n"
        "    with window: pass\n"
        "@LLMROOF\ndef test_never(llmroof): llmroof.window().check('ttft.p99 <= 2s')\n"
    )
    run = project.run()
    assert "4 failed" in run.one_line
    assert run.text.count("the window is still open: read it after the `with` block") >= 2
    assert "a window covers one block" in run.text
    assert "drive the load in `with llmroof.window() as window:`" in run.one_line


def test_a_warm_up_and_requests_of_a_block(project: Any, server: Any, module: Any) -> None:
    module(
        "@LLMROOF\ndef test_warm(llmroof):\n"
        "    began = time.monotonic()\n"
        "    with llmroof.window(warmup='0.3s') as window: drive(0.8)\n"
        "    with open('took', 'w') as file: file.write(str(time.monotonic() - began))\n"
        "    window.check('decode.mbu >= 30%')\n"
        "@LLMROOF\ndef test_short(llmroof):\n"
        "    with llmroof.window(warmup='30s') as window: drive(0.1)\n"
        "    window.check('decode.mbu >= 30%')\n"
        "@LLMROOF\ndef test_few(llmroof):\n"
        "    with llmroof.window(min_requests=1000) as window: drive(0.2)\n"
        "    window.check('decode.mbu >= 30%')\n"
    )
    run = project.run()
    words = {name.split("::")[1]: window["gates"][0]["verdict"] for name, window in run.windows.items()}
    assert words == {"test_warm": "pass", "test_short": "no data", "test_few": "no data"}
    took = float((project.path / "took").read_text())
    assert run.windows["test_it.py::test_warm::window 1"]["duration_seconds"] <= took - 0.3
    assert "the load ended within the warm-up of 30 s" in run.one_line
    assert "of the 1000 requests asked for" in run.one_line


def test_a_server_that_is_down_or_goes_meanwhile(project: Any, server: Any, module: Any) -> None:
    module(
        "@LLMROOF\n@pytest.mark.llmroof_gate('ttft.p99 <= 2s')\ndef test_it(): drive(0.3)\n"
    )  # fmt: skip
    server.answers["/metrics"] = always(b"", 401)
    run = project.run("--llmroof-unmeasured-exit=75")
    assert run.rc == 75
    assert run.verdicts == ["no data"]
    asked = server.count()

    def half(handler: Any) -> None:
        from loopback import respond

        respond(handler, b"", 500) if server.count() > asked + 3 else respond(handler, server.process.page())

    server.answers["/metrics"] = half
    run = project.run("--llmroof-unmeasured-exit=75")
    assert run.rc == 75
    assert "did not answer to the window's end" in run.one_line


RERUN = """
from _pytest.runner import runtestprotocol

def pytest_runtest_protocol(item, nextitem):
    # What pytest-rerunfailures does with the attempts before the last.
    for report in runtestprotocol(item, nextitem=nextitem, log=False):
        report.outcome = "rerun"
        item.ihook.pytest_runtest_logreport(report=report)
"""


def test_a_rerun_judges_the_same_window(project: Any, server: Any, module: Any) -> None:
    module("@LLMROOF\n@pytest.mark.llmroof_gate('ttft.p99 <= 1ms')\ndef test_it(): drive(0.3)\n")
    project.pytester.makeconftest(RERUN)
    run = project.run("--llmroof-record=kept")
    assert run.verdicts == ["fail"]
    assert len(list((project.path / "kept/test_it").iterdir())) == 1


def test_a_body_that_failed_is_measured_when_it_is_run_again(project: Any, server: Any, module: Any) -> None:
    module(
        "FIRST = []\n@LLMROOF\n@pytest.mark.llmroof_gate('ttft.p99 <= 2s')\ndef test_it():\n"
        "    drive(0.3)\n    FIRST.append(1)\n    assert len(FIRST) > 1\n"
    )
    project.pytester.makeconftest(RERUN)
    run = project.run()
    assert run.rc == 0
    assert run.verdicts == ["pass"]


def test_a_window_wider_than_a_test(project: Any, server: Any, module: Any) -> None:
    module(
        "@pytest.fixture(scope='module')\ndef load(llmroof_factory):\n"
        "    with llmroof_factory.window(gpu='h100', model='llama-3.1-70b', telemetry=URL, phase='decode',\n"
        "            deployment={'tensor_parallel': 4}, interval='0.05s') as window: drive()\n"
        "    return window\n"
        "def test_one(load): load.check('decode.mbu >= 30%')\n"
        "def test_two(load): assert load['ttft.mean'].value < 2\n"
    )
    run = project.run()
    assert run.rc == 0
    assert run.window["id"] == "test_it.py::decode"
    assert run.verdicts == ["pass"]


def test_loads_of_two_workers_do_not_overlap(project: Any, server: Any, module: Any) -> None:
    """Each load holds a flag on the server while it runs; it fails where it finds another's."""
    flag = {"held": 0, "worst": 0}

    def enter(handler: Any) -> None:
        from loopback import respond

        flag["held"] += 1
        flag["worst"] = max(flag["worst"], flag["held"])
        respond(handler, b"in")

    def leave(handler: Any) -> None:
        from loopback import respond

        flag["held"] -= 1
        respond(handler, b"out")

    server.answers |= {"/enter": enter, "/leave": leave}
    module(
        "def step(name): urllib.request.urlopen(URL.replace('/metrics', name)).read()\n"
        "@LLMROOF\n@pytest.mark.parametrize('number', range(4))\n@pytest.mark.llmroof_gate('ttft.p99 <= 2s')\n"
        "def test_it(number):\n    step('/enter')\n    drive(0.3)\n    step('/leave')\n"
    )
    run = project.run("-n2")
    assert run.verdicts == ["pass"] * 4
    assert flag == {"held": 0, "worst": 1}
