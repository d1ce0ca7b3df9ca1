"""Counters that follow from others: the rules of data/engines.yaml."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_llmroof.telemetry.engines import EngineNames
from pytest_llmroof.telemetry.snapshot import Snapshot

if TYPE_CHECKING:
    from pytest_llmroof.telemetry.difference import Difference


def derive(found: Difference, later: Snapshot, engine: EngineNames) -> None:
    """Counters that follow from others, by the first rule that can be followed."""
    for quantity, rules in engine.derived.items():
        if quantity in found.counters:
            continue
        # One that is there, but cannot be read, is not 0.
        usable = [rule for rule in rules if "zero_where" not in rule or quantity not in found.unusable]
        for value, name in _derivations(found, later, usable):
            if value >= 0 and math.isfinite(value):
                found.counters[quantity], found.names[quantity] = value, name
                break
        else:
            lost = [part for rule in rules for part in _lost(found, rule)]
            if lost:
                found.without(quantity, found.unusable[lost[0]])


def _lost(found: Difference, rule: Mapping[str, Any]) -> Iterator[str]:
    """The parts for want of which a rule cannot be followed, where all that it needs was there once."""
    needed = [rule[key] for key in ("from", "count_of", "plus_count_of") if key in rule]
    parts = [*needed, *rule.get("plus", ()), *rule.get("less", ())]
    needed += rule.get("less", ())[:1]
    if all(part in found.counters or part in found.histograms or part in found.unusable for part in needed):
        yield from (part for part in parts if part in found.unusable)


def _tells(found: Difference, later: Snapshot, quantity: str) -> bool:
    """Whether a quantity is there and says something else than 0."""
    if quantity in found.histograms:
        return found.histograms[quantity].count > 0
    return found.counters.get(quantity, later.gauges.get(quantity, 0.0)) > 0


def _derivations(
    found: Difference, later: Snapshot, rules: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[float, str]]:
    """What each rule that can be followed gives, and from what."""
    for rule in rules:
        if (histogram := rule.get("count_of")) in found.histograms:
            yield found.histograms[histogram].count, f"{found.names[histogram]}_count"
        if rule.get("zero_where") in found.counters and not any(
            _tells(found, later, quantity) for quantity in rule.get("unless", ())
        ):
            yield 0.0, found.names[rule["zero_where"]]
        source = rule.get("from")
        if source not in found.counters or found.unusable.keys() & {*rule.get("plus", ()), *rule.get("less", ())}:
            continue  # a part that was lost is not 0
        value, name = found.counters[source], found.names[source]
        if "where_disabled" in rule:
            if rule["where_disabled"] in later.disabled:
                yield value, name
            continue
        plus = [quantity for quantity in rule.get("plus", ()) if quantity in found.counters]
        less = [quantity for quantity in rule.get("less", ()) if quantity in found.counters]
        counted = rule.get("plus_count_of")
        if ("less" in rule and rule["less"][0] not in less) or (counted and counted not in found.histograms):
            continue
        value += sum(found.counters[quantity] for quantity in plus)
        value -= sum(found.counters[quantity] for quantity in less)
        names = " + ".join([name, *(found.names[quantity] for quantity in plus)])
        if counted:
            value += found.histograms[counted].count
            names += f" + {found.names[counted]}_count"
        yield value, " - ".join([names, *(found.names[quantity] for quantity in less)])
