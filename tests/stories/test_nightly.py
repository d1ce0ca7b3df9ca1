"""A performance engineer's nightly gates: the recorder around a load, then gates on what it kept."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from loopback import CONTENT_TYPE, respond, serving
from vllm_pages import Load, page

LOAD = """
import sys, time, urllib.request
# Each step asks the server to move on; its answer says when the load is over.
while urllib.request.urlopen(sys.argv[1] + "/step").read() == b"more":
    time.sleep(0.05)
sys.exit(int(sys.argv[2]))
"""


#: Three seconds of the clock stand for a load that ran 3 s: 60 steps of 50 ms.
STEPS = 60
BUSY = Load(
    model="meta-llama/Llama-3.1-8B-Instruct", batch=24, context=1500, output=100, itl=0.009, seconds=3.0, running=24
)
IDLE = replace(BUSY, running=0, kv_usage=0.0)


@pytest.fixture
def moving() -> Iterator[str]:
    """The address of an exporter whose counters move with every ``/step``."""
    done = 0

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            nonlocal done
            if self.path == "/step":
                done += 1
                respond(self, b"more" if done < STEPS else b"over")
            else:
                text = page(BUSY if 0 < done < STEPS else IDLE, 0.1 + done / STEPS, None)
                respond(self, text.encode(), content_type=CONTENT_TYPE)

    with serving(Handler) as port:
        yield f"http://127.0.0.1:{port}"


def record(pytester: pytest.Pytester, server: str, exit_code: int) -> subprocess.CompletedProcess[str]:
    (pytester.path / "load.py").write_text(LOAD)
    command = [
        sys.executable, "-m", "pytest_llmroof", "record", "--out=rec/night1", "--interval=0.2s",
        f"{server}/metrics", "--", sys.executable, "load.py", server, str(exit_code),
    ]  # fmt: skip
    return subprocess.run(command, cwd=pytester.path, capture_output=True, text=True, check=False, timeout=300)


def scrapes(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.prom"))


GATES = """
model: llama-3.1-8b
deployment: {tensor_parallel: 1, weights: bf16}
windows:
  decode: {telemetry: "${NIGHT}", gates: ["decode.mbu >= 0.97x baseline", "kv_cache.usage.max <= 95%"]}
"""


def test_the_recorder_frames_a_load_and_a_gauge_is_known_from_its_samples(
    pytester: pytest.Pytester, moving: str, gate: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = record(pytester, moving, 0)
    assert done.returncode == 0, done.stderr
    recorded = scrapes(pytester.path / "rec" / "night1")
    assert len(recorded) >= 10
    assert all(path.read_text().startswith("# scraped_at ") for path in recorded)

    monkeypatch.setenv("NIGHT", "rec/night1")
    run = gate(GATES, "--llmroof-gpu=h100", "--llmroof-label=engine=vllm-0.33.0", name="perf.llmroof.yaml")
    assert run.rc == 1
    assert run.verdicts == ["no data", "pass"]
    assert "no baseline" in run.one_line
    assert run.report["labels"] == {"engine": "vllm-0.33.0"}

    # The same recording, thinned to its ends: the gauge between them is not known any more.
    for path in recorded[1:-1]:
        path.unlink()
    thinned = gate(None, "--llmroof-gpu=h100", "perf.llmroof.yaml")
    assert thinned.verdicts == ["no data", "no data"]
    assert "2 samples" in thinned.one_line


def test_the_load_s_exit_code_is_the_recorder_s_and_the_folder_is_kept(
    pytester: pytest.Pytester, moving: str
) -> None:
    assert record(pytester, moving, 7).returncode == 7
    assert len(scrapes(pytester.path / "rec" / "night1")) >= 10


def test_a_variable_that_is_not_set_is_named(gate: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NIGHT", raising=False)
    run = gate(GATES, "--llmroof-gpu=h100", name="perf.llmroof.yaml")
    assert run.rc == 1
    assert run.verdicts == ["no data", "no data"]
    assert "NIGHT" in run.one_line
