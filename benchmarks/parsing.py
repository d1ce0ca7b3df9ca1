"""How fast pages of metrics are read, against prometheus_client's parsers in the same run.

    python benchmarks/parsing.py [PAGE ...]

Pages: two that a real vLLM and a real SGLang collector wrote (tests/data), one in OpenMetrics with exemplars, the page
of a fleet that one scrape brings (federation), and any that are named. Each is read cold (nothing known of it) and as a
window of scrapes of one server: the same series, other numbers, the first of them cold. Theirs is
``text_string_to_metric_families`` of text or OpenMetrics with every sample visited. Of ours, "parsed" is the same work,
from bytes to checked samples; "to quantities" is all that the product does with a page, to the running totals of every
engine on it, which no peer does: it is measured against the peer's parsing all the same.

CPU time in one process, ours and theirs in turns, garbage collection off for both. The ratio is the median of the
turns' ratios, the range beside it their lowest and highest. Parsing must be at least 5 times as fast as theirs cold and
10 times in a window; to quantities 2 and 4 times.
"""

from __future__ import annotations

import argparse
import gc
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families as text_families
from rows import Row, growth, reported, shown_seconds

from pytest_llmroof.telemetry.exposition import parse_page
from pytest_llmroof.telemetry.known import KnownSeries
from pytest_llmroof.telemetry.scrapes import scrape_of

DATA = Path(__file__).parents[1] / "tests" / "data"
TURNS = 9
SCRAPES = 60
REPLICAS = 50
FEW_SCRAPES = 6
LARGE = 1_000_000
#: (cold, window): how many times as fast as the peer.
PARSED = (5.0, 10.0)
TO_QUANTITIES = (2.0, 4.0)

_SAMPLE = re.compile(r"^(?!#)(.*?[} ])(\S+)$", re.MULTILINE)


def openmetrics(scrapes: int) -> list[str]:
    """As prometheus_client writes it while its metrics move: exemplars, creation times, and the end of the page."""
    registry = CollectorRegistry()
    labels = {"engine": "0", "model_name": "meta-llama/Llama-3.1-70B-Instruct"}
    counters = [Counter(f"vllm_c{n}", "A counter.", list(labels), registry=registry) for n in range(20)]
    histograms = [Histogram(f"vllm_h{n}_seconds", "A histogram.", list(labels), registry=registry) for n in range(20)]
    pages = []
    for scrape in range(scrapes):
        for counter in counters:
            counter.labels(**labels).inc(scrape)
        for histogram in histograms:
            for value in (0.003, 0.04, 0.3, 4.0):
                histogram.labels(**labels).observe(value, exemplar={"trace_id": f"7f{scrape}"})
        pages.append(generate_latest(registry).decode())
    return pages


def federated(page: str, replicas: int = REPLICAS) -> str:
    """A fleet's page: every family once, with the series of all replicas."""
    lines = []
    for line in page.splitlines():
        if line.startswith("#") or "{" not in line:
            lines.append(line)
            continue
        name, _, rest = line.partition("{")
        lines += [f'{name}{{instance="10.0.0.{replica}:8000",{rest}' for replica in range(replicas)]
    return "\n".join(lines) + "\n"


def moved(page: str, step: int) -> str:
    """The same page some time later: all numbers that stand last in their line are other ones."""

    def later(match: re.Match[str]) -> str:
        try:
            return f"{match[1]}{float(match[2]) + step}"
        except ValueError:
            return match[0]

    return _SAMPLE.sub(later, page)


def theirs(pages: Sequence[str]) -> None:
    """What a user of prometheus_client does with pages."""
    for page in pages:
        families = openmetrics_families if page.endswith("# EOF\n") else text_families
        for family in families(page):
            for _ in family.samples:
                pass


def parsed(pages: Sequence[bytes]) -> None:
    """Ours, to samples."""
    known = KnownSeries()
    for page in pages:
        parse_page(page, "page.prom", known)


def to_quantities(pages: Sequence[bytes]) -> None:
    """Ours, to what windows are made of."""
    known = KnownSeries()
    for page in pages:
        scrape_of(parse_page(page, "page.prom", known), "page.prom", None)


def cpu(work: Callable[[], None]) -> float:
    """CPU seconds of a piece of work."""
    gc.collect()
    begin = time.process_time()
    work()
    return time.process_time() - begin


def compared(name: str, texts: Sequence[str], limits: dict[Callable[[Sequence[bytes]], None], float]) -> Iterator[Row]:
    """Each of ours against theirs, in turns."""
    pages = [text.encode() for text in texts]
    # As many times as it takes for a turn to be much longer than the clock's step.
    times = 1 + 200_000 // sum(map(len, texts))

    def repeated(work: Callable[[], None]) -> float:
        return cpu(lambda: [work() for _ in range(times)] and None) / times

    turns: list[tuple[float, ...]] = []
    for _ in range(TURNS):
        peer = repeated(lambda: theirs(texts))
        turns.append((peer, *(repeated(lambda ours=ours: ours(pages)) for ours in limits)))
    for index, (ours, limit) in enumerate(limits.items(), start=1):
        ratios = sorted(turn[0] / turn[index] for turn in turns)
        ratio = statistics.median(ratios)
        yield Row(
            f"{name}, {ours.__name__.replace('_', ' ')}",
            shown_seconds(statistics.median(turn[index] for turn in turns) / len(pages)),
            shown_seconds(statistics.median(turn[0] for turn in turns) / len(pages)),
            f"{ratio:.1f} ({ratios[0]:.1f} to {ratios[-1]:.1f})",
            f"at least {limit:g}",
            ratio >= limit,
        )


def rows(named: Sequence[Path] = ()) -> Iterator[Row]:
    """Every page, cold and as a window."""
    vllm, sglang = "vllm-cpu/spec/after.prom", "sglang-collector/multiprocess-after.prom"
    pages = {path: (DATA / path).read_text(encoding="utf-8") for path in (vllm, sglang)}
    pages |= {f"a fleet of {REPLICAS}": federated(pages[vllm])}
    pages |= {path.name: path.read_text(encoding="utf-8") for path in named}
    windows = {
        name: [moved(page, step) for step in range(FEW_SCRAPES if len(page) > LARGE else SCRAPES)]
        for name, page in pages.items()
    }
    windows["OpenMetrics"] = openmetrics(SCRAPES)
    gc.disable()
    try:
        for name, scrapes in windows.items():
            title = f"{name} ({scrapes[0].count(chr(10))} lines)"
            for what, texts, index in (("cold", scrapes[:1], 0), (f"{len(scrapes)} scrapes", scrapes, 1)):
                limits = {parsed: PARSED[index], to_quantities: TO_QUANTITIES[index]}
                yield from compared(f"{title}, {what}", texts, limits)
        yield from growths(pages[vllm])
    finally:
        gc.enable()


def growths(page: str) -> Iterator[Row]:
    """A fleet's page of a tenth of the replicas, and of all: each page alone, and as a window."""
    small, large = (federated(page, replicas) for replicas in (REPLICAS // 10, REPLICAS))
    for what, ours in (("parsed", parsed), ("to quantities", to_quantities)):
        for count in (1, FEW_SCRAPES):
            windows = [[moved(each, step).encode() for step in range(count)] for each in (small, large)]
            turns = [[cpu(lambda ours=ours, pages=pages: ours(pages)) for pages in windows] for _ in range(TURNS)]
            least = [min(turn[index] for turn in turns) for index in (0, 1)]
            yield growth(f"a fleet of {REPLICAS}, {count} scrapes, {what}", *least)


def main() -> int:
    """Measure all pages."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE", help="more pages of metrics")
    return reported(list(rows(parser.parse_args().pages)))


if __name__ == "__main__":
    sys.exit(main())
