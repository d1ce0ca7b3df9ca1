"""Inputs that contradict each other: what telemetry shows against what was said, and physics against both.

Nothing healthy is called impossible: only the low end of an exact floor above the measured time counts, by more than a
margin and the clock's error, with boost clocks allowed for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from pytest_llmroof.analysis.busytime import is_bound
from pytest_llmroof.analysis.counter_checks import rested
from pytest_llmroof.analysis.devices import boost_clock, devices, more_at_work, sliced
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.fitting import parallelism_that_fits, precision_that_fits, product_that_fits
from pytest_llmroof.analysis.floors import decode_costs
from pytest_llmroof.analysis.measurement import NoData
from pytest_llmroof.analysis.profile_checks import more_ranks, overfull
from pytest_llmroof.analysis.sources import clock_error, fits_cache, roofs
from pytest_llmroof.analysis.thresholds import threshold
from pytest_llmroof.analysis.tokens import observations
from pytest_llmroof.analysis.work import window_work
from pytest_llmroof.roofline.catalogue import accelerator_for_device
from pytest_llmroof.roofline.cost import memory_fit
from pytest_llmroof.roofline.deployment import Deployment, element_bytes
from pytest_llmroof.roofline.model import Model
from pytest_llmroof.roofline.models import Architecture, served_model
from pytest_llmroof.roofline.models.names import precision_hint
from pytest_llmroof.roofline.split import refusal
from pytest_llmroof.units import format_quantity

#: Weights of these many bytes an element or more are not quantised.
_SIXTEEN_BIT: Final = 2.0
_ONE_SERVER: Final = "that both scrapes are of one server, whole and as they came"


@dataclass(frozen=True)
class Contradiction:
    """What contradicts what, which inputs to check, and the utilisation that they imply, where there is one.

    ``per_gpu`` says that figures per GPU are wrong, too, not only those that rest on the physics; ``counts`` names the
    beginnings of others that are.
    """

    reason: str
    check: str
    implied: float | None = None
    per_gpu: bool = False
    counts: tuple[str, ...] = ()
    only: str = ""
    """The beginning of the metrics that alone are wrong."""

    def spoils(self, metric: str, physics: bool) -> bool:
        """Whether a metric rests on what contradicts itself; ``physics``: it needs the model and the accelerator."""
        if self.only:
            return physics and metric.startswith(self.only)
        return physics or (self.per_gpu and metric.endswith(".per_gpu")) or metric.startswith(self.counts)


def contradictions(facts: WindowFacts) -> tuple[Contradiction, ...]:
    """Every contradiction among the inputs, the most telling first."""
    return tuple(found for check in _CHECKS for found in check(facts))


def _served_precision(facts: WindowFacts) -> Iterator[Contradiction]:
    """A served name that names a quantisation, against 16-bit weights that nobody gave."""
    deployment = facts.deployment
    provenance = deployment.provenance.get("weights", "assumed")
    if element_bytes(deployment.weights) < _SIXTEEN_BIT or provenance == "given" or deployment.model is None:
        return
    for served in facts.window.model_names:
        if (hint := precision_hint(served)) is not None:
            yield Contradiction(
                f"the served name says {hint}, weights {deployment.weights} ({provenance}): {served}",
                "the weights' precision first: give `weights:` (or `weight_bytes:` in a model mapping), "
                "or the served checkpoint's own config.json",
            )


def _served_model(facts: WindowFacts) -> Iterator[Contradiction]:
    """A served name that is exactly one model of the catalogue, and another was given."""
    deployment = facts.deployment
    if deployment.model is None or deployment.provenance.get("model") == "telemetry":
        return
    for name in facts.window.model_names:
        served = served_model(name)
        if served is None or not (differing := _differences(deployment.model, served)):
            continue
        shown, given = (", ".join(figures) for figures in zip(*differing, strict=True))
        yield Contradiction(
            f"the served model is {name} ({shown}), the model given {deployment.model.name} ({given})",
            f"`model:` ({served.name} is what the telemetry shows), and that the telemetry is of this server",
        )


def _differences(given: Model, served: Architecture) -> list[tuple[str, str]]:
    """Where two models differ, each pair the served one's figure and the given one's; parameters first.

    Models of the catalogue are compared exactly: those that count alike (base and instruct) are one. A config.json may
    have a longer vocabulary than the model it is named after, and figures given by hand are rounded.
    """
    read = isinstance(given, Architecture)
    alike = threshold("same_config" if read else "same_model")
    if isinstance(given, Architecture) and given.catalogue:
        alike = 0.0
    both = (served, given)
    sizes = [f"{each.parameters / 1e9:.4g}e9 parameters" for each in both]
    caches = [f"{format_quantity(each.kv_bytes_per_token('bf16'), 'bytes')} of cache a token" for each in both]
    others = [(f"{served.layers} layers", f"{given.layers} layers"), (caches[0], caches[1])]
    found = [pair for pair in others if read and pair[0] != pair[1]]
    if found or abs(given.parameters / served.parameters - 1) > alike:
        return [(sizes[0], sizes[1]), *found]
    return []


def _tokens(facts: WindowFacts) -> Iterator[Contradiction]:
    """More tokens counted than went through the engine's steps, or came in its outputs."""
    window = facts.window
    held = window.counter("step_tokens")
    for quantity, spoiled in (("generation_tokens", "output."), ("prompt_tokens_computed", "input.")):
        count = window.counter(quantity)
        if count and held and count > threshold("tokens_in_steps") * held:
            name, of_steps = window.source_name(quantity) or quantity, window.source_name("step_tokens")
            yield Contradiction(
                f"{name} grew by {count:.6g}, but all steps of the window held {held:.6g} tokens ({of_steps})",
                _ONE_SERVER,
                counts=(spoiled,),
            )
    generated, intervals, first = facts.generated_tokens, observations(window, "itl"), observations(window, "ttft")
    if "itl_per_step" not in window.conventions or not generated or intervals is None or first is None:
        return
    drafts, drafted = window.counter("draft_steps"), window.counter("draft_tokens")
    most = max(threshold("tokens_per_output"), 1 + drafted / drafts if drafts and drafted else 0.0)
    if generated > most * (intervals + first):
        yield Contradiction(
            f"{window.source_name('generation_tokens')} grew by {generated:.6g} in {intervals + first:.6g} outputs: "
            f"more than {most:.0f} tokens in each",
            _ONE_SERVER,
            counts=("output.",),
        )


def _memory(facts: WindowFacts) -> Iterator[Contradiction]:
    """Weights that do not fit into the memory that the deployment has."""
    deployment = facts.deployment
    fit, gpu = memory_fit(deployment), deployment.accelerator
    if fit is None or fit.weights_fit or gpu is None:
        return
    whole = format_quantity(fit.replica_bytes, "bytes")
    each = "" if deployment.gpus_per_replica == 1 else f" ({format_quantity(fit.weight_bytes, 'bytes')} on each GPU)"
    product = product_that_fits(gpu, memory_bytes=fit.weight_bytes)
    ways = (parallelism_that_fits(deployment), precision_that_fits(deployment), product and f"gpu: {product}")
    would = [way for way in ways if way]
    yield Contradiction(
        f"weights {whole} do not fit{each}: {_size(deployment)} with {format_quantity(fit.memory_bytes, 'bytes')} each",
        f"{_said(deployment, 'tensor_parallel', 'weights', 'model', 'gpu')}"
        + (f"; what would fit: {', or '.join(would)}" if would else ""),
        implied=fit.weight_bytes / fit.memory_bytes,
    )


def _split(facts: WindowFacts) -> Iterator[Contradiction]:
    """A split that the engine of the telemetry does not make."""
    deployment, window = facts.deployment, facts.window
    problem = refusal(deployment, window.kind)
    if problem is not None and deployment.model is not None:
        yield Contradiction(
            f"{window.engine_title} does not start with tensor_parallel {deployment.tensor_parallel} for "
            f"{deployment.model.name}: {problem}",
            _said(deployment, "tensor_parallel", "model"),
            per_gpu=True,
        )


def _replicas(facts: WindowFacts) -> Iterator[Contradiction]:
    """Another number of replicas than was given."""
    deployment, seen = facts.deployment, facts.window.replicas_at_once
    if deployment.provenance.get("data_parallel") != "given" or deployment.data_parallel in (None, seen) or not seen:
        return
    names = ", ".join(engine.identity for engine in facts.window.engines[:8])
    yield Contradiction(
        f"data_parallel is {deployment.data_parallel}, but replicas in the telemetry are {seen} ({names})",
        "`data_parallel:` (left out, it is the replicas seen), and that the telemetry covers every replica",
        per_gpu=True,
    )


def _device(facts: WindowFacts) -> Iterator[Contradiction]:
    """A device that names itself differently from the accelerator given."""
    gpu = facts.deployment.accelerator
    if gpu is None or facts.deployment.provenance.get("gpu", "given") == "telemetry":
        return
    for device in devices(facts):
        seen = accelerator_for_device(device)
        if seen is None or seen.name == gpu.name or device in gpu.device_names or gpu.confidence == "given":
            continue
        yield Contradiction(
            f"the telemetry's device is {device} ({seen.name}), the gpu given {gpu.name}",
            f"`gpu:` ({seen.name} is what the telemetry shows), and that the telemetry is of this machine",
            counts=("hfu", "hardware."),
        )


def _slices(facts: WindowFacts) -> Iterator[Contradiction]:
    """Counters of slices of a GPU, against the peaks of a whole one."""
    if (found := sliced(facts)) is not None:
        yield Contradiction(found.reason, found.check, per_gpu=True, counts=("hfu", "hardware."))


def _rested(facts: WindowFacts) -> Iterator[Contradiction]:
    """Counters of GPUs that rested while the steps moved their bytes."""
    if (found := rested(facts)) is not None:
        said = _said(facts.deployment, "model", "weights", "tensor_parallel")
        yield Contradiction(found.reason, f"{found.check}; then {said}", counts=("hfu", "hardware."))


def _more_gpus(facts: WindowFacts) -> Iterator[Contradiction]:
    """More GPUs of one host at work than the deployment has, where nobody said how many it has."""
    if (found := more_at_work(facts)) is not None:
        yield Contradiction(found.reason, found.check, per_gpu=True)


def _decode_step(facts: WindowFacts) -> Iterator[Contradiction]:
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
            f"{_said(facts.deployment, 'model', 'tensor_parallel', 'compute', 'gpu')}",
            implied=compute / longest * boost,
        )


def _whole_window(facts: WindowFacts) -> Iterator[Contradiction]:
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
            f"{_said(facts.deployment, 'model', 'tensor_parallel', 'data_parallel', 'compute', 'gpu')}, and the "
            "window's clock (`duration:`)",
            implied=share,
        )


def _profiled_ranks(facts: WindowFacts) -> Iterator[Contradiction]:
    """More ranks in a profile than the deployment has."""
    if (found := more_ranks(facts)) is not None:
        yield Contradiction(found.reason, found.check, per_gpu=True)


def _profiled_losses(facts: WindowFacts) -> Iterator[Contradiction]:
    """More lost time in a profile than the floor leaves."""
    for found in overfull(facts):
        yield Contradiction(found.reason, found.check, only="decode.")


_CHECKS: Final[tuple[Callable[[WindowFacts], Iterator[Contradiction]], ...]] = (
    _slices, _served_model, _tokens, _served_precision, _split, _memory, _replicas, _more_gpus, _device, _rested,
    _decode_step, _whole_window, _profiled_ranks, _profiled_losses,
)  # fmt: skip


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
            f"{_said(deployment, *others)}"
        )
    elif fits is not None:
        check = _said(deployment, "tensor_parallel", "weights", "model", "gpu", weights=fits)
    else:
        check = f"{_said(deployment, *others)}, then {_said(deployment, 'weights')}"
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


def _said(deployment: Deployment, *facts: str, **remarks: str) -> str:
    """Facts of a deployment with their values, provenance and a remark each, the assumed ones first."""
    values = {
        "tensor_parallel": str(deployment.tensor_parallel),
        "data_parallel": str(deployment.replicas),
        "weights": deployment.weights,
        "compute": deployment.compute,
        "model": deployment.model.name if deployment.model is not None else "",
        "gpu": deployment.accelerator.name if deployment.accelerator is not None else "",
    }
    known = {fact: deployment.provenance.get(fact, "given") for fact in facts}
    order = sorted(facts, key=lambda fact: known[fact] != "assumed")
    remark = {fact: f"; {text}" for fact, text in remarks.items()}
    return ", then ".join(f"{fact} ({values[fact]}, {known[fact]}{remark.get(fact, '')})" for fact in order)


def _size(deployment: Deployment) -> str:
    gpu = deployment.accelerator
    return f"{deployment.gpus_per_replica} x {gpu.name if gpu is not None else 'GPU'}"


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %" if share >= 0.995 else format_quantity(share, "fraction")
