"""The kinds of reports: a file's ending, and the function of a path and a document that writes it.

A module of its own, since `render` works without pytest.
"""

from __future__ import annotations

from typing import Final

REPORT_WRITERS: Final = {
    ".json": "pytest_llmroof.report.json_report:write",
    ".html": "pytest_llmroof.report.html:write",
    ".xml": "pytest_llmroof.report.junit:write",
    ".md": "pytest_llmroof.report.checklist:write",
    ".prom": "pytest_llmroof.report.promfile:write",
}
