"""The command line and its ini twins: declared, read once, and checked before anything is collected."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from pytest_llmroof.formats import REPORT_WRITERS

#: What ``--llmroof-list`` can print.
LISTS: Final = ("gpus", "models", "metrics", "scenarios", "engines")
PHASES: Final = ("decode", "prefill", "mixed")
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


def add_options(parser: pytest.Parser) -> None:
    """Declare every option and ini key. Unset is None or empty, so that it can be told from a given default."""
    group = parser.getgroup("llmroof", "performance gates for LLM serving (write --option=VALUE)")
    for name, arguments in _options().items():
        group.addoption(f"--llmroof-{name}", dest=_dest(name), **arguments)
    text: Any = float | str if pytest.version_tuple >= (9, 2) else "string"
    for name, kind, meaning in _INI:
        ini_type: Any = text if kind == "duration" else kind
        parser.addini(f"llmroof_{name}", meaning, type=ini_type, default=[] if kind == "linelist" else None)


def read(config: pytest.Config) -> Settings:
    """Everything the user set. Reading an ini value of the wrong type is a usage error, so all are read here."""
    asked = [name for name in _options() if name != "list" and config.getoption(_dest(name)) not in (None, [], False)]
    option: Callable[[str], Any] = lambda name: config.getoption(_dest(name))  # noqa: E731
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
    import yaml

    key, _, value = entry.partition("=")
    try:
        return key.strip(), yaml.safe_load(value)
    except yaml.YAMLError:
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
    return tuple((base / Path(name).expanduser(), name) for name in dict.fromkeys(written))


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
        phase=_checked(named, "phase", ini("phase"), _phase),
        telemetry=tuple(ini("telemetry")),
        duration=_checked(named, "duration", ini("duration"), _duration),
        interval=_checked(named, "interval", ini("interval"), _duration),
    )


def _checked(file: str, name: str, value: Any, convert: Callable[[str], Any]) -> Any:
    """An ini value through the check of its option. ``pytest.UsageError`` where it fails."""
    if value is None:
        return None
    try:
        return convert(str(value))
    except argparse.ArgumentTypeError as error:
        raise pytest.UsageError(f"{file}: llmroof_{name}: {error}") from None


_INI: Final = (
    ("gpu", "string", "accelerator, where neither the command line nor a gate file names one"),
    ("model", "string", "model, likewise; relative to the ini file"),
    ("deployment", "linelist", "KEY=VALUE, one a line: parallelism and precisions, likewise"),
    ("telemetry", "linelist", "telemetry of windows that name none, one a line; relative to the ini file"),
    ("phase", "string", "decode, prefill or mixed, likewise"),
    ("duration", "duration", "length of live windows, and of files that carry no clock of their own (60s), likewise"),
    ("interval", "duration", "time between two scrapes of a live window (1s), likewise"),
    ("baseline", "linelist", "as --llmroof-baseline, one a line; relative to the ini file"),
    ("strict", "bool", "as --llmroof-strict"),
    ("required", "bool", "a run that collects no gate exits with code 4"),
)


def _options() -> dict[str, dict[str, Any]]:
    """Name -> what argparse is told. Plain types only: pytest-xdist sends every value to its workers."""
    return {
        "gpu": {
            "metavar": "NAME",
            "help": "accelerator: a catalogue name (h100, a100-sxm4-80gb; --llmroof-list=gpus) or a YAML file that "
            "describes one",
        },
        "model": {
            "metavar": "NAME",
            "help": "model: a catalogue name (--llmroof-list=models), a config.json or its folder",
        },
        "deployment": {
            "metavar": "KEY=VALUE", "action": "append", "default": [], "type": _pair,
            "help": "parallelism and precisions (tensor_parallel=4, weights=fp8); repeatable",
        },
        "phase": {
            "metavar": "PHASE", "type": _phase,
            "help": "decode, prefill or mixed; default: found from the traffic",
        },
        "telemetry": {
            "metavar": "SOURCE", "action": "append", "default": [],
            "help": "a recording, a scrape, a URL, or a {...} mapping as in a gate file; repeatable. Makes a window of "
            "its own (cli), and serves windows that name no telemetry",
        },
        "duration": {
            "metavar": "TIME", "type": _duration,
            "help": "length of live windows (default 30s), and of files that carry no clock of their own",
        },
        "interval": {
            "metavar": "TIME", "type": _duration,
            "help": "time between two scrapes of a live window (default 1s)",
        },
        "record": {
            "metavar": "DIR",
            "help": "keep every live window as a recording: DIR/<gate file's stem>/<window>/",
        },
        "gate": {
            "metavar": "EXPRESSION", "action": "append", "default": [],
            "help": "a gate on the telemetry given here, like 'decode.mbu >= 75%%'; repeatable. It is added to "
            "whatever else is collected",
        },
        "baseline": {
            "metavar": "FILE|FOLDER", "action": "append", "default": [], "type": _baseline,
            "help": "earlier JSON reports: what `baseline` in a gate is held against (the median of the files, or of a "
            "folder's newest 10, that match), and what a breach is compared with; repeatable",
        },
        "label": {
            "metavar": "KEY=VALUE", "action": "append", "default": [], "type": _pair,
            "help": "a label for the reports (engine=vllm-0.33.0); repeatable",
        },
        "report": {
            "metavar": "FILE", "action": "append", "default": [], "type": _report,
            "help": f"write a report; the ending chooses its kind: {', '.join(REPORT_WRITERS)}; repeatable",
        },
        "strict": {
            "action": "store_true",
            "help": "a limit inside the measurement's interval is inconclusive, and fails",
        },
        "unmeasured-exit": {
            "metavar": "N", "type": _exit_code,
            "help": "exit code where no gate failed, but some could not be judged (default 1): retry the measurement, "
            "never a regression",
        },
        "list": {"metavar": "WHAT", "choices": LISTS, "help": f"print what is known, and stop: {', '.join(LISTS)}"},
    }  # fmt: skip


def _dest(name: str) -> str:
    return f"llmroof_{name.replace('-', '_')}"


def _pair(text: str) -> str:
    key, sign, value = text.partition("=")
    if not (key.strip() and sign and value.strip()):
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return text


def _phase(text: str) -> str:
    if text not in PHASES:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(PHASES)}")
    return text


def _duration(text: str) -> float:
    from pytest_llmroof.units import UnitError, parse_as

    try:
        seconds = parse_as(text, "seconds")
    except UnitError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if seconds <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive duration")
    return seconds


def _baseline(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("needs a JSON report, or a folder of them")
    return text


def _report(text: str) -> str:
    if Path(text).suffix not in REPORT_WRITERS:
        raise argparse.ArgumentTypeError(
            f"{text!r} must end in {' or '.join(REPORT_WRITERS)}: the ending chooses the kind of report"
        )
    return text


def _exit_code(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 255:
        raise argparse.ArgumentTypeError(f"{text!r} is not an exit code from 1 to 255 (0 would turn no data green)")
    return int(text)
