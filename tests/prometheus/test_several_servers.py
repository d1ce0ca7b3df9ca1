"""Several Prometheus servers in one window: the engines of all of them, each once, over one stretch of time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from engine_pages import sglang
from fleets import Replica, Sample, fleet, prometheus, victoriametrics
from vllm_pages import Load

from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.fleetsource import prometheus_window
from pytest_llmroof.telemetry.window import Window

END = 1748757600.0
SECONDS = 600.0
INTERVAL = 30.0
FAST = Load(seconds=SECONDS, itl=0.02, batch=10, context=1000, output=200, model="org/model-8b", running=10)
SLOW = replace(FAST, itl=0.04, started=FAST.started - 5000)
GPU = 'Hostname="node-{0}",gpu="0",UUID="GPU-{0}",modelName="NVIDIA H100 80GB HBM3"'


@dataclass(frozen=True)
class Two:
    """A Prometheus and a VictoriaMetrics, of a cluster each."""

    first: str
    second: str

    def read(self, namespace: str, other: str | None = None, **more: Any) -> Window:
        served = more.pop("served", None)
        one = {"prometheus": self.first, "selector": f'namespace="{namespace}"', "duration": SECONDS, "end": str(END)}
        two = {"prometheus": self.second, "selector": f'namespace="{other or namespace}"', **more}
        return prometheus_window(one, two, duration_seconds=None, served_model_name=served)


def of(namespace: str, load: Load, count: int, cluster: str | None = None, **changes: Any) -> list[Replica]:
    added = {"namespace": namespace, **({"cluster": cluster} if cluster else {})}
    found = fleet(load, count, END, interval=INTERVAL, **changes)
    # The start is part of who a process is.
    return [
        replace(each, labels={**each.labels, **added}, start=each.start - 60 * index)
        for index, each in enumerate(found)
    ]


def first() -> Iterator[Sample]:
    parts = (
        of("prod", FAST, 2, "eu"), of("unlabelled", FAST, 2), of("pair", FAST, 2), of("engines", FAST, 1),
        of("models", FAST, 1), of("only-here", FAST, 1),
    )  # fmt: skip
    for replica in (replica for part in parts for replica in part):
        yield from replica.series()
    yield from gpus("prod", 2, 0.5)


def gpus(namespace: str, count: int, dram: float, offset: int = 0) -> Iterator[Sample]:
    for index in range(count):
        for step in range(int(SECONDS / INTERVAL) + 1):
            series = f'DCGM_FI_PROF_DRAM_ACTIVE{{namespace="{namespace}",{GPU.format(index + offset)}}}'
            yield series, END - SECONDS + step * INTERVAL, dram


def second() -> Iterator[Sample]:
    parts = (
        of("prod", SLOW, 1, "us"),
        # The same labels, but processes of their own: they began elsewhen and did something else.
        [replace(each, start=END - 5 * SECONDS) for each in of("unlabelled", SLOW, 2)],
        # The other half of a pair: the same processes, scraped at other times, and one scrape is missing.
        [replace(each, offset=each.offset + 3) for each in of("pair", FAST, 2)],
        of("models", replace(FAST, model="org/model-70b"), 1),
        of("left", FAST, 1, scraped=(END - 20, END)),
    )  # fmt: skip
    for replica in (replica for part in parts for replica in part):
        yield from replica.series()
    for step in range(int(SECONDS / INTERVAL) + 1):
        at = END - SECONDS + step * INTERVAL
        for line in sglang(step / 20, at).splitlines():
            if line and not line.startswith("#"):
                head, _, value = line.rpartition(" ")
                yield head.replace("{", '{namespace="engines",pod="sgl-0",', 1), at, float(value)
        yield 'up{namespace="bystanders"}', at, 1.0
    yield from gpus("prod", 1, 0.8, offset=2)
    yield from gpus("only-gpus", 1, 0.9)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    one, other = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("other")
    with prometheus(one, first()) as url, victoriametrics(other, second()) as further:
        yield Two(url, further)


def test_the_engines_of_two_clusters_are_those_of_one_window(two: Two) -> None:
    window = two.read("prod")
    assert [engine.identity for engine in window.engines] == [
        "cluster eu, pod llm-0", "cluster eu, pod llm-1", "cluster us, pod llm-0",
    ]  # fmt: skip
    assert [source.location for source in window.sources] == [two.first, two.second]
    itl = window.histogram("itl")
    assert itl is not None
    # 500 observations of a second at 20 ms in each replica of the first cluster (10 sequences), 250 at 40 ms: over the
    # whole (2 x 500 x 20 + 250 x 40) / (2 x 500 + 250) = 24 ms. Each replica's ends are apart by some of 20 scrapes.
    assert itl.mean == pytest.approx(0.024, rel=0.01)
    assert window.replicas_at_once == 3
    assert window.duration_seconds == pytest.approx(SECONDS, abs=2 * INTERVAL)


def test_gpus_of_both(two: Two) -> None:
    hardware = two.read("prod").hardware
    assert hardware is not None
    assert [gpu.uuid for gpu in hardware.gpus] == ["GPU-0", "GPU-1", "GPU-2"]
    assert [set(gpu.series["dram"].values) for gpu in hardware.gpus] == [{0.5}, {0.5}, {0.8}]


def test_a_source_of_gpus_only(two: Two) -> None:
    window = two.read("only-here", "only-gpus")
    assert len(window.engines) == 1
    assert window.hardware is not None
    assert set(window.hardware.gpus[0].series["dram"].values) == {0.9}


def test_other_servers_of_the_same_labels_count_all(two: Two) -> None:
    window = two.read("unlabelled")
    assert [engine.identity for engine in window.engines] == [
        f"Prometheus server {url}, pod llm-{index}" for index in range(2) for url in sorted((two.first, two.second))
    ]  # fmt: skip
    assert not any("twice" in note for note in window.notes)


def test_a_replica_that_both_of_a_pair_see_counts_once(two: Two) -> None:
    alone = prometheus_window(
        {"prometheus": two.first, "selector": 'namespace="pair"', "duration": SECONDS, "end": str(END)},
        duration_seconds=None,
    )
    window = two.read("pair")
    assert [engine.identity for engine in window.engines] == ["llm-0", "llm-1"]
    assert "2 of 4 servers are there twice, by another Prometheus server: each is counted once" in window.notes
    tokens, of_one = window.counter("generation_tokens"), alone.counter("generation_tokens")
    assert tokens == pytest.approx(of_one, rel=2 * INTERVAL / SECONDS)


@pytest.mark.parametrize(("namespace", "other", "more", "gist"), [
    ("only-here", "nobody", {}, r'namespace="nobody"\} matches no series'),
    ("only-here", "bystanders", {}, "none of a serving engine that is known here"),
    ("only-here", "left", {}, "a window of 600 s is too short|holds one scrape of each server"),
    ("engines", None, {}, "metrics of different engines: vLLM .* and SGLang"),
    ("models", None, {}, "several served models: 'org/model-(8b|70b)', 'org/model-"),
    ("models", None, {"served": "org/model-8b"}, "no engine of 'org/model-8b' is in the window"),
    ("prod", None, {"end": str(END - 3600)}, "one window has one time"),
    ("prod", None, {"duration": 300.0}, "one window has one time"),
])  # fmt: skip
def test_a_source_that_would_not_count_is_refused(
    two: Two, namespace: str, other: str | None, more: dict[str, Any], gist: str
) -> None:
    """Never may the first cluster alone seem to be all of them."""
    with pytest.raises(SourceError, match=gist) as caught:
        two.read(namespace, other, **more)
    assert caught.value.remedy


def test_a_server_that_is_gone_is_refused(two: Two) -> None:
    with pytest.raises(SourceError, match="connection refused"):
        replace(two, second="http://127.0.0.1:9").read("prod", timeout=2.0)


def test_the_same_source_twice_is_refused(two: Two) -> None:
    with pytest.raises(SourceError, match="stands twice with the same selector"):
        replace(two, second=two.first).read("prod")


def test_two_selectors_of_one_server(two: Two) -> None:
    """A replica that both match counts once."""
    window = replace(two, second=two.first).read("prod", 'prod", pod="llm-1')
    assert len(window.engines) == 2
    assert any("there twice" in note for note in window.notes)
    both = replace(two, second=two.first).read("prod", "only-here")
    assert len(both.engines) == 3


def test_in_a_gate_file(two: Two, pytester: pytest.Pytester) -> None:
    """The second cluster is the slow one, and named."""
    pytester.makefile(".yaml", llmroof=f"""
windows:
  both:
    phase: decode
    telemetry:
      - {{prometheus: "{two.first}", selector: 'namespace="prod"', duration: 10m, end: "{END}"}}
      - {{prometheus: "{two.second}", selector: 'namespace="prod"'}}
    gates:
      - {{gate: itl.mean <= 30ms, per: replica}}
      - itl.mean <= 30ms
""")  # fmt: skip
    result = pytester.runpytest("-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, failed=1)
    text = " ".join(result.stdout.str().split())
    assert re.search(r"found 40(\.0)? ms, expected itl\.mean <= 30 ms", text)
    assert "the worst of 3 replicas: cluster us, pod llm-0" in text


def test_the_view_of_a_pair_with_more_scrapes_counts(two: Two) -> None:
    window = two.read("pair")
    for engine in window.engines:
        assert engine.seen is not None
        assert engine.seen[1] - engine.seen[0] >= SECONDS - 2 * INTERVAL
