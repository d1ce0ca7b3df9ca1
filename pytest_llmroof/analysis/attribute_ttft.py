"""Where the time to the first token went, on average over a window's requests.

TTFT = front end (what is neither queue nor prefill: tokenisation, API server, messages between processes) + queue +
other requests' prefill (where several overlap) + own floor + kernel ceiling + communication + the rest.
"""

from __future__ import annotations

from pytest_llmroof.analysis.attribute import ceiling_parts, communication_parts, floor_parts
from pytest_llmroof.analysis.attribution import Attribution
from pytest_llmroof.analysis.communication import estimate
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.measurement import Measurement, Outcomes
from pytest_llmroof.analysis.shares import Part, fitted
from pytest_llmroof.analysis.tokens import observations, total
from pytest_llmroof.roofline.cost import floor as roofline_floor
from pytest_llmroof.roofline.cost import step_cost
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.roofline.step import Floor, Prefill, Step


def attribute_ttft(facts: WindowFacts, outcomes: Outcomes) -> Attribution | None:
    """The mean time to first token; None without it, or where neither its queue nor its prefill is known."""
    ttft = outcomes.get("ttft.mean")
    if not isinstance(ttft, Measurement) or ttft.value <= 0:
        return None
    queue, prefill = _mean(facts, "queue"), _mean(facts, "prefill_time")
    if queue is None and prefill is None:
        return None
    whole, source = ttft.value, ttft.source
    parts = [Part("queue", queue or 0.0, True, _name(facts, "queue", source))]
    if queue is not None and prefill is not None:
        parts.append(Part("front end", whole - queue - prefill, True, f"{source}: neither queue nor prefill"))
    if prefill is not None:
        others = prefill * _overlap(facts)
        parts.append(Part("other requests' prefill", others, False, _name(facts, "prefill_time", source)))
    own = _own_floor(facts)
    parts.extend([*own, *ceiling_parts(facts.deployment, own)])
    parts.extend(communication_parts(estimate(facts.deployment, _own_tokens(facts)), None))
    return Attribution("ttft", whole, fitted(whole, parts, Part("not attributed", 0.0, False, "the remainder")))


def own_prompt(facts: WindowFacts) -> Prefill | None:
    """The mean request's prompt as prefill: the tokens computed, behind those found in the cache."""
    tokens = _own_tokens(facts)
    if not tokens:
        return None
    cached = max(0.0, (facts.mean_prompt_tokens or tokens) - tokens)
    return Prefill(tokens, cached=cached)


def prompt_floor(deployment: Deployment, prompt: Prefill | None) -> Floor | None:
    """The least time of a prompt that is computed alone; None without a model or an accelerator."""
    if prompt is None or deployment.model is None:
        return None
    return roofline_floor(deployment, step_cost(deployment, Step(prefills=(prompt,))))


def _own_floor(facts: WindowFacts) -> list[Part]:
    floor = prompt_floor(facts.deployment, own_prompt(facts))
    return floor_parts(floor) if floor else []


def _own_tokens(facts: WindowFacts) -> float:
    """Prompt tokens that the engine computed for a request, mean; 0 where that is not known."""
    if facts.mean_prompt_tokens is None:
        return 0.0
    if facts.prefill is not None and not facts.prefill.hits_told:
        return 0.0
    if facts.prompt_tokens and facts.computed_prompt_tokens is not None:
        return facts.mean_prompt_tokens * facts.computed_prompt_tokens / facts.prompt_tokens
    return facts.mean_prompt_tokens


def _overlap(facts: WindowFacts) -> float:
    """The share of a request's prefill time in which the engine computed others: 1 - busy / sum of prefill time."""
    seconds = total(facts.window, "prefill_time")
    if not seconds or facts.busy is None:
        return 0.0
    return max(0.0, 1 - facts.busy.seconds.value * len(facts.window.engines) / seconds)


def _mean(facts: WindowFacts, quantity: str) -> float | None:
    seconds, count = total(facts.window, quantity), observations(facts.window, quantity)
    return seconds / count if seconds is not None and count else None


def _name(facts: WindowFacts, quantity: str, fallback: str) -> str:
    return facts.window.source_name(quantity) or fallback
