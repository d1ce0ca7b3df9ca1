"""The words that every report holds whatever was measured: names of its fields and metrics, and what fields may say."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from pytest_llmroof.analysis.metrics import metric_names
from pytest_llmroof.report.schema import report_schema


def own_words() -> frozenset[str]:
    """Where a header's value is a part of one, the word tells nothing of it; without its words a report is none."""
    return _of_schema() | frozenset(metric_names())


@cache
def _of_schema() -> frozenset[str]:
    return frozenset(_said(report_schema()))


def _said(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        for each in schema:
            yield from _said(each)
    elif isinstance(schema, dict):
        yield from schema.get("properties", {})
        yield from (word for word in (*schema.get("enum", ()), schema.get("const")) if isinstance(word, str))
        for each in schema.values():
            yield from _said(each)
