"""What a load generator's result alone tells of a window: tokens, and the decode step between bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Final

from pytest_llmroof.analysis.facts import Busy, DecodeFacts
from pytest_llmroof.analysis.lengths import UNKNOWN_CV, mean_context
from pytest_llmroof.analysis.tokens import Tokens
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.telemetry.client import Client
from pytest_llmroof.telemetry.runs import same_load
from pytest_llmroof.telemetry.window import Window
from pytest_llmroof.units import format_quantity

#: A first wave this many times as slow as the rest is a cold one; of fewer requests nothing is said.
_COLD: Final = 5.0
_FEWEST: Final = 20
#: A wait in the client of this share of the mean TTFT is worth a word.
_WAITED: Final = 0.1
#: Durations of a benchmark may exceed the window that frames it by as much as clocks differ.
_LONGER: Final = 1.02


def client_tokens(client: Client) -> Tokens:
    """Tokens of the completed requests. Which of the prompt tokens were cached few clients see: none, elsewhere."""
    completed = client.completed
    per_request = completed or None
    return Tokens(
        prompt=client.input_tokens,
        computed=client.input_tokens if client.computed_tokens is None else client.computed_tokens,
        generated=client.output_tokens,
        first=completed,
        finished=client.total,
        mean_prompt=client.input_tokens / per_request if client.input_tokens and per_request else None,
        mean_output=client.output_tokens / per_request if client.output_tokens and per_request else None,
    )


def client_busy(window: Window) -> Busy | None:
    """The benchmark's duration, where its load is the window's; None where it is not, or is not known."""
    client = window.client
    if client is None or client.duration_seconds is None or belongs(window) is not True:
        return None
    seconds = min(client.duration_seconds, window.duration_seconds or math.inf)
    return Busy(Bounded.exactly(seconds), f"the benchmark's duration ({client.title})")


def belongs(window: Window) -> bool | None:
    """Whether the benchmark is this window's load: as many tokens and requests, in no more time. None: unknown."""
    client = window.client
    if client is None or not window.engines:
        return client is not None
    within = None
    if client.duration_seconds is not None and window.duration_seconds is not None:
        within = client.duration_seconds <= _LONGER * window.duration_seconds + window.clock_error_seconds
    return False if within is False else same_load(window, client)


def client_notes(window: Window) -> tuple[str, ...]:
    """What to say of a benchmark: a cold start, waits in the client, or that it is not all of a server's load."""
    client = window.client
    if client is None:
        return ()
    cold = cold_start(client)
    held = client_wait(client)
    return (*((cold,) if cold else ()), *((held,) if held else ()), *_foreign(window, client))


def client_wait(client: Client) -> str | None:
    """How long the client itself held requests back, where that is no small part of what they waited for a token.

    A time to first token counts from sending: the client's own wait is none of the server's, but its users see it.
    """
    waits = [one.waited for one in client.requests if one.waited is not None]
    mean, most = client.waits.get("mean"), client.waits.get("max")
    if waits and len(waits) == len(client.requests):
        mean, most = sum(waits) / len(waits), max(waits)
    if not mean:
        return None
    firsts = [one.ttft for one in client.succeeded if one.ttft is not None]
    stated = client.summaries["ttft"].values.get("mean") if "ttft" in client.summaries else None
    ttft = sum(firsts) / len(firsts) if firsts else stated
    if ttft is not None and mean < _WAITED * ttft:
        return None
    longest = f", {format_quantity(most, 'seconds')} at most" if most is not None else ""
    return (
        f"requests waited {format_quantity(mean, 'seconds')} in {client.title} on average{longest}, before they were "
        "sent: TTFT and latency count from sending, and do not hold that"
    )


def _foreign(window: Window, client: Client) -> tuple[str, ...]:
    if not window.engines or belongs(window) is not False:
        return ()
    if same_load(window, client) is False:
        served, seen = window.counter("generation_tokens"), client.output_tokens
        counts = f" ({seen:.0f} output tokens of {served:.0f})" if served is not None and seen is not None else ""
        return (f"{client.title} is not the load of this window, or not all of it{counts}",)
    return (f"{client.title} ran for {client.duration_seconds:.1f} s, longer than the window between the scrapes",)


def client_decode(client: Client, deployment: Deployment) -> DecodeFacts | None:
    """The mean decode step as a client can bound it, None where it knows too little.

    T is the time between a request's first and last token over its tokens, up to its whole latency over them: first
    tokens that come late, with others behind them, make the rest look fast. B is at least what the same time over the
    benchmark's duration says, and at most the requests under way.
    """
    decoded, spent = _decoded(client), _decode_seconds(client)
    duration = client.duration_seconds
    m = client.accept_length or 1.0
    if not decoded or spent is None or spent[0] <= 0 or not duration:
        return None
    if deployment.speculative_tokens and client.accept_length is None:
        return None  # how many tokens a step emits is not known
    longest = max(spent[0], spent[1]) / decoded * m
    step = Bounded(spent[0] / decoded * m, spent[0] / decoded * m, longest)
    replicas = deployment.replicas
    mean = max(1.0, spent[0] / duration / replicas)
    most = max(mean, (_most(client) or client.completed or mean) / replicas)
    completed = client.completed or 1.0
    context = None
    if client.input_tokens is not None and client.output_tokens is not None:
        cv = _variation([one.output_tokens for one in client.succeeded])
        context = mean_context(client.input_tokens / completed, client.output_tokens / completed, cv)
    return DecodeFacts(
        step_seconds=step,
        batch=Bounded(mean, mean, most),
        context=context,
        steps=decoded / m / mean,
        tokens_per_step=m,
        draft_tokens=float(deployment.speculative_tokens),
        basis="time per output token at the client" + (" times tokens per step" if m != 1 else "")
        + "; batch = requests that decode at a time / replicas, at the least",
    )  # fmt: skip


def _decoded(client: Client) -> float | None:
    """Output tokens behind the first ones."""
    if client.output_tokens is None or not client.completed:
        return None
    return max(0.0, client.output_tokens - client.completed)


def _decode_seconds(client: Client) -> tuple[float, float] | None:
    """Sums over the requests: from first to last token, and from sending to last token."""
    if client.complete:
        pairs = [(one.e2e, one.ttft) for one in client.succeeded]
        known = [(e2e, ttft) for e2e, ttft in pairs if e2e is not None and ttft is not None]
        if known and len(known) == len(pairs):
            return sum(max(0.0, e2e - ttft) for e2e, ttft in known), sum(e2e for e2e, _ in known)
    means = {name: summary.values.get("mean") or None for name, summary in client.summaries.items()}
    e2e, ttft = means.get("e2e"), means.get("ttft")
    if e2e is None or ttft is None or not client.completed:
        return None
    return max(0.0, e2e - ttft) * client.completed, e2e * client.completed


def _most(client: Client) -> float | None:
    """The most requests that were under way at a time, as they began and ended, else as the tool limits them."""
    requests = (*client.succeeded, *(client.cut.under_way if client.cut else ()))
    spans = [(one.started, one.started + one.e2e) for one in requests if one.started is not None and one.e2e]
    if client.complete and spans and len(spans) == len(requests):
        moves = sorted([(start, 1) for start, _ in spans] + [(end, -1) for _, end in spans])
        under_way = most = 0
        for _, move in moves:
            under_way += move
            most = max(most, under_way)
        return float(most)
    return min(client.concurrency, client.completed) if client.concurrency and client.completed else None


def _variation(lengths: Sequence[float | None]) -> Bounded:
    """The coefficient of variation of output lengths, exact where every one is known."""
    known = [length for length in lengths if length is not None]
    if not known or len(known) < len(lengths) or not sum(known):
        return UNKNOWN_CV
    mean = sum(known) / len(known)
    return Bounded.exactly(math.sqrt(sum((length - mean) ** 2 for length in known) / len(known)) / mean)


def cold_start(client: Client) -> str | None:
    """What to say of a first wave of requests that waited far longer than the others: for kernels to be compiled, say.

    The first wave are those that were sent within a hundredth of the time in which all were.
    """
    sent = [(one.started, one.ttft) for one in client.succeeded if one.started is not None and one.ttft is not None]
    if len(sent) < _FEWEST:
        return None
    first, last = min(start for start, _ in sent), max(start for start, _ in sent)
    wave = [ttft for start, ttft in sent if start - first <= (last - first) / 100]
    rest = sorted(ttft for start, ttft in sent if start - first > (last - first) / 100)
    if not rest or len(wave) > len(rest) or median(wave) < _COLD * median(rest):
        return None
    return (
        f"the first {len(wave)} requests waited {format_quantity(median(wave), 'seconds')} for their first token, the "
        f"others {format_quantity(median(rest), 'seconds')} (medians): warm the server up before it is measured"
    )
