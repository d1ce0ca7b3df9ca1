"""What a Prometheus-compatible server knows of a whole fleet, by a number of queries that does not grow with it.

1. Which metrics are there: the index alone answers. Then, of the engine and of each kind that stands beside engines:
2. How often each server was scraped: a count of one counter's samples.
3. The pulse: gauges and the counters of work, every raw sample of the window. It tells when each server was scraped,
   came, left and restarted.
4. The rest (counters, histogram buckets, facts) at some times of the window. A server answers with the latest sample
   before such a time, and the pulse knows when that was taken. So increases are differences of two scrapes of one
   process over a time that is known exactly: nothing is extrapolated.
5. The counters of GPUs, where their exporter's series match as well (telemetry/fleetgpus.py).

Where the pulse would be too many samples it is read at steps, too: then times are known to one scrape interval.
telemetry/clusters.py makes a window of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.engines import EngineNames, known_engines
from pytest_llmroof.telemetry.fleet import (
    ASKED,
    SCRAPE_SECONDS,
    START,
    beats,
    interval_of,
    is_work,
    servers_of,
)  # fmt: skip
from pytest_llmroof.telemetry.fleetgpus import fleet_gpus
from pytest_llmroof.telemetry.fleetread import Read
from pytest_llmroof.telemetry.hardware import Hardware
from pytest_llmroof.telemetry.kinds import Kind, kinds_of
from pytest_llmroof.telemetry.promapi import MOST_TIMES, PrometheusApi, Row
from pytest_llmroof.telemetry.promql import milliseconds, named, prefixed
from pytest_llmroof.telemetry.promrefusals import TooMany
from pytest_llmroof.telemetry.question import Question, utc

#: How many samples a query may answer before fewer of them are asked for: some hundred megabytes of JSON at most.
RAW_SAMPLES: Final = 1_500_000
#: The times at which the rest is read: all scrapes of a small fleet, a few of a large one.
GRID_SAMPLES: Final = 1_500_000
FEWEST_TIMES: Final = 5
#: Series of one engine, before they are known: histograms of a dozen quantities with their buckets.
_SERIES_OF_A_SERVER: Final = 400


@dataclass(frozen=True)
class Answer:
    """What one server knows: its series of each kind, the engine's first, and the GPUs' counters.

    ``left_out`` says what could not be read of that which stands beside the engine, or with it.
    """

    location: str
    reads: tuple[Read, ...]
    hardware: Hardware | None
    left_out: tuple[str, ...]
    said: tuple[str, ...]


def answer_of(
    api: PrometheusApi,
    question: Question,
    engines: Mapping[str, EngineNames] | None = None,
    *,
    mark: str | None = None,
) -> Answer:
    """What a server answers. SourceError where it knows neither engine nor GPU of that time, and what to do.

    Where others are asked as well, a label of its series tells them apart: ``mark``, which messages name, too.
    """
    engines = engines or known_engines()
    with api:
        kinds, left_out = _kinds(api, question, engines)
        if not kinds:
            hardware = fleet_gpus(api, question.selector, question.start, question.end)
            if hardware is None:
                raise _no_engine(api, question, engines)
            return Answer(api.endpoint.shown, (), hardware, (), tuple(api.said))
        reads = [_read(api, question, kinds[0], mark)]
        for kind in kinds[1:]:
            try:
                reads.append(_read(api, question, kind, mark))
            except SourceError as error:
                left_out.append(f"{kind.engine.title} is left out: {error.reason}")
        return Answer(api.endpoint.shown, tuple(reads), _gpus(api, question), tuple(left_out), tuple(api.said))


def _read(api: PrometheusApi, question: Question, kind: Kind, mark: str | None) -> Read:
    """All series of one kind. SourceError where they make no window."""
    engine, names = kind.engine, kind.names
    counts = _scrapes(api, question, engine, names)
    _refuse_a_short_window(api, question, engine, names, counts)
    pulse, step = _pulse(api, question, engine, names, counts)
    servers = servers_of(_marked(pulse, mark), engine)
    if not servers:
        raise _no_sample(api, question)
    interval = _spacing(question, counts) if step else interval_of(servers)
    if question.duration < 2 * interval:
        raise _too_short(api, question, interval)
    grid = _of_targets(_grid(api, question, names, interval, len(servers), known=not step), engine)
    return Read(mark or api.endpoint.shown, engine, servers, _marked(grid, mark), interval, step)


def _of_targets(rows: Sequence[Row], engine: EngineNames) -> Sequence[Row]:
    """The series without labels that are the metric's own, though targets have one of that name elsewhere."""
    own = {label for label in engine.labels("own") if any(label not in row.labels for row in rows)}
    if not own:
        return rows
    return [replace(row, labels={name: text for name, text in row.labels.items() if name not in own}) for row in rows]


def _marked(rows: Sequence[Row], mark: str | None) -> Sequence[Row]:
    return rows if mark is None else [replace(row, labels={**row.labels, ASKED: mark}) for row in rows]


def usual_interval(
    api: PrometheusApi, question: Question, *, engines: Mapping[str, EngineNames] | None = None
) -> float | None:
    """The usual pause between two scrapes, in seconds; 0 where there are no two, None where there is no engine."""
    with api:
        kinds, _ = _kinds(api, question, engines or known_engines())
        if not kinds:
            return None
        selector = named([_probe(kinds[0].engine, kinds[0].names)], question.selector)
        return interval_of(servers_of(api.instant(f"{selector}[{question.range}]", question.end), kinds[0].engine))


def _kinds(
    api: PrometheusApi, question: Question, engines: Mapping[str, EngineNames]
) -> tuple[list[Kind], list[str]]:
    """The engine that a server's series are of, what stands beside it, and what is not read."""
    prefixes = [prefix for engine in engines.values() for prefix in engine.prefixes]
    there = api.names(prefixed(prefixes, question.selector), question.start, question.end)
    return kinds_of(there, engines, f"{api.endpoint.shown}: {{{question.selector}}}")


def _no_engine(api: PrometheusApi, question: Question, engines: Mapping[str, EngineNames]) -> SourceError:
    where = f"{api.endpoint.shown}: {{{question.selector}}}"
    everything = f'{{__name__!="",{question.selector}}}'
    found = api.instant(f"count(last_over_time({everything}[{question.range}]))", question.end)
    count = int(found[0].values[0]) if found else 0
    if not count:
        return SourceError(
            f"{where} matches no series {_between(question)}",
            "check `selector`, `end` and the tenant; the server's own page lists its labels",
        )
    known = ", ".join(engine.title for engine in engines.values())
    return SourceError(
        f"{where} matches {count} series, but none of a serving engine that is known here ({known})",
        "check `selector`: --llmroof-list=engines tells the names that are read",
    )


def _scrapes(api: PrometheusApi, question: Question, engine: EngineNames, names: Sequence[str]) -> list[float]:
    """How many samples each series of one metric has in the window."""
    selector = named([_probe(engine, names)], question.selector)
    rows = api.instant(f"count_over_time({selector}[{question.range}])", question.end)
    counts = [row.values[0] for row in rows if row.values and 0 < row.values[0] < math.inf]
    if not counts:
        raise _no_sample(api, question)
    return counts


def _no_sample(api: PrometheusApi, question: Question) -> SourceError:
    return SourceError(
        f"{api.endpoint.shown}: {{{question.selector}}} has no sample {_between(question)}",
        "check `end` and `duration`: was anything scraped then?",
    )


def _probe(engine: EngineNames, names: Sequence[str]) -> str:
    """A metric that every server has once: a counter of work, else whatever is there."""
    for quantity in engine.work:
        for name in names:
            if any(is_work(engine, target) and target.quantity == quantity for target in engine.targets[name]):
                return name
    return min(names, key=lambda name: (name.endswith("_bucket"), name))


def _refuse_a_short_window(
    api: PrometheusApi, question: Question, engine: EngineNames, names: Sequence[str], counts: Sequence[float]
) -> None:
    """SourceError where no server has two scrapes in the window, with how often it is scraped."""
    if max(counts) >= 2:
        return
    selector = named([_probe(engine, names)], question.selector)
    around = api.instant(f"{selector}[{milliseconds(max(20 * question.duration, 900.0))}]", question.end)
    raise _too_short(api, question, interval_of(servers_of(around, engine)))


def _too_short(api: PrometheusApi, question: Question, interval: float) -> SourceError:
    window = f"{api.endpoint.shown}: a window of {question.duration:g} s"
    if not interval:
        return SourceError(f"{window} holds one scrape of each server: a difference takes two", "widen `duration`")
    return SourceError(
        f"{window} is too short where servers are scraped every {interval:.3g} s: a difference takes two scrapes",
        f"widen `duration` to {2 * interval:.3g} s or more",
    )


def _pulse(
    api: PrometheusApi, question: Question, engine: EngineNames, names: Sequence[str], counts: Sequence[float]
) -> tuple[list[Row], float]:
    """Gauges, counters of work and starts: raw samples and step 0; else at steps, and how long a step is."""
    beating = [name for name in names if any(beats(engine, target) for target in engine.targets[name])]
    selector = named([*beating, START, SCRAPE_SECONDS], question.selector)
    expected = sum(counts) * (len(beating) + 1)
    if expected <= RAW_SAMPLES:
        try:
            return api.instant(f"{selector}[{question.range}]", question.end), 0.0
        except TooMany:
            expected = 4 * RAW_SAMPLES
    times = max(FEWEST_TIMES, int(RAW_SAMPLES / (len(counts) * (len(beating) + 1))))
    spacing = _spacing(question, counts)
    return _at_times(api, question, _recent(selector, spacing), min(times, int(max(counts))), spacing)


def _spacing(question: Question, counts: Sequence[float]) -> float:
    """How far the scrapes of a server lie apart at most, by their number."""
    return question.duration / (max(counts) - 1)


def _recent(selector: str, interval: float) -> str:
    """The latest sample of each series, where it is recent: without raw samples a server that left shows only so."""
    return f"last_over_time({selector}[{milliseconds(2 * interval)}])"


def _grid(
    api: PrometheusApi, question: Question, names: Sequence[str], interval: float, servers: int, *, known: bool
) -> list[Row]:
    """Everything that the engine exposes, at as many times of the window as may be answered.

    Where it is ``known`` when servers were scraped, the plain series are asked for: they end where a server restarts.
    """
    times = max(FEWEST_TIMES, int(GRID_SAMPLES / (servers * _SERIES_OF_A_SERVER)))
    selector = named(names, question.selector)
    rows, _ = _at_times(api, question, selector if known else _recent(selector, interval), times, interval)
    return rows


def _at_times(
    api: PrometheusApi, question: Question, selector: str, times: int, interval: float
) -> tuple[list[Row], float]:
    """The series at evenly spaced times, the last one the window's end; fewer where the server allows no more."""
    fine = times >= question.duration / interval
    # The first sample that is answered has to lie inside the window, for servers scraped late in the interval, too:
    # else such a server would be counted from the next of these times only, which is far where there are few of them.
    span = max(question.duration - (interval - 0.001 if fine else 1.05 * interval), question.duration / 2)
    times = max(2, min(times, int(span / interval) + 1, MOST_TIMES))
    while True:
        step = max(0.001, int(span / (times - 1) * 1000) / 1000)
        try:
            return api.range(selector, question.end - step * (times - 1), question.end, step), step
        except TooMany:
            if times == 2:
                raise
            times = max(2, times // 4)


def _gpus(api: PrometheusApi, question: Question) -> Hardware | None:
    """What exporters tell of GPUs. It is extra: what fails here is said, no more."""
    try:
        return fleet_gpus(api, question.selector, question.start, question.end)
    except SourceError as error:
        api.said.append(f"the counters of GPUs could not be read ({error.reason})")
        return None


def _between(question: Question) -> str:
    return f"from {utc(question.start)} to {utc(question.end)}"
