"""Every report that a test reads is held against the published schema first."""

from __future__ import annotations

from typing import Any

from pytest_llmroof.report.schema import problem_of


def valid(document: Any) -> dict[str, Any]:
    """The document, which follows the schema."""
    problem = problem_of(document)
    assert problem is None, problem
    assert isinstance(document, dict)
    return document
