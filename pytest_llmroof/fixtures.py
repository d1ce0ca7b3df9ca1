"""The fixtures. What they give lives in ``handle.py``, imported when a test asks for one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_llmroof.handle import TestWindow, WindowFactory
    from pytest_llmroof.roofline.accelerator import Accelerator


@pytest.fixture
def llmroof(request: pytest.FixtureRequest) -> TestWindow:
    """The window that the test's ``llmroof`` marks describe: its measurements as a mapping, ``check()``, ``diagnosis``.

    ``llmroof["decode.mbu"].value`` is a number; a metric that was not measured raises a KeyError that says why.
    """
    from pytest_llmroof.handle import TestWindow
    from pytest_llmroof.markers import marked_spec

    node = request.node
    return TestWindow(request.config, lambda: marked_spec(node), node)


@pytest.fixture(scope="session")
def llmroof_factory(pytestconfig: pytest.Config) -> WindowFactory:
    """Windows for fixtures of module or session scope: ``llmroof_factory.window(telemetry=[...], base=...)``."""
    from pytest_llmroof.handle import WindowFactory

    return WindowFactory(pytestconfig)


@pytest.fixture(scope="session")
def llmroof_gpu(pytestconfig: pytest.Config) -> Accelerator:
    """The accelerator of ``--llmroof-gpu`` or of the ini file: peaks, bandwidth, ridge."""
    from pytest_llmroof.handle import session_accelerator

    return session_accelerator(pytestconfig)
