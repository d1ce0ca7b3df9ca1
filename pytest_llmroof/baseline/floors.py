"""The floors of two windows at their own load, for what of a change is the traffic's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_llmroof.analysis.attribute_ttft import prompt_floor
from pytest_llmroof.baseline.identity import number
from pytest_llmroof.report.wire import Document
from pytest_llmroof.roofline.cost import floor, step_cost
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.roofline.step import Floor, Prefill, Step


@dataclass(frozen=True)
class LoadFloor:
    """A floor in seconds, and its parts by the causes of an attribution."""

    seconds: float
    by_cause: Mapping[str, float]


@dataclass(frozen=True)
class Floors:
    """The floor of the earlier window and of this one."""

    before: LoadFloor
    after: LoadFloor


def decode_floors(there: Document, here: Document, deployment: Deployment, *, changed: bool) -> Floors | None:
    """Of the mean decode step, interleaved prefill included; None where a window lacks what it takes.

    Where the deployment ``changed``, the earlier load is put on this window's: interleaved prefill, which no report
    holds in such detail, is then left out on both sides.
    """
    before, after = _decode(there), _decode(here)
    own = _joint(after, interleaved=not changed)
    earlier = _decode_on(deployment, before) if changed else _joint(before)
    return Floors(earlier, own) if earlier and own else None


def prompt_floors(there: Document, here: Document, deployment: Deployment, *, changed: bool) -> Floors | None:
    """Of the mean request's prompt, computed alone behind what the prefix cache holds of it."""
    before, after = _part(there, "own_prompt"), _part(here, "own_prompt")
    own = _by_cause(after.get("floor"))
    earlier = _prompt_on(deployment, before) if changed else _by_cause(before.get("floor"))
    return Floors(earlier, own) if earlier and own else None


def _part(window: Document, key: str) -> Mapping[str, Any]:
    value = (window["facts"] or {}).get(key)
    return value if isinstance(value, Mapping) else {}


def _decode(window: Document) -> Mapping[str, Any]:
    return _part(window, "decode")


def _joint(decode: Mapping[str, Any], interleaved: bool = True) -> LoadFloor | None:
    alone = _by_cause(decode.get("floor"))
    prefill = number(decode.get("interleaved_seconds"))
    # Without a context the floor is that of the weights alone: two such floors would hide the traffic's part.
    if alone is None or prefill is None or number(decode.get("context")) is None:
        return None
    if not interleaved or not prefill:
        return alone
    return LoadFloor(alone.seconds + prefill, {**alone.by_cause, "interleaved prefill": prefill})


def _by_cause(document: object) -> LoadFloor | None:
    """The floor of a report by the roof that binds it."""
    if not isinstance(document, Mapping):
        return None
    seconds, weights, kv = (number(document.get(key)) for key in ("seconds", "weights_seconds", "kv_seconds"))
    if seconds is None:
        return None
    if document.get("memory_bound") is True and weights is not None and kv is not None:
        return LoadFloor(seconds, {"memory floor: weights": weights, "memory floor: KV": kv})
    return LoadFloor(seconds, {"compute floor": seconds})


def _decode_on(deployment: Deployment, decode: Mapping[str, Any]) -> LoadFloor | None:
    batch, context = number(decode.get("batch")), number(decode.get("context"))
    if batch is None or context is None or deployment.model is None or batch <= 0 or context < 0:
        return None
    step = Step(sequences=batch, context=context, draft_tokens=number(decode.get("draft_tokens")) or 0.0)
    return _of(floor(deployment, step_cost(deployment, step)))


def _prompt_on(deployment: Deployment, prompt: Mapping[str, Any]) -> LoadFloor | None:
    tokens, cached = number(prompt.get("tokens")), number(prompt.get("cached"))
    if tokens is None or cached is None or tokens <= 0 or cached < 0:
        return None
    return _of(prompt_floor(deployment, Prefill(tokens, cached=cached)))


def _of(found: Floor | None) -> LoadFloor | None:
    if found is None:
        return None
    if found.memory_bound:
        parts = {"memory floor: weights": found.weights_seconds, "memory floor: KV": found.kv_seconds}
        return LoadFloor(found.seconds, parts)
    return LoadFloor(found.seconds, {"compute floor": found.seconds})
