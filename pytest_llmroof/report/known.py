"""What is known to be reached elsewhere, so that a default limit is not taken for a promise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_llmroof.data import load
from pytest_llmroof.report.wire import Document
from pytest_llmroof.roofline.deployment import Deployment


def known_range(metric: str, deployment: Deployment) -> Document | None:
    """The published range of a metric for the nearest deployment, None where nothing comparable was published."""
    row = next((row for row in load("known.yaml") if row["metric"] == metric and _fits(row, deployment)), None)
    return {key: row[key] for key in ("what", "low", "high", "source")} if row else None


def _fits(row: Mapping[str, Any], deployment: Deployment) -> bool:
    model, accelerator = deployment.model, deployment.accelerator
    if model is None or accelerator is None:
        return False
    low, high = row.get("billions", (0, float("inf")))
    return (
        low <= model.parameters / 1e9 <= high
        and bool(model.experts) == row.get("experts", False)
        and deployment.weights in row.get("weights", [deployment.weights])
        and accelerator.name.startswith(row.get("gpu", ""))
        and deployment.tensor_parallel in row.get("tensor_parallel", [deployment.tensor_parallel])
    )
