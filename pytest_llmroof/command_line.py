"""What the command line asks for: checked before anything is collected, and its gates added to the session."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest

from pytest_llmroof.errors import ConfigError
from pytest_llmroof.gates.spec import WindowSpec
from pytest_llmroof.items import COMMAND_LINE, CommandLineGates, command_line_spec, wants_command_line
from pytest_llmroof.options import Settings, settings
from pytest_llmroof.windows import completed


def configure(config: pytest.Config) -> None:
    """Refuse wrong options as usage errors; register the command line's gates where there are any."""
    options = settings(config)
    if not hasattr(config, "workerinput"):
        try:
            _check(config, options)
        except ConfigError as error:
            raise pytest.UsageError(str(error)) from None
        if options.record is not None:
            _check_record(options.record, create=not config.option.collectonly)
        _check_baselines(options)
        for path in options.reports:
            _check_report(path, create=not config.option.collectonly)
    if wants_command_line(config):
        config.pluginmanager.register(CommandLine(), "llmroof-command-line")


class CommandLine:
    """Adds the collector of the command line's gates to the session, beside files."""

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Not in `pytest_collection_modifyitems`: there pytest would have counted the items already."""
        report = yield
        if isinstance(collector, pytest.Session) and report.passed:
            # A path below the root, for the root itself is printed as "<- ." at -vv.
            path = collector.config.rootpath / COMMAND_LINE
            report.result.append(
                CommandLineGates.from_parent(collector, name=COMMAND_LINE, nodeid=COMMAND_LINE, path=path)
            )
        return report


def _check(config: pytest.Config, options: Settings) -> None:
    """Everything that can be known to be wrong before a file is opened. ConfigError."""
    if options.gates and not (options.command_line.telemetry or options.ini.telemetry):
        raise ConfigError("--llmroof-gate needs something to measure: add --llmroof-telemetry=SOURCE")
    if wants_command_line(config):
        command_line_spec(config)
    else:
        completed(config, WindowSpec(id=COMMAND_LINE, name="cli", base=options.command_line.base))


def _check_report(path: Path, *, create: bool) -> None:
    """``pytest.UsageError`` where a report could not be written."""
    option = f"--llmroof-report={path}"
    if path.is_dir():
        raise pytest.UsageError(f"{option}: is a folder")
    try:
        if create:
            path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise pytest.UsageError(f"{option}: no folder {path.parent}: {error.strerror}") from None
    if path.parent.is_dir() and not os.access(path if path.exists() else path.parent, os.W_OK):
        raise pytest.UsageError(f"{option}: not writable")


def _check_baselines(options: Settings) -> None:
    """``pytest.UsageError`` where a file is no report that can be read: nothing could be compared with it."""
    if not options.baselines or "--llmroof-baseline" not in options.asked:
        return
    from pytest_llmroof.baseline.places import Place

    try:
        for path, shown in options.baselines:
            Place(path, shown).check()
    except ConfigError as error:
        raise pytest.UsageError(str(error)) from None


def _check_record(folder: Path, *, create: bool) -> None:
    """``pytest.UsageError`` where recordings could not be written."""
    option = f"--llmroof-record={folder}"
    try:
        if create:
            folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise pytest.UsageError(f"{option}: is a file, not a folder") from None
    except OSError as error:
        raise pytest.UsageError(f"{option}: {error.strerror}") from None
    if folder.exists() and not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise pytest.UsageError(f"{option}: not a folder that can be written")
