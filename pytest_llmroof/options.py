"""What the command line and the ini file say: read once, and checked before anything is collected."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from pytest_llmroof.declarations import declared_options, destination, duration_seconds, phase

#: Keys of a window that an option gives, for messages.
_PLACES: Final = ("gpu", "model", "deployment", "phase", "telemetry", "duration", "interval")


class Given:
    """What was said on one level about the windows: on the command line, or in the ini file.

    Texts are as written; ``base`` is the folder that relative paths start from. ``where`` maps a key to what messages
    call the place (``--llmroof-gpu``). Written out, like Settings: generated classes cost every run of pytest a
    noticeable part of the three milliseconds that this plugin may take of it.
    """

    def __init__(
        self,
        *,
        base: Path,
        where: dict[str, str],
        gpu: str | None,
        model: str | None,
        deployment: tuple[str, ...],
        phase: str | None,
        telemetry: tuple[str, ...],
        duration: float | None,
        interval: float | None,
    ) -> None:
        self.base = base
        self.where = where
        self.gpu = gpu
        self.model = model
        self.deployment = deployment
        self.phase = phase
        self.telemetry = telemetry
        self.duration = duration
        self.interval = interval

    def keys(self) -> dict[str, Any]:
        """The keys of a gate file that this level gives, telemetry left out."""
        pairs = {
            "gpu": self.gpu, "model": self.model, "phase": self.phase, "duration": self.duration,
            "interval": self.interval,
        }  # fmt: skip
        keys: dict[str, Any] = {key: value for key, value in pairs.items() if value is not None}
        if self.deployment:
            keys["deployment"] = dict(scalar(entry) for entry in self.deployment)
        return keys


class Settings:
    """All options of a run, read once in ``pytest_configure``.

    ``asked`` names the options on the command line that concern gates: with one of them, a run without a gate is not
    green. ``record`` is the folder where live windows are kept as recordings. ``baselines`` are files and folders of
    earlier reports, each with how it was written.
    """

    def __init__(
        self,
        *,
        command_line: Given,
        ini: Given,
        gates: tuple[str, ...],
        labels: dict[str, str],
        reports: tuple[Path, ...],
        strict: bool,
        unmeasured_exit: int,
        asked: tuple[str, ...],
        required: bool,
        record: Path | None,
        baselines: tuple[tuple[Path, str], ...] = (),
    ) -> None:
        self.command_line = command_line
        self.ini = ini
        self.gates = gates
        self.labels = labels
        self.reports = reports
        self.strict = strict
        self.unmeasured_exit = unmeasured_exit
        self.asked = asked
        self.required = required
        self.record = record
        self.baselines = baselines


SETTINGS: Final = pytest.StashKey[Settings]()


def read(config: pytest.Config) -> Settings:
    """Everything the user set. Reading an ini value of the wrong type is a usage error, so all are read here."""

    def option(name: str) -> Any:
        return config.getoption(destination(name))

    asked = [name for name in declared_options() if name != "list" and option(name) not in (None, [], False)]
    command_line = Given(
        base=config.invocation_params.dir,
        where={name: f"--llmroof-{name}" for name in _PLACES} | {"gates": "--llmroof-gate"},
        gpu=option("gpu"),
        model=option("model"),
        deployment=tuple(option("deployment")),
        phase=option("phase"),
        telemetry=tuple(option("telemetry")),
        duration=option("duration"),
        interval=option("interval"),
    )
    return Settings(
        command_line=command_line,
        ini=_read_ini(config),
        gates=tuple(dict.fromkeys(option("gate"))),
        labels=dict(label.split("=", 1) for label in option("label")),
        reports=tuple(config.invocation_params.dir / name for name in option("report")),
        strict=bool(option("strict") or _ini(config, "strict")),
        unmeasured_exit=option("unmeasured-exit") or 1,
        asked=tuple(f"--llmroof-{name}" for name in asked),
        required=bool(_ini(config, "required")),
        record=config.invocation_params.dir / option("record") if option("record") else None,
        baselines=_baselines(config, option("baseline")),
    )


def settings(config: pytest.Config) -> Settings:
    """The run's options."""
    return config.stash[SETTINGS]


def scalar(entry: str) -> tuple[str, Any]:
    """``tensor_parallel=4`` as a key and the value that a gate file would hold there."""
    from pytest_llmroof.errors import ConfigError
    from pytest_llmroof.gates.inline import inline_value

    key, _, value = entry.partition("=")
    try:
        return key.strip(), inline_value(value)
    except ConfigError:  # the text itself is then judged by what the key takes
        return key.strip(), value


def _ini(config: pytest.Config, name: str) -> Any:
    """An ini value. ``pytest.UsageError`` where its type is wrong, which pytest itself raises since 9.2 only."""
    try:
        return config.getini(f"llmroof_{name}")
    except (TypeError, ValueError) as error:
        raise pytest.UsageError(f"llmroof_{name}: {error}") from None


def _baselines(config: pytest.Config, given: list[str]) -> tuple[tuple[Path, str], ...]:
    """Those of the command line, else those of the ini file, each relative to where it was written."""
    base, written = config.invocation_params.dir, given
    ini = _ini(config, "baseline")
    if not given and ini:
        base, written = config.inipath.parent if config.inipath else config.rootpath, ini
    if not written:  # an unused plugin imports nothing
        return ()
    from pytest_llmroof.errors import ConfigError
    from pytest_llmroof.gates.sources import path_from

    try:
        return tuple((path_from(base, name), name) for name in dict.fromkeys(written))
    except ConfigError as error:
        raise pytest.UsageError(f"llmroof_baseline: {error.problem}") from None


def _read_ini(config: pytest.Config) -> Given:
    def ini(name: str) -> Any:
        return _ini(config, name)

    file = config.inipath
    named = file.name if file else "ini"
    return Given(
        base=file.parent if file else config.rootpath,
        where={name: f"{named}: llmroof_{name}" for name in _PLACES},
        gpu=ini("gpu"),
        model=ini("model"),
        deployment=tuple(ini("deployment")),
        phase=_checked(named, "phase", ini("phase"), phase),
        telemetry=tuple(ini("telemetry")),
        duration=_checked(named, "duration", ini("duration"), duration_seconds),
        interval=_checked(named, "interval", ini("interval"), duration_seconds),
    )


def _checked(file: str, name: str, value: Any, convert: Callable[[str], Any]) -> Any:
    """An ini value through the check of its option. ``pytest.UsageError`` where it fails."""
    if value is None:
        return None
    try:
        return convert(str(value))
    except argparse.ArgumentTypeError as error:
        raise pytest.UsageError(f"{file}: llmroof_{name}: {error}") from None
