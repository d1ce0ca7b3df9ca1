"""What to do about something, and the command that does it, apart: who decides on a release does not type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Advice:
    """What to do, in words, and what to type for it."""

    text: str
    command: str

    def __str__(self) -> str:
        return f"{self.text}: {self.command}"


#: Advice without a command is its text.
AnyAdvice = Advice | str


def as_advice(written: Mapping[str, str] | str) -> AnyAdvice:
    """Advice as the packaged data have it: a text, or a mapping of ``text`` and ``command``."""
    return written if isinstance(written, str) else Advice(written["text"], written["command"])


def plain(advice: AnyAdvice) -> str:
    """The advice without its command."""
    return advice.text if isinstance(advice, Advice) else advice


def command(advice: AnyAdvice) -> str | None:
    """Its command, None where it has none."""
    return advice.command if isinstance(advice, Advice) else None


def behind(lead: str, advice: AnyAdvice) -> AnyAdvice:
    """The advice with words before it."""
    return Advice(lead + advice.text, advice.command) if isinstance(advice, Advice) else lead + advice
