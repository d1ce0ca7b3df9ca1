"""A Prometheus or VictoriaMetrics on loopback, holding what it would have scraped from a fleet of known loads."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pytest
from loopback import reserved
from vllm_pages import Load, page

ROOT: Final = Path(__file__).parents[1]
SERVERS: Final = Path(os.environ.get("LLMROOF_SERVERS", ROOT / ".servers"))
#: Read when the tests are collected: inside a test the variable is taken away.
IN_CI: Final = bool(os.environ.get("CI"))


def program(name: str) -> str:
    """The path of a server's program. Where it is missing CI fails, and anybody else's test is skipped."""
    unpacked = SERVERS / "usr" / "bin" / name
    found = str(unpacked) if os.access(unpacked, os.X_OK) else shutil.which(name)
    if found is None:
        missing = f"{name} is not here: run .ci/get_servers"
        if IN_CI:
            pytest.fail(missing)
        pytest.skip(missing)
    return found


@dataclass(frozen=True)
class Replica:
    """One scraped server: a steady load from ``start`` for its ``seconds``, with the labels that Prometheus adds.

    ``scraped`` is the time in which it was scraped (Unix seconds), every ``interval`` from ``offset`` on. A restart at
    ``restarted`` sets all counters to what they were at the load's beginning. ``own`` False leaves out
    ``process_start_time_seconds``, as servers of several processes do.
    """

    load: Load
    labels: Mapping[str, str]
    start: float
    scraped: tuple[float, float]
    interval: float = 60.0
    offset: float = 0.0
    restarted: float | None = None
    own: bool = True
    rename: Mapping[str, str] = field(default_factory=dict)

    def scrapes(self) -> Iterator[float]:
        """When it was scraped."""
        first, last = self.scraped
        count = int((last - first - self.offset) // self.interval)
        yield from (round(first + self.offset + index * self.interval, 3) for index in range(count + 1))

    def series(self) -> Iterator[tuple[str, float, float]]:
        """Every sample: the series as text, when (Unix seconds), and its value."""
        target = ",".join(f'{name}="{value}"' for name, value in self.labels.items())
        for at in self.scrapes():
            anew = self.restarted is not None and at >= self.restarted
            began = self.restarted if anew and self.restarted is not None else self.start
            # A restarted server counts from 0: page() starts at a tenth of the load, as if it was warmed up.
            done = (at - began) / self.load.seconds - (0.1 if anew else 0.0)
            for line in page(self.load, done, None).splitlines():
                if line.startswith("#"):
                    continue
                head, _, value = line.rpartition(" ")
                yield self._renamed(head.replace("{", f"{{{target},", 1)), at, float(value)
            if self.own:
                yield f"process_start_time_seconds{{{target}}}", at, (began if anew else self.start - 3600.0)
            yield f"scrape_duration_seconds{{{target}}}", at, 0.004
            yield f"up{{{target}}}", at, 1.0

    def _renamed(self, series: str) -> str:
        for one, other in self.rename.items():
            series = series.replace(one, other)
        return series


def fleet(
    load: Load, count: int, end: float, *, seconds: float | None = None, interval: float = 60.0, **changes: Any
) -> list[Replica]:
    """Replicas of one load, scraped one after the other within the interval, until ``end``."""
    seconds = seconds or load.seconds
    replicas = [
        Replica(
            load,
            {"namespace": "prod", "pod": f"llm-{index}", "instance": f"10.0.0.{index}:8000", "job": "vllm"},
            end - load.seconds,
            (end - seconds, end),
            interval,
            offset=round(interval * index / count, 3),
        )
        for index in range(count)
    ]
    return [replace(each, **changes) for each in replicas]


Sample = tuple[str, float, float]


def openmetrics(samples: Iterable[Sample]) -> str:
    """Samples as promtool reads them: in order of time, each once."""
    ordered = sorted({(at, series): value for series, at, value in samples}.items())
    return "".join(f"{series} {value!r} {at:.3f}\n" for (at, series), value in ordered) + "# EOF\n"


@contextmanager
def prometheus(
    folder: Path,
    samples: Iterable[Sample],
    *options: str,
    ready: str = "/-/ready",
    statuses: tuple[int, ...] = (200,),
) -> Iterator[str]:
    """The URL of a Prometheus whose storage holds these samples."""
    written, storage = folder / "samples.txt", folder / "prometheus"
    written.write_text(openmetrics(samples), encoding="utf-8")
    storage.mkdir()
    made = subprocess.run(
        [program("promtool"), "tsdb", "create-blocks-from", "openmetrics", "--quiet", str(written), str(storage)],
        capture_output=True, text=True, check=False, timeout=900,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    with storage_of(folder, storage, *options, ready=ready, statuses=statuses) as url:
        yield url


@contextmanager
def storage_of(
    folder: Path, storage: Path, *options: str, ready: str = "/-/ready", statuses: tuple[int, ...] = (200,)
) -> Iterator[str]:
    """The URL of a Prometheus on a storage that is there already."""
    configuration = folder / "prometheus.yml"
    if not configuration.exists():
        configuration.write_text("scrape_configs: []\n", encoding="utf-8")
    command = [
        program("prometheus"), f"--config.file={configuration}", f"--storage.tsdb.path={storage}",
        "--storage.tsdb.retention.time=100y", "--web.listen-address={address}", *options,
    ]  # fmt: skip
    with _running(command, folder / "prometheus.log", ready, statuses) as url:
        yield url


@contextmanager
def victoriametrics(folder: Path, samples: Iterable[Sample], *options: str) -> Iterator[str]:
    """The URL of a VictoriaMetrics that was sent these samples."""
    command = [
        program("victoria-metrics"), f"-storageDataPath={folder / 'victoria'}", "-retentionPeriod=100y",
        "-httpListenAddr={address}", *options,
    ]  # fmt: skip
    with _running(command, folder / "victoria.log", "/health") as url:
        body = "".join(f"{series} {value!r} {at * 1000:.0f}\n" for series, at, value in samples)
        _post(f"{url}/api/v1/import/prometheus", body.encode())
        _post(f"{url}/internal/force_flush", b"")
        yield url


def _post(url: str, body: bytes) -> None:
    with urllib.request.urlopen(urllib.request.Request(url, data=body, method="POST"), timeout=60) as answer:
        answer.read()


@contextmanager
def _running(command: list[str], log: Path, ready: str, statuses: tuple[int, ...] = (200,)) -> Iterator[str]:
    """A server that is ready, on a free port; gone afterwards."""
    with reserved() as port, log.open("wb") as output:
        address = f"127.0.0.1:{port}"
        process = subprocess.Popen(
            [part.replace("{address}", address) for part in command], stdout=output, stderr=subprocess.STDOUT
        )
        try:
            _wait(f"http://{address}{ready}", process, log, statuses)
            yield f"http://{address}"
        finally:
            process.kill()
            process.wait()


def _wait(url: str, process: subprocess.Popen[bytes], log: Path, statuses: tuple[int, ...]) -> None:
    """Until the server says that it is ready."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                answer.read()
                return
        except urllib.error.HTTPError as error:
            with error:
                if error.code in statuses:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.02)
    pytest.fail(f"the server did not become ready: {log.read_text(errors='replace')[-2000:]}")


def requests_in(log: Path) -> int:
    """How many questions a Prometheus's query log holds."""
    return len(re.findall(r'"query":', log.read_text(encoding="utf-8")))
