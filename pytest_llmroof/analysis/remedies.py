"""Remedies of a scenario, each with the effect that the roofline predicts for this deployment.

What to say is data (scenarios.yaml), what it does is computed here by the same physics as the floors. Only remedies
that apply, and that move more than 3 % of the time, are offered; their effects do not add.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from pytest_llmroof.analysis import effects_admission, effects_bytes, effects_compute, effects_losses
from pytest_llmroof.analysis.admission import saturation
from pytest_llmroof.analysis.attribution import Attribution, Cause
from pytest_llmroof.analysis.diagnosis import Remedy
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.observed import Observed
from pytest_llmroof.analysis.scenarios import Entry, option_words, scenarios
from pytest_llmroof.analysis.situation import Effect, Situation, upper_bound, worth
from pytest_llmroof.analysis.vendors import vendor_of
from pytest_llmroof.roofline.deployment import ELEMENT_BYTES, element_bytes

EFFECTS: Final[Mapping[str, Callable[[Situation], Effect | None]]] = {
    effect.__name__: effect
    for effect in (
        effects_bytes.larger_batch, effects_bytes.fp8_weights, effects_bytes.int8_weights, effects_bytes.int4_weights,
        effects_bytes.fp8_kv, effects_bytes.smaller_cache, effects_bytes.speculation,
        effects_compute.chunked_prefill, effects_compute.disaggregation, effects_compute.attention_kernels,
        effects_compute.fp8_compute, effects_compute.prefix_caching,
        effects_losses.inside_nvlink, effects_losses.lower_degree, effects_losses.pipeline_across_nodes,
        effects_losses.expert_parallelism, effects_losses.fused_all_reduce, effects_losses.no_idle_within,
        effects_losses.no_idle_between, effects_losses.no_waiting, effects_losses.no_slow_kernels,
        effects_admission.more_slots, effects_admission.fp8_kv_capacity, effects_admission.replicas,
        effects_admission.disaggregation_ttft,
    )
}  # fmt: skip

#: Effects that quantise; they come in the order of what they shrink, the larger one first.
_OF_WEIGHTS: Final = ("fp8_weights", "int8_weights", "int4_weights")
_OF_CACHE: Final = ("fp8_kv",)
#: Of kernel time that graph replays launched: then steps are captured already.
_MOSTLY: Final = 0.9


def remedies(
    scenario: str | None,
    facts: WindowFacts,
    attribution: Attribution | None,
    *,
    observed: Observed | None = None,
    tpot_limit_seconds: float | None = None,
    doubted: bool = False,
) -> tuple[Remedy, ...]:
    """What helps against a scenario here. For ``C or D`` those of both, each as the most that it could give.

    Where the scenario is ``doubted`` each remedy says that it helps if that is the cause.
    """
    if scenario is None:
        return ()
    letters = scenario.split(" or ")
    situation = Situation(facts, attribution, observed, tpot_limit_seconds)
    offered: list[Remedy] = []
    for letter in letters:
        offered.extend(_of_letter(letter, situation, bound=len(letters) > 1, doubted=doubted))
    return tuple(dict.fromkeys(offered))


def _of_letter(letter: str, situation: Situation, *, bound: bool, doubted: bool) -> list[Remedy]:
    # A bound says it by itself.
    doubt = f", if the cause is {scenarios()[letter].short}" if doubted and not bound else ""
    found = []
    for entry in _ordered(scenarios()[letter].remedies, situation):
        if not all(_CONDITIONS[name](situation) for name in entry.applies):
            continue
        worded = entry.of(vendor_of(situation.facts))
        if worded is None:
            continue
        effect = EFFECTS[entry.effect](_bounded(situation, letter, entry) if bound else situation)
        if effect is not None and worth(effect):
            detail = worded.detail.format(**effect.fill, **option_words(situation.facts.window.kind))
            found.append(Remedy(worded.title, detail, effect.text + doubt, effect.metric, effect.low, effect.high))
    return found


def _bounded(situation: Situation, letter: str, entry: Entry) -> Situation:
    """The situation in which all that nothing explains belongs to this scenario (and to this remedy's part of it)."""
    if situation.attribution is None:
        return situation
    cause: Cause | None = "idle: between steps" if entry.effect == "no_idle_between" else None
    split = upper_bound(situation.attribution, letter, cause)
    return replace(situation, attribution=split, bound=scenarios()[letter].short)


def _ordered(entries: tuple[Entry, ...], situation: Situation) -> list[Entry]:
    """Quantisation of the cache before that of the weights, where the cache is the larger part of the step."""
    weights = situation.seconds("memory floor: weights")
    if situation.seconds("memory floor: KV") <= weights:
        return list(entries)
    first = [entry for entry in entries if entry.effect in _OF_CACHE]
    rest = [entry for entry in entries if entry.effect not in _OF_CACHE]
    place = next((index for index, entry in enumerate(rest) if entry.effect in _OF_WEIGHTS), len(rest))
    return [*rest[:place], *first, *rest[place:]]


def _has_fp8(situation: Situation) -> bool:
    accelerator = situation.deployment.accelerator
    return accelerator is not None and accelerator.peak("fp8") is not None


def _queue_cause(situation: Situation) -> str | None:
    found = saturation(situation.facts)
    return found.cause if found else None


def _attribution_is(situation: Situation, *kinds: str) -> bool:
    return situation.attribution is not None and situation.attribution.of in kinds


def _experts(situation: Situation) -> bool:
    return situation.deployment.model is not None and situation.deployment.model.experts > 0


_CONDITIONS: Final[Mapping[str, Callable[[Situation], bool]]] = {
    "wide_weights": lambda now: element_bytes(now.deployment.weights) >= 2,
    "narrow_weights": lambda now: element_bytes(now.deployment.weights) < 2,
    "weights_over_4_bits": lambda now: element_bytes(now.deployment.weights) >= 1,
    "wide_kv": lambda now: ELEMENT_BYTES[now.deployment.kv_cache] >= 2,
    "has_fp8": _has_fp8,
    "lacks_fp8": lambda now: not _has_fp8(now),
    "computes_wide": lambda now: now.deployment.compute in ("bf16", "fp16"),
    "no_speculation": lambda now: now.deployment.speculative_tokens == 0,
    "decode_time": lambda now: _attribution_is(now, "decode step"),
    "prefill_time": lambda now: _attribution_is(now, "prefill", "ttft"),
    "not_modern_attention": lambda now: now.observed is None or not now.observed.modern_attention,
    "not_replayed": lambda now: now.observed is None or (now.observed.graph_launched or 0.0) < _MOSTLY,
    "imbalance": lambda now: now.observed is not None and now.observed.waiting_cause == "imbalance",
    "bubble": lambda now: now.observed is not None and now.observed.waiting_cause == "pipeline bubble",
    "experts": _experts,
    "no_expert_parallelism": lambda now: not now.deployment.expert_parallel,
    "slots": lambda now: _queue_cause(now) == "slots",
    "not_compute": lambda now: _queue_cause(now) != "compute",
    "compute": lambda now: _queue_cause(now) == "compute",
}
