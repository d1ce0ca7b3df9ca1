"""One window of what Prometheus servers answered: all of their engines, and what stands beside them.

Several servers may be asked, one for each cluster. A replica that two of them see counts once; a server whose engines
would not count at all is refused, as the window would tell of the other clusters only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pytest_llmroof.errors import SourceError
from pytest_llmroof.garbage import without_collections
from pytest_llmroof.telemetry.beside import Joined, as_one, is_front
from pytest_llmroof.telemetry.doubles import without_doubles
from pytest_llmroof.telemetry.engines import EngineNames
from pytest_llmroof.telemetry.fleet import ASKED, Key, with_names
from pytest_llmroof.telemetry.fleetgpus import device_names
from pytest_llmroof.telemetry.fleetread import Read
from pytest_llmroof.telemetry.fleetwindow import fleet_window
from pytest_llmroof.telemetry.gpujoin import joined
from pytest_llmroof.telemetry.prometheus import Answer
from pytest_llmroof.telemetry.window import SourceInfo, Window

_LEFT_OUT: Final = "its figures are left out"


def window_of(answers: Sequence[Answer], served_model_name: str | None = None) -> Window:
    """The window that the answers make together. SourceError where none has an engine, or one would not count."""
    with without_collections():
        kinds = _kinds(answers)
        said: list[str] = []
        main, doubles = _together(kinds[0], said)
        window = fleet_window(main, served_model_name, said)
        _refuse_unheard(kinds[0], window, doubles, served_model_name)
        for reads in kinds[1:]:
            window = _with_beside(window, reads)
    hardware = joined([answer.hardware for answer in answers if answer.hardware is not None])
    notes = [*window.notes, *(note for answer in answers for note in (*answer.left_out, *answer.said))]
    return replace(
        window,
        sources=tuple(dict.fromkeys(SourceInfo("prometheus", answer.location) for answer in answers)),
        hardware=hardware,
        device_names=tuple(dict.fromkeys(name for answer in answers for name in device_names(answer.hardware))),
        notes=tuple(dict.fromkeys(notes)),
    )


def _kinds(answers: Sequence[Answer]) -> list[list[Read]]:
    """What was read, by kind: the engine's first."""
    by_kind: dict[str, list[Read]] = {}
    for answer in answers:
        for read in answer.reads:
            by_kind.setdefault(read.engine.key, []).append(read)
    kinds = sorted(by_kind.values(), key=lambda reads: reads[0].engine.beside is not None)
    if not kinds:
        where = ", ".join(answer.location for answer in answers)
        raise SourceError(
            f"{where}: counters of GPUs, but no serving engine's metrics",
            "add the server that scrapes the engines, or check `selector`",
        )
    engines = [reads for reads in kinds if reads[0].engine.beside is None]
    if len(engines) > 1:
        names = " and ".join(f"{reads[0].engine.title} ({_where(reads)})" for reads in engines)
        raise SourceError(
            f"the servers hold metrics of different engines: {names}", "give each engine a window of its own"
        )
    return kinds


def _where(reads: Sequence[Read]) -> str:
    return ", ".join(dict.fromkeys(read.location for read in reads))


def _together(reads: Sequence[Read], said: list[str]) -> tuple[Read, set[Key]]:
    """Several servers' answers as one, each replica once, and those that are left out as another's double."""
    everything = sorted((server for read in reads for server in read.servers), key=lambda server: server.key)
    servers = without_doubles(with_names(everything), said)
    for server in servers:
        server.refuse_two_servers()
    whole = replace(
        reads[0],
        location=_where(reads),
        servers=servers,
        grid=[row for read in reads for row in read.grid],
        interval=max(read.interval for read in reads),
        step=max(read.step for read in reads),
    )
    return whole, {server.key for server in everything} - {server.key for server in servers}


def _refuse_unheard(reads: Sequence[Read], window: Window, doubles: set[Key], served_model_name: str | None) -> None:
    """SourceError where nothing of a server's engines is in the window: it would seem to hold for them, too."""
    if len(reads) == 1:
        return
    heard = {engine.place.get(ASKED) for engine in window.engines} | {dict(how).get(ASKED) for _, how in doubles}
    for read in reads:
        if read.location not in heard:
            of_model = f" of {served_model_name!r}" if served_model_name else ""
            why = next((note for note in window.notes if "left out" in note), "none has two scrapes of one process")
            raise SourceError(
                f"{read.location}: no engine{of_model} is in the window" + ("" if of_model else f" ({why})"),
                "check its `selector`, or leave this source out: without it the window tells of the others only",
            )


def _with_beside(window: Window, reads: Sequence[Read]) -> Window:
    """The window with the figures of what stands beside its engines, where they are of all of its time."""
    said: list[str] = []
    whole, _ = _together(reads, said)
    kind = whole.engine
    restarted = [server.name for server in whole.servers if server.restarts()]
    if restarted:
        return _without(window, kind, f"{kind.title} restarted inside the window ({restarted[0]}): {_LEFT_OUT}")
    names = {engine.model_name.casefold() for engine in window.engines if engine.model_name}
    try:
        theirs = fleet_window(whole, None, said, models=names)
    except SourceError as error:
        return _without(window, kind, f"{kind.title} is left out: {error.reason}")
    left_out: list[str] = []
    one = as_one(theirs.engines, len(theirs.engines) == 1, kind, left_out)
    apart = _apart(window, theirs)
    if apart > 2 * max(whole.interval, whole.step) + window.clock_error_seconds + theirs.clock_error_seconds:
        return _without(window, kind, *said, f"{kind.title} was not there for all of the window: {_LEFT_OUT}")
    joined = Joined(list(window.engines), window.front)
    joined.join(kind, one)
    return replace(
        window,
        engines=tuple(joined.engines),
        front=joined.front,
        # What it counted lies between scrapes of its own: the window is known to the difference of both only.
        clock_error_seconds=max(window.clock_error_seconds, apart),
        notes=(*window.notes, *theirs.notes, *left_out),
    )


def _without(window: Window, kind: EngineNames, *notes: str) -> Window:
    """The window without what stands beside its engines, and what is to be said of that."""
    lost = notes[-1] if is_front(kind) else window.front_lost
    return replace(window, notes=(*window.notes, *notes), front_lost=lost)


def _apart(window: Window, other: Window) -> float:
    """How far the ends of two windows lie apart, in seconds."""
    if window.started is None or other.started is None:
        return 0.0
    first = abs(window.started - other.started)
    last = abs(window.started + (window.duration_seconds or 0.0) - other.started - (other.duration_seconds or 0.0))
    return max(first, last)
