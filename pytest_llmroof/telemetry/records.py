"""JSON telemetry: lists with one record per step of the engine, added up to totals as an engine's entry describes.

Reading such an endpoint drains its queue, so that files follow each other and none repeats another. The result is the
same as if the totals had been scraped: pages of running totals, at most some hundreds over all records. The records
have no clock: time is the sum of their steps' own times.

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
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.engines import EngineNames, known_engines
from pytest_llmroof.telemetry.exposition import Page, Sample

#: Pages that are made of many records: enough for gauges and busy time.
_PAGES: Final = 500
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
            if not _seconds(engine, record):
                raise SourceError(f"{location}: record {number} does not tell how long its step took", _AGAIN)
        return engine, ours
    return None


def pages_of(engine: EngineNames, records: Sequence[Record], location: str) -> list[Page]:
    """Pages of running totals, from before the first record to behind the last one."""
    if engine.records is None:
        raise AssertionError("only called for engines with records")
    label, number = engine.records.get("label", ""), engine.records.get("number", "")
    totals: dict[str, dict[str, float]] = {}
    clocks: dict[str, float] = {}
    seen: set[tuple[str, object, float]] = set()
    kept = []
    for record in records:
        rank = str(record.get(label, "")) if label else ""
        seconds = _seconds(engine, record) or 0.0
        if number and (rank, record.get(number), seconds) in seen:
            continue  # the same file twice
        seen.add((rank, record.get(number), seconds))
        kept.append((rank, seconds, record))
    every = max(1, math.ceil(len(kept) / _PAGES))
    for rank, _, _ in kept:
        totals.setdefault(rank, dict.fromkeys(engine.records["totals"], 0.0))
        clocks.setdefault(rank, 0.0)
    pages = [_page(engine, location, 0.0, totals, {})]
    samples: dict[str, dict[str, float]] = {}
    for index, (rank, seconds, record) in enumerate(kept, start=1):
        for name, rule in engine.records["totals"].items():
            totals[rank][name] += _amount(record, rule)
        samples[rank] = {
            name: value
            for name, rule in engine.records.get("samples", {}).items()
            if (value := _sample(record, rule)) is not None
        }
        clocks[rank] += seconds
        if index % every == 0 or index == len(kept):
            pages.append(_page(engine, location, max(clocks.values()), totals, samples))
    return pages


def _page(
    engine: EngineNames,
    location: str,
    clock: float,
    totals: Mapping[str, Mapping[str, float]],
    samples: Mapping[str, Mapping[str, float]],
) -> Page:
    prefix, label = engine.prefixes[0], (engine.records or {}).get("label", "")
    found: list[Sample] = []
    for rank in totals:
        labels = {label: rank} if label and rank else {}
        for values in (totals[rank], samples.get(rank, {})):
            found.extend(Sample(prefix + name, labels, value) for name, value in values.items())
    return Page(location, tuple(found), scraped_at=clock, relative_clock=True)


def _seconds(engine: EngineNames, record: Record) -> float | None:
    """How long a record's step took; None where it does not tell."""
    seconds = _amount(record, (engine.records or {})["seconds"], missing=math.nan)
    return seconds if seconds > 0 else None


def _amount(record: Record, rule: Mapping[str, Any], missing: float = 0.0) -> float:
    """What a record adds to a total."""
    if "where" in rule and not _value(record, rule["where"]):
        return 0.0
    if "lacks" in rule and (
        _value(record, rule["lacks"]) is not None
        or any(record.get(key) == value for key, value in rule.get("unless", {}).items())
    ):
        return 0.0
    if "add" not in rule:
        return 1.0
    values = (value for key in rule["add"] if (value := _value(record, key)) is not None)
    amount = next(values, missing)
    if "times" in rule:
        factor = _value(record, rule["times"])
        amount *= 1.0 if factor is None else factor
    return amount * float(rule.get("scale", 1.0))


def _sample(record: Record, rule: Mapping[str, Any]) -> float | None:
    value = _value(record, rule["take"])
    if value is None or "over" not in rule:
        return value
    whole = _value(record, rule["over"])
    return value / whole if whole else None


def _value(record: Record, path: str) -> float | None:
    """A finite number at a path of keys; None where there is none."""
    found: Any = record
    for key in path.split("."):
        if not isinstance(found, Mapping):
            return None
        found = found.get(key)
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
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
