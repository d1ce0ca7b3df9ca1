"""The warm-up of a window of files: what was scraped or sent before one instant is cut from its start.

The instant lies the warm-up after the first scrape, or after the first request where that comes later and both are on
one clock. What cannot be cut is refused or left out, never counted whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pytest_llmroof.advice import Advice, behind
from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.client import Client, Cut, Request
from pytest_llmroof.telemetry.gpuclock import on_the_clock
from pytest_llmroof.telemetry.gputables import GpuTable
from pytest_llmroof.telemetry.gpuwindow import devices_of, with_hardware
from pytest_llmroof.telemetry.scrapes import Scrape
from pytest_llmroof.telemetry.window import SourceInfo, Window

#: Times that are smaller count from some start of their own.
_UNIX = 1e9
_RECORD = Advice(
    "record the load without its warm-up, and leave `warmup` out", "python -m pytest_llmroof record --warmup=10s ..."
)
_LEFT_OUT = "and it is left out"
_REQUESTS = "keep per-request data with the start of each request, or leave `warmup` out"

Servers = Mapping[str, Sequence[Scrape]]


def without_warmup(whole: Window, servers: Servers, seconds: float, build: Callable[[Servers], Window]) -> Window:
    """The window without its first ``seconds``. ``build`` makes one of scrapes; ``whole`` is that of all ``servers``.

    SourceError where the scrapes carry no clock, or fewer than two of a server are left.
    """
    everything = [scrape for scrapes in servers.values() for scrape in scrapes]
    relative = any(scrape.relative_clock for scrape in everything if scrape.engine is not None)
    began, ended = _span(whole, everything, relative, seconds)
    instant = began + seconds
    client = whole.client
    if client is not None and not relative:
        instant = max(instant, _first_on_clock(client, began, ended) + seconds)
    kept, notes = _kept(servers, instant, whole.kind, ended, relative)
    left = sum(len(scrapes) for scrapes in kept.values())
    few = SourceError(
        f"after the warm-up of {seconds:g} s fewer than two of the {len(everything)} scrapes of a server are left",
        "record for longer or at shorter intervals, or warm up for less",
    )
    if not kept:
        raise few
    window = build(kept)
    if window.kind != whole.kind or window.since_start or window.samples < 2:
        raise few
    notes.append(f"{len(everything) - left} of {len(everything)} scrapes lie in the warm-up of {seconds:g} s: left out")
    said = tuple(dict.fromkeys((*whole.notes, *window.notes, *notes)))
    window = replace(window, unread=whole.unread, notes=said, device_names=whole.device_names)
    return window if client is None else _with_client(window, client, seconds, None if relative else instant)


def refuse_tables(tables: Sequence[GpuTable], seconds: float) -> None:
    """SourceError where tables of GPU counters are all that there is."""
    if tables:
        raise SourceError(
            f"a warm-up of {seconds:g} s can't be cut from tables of GPU counters alone",
            "begin the table after the warm-up, and leave `warmup` out",
        )


def client_without_warmup(window: Window, servers: Servers, tables: Sequence[GpuTable], seconds: float) -> Window:
    """A benchmark's window without the requests that started in its first ``seconds``, with its GPUs' counters.

    SourceError where it can't be cut.
    """
    client = window.client
    if client is None:
        raise SourceError(
            f"{window.engine_title} tells no time of its runs: a warm-up of {seconds:g} s can't be cut from them",
            "leave `warmup` out: llama-bench warms up by itself",
        )
    cut = cut_client(client, seconds, None)
    names = devices_of([scrape for scrapes in servers.values() for scrape in scrapes], tables)
    window = replace(window, client=cut, started=cut.started, duration_seconds=cut.duration_seconds, device_names=names)
    pages, inside, left_out = clocked(window, servers, tables)
    notes = (*window.notes, _said(client, cut, seconds), *left_out)
    return with_hardware(replace(window, notes=notes), pages, inside)


def clocked(
    window: Window, servers: Servers, tables: Sequence[GpuTable]
) -> tuple[dict[str, list[Scrape]], list[GpuTable], list[str]]:
    """The pages and tables of GPU counters whose times are the window's own, and what to say of the others.

    A window is cut to its own time; counters of an unknown time would bring the warm-up back in.
    """
    span = None
    if window.started is not None and window.duration_seconds is not None:
        span = window.started, window.started + window.duration_seconds
    inside = [table for table in tables if span is not None and on_the_clock(table, span)[1]]
    pages = {
        server: [scrape for scrape in scrapes if span is not None and scrape.clock is not None]
        for server, scrapes in servers.items()
    }
    left_out = [table.location for table in tables if table not in inside]
    left_out += [one.location for key, of in servers.items() for one in of if one.gpus and one not in pages[key]]
    notes = [f"{', '.join(left_out[:3])}: not on the window's clock, so its warm-up can't be cut, {_LEFT_OUT}"]
    return pages, inside, notes if left_out else []


def cut_client(client: Client, seconds: float, instant: float | None) -> Client:
    """The run without the requests that started before ``instant`` (Unix seconds), where both are on one clock.

    Else without those that started within ``seconds`` of the first. What the tool states of the whole run is dropped.
    SourceError where the start of a completed request is not known, or no request is left.
    """
    starts = [one.started for one in client.requests if one.started is not None]
    if not client.complete or not starts or any(one.started is None for one in client.succeeded):
        raise SourceError(
            f"{client.location} does not tell when each request started: a warm-up of {seconds:g} s can't be cut",
            client.remedies.get("requests", _REQUESTS),
        )
    first = min(starts)
    offset = _offset(client, first)
    since = first + seconds if instant is None or offset is None else instant - offset
    kept = tuple(one for one in client.requests if one.started is None or one.started >= since)
    good = [one for one in kept if not one.failed]
    if not good:
        raise SourceError(
            f"{client.location}: no completed request started after the warm-up of {seconds:g} s",
            "drive the load for longer, or warm up for less",
        )
    early = [one for one in client.succeeded if one.started is not None and one.started < since]
    ends = [one.started + one.e2e for one in good if one.started is not None and one.e2e is not None]
    duration = max(ends) - since if len(ends) == len(good) else None
    if client.duration_seconds is not None and client.duration_seconds > since - first:
        duration = client.duration_seconds - (since - first)
    unrecorded = (client.failed or 0.0) - sum(one.failed for one in client.requests)
    failed = None if client.failed is None else sum(one.failed for one in kept) + max(0.0, unrecorded)
    inputs = _sum([one.input_tokens for one in good])
    return replace(
        client,
        requests=kept,
        completed=float(len(good)),
        failed=failed,
        input_tokens=inputs,
        output_tokens=_sum([one.output_tokens for one in good]),
        computed_tokens=_computed(client, inputs),
        duration_seconds=duration,
        output_rate=None,
        input_rate=None,
        request_rate=None,
        summaries={},
        waits={},
        started=since + offset if offset is not None else None,
        ended_local=client.ended_local,
        cut=Cut(len(client.requests) - len(kept), tuple(one for one in early if _ends_after(one, since))),
    )


def _span(whole: Window, everything: Sequence[Scrape], relative: bool, seconds: float) -> tuple[float, float]:
    """From when to when the whole window lasts, on the clock of its scrapes."""
    if whole.since_start or whole.samples < 2:
        raise SourceError(
            f"one scrape covers all time since the server's start: a warm-up of {seconds:g} s can't be cut from it",
            _RECORD,
        )
    if relative:
        clocks = [scrape.clock for scrape in everything if scrape.engine is not None and scrape.clock is not None]
        return min(clocks), max(clocks)
    if whole.started is None or whole.duration_seconds is None:
        raise SourceError(
            f"the scrapes carry no clock: a warm-up of {seconds:g} s can't be cut from them",
            behind("write `# scraped_at` into each, or ", _RECORD),
        )
    return whole.started, whole.started + whole.duration_seconds


def _kept(
    servers: Servers, instant: float, kind: str, ended: float, relative: bool
) -> tuple[dict[str, list[Scrape]], list[str]]:  # fmt: skip
    """The scrapes from the instant on, of the servers that have two of them, and what to say of the others.

    What an engine of this ``kind`` did after the window's end, behind a restart, is none of it.
    """
    kept: dict[str, list[Scrape]] = {}
    notes = []
    for server, scrapes in servers.items():
        if any(scrape.clock is None or scrape.relative_clock is not relative for scrape in scrapes):
            notes.append(f"{scrapes[0].location} is not on the window's clock: its warm-up can't be cut, {_LEFT_OUT}")
            continue
        after = [scrape for scrape in scrapes if (scrape.clock or 0.0) >= instant]
        if any(scrape.engine is not None and scrape.engine.key == kind for scrape in scrapes):
            after = [scrape for scrape in after if (scrape.clock or 0.0) <= ended]
        if len(after) >= 2:
            kept[server] = after
        else:
            notes.append(f"{scrapes[0].location}: fewer than two scrapes of this server are left after the warm-up")
    return kept, notes


def _with_client(window: Window, client: Client, seconds: float, instant: float | None) -> Window:
    try:
        cut = cut_client(client, seconds, instant)
    except SourceError as error:
        line = f"{error.reason}; left out beside the server's scrapes ({error.remedy})"
        return replace(window, unread=(*window.unread, line), notes=(*window.notes, line))
    infos = (SourceInfo(client.tool, one.strip()) for one in client.location.split(" + "))
    notes = (*window.notes, _said(client, cut, seconds))
    return replace(window, client=cut, sources=(*window.sources, *infos), notes=notes)


def _said(client: Client, cut: Client, seconds: float) -> str:
    out = cut.cut.requests if cut.cut else 0
    said = f"{out} of {len(client.requests)} requests started in the warm-up of {seconds:g} s: left out"
    if any(one.failed and one.started is None for one in client.requests) or len(client.requests) < (
        client.total or 0.0
    ):
        said += "; failed requests whose start is not known all count"
    if client.accept_length is not None:
        said += "; tokens per verify step are those of the whole run"
    return said


def _first_on_clock(client: Client, began: float, ended: float) -> float:
    """When the first request started; the window's own begin where that is on another clock, or at another time."""
    starts = [one.started for one in client.requests if one.started is not None]
    offset = _offset(client, min(starts)) if starts else None
    if offset is None:
        return began
    first = min(starts) + offset
    return first if began <= first <= ended else began


def _offset(client: Client, first: float) -> float | None:
    """What makes the requests' times Unix seconds; None where nothing tells."""
    if first > _UNIX:
        return 0.0
    return client.started - first if client.started is not None and client.started > _UNIX else None


def _ends_after(one: Request, since: float) -> bool:
    """Whether a request of the warm-up was still under way after it, or may have been."""
    return one.e2e is None or one.started is None or one.started + one.e2e > since


def _computed(client: Client, inputs: float | None) -> float | None:
    """Prompt tokens that no cache held, at the least: as if all that were cached belonged to what is left."""
    if client.computed_tokens is None or client.input_tokens is None or inputs is None:
        return None if client.computed_tokens is None else 0.0
    return max(0.0, inputs - (client.input_tokens - client.computed_tokens))


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None
