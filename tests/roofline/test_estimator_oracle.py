"""vLLM's estimator against 252 cases that vLLM 0.33.0's own classes computed (reference data beside the repository)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_llmroof.roofline.estimator import (
    Batch,
    EstimatedLatent,
    EstimatedModel,
    Parallel,
    Scheduled,
    estimate,
)


def _model(entry: dict[str, Any]) -> EstimatedModel:
    latent = None
    if entry["kind"] == "mla":
        latent = EstimatedLatent(entry["c"], entry["r"], entry["nope"], entry["v"], entry["qr"])
    return EstimatedModel(
        layers=entry["L"],
        hidden=entry["D"],
        heads=entry["q"],
        kv_heads=entry["kv"],
        head_dim=entry["d"],
        vocabulary=entry["V"],
        size=entry["DI"],
        activation_bytes=entry["a"],
        weight_bytes=entry["w"],
        cache_bytes=entry["cb"],
        window=entry.get("sw"),
        sliding_layers=entry.get("Lswa", 0),
        experts=entry.get("E", 0),
        experts_per_token=entry.get("K", 0),
        expert_size=entry.get("MI", 0),
        shared_experts=entry.get("S", 0),
        moe_layers=entry.get("Lm", 0),
        latent=latent,
    )


def test_every_case(shared_data: Path) -> None:
    path = shared_data / "perf_oracle" / "vllm_0.33.0_perf_oracle.json"
    if not path.is_file():
        pytest.skip("no perf_oracle in the reference data")
    oracle = json.loads(path.read_text())
    for case in oracle["cases"]:
        model, split = _model(oracle["models"][case["model"]]), case["parallel"]
        parallel = Parallel(split["tp"], split["pp"], split["dp"], split["ep"])
        requests = (Scheduled(*each) for each in oracle["contexts"][case["context"]])
        batch = Batch.of(requests, model.window)
        found, where = estimate(model, parallel, batch), (case["model"], split, case["context"])
        for kind in ("flops", "read"):
            # the original cuts every component to whole numbers: 5e-6 with three pipeline stages
            assert getattr(found, kind) == pytest.approx(case["totals"][kind], rel=6e-6), (where, kind)
    assert len(oracle["cases"]) == 252
