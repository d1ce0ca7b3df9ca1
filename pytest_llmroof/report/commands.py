"""Advice without its commands: for a reader who decides, and does not type. Failing texts and HTML keep them."""

from __future__ import annotations

import re
from typing import Final

#: Options, calls and elisions: what advice holds only inside a command.
_COMMAND: Final = re.compile(r"\s--?[A-Za-z]|\w\([^()\s]*\.\.\.\)|(?<!\S)\.\.\.|\bcurl ")
_BRACKETED: Final = re.compile(r" ?(?<!\w)\((?:[^()]|\([^()]*\))*\)")
#: A colon or semicolon that parts phrases, outside of round brackets.
_PARTING: Final = re.compile(r"((?:\((?:[^()]|\([^()]*\))*\)|[^(])*?)([:;] )")


def without_commands(advice: str) -> str:
    """What to do, up to the first command; commands in brackets are left out.

    ``add a profile: nsys profile -t cuda ..., then nsys export`` is ``add a profile``.
    """
    advice = _BRACKETED.sub(lambda found: "" if _COMMAND.search(found[0]) else found[0], advice)
    kept = at = 0
    while found := _PARTING.match(advice, at):
        if at and _COMMAND.search(" " + found[1]):
            return advice[:kept]
        kept, at = found.end(1), found.end()
    return advice[:kept] if at and _COMMAND.search(" " + advice[at:]) else advice
