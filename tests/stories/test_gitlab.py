"""A release on GitLab: the script of the documentation's job, run as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import chromium
import pytest
import yaml
from exporters import Exporter, serving
from junit_readers import gitlab

PAGE = Path(__file__).parents[2] / "docs" / "ci-gitlab.md"
TOKEN = "glpat-s3cr3t-t0ken"
COMMIT = "3f1c2ab9d0e44c7f8a6b5d4c3b2a190817263544"
GATES = """\
gpu: h100
model: llama-3.1-70b
deployment: {tensor_parallel: 4, weights: bf16}
windows:
  decode:
    phase: decode
    telemetry: {url: "URL", headers: {Authorization: "Bearer ${TOKEN}"}}
    duration: 2s
    interval: 200ms
    gates:
      - {gate: decode.mbu >= LIMIT, id: REL-7}
      - {gate: itl.mean <= 1s, id: REL-8}
"""


def scripts() -> list[str]:
    """The lines of the job's script, without the installation."""
    (block,) = re.findall(r"```yaml\n(# \.gitlab-ci\.yml\n.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    job = yaml.safe_load(block)["perf-gate"]
    assert job["artifacts"]["reports"]["junit"] == "gl.xml"
    assert job["artifacts"]["paths"] == ["checklist.md", "report.html"]
    assert job["artifacts"]["when"] == "always"
    assert job["retry"]["exit_codes"] == [75]
    installation, *lines = job["script"]
    assert installation == "pip install pytest-llmroof"
    return [str(line) for line in lines]


@dataclass(frozen=True)
class Job:
    """What a job left: its exit code, its log and its artifacts."""

    rc: int
    log: str
    folder: Path

    @property
    def junit(self) -> str:
        return (self.folder / "gl.xml").read_text(encoding="utf-8")

    @property
    def checklist(self) -> str:
        return (self.folder / "checklist.md").read_text(encoding="utf-8")

    @property
    def cases(self) -> dict[str, ET.Element]:
        return {case.attrib["name"]: case for case in ET.fromstring(self.junit.encode()).iter("testcase")}


Runner = Callable[..., Job]


@pytest.fixture
def job(tmp_path: Path) -> Runner:
    """Write the gate file and run the script in a shell, as a runner does."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "pytest").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pytest -p no:cacheprovider "$@"\n')
    (programs / "pytest").chmod(0o755)
    project = tmp_path / "project"
    project.mkdir()

    def run(gates: str | None, *more: str) -> Job:
        if gates is not None:
            (project / "llmroof.yaml").write_text(gates, encoding="utf-8")
        script = "set -e\n" + "\n".join(" ".join([line, *more]) for line in scripts())
        environment = {
            "PATH": f"{programs}:/usr/bin:/bin", "CI": "true", "GITLAB_CI": "true", "CI_COMMIT_SHA": COMMIT,
            "TOKEN": TOKEN, "HOME": str(tmp_path),
        }  # fmt: skip
        done = subprocess.run(
            ["bash", "-c", script], cwd=project, env=environment, text=True, timeout=300, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return Job(done.returncode, done.stdout, project)

    return run


@pytest.fixture
def server() -> Iterator[Exporter]:
    with serving(Exporter()) as exporter:
        yield exporter


def gates(url: str, limit: str = "99%") -> str:
    return GATES.replace("URL", url).replace("LIMIT", limit)


def not_ticked(checklist: str) -> list[str]:
    return [line for line in checklist.partition("## Not ticked")[2].partition("\n## ")[0].splitlines() if line]


def test_a_breach_blocks_and_every_view_says_why(job: Runner, server: Exporter) -> None:
    done = job(gates(server.url))
    assert done.rc == 1, done.log
    assert {headers.get("Authorization") for _, headers in server.asked} == {f"Bearer {TOKEN}"}
    failed = [(case, failure) for case in done.cases.values() if (failure := case.find("failure")) is not None]
    ((case, failure),) = failed
    message = failure.attrib["message"]
    assert failure.attrib["type"] == "llmroof.fail"
    assert len(message) <= 200
    assert "\n" not in message
    assert re.search(r"found \d+\.\d %, expected decode\.mbu >= 99 % \(.*short\); scenario .*\[REL-7\]$", message)
    assert (failure.text or "").startswith(message + "\n  in words  ")
    line = next(n for n, text in enumerate(gates(server.url).splitlines(), 1) if "REL-7" in text)
    assert (case.get("file"), case.get("line")) == ("llmroof.yaml", str(line))
    for text in (done.junit, done.checklist, (done.folder / "report.html").read_text(encoding="utf-8"), done.log):
        assert TOKEN not in text
        assert "\x1b" not in text
    for text in (done.junit, done.checklist, (done.folder / "report.html").read_text(encoding="utf-8")):
        assert str(done.folder) not in text
        assert COMMIT in text
    assert re.search(r"^- \[ \] REL-7 decode MBU >= 99 % \(measured \d+\.\d %", done.checklist, re.MULTILINE)
    assert re.search(r"^- \[x\] REL-8 ITL mean <= 1 s \(measured ", done.checklist, re.MULTILINE)
    (reason,) = not_ticked(done.checklist)
    assert re.fullmatch(r"- REL-7 decode MBU >= 99 %: Tokens come .* than this hardware's memory allows.*\.", reason)


def test_the_page_says_first_that_it_is_blocked(job: Runner, server: Exporter, browser: chromium.Browser) -> None:
    done = job(gates(server.url))
    with chromium.opened(browser, done.folder / "report.html", width=390) as tab:
        text = " ".join(str(tab.evaluate("document.body.innerText")).split())
    assert text.startswith("Blocked: 1 of 2 gates failed")


def test_a_server_that_is_away_is_not_measured_and_retried(job: Runner, server: Exporter) -> None:
    done = job(gates("http://127.0.0.1:9/metrics"))
    assert done.rc == 75, done.log
    kinds = {failure.attrib["type"] for case in done.cases.values() for failure in case.iter("failure")}
    assert kinds == {"llmroof.no_data"}
    assert re.search(r"^- \[ \] REL-7 .* \(not measured: .*connection refused", done.checklist, re.MULTILINE)
    assert "**Blocked: 2 of 2 gates were not measured**" in done.checklist


def test_a_breach_beside_a_server_that_is_away_is_a_regression(job: Runner, server: Exporter) -> None:
    away = gates("http://127.0.0.1:9/metrics").partition("windows:\n")[2].replace("  decode:\n", "  other:\n")
    done = job(gates(server.url) + away.replace("REL-", "OTHER-"))
    assert done.rc == 1, done.log
    kinds = sorted(one.attrib["type"] for case in done.cases.values() if (one := case.find("failure")) is not None)
    assert kinds == ["llmroof.fail", "llmroof.no_data", "llmroof.no_data"]


def test_a_gate_file_of_another_name_is_not_green(job: Runner, tmp_path: Path) -> None:
    done = job(gates("http://127.0.0.1:9/metrics"))
    (done.folder / "llmroof.yaml").rename(done.folder / "llm-roof.yml")
    (done.folder / "test_unit.py").write_text("def test_unit():\n    pass\n")
    command = [str(tmp_path / "bin" / "pytest"), "--llmroof-gpu=h100"]
    run = subprocess.run(command, cwd=done.folder, capture_output=True, text=True, check=False)
    assert run.returncode == 4
    assert re.search(r"no gate was collected.*llm-roof\.yml.*rename.*llmroof\.yaml", run.stdout + run.stderr, re.DOTALL)


def test_a_changed_limit_keeps_classname_and_name(job: Runner, server: Exporter) -> None:
    seen = []
    for limit in ("99%", "98%"):
        done = job(gates(server.url, limit))
        seen.append({(one.group, one.name): one.state for one in gitlab(done.junit)})
    assert seen[0] == seen[1] == {
        ("llmroof.yaml.decode", "REL-7 decode.mbu"): "failed", ("llmroof.yaml.decode", "REL-8 itl.mean"): "passed",
    }  # fmt: skip


def test_an_id_runs_exactly_its_gate(job: Runner, server: Exporter) -> None:
    done = job(gates(server.url), "-k", "REL-8")
    assert done.rc == 0, done.log
    assert "1 passed, 1 deselected" in done.log
    assert {one.name: one.state for one in gitlab(done.junit)} == {
        "REL-7 decode.mbu": "skipped", "REL-8 itl.mean": "passed",
    }  # fmt: skip
    assert "- [ ] REL-7 decode MBU >= 99 % (not run: deselected)" in done.checklist


def test_without_live_gates_no_socket_is_opened(job: Runner, server: Exporter, tmp_path: Path) -> None:
    guard = "import socket\ndef refuse(*args, **kwargs): raise AssertionError('a socket was opened')\n"
    (tmp_path / "project" / "conftest.py").write_text(guard + "socket.socket.connect = refuse\n")
    done = job(gates(server.url), "-m", "'not llmroof_live'")
    assert done.rc == 5, done.log
    assert "2 deselected" in done.log
    assert server.asked == []
