"""Lost time by scenario, and which scenario it speaks for: the largest share, where one is clearly the largest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from pytest_llmroof.analysis.attribution import SCENARIO_OF_CAUSE, Attribution, Cause
from pytest_llmroof.analysis.communication import communicates
from pytest_llmroof.analysis.constants import threshold
from pytest_llmroof.analysis.observed import Observed
from pytest_llmroof.roofline.deployment import Deployment

_MEMORY: Final[tuple[Cause, ...]] = ("memory floor: weights", "memory floor: KV")
#: Among the letters of a pool: it may be no loss at all.
NO_LOSS: Final = ""


@dataclass(frozen=True)
class Pool:
    """A lost share that belongs to one of several scenarios; nothing tells to which, or (``NO_LOSS``) to any."""

    share: float
    letters: frozenset[str]


@dataclass(frozen=True)
class Losses:
    """Lost shares by letter, the pools beside them, and the letters whose share rests on an estimate."""

    known: dict[str, float] = field(default_factory=dict)
    pools: tuple[Pool, ...] = ()
    estimated: frozenset[str] = frozenset()

    def at_least(self, letter: str) -> float:
        """What a scenario has lost for certain; a pool that is open to it alone is its own."""
        return self.known.get(letter, 0.0) + sum(pool.share for pool in self.pools if pool.letters == {letter})

    def at_most(self, letter: str) -> float:
        """What it may have lost."""
        return self.known.get(letter, 0.0) + sum(pool.share for pool in self.pools if letter in pool.letters)

    @property
    def letters(self) -> tuple[str, ...]:
        """Every scenario that may have lost anything, in order."""
        every = {*self.known, *(letter for pool in self.pools for letter in pool.letters)}
        return tuple(sorted(every - {NO_LOSS}))


def losses(attribution: Attribution, deployment: Deployment, observed: Observed | None = None) -> Losses:
    """The lost shares of an attribution. Floor, kernel ceiling and clock are nobody's fault and no loss."""
    known: dict[str, float] = {}
    estimated = set()
    pools = []
    for part in attribution.shares:
        letter = SCENARIO_OF_CAUSE.get(part.cause)
        if part.cause == "exposed communication: waiting":
            letter = _waiting_letter(observed)
            if letter is None:
                pools.append(Pool(part.share, frozenset("CD")))
        elif part.cause == "not attributed" and not (observed is not None and only_work(attribution, observed)):
            pools.append(Pool(part.share, _open(attribution, deployment, observed)))
        if letter is not None:
            known[letter] = known.get(letter, 0.0) + part.share
            if not part.observed:
                estimated.add(letter)
    return Losses(known, tuple(pools), frozenset(estimated))


def only_work(attribution: Attribution, observed: Observed) -> bool:
    """Whether the remainder is work that nothing shows to be slow: all else was seen, and no floor is known."""
    floor = attribution.share("memory floor: weights", "memory floor: KV", "compute floor", "interleaved prefill")
    return observed.by == "profile" and not floor and observed.sees("C") and observed.sees("D")


def _open(attribution: Attribution, deployment: Deployment, observed: Observed | None) -> frozenset[str]:
    """The letters of what is not attributed: of steps that were not seen all, and no loss for certain."""
    unseen = attribution.may_be("unprofiled steps")
    letters = {*open_letters(deployment, None if unseen else observed)}
    maybe_none = unseen or attribution.may_be("cache reads") or attribution.may_be("prompts' floor")
    return frozenset(letters | {NO_LOSS} if maybe_none else letters)


def open_letters(deployment: Deployment, observed: Observed | None) -> tuple[str, ...]:
    """What the remainder of a step may be: of communication, idle gaps and slow kernels those not observed."""
    letters = []
    if communicates(deployment) and (observed is None or not observed.communication_known):
        letters.append("C")
    if observed is None or not observed.idle_known:
        letters.append("D")
    # A remainder is left beside observed slow kernels only where something else was not seen.
    if observed is None or observed.slow_kernels is None or not letters:
        letters.append("F")
    return tuple(letters)


def late_rank_possible(attribution: Attribution, observed: Observed) -> bool:
    """Whether all may wait for a rank that was not profiled: their collectives last long, whichever rank is looked at.

    Where they are short on one rank, this is the one that comes last, and none that was not seen comes later.
    """
    return observed.partial and attribution.share("exposed communication: transport") >= threshold("lost_share")


def clock_unknown(letters: tuple[str, ...], attribution: Attribution, observed: Observed) -> bool:
    """Whether slow kernels may be healthy ones at a low clock: they compute, and nothing tells the clock."""
    computes = attribution.share("compute floor", "interleaved prefill")
    return "F" in letters and observed.clock is None and computes > attribution.share(*_MEMORY)


def candidates(lost: Losses) -> tuple[str, ...]:
    """The scenarios that the lost shares speak for: one where it leads, several where nothing tells, none if little.

    One leads that has lost a tenth of the time for certain, and 1.3 times as much as any other can have: twice as much
    where its own loss is an estimate, which may well be half as large again as the truth.
    """
    least = threshold("lost_share")
    possible = [letter for letter in lost.letters if lost.at_most(letter) >= least]
    for letter in possible:
        others = _most(lost, (other for other in lost.letters if other != letter))
        if lost.at_least(letter) >= least and lost.at_least(letter) >= _lead(lost, letter) * others:
            return (letter,)
    first = max(possible, key=lost.at_least, default=NO_LOSS)
    certain, lead = lost.at_least(first), _lead(lost, first)
    named = tuple(letter for letter in possible if lost.at_most(letter) * lead > certain)
    # One letter is left, and has not lost a tenth for certain: the rest of it may as well be another's.
    return () if len(named) == 1 and lost.at_least(named[0]) < least else named


def _lead(lost: Losses, letter: str) -> float:
    """How many times as much as any other it must have lost."""
    return threshold("estimated_lead" if letter in lost.estimated else "lost_lead")


def _most(lost: Losses, letters: Iterable[str]) -> float:
    return max((lost.at_most(letter) for letter in letters), default=0.0)


def _waiting_letter(observed: Observed | None) -> str | None:
    """Waiting is charged to the late rank's largest loss; None where its rank was not captured."""
    cause = observed.waiting_cause if observed else None
    if cause is None:
        return None
    return "D" if cause == "host gaps" else "C"
