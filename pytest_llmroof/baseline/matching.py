"""The earlier windows that a window is held against: the given files' and a folder's newest that are of its kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pytest_llmroof.advice import Advice
from pytest_llmroof.baseline.identity import Difference, differences, label_differences, phases_written
from pytest_llmroof.baseline.places import Place
from pytest_llmroof.baseline.reading import EarlierWindow
from pytest_llmroof.errors import SourceError
from pytest_llmroof.gates.baseline import NONE_GIVEN, NoBaseline
from pytest_llmroof.report.wire import Document

#: So many of a folder's windows count, the newest.
NEWEST: Final = 10
MAKE_ONE: Final = Advice("make one", "pytest ... --llmroof-report=base/NAME.json")

#: What a window must have to count: whether it holds what is asked of it.
Holds = Callable[[EarlierWindow], bool]


@dataclass(frozen=True)
class Candidate:
    """An earlier window and everything in which it is of another kind."""

    window: EarlierWindow
    differences: tuple[Difference, ...]

    @property
    def distance(self) -> float:
        """0 where it matches."""
        return sum(one.distance for one in self.differences)

    @property
    def phrases(self) -> str:
        """``gpu h100-sxm5-80gb there, mi300x here``."""
        return "; ".join(one.phrase for one in self.differences)


class Baselines:
    """Everything that was given as a baseline. Files are read when a gate or a breach asks for them."""

    def __init__(self, places: Sequence[Place] = ()) -> None:
        self.places = tuple(places)

    def __bool__(self) -> bool:
        return bool(self.places)

    def matching(
        self, here: Document, labels: Mapping[str, str], holds: Holds, what: str
    ) -> Sequence[EarlierWindow] | NoBaseline:
        """The windows that count for a gate, the newest first, or why there is none.

        ``holds`` tells whether a window has what is compared, ``what`` names that for messages (``tpot.p99``).
        """
        if not self.places:
            return NONE_GIVEN
        search = _Search(here, labels, holds, what)
        try:
            for place in self.places:
                search.through(place)
        except SourceError as error:
            return NoBaseline(f"no baseline: {error.reason}", error.remedy or MAKE_ONE)
        return search.found or NoBaseline(f"no baseline: {search.why_none(self.places)}", MAKE_ONE)

    def nearest(self, here: Document, holds: Holds) -> list[Candidate]:
        """The windows to compare with: those that match, else the ones that differ least in the deployment.

        For explaining only, so that a changed deployment can be said; another name or phase is another window.
        """
        found: list[Candidate] = []
        try:
            for place in self.places:
                found += _nearest_of(place, here, holds)
        except SourceError:
            return []  # the gates that hang on a baseline say it
        least = min((one.distance for one in found), default=0.0)
        return _distinct([one for one in found if one.distance == least])


class _Search:
    """Looks through places for what counts, and remembers why the rest does not."""

    def __init__(self, here: Document, labels: Mapping[str, str], holds: Holds, what: str) -> None:
        self.here = here
        self.labels = labels
        self.holds = holds
        self.what = what
        self.found: list[EarlierWindow] = []
        self.reports = 0
        self.breached: list[EarlierWindow] = []
        self.unmeasured: list[EarlierWindow] = []
        self.near: list[Candidate] = []

    def through(self, place: Place) -> None:
        """Add what counts of one place."""
        count = 0
        for report in place.reports():
            self.reports += 1
            for window in self._of_report(report):
                if place.is_folder and window.breached:
                    self.breached.append(window)
                elif not self.holds(window):
                    self.unmeasured.append(window)
                elif not any(_copies(window, other) for other in self.found):
                    self.found.append(window)
                    count += 1
                if place.is_folder and count >= NEWEST:
                    return

    def _of_report(self, report: Iterable[EarlierWindow]) -> list[EarlierWindow]:
        candidates = list(_compared(report, self.here, self.labels))
        self.near += candidates
        least = min((one.distance for one in self.near), default=0.0)
        self.near = [one for one in self.near if one.distance == least]
        return _same_place([one.window for one in candidates if not one.differences], self.here)

    def why_none(self, places: Sequence[Place]) -> str:
        """Why nothing counts, with how near the nearest was."""
        shown = ", ".join(place.shown for place in places)
        unread = "".join(place.unread() for place in places)
        if not self.reports:
            missing = [place.shown for place in places if not place.path.exists()]
            if missing:
                return f"{', '.join(missing)} does not exist yet"
            return f"no report in {shown}{unread}"
        if self.unmeasured:
            names = _names(self.unmeasured)
            otherwise = f"which match{_es(self.unmeasured)} otherwise"
            return f"{self.what} was not measured in {names}, or no more than a bound of it, {otherwise}{unread}"
        if self.breached:
            names = _names(self.breached)
            return f"a gate failed by its value in {names}, and such windows of a folder do not count{unread}"
        count = f"none of {self.reports} reports" if self.reports > 1 else "the report"
        matches = "matches" if self.reports > 1 else "does not match"
        if not self.near:
            return f"{count} in {shown} {'holds' if self.reports > 1 else 'does not hold'} a window{unread}"
        # Of several that are as near, the kind of which there are most; of that the newest.
        kinds = Counter(one.phrases for one in self.near)
        nearest = max(self.near, key=lambda one: kinds[one.phrases])
        return f"{count} {matches}; nearest: {nearest.phrases} ({nearest.window.report}){unread}"


def _nearest_of(place: Place, here: Document, holds: Holds) -> list[Candidate]:
    """The windows of a place that differ least; a folder is read no further than it takes to find enough."""
    near: list[Candidate] = []
    for candidate in _candidates(place, here, {}):
        one = _of_this_window(candidate, here)
        if one is None or not _counts(one, place) or not holds(one.window):
            continue
        least = min((each.distance for each in near), default=one.distance)
        near = [*near, one] if one.distance == least else [one] if one.distance < least else near
        if place.is_folder and len(near) >= NEWEST and not one.differences:
            break
    return near[:NEWEST] if place.is_folder else near


def _candidates(place: Place, here: Document, labels: Mapping[str, str]) -> Iterator[Candidate]:
    for report in place.reports():
        yield from _compared(report, here, labels)


def _compared(report: Iterable[EarlierWindow], here: Document, labels: Mapping[str, str]) -> Iterator[Candidate]:
    for window in report:
        found = [*differences(window.document, here), *label_differences(window.labels, labels)]
        yield Candidate(window, tuple(found))


def _of_this_window(one: Candidate, here: Document) -> Candidate | None:
    """The candidate without a phase that was only found from the traffic; None where it is another window."""
    other = ("window", "phase") if phases_written(one.window.document, here) else ("window",)
    if any(difference.kind in other for difference in one.differences):
        return None
    return replace(one, differences=tuple(each for each in one.differences if each.kind != "phase"))


def _counts(one: Candidate, place: Place) -> bool:
    return not (place.is_folder and one.window.breached)


def _same_place(windows: list[EarlierWindow], here: Document) -> list[EarlierWindow]:
    """Where a report holds several windows of the name, the one of the same file."""
    same = [window for window in windows if window.document["id"] == here["id"]]
    return same or windows


def _distinct(candidates: Iterable[Candidate]) -> list[Candidate]:
    kept: list[Candidate] = []
    for one in candidates:
        if one not in kept:
            kept.append(one)
    return kept


def _copies(one: EarlierWindow, other: EarlierWindow) -> bool:
    """Whether two are the same window of the same run: a copy of a report (``latest.json``) is no second one."""
    return one.created == other.created and one.document == other.document


def _names(windows: Sequence[EarlierWindow], most: int = 2) -> str:
    names = list(dict.fromkeys(window.report for window in windows))
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _es(windows: Sequence[EarlierWindow]) -> str:
    return "es" if len({window.report for window in windows}) == 1 else ""
