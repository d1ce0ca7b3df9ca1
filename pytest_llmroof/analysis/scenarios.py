"""The scenarios of the diagnosis, from the packaged data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from pytest_llmroof.advice import AnyAdvice, behind
from pytest_llmroof.analysis.vendors import NVIDIA, instrument_for, remedy_words
from pytest_llmroof.data import load

LETTERS: Final = ("A", "B", "C", "D", "E", "F", "G")


@dataclass(frozen=True)
class Entry:
    """One remedy as written in the data: templates, the effect that fills them, and what must hold."""

    title: str
    detail: str
    effect: str
    applies: tuple[str, ...]

    def of(self, vendor: str) -> Entry | None:
        """The same in the words of an accelerator's vendor; None where it is no remedy there."""
        words = remedy_words(self.title, vendor)
        if words is None:
            return None
        return replace(self, title=words.get("title", self.title), detail=words.get("detail", self.detail))


@dataclass(frozen=True)
class Check:
    """What would confirm a scenario, and the instrument that shows it."""

    what: str
    instrument: str


@dataclass(frozen=True)
class Scenario:
    """One scenario: how it is called, what it looks like, why it happens, what would confirm it, what helps."""

    letter: str
    title: str
    short: str
    words: str
    symptoms: tuple[str, ...]
    cause: str
    causes: Mapping[str, str]
    confirm: tuple[Check, ...]
    remedies: tuple[Entry, ...]


@cache
def scenarios() -> Mapping[str, Scenario]:
    """Every scenario by its letter."""
    data = load("scenarios.yaml")
    return {letter: _scenario(letter, data[letter]) for letter in LETTERS}


def option_words(engine: str) -> Mapping[str, str]:
    """What an engine (by its key) calls the options that remedies name, as phrases to fill in."""
    return {name: str(words.get(engine, words["other"])) for name, words in load("options.yaml").items()}


def combined_name(letters: Iterable[str]) -> str:
    """``C``, or ``C or D`` where several stay possible (the first two; a diagnosis lists all as candidates)."""
    return " or ".join(sorted(letters)[:2])


def combined_title(name: str) -> str:
    """The title of a scenario or of two: ``communication stalls or host launch bubbles``."""
    letters = name.split(" or ")
    if len(letters) == 1:
        return scenarios()[name].title
    return " or ".join(scenarios()[letter].short for letter in letters)


def without_scenario(key: str) -> str:
    """The title of a finding that has no scenario."""
    return str(load("scenarios.yaml")["none"][key])


def missing(letters: Iterable[str], have: Iterable[str] = (), vendor: str = NVIDIA) -> tuple[AnyAdvice, ...]:
    """What would tell scenarios apart: one line for each instrument but those in ``have``, with all that it shows and
    the command that makes it telemetry.
    """
    letters, have, shown = tuple(letters), tuple(have), dict[str, list[str]]()
    for letter in letters:
        for check in scenarios()[letter].confirm:
            if check.instrument not in have:
                shown.setdefault(check.instrument, []).append(check.what)
    # What several candidates ask for comes first: it tells them apart.
    order = sorted(shown, key=lambda instrument: -len(shown[instrument]))
    ways = {name: instrument_for(name, vendor) for name in order}
    return tuple(behind(f"{_listed(shown[name])}: ", way) for name, way in ways.items() if way is not None)


def _listed(parts: list[str]) -> str:
    if any(" and " in part for part in parts):
        return "; ".join(parts)
    *front, last = parts
    return f"{', '.join(front)} and {last}" if front else last


def _scenario(letter: str, entry: Mapping[str, object]) -> Scenario:
    def texts(key: str) -> tuple[str, ...]:
        found = entry.get(key, ())
        return tuple(str(one) for one in found) if isinstance(found, list) else ()

    confirm, remedies, causes = entry.get("confirm", []), entry.get("remedies", []), entry.get("causes", {})
    assert isinstance(confirm, list)
    assert isinstance(remedies, list)
    assert isinstance(causes, dict)
    return Scenario(
        letter=letter,
        title=str(entry["title"]),
        short=str(entry["short"]),
        words=str(entry["words"]),
        symptoms=texts("symptoms"),
        cause=str(entry["cause"]),
        causes={str(key): str(value) for key, value in causes.items()},
        confirm=tuple(Check(str(one["what"]), str(one["with"])) for one in confirm),
        remedies=tuple(
            Entry(str(one["title"]), str(one["detail"]), str(one["effect"]), tuple(one.get("applies", ())))
            for one in remedies
        ),
    )
