"""The published JSON Schema of the report, and what of a document does not follow it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from pytest_llmroof.report.headline import shorten
from pytest_llmroof.report.wire import Document, visible

if TYPE_CHECKING:
    from jsonschema import ValidationError
    from jsonschema.protocols import Validator

SCHEMA_FILE: Final = "report-1.schema.json"
_KINDS: Final = {
    "string": "a text", "integer": "a whole number", "number": "a number", "boolean": "true or false",
    "object": "a mapping", "array": "a list", "null": "null",
}  # fmt: skip
_LONGEST_NAME: Final = 60


@cache
def report_schema() -> Document:
    """The schema of ``llmroof.report/1``. Treat it as read-only."""
    schema: Document = json.loads(files("pytest_llmroof.data").joinpath(SCHEMA_FILE).read_text(encoding="utf-8"))
    return schema


@cache
def _validator() -> Validator:
    # Here, so that reports are written without it.
    from jsonschema import Draft202012Validator

    return Draft202012Validator(report_schema())


def problem_of(document: Any) -> str | None:
    """The first place where a document is not a report, and what is wrong there; None for a report."""
    error = next(iter(_validator().iter_errors(document)), None)
    return None if error is None else _said(error)


def _said(error: ValidationError) -> str:
    # Of `null or a gate`, what is wrong with the gate; else that it is neither.
    inner = [one for one in error.context or () if one.validator != "type" or one.validator_value != "null"]
    if error.validator == "anyOf" and inner:
        return _said(inner[0])
    return f"{_place(error.absolute_path)} {_problem(error)}".strip()


def _place(path: Iterable[str | int]) -> str:
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part.isidentifier():
            text += f".{part}" if text else part
        else:
            text += f"[{shorten(visible(part), _LONGEST_NAME)!r}]"
    return text


def _problem(error: ValidationError) -> str:
    wanted: Any = error.validator_value
    if error.validator == "type":
        kinds = [wanted] if isinstance(wanted, str) else wanted
        return f"is not {' or '.join(_KINDS[kind] for kind in kinds)}"
    if error.validator == "required" and isinstance(error.instance, dict):
        return f"lacks {next(key for key in wanted if key not in error.instance)!r}"
    if error.validator == "enum":
        return f"is none of {', '.join(json.dumps(value) for value in wanted)}"
    return "is not as it was written"
