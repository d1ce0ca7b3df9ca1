"""Names of kernels: what people call them, and the patterns that gates choose them by."""

from __future__ import annotations

import fnmatch
import re
from functools import lru_cache
from typing import Final

_ANONYMOUS: Final = re.compile(r"\(anonymous namespace\)::|<unnamed>::|\(anonymous\)::")


@lru_cache(maxsize=16384)
def short_name(name: str) -> str:
    """The function's name with its namespaces, without return type, template arguments and parameters.

    ``void at::native::copy<4, F>(int, F)`` is ``at::native::copy``.
    """
    text = _ANONYMOUS.sub("", name)
    kept: list[str] = []
    depth = 0
    for at, character in enumerate(text):
        if character == "<":
            depth += 1
        elif character == ">" and depth:
            depth -= 1
        elif depth == 0:
            if character == "(" and kept and "".join(kept).strip() and not text.startswith("operator", at - 8):
                break
            kept.append(character)
    words = "".join(kept).split()
    return words[-1] if words else name.strip()


def matches(pattern: str, name: str) -> bool:
    """Whether a gate's pattern chooses a kernel, upper and lower case alike.

    ``*`` stands for any text and ``?`` for one character; everything else for itself. A pattern without them is
    looked for anywhere in the name; one with them must fit the whole name, or the whole of its short form (short_name),
    with or without namespaces.
    """
    pattern = pattern.strip()
    if not pattern:
        return False
    if "*" not in pattern and "?" not in pattern:
        return pattern.casefold() in name.casefold()
    compiled = _compiled(pattern)
    short = short_name(name)
    return any(compiled.fullmatch(one) for one in (name, short, short.rpartition("::")[2]))


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(pattern.replace("[", "[[]")), re.IGNORECASE)
