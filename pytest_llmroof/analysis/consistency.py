"""Inputs that contradict each other: what telemetry shows against what was said, and physics against both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from pytest_llmroof.analysis.contradicted_counts import tokens
from pytest_llmroof.analysis.contradicted_facts import degrees, experts, precisions, ranks
from pytest_llmroof.analysis.contradicted_inputs import device, memory, replicas, served_model, served_precision, split
from pytest_llmroof.analysis.contradicted_physics import decode_step, short_account, whole_window
from pytest_llmroof.analysis.contradiction import Contradiction, said
from pytest_llmroof.analysis.counter_checks import rested
from pytest_llmroof.analysis.devices import more_at_work, sliced
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.hardware_serving import degree_known
from pytest_llmroof.analysis.profile_checks import more_ranks, other_device, overfull


def contradictions(facts: WindowFacts) -> tuple[Contradiction, ...]:
    """Every contradiction among the inputs, the most telling first."""
    return tuple(found for check in _CHECKS for found in check(facts))


def _slices(facts: WindowFacts) -> Iterator[Contradiction]:
    """Counters of slices of a GPU, against the peaks of a whole one."""
    if (found := sliced(facts)) is not None:
        yield Contradiction(found.reason, found.check, per_gpu=True, counts=("hfu", "hardware."))


def _rested(facts: WindowFacts) -> Iterator[Contradiction]:
    """Counters of GPUs that rested while the steps moved their bytes."""
    if (found := rested(facts)) is not None:
        inputs = said(facts.deployment, "model", "weights", "tensor_parallel")
        yield Contradiction(found.reason, f"{found.check}; then {inputs}", counts=("hfu", "hardware."))


def _more_gpus(facts: WindowFacts) -> Iterator[Contradiction]:
    """More GPUs of one host at work than the deployment has, where nobody said how many it has."""
    if (found := more_at_work(facts)) is not None:
        yield Contradiction(found.reason, found.check, per_gpu=True)


def _profiled_ranks(facts: WindowFacts) -> Iterator[Contradiction]:
    """More ranks in a profile than the deployment has."""
    if (found := more_ranks(facts)) is not None:
        # Of a degree that nobody gave the profile is not wrong, but what was assumed.
        spoilt = ("timeline.",) if degree_known(facts.deployment) else ()
        yield Contradiction(found.reason, found.check, per_gpu=True, counts=spoilt)


def _profiled_device(facts: WindowFacts) -> Iterator[Contradiction]:
    """A profile of another device than the accelerator given, whatever the telemetry beside it says."""
    if (found := other_device(facts)) is not None:
        yield Contradiction(found.reason, found.check, per_gpu=True, counts=("timeline.",))


def _profiled_losses(facts: WindowFacts) -> Iterator[Contradiction]:
    """More lost time in a profile than the floor leaves."""
    for found in overfull(facts):
        yield Contradiction(found.reason, found.check, only="decode.")


#: What contradicts what, the most telling first.
_CHECKS: Final[tuple[Callable[[WindowFacts], Iterator[Contradiction]], ...]] = (
    _slices, served_model, tokens, ranks, degrees, precisions, served_precision, split, memory, replicas, _more_gpus,
    device, experts, _rested,
    decode_step, whole_window, short_account, _profiled_ranks, _profiled_device,
    _profiled_losses,
)  # fmt: skip
