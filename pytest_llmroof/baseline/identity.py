"""Whether two windows are of one kind: what is another one there, and what only the conditions of the load are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pytest_llmroof.report.figures import quantity, short_count
from pytest_llmroof.report.wire import Document, visible

#: How much farther a window is that differs in this; of everything else, a fact of the deployment counts 1.
_FAR: Final = {"window": 64.0, "phase": 32.0, "model": 16.0, "gpu": 8.0, "label": 2.0}

#: Facts of the deployment, and what people call them. The replicas are there only where both were given.
_FACTS: Final[Mapping[str, str]] = {
    "tensor_parallel": "TP", "pipeline_parallel": "PP", "data_parallel": "DP", "expert_parallel": "expert parallel",
    "weights": "weights", "kv_cache": "KV cache", "compute": "compute precision", "interconnect": "interconnect",
    "gpus_per_node": "GPUs per node", "internode_bytes_per_second": "internode bandwidth (bytes/s)",
    "speculative_tokens": "draft tokens", "draft_model": "draft model", "flops": "FLOPs convention",
}  # fmt: skip
#: What follows from the accelerator: another one there explains them.
_OF_GPU: Final = ("compute", "interconnect")
#: Conditions of the load that are said once they differ by more than this: a share of the greater one, or points.
_LOAD_TOLERANCE: Final = 0.1
_HIT_RATE_TOLERANCE: Final = 0.05


@dataclass(frozen=True)
class Difference:
    """What is another one there: its kind (a key of ``_FAR``, else a fact of the deployment), and a phrase.

    ``distance`` is how far it takes the window away; ``unknown`` says that one side does not tell.
    """

    kind: str
    phrase: str
    distance: float
    unknown: bool = False


def differences(there: Document, here: Document) -> list[Difference]:
    """Everything in which an earlier window is of another kind than this one. Nothing: it matches."""
    window = list(_differ("window", there["name"], here["name"], _FAR["window"]))
    phase = list(_differ("phase", there["phase"], here["phase"], _FAR["phase"]))
    model = list(_differ("model", _name(there["model"]), _name(here["model"]), _FAR["model"]))
    model = model or _parameters(there["model"], here["model"])
    gpu = list(_differ("gpu", _name(there["gpu"]), _name(here["gpu"]), _FAR["gpu"]))
    if (gpu or model) and not phases_written(there, here):
        phase = []  # it was found from what the traffic costs, which is another figure on other hardware
    return [*window, *phase, *model, *gpu, *_deployment(there, here, skip=_OF_GPU if gpu else ())]


def phases_written(there: Document, here: Document) -> bool:
    """Whether both phases were written down, none found from the traffic."""
    return all((window["facts"] or {}).get("phase_given") is True for window in (there, here))


def label_differences(labels: Mapping[str, str], wanted: Mapping[str, str]) -> list[Difference]:
    """Labels that a gate asks of its baseline, and that a report does not carry."""
    return [
        Difference("label", f"label {key}={labels.get(key, '(none)')} there, {key}={value} asked for", _FAR["label"])
        for key, value in wanted.items()
        if labels.get(key) != value
    ]


def conditions(there: Document, here: Document) -> tuple[str, ...]:
    """What was another load there, without ending the comparison."""
    return tuple(_conditions(there["facts"] or {}, here["facts"] or {}))


def number(value: object) -> float | None:
    """A plain number of a document, or the value of one with an interval; None for anything else."""
    if isinstance(value, Mapping):
        value = value.get("value")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


def _conditions(there: Mapping[str, Any], here: Mapping[str, Any]) -> Iterator[str]:
    before, after = number(there.get("prefix_hit_rate")), number(here.get("prefix_hit_rate"))
    if before is not None and after is not None and abs(before - after) > _HIT_RATE_TOLERANCE:
        yield f"prefix hits {quantity(before, 'fraction', 2)} there, {quantity(after, 'fraction', 2)} here"
    for key, name in (("batch", "batch"), ("context", "context")):
        before, after = (number((facts.get("decode") or {}).get(key)) for facts in (there, here))
        if before and after and abs(before - after) > _LOAD_TOLERANCE * max(before, after):
            shown = [short_count(one) if key == "context" else f"{one:.3g}" for one in (before, after)]
            yield f"{name} {shown[0]} there, {shown[1]} here"
    before, after = number(there.get("replicas")), number(here.get("replicas"))
    if before and after and before != after:
        yield f"{before:.0f} replica{'s' * (before > 1)} there, {after:.0f} here"


def _deployment(there: Document, here: Document, skip: tuple[str, ...]) -> Iterator[Difference]:
    before, after = there["deployment"] or {}, here["deployment"] or {}
    for key, name in _FACTS.items():
        if key in skip or key not in before or key not in after or before[key] == after[key]:
            continue
        given = all((one["provenance"] or {}).get(key) == "given" for one in (there, here))
        if key == "data_parallel" and not given:
            continue  # replicas that were seen: a condition of the load
        yield from _differ(name, before[key], after[key], 1.0)


def _differ(what: str, there: object, here: object, distance: float) -> Iterator[Difference]:
    if there != here:
        shown = [_shown(one) for one in (there, here)]
        unknown = there is None or here is None
        yield Difference(what, f"{what} {shown[0]} there, {shown[1]} here", distance, unknown)


def _shown(value: object) -> str:
    if value is None:
        return "not named"
    if isinstance(value, bool):
        return "on" if value else "off"
    return visible(str(value))[:80]


def _name(part: Mapping[str, Any] | None) -> object:
    return part.get("name") if part else None


def _parameters(there: Mapping[str, Any] | None, here: Mapping[str, Any] | None) -> list[Difference]:
    """Models of one's own may share a name: their size tells them apart."""
    if not there or not here:
        return []
    return list(_differ("model parameters", there.get("parameters"), here.get("parameters"), _FAR["model"]))
