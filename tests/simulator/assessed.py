"""The files of a simulated window, read, measured and diagnosed by the product as those of a gate file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pytest_llmroof.assess import assess
from pytest_llmroof.gates.assessment import Assessment
from pytest_llmroof.gates.build import window_spec
from simulator.pages import write_client, write_engine, write_gpus
from simulator.run import Run
from simulator.timeline import write_timelines

Evidence = Literal["telemetry", "dcgm", "profile"]
EVIDENCE: tuple[Evidence, ...] = ("telemetry", "profile", "dcgm")


@dataclass(frozen=True)
class Files:
    """Where the sources of a window lie."""

    engine: Path
    gpus: Path
    timelines: tuple[Path, ...]
    client: Path | None

    def of(self, evidence: Evidence) -> list[str]:
        """The telemetry of a kind: the engine's own, with the GPUs' counters beside it, or with a profile."""
        paths = [self.engine, *([self.client] if self.client else [])]
        if evidence == "dcgm":
            paths.append(self.gpus)
        if evidence == "profile":
            paths.extend(self.timelines)
        return [str(path) for path in paths]


def write(run: Run, folder: Path) -> Files:
    """All sources of a window."""
    return Files(
        engine=write_engine(run, folder / "engine"),
        gpus=write_gpus(run, folder / "gpus"),
        timelines=tuple(write_timelines(run, folder / "traces")),
        client=write_client(run, folder / "bench.json") if run.plan.with_client else None,
    )


def assessed(run: Run, files: Files, evidence: Evidence, folder: Path) -> Assessment:
    """What the product says of the window by one kind of evidence. It finds the phase itself."""
    plan = run.plan
    keys: dict[str, Any] = {
        "gpu": plan.gpu.name,
        "model": plan.net.name,
        "deployment": {
            "tensor_parallel": plan.split,
            "data_parallel": 1,
            "weights": "fp8" if plan.net.matrix_bytes == 1 else "bf16",
            "kv_cache": "fp8" if plan.net.cache_bytes == 1 else "bf16",
        },
        "telemetry": files.of(evidence),
        "gates": ["output.tokens_per_second > 0"],
    }
    if plan.drafted:
        keys["deployment"]["speculative_tokens"] = plan.drafted
    return assess(window_spec(keys, id=f"simulated::{plan.seed}", name="simulated", base=folder))
