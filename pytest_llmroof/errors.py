"""Errors that a user can cause. Each says what, where, and what to do; none reaches the user as a traceback."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_llmroof.advice import AnyAdvice


@dataclass(frozen=True)
class Position:
    """A place in a file the user wrote. Lines and columns count from 1; 0 means unknown."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        if not self.line:
            return self.file
        return f"{self.file}:{self.line}:{self.column}" if self.column else f"{self.file}:{self.line}"


class Deliberate:
    """Beside another base: an exception that tells a test something, and is no mistake of this package."""


class UnknownFigureError(Deliberate, ValueError):
    """A test asked for a figure of the roofline that nobody knows."""


class LlmroofError(Exception):
    """Base of everything this package raises on purpose."""


class ConfigError(LlmroofError):
    """What the user wrote (gate file, marker, option, catalogue name) cannot be understood: it refuses to run.

    ``problem`` is one sentence with the nearest valid name where there is one, ``position`` where it stands.
    """

    def __init__(self, problem: str, position: Position | None = None) -> None:
        super().__init__(problem, position)
        self.problem = problem
        self.position = position

    def __str__(self) -> str:
        return f"{self.position}: {self.problem}" if self.position else self.problem


class ConfigErrors(ConfigError):
    """Several problems of one file, reported at once, in the order of the file."""

    def __init__(self, errors: list[ConfigError]) -> None:
        super().__init__("\n".join(str(error) for error in errors))
        self.errors = errors


class SourceError(LlmroofError):
    """Telemetry could not be read: the gates that need it have no data. It never passes and never crashes.

    ``reason`` is one sentence for the reader of a report and names the source; ``remedy`` says how to get the data
    (a command, where there is one). Neither holds credentials or absolute paths outside the project.
    """

    def __init__(self, reason: str, remedy: AnyAdvice | None = None) -> None:
        super().__init__(reason, remedy)
        self.reason = reason
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.reason}; {self.remedy}" if self.remedy else self.reason


class UnknownModelError(LlmroofError):
    """A model's architecture is not understood: no data, with the keys that were not understood and the way out."""
