"""Accounting of any model under 5 ms: parameters, weights, cache, and what a decode and a prefill step cost.

    python benchmarks/accounting.py [--limit 5ms]

Every catalogue model is read from its config anew (nothing is kept from an earlier one), after the room and its data
were loaded once. Prints the slowest and fails where it is above the limit.
"""

from __future__ import annotations

import argparse
import sys
import time

from rows import Row, reported, shown_seconds

from pytest_llmroof.data import load
from pytest_llmroof.roofline.cost import step_cost
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.roofline.models import model_from_config
from pytest_llmroof.roofline.models.precisions import own_precision
from pytest_llmroof.roofline.step import Prefill, Step
from pytest_llmroof.units import parse_as


def account(config: dict[str, object], name: str) -> float:
    """Everything that a report or a gate asks of a model."""
    model = model_from_config(config, name)
    deployment = Deployment(model=model, weights=own_precision(model), tensor_parallel=2)
    cost = step_cost(deployment, Step(32, 4096, prefills=(Prefill(512, cached=512),)))
    held = model.weight_bytes(deployment.weights) + model.kv_bytes_per_token("fp8")
    return cost.bytes + cost.flops + held + model.parameters + model.active_parameters


def seconds(config: dict[str, object], name: str, repeats: int = 5) -> float:
    """The best of some runs: what the work takes, without what else the machine does."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        account(config, name)
        times.append(time.perf_counter() - begin)
    return min(times)


def main() -> int:
    """Time every model of the catalogue."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--limit", default="5ms", help="the most that a model may take (5ms)")
    limit = parse_as(parser.parse_args().limit, "seconds")
    models = load("models.yaml")
    times = sorted(((seconds(entry["config"], name), name) for name, entry in models.items()), reverse=True)
    (slowest, name), (median, _) = times[0], times[len(times) // 2]
    return reported(
        [
            Row(
                f"accounting of each of {len(times)} models, slowest {name} (peer: the median)", shown_seconds(slowest),
                shown_seconds(median), f"{slowest / median:.1f}", f"at most {limit * 1e3:g} ms", slowest <= limit,
            )
        ]
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
