"""What profiles say of lost time: fractions of their own typical step, which attribution applies to the window's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pytest_llmroof.analysis.communication import communicates
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.observed import Observed, Sign, WaitingCause
from pytest_llmroof.analysis.profiled import Part, Silent, alone, parts, source_of

if TYPE_CHECKING:
    from pytest_llmroof.profiles.figures import Shares

_MOST: Final = 0.5
_NOTABLE: Final = 0.05
_WORTH_SAYING: Final = 0.01


def observed_by_profile(facts: WindowFacts) -> Observed | None:
    """The mean over all devices that were profiled, unless one rank keeps the others waiting; None where profiles say
    nothing of the window.

    Pauses of a few microseconds between kernels that were submitted in time are the device's own: they stay with the
    work. Where the transfer cannot be told from waiting, all exposed communication counts as transfer, and is doubted.
    """
    every = parts(facts)
    if facts.profile is None or isinstance(every, Silent):
        return None
    if any(part.steps is None and part.figures.trimmed_seconds for part in every):
        return None  # what seems idle was cut out
    found = _seen_from(every)
    shares = [part.shares for part in found]
    exposed = _mean(shares, lambda one: one.exposed)
    waiting = _mean(shares, lambda one: one.waiting)
    if exposed is None and not communicates(facts.deployment):
        exposed = waiting = 0.0  # nobody to exchange anything with
    figures = [part.figures for part in every]
    doubts = dict.fromkeys(text for one in figures for text in one.distortions)
    if exposed and waiting is None:
        doubts["too few collectives of a kind were recorded to tell their transfer from waiting for other ranks"] = None
    idle, queued = (sum(map(of, shares)) / len(shares) for of in (_apart_from_pauses, lambda one: one.queued))
    if queued > _MOST * idle and idle > _NOTABLE:
        doubts["most idle time had its next work submitted already: it was not the host that the GPU waited for"] = None
    captured = _captured(every)
    late = max((part for part in every if part.figures.late), key=lambda part: part.figures.late or 0.0, default=None)
    return Observed(
        source=source_of([part.figures for part in found]),
        by="profile",
        step_seconds=_median_step(every),
        decoding_seconds=_median_decoding(every),
        recorded_seconds=_recorded(every),
        transport=exposed - waiting if exposed is not None and waiting is not None else exposed,
        waiting=waiting,
        waiting_cause=_waiting_cause(every),
        unnamed=0.0 if alone(facts, figures) else sum(one.unnamed_exposed for one in shares) / len(shares),
        hidden_communication=_mean(shares, lambda one: one.hidden) or None,
        idle_within=sum(map(_idle_within, shares)) / len(shares),
        idle_between=sum(map(_idle_between, shares)) / len(shares),
        pauses=sum(min(one.back_to_back, one.idle) for one in shares) / len(shares),
        ranks=len(captured) or len(every),
        modern_attention=_agreed([one.modern_attention for one in figures]),
        distortions=tuple(doubts),
        collective=next((one.collective for one in figures if one.collective), None),
        waited=_held_up(every, found),
        late_rank=late.figures.rank if late is not None else None,
        graph_launched=sum(one.graph_launched for one in figures) / len(figures),
        ranks_of=_ranks_of(facts, every),
        captured=captured,
        signs=(*_waiting_signs(every, found), *_host_signs(found), *_kernel_signs(found)),
    )


def _seen_from(found: tuple[Part, ...]) -> tuple[Part, ...]:
    """Whose step tells what is lost: all of them, or one rank's where ranks wait for each other.

    Waiting is charged to the late rank's largest loss: where its host is what holds it up, that is its own idle time;
    where it has more work, or is another stage, it is the waiting of the rank that waits most.
    """
    most = max(found, key=_waits)
    if _waits(most) < _NOTABLE or most.figures.waiting_cause is None or len(found) == 1:
        return found
    if most.figures.waiting_cause != "host gaps":
        return (most,)
    late = max(found, key=lambda part: part.figures.late or 0.0)
    return (late,) if (late.figures.late or 0.0) > _MOST else found


def _waits(part: Part) -> float:
    return part.shares.waiting or 0.0


def _waiting_signs(every: Sequence[Part], found: Sequence[Part]) -> Iterator[Sign]:
    """That others wait for a rank, where the time is seen from that rank."""
    waited = _held_up(every, found)
    if waited and found[0].figures.rank is not None:
        text = f"another rank waits for rank {found[0].figures.rank} for {waited * 100:.0f} % of the step"
        yield Sign(("D",), text, max(every, key=_waits).figures.location)


def _held_up(every: Sequence[Part], found: Sequence[Part]) -> float:
    """What the rank that waits most waits for the one from which the time is seen; 0 where it is not seen from one."""
    most = max(every, key=_waits)
    return _waits(most) if len(found) == 1 and most.figures.waiting_cause == "host gaps" else 0.0


def _host_signs(found: Sequence[Part]) -> Iterator[Sign]:
    """What the host did while the device that was idle most waited for it."""
    most = max(found, key=lambda part: _host_bound(part.shares))
    host = most.figures.host
    if host is None or _host_bound(most.shares) < _NOTABLE:
        return
    times = {"waiting for the GPU": host.waiting, "in other CUDA or HIP calls": host.calling,
             "outside of such calls (Python, the scheduler)": host.elsewhere}  # fmt: skip
    said = ", ".join(f"{what} for {share * 100:.0f} %" for what, share in times.items() if share >= _WORTH_SAYING)
    yield Sign(("D",), f"of the time without work for the GPU, the host was {said}", most.figures.location)


def _kernel_signs(found: Sequence[Part]) -> Iterator[Sign]:
    """Which kinds of kernels took the time."""
    classes = found[0].figures.classes
    named = [f"{share * 100:.0f} % {title}" for title, share in list(classes.items())[:3] if share >= _NOTABLE]
    if named and "graph replays" not in classes:
        yield Sign(("F",), f"of the time of kernels and copies {', '.join(named)}", found[0].figures.location)


def _host_bound(shares: Shares) -> float:
    return shares.host_bound + shares.launch_in_flight


def _apart_from_pauses(shares: Shares) -> float:
    return max(0.0, shares.idle - shares.back_to_back)


def _median_step(found: Sequence[Part]) -> float | None:
    steps = [part.steps.median_seconds for part in found if part.steps is not None]
    return sum(steps) / len(steps) if steps else None


def _median_decoding(found: Sequence[Part]) -> float | None:
    steps = [one.median_seconds for part in found if (one := part.figures.steps.get("decode")) is not None]
    return sum(steps) / len(steps) if steps else None


def _recorded(found: Sequence[Part]) -> float | None:
    """How long all of the profile is, where it holds no steps."""
    if any(part.steps is not None for part in found):
        return None
    return sum(part.shares.seconds for part in found) / len(found)


def _mean(shares: Sequence[Shares], of: Callable[[Shares], float | None]) -> float | None:
    """The mean over devices; None where one of them cannot tell."""
    known = [value for one in shares if (value := of(one)) is not None]
    return sum(known) / len(known) if len(known) == len(shares) else None


def _idle_within(shares: Shares) -> float:
    within = shares.idle if shares.idle_within is None else shares.idle_within
    return max(0.0, within - shares.back_to_back)


def _idle_between(shares: Shares) -> float:
    return max(0.0, _apart_from_pauses(shares) - _idle_within(shares))


def _waiting_cause(found: Sequence[Part]) -> WaitingCause | None:
    """The cause of the device that waited most."""
    return max(found, key=_waits).figures.waiting_cause


def _agreed(told: Sequence[bool | None]) -> bool | None:
    known = {one for one in told if one is not None}
    return known.pop() if len(known) == 1 else None


def _captured(found: Sequence[Part]) -> tuple[int, ...]:
    """The numbers of the ranks that were profiled; empty where one of them does not tell its own."""
    numbers = {part.figures.rank for part in found}
    return tuple(sorted(number for number in numbers if number is not None)) if None not in numbers else ()


def _ranks_of(facts: WindowFacts, found: Sequence[Part]) -> int:
    """How many ranks wait for each other: as the profile tells, else those of one replica."""
    told = [part.figures.world_size for part in found if part.figures.world_size]
    return max(told) if told else facts.deployment.gpus_per_replica if communicates(facts.deployment) else 1
