"""``python -m pytest_llmroof render``: any report from the JSON one, as the run itself would have written it."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Final

from pytest_llmroof.errors import SourceError
from pytest_llmroof.formats import REPORT_WRITERS
from pytest_llmroof.report.files import print_whole
from pytest_llmroof.report.json_report import fitting, load_whole
from pytest_llmroof.report.wire import Document, visible

_USAGE_ERROR: Final = 2
_STDOUT: Final = "-"
#: What else an option may be called, beside the ending.
_ALSO: Final[Mapping[str, str]] = {".xml": "--junit", ".md": "--markdown", ".prom": "--prometheus"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options: one for each kind of report."""
    parser.add_argument("report", metavar="REPORT.json", type=Path, help="what --llmroof-report=REPORT.json wrote")
    for ending in REPORT_WRITERS:
        names = [f"--{ending[1:]}", *([_ALSO[ending]] if ending in _ALSO else [])]
        parser.add_argument(
            *names, dest=ending, metavar="FILE", action="append", default=[],
            help=f"write the {ending} report; - is standard output",
        )  # fmt: skip


def run(options: argparse.Namespace, command: Sequence[str] | None = None) -> int:
    """Write the reports; 2 and one sentence on standard error where that cannot be done."""
    asked = [(ending, target) for ending in REPORT_WRITERS for target in getattr(options, ending)]
    try:
        _check(options.report, asked, command)
        document = load_whole(options.report, str(options.report))
        for ending, target in asked:
            _render(document, str(options.report), ending, target)
    except SourceError as error:
        print(f"render: {visible(str(error))}", file=sys.stderr)
        return _USAGE_ERROR
    return 0


def _check(report: Path, asked: Sequence[tuple[str, str]], command: Sequence[str] | None) -> None:
    """What is wrong with the command line itself."""
    kinds = ", ".join(f"--{ending[1:]}=FILE" for ending in REPORT_WRITERS)
    if not asked or command is not None:
        raise SourceError(f"say what to write: {kinds}")
    if sum(target == _STDOUT for _, target in asked) > 1:
        raise SourceError("standard output holds one report: give the others files")
    for ending, target in asked:
        if target != _STDOUT and Path(target).resolve() == report.resolve():
            raise SourceError(f"--{ending[1:]}={target} would overwrite the report that is read")


def _render(document: Document, name: str, ending: str, target: str) -> None:
    if target != _STDOUT:
        _write(document, name, ending, Path(target))
        return
    try:
        folder = tempfile.TemporaryDirectory(prefix="llmroof-")
    except OSError as error:
        raise SourceError(f"no temporary file can be written: {error.strerror or error}", "is the disk full?") from None
    with folder:
        path = Path(folder.name) / f"report{ending}"
        _write(document, name, ending, path)
        print_whole(path.read_bytes())


def _write(document: Document, name: str, ending: str, path: Path) -> None:
    module, _, function = REPORT_WRITERS[ending].partition(":")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with fitting(name):
            getattr(import_module(module), function)(path, document)
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror or error}") from None
