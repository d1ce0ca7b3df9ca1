"""The metrics of a profiled timeline, as fractions of the typical step: ``timeline.busy`` and its like."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pytest_llmroof.advice import behind
from pytest_llmroof.analysis.binomial import ranks
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.hardware_serving import degree_known
from pytest_llmroof.analysis.measurement import Measurement, NoData, Outcome
from pytest_llmroof.analysis.metrics import find_metric
from pytest_llmroof.analysis.profiled import Part, Silent, alone, parts, source_of
from pytest_llmroof.analysis.vendors import profile_wanted, vendor_of
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.units import format_quantity

if TYPE_CHECKING:
    from pytest_llmroof.profiles.figures import Shares

_OPAQUE: Final = "its graph replays were recorded whole, without the kernels in them"
_UNTOLD: Final = "no launches were recorded for most of the idle time: its cause is not known"

#: Metric -> its share of a step, what single steps call it, and its definition.
_SHARES: Final[dict[str, tuple[Callable[[Shares], float | None], str, str]]] = {
    "timeline.busy": (lambda one: one.busy, "busy", "a kernel, a copy or a graph replay ran, on whatever stream"),
    "timeline.idle": (lambda one: one.idle, "idle", "none ran, on any stream, pauses between kernels included"),
    "timeline.communication": (lambda one: one.communication, "communication", "communication kernels ran"),
    "timeline.communication_exposed": (
        lambda one: one.exposed, "exposed", "communication kernels ran and nothing else did, waiting included",
    ),
    "timeline.host_bound_idle": (
        lambda one: one.host_bound + one.launch_in_flight, "host",
        "the GPU had finished before the host submitted its next work, or while that was on its way",
    ),
}  # fmt: skip

#: Metric -> what kernels of unknown names may add to its share, and what single steps call it with them.
_UNNAMED: Final[dict[str, tuple[Callable[[Shares], float], str]]] = {
    "timeline.communication": (lambda one: one.unnamed, "communication most"),
    "timeline.communication_exposed": (lambda one: one.unnamed_exposed, "exposed most"),
}
#: What adds less than this is told by the interval alone.
_WORTH_SAYING: Final = 0.01


def timeline_metric(facts: WindowFacts, name: str) -> Outcome:
    """One metric of the window's profiles: the mean over all devices that were profiled."""
    found = parts(facts)
    if isinstance(found, Silent):
        return NoData(name, found.reason, found.remedy)
    metric, statistic = find_metric(name)
    if metric.name == "timeline.gap" and statistic is not None:
        return _gap(found, name, statistic)
    if name == "timeline.graph_launched":
        values = [part.figures.graph_launched for part in found]
        return _measured(found, name, _mean(values, values), "kernel time that graph replays launched, over all of it")
    if (reason := _untellable(found, name)) is not None:
        what = profile_wanted(vendor_of(facts))
        if reason == _OPAQUE and not degree_known(facts.deployment):
            what = behind("write `tensor_parallel: 1` where one GPU serves the model alone, else ", what)
        return NoData(name, f"{source_of([part.figures for part in found])}: {reason}", what)
    measured = _share(found, name)
    if name in _UNNAMED and not alone(facts, [part.figures for part in found]):
        return _with_unnamed(measured, found, degree_known(facts.deployment))
    return measured


def _with_unnamed(measured: Measurement, found: Sequence[Part], several: bool) -> Measurement:
    """Communication with the kernels that may be some, too: their names do not tell."""
    share_of, key = _UNNAMED[measured.metric]
    more = sum(share_of(part.shares) for part in found) / len(found)
    if more <= 0:
        return measured
    known = measured.bounded
    high = max(known.high, known.value + more, *(end for part in found for end in _spread(part, key)))
    wider = replace(measured, bounded=Bounded(known.value, known.low, high))
    if more < _WORTH_SAYING:
        return wider
    most = max(found, key=lambda part: share_of(part.shares)).figures.unnamed_kernel
    such = f" (most of it {most})" if most else ""
    share = format_quantity(more, "fraction", 2)
    said = f"kernels whose names are not understood{such} ran for a further {share} of the time"
    look = f"look up what {most or 'they'} {'does' if most else 'do'}"
    return replace(
        wider,
        judged_by="bounds",
        undecided=f"{said}: they may be communication",
        settle=look if several else f"{look}; where one GPU serves the model alone, write `tensor_parallel: 1`",
        method=f"{measured.method}; {said}",
    )


def _share(found: Sequence[Part], name: str) -> Measurement:
    share_of, key, definition = _SHARES[name]
    shares = [share_of(part.shares) for part in found]
    known = [share for share in shares if share is not None]
    assert len(known) == len(shares)
    ends = [end for part in found for end in _spread(part, key)]
    steps = "all steps" if any(part.steps is None for part in found) else "typical steps"
    return _measured(found, name, _mean(known, ends), f"share of the time of {steps} in which {definition}")


def _untellable(found: Sequence[Part], name: str) -> str | None:
    """Why a recording cannot tell a share; None where it can."""
    idle = name in ("timeline.busy", "timeline.idle", "timeline.host_bound_idle")
    for part in found:
        if part.steps is None and part.figures.trimmed_seconds and idle:
            return "the recording was trimmed, and no steps can be told apart: what seems idle was cut out"
        if name.startswith("timeline.communication") and part.shares.exposed is None:
            return _OPAQUE
        if name == "timeline.host_bound_idle" and not part.shares.causes_known:
            return _UNTOLD
    return None


def _spread(part: Part, key: str) -> tuple[float, ...]:
    """The least and the largest share of single steps."""
    if part.steps is None:
        return ()
    if key == "idle":
        return tuple(1 - end for end in part.steps.spread.get("busy", ()))
    return part.steps.spread.get(key, ())


def _gap(found: Sequence[Part], name: str, statistic: str) -> Outcome:
    """A statistic of the lengths of idle gaps, over all devices and the whole recording."""
    import numpy as np  # every figure of a timeline comes from its arrays

    gaps = np.sort(np.concatenate([part.figures.gaps_ns for part in found])) / 1e9
    if not len(gaps):
        where = source_of([part.figures for part in found])
        return NoData(name, f"{where}: the GPU was never idle, so that there is no gap", None)
    if statistic == "mean":
        mean, error = float(gaps.mean()), 1.96 * float(gaps.std()) / math.sqrt(len(gaps))
        value = Bounded(mean, mean - error, mean + error)
    elif statistic == "max":
        value = Bounded.exactly(float(gaps[-1]))
    else:
        share = float(statistic.removeprefix("p")) / 100
        at = float(np.quantile(gaps, share))
        low, high = ranks(len(gaps), share)
        ends = gaps[max(low, 1) - 1], gaps[min(high, len(gaps)) - 1]
        value = Bounded(at, min(float(ends[0]), at), max(float(ends[1]), at))
    return _measured(found, name, value, "length of the gaps in which nothing ran, on any stream", len(gaps))


def _mean(values: Sequence[float], ends: Sequence[float]) -> Bounded:
    """The mean over devices, between the least and the largest of single steps and devices."""
    mean = sum(values) / len(values)
    return Bounded(mean, min(*values, *ends, mean), max(*values, *ends, mean))


def _measured(
    found: Sequence[Part], name: str, value: Bounded, definition: str, samples: int | None = None
) -> Measurement:  # fmt: skip
    figures = [part.figures for part in found]
    devices = f"; mean over {len(found)} devices" if len(found) > 1 else ""
    counted = sum(part.steps.count if part.steps else 0 for part in found)
    doubts = list(dict.fromkeys(text for one in figures for text in one.distortions))
    method = f"{definition}{devices}" + (f"; doubtful: {'; '.join(doubts[:2])}" if doubts else "")
    unit = find_metric(name)[0].unit
    return Measurement(name, value, unit, source_of(figures), method, counted or None if samples is None else samples)
