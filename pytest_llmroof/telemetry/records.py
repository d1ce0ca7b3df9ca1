"""JSON telemetry: lists with one record per step of the engine, added up to totals as an engine's entry describes.

Reading such an endpoint drains its queue, so that files follow each other and none repeats another. The result is the
same as if the totals had been scraped: pages of running totals, at most some hundreds over all records. The records
have no clock: time is the sum of their steps' own times (answers.py reads those whose answers have one).

An entry's ``records`` (data/engines.yaml):

keys      what tells such a record, all of them
label     key whose value tells engines of one server apart
number    key that numbers the records of one engine
seconds   how long a step took
totals    name: how a record adds to it. ``add``: keys, of which the first that is there counts (without it: 1),
          ``times`` another key, ``scale`` a factor; ``where`` a key that must be there and not 0; ``lacks`` a key that
          must not be there, ``unless`` others have these values
samples   name: ``take`` a key's value, ``over`` another's
Keys of nested objects are joined by dots.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.engines import EngineNames, known_engines
from pytest_llmroof.telemetry.exposition import Page, Sample

#: Pages that are made of many records: enough for gauges and busy time.
_PAGES: Final = 500
#: More than any count or time of a step. A whole number of hundreds of digits is no number either.
_MOST: Final = 1e20
_AGAIN: Final = "write it again, to its end"

Record = Mapping[str, Any]


def read_records(
    text: str, location: str, engines: Mapping[str, EngineNames] | None = None
) -> tuple[EngineNames, list[Record]] | None:
    """The records of a JSON file and whose they are; None where it holds none that is known.

    A file may hold several lists or records, one behind the other, as repeated requests append them. SourceError where
    such a file is damaged.
    """
    known = [engine for engine in (engines or known_engines()).values() if engine.records]
    if not any(all(f'"{key}"' in text for key in (engine.records or {})["keys"]) for engine in known):
        return None
    records: list[Any] = []
    for value in _values(text, location):
        records.extend(value if isinstance(value, list) else [value])
    for engine in known:
        keys = (engine.records or {})["keys"]
        ours: list[Record] = [one for one in records if isinstance(one, dict) and all(key in one for key in keys)]
        if not ours:
            continue
        if len(ours) < len(records):
            other = next(number for number, record in enumerate(records, start=1) if record not in ours)
            raise SourceError(f"{location}: record {other} has no {' or '.join(keys)}", "name such records only")
        for number, record in enumerate(ours, start=1):
            if not seconds_of(engine, record):
                raise SourceError(f"{location}: record {number} does not tell how long its step took", _AGAIN)
        return engine, ours
    return None


def pages_of(engine: EngineNames, records: Sequence[Record], location: str) -> list[Page]:
    """Pages of running totals, from before the first record to behind the last one."""
    number = (engine.records or {}).get("number", "")
    seen: set[tuple[str, str, float]] = set()
    kept = []
    for record in records:
        rank, seconds = rank_of(engine, record), seconds_of(engine, record) or 0.0
        step = repr(record.get(number))
        if number and (rank, step, seconds) in seen:
            continue  # the same file twice
        seen.add((rank, step, seconds))
        kept.append((rank, seconds, record))
    every = max(1, math.ceil(len(kept) / _PAGES))
    totals = Totals(engine, [rank for rank, _, _ in kept])
    clocks = dict.fromkeys(totals.ranks, 0.0)
    pages = [replace(totals.page(location, 0.0), relative_clock=True)]
    for index, (rank, seconds, record) in enumerate(kept, start=1):
        totals.add(record)
        totals.look(record)
        clocks[rank] += seconds
        if index % every == 0 or index == len(kept):
            pages.append(replace(totals.page(location, max(clocks.values())), relative_clock=True))
    return pages


class Totals:
    """Running totals of the records of each rank, and what the latest ones say of their moment."""

    def __init__(self, engine: EngineNames, ranks: Iterable[str]) -> None:
        rules: Mapping[str, Any] = engine.records or {}
        self._prefix, self._label = engine.prefixes[0], rules.get("label", "")
        self._number = str(rules.get("number", ""))
        self._adding: Mapping[str, Mapping[str, Any]] = rules["totals"]
        self._taking: Mapping[str, Mapping[str, Any]] = rules.get("samples", {})
        self._engine = engine
        self._totals = {rank: dict.fromkeys(self._adding, 0.0) for rank in dict.fromkeys(ranks)}
        self._samples: dict[str, dict[str, float]] = {}

    @property
    def ranks(self) -> list[str]:
        """In order of appearance."""
        return list(self._totals)

    def add(self, record: Record) -> None:
        """Count a record."""
        totals = self._totals[rank_of(self._engine, record)]
        for name, rule in self._adding.items():
            totals[name] += _amount(record, rule)

    def look(self, record: Record) -> None:
        """Take what a record says of its moment."""
        self._samples[rank_of(self._engine, record)] = {
            name: value for name, rule in self._taking.items() if (value := _sample(record, rule)) is not None
        }

    def forget(self) -> None:
        """Nothing is known of this moment: the engine may be idle."""
        self._samples.clear()

    def page(self, location: str, clock: float, numbers: Mapping[str, float] = MappingProxyType({})) -> Page:
        """The totals so far; ``numbers`` are those of the latest records, by rank."""
        found: list[Sample] = []
        for rank, totals in self._totals.items():
            labels = {self._label: rank} if self._label and rank else {}
            number = {self._number: numbers[rank]} if rank in numbers else {}
            for values in (totals, number, self._samples.get(rank, {})):
                found.extend(Sample(self._prefix + name, labels, value) for name, value in values.items())
        return Page(location, tuple(found), scraped_at=clock)


def rank_of(engine: EngineNames, record: Record) -> str:
    """Which engine of its server a record is of."""
    label = (engine.records or {}).get("label", "")
    return str(record.get(label, "")) if label else ""


def seconds_of(engine: EngineNames, record: Record) -> float | None:
    """How long a record's step took; None where it does not tell."""
    seconds = _amount(record, (engine.records or {})["seconds"], missing=math.nan)
    return seconds if seconds > 0 else None


def _amount(record: Record, rule: Mapping[str, Any], missing: float = 0.0) -> float:
    """What a record adds to a total."""
    if "where" in rule and not value_at(record, rule["where"]):
        return 0.0
    if "lacks" in rule and (
        value_at(record, rule["lacks"]) is not None
        or any(record.get(key) == value for key, value in rule.get("unless", {}).items())
    ):
        return 0.0
    if "add" not in rule:
        return 1.0
    values = (value for key in rule["add"] if (value := value_at(record, key)) is not None)
    amount = next(values, missing)
    if "times" in rule:
        factor = value_at(record, rule["times"])
        amount *= 1.0 if factor is None else factor
    return amount * float(rule.get("scale", 1.0))


def _sample(record: Record, rule: Mapping[str, Any]) -> float | None:
    value = value_at(record, rule["take"])
    if value is None or "over" not in rule:
        return value
    whole = value_at(record, rule["over"])
    return value / whole if whole else None


def value_at(record: Record, path: str) -> float | None:
    """A number at a path of keys, of a size that can be one of a step; None where there is none."""
    found: Any = record
    for key in path.split("."):
        if not isinstance(found, Mapping):
            return None
        found = found.get(key)
    if isinstance(found, bool) or not isinstance(found, int | float) or not -_MOST <= found <= _MOST:
        return None
    return float(found)


def _values(text: str, location: str) -> Iterator[Any]:
    """The JSON values of a file, one behind the other."""
    decoder = json.JSONDecoder()
    at = _next(text, 0)
    while at < len(text):
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            place = error.pos if isinstance(error, json.JSONDecodeError) else at
            line = text.count("\n", 0, place) + 1
            column = place - text.rfind("\n", 0, place)
            what = "was cut off" if place >= len(text.rstrip()) else "is damaged"
            reason = error.msg if isinstance(error, json.JSONDecodeError) else "nested too deeply"
            raise SourceError(f"{location}:{line}:{column}: this JSON {what} ({reason})", _AGAIN) from None
        yield value
        at = _next(text, end)


def _next(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n\ufeff":
        at += 1
    return at
