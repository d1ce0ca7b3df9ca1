"""Measurements of prefill: rate, utilisation and intensity of prompt tokens."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from pytest_llmroof.analysis.busytime import is_bound
from pytest_llmroof.analysis.decodebounds import as_lower_bound
from pytest_llmroof.analysis.facts import PrefillFacts, WindowFacts
from pytest_llmroof.analysis.measurement import Measurement, NoData, Outcome
from pytest_llmroof.analysis.prompts import prompt_step
from pytest_llmroof.analysis.sources import Roofs, convention, fits_cache, in_cache, not_exported, roofs, source
from pytest_llmroof.analysis.thresholds import remedy
from pytest_llmroof.analysis.timebase import BOUND, TimeBase, apart, over, time_base
from pytest_llmroof.analysis.tokens import EDGES, HITS, UNTOLD
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.roofline.cost import model_flops, step_cost
from pytest_llmroof.roofline.roof import achievable
from pytest_llmroof.roofline.step import Step
from pytest_llmroof.units import grouped


def prefill_metric(facts: WindowFacts, metric: str) -> Outcome:
    """One ``prefill.*`` metric."""
    if facts.contradiction and facts.phase == "prefill":
        return NoData(metric, facts.contradiction, remedy("phase"))
    if facts.computed_prompt_tokens is None:
        return not_exported(facts, metric, "count of prompt tokens", "counter")
    if facts.prefill is None:
        return NoData(metric, "no prompt token was computed in this window", remedy("prefill_window"))
    if metric == "prefill.tokens_per_second":
        return _prompt_rate(facts, facts.prefill)
    against = roofs(metric, facts.deployment)
    return against if isinstance(against, NoData) else _PREFILL[metric](facts, facts.prefill, against)


def _prompt_rate(facts: WindowFacts, prefill: PrefillFacts) -> Outcome:
    metric = "prefill.tokens_per_second"
    if facts.busy is None or not facts.busy.seconds.high:
        return NoData(metric, "nothing tells how long the engine was at work", remedy("clock"))
    bound = is_bound(facts.busy)
    base = apart(facts) or TimeBase(
        facts.busy.seconds, facts.busy.basis, not bound, BOUND if bound else None, remedy("record")
    )
    how = f"computed prompt tokens over busy time ({base.basis})"
    measured = over(facts, metric, prefill.tokens, base, "tokens/s", how, "prompt_tokens_computed", "prompt_tokens")
    return _settled(facts, measured, prefill)


def _mfu(facts: WindowFacts, prefill: PrefillFacts, against: Roofs) -> Outcome:
    base = time_base(facts)
    if base is None:
        return NoData("prefill.mfu", "nothing tells how long the engine was at work", remedy("clock"))
    cost = step_cost(facts.deployment, prefill.step)
    flops = prefill.tokens.map(lambda tokens: model_flops(facts.deployment, tokens, prefill.step))
    share = flops.scaled(1 / (against.peak * facts.deployment.gpus))
    how = f"FLOPs of computed prompt tokens over the peak and {base.basis}; {convention(facts, cost)}"
    reach = achievable(against.accelerator, facts.deployment.compute)
    return _settled(facts, _utilisation(facts, "prefill.mfu", share, base, how, reach), prefill)


def _settled(facts: WindowFacts, measured: Measurement, prefill: PrefillFacts) -> Measurement:
    """The measurement, with what would tell the prompts in flight at the window's ends, or the cached ones."""
    if not prefill.hits_told:
        return as_lower_bound(measured, UNTOLD, HITS)
    if not prefill.hits_counted:
        return replace(measured, settle=measured.settle or HITS)
    return replace(measured, settle=EDGES) if math.isinf(prefill.tokens.high) else measured


def _mbu(facts: WindowFacts, prefill: PrefillFacts, against: Roofs) -> Outcome:
    base = time_base(facts)
    if base is None:
        return NoData("prefill.mbu", "nothing tells how long the engine was at work", remedy("clock"))
    if fits_cache(against, step_cost(facts.deployment, prefill.step)):
        return in_cache("prefill.mbu", against)
    bounds = prefill.steps
    ends = [_bytes_moved(facts, prefill, steps) for steps in (bounds.value, bounds.low, bounds.high)]
    share = _of_tokens(Bounded.spanning(*ends), prefill).scaled(1 / (against.bandwidth * facts.deployment.gpus))
    steps = f"{grouped(prefill.steps.value)} steps with prompts" + (", estimated," if prefill.estimated else "")
    how = f"weights of {steps} and cache read and written, over the bandwidth and {base.basis}"
    measured = _utilisation(facts, "prefill.mbu", share, base, how, achievable(against.accelerator, "memory"))
    return _settled(facts, measured, prefill)


def _of_tokens(amount: Bounded, prefill: PrefillFacts) -> Bounded:
    """An amount that the counted tokens made, as wide as their own number is known."""
    tokens = prefill.tokens
    # The quotients first: where nothing is unknown they are 1, and no rounding moves an end beyond the value.
    fewer, more = tokens.low / tokens.value, tokens.high / tokens.value
    return Bounded(amount.value, amount.low * min(1.0, fewer), amount.high * max(1.0, more))


def _intensity(facts: WindowFacts, prefill: PrefillFacts, against: Roofs) -> Outcome:
    ends = [
        step_cost(facts.deployment, _prompts(facts, prefill, steps)).intensity
        for steps in (prefill.steps.value, prefill.steps.low, prefill.steps.high)
    ]
    ridge = against.accelerator.ridge(facts.deployment.compute) or math.nan
    estimated = " (estimated from a token budget)" if prefill.estimated else ""
    return Measurement(
        metric="prefill.intensity",
        bounded=Bounded.spanning(*ends),
        unit="FLOP/byte",
        source=source(facts.window, "prompt_tokens_computed", "prompt_tokens"),
        method=f"all FLOPs over all bytes of a mean step with prompts{estimated}; the ridge is {ridge:.1f} FLOP/B",
        samples=round(prefill.requests),
    )


_PREFILL: Final[dict[str, Callable[[WindowFacts, PrefillFacts, Roofs], Outcome]]] = {
    "prefill.mfu": _mfu,
    "prefill.mbu": _mbu,
    "prefill.intensity": _intensity,
}


def _prompts(facts: WindowFacts, prefill: PrefillFacts, steps: float) -> Step:
    return prompt_step(prefill.tokens.value, prefill.requests, facts.prefix_hit_rate or 0.0, steps)


def _bytes_moved(facts: WindowFacts, prefill: PrefillFacts, steps: float) -> float:
    return steps * step_cost(facts.deployment, _prompts(facts, prefill, steps)).bytes


def _utilisation(
    facts: WindowFacts, metric: str, share: Bounded, base: TimeBase, how: str, reach: float | None
) -> Measurement:  # fmt: skip
    measured = over(facts, metric, share, base, "fraction", how, "prompt_tokens_computed", "prompt_tokens")
    return replace(measured, achievable=reach)
