"""A run as dcgm-exporter shows its GPUs, collected each scrape (``-c``): averages since the one before."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

from simulator.run import Run, Step

#: What a GPU's multiprocessors do meanwhile, as a fraction of all of them: healthy kernels fill them, exchanges run on
#: a few, and slow kernels fill few or all.
HEALTHY, EXCHANGING, FEW = 0.93, 0.10, 0.25
#: Traffic that no formula counts: activations, and what is read twice.
BESIDE = 1.05
#: MHz that nothing lowers, and the bits that say why a clock is low: heat (software), a power cap.
BOOST = {"h100": 1980.0, "h200": 1980.0, "a100-80gb": 1410.0, "l40s": 2520.0}
REASONS = {"thermal": 0x20, "power": 0x4}


def pages(run: Run, moments: Sequence[float], zero: float) -> list[str]:
    """A page at each moment, for the GPUs of one machine. ``zero`` is the run's beginning in Unix seconds."""
    return [_page(run, before, now, zero) for before, now in zip([moments[0] - 1.0, *moments], moments, strict=False)]


def _page(run: Run, before: float, now: float, zero: float) -> str:
    plan = run.plan
    means = _Means(run, before, now)
    lines = [f"# scraped_at {zero + now:.6f}"]
    gpus = [_values(run, means, index) for index in range(plan.split)]
    for name in gpus[0]:
        lines.append(f"# TYPE DCGM_FI_{name} gauge")
        for index, values in enumerate(gpus):
            wobble = 0 if name.startswith("DEV_") else 1 + 1e-3 * ((round(now * 10) * 7 + index) % 3 - 1)
            lines.append(f"DCGM_FI_{name}{{{_labels(plan.gpu.product, index)}}} {values[name] * (wobble or 1):.6g}")
    lines.append("# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter")
    energy = f"{1e6 + 4e5 * now:.0f}"
    name = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
    lines.extend(f"{name}{{{_labels(plan.gpu.product, index)}}} {energy}" for index in range(plan.split))
    return "\n".join(lines) + "\n"


def _values(run: Run, means: _Means, index: int) -> dict[str, float]:
    """Of one GPU: while one has more to do the others exchange, and where its host keeps it, it alone is idle."""
    plan, causes = run.plan, run.plan.causes
    few = FEW if causes.slow_kind == "few multiprocessors" else HEALTHY
    memory = plan.gpu.bandwidth * plan.split
    late = index == plan.late_rank

    def exchanging(step: Step) -> float:
        parts = step.parts
        return parts.transport + parts.waiting + (0.0 if late else parts.late)

    def working(step: Step) -> float:
        return step.parts.kernels + step.parts.clock + (step.parts.late_work if late else 0.0)

    values = {
        "PROF_GR_ENGINE_ACTIVE": means.share(lambda step: working(step) + step.parts.slow + exchanging(step)),
        "PROF_SM_ACTIVE": means.share(
            lambda step: HEALTHY * working(step) + few * step.parts.slow + EXCHANGING * exchanging(step)
        ),
        "PROF_DRAM_ACTIVE": means.share(lambda step: min(step.parts.work, BESIDE * step.parts.cost.memory / memory)),
        "PROF_PIPE_TENSOR_ACTIVE": means.share(lambda step: step.parts.floor.compute),
        "DEV_SM_CLOCK": causes.clock * plan.gpu.clock / 1e6 if causes.clock < 1 else BOOST[plan.gpu.name],
        "DEV_CLOCKS_EVENT_REASONS": float(REASONS[causes.clock_cause]) if causes.clock < 1 else 0.0,
        "DEV_GPU_UTIL": float(round(100 * means.share(lambda step: step.parts.total - step.parts.idle))),
        "DEV_POWER_USAGE": 120 + 400 * means.share(lambda step: step.parts.work),
    }
    head = "PCIE" if plan.gpu.pcie else "NVLINK"
    for way in ("TX", "RX"):
        values[f"PROF_{head}_{way}_BYTES"] = means.rate(lambda step: step.link_bytes)
    return values


class _Means:
    """Means over a stretch of the run, of what its steps did."""

    def __init__(self, run: Run, begun: float, ended: float) -> None:
        first = bisect_right(run.steps, begun, key=lambda step: step.end)
        last = bisect_left(run.steps, ended, key=lambda step: step.start)
        self._steps: list[tuple[Step, float]] = [
            (step, max(0.0, min(ended, step.end) - max(begun, step.start)) / (step.end - step.start))
            for step in run.steps[first:last]
        ]
        self._seconds = ended - begun

    def share(self, seconds: Callable[[Step], float]) -> float:
        return min(1.0, self.rate(seconds))

    def rate(self, of: Callable[[Step], float]) -> float:
        return sum(part * of(step) for step, part in self._steps) / self._seconds


def _labels(product: str, index: int) -> str:
    return f'gpu="{index}",UUID="GPU-sim-{index}",modelName="{product}",Hostname="node-1"'
