"""Whose metrics a fleet's are, by their names: an engine's, and those of what stands beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.engines import EngineNames


@dataclass(frozen=True)
class Kind:
    """One engine's metrics that are there: their ``names``, all of them with the one ``prefix``."""

    engine: EngineNames
    prefix: str
    names: Sequence[str]


def kinds_of(there: Sequence[str], engines: Mapping[str, EngineNames], where: str) -> tuple[list[Kind], list[str]]:
    """The engine that most of the names are of, and whatever stands beside it; and what to say of names left out.

    What stands beside engines comes first only where there is none. SourceError where the names are those of several
    engines: a window of one of them would tell nothing of the others.
    """
    found: list[Kind] = []
    said: list[str] = []
    for engine in engines.values():
        of_engine = sorted(_prefixes(engine, there), key=lambda kind: -len(kind.names))
        found.extend(of_engine[:1])
        said.extend(
            f"{len(kind.names)} metrics of {engine.title} that begin with {kind.prefix} are not read: those with "
            f"{of_engine[0].prefix} are"
            for kind in of_engine[1:]
        )
    found.sort(key=lambda kind: (kind.engine.beside is not None, -len(kind.names)))
    if not found:
        return [], said
    first, *others = found
    others = [kind for kind in others if not set(kind.names) & set(first.names)]
    strangers = [kind for kind in others if kind.engine.beside is None]
    if strangers:
        names = " and ".join(kind.engine.title for kind in (first, *strangers))
        raise SourceError(
            f"{where} matches metrics of {names}: one window holds one kind of engine",
            "narrow `selector`, and give each engine a window of its own",
        )
    return [first, *others], said


def _prefixes(engine: EngineNames, there: Sequence[str]) -> list[Kind]:
    kinds = []
    for prefix in engine.prefixes:
        names = [name for name in there if name.startswith(prefix) and name in engine.targets]
        names = [name for name in names if not name.endswith("_created")]
        if names:
            kinds.append(Kind(engine, prefix, names))
    return kinds
