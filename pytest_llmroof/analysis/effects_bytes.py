"""Effects of scenario A's remedies: fewer bytes per token, or more tokens per pass over the weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pytest_llmroof.analysis.constants import remedy_constant, remedy_range
from pytest_llmroof.analysis.facts import DecodeFacts
from pytest_llmroof.analysis.situation import Effect, Situation, durations, numbers
from pytest_llmroof.roofline.cost import costed, memory_fit, step_cost
from pytest_llmroof.roofline.deployment import ELEMENT_BYTES, Deployment
from pytest_llmroof.roofline.step import Step
from pytest_llmroof.units import format_quantity, grouped


def larger_batch(situation: Situation) -> Effect | None:
    """B' = the least of what memory, the ridge and the latency limit allow; throughput becomes B' / T(B')."""
    decode, step = situation.decode, situation.step()
    if decode is None or step is None or situation.deployment.model is None or not step.sequences:
        return None
    limits = [one for one in (_memory_limit(situation, step), _ridge_limit(situation, step)) if one is not None]
    if not limits:
        return None
    batch, limit = min(limits)
    batch, limit = _within_latency(situation, step, batch, limit)
    if batch < step.sequences * remedy_constant("larger_batch"):
        return None
    times = _time_at(situation, step, batch)
    if times is None:
        return None
    note = no_ridge(situation, step)
    return _throughput(situation, decode, batch, times, limit + (f"; {note}" if note else ""))


def no_ridge(situation: Situation, step: Step) -> str | None:
    """Where no batch reaches the ridge at this context: what the intensity tends to."""
    per_sequence = _per_sequence(situation.deployment, step)
    accelerator = situation.deployment.accelerator
    ridge = accelerator.ridge(situation.deployment.compute) if accelerator else None
    if per_sequence is None or ridge is None or per_sequence[0] / ridge > per_sequence[1]:
        return None
    tends = format_quantity(per_sequence[0] / per_sequence[1], "FLOP/byte")
    return f"no batch reaches the ridge at this context (the intensity tends to {tends})"


def ridge_batch(deployment: Deployment, step: Step) -> float | None:
    """The batch at which arithmetic and memory take the same time; None where no batch does."""
    per_sequence = _per_sequence(deployment, step)
    ridge = deployment.accelerator.ridge(deployment.compute) if deployment.accelerator else None
    if per_sequence is None or ridge is None:
        return None
    left = per_sequence[0] / ridge - per_sequence[1]
    if left <= 0:
        return None
    # A mixture reads more experts the larger the batch: from all of them downwards this settles in a few rounds.
    batch = 1e9
    for _ in range(50):
        batch, before = _weight_bytes(deployment, replace(step, sequences=batch)) / left, batch
        if abs(batch - before) < 1e-6 * before:
            break
    return batch


def fp8_weights(situation: Situation) -> Effect | None:
    """Linear layers in FP8, computed on the FP8 peak where there is one."""
    accelerator = situation.deployment.accelerator
    compute = "fp8" if accelerator and accelerator.peak("fp8") else situation.deployment.compute
    return _changed(situation, lambda now: replace(now, weights="fp8", compute=compute))


def int8_weights(situation: Situation) -> Effect | None:
    """Linear layers in INT8; products stay in 16 bit."""
    return _changed(situation, lambda now: replace(now, weights="int8"))


def int4_weights(situation: Situation) -> Effect | None:
    """Linear layers in 4 bits (W4A16): products stay in 16 bit, and so does F."""
    return _changed(situation, lambda now: replace(now, weights="w4a16"))


def fp8_kv(situation: Situation) -> Effect | None:
    """One byte per element of the cache."""
    return _changed(situation, lambda now: replace(now, kv_cache="fp8"))


def smaller_cache(situation: Situation) -> Effect | None:
    """Another model: at most the cache's part of the step goes."""
    cache = situation.seconds("memory floor: KV")
    if situation.decode is None or not cache:
        return None
    low, _ = situation.after(situation.floor - cache)
    share = format_quantity(cache / situation.floor, "fraction", digits=2)
    return situation.timed(low, situation.total, fill={"kv_share": share})


def speculation(situation: Situation) -> Effect | None:
    """ITL' = (a verify step of B (g + 1) tokens + g draft passes) / m, while the verify step stays under the ridge."""
    decode, step = situation.decode, situation.step()
    before = situation.decode_floor(situation.deployment)
    if decode is None or step is None or before is None:
        return None
    drafts = int(remedy_constant("draft_tokens"))
    verify = situation.decode_floor(situation.deployment, replace(step, draft_tokens=drafts))
    if verify is None or not verify[1].memory_bound:
        return None
    low, high = situation.after(situation.scaled_floor(before[1], verify[1]))
    # A draft pass is at best at its floor, at worst as far above it as today's step is.
    draft = _draft_pass(situation.deployment)
    slower = situation.total / situation.floor
    few, many = (sum(rate**place for place in range(drafts + 1)) for rate in remedy_range("draft_acceptance"))
    low, high = (low + drafts * draft) / many, (high + drafts * draft * slower) / few
    now = situation.total / decode.tokens_per_step
    acceptance = " to ".join(format_quantity(rate, "fraction") for rate in remedy_range("draft_acceptance"))
    fill = {
        "draft_tokens": str(drafts),
        "low_tokens": f"{few:.1f}",
        "high_tokens": f"{many:.1f}",
        "acceptance": acceptance,
    }
    text = f"time per output token {durations(now, now)} toward {durations(low, high)}"
    return Effect(text, "tpot.mean", low, high, (now - (low + high) / 2) / now, fill)


def _changed(situation: Situation, change: Callable[[Deployment], Deployment]) -> Effect | None:
    """The effect of another precision: its own bytes, the floor that follows, and the step's range."""
    before = situation.decode_floor(situation.deployment)
    changed = change(situation.deployment)
    after = situation.decode_floor(changed)
    if before is None or after is None:
        return None
    new_floor = situation.scaled_floor(before[1], after[1])
    low, high = situation.after(new_floor)
    mbu_low, mbu_high = sorted((after[1].memory_seconds / high, after[1].memory_seconds / low))
    note = f"; decode MBU then {numbers(f'{mbu_low * 100:.0f}', f'{mbu_high * 100:.0f}')} %"
    fill = {
        "bytes_before": f"{before[0].bytes / 1e9:.1f}",
        "bytes_after": f"{after[0].bytes / 1e9:.1f} GB",
        "floor_before": f"{before[1].seconds * 1e3:.1f}",
        "floor_after": f"{after[1].seconds * 1e3:.1f} ms",
    }
    return situation.timed(low, high, note=note, fill=fill)


def _memory_limit(situation: Situation, step: Step) -> tuple[float, str] | None:
    fit = memory_fit(situation.deployment, step.context)
    if fit is None or fit.sequences is None:
        return None
    context = format_quantity(step.context, "tokens")
    return fit.sequences, f"Memory allows {grouped(fit.sequences)} sequences of {context} in each replica"


def _ridge_limit(situation: Situation, step: Step) -> tuple[float, str] | None:
    batch = ridge_batch(situation.deployment, step)
    if batch is None:
        return None
    return batch, f"At {grouped(batch)} sequences arithmetic becomes the limit"


def _within_latency(situation: Situation, step: Step, batch: float, limit: str) -> tuple[float, str]:
    """The largest batch up to ``batch`` whose step keeps the limit of the time per output token."""
    asked = situation.tpot_limit_seconds
    decode = situation.decode
    if asked is None or decode is None:
        return batch, limit
    allowed = asked * decode.tokens_per_step
    times = _time_at(situation, step, batch)
    if times is None or times[1] <= allowed:
        return batch, limit
    low, high = step.sequences, batch
    for _ in range(60):
        middle = (low + high) / 2
        times = _time_at(situation, step, middle)
        low, high = (middle, high) if times is not None and times[1] <= allowed else (low, middle)
    return low, f"At {grouped(low)} sequences the time per output token reaches its limit"


def _time_at(situation: Situation, step: Step, batch: float) -> tuple[float, float] | None:
    before = situation.decode_floor(situation.deployment)
    after = situation.decode_floor(situation.deployment, replace(step, sequences=batch))
    if before is None or after is None:
        return None
    return situation.after(situation.scaled_floor(before[1], after[1]))


def _throughput(
    situation: Situation, decode: DecodeFacts, batch: float, times: tuple[float, float], limit: str
) -> Effect:
    """Tokens per second of the whole window, in the proportion of B / T."""
    facts = situation.facts
    rate = decode.batch.value / situation.total
    now = rate * decode.tokens_per_step * facts.deployment.replicas
    if facts.generated_tokens and facts.duration_seconds:
        now = facts.generated_tokens / facts.duration_seconds
    low, high = (now * batch / seconds / rate for seconds in reversed(times))
    text = (
        f"{grouped(now)} tok/s toward {numbers(grouped(low), grouped(high))} tok/s at batch {grouped(batch)}; "
        f"step {durations(situation.total, situation.total)} becomes {durations(*times)}"
    )
    gain = ((low + high) / 2 - now) / now
    return Effect(text, "output.tokens_per_second", low, high, gain, {"batch": grouped(batch), "limit": limit})


def _per_sequence(deployment: Deployment, step: Step) -> tuple[float, float] | None:
    """FLOPs and cache bytes that one more sequence adds to a step."""
    if deployment.model is None:
        return None
    one = step_cost(deployment, replace(step, sequences=1.0))
    return one.flops, one.kv_bytes


def _weight_bytes(deployment: Deployment, step: Step) -> float:
    return step_cost(deployment, step).weight_bytes


def _draft_pass(deployment: Deployment) -> float:
    """Seconds of a pass of an EAGLE-class draft at the memory roof: a layer of its own, and the model's output head."""
    if deployment.model is None or not deployment.model.layers or not deployment.bandwidth_bytes_per_second:
        return 0.0
    model = costed(deployment.model)
    layers = remedy_constant("draft_layers") / deployment.model.layers
    parameters = model.body_parameters * layers + model.head_parameters
    seconds = parameters * ELEMENT_BYTES["bf16"] / deployment.bandwidth_bytes_per_second
    return seconds / deployment.gpus_per_replica
