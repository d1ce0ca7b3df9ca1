"""Fitting parts of a time into that time: parts that are surer keep what they need, the others shrink."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, get_args

from pytest_llmroof.analysis.attribution import Cause, Maybe, Share

_ORDER: Final[dict[str, int]] = {cause: place for place, cause in enumerate(get_args(Cause))}


@dataclass(frozen=True)
class Part:
    """A part of a time, in seconds, before it is fitted; ``observed`` or estimated, with its source."""

    cause: Cause
    seconds: float
    observed: bool
    source: str
    maybe: frozenset[Maybe] = frozenset()


def fitted(total: float, parts: Iterable[Part], rest: Part) -> tuple[Share, ...]:
    """Shares that add up to 1: ``parts`` in order of precedence, each cut to what is left; ``rest`` gets the remainder.

    The seconds of ``rest`` are ignored. Parts without time are left out. ``total`` must be above 0.
    """
    left = total
    kept: list[Part] = []
    for part in parts:
        seconds = min(max(part.seconds, 0.0), left)
        left -= seconds
        if seconds > 0:
            kept.append(replace(part, seconds=seconds))
    # What floating point leaves over is no share.
    if left > 1e-9 * total:
        kept.append(replace(rest, seconds=left))
    return tuple(_share(part, total) for part in _merged(kept))


def _merged(parts: list[Part]) -> list[Part]:
    """One part per cause, in the order in which causes are listed."""
    merged: dict[str, Part] = {}
    for part in parts:
        known = merged.get(part.cause)
        merged[part.cause] = part if known is None else _sum(known, part)
    return sorted(merged.values(), key=lambda part: _ORDER[part.cause])


def _sum(first: Part, second: Part) -> Part:
    source = first.source if first.source == second.source else f"{first.source}; {second.source}"
    seconds, seen = first.seconds + second.seconds, first.observed and second.observed
    return Part(first.cause, seconds, seen, source, first.maybe | second.maybe)


def _share(part: Part, total: float) -> Share:
    return Share(part.cause, part.seconds, part.seconds / total, part.observed, part.source, part.maybe)
