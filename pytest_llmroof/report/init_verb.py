"""``python -m pytest_llmroof init``: a gate file to standard output, from reports or for a model and an accelerator."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Final

from pytest_llmroof.errors import LlmroofError, SourceError
from pytest_llmroof.report.calibrate import calibrated
from pytest_llmroof.report.files import print_whole
from pytest_llmroof.report.json_report import fitting, load_whole
from pytest_llmroof.report.ratchet import ratcheted
from pytest_llmroof.report.starter import starter
from pytest_llmroof.report.wire import Document, visible

_USAGE_ERROR: Final = 2
_SCHEMA: Final = "gatefile.schema.json"
_ELSEWHERE: Final = f"""\
# Editors complete and check this file by its JSON Schema. Its path on your machine, for the editor's own settings:
#   python -c "from importlib.resources import files; print(files('pytest_llmroof.data') / '{_SCHEMA}')"
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    parser.add_argument(
        "--from", dest="reports", metavar="REPORT.json", nargs="+", action="extend", default=[], type=Path,
        help="write the limits that these reports support; repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--ratchet", metavar="GATES.yaml", type=Path,
        help="with --from: this gate file with every limit that the reports would allow to be tighter, the rest of it "
        "as it is; what became of each gate goes to standard error",
    )  # fmt: skip
    parser.add_argument("--model", metavar="NAME", help="without --from: a model of the catalogue (llama-3.1-70b)")
    parser.add_argument("--gpu", metavar="NAME", help="without --from: an accelerator of the catalogue (h100)")


def run(options: argparse.Namespace, command: Sequence[str] | None = None) -> int:
    """Print the gate file; 2 and one sentence on standard error where that cannot be done."""
    try:
        text = _text(options, command)
        if text is not None:
            print_whole(((editor_line() if options.ratchet is None else "") + text).encode())
            return 0
    except LlmroofError as error:
        print(f"init: {visible(str(error))}", file=sys.stderr)
        return _USAGE_ERROR
    print(
        "init: give --from=REPORT.json (with --ratchet=GATES.yaml to tighten that file), or both --model=NAME and "
        "--gpu=NAME",
        file=sys.stderr,
    )
    return _USAGE_ERROR


def editor_line() -> str:
    """The first line, by which editors (VS Code, Neovim, ...) complete and check the file.

    Such a path is relative to the file that holds it, taken to be the current directory. A schema that lies elsewhere
    has no path that holds on another machine: then it is said how to find it.
    """
    schema = Path(str(files("pytest_llmroof.data") / _SCHEMA)).resolve()
    here = Path.cwd().resolve()
    if not schema.is_relative_to(here):
        return _ELSEWHERE
    return f"# yaml-language-server: $schema={schema.relative_to(here).as_posix()}\n"


def _text(options: argparse.Namespace, command: Sequence[str] | None) -> str | None:
    """None where the options do not say enough, or contradict each other."""
    named = (options.model is not None) + (options.gpu is not None)
    if command is not None or (options.reports and named) or (options.ratchet and not options.reports):
        return None
    if options.reports:
        reports = [(path.name, load_whole(path, str(path))) for path in options.reports]
        with fitting(", ".join(map(str, options.reports))):
            return calibrated(reports) if options.ratchet is None else _ratcheted(options.ratchet, reports)
    return starter(options.model, options.gpu) if named == 2 else None


def _ratcheted(path: Path, reports: Sequence[tuple[str, Document]]) -> str:
    """The gate file with tighter limits; what became of each gate is told beside it."""
    try:
        text, said = ratcheted(path, str(path), reports)
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror or 'cannot be read'}") from None
    for sentence in said:
        print(f"init: {visible(sentence)}", file=sys.stderr)
    return text
