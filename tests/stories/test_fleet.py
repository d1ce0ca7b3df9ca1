"""An on-call engineer at night: a fleet behind a real Prometheus, gated from the command line."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from fleets import Replica, fleet, prometheus, requests_in
from vllm_pages import Load

HOUR = 3600.0
YESTERDAY = datetime.fromisoformat("2026-11-28T03:00:00Z").timestamp()
TONIGHT = datetime.fromisoformat("2026-11-29T03:00:00Z").timestamp()
#: When one replica leaves: its last scrape is that of 02:41:52.
LEFT = TONIGHT - 18 * 60 - 1

#: Nearly every prompt is found in the prefix cache: the steps are decode steps, without prefill between.
EIGHT_B = Load(model="meta-llama/Llama-3.1-8B-Instruct", seconds=HOUR, output=500, hit_rate=0.995)
CALM = replace(EIGHT_B, itl=0.009, batch=24, context=1500, running=24)
BUSY = replace(EIGHT_B, itl=0.0143, batch=40, context=3000, running=40)


def tonight(replicas: int) -> list[Replica]:
    there = fleet(BUSY, replicas, TONIGHT)
    return [*there[:-1], replace(there[-1], scraped=(TONIGHT - HOUR, LEFT))]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A Prometheus with both hours, and the file in which it logs every query."""
    folder = tmp_path_factory.mktemp("fleet")
    replicas = [*fleet(CALM, 8, YESTERDAY), *tonight(8)]
    # Eighty more in another namespace, scraped for a few minutes only.
    many = [
        replace(each, labels={**each.labels, "namespace": "large"}, scraped=(TONIGHT - 300, TONIGHT))
        for each in fleet(BUSY, 80, TONIGHT)
    ]
    samples = (sample for replica in (*replicas, *many) for sample in replica.series())
    log = folder / "queries.log"
    (folder / "prometheus.yml").write_text(f"global: {{query_log_file: {log}}}\n", encoding="utf-8")
    with prometheus(folder, samples) as url:
        yield url, log


def telemetry(url: str, end: str, namespace: str = "prod", duration: str = "1h") -> str:
    selector = f'namespace=\\"{namespace}\\"'
    return f'--llmroof-telemetry={{prometheus: "{url}", selector: "{selector}", duration: {duration}, end: "{end}"}}'


DEPLOYED = (
    "--llmroof-gpu=h100", "--llmroof-model=llama-3.1-8b", "--llmroof-deployment=tensor_parallel=1",
    "--llmroof-phase=decode", "--llmroof-deployment=weights=bf16",
)  # fmt: skip
GATE = "--llmroof-gate=itl.mean <= 12ms"


def test_yesterday_holds(gate: Callable[..., Any], server: tuple[str, Path]) -> None:
    run = gate(None, *DEPLOYED, telemetry(server[0], "2026-11-28T03:00:00Z"), GATE)
    assert run.rc == 0, run.text
    assert math.isclose(run.value("itl.mean"), 0.009)
    assert "for the whole window" not in run.one_line
    # 15.01 GB of weights + 131072 B x 24 x 1500 tokens of cache = 19.73 GB, over 3.35 TB/s: 5.889 ms.
    assert math.isclose(run.value("decode.floor"), 0.005889, rel_tol=0.01)
    assert math.isclose(run.value("decode.batch"), 24, rel_tol=0.001)


def test_tonight_breaches_and_says_who_left(gate: Callable[..., Any], server: tuple[str, Path]) -> None:
    run = gate(None, *DEPLOYED, telemetry(server[0], "2026-11-29T03:00:00Z"), GATE)
    assert run.rc == 1
    assert "found 14.3 ms, expected itl.mean <= 12 ms" in run.one_line
    assert "7 of 8 replicas for the whole window: one replica left at 02:41 UTC (llm-7)" in run.one_line
    # 15.01 GB + 131072 B x 40 x 3000 = 30.74 GB over 3.35 TB/s: 9.176 ms.
    assert math.isclose(run.value("decode.floor"), 0.009176, rel_tol=0.01)
    assert math.isclose(run.value("decode.batch"), 40, rel_tol=0.001)
    assert run.window["deployment"]["data_parallel"] == 8
    # Scraped every 60 s, the last of them at 03:00: an hour less one interval at the most.
    assert 3530 <= run.window["duration_seconds"] <= 3600
    assert "127.0.0.1" in run.window["sources"][0]["location"]


def test_yesterday_s_report_says_what_changed(
    gate: Callable[..., Any], server: tuple[str, Path], pytester: pytest.Pytester
) -> None:
    yesterday = gate(
        None, *DEPLOYED, telemetry(server[0], "2026-11-28T03:00:00Z"), GATE, "--llmroof-report=y.json"
    )
    assert yesterday.rc == 0
    tonight = telemetry(server[0], "2026-11-29T03:00:00Z")
    run = gate(None, *DEPLOYED, tonight, GATE, "--llmroof-baseline=y.json")
    assert run.rc == 1
    assert "found 14.3 ms, expected itl.mean <= 12 ms" in run.one_line
    for line in (
        "*CHANGE*9.0 -> 14.3 ms (+5.3)*", "*traffic*+3.3 ms*batch 24 -> 40*floor*5.9 -> 9.2 ms*", "*engine*+2.0 ms*",
        "*7 of 8 replicas*",
    ):  # fmt: skip
        assert fnmatch(run.one_line, line), (line, run.text)
    change = run.window["change"]
    # 15.01 GB + 131072 B x batch x context over 3.35 TB/s: 5.889 and 9.176 ms; 14.3 - 9.0 - 3.29 = 2.01 ms.
    assert math.isclose(change["traffic_seconds"], 0.00329, rel_tol=0.01)
    assert math.isclose(change["engine_seconds"], 0.00201, rel_tol=0.02)
    assert change["differences"] == change["missing"] == []

    # Without accelerator and model the gate still judges; the load is compared, and the rest said to be missing.
    unnamed = gate(None, tonight, GATE, "--llmroof-baseline=y.json")
    assert unnamed.rc == 1
    change = unnamed.window["change"]
    assert {"batch", "context", "prefix hits"} <= {fact["name"] for fact in change["facts"]}
    assert change["traffic_seconds"] is change["engine_seconds"] is None
    assert change["missing"][0] == "--llmroof-gpu=NAME and --llmroof-model=NAME give the split into traffic and engine"

    # Another deployment ends the comparison of the engines, and is named.
    other = gate(None, *DEPLOYED, "--llmroof-deployment=weights=fp8", tonight, GATE, "--llmroof-baseline=y.json")
    change = other.window["change"]
    assert change["engine_seconds"] is None
    assert change["differences"][0] == "weights bf16 there, fp8 here"
    assert math.isclose(change["traffic_seconds"], 0.00329, rel_tol=0.01)  # the cache's part is as before


def test_the_worst_replica_is_named(gate: Callable[..., Any], server: tuple[str, Path]) -> None:
    source = telemetry(server[0], "2026-11-29T03:00:00Z").partition("=")[2]
    run = gate(
        "windows:\n  night:\n    phase: decode\n    telemetry:\n      "
        f"{source}\n    gates: [{{gate: itl.mean <= 12ms, per: replica}}]\n"
    )
    assert run.rc == 1
    assert "the worst of 8 replicas: llm-" in run.one_line


def test_the_queries_do_not_grow_with_the_fleet(gate: Callable[..., Any], server: tuple[str, Path]) -> None:
    url, log = server
    counts = []
    for namespace, replicas in (("prod", 8), ("large", 80)):
        before = requests_in(log)
        run = gate(None, telemetry(url, "2026-11-29T03:00:00Z", namespace, "5m"), GATE)
        assert run.rc == 1
        assert "found 14.3 ms" in run.one_line
        counts.append(requests_in(log) - before)
        seen = run.window["deployment"]["data_parallel"]
        assert seen == replicas - (namespace == "prod")  # the eighth has left by then
    assert counts[0] == counts[1] > 0


def test_without_gpu_and_model_it_judges_all_the_same(gate: Callable[..., Any], server: tuple[str, Path]) -> None:
    run = gate(None, telemetry(server[0], "2026-11-29T03:00:00Z"), GATE)
    assert run.rc == 1
    assert run.verdicts == ["fail"]
    assert "found 14.3 ms, expected itl.mean <= 12 ms" in run.one_line


def test_an_end_without_a_time_zone_is_refused(gate: Callable[..., Any], server: tuple[str, Path]) -> None:
    run = gate(None, telemetry(server[0], "2026-11-29T03:00:00"), GATE)
    assert run.rc == 4
    assert "a time zone is missing" in run.one_line
