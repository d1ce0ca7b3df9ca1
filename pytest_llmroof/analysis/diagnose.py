"""The diagnosis of a window: which scenario explains a metric's time, the evidence, what is missing, and remedies.

Order: too little load; the queue, for what it delays; near a roof; the largest lost share. A metric is explained by
the scenario of its own time: a late first token that queued is admission saturation, however decode may run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from pytest_llmroof.advice import AnyAdvice, behind
from pytest_llmroof.analysis import evidence, findings
from pytest_llmroof.analysis.attribute import attribute_decode, attribute_prefill
from pytest_llmroof.analysis.attribute_ttft import attribute_ttft
from pytest_llmroof.analysis.attribution import Attribution
from pytest_llmroof.analysis.clocks import clock_remedies, raised_clock
from pytest_llmroof.analysis.constants import threshold
from pytest_llmroof.analysis.decodebounds import no_context
from pytest_llmroof.analysis.diagnosis import Diagnosis, Evidence, Remedy
from pytest_llmroof.analysis.doubt import doubtful_inputs
from pytest_llmroof.analysis.evidence import measured
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.findings import Finding
from pytest_llmroof.analysis.hardware_evidence import counters_missing, padding
from pytest_llmroof.analysis.hardware_notes import moved_less
from pytest_llmroof.analysis.losses import late_rank_possible
from pytest_llmroof.analysis.measurement import Outcomes
from pytest_llmroof.analysis.metrics import Family
from pytest_llmroof.analysis.observed import Observed
from pytest_llmroof.analysis.parts import PARTS, of_clock, of_part
from pytest_llmroof.analysis.remedies import remedies
from pytest_llmroof.analysis.scenarios import combined_name, combined_title, missing, without_scenario
from pytest_llmroof.analysis.sources import with_remedy
from pytest_llmroof.analysis.thresholds import remedy
from pytest_llmroof.analysis.vendors import profile_wanted, vendor_of

_WINDOWS: Final = ("window", "whole")
#: The instruments that show timelines.
_TIMELINES: Final = ("torch_profile", "nsys")
#: Ranks that a line names.
_MOST_RANKS: Final = 8


def diagnose(
    facts: WindowFacts,
    outcomes: Outcomes,
    attribution: Attribution | None,
    of: Family,
    observed: Observed | None = None,
    *,
    tpot_limit_seconds: float | None = None,
) -> Diagnosis:
    """The diagnosis of the time that metrics of the family ``of`` measure. Passing windows have one too.

    ``attribution`` is the window's own; where another time is asked for, it is attributed here. ``tpot_limit_seconds``
    bounds the batches that remedies offer.
    """
    split = _attribution_of(facts, outcomes, attribution, of, observed)
    ttft = split if of == "ttft" else attribute_ttft(facts, outcomes)
    # Profiles and counters tell of the steps of the window's phase, and of no first token.
    seen = observed if of != "ttft" else None
    finding = _find(facts, outcomes, split, ttft, of, seen)
    name = combined_name(finding.letters[:1] if "E" in finding.letters else finding.letters) or None
    offered = tuple(
        remedy
        for scenario in _offered(finding, name)
        # Prefill that makes others queue is made faster where all of it is: in the window's own time.
        for remedy in remedies(
            scenario,
            facts,
            attribution if scenario != name else split,
            observed=observed,
            tpot_limit_seconds=tpot_limit_seconds,
            doubted=finding.confidence == "low",
        )
    )
    return Diagnosis(
        scenario=name,
        candidates=finding.letters,
        title=finding.title or (combined_title(name) if name else without_scenario("unknown")),
        regime=regime(split),
        confidence=finding.confidence,
        of=of,
        evidence=tuple(
            one
            for one in dict.fromkeys(_evidence(facts, outcomes, split, ttft, finding, of, seen))
            # What speaks for another scenario is of another time: a queue before decode, an idle stretch.
            if not one.supports or set(one.scenario.split(" or ")) & set(finding.letters)
        ),
        remedies=(*_of_clock(facts, split, of, observed), *offered),
        missing=tuple(dict.fromkeys(_missing(facts, finding, split, of, observed))),
    )


def _of_clock(
    facts: WindowFacts, split: Attribution | None, of: Family, observed: Observed | None
) -> tuple[Remedy, ...]:
    """What raises a lowered clock: for the clock itself, and where it takes a part of the time asked for."""
    if of == "clock":
        return raised_clock(facts)
    return clock_remedies(facts, split, observed) if of not in PARTS else ()


def regime(attribution: Attribution | None) -> str | None:
    """What bounds the time: ``memory: weights``, ``memory: KV``, ``compute``, or ``overhead`` where most is neither."""
    if attribution is None:
        return None
    weights, kv = attribution.share("memory floor: weights"), attribution.share("memory floor: KV")
    compute = attribution.share("compute floor", "interleaved prefill")
    if weights + kv + compute == 0:
        return None
    if 1 - weights - kv - compute - attribution.share("kernel ceiling", "clock") > threshold("overhead_regime"):
        return "overhead"
    if compute > weights + kv:
        return "compute"
    return "memory: weights" if weights >= kv else "memory: KV"


def _attribution_of(
    facts: WindowFacts, outcomes: Outcomes, attribution: Attribution | None, of: Family, observed: Observed | None
) -> Attribution | None:
    """The attribution of the time asked for: the given one where it is of that time."""
    if of == "ttft":
        return attribute_ttft(facts, outcomes)
    wanted = {"decode": "decode step", "prefill": "prefill"}.get(of, attribution.of if attribution else "")
    if attribution is None or attribution.of == wanted:
        return attribution
    return attribute_decode(facts, observed) if of == "decode" else attribute_prefill(facts, observed)


def _find(
    facts: WindowFacts,
    outcomes: Outcomes,
    split: Attribution | None,
    ttft: Attribution | None,
    of: Family,
    observed: Observed | None,
) -> Finding:
    if of == "none":
        return findings.saturated(facts) or Finding((), "low", without_scenario("nothing_lost"))
    if of == "clock":
        return of_clock(facts)
    if of in PARTS:
        return of_part(facts, split, of, observed)
    # Steps are timed while they run: an idle window says nothing of the whole, but leaves its decode steps what they
    # are. Only where nothing was attributed is the lack of load what explains them.
    if of in _WINDOWS or split is None:
        found = findings.too_little_load(facts, whole=of == "whole")
        if found is not None:
            return found
    if of == "ttft" or (of in _WINDOWS and _queue_dominates(outcomes)):
        found = findings.queued(facts, ttft)
        if found is not None:
            return found
    if split is None:
        return _by_kernels(facts) or Finding((), "low")
    return _near_a_roof(facts, outcomes, split) or findings.largest_loss(facts, split, observed)


def _by_kernels(facts: WindowFacts) -> Finding | None:
    """What most of the profiled kernels' time speaks for, where nothing else tells where time went."""
    table = facts.profile.kernels if facts.profile is not None else None
    if table is None:
        return None
    from pytest_llmroof.analysis.kernelevidence import leading

    letter = leading(table, facts.deployment.accelerator)
    return Finding((letter,), "medium") if letter is not None else None


def _near_a_roof(facts: WindowFacts, outcomes: Outcomes, split: Attribution) -> Finding | None:
    if split.of == "ttft":
        return findings.first_token(facts, split)
    found = None
    if split.of == "decode step":
        found = findings.near_memory_roof(facts, outcomes, split) or findings.interleaved(split)
        if found is not None and found.letters == ("A",) and moved_less(facts):
            found = replace(found, confidence="low")  # memory itself says that it was not that busy
    return found or findings.near_compute_roof(facts, outcomes, split)


def _queue_dominates(outcomes: Outcomes) -> bool:
    """Whether the queue makes most of a whole request's time."""
    queue, whole = measured(outcomes, "queue.mean"), measured(outcomes, "e2e.mean")
    if queue is None or whole is None or whole.value <= 0:
        return False
    return queue.value / whole.value >= threshold("queue_majority")


def _offered(finding: Finding, name: str | None) -> tuple[str, ...]:
    """The scenarios whose remedies are offered: with a queue that prefill causes, those of prefill as well."""
    if name is None:
        return ()
    return (name, "B") if finding.letters == ("E", "B") else (name,)


def _evidence(
    facts: WindowFacts,
    outcomes: Outcomes,
    split: Attribution | None,
    ttft: Attribution | None,
    finding: Finding,
    of: Family,
    observed: Observed | None,
) -> Iterator[Evidence]:
    if of == "clock":
        return
    yield from evidence.of_load(facts, whole=of == "whole")
    if of in PARTS:
        for one in evidence.of_losses(facts, split, finding.letters, observed, least=0.0):
            if set(one.scenario.split(" or ")) & set(finding.letters):
                yield one
        return
    yield from evidence.of_admission(facts, ttft, finding.cause)
    decode = split is not None and split.of == "decode step"
    if of != "ttft":
        yield from evidence.of_roofs(outcomes, split, decode)
    elif split is not None and "E" not in finding.letters:
        yield from evidence.of_first_token(facts, split, finding.letters)
    if finding.letters != ("G",) and "E" not in finding.letters:
        yield from padding(facts, outcomes)
        yield from _of_kernels(facts, finding)
        yield from evidence.of_losses(facts, split, finding.letters, observed)


def _of_kernels(facts: WindowFacts, finding: Finding) -> Iterator[Evidence]:
    """What kernels that were profiled one by one speak for, and what their profiler's own rules say of slow ones."""
    table = facts.profile.kernels if facts.profile is not None else None
    if table is None:
        return
    from pytest_llmroof.analysis.kernelevidence import kernel_evidence, letter_of
    from pytest_llmroof.analysis.kernelpoints import kernel_points, rule_quotes

    gpu = facts.deployment.accelerator
    yield from kernel_evidence(table, gpu)
    if "F" in finding.letters:
        slow = [point for point in kernel_points(table, gpu) if letter_of(point) == "F"]
        for quote in rule_quotes(slow):
            yield Evidence("F", True, quote, table.location)


def _ranks_missing(
    facts: WindowFacts, split: Attribution | None, observed: Observed | None, letters: tuple[str, ...]
) -> Iterator[AnyAdvice]:
    """Ranks wait for one whose own trace is not here, or may do so."""
    if observed is None or not observed.partial or split is None:
        return
    wanted = profile_wanted(vendor_of(facts))
    seen = f"{observed.ranks} of {observed.ranks_of} ranks {'was' if observed.ranks == 1 else 'were'} profiled"
    if observed.late_rank is None and split.share("exposed communication: waiting") >= threshold("lost_share"):
        yield behind(f"{seen}, not the late one; ", wanted)
    elif observed.ranks > 1 and "C" in letters and late_rank_possible(split, observed):
        others = sorted(set(range(observed.ranks_of)) - set(observed.captured)) if observed.captured else []
        which = f", not {_numbered(others)}" if others else ""
        yield behind(f"{seen}{which}: whether all of them wait for another one; ", wanted)


def _numbered(ranks: list[int]) -> str:
    """``ranks 2 and 3``, of many the first ones."""
    front, rest = ranks[:_MOST_RANKS], ranks[_MOST_RANKS:]
    *names, last = [*map(str, front), *([f"{len(rest)} more"] if rest else [])]
    return f"ranks {', '.join(names)} and {last}" if names else f"rank {last}"


def _profiled(observed: Observed | None) -> bool:
    """Whether a profile told all that a profile can."""
    return observed is not None and observed.by == "profile" and all(observed.sees(letter) for letter in "CD")


def _missing(
    facts: WindowFacts, finding: Finding, split: Attribution | None, of: Family, observed: Observed | None
) -> Iterator[AnyAdvice]:
    """What would tell more: inputs in doubt, why nothing could be split, and what tells candidates apart."""
    if split is not None and split.of == "decode step" and (doubt := doubtful_inputs(facts, split)) is not None:
        yield doubt
    if split is None and finding.letters != ("G",) and of in ("decode", "prefill", *_WINDOWS):
        yield from (behind(f"{key}: ", with_remedy(key, why)) for key, why in facts.deployment.missing.items())
    if split is None and of == "prefill" and facts.phase != "prefill":
        yield remedy("prefill_window")
    if split is None and of == "decode" and facts.decode is None:
        yield remedy("decode_window")
    if split is not None and split.may_be("cache reads"):
        reason, advice = no_context(facts)
        yield behind(f"{reason}; ", advice)
    yield from _ranks_missing(facts, split, observed, finding.letters)
    unexplained = finding.letters == ("E",) and finding.cause is None
    if finding.letters == ("G",) or unexplained or finding.confidence == "low":
        letters = finding.letters or ((PARTS[of][1],) if of in PARTS else ())
        told = list(counters_missing(facts, letters))
        yield from told
        # Counters that were recorded need no second look; what they lack was just said.
        had = [*_TIMELINES] if _profiled(observed) else []
        had.extend(["dcgm"] if facts.window.hardware is not None else [])
        yield from missing(letters, have=had, vendor=vendor_of(facts))
