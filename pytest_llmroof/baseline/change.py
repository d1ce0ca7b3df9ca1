"""What changed since a baseline: of a time that breached its limit, the part of the traffic and that of the engine.

Traffic is the difference of the roofline floors at both windows' own load; the engine's is the remainder, split by the
attribution of both windows (the design's physics, section 9). Only what both windows measured is compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pytest_llmroof.analysis.metrics import OF_WINDOW
from pytest_llmroof.baseline.floors import Floors, decode_floors, prompt_floors
from pytest_llmroof.baseline.identity import number
from pytest_llmroof.baseline.matching import Baselines, Candidate
from pytest_llmroof.baseline.reading import EarlierWindow, in_view
from pytest_llmroof.report.wire import Document
from pytest_llmroof.roofline.deployment import Deployment

DECODE: Final = "decode step"
TTFT: Final = "ttft"
#: Which time a family of metrics is about; a whole window's is that of its phase.
_TIME_OF: Final = {"decode": DECODE, "prefill": TTFT, "ttft": TTFT}
_FAMILY_OF: Final = {DECODE: "decode", TTFT: "ttft"}
_FLOORS: Final = ("memory floor: weights", "memory floor: KV", "compute floor", "interleaved prefill")
_UNKNOWN: Final = "not attributed"
#: What the attribution leaves of the engine's part, as a share of it, before that is said.
_LEFT: Final = 0.02

_INTERLEAVED: Final = ("decode", "interleaved_seconds")
#: Facts of the load: name, unit, and where a window's document has them.
_FACTS: Final = (
    ("batch", "count", ("decode", "batch")),
    ("context", "tokens", ("decode", "context")),
    ("tokens per step", "count", ("decode", "tokens_per_step")),
    ("interleaved prefill", "seconds", _INTERLEAVED),
    ("prompt tokens", "tokens", ("mean_prompt_tokens",)),
    ("output tokens", "tokens", ("mean_output_tokens",)),
    ("prefix hits", "fraction", ("prefix_hit_rate",)),
    ("replicas", "count", ("replicas",)),
)


def with_change(document: Document, deployment: Deployment, baselines: Baselines) -> Document:
    """A window's document with what changed, where a latency or a utilisation failed and a baseline was given."""
    breaches = [_time_of(gate, document) for gate in document["gates"] if _breached(gate)]
    times = list(dict.fromkeys(time for time in breaches if time is not None))
    if not baselines or not times or document["facts"] is None:
        return document
    changes = {time: _change(time, document, deployment, baselines) for time in times}
    known = {_FAMILY_OF[time]: change for time, change in changes.items() if change is not None}
    return {**document, "change": next(iter(known.values()), None), "changes": known}


def _breached(gate: Document) -> bool:
    return gate["verdict"] in ("fail", "inconclusive")


def _time_of(gate: Document, document: Document) -> str | None:
    """Which time explains a breached gate; None where none does (a cache's usage, an error rate)."""
    family = gate["family"]
    if family in OF_WINDOW:
        return TTFT if document["phase"] == "prefill" else DECODE
    return _TIME_OF.get(family)


def _change(time: str, here: Document, deployment: Deployment, baselines: Baselines) -> Document | None:
    """The comparison with the median one of the nearest windows by that time; None where no window has it."""
    after = _seconds(time, here)
    if after is None:
        return None
    view = (here["measurements"].get("ttft.mean") or {}).get("view")

    def there(window: EarlierWindow) -> float | None:
        return _seconds(time, window.document, view)

    near = baselines.nearest(here, lambda window: there(window) is not None)
    if not near:
        return None
    by_time = sorted(near, key=lambda one: there(one.window) or 0.0)
    chosen = by_time[(len(by_time) - 1) // 2]
    before = there(chosen.window) or 0.0
    changed = tuple(one.phrase for one in chosen.differences if not one.unknown)
    floors = (decode_floors if time == DECODE else prompt_floors)(
        chosen.window.document, here, deployment, changed=bool(changed)
    )
    return {
        "of": time,
        "baseline": _named(chosen.window, len(near)),
        "before_seconds": before,
        "after_seconds": after,
        "seconds": after - before,
        **_split(time, chosen, here, floors, before, after),
        "facts": _facts(chosen.window.document, here),
        "differences": list(changed),
        "missing": [*_missing(chosen, here, floors, time)],
    }


def _named(window: EarlierWindow, windows: int) -> Document:
    return {
        "report": window.report,
        "window": window.document["id"],
        "created": window.created,
        "labels": dict(window.labels),
        "windows": windows,
    }


def _split(
    time: str, chosen: Candidate, here: Document, floors: Floors | None, before: float, after: float
) -> Document:  # fmt: skip
    there = chosen.window.document
    queue = _queue(there, here) if time == TTFT else None
    traffic = floors.after.seconds - floors.before.seconds if floors else None
    same = not any(not one.unknown for one in chosen.differences)
    engine = after - before - traffic - (queue or 0.0) if traffic is not None and same else None
    parts = list(_floor_parts(floors)) if floors else []
    if queue is not None:
        parts.append(_part("queue", "queue", *_means(there, here, "queue.mean"), True))
    if engine is not None:
        parts += _engine_parts(time, there, here, engine)
    return {
        "traffic_seconds": traffic,
        "queue_seconds": queue,
        "engine_seconds": engine,
        "floor_before_seconds": floors.before.seconds if floors else None,
        "floor_after_seconds": floors.after.seconds if floors else None,
        "parts": parts,
    }


def _floor_parts(floors: Floors) -> Iterator[Document]:
    for cause in _FLOORS:
        before, after = floors.before.by_cause.get(cause, 0.0), floors.after.by_cause.get(cause, 0.0)
        if before or after:
            yield _part("traffic", cause, before, after, False)


def _engine_parts(time: str, there: Document, here: Document, engine: float) -> list[Document]:
    """The engine's part by cause, as far as both windows were attributed; what that leaves is a part of its own."""
    shares = [_shares(time, window) for window in (there, here)]
    if any(one is None for one in shares):
        return [_remainder(engine)]
    before, after = (one or {} for one in shares)
    parts = [
        _part(
            "engine",
            cause,
            sum(one["seconds"] for one in before.get(cause, ())),
            sum(one["seconds"] for one in after.get(cause, ())),
            all(one["observed"] for one in (*before.get(cause, ()), *after.get(cause, ()))),
        )
        for cause in dict.fromkeys([*after, *before])
    ]
    left = engine - sum(part["seconds"] for part in parts)
    if abs(left) <= _LEFT * abs(engine):
        return parts
    # What the attributions did not attribute is no more known than what they leave between them: one part.
    named = [part for part in parts if part["cause"] != _UNKNOWN]
    return [*named, _remainder(left + sum(part["seconds"] for part in parts if part["cause"] == _UNKNOWN))]


def _shares(time: str, window: Document) -> dict[str, list[Mapping[str, Any]]] | None:
    """By cause, the shares of a step that are not its floor; None where the window's time was not attributed."""
    attributed = window["attributed"]
    if not attributed or attributed.get("of") != time or not window["attribution"]:
        return None
    found: dict[str, list[Mapping[str, Any]]] = {}
    for share in window["attribution"]:
        seconds = number(share.get("seconds")) if isinstance(share, Mapping) else None
        if seconds is None:
            return None
        if share.get("cause") not in _FLOORS:
            entry = {"seconds": seconds, "observed": share.get("observed") is True}
            found.setdefault(str(share.get("cause")), []).append(entry)
    return found


def _part(of: str, cause: str, before: float | None, after: float | None, observed: bool) -> Document:
    known = before is not None and after is not None
    return {
        "of": of,
        "cause": cause,
        "before_seconds": before,
        "after_seconds": after,
        "seconds": (after or 0.0) - (before or 0.0) if known else None,
        "observed": observed,
    }


def _remainder(seconds: float) -> Document:
    return {**_part("engine", _UNKNOWN, None, None, False), "seconds": seconds}


def _facts(there: Document, here: Document) -> list[Document]:
    found = []
    for name, unit, path in _FACTS:
        known = all(_has_floor(window, DECODE) for window in (there, here)) or path != _INTERLEAVED
        before, after = (_at(window["facts"] or {}, path) if known else None for window in (there, here))
        if before is not None and after is not None and (before or after):
            found.append({"name": name, "unit": unit, "before": before, "after": after})
    return found


def _at(facts: Mapping[str, Any], path: Sequence[str]) -> float | None:
    value: Any = facts
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return number(value)


def _seconds(time: str, window: Document, view: str | None = None) -> float | None:
    """The time of a window that is compared; a TTFT is that of the same view, a client's or a server's."""
    if time == TTFT:
        return number(in_view(window["measurements"], "ttft.mean", view))
    found = _at(window["facts"] or {}, ("decode", "step_seconds"))
    return found if found else None


def _means(there: Document, here: Document, metric: str) -> tuple[float | None, float | None]:
    return number(there["measurements"].get(metric)), number(here["measurements"].get(metric))


def _queue(there: Document, here: Document) -> float | None:
    before, after = _means(there, here, "queue.mean")
    return after - before if before is not None and after is not None else None


def _missing(chosen: Candidate, here: Document, floors: Floors | None, time: str) -> Iterator[str]:
    """What would complete the comparison, and how to get it."""
    there = chosen.window.document
    options = {"gpu": "--llmroof-gpu=NAME", "model": "--llmroof-model=NAME"}
    unnamed = any(here[part] is None for part in options)
    # A model that was only recognised by its served name is better named, too, where something must be.
    given = here["provenance"] or {}
    absent = [option for part, option in options.items() if unnamed and given.get(part) != "given"]
    if absent:
        give = "gives" if len(absent) == 1 else "give"
        yield f"{' and '.join(absent)} {give} the split into traffic and engine"
    lacking = [part for part in options if there[part] is None]
    if lacking and not absent:
        given = " and ".join(options[part] for part in lacking)
        yield f"the baseline's run named no {' and no '.join(lacking)}: make it again with {given}"
    if floors is None and not absent and not lacking:
        yield _no_floors(there, here, time)
    if time == TTFT and _queue(there, here) is None:
        yield "the time in the queue was not measured in both windows: it is part of the engine's"
    if chosen.differences and any(not one.unknown for one in chosen.differences):
        yield "a baseline of the same deployment, for what the engine changed"


def _no_floors(there: Document, here: Document, time: str) -> str:
    what = "batch and context of the decode step" if time == DECODE else "lengths of the prompts"
    where = [name for name, window in (("the baseline", there), ("this window", here)) if not _has_floor(window, time)]
    return f"the {what}, and so the roofline floor, are not known of {' and '.join(where) or 'both windows'}"


def _has_floor(window: Document, time: str) -> bool:
    facts = window["facts"] or {}
    if time == DECODE:
        return _at(facts, ("decode", "joint_floor_seconds")) is not None
    return _at(facts, ("own_prompt", "floor", "seconds")) is not None
