"""A breached gate as a test failure: what is raised, and how pytest shows it without a traceback."""

from __future__ import annotations

from pathlib import Path
from typing import Any


class GateBreach(AssertionError):
    """One or more gates did not hold. ``headline`` is one line, ``text`` says everything.

    An AssertionError, so that ``xfail(raises=AssertionError)``, ``pytest.raises`` and unittest treat it as a failure
    of the test and not as an error in it.
    """

    def __init__(self, headline: str, text: str) -> None:
        super().__init__(headline, text)
        self.headline = headline
        self.text = text

    def __str__(self) -> str:
        return self.text


def representation(text: str, headline: str, path: Path | str, line: int) -> Any:
    """The object that pytest prints: ``text`` in the section, ``headline`` alone in the summary, also under ``CI=1``.

    ``line`` counts from 1. The names are private to pytest; where they are gone a plain text serves.
    """
    try:
        from _pytest._code.code import ReprEntryNative, ReprExceptionInfo, ReprFileLocation, ReprTraceback
    except ImportError:
        return text
    # Without the last line break the next section's header would be glued to the text.
    body = ReprTraceback([ReprEntryNative([text.rstrip("\n") + "\n"])], None, "native")
    return ReprExceptionInfo(body, ReprFileLocation(str(path), line, headline))
