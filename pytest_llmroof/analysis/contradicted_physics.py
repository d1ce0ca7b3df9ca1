"""Times that are shorter than physics allows.

Nothing healthy is called impossible: only the low end of an exact floor above the measured time counts, by more than a
margin and the clock's error, with boost clocks allowed for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pytest_llmroof.analysis.busytime import is_bound
from pytest_llmroof.analysis.contradiction import Contradiction, said
from pytest_llmroof.analysis.devices import boost_clock
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.fitting import product_that_fits
from pytest_llmroof.analysis.floors import decode_costs
from pytest_llmroof.analysis.measurement import NoData
from pytest_llmroof.analysis.sources import clock_error, fits_cache, roofs
from pytest_llmroof.analysis.thresholds import threshold
from pytest_llmroof.analysis.work import window_work
from pytest_llmroof.units import format_quantity


def decode_step(facts: WindowFacts) -> Iterator[Contradiction]:
    """A mean decode step that was faster than its bytes, or its FLOPs at boost clocks, allow."""
    decode, against = facts.decode, roofs("decode.mbu", facts.deployment)
    if decode is None or isinstance(against, NoData):
        return
    cost = decode_costs(facts.deployment, decode)["low"]
    longest = decode.step_seconds.high
    memory = cost.bytes_low / (against.bandwidth * cost.gpus)
    boost = boost_clock(facts)
    compute = cost.flops / (against.peak * boost * cost.gpus)
    margin = 1 + threshold("impossible") + clock_error(facts)
    if memory > longest * margin and not fits_cache(against, cost):
        amount, rate = format_quantity(cost.bytes_low, "bytes"), format_quantity(against.bandwidth, "bytes/s")
        yield Contradiction(
            f"a decode step of {format_quantity(longest, 'seconds')} cannot read {amount} over {cost.gpus} x {rate}: "
            f"that takes {format_quantity(memory, 'seconds')} at least, {_percent(memory / longest)} of the bandwidth",
            _what_would_fit(facts, memory / longest),
            implied=memory / longest,
        )
    elif compute > longest * margin:
        yield Contradiction(
            f"a decode step of {format_quantity(longest, 'seconds')} cannot compute "
            f"{cost.flops / 1e12:.3g} TFLOP on {cost.gpus} x {format_quantity(against.peak, 'FLOP/s')}, boost clocks "
            f"included: {_percent(compute / longest * boost)} of the peak",
            f"{said(facts.deployment, 'model', 'tensor_parallel', 'compute', 'gpu')}",
            implied=compute / longest * boost,
        )


def whole_window(facts: WindowFacts) -> Iterator[Contradiction]:
    """More FLOPs than the GPUs can do while they were at work, prompts in flight at the window's edges left out."""
    against = roofs("window.mfu", facts.deployment)
    if isinstance(against, NoData) or not facts.duration_seconds:
        return
    work = window_work(facts)
    if work is None:
        return
    gpus, duration, time = facts.deployment.gpus, facts.duration_seconds, "window"
    if facts.busy is not None and not is_bound(facts.busy) and 0 < facts.busy.seconds.high < duration:
        duration, time = facts.busy.seconds.high, f"load ({format_quantity(facts.busy.seconds.high, 'seconds')})"
    share = work.flops.low / (against.peak * gpus * duration)
    if share > boost_clock(facts) * (1 + threshold("impossible") + clock_error(facts)):
        rate = format_quantity(work.flops.low / duration, "FLOP/s")
        yield Contradiction(
            f"the tokens of this {time} need {rate}, {_percent(share)} of the dense {facts.deployment.compute} peak of "
            f"{gpus} x {against.accelerator.product}, boost clocks included",
            f"{said(facts.deployment, 'model', 'tensor_parallel', 'data_parallel', 'compute', 'gpu')}, and the "
            "window's clock (`duration:`)",
            implied=share,
        )


def short_account(facts: WindowFacts) -> Iterator[Contradiction]:
    """More work than fits into the time that the engine was at work at the most."""
    against, busy = roofs("roofline.efficiency", facts.deployment), facts.busy
    work = window_work(facts) if not isinstance(against, NoData) else None
    if isinstance(against, NoData) or work is None or busy is None or not busy.seconds.high:
        return
    if busy.seconds.high == facts.duration_seconds:
        return
    gpus = facts.deployment.gpus
    compute = work.flops.low / (against.peak * boost_clock(facts) * gpus)
    memory = 0.0 if work.in_cache else work.bytes.low / (against.bandwidth * gpus)
    least = max(compute, memory)
    if least > busy.seconds.high * (1 + threshold("impossible") + clock_error(facts)):
        yield Contradiction(
            f"the work of this window takes {format_quantity(least, 'seconds')} at least, and the engine was at "
            f"work for {format_quantity(busy.seconds.high, 'seconds')} at most ({busy.basis})",
            "that these times and the tokens are of one server; then "
            f"{said(facts.deployment, 'model', 'weights', 'tensor_parallel', 'gpu')}",
            only=("prefill.", "roofline."),
        )


def _what_would_fit(facts: WindowFacts, implied: float) -> str:
    """Which inputs to check where a step read faster than memory can, and what of each would fit.

    The weights' precision comes first where it is assumed and a narrower one would do; where none would, it is last.
    """
    deployment = facts.deployment
    precision = _fitting_precision(facts)
    fits = f"{precision} would fit" if precision is not None else None
    others = ("tensor_parallel", "model", "gpu")
    if deployment.provenance.get("weights", "assumed") == "assumed" and fits is not None:
        check = (
            f"the weights' precision first ({fits}): {deployment.weights} is assumed; give `weights:`, or "
            "`weight_bytes:` in a model mapping, which settles any quantisation; then "
            f"{said(deployment, *others)}"
        )
    elif fits is not None:
        check = said(deployment, "tensor_parallel", "weights", "model", "gpu", weights=fits)
    else:
        check = f"{said(deployment, *others)}, then {said(deployment, 'weights')}"
    gpu = deployment.accelerator
    product = product_that_fits(gpu, bandwidth_factor=implied) if gpu is not None else None
    return check + (f"; {_article(product)} {product} would fit" if product is not None else "")


def _article(product: str) -> str:
    """``an h100``, ``a b200``: products' names are spelt letter by letter."""
    return "an" if product[0].lower() in "aefhilmnorsx" else "a"


def _fitting_precision(facts: WindowFacts) -> str | None:
    """The widest narrower precision whose weights could have been read in the step's time."""
    decode, bandwidth = facts.decode, facts.deployment.bandwidth_bytes_per_second
    if decode is None or bandwidth is None:
        return None
    for precision in ("bf16", "fp8", "int4"):
        cost = decode_costs(replace(facts.deployment, weights=precision), decode)["low"]
        if cost.bytes_low <= bandwidth * cost.gpus * decode.step_seconds.high:
            return precision
    return None


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %" if share >= 0.995 else format_quantity(share, "fraction")
