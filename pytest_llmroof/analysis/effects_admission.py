"""Effects of scenario E's remedies: more places for requests."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from pytest_llmroof.analysis.admission import most_running
from pytest_llmroof.analysis.constants import remedy_constant
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.situation import Effect, Situation, duration
from pytest_llmroof.analysis.tokens import observations, requests_at, total
from pytest_llmroof.roofline.cost import memory_fit
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.units import grouped


@dataclass(frozen=True)
class Demand:
    """What arrives: requests per second, seconds that each takes without the queue, and requests that wait, mean."""

    rate: float
    seconds: float
    waiting: float

    @property
    def places(self) -> float:
        """Places that keep up with the arrivals (Little's law)."""
        return self.rate * self.seconds


def fitting(facts: WindowFacts, deployment: Deployment) -> float | None:
    """Sequences of this window's context that a replica's memory holds."""
    context = facts.decode.context.value if facts.decode and facts.decode.context else None
    if context is None and facts.mean_prompt_tokens is not None:
        context = facts.mean_prompt_tokens + (facts.mean_output_tokens or 0.0) / 2
    fit = memory_fit(deployment, context) if context else None
    return fit.sequences if fit else None


def more_slots(situation: Situation) -> Effect | None:
    """As many sequences as fit, where fewer ran."""
    fits, ran = fitting(situation.facts, situation.deployment), most_running(situation.facts)
    if fits is None or not ran or fits < ran * remedy_constant("larger_batch"):
        return None
    text = f"{grouped(ran)} sequences at once toward {grouped(math.floor(fits))} in each replica"
    return Effect(text, fill={"fitting": grouped(math.floor(fits)), "running": grouped(ran)})


def fp8_kv_capacity(situation: Situation) -> Effect | None:
    """Half the bytes per token of context: more sequences fit."""
    before = fitting(situation.facts, situation.deployment)
    after = fitting(situation.facts, replace(situation.deployment, kv_cache="fp8"))
    if not before or not after:
        return None
    ran = most_running(situation.facts)
    if ran and ran < before:
        # The cache held what was seen to run, whatever the engine was given of the memory.
        before, after = ran, ran * after / before
    text = f"{grouped(math.floor(before))} sequences toward {grouped(math.floor(after))} in each replica"
    fill = {"fitting_before": grouped(math.floor(before)), "fitting_after": grouped(math.floor(after))}
    return Effect(text, fill=fill)


def replicas(situation: Situation) -> Effect | None:
    """ceil(arrival rate * time without the queue / places of a replica); with the waiting requests too, at most."""
    facts = situation.facts
    asked, capacity, now = demand(facts), most_running(facts), facts.deployment.replicas
    if asked is None or not capacity:
        return None
    least = math.ceil(asked.places / capacity - 1e-9)
    most = max(least, math.ceil((asked.places + asked.waiting) / capacity - 1e-9))
    if most <= now:
        return None
    least = max(least, now)
    text = f"{now} toward {most} replicas" if least in (now, most) else f"{now} toward {least} to {most} replicas"
    fill = {
        "rate": f"{asked.rate:.1f}",
        "seconds": duration(asked.seconds),
        "needed": grouped(math.ceil(asked.places)),
        "waiting": f", and {grouped(asked.waiting)} requests wait" if asked.waiting else "",
        "capacity": grouped(capacity),
    }
    queue = situation.seconds("queue")
    if not queue:
        return Effect(text, fill=fill)
    after = situation.total - queue
    text += f": time to first token {duration(situation.total)} toward {duration(after)}"
    return Effect(text, "ttft.mean", after, after, queue / situation.total, fill)


def disaggregation_ttft(situation: Situation) -> Effect | None:
    """The first token without the wait behind other requests' work; without a figure, as it depends on the split."""
    if situation.attribution is None or situation.attribution.of != "ttft":
        return None
    return Effect("the queue and decode steps no longer share GPUs")


def demand(facts: WindowFacts) -> Demand | None:
    """Arrivals: the requests that started in the window, and by how much the line grew."""
    seconds = facts.duration_seconds if facts.busy is None else facts.busy.seconds.value
    started = observations(facts.window, "ttft") or facts.finished_requests
    alone = time_without_queue(facts)
    if not seconds or not started or alone is None:
        return None
    growth = (requests_at(facts.window, -1) or 0.0) - (requests_at(facts.window, 0) or 0.0)
    return Demand((started + max(0.0, growth)) / seconds, alone, mean_waiting(facts))


def time_without_queue(facts: WindowFacts) -> float | None:
    """Mean time of a request once it was scheduled."""
    whole, queue = _mean(facts, "e2e"), _mean(facts, "queue")
    if whole is None:
        return _mean(facts, "inference_time")
    return max(0.0, whole - (queue or 0.0))


def mean_waiting(facts: WindowFacts) -> float:
    """Waiting requests of a replica over the samples in which it had any; 0 where nothing was sampled."""
    means = []
    for engine in facts.window.engines:
        series = engine.gauges.get("waiting")
        waiting = [value for value in series.values if value > 0] if series else []
        means.append(sum(waiting) / len(waiting) if waiting else 0.0)
    return sum(means)


def _mean(facts: WindowFacts, quantity: str) -> float | None:
    seconds, count = total(facts.window, quantity), observations(facts.window, quantity)
    return seconds / count if seconds is not None and count else None
