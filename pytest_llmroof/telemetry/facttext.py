"""What of a configuration may be shown and used: plain words and numbers, names of devices; never a path or more."""

from __future__ import annotations

import re
from typing import Final

_PLAIN: Final = re.compile(r"[A-Za-z0-9_.+-]{1,40}")
#: Devices are called ``AMD Instinct MI250X/MI250`` or ``Intel(R) Arc(TM) Pro B60 Graphics``.
_DEVICE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+()/@ -]{0,79}")
#: The fact that names a device.
DEVICE: Final = "device"
_NOTHING: Final = frozenset({"none", "unknown", "n/a", ""})


def fact_text(fact: str, value: object) -> str | None:
    """A fact as text; None where nothing is said, or something that is no plain fact."""
    if value is None or not isinstance(value, str | int | float | bool):
        return None
    text = str(value).strip()
    if isinstance(value, float) and value.is_integer():
        text = str(int(value))
    pattern = _DEVICE if fact == DEVICE else _PLAIN
    return text if text.casefold() not in _NOTHING and pattern.fullmatch(text) else None
