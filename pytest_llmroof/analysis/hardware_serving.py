"""Which of the GPUs that counters tell of hold the deployment: a host may have others, idle or of another kind."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pytest_llmroof.advice import AnyAdvice
from pytest_llmroof.analysis.constants import counter_constant
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.hardware import activity
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.roofline.devicenames import kinship
from pytest_llmroof.telemetry.hardware import Gpu, Hardware
from pytest_llmroof.telemetry.told import devices_told
from pytest_llmroof.telemetry.window import Engine, Window
from pytest_llmroof.units import grouped

#: Labels of an engine's series that name its pod, and its host, as exporters of GPU counters call them.
POD_LABELS: Final = ("pod", "pod_name", "kubernetes_pod_name", "exported_pod")
HOST_LABELS: Final = ("node", "host", "hostname", "Hostname", "instance", "exported_instance")


@dataclass(frozen=True)
class Serving:
    """The GPUs that serve, of all that were ``seen``; ``expected`` are those of the deployment, None where nobody said.

    ``problem`` says why it is not known which serve (then there are none), ``note`` how they were chosen.
    """

    gpus: tuple[Gpu, ...]
    seen: int
    expected: int | None = None
    note: str | None = None
    problem: str | None = None
    remedy: AnyAdvice | None = None

    @property
    def unseen(self) -> int:
        """GPUs of the deployment that no counter tells of."""
        return max(0, (self.expected or 0) - len(self.gpus))


def serving(facts: WindowFacts) -> Serving:
    """The GPUs of the deployment. Where more are seen than it has, those at work."""
    if "serving" not in facts.memory:
        facts.memory["serving"] = _serving(facts)
    found = facts.memory["serving"]
    assert isinstance(found, Serving)
    return found


def _serving(facts: WindowFacts) -> Serving:
    hardware = facts.window.hardware
    if hardware is None or not hardware.gpus:
        return Serving((), 0)
    deployment = facts.deployment
    candidates = _ours(facts, of_one_kind(whole(hardware, deployment), deployment))
    seen = len(hardware.gpus)
    if not candidates:
        return Serving((), seen, problem="the counters are those of slices of GPUs, and the deployment has whole ones")
    busy = [gpu for gpu in candidates if at_work(gpu)]
    if not degree_known(deployment):
        return _assumed(candidates, busy, seen)
    expected = deployment.gpus
    if len(candidates) <= expected:
        return Serving(tuple(candidates), seen, expected, note=_fewer(candidates, expected))
    if len(busy) > expected:
        return Serving(
            (),
            seen,
            expected,
            problem=f"{_count(busy)} are at work, the deployment has {expected}: which of them serve it is not told",
            remedy="name an exporter of this deployment's GPUs only, or ask Prometheus with a selector of them",
        )
    chosen = sorted(candidates, key=activity, reverse=True)[:expected]
    kept = tuple(gpu for gpu in candidates if gpu in chosen)
    note = f"of {_count(candidates)} the {len(kept)} most at work are taken: {_named(kept)}"
    return Serving(kept, seen, expected, note=note)


def whole(hardware: Hardware, deployment: Deployment) -> list[Gpu]:
    """GPUs that are no slices, nor cut into any; slices where the accelerator was described as one by hand."""
    slices = [gpu for gpu in hardware.gpus if gpu.mig is not None]
    if slices and deployment.accelerator is not None and deployment.accelerator.confidence == "given":
        return slices
    cut = {_place(gpu) for gpu in slices}
    return [gpu for gpu in hardware.gpus if gpu.mig is None and _place(gpu) not in cut]


def of_one_kind(gpus: Sequence[Gpu], deployment: Deployment) -> list[Gpu]:
    """Those whose device is the deployment's, where some are and others are not; all, where only others are at work."""
    accelerator = deployment.accelerator
    if accelerator is None:
        return list(gpus)
    kin = [(gpu, kinship(gpu.device_name, accelerator)) for gpu in gpus if gpu.device_name is not None]
    ours = [gpu for gpu, how in kin if how == "same"]
    if not ours and accelerator.confidence != "given":
        ours = [gpu for gpu, how in kin if how == "untold"]
    rest = any(at_work(gpu) for gpu in ours) or not any(at_work(gpu) for gpu in gpus)
    return ours if ours and rest else list(gpus)


def at_work(gpu: Gpu) -> bool:
    """Whether a GPU did anything worth the name."""
    return activity(gpu) > counter_constant("busy")


def devices_at_work(window: Window) -> tuple[str, ...]:
    """The names of the window's devices; of several kinds those at work, where counters tell."""
    names = tuple(dict.fromkeys(window.device_names))
    if len(names) > 1 and window.hardware is not None:
        names = tuple(gpu.device_name for gpu in window.hardware.gpus if gpu.device_name and at_work(gpu)) or names
    return tuple(dict.fromkeys((*names, *devices_told(window))))


def degree_known(deployment: Deployment) -> bool:
    """Whether somebody said over how many GPUs a replica is spread."""
    return deployment.provenance.get("tensor_parallel", "given") != "assumed"


def by_host(gpus: Sequence[Gpu]) -> dict[str, list[Gpu]]:
    """GPUs by their host (``""`` where none is told), in order."""
    hosts: dict[str, list[Gpu]] = {}
    for gpu in gpus:
        hosts.setdefault(gpu.host or "", []).append(gpu)
    return hosts


def _assumed(candidates: list[Gpu], busy: list[Gpu], seen: int) -> Serving:
    """Nobody said how many GPUs serve: those at work do."""
    kept = tuple(busy or candidates)
    if len(kept) == seen:
        return Serving(kept, seen)
    return Serving(kept, seen, note=f"of {grouped(seen)} GPUs the {len(kept)} at work are taken: {_named(kept)}")


def _ours(facts: WindowFacts, gpus: list[Gpu]) -> list[Gpu]:
    """Those that an engine's pod holds, else those of its host, where these are told of both."""
    joined = by_engine(gpus, facts.window)
    return [gpu for gpu in gpus if any(gpu in ours for ours in joined.values())] or gpus


def by_engine(gpus: Sequence[Gpu], window: Window) -> dict[str, list[Gpu]]:
    """The GPUs of each engine by its name, as far as pods tell, else hosts; nothing where neither does.

    Engines of one pod (data-parallel ranks) are one.
    """
    for of_gpu, labels in ((_pod, POD_LABELS), (_host, HOST_LABELS)):
        found: dict[str, list[Gpu]] = {}
        seen: dict[str, str] = {}
        for engine in window.engines:
            for place in _places(engine, labels):
                ours = [gpu for gpu in gpus if of_gpu(gpu) == place]
                if ours and seen.setdefault(place, engine.identity) == engine.identity:
                    found[engine.identity] = ours
                if ours:
                    break
        if found:
            return found
    pods = {gpu.pod for gpu in gpus if gpu.pod}
    named = {engine.identity: set(re.split(r"[\s,:/]+", engine.identity)) & pods for engine in window.engines}
    return {name: [gpu for gpu in gpus if gpu.pod in found] for name, found in named.items() if found}


def _places(engine: Engine, labels: Sequence[str]) -> list[str]:
    """What an engine's labels say of its pod or host; of an address (``10.0.0.1:8000``) the host."""
    told = [engine.place[label] for label in labels if engine.place.get(label)]
    return [_without_port(text) for text in told]


def _without_port(text: str) -> str:
    host, colon, port = text.rpartition(":")
    return host if colon and port.isdecimal() else text


def _pod(gpu: Gpu) -> str | None:
    return gpu.pod


def _host(gpu: Gpu) -> str | None:
    return _without_port(gpu.host) if gpu.host else None


def _fewer(gpus: Sequence[Gpu], expected: int) -> str | None:
    if len(gpus) == expected:
        return None
    return f"they tell of {len(gpus)} of the deployment's {expected}: the others' exporters are missing"


def _place(gpu: Gpu) -> tuple[str | None, str | None]:
    return gpu.host, gpu.index if gpu.index is not None else gpu.uuid


def _count(gpus: Sequence[Gpu]) -> str:
    return f"{len(gpus)} GPU{'' if len(gpus) == 1 else 's'}"


def _named(gpus: Sequence[Gpu]) -> str:
    names = [gpu.identity for gpu in gpus]
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
