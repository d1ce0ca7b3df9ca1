"""What AIPerf saw of the server: its ``server_metrics_export.json`` and ``.jsonl``, as pages of the server.

The JSONL holds every scrape: each line is a page. The JSON states increases over the run, which are read as two pages,
before (0) and after (the increase), as far apart as its totals and rates say. Of gauges it holds statistics only, over
the samples from the run's start to the last scrape, idle ones behind the load among them: nothing but the largest is
sound, as the least that the largest was.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.bench_json import at, json_values, number
from pytest_llmroof.telemetry.endpoint import shown_url
from pytest_llmroof.telemetry.engines import known_engines, recognised
from pytest_llmroof.telemetry.exposition import Page, Sample

_START: Final = "process_start_time_seconds"
#: A start time that moves by more is another process.
_SAME_START_SECONDS: Final = 1.0
#: A series that was seen for less of the run than this share of it began during the run.
_LATE: Final = 0.98
_AGAIN: Final = "run the benchmark again, over a time in which the server does not restart"


@dataclass(frozen=True)
class ServerExport:
    """What one file tells of the servers: pages in order of time, and what to say of them.

    ``every_scrape`` tells that they are the scrapes themselves, not made from their statistics.
    """

    location: str
    pages: tuple[Page, ...]
    every_scrape: bool
    notes: tuple[str, ...] = ()


@dataclass
class _Series:
    """One series of the JSON: what its pages hold of it, and over how many seconds it was seen."""

    samples: list[Sample]
    zeros: list[Sample]
    name: str
    seconds: float | None


@dataclass
class _Server:
    """Everything of one endpoint."""

    series: list[_Series] = field(default_factory=list)
    facts: list[Sample] = field(default_factory=list)
    largest: dict[str, list[Sample]] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)


def server_export(text: str, location: str) -> ServerExport | None:
    """The servers' side of an AIPerf run; None where a file is none.

    SourceError where it is damaged, or where a server restarted during the run.
    """
    if '"endpoint_url"' not in text or '"metrics"' not in text:
        return None
    values = json_values(text, location)
    if values and all(_is_scrape(value) for value in values):
        return ServerExport(location, tuple(_scraped(value, location) for value in values), every_scrape=True)
    if len(values) == 1 and isinstance(at(values[0], "summary.endpoint_info"), Mapping):
        return _stated(values[0], location)
    return None


def chosen(
    exports: Sequence[tuple[str, ServerExport]], served: bool
) -> tuple[list[tuple[str, ServerExport]], list[tuple[str, str]]]:
    """The export to read of those that are there, each with its source, and the others with the reason.

    None where the servers' own pages are there (``served``), or where several runs are. Scrapes are better than their
    statistics.
    """
    used = [one for one in exports if one[1].every_scrape] or list(exports)
    if len(used) == 1 and not used[0][1].pages:
        return [], [
            (one.location, "; ".join(one.notes) or "no statistics of a server in a form that is known here")
            for _, one in exports
        ]
    if served:
        return [], [(one.location, "what AIPerf saw of the server, whose own pages are read") for _, one in exports]
    if len(used) > 1:
        why = "what AIPerf saw of the server, in several runs: give each a window of its own"
        return [], [(one.location, why) for _, one in exports]
    why = "statistics of the scrapes that AIPerf kept beside them"
    return used, [(one.location, why) for _, one in exports if not any(one is kept for _, kept in used)]


def _is_scrape(value: Any) -> bool:
    has = isinstance(value, Mapping) and isinstance(value.get("metrics"), Mapping)
    return has and number(value.get("timestamp_ns")) is not None and isinstance(value.get("endpoint_url"), str)


def _scraped(value: Mapping[str, Any], location: str) -> Page:
    """One line of the JSONL."""
    samples: list[Sample] = []
    for name, entries in value["metrics"].items():
        for entry in _objects(entries):
            labels = _labels(entry)
            buckets = entry.get("buckets", entry.get("histogram"))
            if isinstance(buckets, Mapping):
                samples.extend(_histogram(name, labels, buckets, entry))
            elif (held := number(entry.get("value"))) is not None:
                samples.append(Sample(_exposed(name), labels, held))
    latency = number(value.get("endpoint_latency_ns")) or 0.0
    return Page(
        location=location,
        samples=tuple(samples),
        scraped_at=value["timestamp_ns"] / 1e9,
        scrape_seconds=latency / 1e9,
        endpoint=_shown(value["endpoint_url"]),
    )


def _stated(export: Mapping[str, Any], location: str) -> ServerExport:
    """The JSON: increases over the run."""
    servers: dict[str, _Server] = {}
    for name, metric in _mapping(export.get("metrics")).items():
        for one in _objects(at(metric, "series")):
            url = one.get("endpoint_url")
            if isinstance(url, str) and isinstance(one.get("stats"), Mapping):
                server = servers.setdefault(url, _Server())
                server.types[name] = str(metric.get("type"))
                _add(server, str(name), server.types[name], one, location)
    pages: list[Page] = []
    notes: list[str] = []
    for url, server in servers.items():
        pages.extend(_pages(export, url, server, location, notes))
    if pages:
        notes.append(
            "what the server's counters and histograms gained during the run, as AIPerf states it; it holds no samples "
            "of gauges, so that their means are not measured (--server-metrics-formats json jsonl keeps every scrape)"
        )
    return ServerExport(location, tuple(pages), every_scrape=False, notes=tuple(notes))


def _add(server: _Server, name: str, kind: str, one: Mapping[str, Any], location: str) -> None:
    """One series, by its type."""
    stats, labels = one["stats"], _labels(one)
    if kind == "counter":
        total, rate = number(stats.get("total")), number(stats.get("rate"))
        if total is not None:
            exposed = _exposed(name)
            seconds = total / rate if total and rate else None
            server.series.append(
                _Series([Sample(exposed, labels, total)], [Sample(exposed, labels, 0.0)], exposed, seconds)
            )
    elif kind == "histogram":
        server.series.extend(_stated_histogram(name, labels, one, location))
    elif kind in ("gauge", "unknown"):
        least, largest = _figure(stats.get("min")), _figure(stats.get("max"))
        if least is None or largest is None:
            return
        if name == _START and largest - least > _SAME_START_SECONDS:
            raise _restarted(location, f"its process started at {least:.0f} before, at {largest:.0f} after")
        if name == _START or any(target.kind == "facts" for target in _targets(name)):
            server.facts.append(Sample(name, labels, largest))
        else:
            server.largest.setdefault(name, []).append(Sample(name, labels, largest))


def _figure(value: Any) -> float | None:
    """A finite number, which may be negative."""
    found = number(abs(value)) if isinstance(value, int | float) and not isinstance(value, bool) else None
    return None if found is None else math.copysign(found, value)


def _stated_histogram(
    name: str, labels: Mapping[str, str], one: Mapping[str, Any], location: str
) -> Iterator[_Series]:  # fmt: skip
    stats, buckets = one["stats"], one.get("buckets")
    count, total = _figure(stats.get("count")), _figure(stats.get("sum"))
    if count is None:
        return
    if count < 0 or (total is not None and total < 0) or (count and not isinstance(buckets, Mapping)):
        raise _restarted(location, f"{name} went down")
    held = {"sum": total if count else 0.0, "count": count}
    rate = number(stats.get("count_rate"))
    known = buckets if isinstance(buckets, Mapping) else {"+Inf": 0}
    yield _Series(
        list(_histogram(name, labels, known, held)),
        list(_histogram(name, labels, dict.fromkeys(known, 0), {"sum": 0.0, "count": 0})),
        name,
        count / rate if count and rate else None,
    )


def _pages(
    export: Mapping[str, Any], url: str, server: _Server, location: str, notes: list[str]
) -> tuple[Page, ...]:  # fmt: skip
    """A server before the run and after it; nothing where it counted nothing, of which no time is known either."""
    info = _mapping(_mapping(at(export, "summary.endpoint_info")).get(url))
    seconds = max((one.seconds for one in server.series if one.seconds is not None), default=None)
    began = number(at(export, "phase_time_ranges.profiling.start_ns"))
    began = began if began is not None else number(at(export, "summary.phase_time_ranges.profiling.start_ns"))
    ended = number(info.get("last_fetch_ns"))
    if seconds is None or (began is None and ended is None):
        notes.append(f"the counters of {_shown(url)} did not move during the run")
        return ()
    started = began / 1e9 if began is not None else (ended or 0.0) / 1e9 - seconds
    after = Page(
        location=location,
        samples=tuple(sample for one in server.series for sample in one.samples) + tuple(server.facts),
        scraped_at=started + seconds,
        scrape_seconds=(number(info.get("avg_fetch_latency_ms")) or 0.0) / 1e3,
        endpoint=_shown(url),
        # Of several series that add up, the largest of each say nothing of the largest sum.
        largest=tuple(series[0] for series in server.largest.values() if len(series) == 1),
    )
    engine = recognised(after)
    late = {one.name for one in server.series if one.seconds is not None and one.seconds < _LATE * seconds}
    if late:
        names = ", ".join(sorted(late))
        notes.append(f"{names} appeared during the run: AIPerf counts from the first scrape on, so it is not used")
    if engine is not None and engine.absent_until_fed:
        # What it had counted when it first appeared is in no increase: that may be all of a series that gained nothing.
        still = {one.name for one in server.series if one.seconds is None} & engine.targets.keys() - late
        if still:
            names = ", ".join(sorted(still))
            notes.append(f"{names} gained nothing, or appeared during the run with all that it counted: it is not used")
        late |= still
        after = _unknown(after, [one for one in server.series if one.name in late])
    # Without any of its series before the run, the increase of a name is not known.
    zeros = tuple(sample for one in server.series if one.name not in late for sample in one.zeros)
    before = Page(
        location=location,
        samples=zeros + tuple(server.facts),
        scraped_at=started,
        scrape_seconds=after.scrape_seconds,
        endpoint=after.endpoint,
    )
    return before, after


def _unknown(page: Page, series: Sequence[_Series]) -> Page:
    """The page without the values of some series: where absence means 0, they must not be absent."""
    unknown = {id(sample) for one in series for sample in one.samples}
    samples = [one._replace(value=math.nan) if id(one) in unknown else one for one in page.samples]
    return replace(page, samples=tuple(samples))


def _histogram(
    name: str, labels: Mapping[str, str], buckets: Mapping[str, Any], held: Mapping[str, Any]
) -> Iterator[Sample]:
    for bound, count in buckets.items():
        if (observed := number(count)) is not None:
            yield Sample(f"{name}_bucket", {**labels, "le": str(bound)}, observed)
    for part in ("sum", "count"):
        if (told := number(held.get(part))) is not None:
            yield Sample(f"{name}_{part}", labels, told)


def _exposed(name: str) -> str:
    """The name on the server's page: the export leaves a counter's ``_total`` out."""
    return f"{name}_total" if _targets(f"{name}_total") else name


def _targets(name: str) -> list[Any]:
    return [target for engine in known_engines().values() for target in engine.targets.get(name, ())]


def _restarted(location: str, sign: str) -> SourceError:
    return SourceError(
        f"{location}: the server restarted during the run ({sign}), and what its counters gained is lost", _AGAIN
    )


def _shown(url: str) -> str:
    """What may be shown of an address."""
    try:
        return shown_url(url)
    except ValueError:
        return "a server"


def _labels(one: Mapping[str, Any]) -> dict[str, str]:
    return {str(key): str(value) for key, value in _mapping(one.get("labels")).items()}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []
