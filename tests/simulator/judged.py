"""What was said of a simulated window, held against where its time went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from simulator.run import Run
from simulator.truth import (
    LARGE,
    LEAD,
    Shares,
    beside_decoding,
    busy_shares,
    decode_shares,
    idle_of_requests,
    lost_before_first_token,
    mean_mbu,
    prefill_mfu,
    prefill_share,
    queue_share,
)

#: Shares in words of the product, and of the truth.
PARTS: Mapping[str, tuple[str, ...]] = {
    "floor": ("memory floor: weights", "memory floor: KV", "compute floor", "interleaved prefill"),
    "communication": ("exposed communication: transport", "exposed communication: waiting"),
    "idle": ("idle: within steps", "idle: between steps"),
    "beyond the floor": ("kernel ceiling", "slow kernels", "clock", "not attributed"),
}
#: A window is asked for A where its memory moves more than this, and for B where its arithmetic does.
CLEARLY_A, CLEARLY_B = 0.80, 0.55
#: A loss is asked for where the default gate is breached for sure: A is said above nine tenths of what kernels reach.
CLEARLY_BELOW = 0.02
#: A profile's typical step is the window's where steps that also compute prompts add no more than this beyond their
#: floor.
UNSEEN = 0.05
#: Too little load, and a queue, are asked for from these shares on.
CLEARLY_IDLE, CLEARLY_QUEUED = 0.6, 0.55
#: A letter is a false alarm where less than this was lost to it: the least share worth naming, less three points.
UNFOUNDED = 0.10 - 0.03


@dataclass(frozen=True)
class Expected:
    """``letter`` is the scenario of the family's time; None where no single cause is large enough to be asked for.

    ``told_by_counters``: whether a GPU's counters show this cause apart from its rivals. ``told_by_profile``: whether
    a profile's typical decode step is the window's. ``shares`` are those of the
    time that is attributed, None where it is not asked for; ``lost`` and ``lost_first`` are what each scenario took of
    it, and of the time to first token. ``clock`` is what a low clock took: only the GPUs' counters tell it from slow
    kernels. ``heat``: whether that is to be said, as the counters tell that it was for heat.
    """

    family: str
    letter: str | None
    told_by_counters: bool
    told_by_profile: bool
    shares: Shares | None
    lost: Mapping[str, float]
    lost_first: Mapping[str, float]
    clock: float = 0.0
    heat: bool = False

    def lost_by(self, kind: str) -> Mapping[str, float]:
        """What is lost to each scenario as this kind of evidence can see it."""
        return self.lost if kind == "dcgm" else {**self.lost, "F": self.lost["F"] + self.clock}


def expected(run: Run) -> Expected:
    """What is true of the window, in the product's words."""
    planted, decode = run.plan.planted, decode_shares(run)
    prefill = decode is None or prefill_share(run) > 0.97
    shares = busy_shares(run) if prefill else decode
    assert shares is not None
    usable = shares if not run.preemptions else None
    lost = shares.lost, lost_before_first_token(run)
    if planted == "G":
        idle = idle_of_requests(run)
        return Expected("window", "G" if idle > CLEARLY_IDLE else None, True, True, None, *lost)
    if planted.startswith("E"):
        queue = queue_share(run) or 0.0
        # These export neither the time in their queue nor that of prefill.
        told = run.plan.flavour not in ("sglang 0.4.8", "llama.cpp")
        return Expected("ttft", "E" if told and queue > CLEARLY_QUEUED else None, True, True, usable, *lost)
    family = "prefill" if prefill else "decode"
    typical = prefill or beside_decoding(run) <= UNSEEN
    letter = _of_prefill(run, shares) if prefill else _of_decode(run, shares)
    clock = shares.clock
    if letter != "B" and clock >= LARGE / 3:
        letter = None  # of a timeline alone, a low clock is slow kernels
    # Asked for where the default gate is breached for sure; near the roof it is B all the same.
    breached = prefill and (prefill_mfu(run) or 0.0) < 0.45 - CLEARLY_BELOW
    heat = planted == "clock thermal" and breached and clock >= max(LARGE, LEAD * max(shares.lost.values()))
    told = _told_by_counters(run, shares, letter)
    return Expected(family, letter, told, typical and _ranks_told(run, letter), usable, *lost, clock, heat)


def _ranks_told(run: Run, letter: str | None) -> bool:
    """Whether the ranks that were profiled show for whom others wait: the late one is among them."""
    late, traced = run.plan.late_rank, run.plan.traced_ranks
    return letter not in ("C", "D") or late is None or not traced or late < traced


def _of_decode(run: Run, shares: Shares) -> str | None:
    if shares.interleaved > max(shares.floor, shares.beyond, *shares.lost.values()):
        return "B"
    mbu = mean_mbu(run) or 0.0
    if mbu > CLEARLY_A and shares.memory_bound:
        return "A"
    limit = min(0.75, 0.9 * sum(run.plan.gpu.reach_memory) / 2)
    return shares.cause if mbu < limit - CLEARLY_BELOW else None


def _of_prefill(run: Run, shares: Shares) -> str | None:
    mfu = prefill_mfu(run) or 0.0
    if mfu > CLEARLY_B and not shares.memory_bound:
        return "B"
    return shares.cause if mfu < 0.45 - CLEARLY_BELOW else None


def _told_by_counters(run: Run, shares: Shares, letter: str | None) -> bool:
    """Engines' activity shows idle time. On several GPUs exchanges and slow kernels look alike, but for busy links."""
    if run.plan.late_rank is not None and letter in ("C", "D"):
        return False
    if letter not in ("C", "F"):
        return True
    if run.plan.split == 1:
        return True
    moved = sum(step.link_bytes for step in run.window) / sum(step.end - step.start for step in run.window)
    return letter == "C" and moved > 0.55 * run.plan.gpu.link


@dataclass(frozen=True)
class Found:
    """What the product said: of the family that is asked for, of the time to first token (the scenarios that it may
    be), and its split of the window's own time. ``floor_ends`` are the ends of what is known of its floor, over the
    value; ``open_floor`` is the share that is said to be a floor or something else.
    """

    scenario: str | None
    candidates: tuple[str, ...]
    confidence: str
    title: str
    of_first_token: tuple[str, ...]
    shares: Mapping[str, float] | None
    floor_ends: tuple[float, float]
    open_floor: float
    clock: bool
    impossible: tuple[str, ...]
    failure: str | None


def column(found: Found, letter: str | None) -> str:
    """The column of a confusion matrix: one letter, several with the truth among them or without, or none."""
    if found.failure is not None:
        return "failed"
    if not found.candidates:
        return "clock" if found.clock else "none"
    if found.scenario is not None and " or " not in found.scenario:
        return found.scenario
    if letter is None:
        return "several"
    return "several, right" if letter in found.candidates else "several, wrong"


def ruled_out(found: Found, letter: str) -> bool:
    """Whether scenarios are named, and the true one is not among them."""
    return bool(found.candidates) and letter not in found.candidates


def unfounded(candidates: tuple[str, ...], lost: Mapping[str, float]) -> tuple[str, ...]:
    """Losses that are named alone though next to nothing was lost to them."""
    if len(candidates) != 1 or lost.get(candidates[0], 1.0) >= UNFOUNDED:
        return ()
    return candidates


def errors(found: Found, shares: Shares) -> dict[str, float]:
    """By how much each part of the split is off, fractions of the whole."""
    if found.shares is None:
        return {}
    true = {
        "floor": shares.floor + shares.interleaved,
        "communication": shares.communication,
        "idle": shares.idle,
        "beyond the floor": shares.beyond,
    }
    return {part: sum(found.shares.get(cause, 0.0) for cause in causes) - true[part] for part, causes in PARTS.items()}


def excused(found: Found, part: str, error: float) -> float:
    """The error beyond what is openly said not to be known: the interval of the floor, and what is not attributed.

    What is too little of a part may be in the remainder (of the floor only in what is said to be one maybe); what
    is too much of the rest may be that remainder.
    """
    if found.shares is None:
        return error
    rest = found.shares.get("not attributed", 0.0)
    own = sum(found.shares.get(cause, 0.0) for cause in PARTS["floor"])
    low, high = (own * (1 - found.floor_ends[0]), own * (found.floor_ends[1] - 1))
    known = {"floor": (high + found.open_floor, low), "beyond the floor": (low, high + rest)}
    less, more = known.get(part, (rest, 0.0))
    return max(0.0, error - more) if error > 0 else min(0.0, error + less)
