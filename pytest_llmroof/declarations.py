"""The options and their ini twins as they are declared, and the check of each value as it was written."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

import pytest

#: What ``--llmroof-list`` can print.
LISTS: Final = ("gpus", "models", "metrics", "scenarios", "engines")
#: The endings of ``formats.REPORT_WRITERS``, which is not imported for their sake: a module costs every run of pytest.
REPORTS: Final = ".json, .html, .xml, .md, .prom"
PHASES: Final = ("decode", "prefill", "mixed")


def add_options(parser: pytest.Parser) -> None:
    """Declare every option and ini key. Unset is None or empty, so that it can be told from a given default."""
    group = parser.getgroup("llmroof", "performance gates for LLM serving (write --option=VALUE)")
    for name, arguments in declared_options().items():
        group.addoption(f"--llmroof-{name}", dest=destination(name), **arguments)
    text: Any = float | str if pytest.version_tuple >= (9, 2) else "string"
    for name, kind, meaning in INI:
        ini_type: Any = text if kind == "duration" else kind
        parser.addini(f"llmroof_{name}", meaning, type=ini_type, default=[] if kind == "linelist" else None)


INI: Final = (
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


def declared_options() -> dict[str, dict[str, Any]]:
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
            "metavar": "PHASE", "type": phase,
            "help": "decode, prefill or mixed; default: found from the traffic",
        },
        "telemetry": {
            "metavar": "SOURCE", "action": "append", "default": [],
            "help": "a recording, a scrape, a URL, or a {...} mapping as in a gate file; repeatable. Makes a window of "
            "its own (cli), and serves windows that name no telemetry",
        },
        "duration": {
            "metavar": "TIME", "type": duration_seconds,
            "help": "length of live windows (default 30s), and of files that carry no clock of their own",
        },
        "interval": {
            "metavar": "TIME", "type": duration_seconds,
            "help": "time between two scrapes of a live window (default 1s)",
        },
        "record": {
            "metavar": "DIR", "type": path_text,
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
            "help": f"write a report; the ending chooses its kind: {REPORTS}; repeatable",
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


def destination(name: str) -> str:
    """Where the value of an option is kept."""
    return f"llmroof_{name.replace('-', '_')}"


def _pair(text: str) -> str:
    key, sign, value = text.partition("=")
    if not (key.strip() and sign and value.strip()):
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return text


def phase(text: str) -> str:
    """One of the phases. ``argparse.ArgumentTypeError`` for another text, as of all checks here."""
    if text not in PHASES:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(PHASES)}")
    return text


def duration_seconds(text: str) -> float:
    """A positive duration, in seconds."""
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
    return path_text(text)


def path_text(text: str) -> str:
    """A path as it is written, of which a file can be called so."""
    from pytest_llmroof.errors import ConfigError
    from pytest_llmroof.gates.sources import path_from

    try:
        path_from(Path(), text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(f"{text[:80]!r}: {error.problem}") from None
    return text


def _report(text: str) -> str:
    from pytest_llmroof.formats import REPORT_WRITERS

    if Path(text).suffix not in REPORT_WRITERS:
        raise argparse.ArgumentTypeError(
            f"{text!r} must end in {' or '.join(REPORT_WRITERS)}: the ending chooses the kind of report"
        )
    return path_text(text)


def _exit_code(text: str) -> int:
    if not (text.isdecimal() and len(text) <= 3) or not 1 <= int(text) <= 255:
        raise argparse.ArgumentTypeError(f"{text!r} is not an exit code from 1 to 255 (0 would turn no data green)")
    return int(text)
