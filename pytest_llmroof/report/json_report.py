"""The report document as a file: written whole or not at all, and read with suspicion."""

from __future__ import annotations

import contextlib
import json
import math
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pytest_llmroof.advice import Advice
from pytest_llmroof.errors import SourceError
from pytest_llmroof.report.document import SCHEMA
from pytest_llmroof.report.files import write_whole
from pytest_llmroof.report.wire import Document, to_wire

#: Far above any report (10 000 gates make some 20 MB); what is larger is not one.
LARGEST_BYTES: Final = 256 * 1024 * 1024
#: Of a whole number: no count of anything has more.
_MOST_DIGITS: Final = 30


def write(path: Path, document: Document) -> None:
    """Write the document; a reader never sees half of one. Raises OSError."""
    write_whole(path, json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def load(path: Path, shown: str | None = None) -> Document:
    """A report that was written earlier. SourceError, naming ``shown``, where the file is not one."""
    name = shown or path.name
    try:
        text = _text(path, name)
    except OSError as error:
        raise SourceError(f"{name}: {error.strerror or 'cannot be read'}") from None
    except UnicodeDecodeError:
        raise SourceError(f"{name}: not a report: not UTF-8 text") from None
    return _checked(_parsed(text, name), name)


def _text(path: Path, name: str) -> str:
    """What a file holds. Devices, and pipes that no shell opened, may be read for ever."""
    found = path.stat()
    kind = found.st_mode
    opened = stat.S_ISFIFO(kind) and path.parent.as_posix() in ("/dev/fd", "/proc/self/fd", "/dev")
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind) or opened):
        raise SourceError(f"{name}: not a report: not a file")
    if found.st_size > LARGEST_BYTES:
        raise SourceError(f"{name}: {found.st_size} bytes are too many for a report")
    with path.open("rb") as file:
        held = file.read(LARGEST_BYTES + 1)
    if len(held) > LARGEST_BYTES:
        raise SourceError(f"{name}: more than {LARGEST_BYTES} bytes are too many for a report")
    return held.decode("utf-8")


def load_whole(path: Path, shown: str | None = None) -> Document:
    """A report that follows its schema in every part, so that all of it can be rendered. SourceError otherwise."""
    from pytest_llmroof.report.schema import problem_of

    document = load(path, shown)
    problem = problem_of(document)
    if problem is not None:
        raise SourceError(f"{shown or path.name}: a damaged report: {problem}")
    # What others wrote may hold characters that no report of ours does.
    whole: Document = to_wire(document)
    return whole


@contextlib.contextmanager
def fitting(name: str) -> Iterator[None]:
    """Code that takes the parts of a whole report for what they say: SourceError where they contradict each other.

    Every part is of its kind then; who changed some of them by hand may still have made a report that cannot be.
    """
    try:
        yield
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise SourceError(f"{name}: a damaged report: its parts contradict each other ({error})") from error


def _parsed(text: str, name: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant, parse_float=_finite, parse_int=_of_ordinary_length)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{name}: not a report: {error}") from None


def _no_constant(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text} is too large a number")
    return number


def _of_ordinary_length(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


def _checked(content: Any, name: str) -> Document:
    """The parts that every reader of a report relies on."""
    schema = content.get("schema") if isinstance(content, dict) else None
    if not isinstance(schema, str) or not schema.startswith("llmroof.report/"):
        raise SourceError(
            f"{name}: not a report: its schema is not {SCHEMA}",
            Advice("write one", "pytest --llmroof-report=FILE.json"),
        )
    if schema != SCHEMA:
        raise SourceError(f"{name}: a report of another version ({schema}); this one reads {SCHEMA}")
    document: Document = content
    windows = document.get("windows")
    if not isinstance(windows, list) or not all(map(_is_window, windows)):
        raise SourceError(f"{name}: a damaged report: its windows are not as they were written")
    return document


def _is_window(window: Any) -> bool:
    return (
        isinstance(window, dict)
        and isinstance(window.get("id"), str)
        and isinstance(window.get("name"), str)
        and isinstance(window.get("measurements"), dict)
        and isinstance(window.get("gates"), list)
        and all(isinstance(gate, dict) and isinstance(gate.get("expression"), str) for gate in window["gates"])
    )
