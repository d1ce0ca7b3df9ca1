"""Hooks that other plugins and conftest files may implement.

Where pytest-llmroof may be absent or switched off, write ``@pytest.hookimpl(optionalhook=True)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest


@pytest.hookspec
def pytest_llmroof_accelerators(config: pytest.Config) -> Mapping[str, Mapping[str, object]]:
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
    raise NotImplementedError


@pytest.hookspec
def pytest_llmroof_report(config: pytest.Config, report: dict[str, Any]) -> None:
    """Provisional. The finished report document, before it is written; called once, also where no file was asked for.

    It holds exact builtins only, and changes made here are written. Called where reports are written: plugins and the
    root conftest see it, under pytest-xdist in the controller::

        def pytest_llmroof_report(config, report):
            report["labels"]["commit"] = os.environ["CI_COMMIT_SHA"]
    """
