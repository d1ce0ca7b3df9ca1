"""What profiles make worth saying with every verdict: what was mended in them, and figures that differ from others'."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pytest_llmroof.analysis.constants import counter_constant, threshold
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.hardware_evidence import figures
from pytest_llmroof.analysis.profiled import Silent, parts, source_of

_DAY: Final = 86_400
_DATED: Final = 1e9
"""Unix seconds: a window that began earlier counts its time from something else."""


def profile_notes(facts: WindowFacts) -> tuple[str, ...]:
    """One sentence each; nothing without a profile."""
    return tuple(dict.fromkeys(_notes(facts))) if facts.profile is not None else ()


def _notes(facts: WindowFacts) -> Iterator[str]:
    assert facts.profile is not None
    for one in facts.profile.timelines:
        yield from one.notes
    yield from facts.profile.kernels.notes if facts.profile.kernels is not None else ()
    yield from _of_another_day(facts)
    found = parts(facts)
    if isinstance(found, Silent):
        if facts.profile.timelines:
            yield f"the profile is not used: {found.reason}"
        return
    if (note := _busy_of_both(facts)) is not None:
        yield note


def _of_another_day(facts: WindowFacts) -> Iterator[str]:
    """Profiles that were taken long before or after the window: taken beside or after it they still tell of it."""
    assert facts.profile is not None
    begin = facts.window.started
    if begin is None or begin < _DATED:
        return
    end = begin + (facts.window.duration_seconds or 0.0)
    for one in facts.profile.timelines:
        apart = 0.0 if one.started is None else max(begin - one.started, one.started - end)
        if apart > threshold("profile_apart_seconds"):
            which = "before" if one.started is not None and one.started < begin else "after"
            yield (
                f"{one.location} was recorded {apart / _DAY:.1f} days {which} this window: check that it is of the "
                "same server and load"
            )


def _busy_of_both(facts: WindowFacts) -> str | None:
    """Both figures of how busy the GPUs were, where the profile's and the counters' differ by more than a tenth."""
    found, known = parts(facts), figures(facts) if facts.window.hardware is not None else None
    if isinstance(found, Silent) or known is None or known.over != "load":
        return None
    busy = sum(part.shares.busy for part in found) / len(found)
    engine = known.values["engine"]
    if abs(busy - engine) <= counter_constant("differs") * max(busy, engine):
        return None
    return (
        f"the GPUs were busy {busy * 100:.0f} % of the step by {source_of([part.figures for part in found])}, which is "
        f"used, and {engine * 100:.0f} % of the load by their counters ({known.source})"
    )
