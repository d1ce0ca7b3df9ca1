"""Evidence: what speaks for and against each scenario, each statement with its source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pytest_llmroof.analysis.admission import Saturation, idleness
from pytest_llmroof.analysis.attribution import Attribution, Cause, Share
from pytest_llmroof.analysis.communication import communicates
from pytest_llmroof.analysis.constants import threshold
from pytest_llmroof.analysis.devices import degree_shown
from pytest_llmroof.analysis.diagnosis import Evidence
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.losses import clock_unknown, late_rank_possible, only_work, open_letters
from pytest_llmroof.analysis.measurement import Measurement, Outcomes
from pytest_llmroof.analysis.observed import Observed
from pytest_llmroof.analysis.scenarios import combined_name
from pytest_llmroof.units import format_quantity

#: What computing a prompt takes at least, and what real kernels add to that.
_ARITHMETIC: Final[tuple[Cause, Cause]] = ("compute floor", "kernel ceiling")
#: Shares below this are not worth a line.
_WORTH_SAYING: Final = 0.01


def measured(outcomes: Outcomes, metric: str) -> Measurement | None:
    """A metric's measurement, None where it has none."""
    outcome = outcomes.get(metric)
    return outcome if isinstance(outcome, Measurement) else None


def share_text(share: float) -> str:
    """``34 %``."""
    return f"{share * 100:.0f} %"


def of_admission(facts: WindowFacts, ttft: Attribution | None, cause: Saturation | None = None) -> Iterator[Evidence]:
    """For and against E: the queue's share of the time to first token, and the cause."""
    if ttft is not None:
        queue = ttft.share("queue")
        largest = queue > 0 and queue == max(part.share for part in ttft.shares)
        statement = f"the queue is {share_text(queue)} of the time to first token ({_milliseconds(ttft.seconds)})"
        yield Evidence("E", largest, statement, facts.window.source_name("queue") or "engine counters")
    if cause is not None:
        yield Evidence("E", True, cause.statement, cause.source)
        if cause.cause == "compute":
            yield Evidence("B", True, cause.statement, cause.source)


def of_load(facts: WindowFacts, whole: bool = False) -> Iterator[Evidence]:
    """For G, where the window was mostly idle."""
    idle = idleness(facts, whole)
    if idle is None:
        return
    if idle.share > threshold("idle_window"):
        yield Evidence("G", True, f"{idle.statement}: {share_text(idle.share)} idle", idle.source)


def of_roofs(outcomes: Outcomes, attribution: Attribution | None, decode: bool) -> Iterator[Evidence]:
    """For and against A and B: utilisation against the thresholds, and what prefill takes of a step."""
    if decode:
        mbu, mfu = measured(outcomes, "decode.mbu"), measured(outcomes, "decode.mfu")
        if mbu is not None:
            yield _against_threshold("A", "decode MBU", mbu, threshold("memory_bound_mbu"))
        if mfu is not None and mbu is not None and mfu.value < threshold("low_mfu"):
            supports = mbu.value > threshold("memory_bound_mbu")
            text = f"decode MFU {_percent(mfu)}, below {threshold('low_mfu') * 100:.0f} %"
            yield Evidence("A" if supports else "B", supports, text, mfu.source)
        interleaved = attribution.share("interleaved prefill") if attribution else 0.0
        if attribution is not None and interleaved >= _WORTH_SAYING:
            largest = interleaved == max(part.share for part in attribution.shares)
            text = f"interleaved prefill is {share_text(interleaved)} of the step"
            yield Evidence("B", largest, text, "roofline")
        return
    mfu, limit = measured(outcomes, "prefill.mfu"), threshold("compute_bound_mfu")
    # Of a value that is a bound, no more than its interval says.
    if mfu is not None and (mfu.judged_by == "value" or not mfu.bounded.low <= limit < mfu.bounded.high):
        yield _against_threshold("B", "prefill MFU", mfu, limit)


def of_first_token(facts: WindowFacts, ttft: Attribution, letters: tuple[str, ...]) -> Iterator[Evidence]:
    """For and against B: what computing prompts takes of the time to first token, and how near it is to the roof."""
    own, others = ttft.share(*_ARITHMETIC), ttft.share("other requests' prefill")
    if not ttft.share("compute floor"):
        return
    source = facts.window.source_name("prefill_time") or "roofline"
    floor, ceiling = (_milliseconds(ttft.seconds * ttft.share(part)) for part in _ARITHMETIC)
    text = (
        f"the prompt's arithmetic is {share_text(own)} of the time to first token ({_milliseconds(ttft.seconds)}): "
        f"floor {floor}, kernel ceiling {ceiling}"
    )
    yield Evidence("B", "B" in letters, text, "roofline")
    if others >= _WORTH_SAYING:
        yield Evidence("B", "B" in letters, f"other requests' prefill is {share_text(others)} of it", source)


def of_losses(
    facts: WindowFacts,
    attribution: Attribution | None,
    letters: tuple[str, ...],
    observed: Observed | None,
    *,
    least: float | None = None,
) -> Iterator[Evidence]:
    """For and against C, D and F: each lost share, large or small, and what nothing tells apart.

    ``least`` is the share from which on one speaks for its scenario, as a rule the least that is worth naming.
    """
    least = threshold("lost_share") if least is None else least
    if attribution is None:
        return
    alone = not communicates(facts.deployment) and not _exchanges(observed)
    if alone and degree_shown(facts):
        yield Evidence("C", False, "one GPU serves each replica: there is nobody to wait for", "the deployment")
    causes: tuple[tuple[str, str, tuple[Cause, ...]], ...] = (
        ("C", "communication that nothing hides", ("exposed communication: transport",)),
        ("D", _idle_words(observed), ("idle: within steps", "idle: between steps")),
        ("F", "work beyond what kernels need", ("slow kernels",)),
    )
    for letter, what, parts in causes:
        found = [part for part in attribution.shares if part.cause in parts]
        if found or (observed is not None and observed.sees(letter)):
            if letter == "C" and alone:
                continue
            if letter == "F" and observed is not None and only_work(attribution, observed):
                continue  # without a floor nothing tells how much of the work is too much
            if letter in "CD" and observed is not None and observed.by == "profile" and observed.sees(letter):
                yield _profiled(letter, letter in letters, attribution, observed, least)
            else:
                yield _lost(letter, what, found, letter in letters, attribution, observed, least)
    if observed is not None:
        for sign in observed.signs:
            if set(sign.letters) & set(letters):
                yield Evidence(combined_name(sign.letters), True, sign.statement, sign.source)
    yield from _waiting(attribution, observed)
    if observed is not None and "C" in letters:
        yield from _one_rank(attribution, observed)
    yield from _unattributed(facts, attribution, letters, observed)
    if observed is not None:
        yield from _about_source(attribution, letters, observed)


def _idle_words(observed: Observed | None) -> str:
    """What of the idle time is told: by an engine that between its steps."""
    known = observed is None or observed.idle_known
    return "idle time of the GPU" if known else "idle time of the GPU between steps"


def _exchanges(observed: Observed | None) -> bool:
    """Whether a profile shows communication, whatever was assumed of the deployment."""
    return observed is not None and observed.by == "profile" and observed.collective is not None


def _profiled(letter: str, named: bool, attribution: Attribution, observed: Observed, least: float) -> Evidence:
    """What a timeline shows of communication or of idle time; for the scenario where it is enough."""
    if letter == "C":
        share = attribution.share("exposed communication: transport")
        waits = attribution.share("exposed communication: waiting") >= _WORTH_SAYING
        what = f"{observed.collective or 'communication'} {'transfers' if waits else 'kernels'}"
        text = f"{what} exposed for {share_text(share)} of {_profiled_time(attribution)}"
        source = observed.source_of("transport")
        if share < least <= share + observed.unnamed:
            # It speaks neither against communication nor for anything else before somebody says what these are.
            text += f", kernels whose names are not understood for a further {share_text(observed.unnamed)}"
            return Evidence("C or F", True, f"{text}: they may be communication", source)
    else:
        share = attribution.share("idle: within steps", "idle: between steps")
        text, source = _idle_text(share, attribution, observed), observed.source
    return Evidence(letter, named and share >= least, text, source)


def _idle_text(gaps: float, attribution: Attribution, observed: Observed) -> str:
    """All of the idle time, as ``timeline.idle`` has it, and its parts where it is more than the ``gaps``."""
    seen = (observed.idle_within or 0.0) + (observed.idle_between or 0.0)
    pauses = observed.pauses * (gaps / seen if seen else 1.0)
    text = f"the GPU was idle {share_text(gaps + pauses)} of {_profiled_time(attribution)}"
    if pauses < _WORTH_SAYING:
        return text
    # The parts add up to the whole as it is printed.
    rest = round((gaps + pauses) * 100) - round(gaps * 100)
    between = f"{rest} % in pauses of microseconds between kernels that were submitted in time"
    return f"{text}: {share_text(gaps)} in gaps, {between}"


def _waiting(attribution: Attribution, observed: Observed | None) -> Iterator[Evidence]:
    waiting = attribution.share("exposed communication: waiting")
    if waiting < _WORTH_SAYING or observed is None:
        return
    source = observed.source_of("waiting")
    late = "a late rank" if observed.late_rank is None else f"rank {observed.late_rank}"
    share = f"{share_text(waiting)} of {_profiled_time(attribution)} is waiting for"
    if observed.waiting_cause is None:
        yield Evidence("C or D", True, f"{share} {late}: a straggler, and its own trace is not here", source)
    elif observed.waiting_cause == "host gaps":
        yield Evidence("D", True, f"{share} {late}, which loses its time in gaps of its host", source)
    elif observed.waiting_cause == "imbalance":
        yield Evidence("C", True, f"{share} {late}, which has more work than the others (imbalance)", source)
    else:
        yield Evidence("C", True, f"{share} another stage ({observed.waiting_cause})", source)


def _one_rank(attribution: Attribution, observed: Observed) -> Iterator[Evidence]:
    """That collectives which always last long look alike from one rank, whatever makes them long."""
    if late_rank_possible(attribution, observed):
        text = f"{observed.ranks} of {observed.ranks_of} ranks profiled: one that is always late would look the same"
        yield Evidence("C", False, text, observed.source)


def _unattributed(
    facts: WindowFacts, attribution: Attribution, letters: tuple[str, ...], observed: Observed | None
) -> Iterator[Evidence]:
    rest = attribution.share("not attributed")
    if observed is not None and attribution.may_be("unprofiled steps"):
        if rest >= _WORTH_SAYING and letters:
            text = f"{share_text(rest)} of {_whole(attribution)} is of steps that also compute prompts: not profiled"
            yield Evidence(combined_name(letters), False, text, observed.source)
        return
    possible = open_letters(facts.deployment, observed)
    if rest < threshold("lost_share") or not set(possible) & set(letters):
        return
    names = {"C": "waiting for other GPUs", "D": "waiting for the host", "F": "slow kernels"}
    *others, last = (names[letter] for letter in possible)
    if attribution.may_be("cache reads"):
        others, last = [*others, last], "what is read of the cache, since no context is known"
    told = f"{', '.join(others)}, or {last}" if others else last
    known = "floor, kernel ceiling nor expected communication" if "C" in possible else "floor nor kernel ceiling"
    text = f"{share_text(rest)} of {_whole(attribution)} is neither {known}: {told}"
    source = "engine telemetry cannot tell which" if observed is None else f"{observed.source} does not tell which"
    yield Evidence(combined_name(possible), True, text, source)


def _about_source(attribution: Attribution, letters: tuple[str, ...], observed: Observed) -> Iterator[Evidence]:
    """What makes an observation worth less: a step of another length, a distorted capture."""
    if not letters:
        return
    name = combined_name(letters)
    if observed.step_seconds and observed.mismatch(attribution.step_seconds) > threshold("step_mismatch"):
        text = (
            f"its own step is {_milliseconds(observed.step_seconds)}, the window's "
            f"{_milliseconds(attribution.seconds)}: the shares may differ"
        )
        yield Evidence(name, False, text, observed.source)
    if observed.by == "profile" and clock_unknown(letters, attribution, observed):
        yield Evidence("F", False, "nothing tells the clock: at a low one healthy kernels look slow", observed.source)
    for distortion in observed.distortions:
        doubt = "" if ":" in distortion else ": gaps and communication may look longer than they are"
        yield Evidence(name, False, distortion + doubt, observed.source)
    if (observed.hidden_communication or 0.0) >= _WORTH_SAYING:
        hidden = share_text(observed.hidden_communication or 0.0)
        text = f"communication of a further {hidden} of {_profiled_time(attribution)} is hidden behind computation"
        yield Evidence("C", False, text, observed.source_of("hidden_communication"))


def _lost(
    letter: str,
    what: str,
    found: list[Share],
    supports: bool,
    attribution: Attribution,
    observed: Observed | None,
    least: float,
) -> Evidence:
    share = sum(part.share for part in found)
    seen = all(part.observed for part in found)
    supports = supports and share >= least
    text = f"{what} is {'' if seen else 'about '}{share_text(share)} of {_whole(attribution)}"
    default = observed.source if observed is not None else "the remainder"
    sources = dict.fromkeys(part.source for part in found) or {default: None}
    return Evidence(letter, supports, text, "; ".join(sources))


def _against_threshold(letter: str, name: str, measurement: Measurement, limit: float) -> Evidence:
    above = measurement.value > limit
    text = f"{name} {_percent(measurement)}, {'above' if above else 'not above'} {limit * 100:.0f} %"
    return Evidence(letter, above, text, measurement.source)


def _whole(attribution: Attribution) -> str:
    return {
        "decode step": "the step",
        "prefill": "busy time",
        "ttft": "the time to first token",
        "recording": "the recording",
    }[attribution.of]


def _percent(measurement: Measurement) -> str:
    return format_quantity(measurement.value, "fraction")


def _milliseconds(seconds: float) -> str:
    return format_quantity(seconds, "seconds")


def _profiled_time(attribution: Attribution) -> str:
    """What a profile's shares are of: its typical step, or all of it where it holds no steps."""
    return _whole(attribution) if attribution.of == "recording" else "the step"
