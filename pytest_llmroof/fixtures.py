"""The fixtures. What they give lives in ``handle.py``, imported when a test asks for one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_llmroof.fixture_windows import TestWindow, WindowFactory
    from pytest_llmroof.probing import Probe
    from pytest_llmroof.roofline.accelerator import Accelerator


@pytest.fixture
def llmroof(request: pytest.FixtureRequest) -> TestWindow:
    """The window that the test's ``llmroof`` marks describe: its measurements as a mapping, ``check()``, ``diagnosis``.

    ``llmroof["decode.mbu"].value`` is a number; a metric that was not measured raises a KeyError that says why.
    """
    from pytest_llmroof.fixture_windows import TestWindow
    from pytest_llmroof.markers import marked_spec

    node = request.node
    return TestWindow(request.config, lambda: marked_spec(node), node)


@pytest.fixture(scope="session")
def llmroof_factory(pytestconfig: pytest.Config) -> WindowFactory:
    """Windows for fixtures of module or session scope: ``llmroof_factory.window(telemetry=[...], base=...)``."""
    from pytest_llmroof.fixture_windows import WindowFactory

    return WindowFactory(pytestconfig)


@pytest.fixture
def llmroof_probe(request: pytest.FixtureRequest) -> Probe:
    """A load of one phase against an OpenAI-compatible endpoint: ``llmroof_probe.decode(batch=8).check(...)``.

    ``prefill(...)`` and ``decode(...)`` send their requests at once and give a window with what client and server saw.
    """
    from pytest_llmroof.probing import probe_of

    return probe_of(request.node)


@pytest.fixture(scope="session")
def llmroof_gpu(pytestconfig: pytest.Config) -> Accelerator:
    """The accelerator of ``--llmroof-gpu`` or of the ini file: peaks, bandwidth, ridge."""
    from pytest_llmroof.fixture_windows import session_accelerator

    return session_accelerator(pytestconfig)
