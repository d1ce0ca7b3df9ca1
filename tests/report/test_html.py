"""The HTML report as text: what it holds, in which order, and that nothing in it is taken for markup."""

from __future__ import annotations

import re
from typing import Any

from assessments import assessment, flagship_verdict

from pytest_llmroof.report.document import report_document, window_document
from pytest_llmroof.report.html import render


def document(*windows: dict[str, Any], **kept: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"labels": {"commit": "abc123"}, "created": "2026-11-29T12:00:00Z", **kept}
    return report_document(windows, **given)


def test_the_page_is_complete_and_loads_nothing() -> None:
    page = render(document(window_document(assessment(flagship_verdict()))))
    assert page.startswith('<!doctype html>\n<html lang="en">')
    assert page.rstrip().endswith("</html>")
    assert "<script" not in page
    assert not re.search(r"""(src|href)=["'](?!#|data:)""", page)
    assert "url(" not in page.replace("url(#hatch)", "")
    assert "default-src 'none'" in page.replace("&#39;", "'")
