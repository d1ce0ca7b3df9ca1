"""Pages as a DCGM exporter would expose them, of GPUs that do the same all the time."""

from __future__ import annotations

from collections.abc import Mapping

H100 = "NVIDIA H100 80GB HBM3"


def page(at: float, since: float, values: Mapping[str, float], gpus: int = 4, host: str = "node-1") -> str:
    """One page, scraped ``at`` Unix seconds: ``values`` by field without its ``DCGM_FI_``.

    Activities move a little about their mean, and the energy of each GPU counts on ``since`` then: no page repeats
    another, as with an exporter that collects between every two of them.
    """
    lines = [f"# scraped_at {at:.6f}"]
    for name, value in values.items():
        lines.append(f"# TYPE DCGM_FI_{name} gauge")
        for index in range(gpus):
            wobble = 0 if name.startswith("DEV") else 1e-4 * ((round(at) * 7 + index) % 3 - 1)
            lines.append(f"DCGM_FI_{name}{{{_labels(index, host)}}} {value + wobble:.6g}")
    lines.append("# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter")
    energy = f"{5e5 * (at - since):.0f}"  # mJ, at 500 W
    lines.extend(f"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{_labels(index, host)}}} {energy}" for index in range(gpus))
    return "\n".join(lines) + "\n"


def _labels(index: int, host: str) -> str:
    return f'gpu="{index}",UUID="GPU-{host}-{index}",modelName="{H100}",Hostname="{host}"'
