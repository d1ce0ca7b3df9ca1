"""The phase of a window: found from the floors of its work, or written, and then held against them."""

from __future__ import annotations

from pytest_llmroof.analysis.facts import Phase
from pytest_llmroof.analysis.floors import WorkFloors
from pytest_llmroof.analysis.thresholds import threshold
from pytest_llmroof.analysis.tokens import Tokens


def find_phase(floors: WorkFloors | None, tokens: Tokens) -> Phase:
    """The phase that the traffic shows."""
    if floors is None or not floors.joint:
        return _by_tokens(prefill_token_share(tokens))
    prefill = floors.prefill >= threshold("prefill_only") * floors.joint
    decode = floors.decode >= threshold("decode_only") * floors.joint
    if prefill == decode:
        return "mixed"
    return "prefill" if prefill else "decode"


def prefill_share(floors: WorkFloors | None, tokens: Tokens, phase: Phase) -> float | None:
    """The prefill's share of the joint floor; of the tokens where the floors are not known.

    Steps that both kinds share count for the phase in question: in a prefill window prefill has all of its own floor,
    elsewhere it has what it adds to that of the decodes.
    """
    if floors is None or not floors.joint:
        return prefill_token_share(tokens)
    if phase == "prefill":
        return min(1.0, floors.prefill / floors.joint)
    return min(1.0, max(0.0, 1 - floors.decode / floors.joint))


def prefill_token_share(tokens: Tokens) -> float | None:
    """Computed prompt tokens over all that passed through the model, None where neither is known."""
    computed, decoded = tokens.computed, tokens.decoded
    if computed is None or decoded is None or not computed + decoded:
        return None
    return computed / (computed + decoded)


def contradiction(phase: Phase, share: float | None, by_floor: bool) -> str | None:
    """How the traffic belies a written phase, None where it does not.

    A share of tokens says little of time (a prompt token costs a hundredth of a generated one): only a window without
    any token of the written phase is refused by it.
    """
    if share is None or phase == "mixed":
        return None
    opposite = 1 - share if phase == "prefill" else share
    if opposite <= threshold("contradicts") or (not by_floor and opposite < 1):
        return None
    of = "the work's floor" if by_floor else "the tokens"
    return (
        f"the window is written as {phase}, but its traffic is not: "
        f"prefill {share * 100:.0f} % of {of}, decode {(1 - share) * 100:.0f} %"
    )


def _by_tokens(share: float | None) -> Phase:
    if share is None:
        return "mixed"
    if share >= threshold("prefill_tokens"):
        return "prefill"
    return "decode" if share <= threshold("decode_tokens") else "mixed"
