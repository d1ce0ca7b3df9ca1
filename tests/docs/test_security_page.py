"""docs/security.md names the tests that hold its claims: they are there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")


def test_every_test_that_is_named_is_there() -> None:
    named = set(re.findall(r"`(tests/[\w/]+\.py)`", PAGE))
    assert len(named) > 15
    assert {path for path in named if "def test_" not in (ROOT / path).read_text(encoding="utf-8")} == set()
