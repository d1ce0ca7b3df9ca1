"""The decode step as a client sees it that keeps a known number of sequences decoding, and times every piece."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from pytest_llmroof.analysis.clientfacts import belongs
from pytest_llmroof.analysis.clientopen import fewest_share
from pytest_llmroof.analysis.facts import DecodeFacts
from pytest_llmroof.analysis.thresholds import threshold
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.telemetry.client import Client, Request
from pytest_llmroof.telemetry.window import Window

Stretch = tuple[float, float]


@dataclass(frozen=True)
class _Pieces:
    """One request's pieces: when each came on the run's clock, and how many tokens each held."""

    times: Sequence[float]
    tokens: Sequence[float]
    prompt: float


@dataclass(frozen=True)
class _Share:
    """Of one request in a stretch: seconds from its first to its last piece, tokens and pieces behind that first one,
    the sum of the contexts that those tokens were made with, and how far its pieces came from an even pace.
    """

    seconds: float = 0.0
    tokens: float = 0.0
    pieces: float = 0.0
    contexts: float = 0.0
    uneven_seconds: float = 0.0


def steady_decode(client: Client, deployment: Deployment) -> DecodeFacts | None:
    """The mean decode step while all ``client.batch`` sequences decode; None where that never was, or is not known.

    Ramp-up and ramp-down are cut off: only the stretches count in which every sequence is between its first and its
    last piece, so that no prompt is computed in them. T is a sequence's time between its first and last piece in a
    stretch, over the tokens behind the first. Where a piece holds several tokens nobody tells how many steps made it:
    one at the least, and the value then is the longest step that is possible. Pieces may come late and then together:
    how far they are from an even pace is how far off those two times may be, and widens the interval.
    """
    if not client.batch or not client.complete:
        return None
    requests = [one for request in client.succeeded if (one := _pieces(request)) is not None]
    stretches = list(_stretches(requests, round(client.batch)))
    shares = [share for request in requests for stretch in stretches if (share := _within(request, stretch)).tokens]
    tokens, pieces = sum(share.tokens for share in shares), sum(share.pieces for share in shares)
    seconds, uneven = sum(share.seconds for share in shares), sum(share.uneven_seconds for share in shares)
    if not tokens or not seconds:
        return None
    m = client.accept_length or 1.0
    together = client.accept_length is None and tokens > threshold("piece") * pieces
    step = seconds / pieces if together else seconds / tokens * m
    replicas = deployment.replicas
    batch = client.batch / replicas
    # Of pieces that may hold more tokens than are known each step may be as much shorter.
    shortest = max(0.0, seconds - uneven) / tokens * m * fewest_share(client)
    context = sum(share.contexts for share in shares) / tokens
    return DecodeFacts(
        step_seconds=Bounded(step, shortest, step * (seconds + uneven) / seconds),
        batch=Bounded.exactly(batch) if replicas == 1 else Bounded(max(1.0, batch), 1.0, client.batch),
        context=Bounded(context, context, context + max((one.more_tokens for one in client.succeeded), default=0.0)),
        steps=max(1.0, tokens / m / client.batch),
        tokens_per_step=m,
        draft_tokens=float(deployment.speculative_tokens),
        apart=True,
        basis=_basis(client, m, tokens / pieces if together else 1.0, sum(end - start for start, end in stretches)),
    )


def kept_full(decode: DecodeFacts, window: Window, deployment: Deployment) -> DecodeFacts:
    """A server's decode step where the load was a client's that kept a known number of sequences decoding.

    The server's own batch is a mean over ramp-up and ramp-down, too. Its interval then reaches to the number that was
    kept, which is the value: outputs come from full steps nearly all. Nothing changes where fewer than half of them do.
    """
    client = window.client
    if client is None or not client.batch or deployment.replicas != 1 or belongs(window) is not True:
        return decode
    steady = steady_decode(client, deployment)
    if steady is None or not client.output_tokens or steady.steps * client.batch < client.output_tokens / 2:
        return decode
    batch = Bounded.spanning(client.batch, decode.batch.low, decode.batch.high)
    basis = f"{decode.basis}, and the {client.batch:.0f} requests that the client kept decoding"
    return replace(decode, batch=batch, basis=basis)


def _basis(client: Client, tokens_per_step: float, held: float, seconds: float) -> str:
    step = "time per output token at the client" + (" times tokens per step" if tokens_per_step != 1 else "")
    if held != 1.0:
        step += f", where a piece of the stream holds {held:.3g} tokens of one step or of several"
    return (
        f"{step}; batch = the {client.batch:.0f} requests that the client kept decoding, over the {seconds:.2f} s in "
        "which all did: ramp-up and ramp-down are cut off"
    )


def _pieces(request: Request) -> _Pieces | None:
    if request.started is None or request.ttft is None or request.input_tokens is None or not request.output_tokens:
        return None
    times = [request.started + request.ttft]
    for gap in request.itls:
        times.append(times[-1] + gap)
    if len(times) < 2:
        return None
    tokens = request.piece_tokens
    if len(tokens) != len(times):
        # Nothing tells what each holds: the first one token, the others as many as they do on average.
        tokens = (1.0, *[(request.output_tokens - 1) / (len(times) - 1)] * (len(times) - 1))
    return _Pieces(times, tokens, request.input_tokens)


def _stretches(requests: Sequence[_Pieces], batch: int) -> Iterator[Stretch]:
    """When so many requests decode at once. One that ends as another begins counts before it: no gap is made up."""
    moves = sorted(
        [(one.times[0], 1) for one in requests] + [(one.times[-1], -1) for one in requests],
        key=lambda move: (move[0], move[1]),
    )
    decoding = 0
    for (at, move), (following, _) in pairwise(moves):
        decoding += move
        if decoding >= batch and following > at:
            yield at, following


def _within(request: _Pieces, stretch: Stretch) -> _Share:
    """A request's share of a stretch: what it says of the steps from its first to its last piece in there."""
    start, end = stretch
    inside: list[tuple[float, float]] = []
    tokens = before = contexts = 0.0
    for time, held in zip(request.times, request.tokens, strict=True):
        if start <= time <= end:
            if inside:
                tokens += held
                # Its tokens are those numbered before + 1 to before + held, each made behind all earlier ones.
                contexts += held * (request.prompt + before + (held - 1) / 2)
            inside.append((time, tokens))
        before += held
    if not tokens:
        return _Share()
    first, seconds = inside[0][0], inside[-1][0] - inside[0][0]
    lags = [time - first - seconds * behind / tokens for time, behind in inside]
    return _Share(seconds, tokens, float(len(inside) - 1), contexts, max(lags) - min(lags))
