"""GitHub's side of a run: where its environment and the command line ask for it, summary and annotations."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_llmroof.aggregate import Document
from pytest_llmroof.report.github import MOST_SUMMARY_BYTES, error_commands, summary


def append_summary(document: Document) -> list[str]:
    """Append to the step's summary; what could not be done is returned as messages, and fails nothing."""
    name = os.environ.get("GITHUB_STEP_SUMMARY")
    if not name:
        return []
    try:
        # Other programs of the same step write there, too.
        with Path(name).open("a", encoding="utf-8", newline="\n") as file:
            file.write(summary(document, MOST_SUMMARY_BYTES - file.tell()))
    except OSError as error:
        return [f"llmroof: GITHUB_STEP_SUMMARY could not be written: {error.strerror or error}"]
    return []


def workflow_commands(config: pytest.Config, document: Document) -> list[str]:
    """Annotations, where the run is GitHub's."""
    if os.environ.get("GITHUB_ACTIONS", "").lower() not in ("true", "1"):
        return []
    root = config.rootpath
    workspace = Path(os.environ.get("GITHUB_WORKSPACE") or root)
    inside = root.relative_to(workspace) if root.is_relative_to(workspace) else Path()
    return error_commands(document, lambda file: (inside / file).as_posix())
