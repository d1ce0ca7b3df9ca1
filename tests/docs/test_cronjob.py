"""The CronJob of the page on fleets: what a cluster would run, run here against a real Prometheus."""

from __future__ import annotations

import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import loopback
import pytest
import yaml
from docpages import ROOT, blocks
from fleets import fleet, program, prometheus
from loopback import respond
from prometheus_client.parser import text_string_to_metric_families
from vllm_pages import Load

PAGE = ROOT / "docs" / "fleets.md"
TOKEN = "fl33t-s3cr3t-t0ken"
HOUR = 3600.0
#: ITL of 9 ms: within both limits of the page (12 and 15 ms).
CALM = Load(
    model="meta-llama/Llama-3.1-8B-Instruct", seconds=HOUR, output=500, hit_rate=0.995, itl=0.009, batch=24,
    context=1500, running=24,
)  # fmt: skip
#: 13.5 ms: above the 12 ms of the fleet, below the 15 ms of each replica.
SLOW = replace(CALM, itl=0.0135)


def manifests() -> tuple[dict[str, Any], dict[str, Any]]:
    """The ConfigMap and the CronJob."""
    (text,) = (block.text for block in blocks(PAGE.read_text(encoding="utf-8")) if "kind: CronJob" in block.text)
    gates, job = yaml.safe_load_all(text)
    return gates, job


def pod() -> dict[str, Any]:
    """The specification of the Job's pod."""
    spec: dict[str, Any] = manifests()[1]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    return spec


@dataclass
class Night:
    """What a Job left behind."""

    rc: int
    log: str
    reports: Path
    pushed: list[str]

    def everything(self) -> str:
        """All that was written, anywhere."""
        files = [path.read_text(encoding="utf-8") for path in self.reports.iterdir()]
        return "\n".join([self.log, *files, *self.pushed])


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Callable[[Load | None], Night]]:
    """The volumes of the pod, and a shell that runs its container over a fleet of one load (None: it is away)."""
    gates, _ = manifests()
    (container,) = pod()["containers"]
    (script,) = container["args"]
    assert container["command"] == ["sh", "-c"]
    for name in ("gates/..data", "reports", "secrets", "bin", "scratch"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "secrets/token").write_text(f"{TOKEN}\n", encoding="utf-8")
    for name, line in (("python", ""), ("pytest", " -m pytest"), ("pip", " -c pass")):
        (tmp_path / "bin" / name).write_text(f'#!/bin/sh\nexec "{sys.executable}"{line} "$@"\n', encoding="utf-8")
        (tmp_path / "bin" / name).chmod(0o755)
    behind: list[str] = []
    pushed: list[str] = []
    with _door(behind, pushed) as port:
        addresses = {"http://prometheus.monitoring:9090": port, "http://pushgateway.monitoring:9091": port}

        def here(text: str) -> str:
            for address, to in addresses.items():
                text = text.replace(address, f"http://127.0.0.1:{to}")
            text = re.sub(r"(?<![\w/])/(gates|reports|secrets)\b", rf"{tmp_path}/\1", text)
            return text.replace("/tmp/llmroof.prom", f"{tmp_path}/scratch/llmroof.prom")

        # Kubernetes mounts a ConfigMap's keys as links into a hidden folder.
        (tmp_path / "gates/..data/llmroof.yaml").write_text(here(gates["data"]["llmroof.yaml"]), encoding="utf-8")
        (tmp_path / "gates/llmroof.yaml").symlink_to("..data/llmroof.yaml")

        def run(load: Load | None) -> Night:
            pushed.clear()
            behind.clear()
            if load is None:
                return night()
            now = time.time()
            samples = (sample for replica in fleet(load, 3, now) for sample in replica.series())
            folder = tmp_path / f"prometheus-{load.itl}"
            folder.mkdir()
            with prometheus(folder, samples) as url:
                behind.append(url)
                return night()

        def night() -> Night:
            done = subprocess.run(
                ["sh", "-c", here(script)], text=True, timeout=300, check=False, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, env={"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "HOME": str(tmp_path)},
            )  # fmt: skip
            return Night(done.returncode, done.stdout, tmp_path / "reports", list(pushed))

        yield run


def _door(behind: list[str], pushed: list[str]) -> Any:
    """What stands before Prometheus and asks for the token; it also takes what is pushed."""

    class Door(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.forwarded(body)

        def do_GET(self) -> None:
            self.forwarded(None)

        def forwarded(self, body: bytes | None) -> None:
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                return respond(self, b"who are you?", 401)
            if not behind:
                return respond(self, b"away", 404)
            kind = {"Content-Type": self.headers.get("Content-Type", "")} if body is not None else {}
            request = urllib.request.Request(behind[0] + self.path, body, kind)
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    respond(self, answer.read(), answer.status, answer.headers["Content-Type"])
            except urllib.error.HTTPError as error:
                respond(self, error.read(), error.code, error.headers["Content-Type"])

        def do_PUT(self) -> None:
            assert self.path == "/metrics/job/llmroof"
            pushed.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
            respond(self, b"")

    return loopback.serving(Door)


def gates_in(text: str, family: str) -> dict[str, float]:
    """The samples of a family by the gate's id."""
    (found,) = (each for each in text_string_to_metric_families(text) if each.name == family)
    return {sample.labels["id"]: sample.value for sample in found.samples}


def test_nights_are_judged_kept_and_pushed(cluster: Callable[[Load | None], Night]) -> None:
    calm = cluster(CALM)
    assert calm.rc == 0, calm.log
    assert len(list(calm.reports.glob("20*T*.json"))) == 1
    assert len(list(calm.reports.glob("20*T*.html"))) == 1
    (text,) = calm.pushed
    assert gates_in(text, "llmroof_gate_passed") == {"FLEET-1": 1, "FLEET-2": 1}

    time.sleep(1.0 - time.time() % 1.0)  # reports are named by their second
    slow = cluster(SLOW)
    assert slow.rc == 1, slow.log
    line = " ".join(slow.log.split())
    assert "found 13.5 ms, expected itl.mean <= 12 ms" in line
    assert "CHANGE decode step 9.0 -> 13.5 ms (+4.5) against" in line
    (text,) = slow.pushed
    assert gates_in(text, "llmroof_gate_passed") == {"FLEET-1": 0, "FLEET-2": 1}
    assert TOKEN not in slow.everything()


def test_a_night_without_prometheus_is_tried_again_and_pushes_no_value(
    cluster: Callable[[Load | None], Night],
) -> None:
    away = cluster(None)
    assert away.rc == 75, away.log
    (text,) = away.pushed
    assert gates_in(text, "llmroof_gate_judged") == {"FLEET-1": 0, "FLEET-2": 0}
    assert "llmroof_measurement{" not in text
    assert TOKEN not in away.everything()


def test_the_job_tries_again_only_what_was_not_measured() -> None:
    gates, job = manifests()
    assert (gates["kind"], job["kind"], job["apiVersion"]) == ("ConfigMap", "CronJob", "batch/v1")
    spec = job["spec"]["jobTemplate"]["spec"]
    # Kubernetes refuses a podFailurePolicy beside any other restart policy.
    assert spec["template"]["spec"]["restartPolicy"] == "Never"
    fails, ignores = spec["podFailurePolicy"]["rules"]
    assert fails["action"] == "FailJob"
    assert fails["onExitCodes"]["values"] == [1, 2, 4, 5]  # docs/gates.md, Exit codes; 75 is none of them
    assert fails["onExitCodes"]["containerName"] == pod()["containers"][0]["name"]
    assert ignores == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    assert spec["backoffLimit"] == 2
    # A second Job of one night would wait for the first.
    assert job["spec"]["concurrencyPolicy"] == "Forbid"


def test_every_mounted_volume_is_there_and_the_secret_is_in_no_variable() -> None:
    gates, job = manifests()
    (container,) = pod()["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod()["volumes"]}
    volumes = {volume["name"]: volume for volume in pod()["volumes"]}
    assert volumes["gates"]["configMap"]["name"] == gates["metadata"]["name"]
    assert "secretName" in volumes["secrets"]["secret"]
    assert "env" not in container
    (script,) = container["args"]
    assert "token" not in script
    told = re.findall(r'secret generic (\S+)', PAGE.read_text(encoding="utf-8"))
    assert told == [volumes["secrets"]["secret"]["secretName"]]
    assert job["metadata"]["name"] == "llmroof-fleet"  # the alerts ask for it


def test_the_alerts_are_rules_of_prometheus(tmp_path: Path) -> None:
    (rules,) = (block.text for block in blocks(PAGE.read_text(encoding="utf-8")) if "alert: Fleet" in block.text)
    path = tmp_path / "rules.yaml"
    path.write_text(rules, encoding="utf-8")
    done = subprocess.run(
        [program("promtool"), "check", "rules", str(path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "2 rules found" in done.stdout
    assert manifests()[1]["metadata"]["name"] in rules
