"""What some engines of a window export, and others do not: a sum or a percentile over the rest is none of the whole.

That is so in a fleet of two releases while it is upgraded, and where a rule drops series of some targets or engines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pytest_llmroof.data import load
from pytest_llmroof.telemetry.engines import EngineNames
from pytest_llmroof.telemetry.feeding import counts_of, must_be_fed
from pytest_llmroof.telemetry.window import Engine


def known_everywhere(servers: Sequence[Sequence[Engine]], kind: EngineNames) -> list[list[Engine]]:
    """The engines of every server, with what one at work lacks and others have as unusable, by its reason.

    Of engines whose series appear with their first event only those are lacking that something must have fed.
    """
    holders: dict[str, Engine] = {}
    for engine in (engine for engines in servers for engine in engines):
        for quantity in _told(engine):
            holders.setdefault(quantity, engine)
    return [[_marked(engine, kind, holders) for engine in engines] for engines in servers]


def _marked(engine: Engine, kind: EngineNames, holders: Mapping[str, Engine]) -> Engine:
    told = {*_told(engine), *engine.unusable, *engine.accounted}
    missing = [name for name in holders if name not in told and name not in load("feeding.yaml")["optional"]]
    if not missing or not _worked(engine, kind):
        return engine
    if kind.absent_until_fed:
        missing = list(_lost(engine, kind, missing, holders))
    reasons = {
        name: f"{engine.identity} has no {holders[name].names.get(name, name)}, which {holders[name].identity} has"
        for name in missing
    }
    return replace(engine, unusable={**engine.unusable, **reasons}) if reasons else engine


def _lost(engine: Engine, kind: EngineNames, missing: Sequence[str], holders: Mapping[str, Engine]) -> Iterator[str]:
    """Of what an engine lacks all that cannot be 0: it was fed, or follows from what was."""
    fed = must_be_fed(counts_of(engine, kind))
    for name in missing:
        sources = {rule.get("from") for rule in kind.derived.get(name, ())}
        if name in holders[name].gauges or name in fed or sources & fed & {*missing}:
            yield name


def _told(engine: Engine) -> Iterator[str]:
    yield from (*engine.counters, *engine.histograms, *engine.gauges)
    if engine.finished and "requests_finished" not in engine.counters:
        yield "requests_finished"


def _worked(engine: Engine, kind: EngineNames) -> bool:
    """Whether an engine did anything in the window, as far as it tells."""
    counted = [engine.counters[name] for name in kind.work if name in engine.counters]
    counted += [engine.histograms[name].count for name in kind.work if name in engine.histograms]
    return any(counted) or (not counted and not kind.absent_until_fed)
