"""The root of the repository: marks where pytest's root directory is."""

from __future__ import annotations

import pytest


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """A quick look at a server from the checkout runs its gates, not this project's own tests.

    Gates of the command line are added to whatever else is collected; here that would be `testpaths`.
    """
    asked = config.getoption("llmroof_gate", None) or config.getoption("llmroof_telemetry", None)
    if asked and config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        config.args = []
