"""The devices that counters tell of, against those that the deployment is said to have."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_llmroof.analysis.clocks import clocks
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.hardware_serving import at_work, by_host, degree_known, of_one_kind, whole
from pytest_llmroof.analysis.slices import mapping, slice_name
from pytest_llmroof.analysis.thresholds import threshold
from pytest_llmroof.roofline.accelerator import Accelerator
from pytest_llmroof.roofline.catalogue import accelerator_for_device
from pytest_llmroof.telemetry.hardware import Gpu
from pytest_llmroof.telemetry.told import devices_told


@dataclass(frozen=True)
class Mismatch:
    """What the counters show against what was said, and which inputs to check."""

    reason: str
    check: str


def devices(facts: WindowFacts) -> tuple[str, ...]:
    """Names of the devices that serve: of a host with several kinds those at work, where counters tell."""
    hardware, names = facts.window.hardware, facts.window.device_names
    if hardware is not None:
        ours = of_one_kind(whole(hardware, facts.deployment), facts.deployment)
        busy = [gpu for gpu in ours if at_work(gpu)] or ours
        names = tuple(gpu.device_name for gpu in busy if gpu.device_name) or names
    return tuple(dict.fromkeys((*names, *devices_told(facts.window))))


def more_at_work(facts: WindowFacts) -> Mismatch | None:
    """More GPUs of one host at work than the deployment has, where its degree was assumed."""
    hardware, deployment = facts.window.hardware, facts.deployment
    if hardware is None or degree_known(deployment):
        return None
    for host, gpus in by_host(of_one_kind(whole(hardware, deployment), deployment)).items():
        busy = [gpu for gpu in gpus if at_work(gpu)]
        if len(busy) > deployment.gpus:
            where = f" of {host}" if host else ""
            each = len(busy) / deployment.replicas
            replicas = f"{deployment.replicas} replica{'' if deployment.replicas == 1 else 's'}"
            fits = f" (tensor_parallel {each:.0f} would fit)" if each == int(each) else ""
            return Mismatch(
                f"{len(busy)} GPUs{where} were at work, the deployment has {deployment.gpus}: tensor_parallel "
                f"{deployment.tensor_parallel} (assumed), {replicas}",
                f"`tensor_parallel:`{fits}; where others work on that host, too, give it all the same",
            )
    return None


def degree_confirmed(facts: WindowFacts) -> bool:
    """Whether as many GPUs were at work as the deployment has, on each host a whole number of replicas."""
    hardware, deployment = facts.window.hardware, facts.deployment
    if hardware is None:
        return False
    hosts = by_host([gpu for gpu in of_one_kind(whole(hardware, deployment), deployment) if at_work(gpu)])
    counts = [len(gpus) for gpus in hosts.values()]
    return sum(counts) == deployment.gpus and all(count % deployment.gpus_per_replica == 0 for count in counts)


def degree_shown(facts: WindowFacts) -> bool:
    """Whether something says or confirms how many GPUs a replica has: what was only assumed is no evidence."""
    if degree_known(facts.deployment) or degree_confirmed(facts):
        return True
    worlds = {one.world_size for one in facts.profile.timelines} if facts.profile is not None else set()
    return worlds == {facts.deployment.gpus_per_replica}


def sliced(facts: WindowFacts) -> Mismatch | None:
    """Counters of slices only, while the peaks are those of the whole GPU."""
    hardware, gpu = facts.window.hardware, facts.deployment.accelerator
    if hardware is None or whole(hardware, facts.deployment):
        return None
    slices = [one for one in hardware.gpus if one.mig is not None]
    if not slices:
        return None
    busy = [one for one in slices if at_work(one)] or slices
    first = busy[0]
    profile = first.mig.profile if first.mig else None
    known = gpu or _whole_device(first)
    return Mismatch(
        f"the counters are of slices of GPUs ({slice_name(profile)}: {first.identity}), and a slice has not the peaks "
        f"of {known.name if known else 'the whole GPU'}",
        f"describe the slice, with its own peaks: {mapping(profile, known)}",
    )


def boost_clock(facts: WindowFacts) -> float:
    """How far above the stated peak the GPUs can compute: by the clock that they ran at, where it was read."""
    read = max((clock.ratio for clock in clocks(facts)), default=None)
    return threshold("boost") if read is None else max(1.0, read)


def _whole_device(gpu: Gpu) -> Accelerator | None:
    name = (gpu.device_name or "").partition(" MIG ")[0]
    return accelerator_for_device(name) if name else None
