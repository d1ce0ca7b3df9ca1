"""Ctrl-C between gates: every report that was asked for is whole, and lists what did not run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from reportschema import valid

from pytest_llmroof.formats import REPORT_WRITERS

#: Ctrl-C reaches every process of the terminal's foreground: here, of the run's own group.
INTERRUPTS = """
import os, signal

judged = []

def pytest_runtest_logreport(report):
    if report.when == "call" and "PYTEST_XDIST_WORKER" not in os.environ:
        judged.append(report.nodeid)
        if len(judged) == 2:
            os.killpg(os.getpgid(0), signal.SIGINT)
"""


@pytest.mark.parametrize("workers", [(), ("-n2",)], ids=["alone", "two workers"])
def test_ctrl_c_between_gates(project: Any, workers: tuple[str, ...]) -> None:
    count = 60
    project.gates(*(f"decode.mbu >= {place + 1}%" for place in range(count // 2)))
    project.gates(*(f"itl.mean <= {place + 50}ms" for place in range(count // 2)), window="later")
    project.pytester.makeconftest(INTERRUPTS)
    reports = [f"--llmroof-report=out/report{ending}" for ending in REPORT_WRITERS]
    environment = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *reports, *workers],
        cwd=project.path, env=environment, capture_output=True, text=True, check=False, timeout=300,
        start_new_session=True,
    )  # fmt: skip
    assert run.returncode == pytest.ExitCode.INTERRUPTED, run.stdout + run.stderr
    written = {ending: (project.path / f"out/report{ending}").read_text() for ending in REPORT_WRITERS}
    document = valid(json.loads(written[".json"]))
    rows = [row for window in document["windows"] for row in window["gates"]]
    # Each worker was given a few before the first came back.
    judged = [row for row in rows if row["verdict"] != "not run"]
    missing = [row for row in rows if row["verdict"] == "not run"]
    assert len(rows) + len(document["not_run"]) == count
    assert 2 <= len(judged) < count
    assert {row["reason"] for row in (*missing, *document["not_run"])} == {"the run stopped before it"}
    assert document["summary"]["not run"] == count - len(judged)
    assert sum(name.startswith(".") for name in os.listdir(project.path / "out")) == 0
    cases = list(ET.fromstring(written[".xml"]).iter("testcase"))
    assert len(cases) == count
    assert sum(case.find("skipped") is not None for case in cases) == count - len(judged)
    assert written[".md"].count("\n- [x] ") == sum(row["verdict"] == "pass" for row in judged)
    assert "</html>" in written[".html"]
    assert list(text_string_to_metric_families(written[".prom"]))
