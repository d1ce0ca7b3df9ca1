"""The time of a window: the clock of its scrapes, or the duration that the user gave."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Final

from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.scrapes import Scrape

#: Shares by which a given duration may differ from the clock's before it is noted, and before it is refused.
_NOTED: Final = 0.05
_REFUSED: Final = 0.10
#: A pause this many times the usual one between scrapes is a gap.
_GAP: Final = 3.0


@dataclass(frozen=True)
class Clock:
    """The time of a window, in seconds. ``known`` tells whether the scrapes carry it themselves.

    Where they do not, they are taken as ``spacing`` seconds apart. ``error`` is how far the duration may be off.
    """

    duration: float | None
    started: float | None
    error: float
    known: bool
    spacing: float = 1.0
    note: str | None = None

    def time_of(self, scrape: Scrape, index: int) -> float:
        """When a scrape was taken, the ``index``-th of its server: Unix seconds, or seconds since the first."""
        return scrape.clock if self.known and scrape.clock is not None else index * self.spacing


def clock_of(servers: Mapping[str, Sequence[Scrape]], given: float | None, since_start: bool) -> Clock:
    """The window's time, checked against the duration that the user gave."""
    ends = [(scrapes[0], scrapes[-1]) for scrapes in servers.values()]
    scrapes = [scrape for of_server in servers.values() for scrape in of_server]
    clocks = [scrape.clock for scrape in scrapes if scrape.clock is not None]
    if len(clocks) < len(scrapes):
        note = None
        most = max(len(of_server) for of_server in servers.values())
        if given is not None and most > 2:
            note = f"the scrapes carry no clock: taken as evenly spaced over the given {given:g} s"
        return Clock(given, None, 0.0, False, given / (most - 1) if given is not None and most > 1 else 1.0, note)
    error = max(first.scrape_seconds + last.scrape_seconds for first, last in ends)
    if since_start:
        return _since_start(ends, given, error)
    started, duration = min(clocks), max(clocks) - min(clocks)
    if duration <= 0:
        raise SourceError(
            f"{ends[0][0].location} and {ends[0][1].location} carry the same clock: no time passed between them",
            "give each scrape its own `# scraped_at`, or name two different scrapes",
        )
    note = None
    if given is not None and abs(given - duration) > error:
        share = abs(given - duration) / duration
        if share > _REFUSED:
            raise SourceError(
                f"the scrapes lie {duration:.1f} s apart by their own clock, but a duration of {given:g} s is given",
                "leave `duration` out where the scrapes carry `# scraped_at`, or correct one of them",
            )
        if share > _NOTED:
            note = f"the given {given:g} s are not used: by their own clock the scrapes lie {duration:.1f} s apart"
    return Clock(duration, started, error, True, note=note)


def _since_start(ends: Sequence[tuple[Scrape, Scrape]], given: float | None, error: float) -> Clock:
    """The time of a single scrape is the server's uptime, as far as it tells when it started."""
    starts, uptimes = [], []
    for scrape, _ in ends:
        created = [time for snapshot in scrape.snapshots.values() for time in snapshot.created.values()]
        start = scrape.start if scrape.start is not None else min(created, default=None)
        if start is None or scrape.clock is None or scrape.clock <= start:
            return Clock(given, None, error, False)
        starts.append(start)
        uptimes.append(scrape.clock - start)
    uptime = max(uptimes)
    if given is None:
        return Clock(uptime, min(starts), error, True)
    if given > uptime * (1 + _REFUSED) + error:
        raise SourceError(
            f"the server was up for {uptime:.1f} s when it was scraped, but a duration of {given:g} s is given",
            "leave `duration` out, or correct it",
        )
    return Clock(given, None, error, True, note=f"counted since the server's start, over the given {given:g} s")


def gaps(servers: Mapping[str, Sequence[Scrape]]) -> Iterator[str]:
    """Pauses in which scrapes are missing."""
    for scrapes in servers.values():
        clocks = [scrape.clock or 0.0 for scrape in scrapes]
        pauses = [later - earlier for earlier, later in pairwise(clocks)]
        if len(pauses) < 3:
            continue
        usual = median(pauses)
        longest = max(pauses)
        if longest > _GAP * usual:
            after = scrapes[pauses.index(longest)].location
            yield f"no scrape for {longest:.1f} s after {after}, where one every {usual:.1f} s is usual"
