"""The report document as a file: written whole or not at all, and read with suspicion."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from pytest_llmroof.errors import SourceError
from pytest_llmroof.report.document import SCHEMA
from pytest_llmroof.report.files import write_whole
from pytest_llmroof.report.wire import Document

#: Far above any report (10 000 gates make some 20 MB); what is larger is not one.
LARGEST_BYTES: Final = 256 * 1024 * 1024


def write(path: Path, document: Document) -> None:
    """Write the document; a reader never sees half of one. Raises OSError."""
    write_whole(path, json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def load(path: Path, shown: str | None = None) -> Document:
    """A report that was written earlier. SourceError, naming ``shown``, where the file is not one."""
    name = shown or path.name
    try:
        size = path.stat().st_size
        if size > LARGEST_BYTES:
            raise SourceError(f"{name}: {size} bytes are too many for a report")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SourceError(f"{name}: {error.strerror or 'cannot be read'}") from None
    except UnicodeDecodeError:
        raise SourceError(f"{name}: not a report: not UTF-8 text") from None
    return _checked(_parsed(text, name), name)


def _parsed(text: str, name: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{name}: not a report: {error}") from None


def _no_constant(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")


def _checked(content: Any, name: str) -> Document:
    """The parts that every reader of a report relies on."""
    schema = content.get("schema") if isinstance(content, dict) else None
    if not isinstance(schema, str) or not schema.startswith("llmroof.report/"):
        raise SourceError(
            f"{name}: not a report: its schema is not {SCHEMA}", "write one with pytest --llmroof-report=FILE.json"
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
