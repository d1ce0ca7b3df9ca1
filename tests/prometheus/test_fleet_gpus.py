"""DCGM from the same Prometheus as the engines: whose GPUs they are, the worst of them, how many questions it takes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import runs
from fleets import Replica, Sample, fleet, prometheus, requests_in
from vllm_pages import Load

END = 1748757600.0
SECONDS = 600.0
INTERVAL = 15.0
LOAD = Load(seconds=SECONDS, itl=0.02, batch=10, context=1000, output=200, model="meta-llama/Llama-3.1-8B-Instruct")
H100 = "NVIDIA H100 80GB HBM3"
DEPLOYED = "gpu: h100\nmodel: llama-3.1-8b\ndeployment: {tensor_parallel: 2, weights: bf16}\n"


def replicas(namespace: str, count: int, interval: float = INTERVAL, **labels: str) -> list[Replica]:
    return [
        replace(each, labels={**each.labels, "namespace": namespace, **{
            name: text.format(index) for name, text in labels.items()
        }})
        for index, each in enumerate(fleet(LOAD, count, END, interval=interval))
    ]  # fmt: skip


def gpu(namespace: str, dram: float, *, host: str, index: int, more: str = "") -> Iterator[Sample]:
    """One GPU as its exporter has it: activities move a little, as they do."""
    uuid = f"{namespace}-{host}-{index}"
    labels = f'namespace="{namespace}",gpu="{index}",UUID="{uuid}",modelName="{H100}",Hostname="{host}"'
    for step in range(int(SECONDS / INTERVAL) + 1):
        at, moved = END - SECONDS + step * INTERVAL, 1e-3 * (step % 3 - 1)
        yield f"DCGM_FI_PROF_DRAM_ACTIVE{{{labels}{more}}}", at, dram + moved
        yield f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{labels}{more}}}", at, 0.95 + moved


def pods(namespace: str, count: int, slow: int | None = None) -> Iterator[Sample]:
    """Two GPUs for each pod, all exporters scraped without honor_labels: `pod` is the exporter's own."""
    for index in range(count):
        for number in range(2):
            pod = f',pod="dcgm-exporter-{index}",exported_pod="llm-{index}"'
            yield from gpu(namespace, 0.2 if index == slow else 0.6, host=f"node-{index}", index=number, more=pod)


def samples() -> Iterator[Sample]:
    for namespace, count in (("pods", 3), ("few", 8), ("many", 80)):
        for replica in replicas(namespace, count, interval=4 * INTERVAL if count > 8 else INTERVAL):
            yield from replica.series()
        yield from pods(namespace, count, slow=1)
    # Somebody else's GPUs in the same selector, busier than ours.
    for number in range(4):
        yield from gpu("pods", 0.9, host="stranger", index=number, more=',exported_pod="training-0"')
    # Without Kubernetes only hosts tell: by `node`, and by the address that both are scraped at.
    for replica in [*replicas("nodes", 3, node="node-{0}"), *replicas("addresses", 3)]:
        yield from replica.series()
    for index in range(3):
        for number in range(2):
            yield from gpu("nodes", 0.2 if index == 2 else 0.6, host=f"node-{index}", index=number)
            yield from gpu("addresses", 0.2 if index == 2 else 0.6, host=f"10.0.0.{index}", index=number)
    for number in range(4):
        yield from gpu("nodes", 0.9, host="node-7", index=number)
        yield from gpu("addresses", 0.9, host="10.0.0.77", index=number)
    # A replica in a slice of a GPU, and another slice beside it.
    for replica in replicas("slices", 1):
        yield from replica.series()
    for instance, dram, pod in (("1", 0.4, "llm-0"), ("2", 0.8, "x-0")):
        sliced = f',GPU_I_ID="{instance}",GPU_I_PROFILE="3g.40gb",exported_pod="{pod}"'
        yield from gpu("slices", dram, host="node-0", index=0, more=sliced)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    folder = tmp_path_factory.mktemp("gpus")
    log = folder / "queries.log"
    (folder / "prometheus.yml").write_text(f"global: {{query_log_file: {log}}}\n", encoding="utf-8")
    with prometheus(folder, samples()) as url:
        yield url, log


def gate(pytester: pytest.Pytester, url: str, namespace: str, *gates: str, deployed: str = DEPLOYED) -> str:
    source = f'{{prometheus: "{url}", selector: \'namespace="{namespace}"\', duration: 10m, end: "{END}"}}'
    listed = "".join(f"      - {each}\n" for each in gates)
    pytester.makefile(
        ".yaml", llmroof=f"{deployed}windows:\n  w:\n    phase: decode\n    telemetry: {source}\n    gates:\n{listed}"
    )
    return " ".join(runs.run(pytester).stdout.str().split())


@pytest.mark.parametrize(("namespace", "worst", "slow"), [
    ("pods", "llm-1", "node-1"), ("nodes", "llm-2", "node-2"), ("addresses", "llm-2", "10.0.0.2"),
])  # fmt: skip
def test_gpus_are_joined_to_their_engines(
    server: tuple[str, Path], pytester: pytest.Pytester, namespace: str, worst: str, slow: str
) -> None:
    text = gate(
        pytester, server[0], namespace, "{gate: hardware.mbu >= 50%, per: replica}",
        "{gate: hardware.mbu >= 50%, per: gpu}", "hardware.mbu >= 50%", "hardware.mbu <= 60%",
    )  # fmt: skip
    assert f"the worst of 3 replicas: {worst}" in text
    # Not one of the strangers' four.
    assert "the worst of 6 GPUs: gpu " in text
    assert f" of {slow}" in text
    # (4 x 0.6 + 2 x 0.2) / 6 = 46.7 %: the strangers' 90 % are not in it.
    assert "found 46.7 %, expected hardware.mbu >= 50 %" in text
    assert "PASS w: hardware.mbu <= 60 % 46.7 %" in text


def test_a_slice_of_the_pod(server: tuple[str, Path], pytester: pytest.Pytester) -> None:
    described = (
        "gpu: {name: h100-3g, base: h100, memory: 40GB, memory_bandwidth: 1.67TB/s}\nmodel: llama-3.1-8b\n"
        "deployment: {tensor_parallel: 1, weights: bf16}\n"
    )
    text = gate(pytester, server[0], "slices", "{gate: hardware.mbu >= 50%, per: gpu}", deployed=described)
    assert re.search(r"found 40(\.0)? %, expected hardware\.mbu >= 50 %", text)
    assert "slice 1 (3g.40gb) of gpu 0" in text
    # A whole one was meant: whose share of it the slices' figures are cannot be told.
    whole = gate(pytester, server[0], "slices", "hardware.mbu >= 10%", deployed=DEPLOYED.replace("2", "1", 1))
    assert "NOT MEASURED" in whole or "IMPOSSIBLE" in whole.upper()


def test_the_questions_do_not_grow_with_the_fleet(server: tuple[str, Path], pytester: pytest.Pytester) -> None:
    url, log = server
    counts = []
    for namespace, count in (("few", 8), ("many", 80)):
        before = requests_in(log)
        text = gate(pytester, url, namespace, "{gate: hardware.mbu >= 50%, per: gpu}")
        assert f"the worst of {2 * count} GPUs" in text
        counts.append(requests_in(log) - before)
    # How often, the pulse and the rest of the engines; which GPUs, how often, and their samples.
    assert counts == [6, 6]
