"""The nearest valid name, for messages about a wrong one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


def nearest(wrong: str, valid: Iterable[str], count: int = 3) -> list[str]:
    """Up to ``count`` of the ``valid`` names that mean the ``wrong`` one, else of those most like it, best first."""
    names = {name.casefold(): name for name in valid}
    meant = [names[name] for name in _synonyms(wrong) if name in names]
    alike = difflib.get_close_matches(wrong.casefold(), names, n=count, cutoff=0.5)
    return meant[:count] or [names[key] for key in alike]


def did_you_mean(wrong: str, valid: Iterable[str]) -> str:
    """`` (did you mean 'x' or 'y'?)``, or an empty string where nothing is near."""
    near = nearest(wrong, valid)
    return f" (did you mean {' or '.join(repr(name) for name in near)}?)" if near else ""


def _synonyms(word: str) -> Sequence[str]:
    """Our names for a word of the field."""
    from pytest_llmroof.data import load

    found: Sequence[str] = load("synonyms.yaml").get(word.casefold().replace("-", "_"), ())
    return found
