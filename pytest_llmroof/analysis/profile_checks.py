"""Profiles against the rest of the inputs: ranks or a device that it does not have, more lost than a step can hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pytest_llmroof.analysis.attribute import excess
from pytest_llmroof.analysis.constants import threshold
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.hardware_serving import degree_known
from pytest_llmroof.analysis.observing import observe
from pytest_llmroof.roofline.devicenames import kinship
from pytest_llmroof.units import format_quantity


@dataclass(frozen=True)
class Belied:
    """What a profile shows against what was said, and which inputs to check."""

    reason: str
    check: str


def more_ranks(facts: WindowFacts) -> Belied | None:
    """More ranks in the profiles than the deployment has GPUs.

    A rank of a larger world counts where nobody gave the degree: others may take part in the same world.
    """
    if facts.profile is None:
        return None
    timelines, deployment = facts.profile.timelines, facts.deployment
    ranks = len({one.rank for one in timelines if one.rank is not None})
    world = 0 if degree_known(deployment) else max((one.world_size or 0 for one in timelines), default=0)
    if max(ranks, world) <= deployment.gpus:
        return None
    named = ", ".join(dict.fromkeys(one.location for one in timelines))
    shown = f"{ranks} ranks" if ranks >= world else f"a rank of {world}"
    degree = f"tensor_parallel {deployment.tensor_parallel} ({deployment.provenance.get('tensor_parallel', 'given')})"
    return Belied(
        f"{named}: {shown}, and the deployment has {deployment.gpus} GPU{'s' if deployment.gpus > 1 else ''}, {degree}",
        "`tensor_parallel:` (and `pipeline_parallel:`, `data_parallel:`), and that the profile is of this server",
    )


def other_device(facts: WindowFacts) -> Belied | None:
    """A profile that names another device than the accelerator given."""
    deployment = facts.deployment
    gpu = deployment.accelerator
    taken = deployment.provenance.get("gpu", "given") == "telemetry"
    if facts.profile is None or gpu is None or taken or gpu.confidence == "given":
        return None
    for one in facts.profile.timelines:
        if one.device_name and kinship(one.device_name, gpu) == "other":
            return Belied(
                f"{one.location} was recorded on {one.device_name}, the gpu given is {gpu.name}",
                "`gpu:`, and that the profile is of this machine",
            )
    return None


def overfull(facts: WindowFacts) -> Iterator[Belied]:
    """Floor and observed losses that exceed the step by more than 2 %.

    Only of a profile whose step is the window's, and which nothing makes doubtful: else its shares are others.
    """
    observed = observe(facts) if facts.profile is not None else None
    decode = facts.decode
    if observed is None or observed.by != "profile" or decode is None or decode.floor is None:
        return
    step = decode.step_seconds.value
    if observed.step_seconds is None or observed.distortions or observed.mismatch(step) > threshold("step_mismatch"):
        return
    over = excess(facts, observed)
    if over > threshold("impossible_excess"):
        lost = observed.total()
        floor = format_quantity(decode.floor.seconds, "seconds")
        yield Belied(
            f"of a step of {format_quantity(step, 'seconds')} {lost * 100:.0f} % is idle or exposed communication "
            f"({observed.source}), and its floor alone takes {floor}: {(1 + over) * 100:.0f} % of the step",
            "the model, the weights' precision, the parallelism and `gpu:`, and that the profile is of this load",
        )
