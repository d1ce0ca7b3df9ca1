"""Hooks that other plugins and conftest files may implement.

One that has nothing to add gives None. Where pytest-llmroof may be absent or switched off, write
``@pytest.hookimpl(optionalhook=True)``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_llmroof.extend import Metric, Remedy, Scenario


def __dir__() -> list[str]:
    """The hooks: pytest looks at each name here (see ``aggregate.Hooks``)."""
    return [name for name in globals() if name.startswith("pytest_")]


@pytest.hookspec
def pytest_llmroof_accelerators(config: pytest.Config) -> Mapping[str, Mapping[str, object]] | None:
    """Accelerators beside the packaged ones: a name, and what a gate file's ``gpu:`` mapping would hold.

    They serve ``--llmroof-gpu``, gate files, marks and ``--llmroof-list=gpus``, and win over a packaged name. The list
    and the option see plugins and the conftest files that pytest loads first::

        def pytest_llmroof_accelerators(config):
            return {
                "lab-card": {
                    "peaks": {"bf16": "400TFLOP/s", "fp8": "800TFLOP/s"},
                    "memory_bandwidth": "2TB/s",
                    "memory": "80GB",
                }
            }
    """


@pytest.hookspec
def pytest_llmroof_readers(config: pytest.Config) -> Mapping[str, Mapping[str, object]] | None:
    """Serving engines beside the packaged ones: a key, and what its metrics are called.

    A mapping is what an entry of the package's ``data/engines.yaml`` holds: ``title``, ``prefixes`` in front of every
    name, ``labels`` (``model``: the served name, ``rank``: engines of one server), and ``counters``, ``histograms`` and
    ``gauges``: canonical quantities, each with the names that the engine has for it, the preferred one first. An entry
    with the key of a packaged engine takes its place. Pages are recognised by the names they hold; the engine then
    serves gates wherever its pages come from, and stands in ``--llmroof-list=engines``::

        def pytest_llmroof_readers(config):
            return {
                "lab-engine": {
                    "title": "Lab engine",
                    "prefixes": ["lab_"],
                    "labels": {"model": ["model"]},
                    "conventions": ["itl_per_step"],  # one observation per sequence and step, not per token
                    "counters": {
                        "prompt_tokens": ["tokens_in"],
                        "generation_tokens": ["tokens_out"],
                        "steps": [{"name": "batch_size", "part": "count"}],
                    },
                    "histograms": {"ttft": ["first_token"], "itl": [{"name": "gap_ms", "scale": 0.001}]},
                    "gauges": {"running": [{"name": "active", "combine": "sum"}]},
                    "cannot": [{"metrics": ["queue"], "reason": "the lab engine has no queue"}],
                }
            }
    """


@pytest.hookspec
def pytest_llmroof_metrics(config: pytest.Config) -> Mapping[str, Metric] | None:
    """Metrics beside the package's own: a name, and unit, meaning and function of it.

    The function gets a ``WindowView`` and gives a ``Value``, or ``NoData`` with a reason and a remedy; the four stand
    in ``pytest_llmroof.extend``. Such a metric is gated, listed and reported like any other, ``per: replica`` included.
    A name begins with a word of the plugin's own. What the function raises is no data of its gates::

        def tokens_per_request(window):
            finished = window.counters.get("requests_finished")
            if not finished or "generation_tokens" not in window.counters:
                return NoData("no request finished in this window", "widen the window")
            return Value(window.counters["generation_tokens"] / finished, method="generated tokens over requests")


        def pytest_llmroof_metrics(config):
            return {"lab.tokens_per_request": Metric("tokens", "generated tokens of a request", tokens_per_request)}
    """


@pytest.hookspec
def pytest_llmroof_architectures(config: pytest.Config) -> Mapping[str, Mapping[str, object]] | None:
    """Provisional. Architectures beside the packaged ones: the ``model_type`` of a config.json, and how it is built.

    ``like`` names the ``model_type`` of a packaged family that has its layers. ``defaults`` are what its class takes
    for keys that a file leaves out, ``names`` other names of keys; both go before the family's own. Where that is not
    enough, ``keys`` is a function that makes the family's keys of the file's. Models of the catalogue stay what they
    are::

        def pytest_llmroof_architectures(config):
            return {
                "lab_llm": {"like": "llama", "defaults": {"vocab_size": 64000}, "names": {"hidden_size": ["width"]}},
                "lab_moe": {"like": "mixtral", "keys": lambda file: {**file, **file["experts"]}},
            }
    """


@pytest.hookspec
def pytest_llmroof_scenarios(config: pytest.Config) -> Mapping[str, Scenario | Sequence[Remedy]] | None:
    """Provisional. Scenarios beside A to G under keys of their own, and further remedies under those letters.

    A scenario's condition is a function of a ``WindowView`` and a ``DiagnosisView``; where it gives ``Found``, the
    scenario takes the place of the package's own finding. The classes stand in ``pytest_llmroof.extend``::

        def evicted(window, diagnosis):
            thrown_out = window.counters.get("preemptions", 0)
            return Found(f"{thrown_out:.0f} requests were preempted", window.source) if thrown_out > 100 else None


        def pytest_llmroof_scenarios(config):
            return {
                "LAB-EVICTION": Scenario("requests thrown out of the cache", "requests are computed twice", evicted),
                "E": [Remedy("Ask the lab for places", "The lab's scheduler has spare replicas at night.")],
            }
    """


@pytest.hookspec
def pytest_llmroof_report(config: pytest.Config, report: dict[str, Any]) -> None:
    """Provisional. The finished report document, before it is written; called once, also where no file was asked for.

    It holds exact builtins only, and changes made here are written. Called where reports are written: plugins and the
    root conftest see it, under pytest-xdist in the controller::

        def pytest_llmroof_report(config, report):
            report["labels"]["commit"] = os.environ["CI_COMMIT_SHA"]
    """
