"""What a window of 1,000 replicas behind a real Prometheus costs, or of a week, and how many queries it takes.

    .ci/get_servers && python benchmarks/fleet.py [REPLICAS]

Fills a Prometheus with five minutes of metrics of every replica (a minute or two), then reads windows of all, of a
tenth and of ten of them. Fills another with a week of one server that was scraped every second, and reads all of it,
and ten minutes. Prints the time that each took, of it this process's own, and the number of HTTP requests, which must
be the same; no window must take more than 60 s.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from fleets import Sample, fleet, prometheus
from long_history import END as WEEKS_END
from long_history import WEEK_SECONDS, history
from rows import Row, growth, reported, shown_seconds
from vllm_pages import Load

from pytest_llmroof.telemetry.clusters import window_of
from pytest_llmroof.telemetry.fleetsource import api_of
from pytest_llmroof.telemetry.prometheus import answer_of
from pytest_llmroof.telemetry.question import question_of

END = 1748757600.0
SECONDS = 300.0
INTERVAL = 60.0
FEW = 10
MOST_SECONDS = 60.0


def samples(replicas: int) -> Iterator[Sample]:
    """One replica's samples under as many names."""
    (one,) = fleet(Load(seconds=SECONDS, itl=0.0143, batch=40), 1, END, interval=INTERVAL)
    made = list(one.series())
    for namespace, count in (("few", FEW), ("tenth", replicas // 10), ("many", replicas)):
        for index in range(count):
            place = f'namespace="{namespace}",pod="llm-{index}",instance="10.0.{index // 250}.{index % 250}:8000"'
            for series, at, value in made:
                yield series.replace('namespace="prod",pod="llm-0",instance="10.0.0.0:8000"', place), at, value


def measured(url: str, selector: str, duration: float, end: float) -> tuple[int, float, float, int]:
    """Replicas, seconds, seconds of this process's CPU and HTTP requests of a window."""
    api = api_of({"prometheus": url, "timeout": 300.0})
    question = question_of(selector, duration=duration, end=str(end))
    wall, cpu = time.perf_counter(), time.process_time()
    window = window_of([answer_of(api, question)])
    return len(window.engines), time.perf_counter() - wall, time.process_time() - cpu, api.asked


def fleets(replicas: int) -> list[Row]:
    """Windows of all, a tenth, and ten."""
    with tempfile.TemporaryDirectory() as folder, prometheus(Path(folder), samples(replicas)) as url:
        names = ("few", "tenth", "many")
        found = [measured(url, f'namespace="{name}"', SECONDS, END) for name in names]
    (count, small, _, few), (_, _, cpu_tenth, _), (_, wall, cpu, many) = found
    return [
        Row(
            f"a window of {replicas} replicas behind Prometheus ({cpu:.2f} s of CPU here), against {count}",
            shown_seconds(wall), shown_seconds(small), f"{wall / small:.1f}", f"at most {MOST_SECONDS:.0f} s",
            wall <= MOST_SECONDS,
        ),
        Row("HTTP requests for it", str(many), str(few), f"{many / few:.1f}", "exactly 1", few == many),
        growth(f"a window of {replicas} replicas behind Prometheus, CPU here", cpu_tenth, cpu),
    ]  # fmt: skip


def week() -> list[Row]:
    """A week of one server, scraped every second, and its last ten minutes."""
    with tempfile.TemporaryDirectory() as folder, history(Path(folder), WEEK_SECONDS) as url:
        found = [measured(url, "", seconds, WEEKS_END) for seconds in (600.0, WEEK_SECONDS)]
    (_, small, _, few), (_, wall, cpu, many) = found
    return [
        Row(
            f"a week behind Prometheus, scraped every second ({cpu:.2f} s of CPU here), against ten minutes",
            shown_seconds(wall), shown_seconds(small), f"{wall / small:.1f}", f"at most {MOST_SECONDS:.0f} s",
            wall <= MOST_SECONDS,
        ),
        Row("HTTP requests for it", str(many), str(few), f"{many / few:.1f}", "exactly 1", few == many),
    ]  # fmt: skip


if __name__ == "__main__":
    sys.exit(reported([*fleets(int(sys.argv[1]) if len(sys.argv) > 1 else 1000), *week()]))
