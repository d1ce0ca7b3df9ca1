"""What some servers of a window export, and others do not: a sum or a percentile over the rest is none of the whole.

That is so in a fleet of two releases while it is upgraded, and where a rule drops series of some targets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from pytest_llmroof.telemetry.engines import EngineNames
from pytest_llmroof.telemetry.window import Engine

#: Who does not speculate has no drafts, and lacks nothing.
_OPTIONAL: Final = ("draft", "accept", "requests_rejected")


def known_everywhere(servers: Sequence[Sequence[Engine]], kind: EngineNames) -> list[list[Engine]]:
    """The engines of every server, with what a server at work lacks and others have as unusable, by its reason.

    Engines whose series appear with their first event are left as they are: there, what is absent is 0.
    """
    if kind.absent_until_fed or len(servers) < 2:
        return [list(engines) for engines in servers]
    holders: dict[str, Engine] = {}
    for engine in (engine for engines in servers for engine in engines):
        for quantity in _told(engine):
            holders.setdefault(quantity, engine)
    return [_marked(engines, kind, holders) for engines in servers]


def _marked(engines: Sequence[Engine], kind: EngineNames, holders: Mapping[str, Engine]) -> list[Engine]:
    told = {quantity for engine in engines for quantity in (*_told(engine), *engine.unusable)}
    missing = [name for name in holders if name not in told and not name.startswith(_OPTIONAL)]
    if not missing or not any(_worked(engine, kind) for engine in engines):
        return list(engines)
    first = engines[0]
    reasons = {
        name: f"{first.identity} has no {holders[name].names.get(name, name)}, which {holders[name].identity} has"
        for name in missing
    }
    return [replace(first, unusable={**first.unusable, **reasons}), *engines[1:]]


def _told(engine: Engine) -> Iterator[str]:
    yield from (*engine.counters, *engine.histograms, *engine.gauges)
    if engine.finished and "requests_finished" not in engine.counters:
        yield "requests_finished"


def _worked(engine: Engine, kind: EngineNames) -> bool:
    """Whether an engine did anything in the window, as far as it tells."""
    counted = [engine.counters[name] for name in kind.work if name in engine.counters]
    counted += [engine.histograms[name].count for name in kind.work if name in engine.histograms]
    return any(counted) or not counted
