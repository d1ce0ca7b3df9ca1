"""A DCGM exporter and nvidia-smi beside a live engine: sampled over HTTP, recorded, read back, gated."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from exporters import Exporter
from gpu_files import dcgm_page, hardware_of
from loopback import respond

from pytest_llmroof.telemetry.reading import read_window

#: What runs beside the load: nvidia-smi as it would print every 0.2 s on a machine at UTC+02:00.
SMI = """
import datetime, sys, time, urllib.request
east = datetime.timezone(datetime.timedelta(hours=2))
with open(sys.argv[1], "w") as file:
    print("timestamp, index, uuid, utilization.gpu [%], power.limit [W]", file=file)
    for number in range(6):
        now = f"{datetime.datetime.now(east):%Y/%m/%d %H:%M:%S.%f}"[:-3]
        print(f"{now}, 0, GPU-0, {90 + number} %, 700.00 W", file=file)
        time.sleep(0.2)
"""


def collecting(handler: BaseHTTPRequestHandler, asked: list[int]) -> None:
    """What dcgm-exporter shows: new figures with every scrape, and a total that grows by 100 J."""
    asked.append(len(asked))
    number = len(asked)
    figures = {
        "PROF_GR_ENGINE_ACTIVE": 0.9 + number / 10000, "PROF_SM_ACTIVE": 0.6, "PROF_DRAM_ACTIVE": 0.55,
        "PROF_PIPE_TENSOR_ACTIVE": 0.05, "DEV_POWER_USAGE": 400 + number,
        "DEV_TOTAL_ENERGY_CONSUMPTION": 100_000 * number,
    }  # fmt: skip
    respond(handler, dcgm_page(figures).encode())


def with_dcgm(server: Exporter) -> list[int]:
    asked: list[int] = []
    server.answers["/dcgm/metrics"] = lambda handler: collecting(handler, asked)
    return asked


def test_recorded_beside_the_engine(server: Exporter, tmp_path: Path) -> None:
    with_dcgm(server)
    script = tmp_path / "smi.py"
    script.write_text(SMI, encoding="utf-8")
    folder = tmp_path / "rec"
    dcgm = f"{server.address}/dcgm/metrics"
    ran = subprocess.run(
        [sys.executable, "-m", "pytest_llmroof", "record", f"--out={folder}", "--interval=0.2s", server.url, dcgm,
         "--", sys.executable, str(script), str(folder / "smi.csv")],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    window = read_window([(folder, "rec")])
    hardware = hardware_of(window)
    (gpu,) = hardware.gpus
    assert window.unread == ()
    assert (hardware.kinds, hardware.clocked) == (("dcgm", "nvidia-smi"), True)
    pages = len(list(folder.glob("*dcgm*.prom")))
    assert len(gpu.series["dram"].times) == pages
    assert gpu.counters["energy_joules"] == 100 * (pages - 1)
    # nvidia-smi tells what DCGM does not, on the same clock.
    assert gpu.series["utilization"].values[-1] == 0.95
    assert gpu.series["utilization"].times[0] >= gpu.series["dram"].times[0] - 5
    assert hardware.averaging_seconds is not None
    assert hardware.averaging_seconds < 2
    assert {one.kind for one in window.sources} == {"vllm", "dcgm", "nvidia-smi"}


def test_gated_live(server: Exporter, project: Any, lasting: Any) -> None:
    asked = with_dcgm(server)
    lasting(lambda: len(asked) > 5)
    project.gates(
        f"  w:\n    telemetry: ['{server.url}', '{server.address}/dcgm/metrics']\n"
        "    duration: 1s\n    interval: 0.1s\n    gates: [hardware.mbu >= 50%]\n"
    )
    run = project.run()
    assert run.verdicts == ["pass"], run.text
    measured = run.window["measurements"]["hardware.mbu"]
    assert abs(measured["value"] - 0.55) < 0.001
    assert len(asked) > 5
    assert {source["kind"] for source in run.window["sources"]} == {"vllm", "dcgm"}


def test_an_exporter_that_fails_is_told(start_server: Callable[[], Exporter], server: Exporter, project: Any) -> None:
    other = start_server()
    other.answer = lambda handler: respond(handler, b"<html>login</html>", content_type="text/html")
    project.gates(
        f"  w:\n    telemetry: ['{server.url}', '{other.url}']\n    duration: 0.5s\n    interval: 0.1s\n"
        "    gates: [hardware.mbu >= 50%]\n"
    )
    run = project.run()
    assert run.verdicts == ["no data"]
    assert "HTML" in run.one_line
