"""The nearest valid name, for messages about a wrong one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(wrong: str, valid: Iterable[str], count: int = 3) -> list[str]:
    """Up to ``count`` of the ``valid`` names that are most like the ``wrong`` one, best first."""
    names = {name.casefold(): name for name in valid}
    return [names[key] for key in difflib.get_close_matches(wrong.casefold(), names, n=count, cutoff=0.5)]


def did_you_mean(wrong: str, valid: Iterable[str]) -> str:
    """`` (did you mean 'x' or 'y'?)``, or an empty string where nothing is near."""
    near = nearest(wrong, valid)
    return f" (did you mean {' or '.join(repr(name) for name in near)}?)" if near else ""
