"""Operations that Nsight Compute counted in a launch, from whichever counters an export holds, none of them twice.

Counters of the tensor cores (``sm__ops_path_tensor_*``) count operations, a multiply-add as two; some are parts of
others (``_sparsity_off`` of the counter without it, ``op_hgmma`` of all paths). CUDA cores' instructions are weighted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pytest_llmroof.bounded import Bounded
from pytest_llmroof.data import load
from pytest_llmroof.profiles.kernel_table import Operations, Scope

_TENSOR: Final = re.compile(
    r"sm__ops_path_tensor(?:_op_(?P<path>[a-z0-9]+))?_src_(?P<source>[a-z0-9_]+?)"
    r"(?:_dst_(?P<result>[a-z0-9]+))?(?:_sparsity_(?P<sparsity>on|off))?"
)
_CUDA: Final = re.compile(r"(?:smsp|sm)__sass_thread_inst_executed_op_(?P<instruction>[a-z0-9]+)_pred_on")
_ENDINGS: Final = (".sum", ".sum.per_second", ".sum.per_cycle_elapsed")

Value = Callable[[str], float | None]
"""The figure of a raw metric, None where there is none."""


@dataclass(frozen=True)
class Counted:
    """What a launch executed, as far as counters tell; as in a Launch."""

    operations: tuple[Operations, ...] | None
    lacking: str | None
    uncounted: tuple[str, ...]
    partial: bool
    counters: tuple[str, ...]


def counter_of(metric: str) -> str | None:
    """The counter that a raw metric is a sum or a rate of, None where it counts no operations."""
    for ending in reversed(_ENDINGS):
        name = metric.removesuffix(ending)
        if name != metric:
            return name if _TENSOR.fullmatch(name) or _CUDA.fullmatch(name) else None
    return None


@dataclass(frozen=True)
class Conditions:
    """What else is known of a launch: time, clock, the device's abilities, how busy its tensor cores were."""

    seconds: float | None
    cycles_per_second: float | None
    scope: Scope
    capability: float | None
    tensor_share: float | None


def count(names: set[str], value: Value, about: Conditions) -> Counted:
    """The operations of a launch. ``names``: counters that the export has for it (counter_of)."""
    totals = {name: _total(name, value, about) for name in sorted(names)}
    counts = {name: total for name, total in totals.items() if total is not None}
    tensor, seen = _tensor(counts, about.capability)
    cuda, complete = _cuda(counts)
    idle = about.tensor_share == 0 or _all_counted(seen, about.capability)
    found = tuple(one for one in (*tensor, *cuda) if one.count.high > 0)
    used = tuple(name for name, total in counts.items() if total > 0) or tuple(counts)
    uncounted = () if complete else ("CUDA cores",)
    working = [one for one in tensor if one.count.high > 0]
    if working:
        # A kernel multiplies in one precision; a whole graph may do so in several.
        every_path = all(
            set(one.precisions) <= {name for source in seen for name in _precisions(source)} for one in working
        )
        partial = not every_path or (about.scope != "kernel" and not _all_counted(seen, about.capability))
        others = ("other paths or precisions of the tensor cores",) if partial else ()
        return Counted(found, None, (*others, *uncounted), partial, used)
    if idle and complete:
        return Counted(found, None, (), False, used)
    return Counted(None, _lacking(counts, seen, idle), (), False, ())


def _total(name: str, value: Value, about: Conditions) -> float | None:
    """The sum of a counter, from it or from its rates."""
    if (total := value(name + ".sum")) is not None:
        return total
    if about.seconds is None:
        return None
    if (rate := value(name + ".sum.per_second")) is not None:
        return rate * about.seconds
    rate = value(name + ".sum.per_cycle_elapsed")
    if rate is None or about.cycles_per_second is None:
        return None
    return rate * about.cycles_per_second * about.seconds


def _tensor(counts: Mapping[str, float], capability: float | None) -> tuple[list[Operations], set[str]]:
    """Operations of the tensor cores by what they multiply, and the sources of which all paths were counted."""
    by_source: dict[str, list[tuple[re.Match[str], float]]] = {}
    for name, total in counts.items():
        if (match := _TENSOR.fullmatch(name)) is not None:
            by_source.setdefault(match["source"], []).append((match, total))
    totals = {source: _without_parts(parts) for source, parts in by_source.items()}
    # A counter of several sources may hold what the counters of some of them hold, or work that these leave out.
    held: dict[str, float] = {}
    for source in sorted(totals, key=lambda one: len(_parts(one))):
        held[source] = sum(totals[one] - held[one] for one in held if _parts(one) < _parts(source))
        held[source] = min(held[source], totals[source])
    found = []
    for source, total in totals.items():
        least = total - held[source]
        found.append(Operations(_precisions(source), Bounded(least, least, total), "tensor cores"))
    return found, {source for source, parts in by_source.items() if _every_path(parts, capability)}


def _parts(source: str) -> frozenset[str]:
    return frozenset(source.split("_"))


def _precisions(source: str) -> tuple[str, ...]:
    """The precisions whose peaks operations on a source run against."""
    known: Mapping[str, list[str]] = load("ncu.yaml")["tensor_sources"]
    return tuple(known.get(source, [source]))


def _every_path(parts: list[tuple[re.Match[str], float]], capability: float | None) -> bool:
    """Whether a source's counters leave no path of the tensor cores out: from Hopper on there are two and more."""
    paths = {match["path"] for match, _ in parts if match["sparsity"] != "on"}
    if not paths or None in paths:
        return bool(paths)
    if capability is None or capability >= 10:
        return False
    return capability < 9 or len({str(path).endswith("gmma") for path in paths}) == 2


def _without_parts(parts: list[tuple[re.Match[str], float]]) -> float:
    """The total of one source's counters, some of which are parts of others.

    Counters that name the same things of path and sparsity exclude each other, and add up; the greatest such sum is the
    total (a part reads 0 where the work took a path that it does not count). The same of kinds of result.
    """
    by_result: dict[str | None, dict[tuple[bool, bool], float]] = {}
    for match, total in parts:
        named = (match["path"] is not None, match["sparsity"] is not None)
        sums = by_result.setdefault(match["result"], {})
        sums[named] = sums.get(named, 0.0) + total
    best = {result: max(sums.values()) for result, sums in by_result.items()}
    whole = best.pop(None, 0.0)
    return max(whole, sum(best.values()))


def _cuda(counts: Mapping[str, float]) -> tuple[list[Operations], bool]:
    """Operations of the CUDA cores by precision, and whether all of single precision were counted."""
    data: Mapping[str, Any] = load("ncu.yaml")
    executed: dict[str, float] = {}
    for name, total in counts.items():
        if (match := _CUDA.fullmatch(name)) is not None:
            # The same instructions, counted per multiprocessor and per quarter of one: not to be added.
            executed[match["instruction"]] = max(total, executed.get(match["instruction"], 0.0))
    sums: dict[str, float] = {}
    for precision, weights in data["cuda_cores"].items():
        if any(instruction in executed for instruction in weights):
            sums[precision] = sum(weight * executed.get(one, 0.0) for one, weight in weights.items())
    for instruction, (precision, weight) in data["packed"].items():
        if instruction in executed:
            sums[precision] = sums.get(precision, 0.0) + weight * executed[instruction]
    found = []
    for precision, total in sums.items():
        high = total * data["uncertain"].get(precision, 1)
        found.append(Operations((precision,), Bounded(total, total, high), "CUDA cores"))
    return found, all(instruction in executed for instruction in data["cuda_cores"]["fp32"])


def _all_counted(seen: set[str], capability: float | None) -> bool:
    """Whether every source that the tensor cores of this device know was counted."""
    kinds: Mapping[float, list[str]] = load("ncu.yaml")["tensor_complete"]
    fitting = [sources for least, sources in kinds.items() if capability is not None and least <= capability]
    return bool(fitting) and set(fitting[-1]) <= seen


def _lacking(counts: Mapping[str, float], seen: set[str], idle: bool) -> str:
    """Why the operations of a launch are not known."""
    if not counts:
        return "no operations were counted"
    if idle:
        return "the tensor cores did nothing, and the instructions of the CUDA cores were not counted"
    if seen:
        return (
            f"the tensor cores' operations on {', '.join(sorted(seen))} read 0, and neither others nor all "
            "instructions of the CUDA cores were counted"
        )
    parts = sorted(name.removeprefix("sm__ops_path_") for name in counts if _TENSOR.fullmatch(name))
    if parts:
        # From Hopper on, a path of several: a zero of one says nothing of the others.
        which = f"{parts[0]} was" if len(parts) == 1 else f"{parts[0]} and {len(parts) - 1} more were"
        return (
            f"of the tensor cores' operations only {which} counted and read 0: what their other paths did is not known"
        )
    return "only instructions of the CUDA cores were counted, and what the tensor cores did is not known"
