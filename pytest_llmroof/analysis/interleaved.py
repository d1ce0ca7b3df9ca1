"""Other requests' prompts in the mean decode step: what is known to be theirs, and what may be.

The floor that they add is counted from their steps. A profile's typical step only decodes: what the mean step is longer
is all that prompts took, so their floor is no more. That also counts how many sequences waited for each of those steps:
prompts that come at an idle start, or all together when answers of one length end, keep few waiting or none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from pytest_llmroof.analysis.attribution import Maybe
from pytest_llmroof.analysis.constants import threshold
from pytest_llmroof.analysis.facts import DecodeFacts, WindowFacts
from pytest_llmroof.analysis.observed import Observed
from pytest_llmroof.analysis.shares import Part

_UNCOUNTED: Final = "nothing counts the steps with prompts: few long ones or many short ones"
_WITHIN: Final = "roofline, and no more than the mean step is longer than the profile's, which only decodes"
_UNPROFILED: Final = "steps that also compute prompts: the profile's typical step only decodes"


@dataclass(frozen=True)
class Prompts:
    """``floor`` is known to be that of prompts, ``rest`` may be theirs. What was observed is of ``own_seconds``."""

    floor: Part
    rest: Part
    own_seconds: float


def prompts_in(facts: WindowFacts, decode: DecodeFacts, observed: Observed | None) -> Prompts:
    """What prompts take of the mean decode step, by their floors and by what the step is longer than one without them.

    The rest of that may be communication or idle time of theirs, as long as others' or longer, where only steps without
    prompts were looked at.
    """
    total, floors = decode.step_seconds.value, decode.interleaved
    if observed is not None and observed.by == "profile":
        # Beside what was observed; an estimate alone stays the one that floors and baselines are made of.
        floors = floors.scaled(_waiting(facts, decode))
    longer = _longer(facts, decode, observed)
    longest = math.inf if longer is None else longer
    least, most = min(floors.low, longest), min(floors.high, longest)
    floor = Part("interleaved prefill", least, False, _WITHIN if floors.low > longest else "roofline")
    maybe: frozenset[Maybe] = frozenset({"prompts' floor"} if most > least else ())
    if longer is None or observed is None or not _only_decodes(facts, decode, observed):
        return Prompts(floor, Part("not attributed", most - least, False, _UNCOUNTED, maybe), total)
    why = f"{_UNPROFILED}; {_UNCOUNTED}" if maybe else _UNPROFILED
    rest = Part("not attributed", longer - least, False, why, maybe | {"unprofiled steps"})
    return Prompts(floor, rest, total - longer)


def _waiting(facts: WindowFacts, decode: DecodeFacts) -> float:
    """Sequences that wait for a counted step with prompts, over those of a decode step: at the most.

    Those whose prompts it computes wait for no output. All that were ever seen, less these, may.
    """
    prefill = facts.prefill
    seen = [engine.gauges["running"].values for engine in facts.window.engines if "running" in engine.gauges]
    if prefill is None or prefill.estimated or not prefill.steps.value or facts.deployment.replicas > 1 or not seen:
        return 1.0
    most, at_once = max(map(max, seen)), prefill.requests / prefill.steps.value
    return min(1.0, max(0.0, most - at_once) / decode.batch.value) if most >= decode.batch.value else 1.0


def _longer(facts: WindowFacts, decode: DecodeFacts, observed: Observed | None) -> float | None:
    """By how much the mean step is longer than a profile's that only decodes; None where that tells nothing.

    Where no annotations tell which do, the typical step of a decode window does. One that is longer than the mean step
    is of another load.
    """
    if observed is None or observed.by != "profile" or not decode.interleaved.high:
        return None
    typical = observed.step_seconds if facts.phase == "decode" else None
    alone = observed.decoding_seconds or typical or 0.0
    return decode.step_seconds.value - alone if 0 < alone <= decode.step_seconds.value else None


def _only_decodes(facts: WindowFacts, decode: DecodeFacts, observed: Observed) -> bool:
    """Whether what a profile tells is of steps that only decode, in a window that has others, too.

    A profile whose step is another one altogether is doubted instead, for it may be of another load: unless steps with
    prompts make up for the difference where each is longer by no more than a mean step.
    """
    if facts.phase != "decode":
        return False
    mismatch = observed.mismatch(decode.step_seconds.value)
    prompts = facts.prefill.steps.high / decode.steps if facts.prefill is not None and decode.steps else 0.0
    return mismatch <= threshold("step_mismatch") or mismatch <= min(1.0, prompts)
