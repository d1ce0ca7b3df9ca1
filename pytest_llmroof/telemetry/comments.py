"""What the comment lines of a page say: types, the end of the page, and three of our own (see recording.py)."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from pytest_llmroof.telemetry.grammar import Malformed, number, short, unquoted

_COMMENT: Final = re.compile(r"#[ \t]*(\S+)(?:[ \t]+(.*))?")
_OURS: Final = frozenset({"scraped_at", "scrape_seconds", "endpoint"})
#: BSD's date knows no %N and prints the letter: whole seconds.
_CLOCK: Final = re.compile(r"(?P<seconds>\d{1,11})(?:\.(?:\d+|(?P<no_fraction>N)))?")


@dataclass
class Comments:
    """Collects them. Of our own the first of each counts; ``resolution`` is what ``scraped_at`` may be off by."""

    types: dict[str, str] = field(default_factory=dict)
    scraped_at: float | None = None
    scrape_seconds: float | None = None
    endpoint: str | None = None
    resolution: float = 0.0
    ended: bool = False

    def read(self, line: str) -> bool:
        """Read a comment, and tell whether it is one of ours. Malformed where it says what cannot be."""
        match = _COMMENT.match(line) if not line.startswith("# HELP ") else None
        if match is None:
            return False
        word, rest = match[1], (match[2] or "").strip()
        if word == "TYPE":
            self._type(rest)
        elif word == "EOF" and not rest:
            self.ended = True
        elif word == "scraped_at" and self.scraped_at is None:
            self.scraped_at = self._clock(rest)
        elif word == "scrape_seconds" and self.scrape_seconds is None:
            self.scrape_seconds = _seconds(rest)
        elif word == "endpoint" and rest and self.endpoint is None:
            self.endpoint = shown_endpoint(rest)
        return word in _OURS

    def _type(self, rest: str) -> None:
        name, _, kind = rest.rpartition(" ")
        if not name or not kind:
            raise Malformed("a TYPE line needs a name and a type")
        name = name.strip()
        self.types[unquoted(name) if name.startswith('"') else name] = kind.lower()

    def _clock(self, rest: str) -> float:
        match = _CLOCK.fullmatch(rest)
        if match is None:
            raise Malformed(f"scraped_at must be Unix seconds like 1764417600.25, not {short(rest)}")
        if match["no_fraction"]:
            self.resolution = 1.0
            return float(match["seconds"])
        return float(rest)


def _seconds(text: str) -> float:
    value = number(text, "scrape_seconds")
    if not 0 <= value < math.inf:
        raise Malformed(f"scrape_seconds must be a time in seconds, not {short(text)}")
    return value


def shown_endpoint(address: str) -> str:
    """An address as it may be shown: without user, password, query and fragment."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return "endpoint"
    if not parts.netloc:
        return address.split("?", 1)[0]
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
