"""The pytest side: hooks and fixtures hand on in a line or two. Only pytest and the standard library are imported."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_llmroof import aggregate, declarations, options

if TYPE_CHECKING:
    from pytest_llmroof.fixture_windows import TestWindow, WindowFactory
    from pytest_llmroof.probing import Probe
    from pytest_llmroof.roofline.accelerator import Accelerator

__all__ = ["llmroof", "llmroof_factory", "llmroof_gpu", "llmroof_probe"]


def __dir__() -> list[str]:
    """Hooks and fixtures: pytest looks at each name here (see ``aggregate.Hooks``)."""
    return [name for name in globals() if name.startswith("pytest_") or name in __all__]


_ENDINGS = (".llmroof.yaml", ".llmroof.yml")
_NAMES = ("llmroof.yaml", "llmroof.yml")

_MARKERS = (
    "llmroof(gpu, model, deployment, telemetry, phase, ...): the window that a test is about; keys as in a gate file",
    "llmroof_gate(*expressions, severity='error', id=None, why=None): gates that are judged after the test's body",
    "llmroof_live: gates that touch a network",
    "decode: gates on a window of phase decode",
    "prefill: gates on a window of phase prefill",
    "mixed: gates on a window of phase mixed",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options and ini keys."""
    declarations.add_options(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Hooks that others may implement."""
    from pytest_llmroof import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """``--llmroof-list`` prints and stops."""
    if config.getoption("llmroof_list") is None:
        return None
    from pytest_llmroof import lists

    return lists.print_list(config)


def pytest_configure(config: pytest.Config) -> None:
    """Read and check the options, and gather the outcome where the user is."""
    for line in _MARKERS:
        config.addinivalue_line("markers", line)
    settings = config.stash[options.SETTINGS] = options.read(config)
    collected = aggregate.Collected(config)
    config.pluginmanager.register(collected, "llmroof-collected")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(aggregate.Aggregator(config, collected), "llmroof-aggregator")
        if settings.asked or config.pluginmanager.hasplugin("xdist"):
            from pytest_llmroof import rundir

            config.pluginmanager.register(rundir.RunFolder(), "llmroof-run-folder")
    if settings.asked:
        from pytest_llmroof import command_line

        command_line.configure(config)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Gate files."""
    if file_path.name in _NAMES or file_path.name.endswith(_ENDINGS):
        from pytest_llmroof.items import GateFile

        file: pytest.Collector = GateFile.from_parent(parent, path=file_path)
        return file
    return None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A wrong mark on a test is found when it is collected."""
    if any(metafunc.definition.get_closest_marker(name) is not None for name in ("llmroof_gate", "llmroof")):
        from pytest_llmroof.markers import validate

        validate(metafunc)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests whose window is a server's carry ``llmroof_live`` like gate items: ``-m`` is applied after this."""
    tests = [item for item in items if isinstance(item, pytest.Function)]
    marked = [item for item in tests if "llmroof" in item.keywords or "llmroof_probe" in item.fixturenames]
    if marked:
        from pytest_llmroof.markers import mark_live_tests

        mark_live_tests(marked)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Judge the gates of a test's marks after its body."""
    if item.get_closest_marker("llmroof_gate") is None:
        return (yield)
    from pytest_llmroof.markers import judged_body

    return (yield from judged_body(item))


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
