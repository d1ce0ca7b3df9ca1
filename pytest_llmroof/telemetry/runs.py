"""Which benchmark run is a window's: one out of the files that were named, alone or beside a server's scrapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pytest_llmroof.advice import Advice
from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.client import Client
from pytest_llmroof.telemetry.window import SourceInfo, Window

#: How far a server's counts may be from those of a client that is its only one; it may be asked once more, to see
#: whether it is there.
SAME_LOAD: Final = 0.1
_ASKED_BESIDES: Final = 2.0


def alone(clients: Sequence[Client], unread: tuple[str, ...] = ()) -> Window:
    """A window of a benchmark result only. SourceError where several runs are in it, of different loads."""
    client = _one(clients)
    if isinstance(client, SourceError):
        raise client
    return Window(
        kind=client.tool,
        engines=(),
        sources=tuple(SourceInfo(client.tool, one.strip()) for one in client.location.split(" + ")),
        started=client.started,
        duration_seconds=client.duration_seconds,
        samples=0,
        notes=client.notes,
        unread=unread,
        title=client.title,
        client=client,
    )


def beside(window: Window, clients: Sequence[Client]) -> Window:
    """A server's window with the client's view of it. Results of which none can be its own are listed as unread."""
    chosen = _one(clients)
    if isinstance(chosen, SourceError):
        fitting = [client for client in _merged(clients) if same_load(window, client)]
        if len(fitting) != 1:
            return replace(window, unread=(*window.unread, chosen.reason))
        chosen = fitting[0]
    return replace(
        window,
        client=chosen,
        sources=(*window.sources, *(SourceInfo(chosen.tool, one.strip()) for one in chosen.location.split(" + "))),
        notes=(*window.notes, *chosen.notes),
    )


def same_load(window: Window, client: Client) -> bool | None:
    """Whether server and client counted the same output tokens and requests; None where nothing can be compared."""
    # Of requests that were under way when a warm-up ended the server counted a part; pieces may hold several tokens.
    tokens = client.cut.tokens("output_tokens") if client.cut else 0.0
    tokens += sum(one.more_tokens for one in client.succeeded)
    requests = float(len(client.cut.under_way)) if client.cut else 0.0
    pairs = [(window.counter("generation_tokens"), client.output_tokens, tokens, 0.0)]
    pairs.append((_finished(window), client.total, requests, _ASKED_BESIDES))
    known = [
        abs(served - min(max(served, seen), seen + partly)) <= SAME_LOAD * max(served, seen) + besides
        for served, seen, partly, besides in pairs
        if served is not None and seen is not None
    ]
    return all(known) if known else None


def _finished(window: Window) -> float | None:
    counted = window.counter("requests_finished")
    if counted is not None:
        return counted
    reasons = [sum(engine.finished.values()) for engine in window.engines if engine.finished]
    return sum(reasons) if reasons else None


def _one(clients: Sequence[Client]) -> Client | SourceError:
    """The run that is meant: the only one, or the last of several with one and the same load."""
    runs = _merged(clients)
    if len(runs) == 1:
        return runs[0]
    last = runs[-1]
    if any((one.tool, one.model_name, one.settings) != (last.tool, last.model_name, last.settings) for one in runs):
        return _refuse_other_loads(runs)
    note = f"{len(runs)} runs of one load are there: the last is read ({last.location})"
    return replace(last, notes=(*last.notes, note))


def _merged(clients: Sequence[Client]) -> list[Client]:
    """The runs: records and summary of one run are one, and stages that a summary covers are no runs of their own."""
    kept = list(clients)
    for records in [one for one in clients if one.requests and not one.summaries and one.completed]:
        same = [one for one in kept if one.summaries and one.tool == records.tool and _same_run(one, records)]
        if len(same) == 1 and not same[0].requests:
            kept[kept.index(same[0])] = _joined(same[0], records)
            kept.remove(records)
    for whole in list(kept):
        parts = [one for one in kept if one is not whole and one.tool == whole.tool]
        counts = [one.total for one in parts]
        if whole.total and len(parts) > 1 and None not in counts and sum(filter(None, counts)) == whole.total:
            note = f"{whole.location} covers the {len(parts)} stages beside it"
            return [replace(one, notes=(*one.notes, note)) if one is whole else one for one in kept if one not in parts]
    return kept


def _same_run(summary: Client, records: Client) -> bool:
    """As many completed requests; of a tool that counts no failures, as many in all."""
    return summary.completed in (records.completed, records.total if summary.failed is None else records.completed)


def _joined(summary: Client, records: Client) -> Client:
    return replace(
        summary,
        location=f"{summary.location} + {records.location}",
        requests=records.requests,
        completed=records.completed,
        failed=records.failed if records.failed is not None else summary.failed,
        started=records.started or summary.started,
        input_tokens=summary.input_tokens if summary.input_tokens is not None else records.input_tokens,
        output_tokens=summary.output_tokens if summary.output_tokens is not None else records.output_tokens,
    )


def _refuse_other_loads(clients: Sequence[Client]) -> SourceError:
    """Several runs, of which nobody said which one is meant."""
    names = sorted({key for one in clients for key in one.settings} | {"model"})
    differ = [key for key in names if len({one.settings.get(key) for one in clients}) > 1]
    what = f" of different {', '.join(differ[:3])}" if differ else ""
    where = ", ".join(dict.fromkeys(one.location.partition(" (run ")[0] for one in clients))
    return SourceError(
        f"{where}: {len(clients)} benchmark runs{what}, and nothing tells which one is meant",
        Advice(
            "keep the one to judge in a file of its own (a window for each)",
            "sed -n 2p runs.jsonl > run2.jsonl, or jq '.[1]' runs.json > run2.json",
        ),
    )
