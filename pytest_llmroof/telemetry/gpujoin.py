"""Several tools' views of the same GPUs as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytest_llmroof.telemetry.hardware import Gpu, Hardware


def joined(parts: Sequence[Hardware]) -> Hardware | None:
    """Several tools' views of the GPUs as one: each GPU once, with what the first of them that tells it says.

    Where one is on the window's clock and another is not, the other's samples are left out.
    """
    if not parts:
        return None
    parts = sorted(parts, key=lambda one: not one.clocked)
    first = parts[0]
    gpus = list(first.gpus)
    notes = list(first.notes)
    for other in parts[1:]:
        timeless = first.clocked and not other.clocked
        if timeless:
            notes.append(f"the samples of {other.location} are on no common clock: only names and totals are used")
        for gpu in other.gpus:
            told = replace(gpu, series={}) if timeless else gpu
            same = [index for index, one in enumerate(gpus) if _same(one, gpu)]
            if not same and len(gpus) == len(other.gpus) == 1 and _unnamed(gpus[0], gpu):
                same = [0]
            if len(same) == 1:
                gpus[same[0]] = _filled(gpus[same[0]], told)
            elif same or any(_unnamed(one, gpu) for one in gpus):
                notes.append(f"which GPU {gpu.identity} of {other.location} is cannot be told: it is left out")
            elif not timeless:
                gpus.append(told)
        if not timeless:
            notes.extend(other.notes)
    averaging = [one.averaging_seconds for one in parts if one.clocked == first.clocked]
    known = [seconds for seconds in averaging if seconds is not None]
    there = {quantity for gpu in gpus for quantity in gpu.series}
    return Hardware(
        gpus=tuple(gpus),
        kinds=tuple(dict.fromkeys(kind for one in parts for kind in one.kinds)),
        location=", ".join(dict.fromkeys(one.location for one in parts if one.location)),
        averaging_seconds=max(known) if len(known) == len(averaging) else None,
        clocked=first.clocked,
        notes=tuple(dict.fromkeys(notes)),
        missing={
            quantity: why
            for one in reversed(parts) for quantity, why in one.missing.items() if quantity not in there
        },
    )  # fmt: skip


def _same(one: Gpu, other: Gpu) -> bool:
    """Whether two are the same GPU, or the same slice of it."""
    if (one.mig and one.mig.instance) != (other.mig and other.mig.instance):
        return False
    if one.uuid and other.uuid:
        return one.uuid == other.uuid
    hosts = {one.host, other.host} - {None}
    return one.index is not None and one.index == other.index and len(hosts) < 2


def _unnamed(one: Gpu, other: Gpu) -> bool:
    """Whether nothing that both tell could show if they are the same."""
    both_named = (one.uuid and other.uuid) or (one.index is not None and other.index is not None)
    return not both_named and one.mig == other.mig


def _filled(gpu: Gpu, other: Gpu) -> Gpu:
    """A GPU with what another view of it tells besides."""
    series = {**other.series, **gpu.series}
    counters = {**other.counters, **gpu.counters}
    return replace(
        gpu,
        device_name=gpu.device_name or other.device_name,
        host=gpu.host or other.host,
        index=gpu.index or other.index,
        uuid=gpu.uuid or other.uuid,
        pod=gpu.pod or other.pod,
        series=series,
        counters=counters,
        throttle_reasons=gpu.throttle_reasons or other.throttle_reasons,
        names={**other.names, **gpu.names},
        unusable={
            quantity: why
            for quantity, why in {**other.unusable, **gpu.unusable}.items()
            if quantity not in series and quantity not in counters
        },
    )
