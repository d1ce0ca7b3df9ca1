"""The verdict on a gate: its limit against a measurement, its interval, and what nobody confirmed."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from pytest_llmroof.advice import AnyAdvice
from pytest_llmroof.analysis.measurement import Impossible, Measurement, NoData, Outcome
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.gates.baseline import NONE_GIVEN, Baseline, NoBaseline
from pytest_llmroof.gates.gate import Gate
from pytest_llmroof.gates.verdict import Verdict
from pytest_llmroof.units import format_quantity, precise

#: What a supported limit leaves to the interval's end that it rests on.
HEADROOM = 0.05

_CHECK_INPUTS = "check `gpu:`, `model:`, the precision of its weights and `tensor_parallel`"
_MORE_WINDOWS = "take more windows of both sides"
_NO_ROW = (
    "no measured row says what real kernels reach on this accelerator at this precision",
    "write an absolute limit, or give your accelerator's own figure under gpu: achievable:",
)


@dataclass(frozen=True)
class _Unlimited:
    """Why a gate has no limit here, and what would give it one."""

    reason: str
    remedy: AnyAdvice


def judge(
    gate: Gate, outcome: Outcome, *, baseline: Baseline | NoBaseline | None = None, strict: bool = False
) -> Verdict:
    """Judge one gate on one outcome. ``strict``: an approximate verdict is inconclusive."""
    if isinstance(outcome, NoData):
        return _no_data(gate, outcome, outcome.reason, outcome.remedy)
    if isinstance(outcome, Impossible):
        return Verdict(gate, "impossible", outcome, because=outcome.reason, advice=(f"check {outcome.check}",))
    limit = _limit(gate, outcome, baseline)
    if isinstance(limit, _Unlimited):
        return _no_data(gate, outcome, limit.reason, limit.remedy)
    measured = Verdict(
        gate,
        "pass",
        outcome,
        value=_finite(outcome.value),
        limit=limit,
        margin=_margin(gate, outcome.value, limit),
        supported=_supported(gate, outcome.bounded),
        baseline=baseline if isinstance(baseline, Baseline) and hangs_on_baseline(gate) else None,
    )
    if outcome.judged_by == "bounds" or math.isinf(outcome.value):
        verdict = _by_bounds(measured, outcome, limit)
    else:
        verdict = _by_value(measured, outcome, limit)
    verdict = _noisy(verdict, limit)
    verdict = _doubted(_unconfirmed(verdict, outcome, limit), outcome)
    return replace(verdict, word="inconclusive") if strict and verdict.approximate else verdict


def _no_data(gate: Gate, outcome: Outcome, reason: str, remedy: AnyAdvice | None) -> Verdict:
    return Verdict(gate, "no data", outcome, because=reason, advice=(remedy,) if remedy else ())


def hangs_on_baseline(gate: Gate) -> bool:
    """Whether a gate's limit is written in terms of a baseline."""
    return gate.limit.kind in ("baseline", "x baseline")


def _limit(gate: Gate, measurement: Measurement, baseline: Baseline | NoBaseline | None) -> float | _Unlimited:
    """The limit in the metric's unit."""
    limit = gate.limit
    if limit.kind == "absolute":
        return limit.value
    if limit.kind == "of achievable":
        return _Unlimited(*_NO_ROW) if measurement.achievable is None else limit.value * measurement.achievable
    if not isinstance(baseline, Baseline):
        missing = baseline or NONE_GIVEN
        return _Unlimited(missing.reason, missing.remedy)
    if limit.kind == "x baseline":
        return limit.value * baseline.value
    return baseline.value * (1 + limit.value) if limit.relative else baseline.value + limit.value


def _holds(gate: Gate, value: float, limit: float) -> bool:
    match gate.operator:
        case ">=":
            return value >= limit
        case "<=":
            return value <= limit
        case ">":
            return value > limit
        case "<":
            return value < limit


def _interval(measurement: Measurement, limit: float) -> tuple[float, float]:
    """The ends that the true value lies between, both included.

    Buckets hold their upper bound and not their lower one, so that a limit on the lower bound lies outside.
    """
    low, high = measurement.bounded.low, measurement.bounded.high
    if measurement.bucketed and low == limit < high:
        low = math.nextafter(low, math.inf)
    return low, high


def _decided(gate: Gate, measurement: Measurement, limit: float) -> bool | None:
    """Whether the gate holds wherever in the interval the true value lies; None where that depends."""
    holds = {_holds(gate, end, limit) for end in _interval(measurement, limit)}
    return holds.pop() if len(holds) == 1 else None


def _by_bounds(verdict: Verdict, measurement: Measurement, limit: float) -> Verdict:
    """The value is an end of the interval (or unbounded): what the interval does not decide is no data."""
    decided = _decided(verdict.gate, measurement, limit)
    if decided is not None:
        return replace(verdict, word="pass" if decided else "fail")
    reason = measurement.undecided or _inside(verdict.gate, measurement.bounded, limit)
    return _no_data(verdict.gate, measurement, reason, measurement.settle)


def _by_value(verdict: Verdict, measurement: Measurement, limit: float) -> Verdict:
    """The value decides; where the interval alone would not, the verdict is approximate."""
    gate = verdict.gate
    decided = _decided(gate, measurement, limit)
    holds = _holds(gate, measurement.value, limit) if decided is None else decided
    verdict = replace(verdict, word="pass" if holds else "fail")
    if decided is None:
        verdict = _approximate(verdict, _inside(gate, measurement.bounded, limit), measurement.settle)
    return verdict


def _noisy(verdict: Verdict, limit: float) -> Verdict:
    """Approximate where the limit lies inside the noise of the baseline's windows and this one's."""
    noise = _noise(verdict.gate, limit, verdict.baseline) if verdict.word in ("pass", "fail") else None
    return _approximate(verdict, noise, _MORE_WINDOWS) if noise else verdict


def _approximate(verdict: Verdict, reason: str, settle: AnyAdvice | None) -> Verdict:
    """The verdict with one more reason to doubt it, and what would settle all of them."""
    return replace(
        verdict,
        approximate=True,
        because="; ".join(filter(None, (verdict.because, reason))),
        advice=tuple(dict.fromkeys((*verdict.advice, *([settle] if settle else [])))),
    )


def _noise(gate: Gate, limit: float, baseline: Baseline | None) -> str | None:
    """Why a limit that hangs on a baseline cannot be told from the value."""
    if baseline is None or baseline.ratio is None:
        return None
    seen = baseline.ratio.scaled(baseline.value)
    if _holds(gate, seen.low, limit) == _holds(gate, seen.high, limit):
        return None
    ratio = f"95 % interval of the ratio {baseline.ratio.low:.3g} .. {baseline.ratio.high:.3g}"
    windows = f"{baseline.windows} baseline window{'s' * (baseline.windows > 1)}"
    return f"within the noise of {windows} ({ratio})"


def _unconfirmed(verdict: Verdict, measurement: Measurement, limit: float) -> Verdict:
    """Approximate where an assumption that nothing confirms would turn the verdict if it were wrong."""
    if verdict.word not in ("pass", "fail"):
        return verdict
    gate = verdict.gate
    other = "fail" if verdict.word == "pass" else "pass"
    turned = [
        alternative
        for alternative in measurement.alternatives
        if _holds(gate, alternative.value, limit) != (verdict.word == "pass")
    ]
    if not turned:
        return verdict
    reasons = [
        f"{one.assumption} would give {format_quantity(one.value, gate.unit)} and {other}" for one in turned
    ]  # fmt: skip
    facts = tuple(dict.fromkeys(one.assumption.partition(" = ")[0] for one in turned))
    settle = f"write what holds under `deployment:` ({', '.join(facts)})"
    return replace(_approximate(verdict, "; ".join(reasons), settle), unconfirmed=facts)


def _doubted(verdict: Verdict, measurement: Measurement) -> Verdict:
    """Approximate where the figure itself is in doubt, wherever its limit lies."""
    if measurement.doubted is None or verdict.word not in ("pass", "fail"):
        return verdict
    return _approximate(verdict, measurement.doubted, _CHECK_INPUTS)


def _inside(gate: Gate, bounded: Bounded, limit: float) -> str:
    shown = precise(limit, gate.unit) if gate.limit.kind == "absolute" else format_quantity(limit, gate.unit)
    low, high = format_quantity(bounded.low, gate.unit), format_quantity(bounded.high, gate.unit)
    return f"the limit {shown} lies inside the interval of the measurement, {low} .. {high}"


def _margin(gate: Gate, value: float, limit: float) -> float | None:
    """Signed distance to the limit, negative on the wrong side; None where it is unbounded or has no scale."""
    distance = value - limit if gate.operator in (">=", ">") else limit - value
    if math.isinf(distance):
        return None
    if gate.unit == "fraction" or distance == 0:
        return distance
    return distance / limit if limit else None


def _supported(gate: Gate, bounded: Bounded) -> float | None:
    """The limit that this window would support; None where the interval is open on that side."""
    rising = gate.operator in (">=", ">")
    return _finite(bounded.low * (1 - HEADROOM) if rising else bounded.high * (1 + HEADROOM))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
