"""Decode steps that nothing times or counts: how many there were, about, so that their work is not taken for none."""

from __future__ import annotations

from pytest_llmroof.analysis.facts import Busy, DecodeFacts
from pytest_llmroof.analysis.lengths import UNKNOWN_CV, mean_context
from pytest_llmroof.analysis.tokens import Tokens, observations, total
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.telemetry.window import Window
from pytest_llmroof.units import format_quantity, grouped


def unseen_decode(window: Window, tokens: Tokens, busy: Busy | None) -> DecodeFacts | None:
    """The mean decode step by Little's law, None where nothing tells how long the tokens took.

    As many sequences decode at a time as all decode time holds of the busy time. Good for the phase, for no metric:
    the time per output token is a mean over requests, whatever their lengths.
    """
    longest = busy.seconds.value if busy is not None else window.duration_seconds
    seconds = _decode_seconds(window, tokens)
    if not seconds or not longest or not tokens.decoded:
        return None
    m = _tokens_per_step(window, tokens.decoded)
    batch = max(1.0, seconds / longest / max(1, window.replicas_at_once))
    context = None
    if tokens.mean_prompt is not None and tokens.mean_output is not None:
        context = mean_context(tokens.mean_prompt, tokens.mean_output, UNKNOWN_CV)
    return DecodeFacts(
        step_seconds=Bounded.exactly(seconds / tokens.decoded * m),
        batch=Bounded.exactly(batch),
        context=context,
        steps=tokens.decoded / m / batch,
        tokens_per_step=m,
    )


def steps_of_one(tokens: Tokens) -> DecodeFacts:
    """The most decode steps that there can have been: one for each decoded token. Their seconds are not known."""
    nothing = Bounded.exactly(0.0)
    return DecodeFacts(
        nothing, batch=Bounded.exactly(1.0), context=None, steps=tokens.decoded or 0.0, tokens_per_step=1
    )


def unseen_note(tokens: Tokens, decode: DecodeFacts | None) -> str:
    """What to say of a phase that was found so, or could not be."""
    if decode is None:
        return "nothing tells how long the decoded tokens took: which phase took the time is not known; write `phase:`"
    return (
        f"nothing counts decode steps: for the phase {grouped(decode.steps)} of them are reckoned, as "
        f"{grouped(tokens.decoded or 0.0)} tokens of {format_quantity(decode.step_seconds.value, 'seconds')} each make "
        f"{decode.batch.value:.3g} sequences at a time"
    )


def _decode_seconds(window: Window, tokens: Tokens) -> float | None:
    """All decode time, summed over the requests: by the time per output token, else between first and last token."""
    each, count = total(window, "tpot"), observations(window, "tpot")
    if each and count:
        return each / count * (tokens.decoded or 0.0)
    e2e, ttft = total(window, "e2e"), total(window, "ttft")
    ended, begun = observations(window, "e2e"), observations(window, "ttft")
    if not e2e or ttft is None or not ended or not begun:
        return None
    return max(0.0, e2e / ended - ttft / begun) * ended


def _tokens_per_step(window: Window, decoded: float) -> float:
    """Tokens of a sequence in a step: accepted drafts come besides one of its own."""
    own = decoded - (window.counter("accepted_tokens") or 0.0)
    return decoded / own if own > 0 else 1.0
