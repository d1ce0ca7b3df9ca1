"""Effects of scenario B's remedies: less arithmetic, arithmetic on a higher peak, or arithmetic at another time."""

from __future__ import annotations

from dataclasses import replace

from pytest_llmroof.analysis.attribute_ttft import own_prompt
from pytest_llmroof.analysis.constants import reach, remedy_constant, remedy_range
from pytest_llmroof.analysis.situation import Effect, Situation, duration, durations, numbers
from pytest_llmroof.roofline.cost import costed, model_flops, step_cost
from pytest_llmroof.roofline.deployment import Deployment, element_bytes
from pytest_llmroof.roofline.step import Prefill, Step
from pytest_llmroof.units import format_quantity, grouped


def chunk_tokens(deployment: Deployment) -> float | None:
    """Prompt tokens that keep a step at the ridge: ridge * bytes per weight / 2 * E / k."""
    model, accelerator = deployment.model, deployment.accelerator
    ridge = accelerator.ridge(deployment.compute) if accelerator else None
    if model is None or ridge is None:
        return None
    spread = model.experts / model.experts_per_token if model.experts_per_token else 1.0
    return ridge * element_bytes(deployment.weights) / 2 * spread


def chunked_prefill(situation: Situation) -> Effect | None:
    """Steps that hold a chunk of that size in place of today's: the longest pause between tokens shrinks."""
    chunk, step, prefill = chunk_tokens(situation.deployment), situation.step(), situation.facts.prefill
    before = situation.decode_floor(situation.deployment)
    if chunk is None or step is None or before is None or prefill is None:
        return None
    held = prefill.step.tokens
    now = situation.decode_floor(situation.deployment, _with_chunk(step, held))
    then = situation.decode_floor(situation.deployment, _with_chunk(step, chunk))
    if now is None or then is None or chunk >= held:
        return None
    today = _mixed_step(situation, now[1].seconds)
    low, high = _mixed_step(situation, then[1].seconds)
    text = f"steps with prompts {durations(*today)} toward {durations(low, high)}"
    gain = 1 - (low + high) / sum(today)
    return Effect(text, "itl.max", low, high, gain, {"chunk": grouped(chunk)})


def disaggregation(situation: Situation) -> Effect | None:
    """T without the prefill of other requests in it."""
    interleaved = situation.seconds("interleaved prefill")
    if not interleaved:
        return None
    after = situation.total - interleaved
    return situation.timed(after, after)


def attention_kernels(situation: Situation) -> Effect | None:
    """Attention's floor times (1 / eta before - 1 / eta after).

    Eta before is that of older kernels, or the higher one without which today's time could not hold attention beside
    the linear layers: then newer kernels run already, and nothing is left to gain.
    """
    share, deployment = _attention_share(situation), situation.deployment
    accelerator = deployment.accelerator
    if share is None or accelerator is None or accelerator.architecture not in ("Hopper", "Blackwell"):
        return None
    compute, work = situation.seconds("compute floor"), situation.floor + situation.rest
    floor, linear = compute * share, compute * (1 - share) / reach(accelerator, deployment.compute)[0]
    if not floor or work <= linear:
        return None
    before = max(remedy_constant("attention_before"), floor / (work - linear))
    worst, best = (floor * max(0.0, 1 / before - 1 / after) for after in remedy_range("attention_after"))
    low, high = situation.total - best, situation.total - worst
    fill = {"attention_share": format_quantity(share, "fraction", digits=2)}
    return situation.timed(low, high, note=_rate(situation, low, high), fill=fill)


def fp8_compute(situation: Situation) -> Effect | None:
    """Linear FLOPs / (F8 eta8) + attention FLOPs / (F16 eta16), against all of them at F16 eta16."""
    share, accelerator = _attention_share(situation), situation.deployment.accelerator
    wide = situation.deployment.compute
    if share is None or accelerator is None or not situation.seconds("compute floor"):
        return None
    narrow_peak, wide_peak = accelerator.peak("fp8"), accelerator.peak(wide)
    if not narrow_peak or not wide_peak:
        return None
    eta8, eta16 = reach(accelerator, "fp8")[0], reach(accelerator, wide)[0]
    before = situation.seconds("compute floor") / eta16
    after = before * (share + (1 - share) * wide_peak * eta16 / (narrow_peak * eta8))
    speedup = before / after
    # At best all of the work gains, at worst only what kernels take at today's reach.
    work = situation.floor + situation.rest
    low, high = sorted((situation.total - work * (1 - 1 / speedup), situation.total - min(before, work) + after))
    mfu = _mfu(situation)
    then = mfu * wide_peak / narrow_peak * situation.total / ((low + high) / 2)
    fill = {
        "peak_before": format_quantity(wide_peak, "FLOP/s"),
        "peak_after": format_quantity(narrow_peak, "FLOP/s"),
        "speedup": f"{speedup:.1f}",
        "mfu_before": f"{mfu * 100:.0f}",
        "mfu_after": f"{then * 100:.0f} %",
    }
    return situation.timed(low, high, note=_rate(situation, low, high), fill=fill)


def prefix_caching(situation: Situation) -> Effect | None:
    """Prefill times (1 - h); h is the traffic's and not known before it is tried."""
    hits = situation.facts.prefix_hit_rate
    today = "not known" if hits is None else format_quantity(hits, "fraction", digits=2)
    prefill = situation.seconds("compute floor", "memory floor: weights", "kernel ceiling", "not attributed")
    if not prefill or (hits is not None and hits > 0.5):
        return None
    saved = f"{duration(prefill / 10)} of {duration(situation.total)}"
    text = f"each tenth of the prompt tokens that is shared saves {saved}"
    return Effect(text, fill={"hit_rate": today})


def _with_chunk(step: Step, tokens: float) -> Step:
    return replace(step, prefills=(Prefill(tokens, logits=0.0),))


def _mixed_step(situation: Situation, floor: float) -> tuple[float, float]:
    """The range of a step with prompts in it, as far above its floor as the mean step is."""
    return situation.after(floor)


def _mfu(situation: Situation) -> float:
    """MFU of the prefill in the time that was split, by the deployment's convention."""
    prompt = own_prompt(situation.facts)
    if prompt is None:
        return 0.0
    step = Step(prefills=(prompt,))
    counted = model_flops(situation.deployment, prompt.tokens, step)
    exact = step_cost(situation.deployment, step).flops
    spent = situation.total if situation.attribution and situation.attribution.of == "prefill" else 0.0
    return situation.seconds("compute floor") * counted / exact / (spent or situation.floor + situation.rest)


def _attention_share(situation: Situation) -> float | None:
    """Attention scores' share of the FLOPs of the mean prompt; None without a model or where none are counted."""
    prompt, model = own_prompt(situation.facts), situation.deployment.model
    if prompt is None or model is None:
        return None
    parts = costed(model)
    flops = step_cost(situation.deployment, Step(prefills=(prompt,))).flops
    matrices = 2 * parts.body_parameters * prompt.tokens + 2 * parts.head_parameters * prompt.logits
    return max(0.0, 1 - matrices / flops) if flops else None


def _rate(situation: Situation, low: float, high: float) -> str:
    """What a prefill window's token rate becomes."""
    tokens = situation.facts.computed_prompt_tokens
    if situation.attribution is None or situation.attribution.of != "prefill" or not tokens:
        return ""
    now = tokens / situation.total
    return f"; {grouped(now)} prompt tok/s toward {numbers(grouped(tokens / high), grouped(tokens / low))}"
