"""What a load generator saw of one benchmark run: the client's side of a window. Times are seconds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_llmroof.advice import AnyAdvice


@dataclass(frozen=True)
class Request:
    """One request. ``None`` is what the file does not tell, or what the request does not have.

    ``ttft`` counts from sending, ``e2e`` to the last token. ``tpot`` is (e2e - ttft) / (output tokens - 1) unless the
    tool says otherwise; a single token has none. ``itls`` are the times between the pieces that came in, a piece being
    one token or several: as ``piece_tokens`` says of every piece, the first one included, where the tool knows it.
    ``started`` is on the run's own clock. ``waited`` is how long the client itself held it back before it was sent,
    which no latency holds. Of a failed request only these two count. ``most_tokens`` is there where ``output_tokens``
    are only the fewest that the pieces can hold: there may be so many, and ``tpot`` is then the longest possible.
    """

    ttft: float | None = None
    e2e: float | None = None
    tpot: float | None = None
    itls: tuple[float, ...] = ()
    input_tokens: float | None = None
    output_tokens: float | None = None
    started: float | None = None
    failed: bool = False
    piece_tokens: tuple[float, ...] = ()
    waited: float | None = None
    most_tokens: float | None = None

    @property
    def least_tpot(self) -> float | None:
        """The shortest that ``tpot`` may be: the same where the output tokens are known."""
        if self.tpot is None or self.most_tokens is None or self.output_tokens is None:
            return self.tpot
        return self.tpot * (self.output_tokens - 1) / (self.most_tokens - 1)

    @property
    def more_tokens(self) -> float:
        """How many output tokens there may be beyond the fewest: none where they are known."""
        return 0.0 if self.most_tokens is None else self.most_tokens - (self.output_tokens or 1.0)

    def seconds(self, latency: str) -> float | None:
        """One latency of this request; its mean time between pieces for ``itl``.

        Nothing is answered in no time: a TTFT or latency of 0 is one that the tool did not take.
        """
        if latency == "itl":
            return sum(self.itls) / len(self.itls) if self.itls else None
        if latency == "tpot":
            return self.tpot
        value: float | None = getattr(self, latency) if latency in ("ttft", "e2e") else None
        return value or None


@dataclass(frozen=True)
class Summary:
    """What a tool states of one latency: ``values`` by statistic (``mean``, ``max``, ``p50``, ``p99.9``).

    ``name`` is the tool's own for it, ``definition`` how the tool counts. Where it counts pieces of output that are not
    tokens, a token takes up to ``stretch`` times as long.
    """

    name: str
    values: Mapping[str, float]
    definition: str
    stretch: float = 1.0


@dataclass(frozen=True)
class Cut:
    """What was cut off a run as its warm-up: how many requests, and those completed ones that ended after it."""

    requests: int
    under_way: tuple[Request, ...] = ()

    def tokens(self, side: str) -> float:
        """Tokens (``input_tokens``, ``output_tokens``) of those that were under way; inf where one is not known."""
        counts = [getattr(one, side) for one in self.under_way]
        return math.inf if None in counts else float(sum(counts))


@dataclass(frozen=True)
class Client:
    """One benchmark run.

    ``completed`` and ``failed`` count requests, ``input_tokens`` and ``output_tokens`` are those of the completed ones;
    the ``*_rate`` are what the tool states per second, used where its duration is not known. ``concurrency`` is the
    most requests that were under way at a time, ``batch`` how many sequences the tool meant to keep decoding at once
    while it sent nothing else. ``computed_tokens`` are the prompt tokens that no cache held, where the tool knows it.
    ``failure`` is why requests failed, the commonest reason. ``accept_length`` and ``acceptance_rate`` are of
    speculative decoding, as the server told the tool. ``settings`` tell loads apart. ``started`` is Unix seconds;
    ``ended_local`` is when the file was written by a clock of an unknown time zone, as if that was UTC.
    """

    tool: str
    title: str
    location: str
    model_name: str | None = None
    duration_seconds: float | None = None
    completed: float | None = None
    failed: float | None = None
    input_tokens: float | None = None
    output_tokens: float | None = None
    output_rate: float | None = None
    input_rate: float | None = None
    request_rate: float | None = None
    concurrency: float | None = None
    accept_length: float | None = None
    acceptance_rate: float | None = None
    batch: float | None = None
    computed_tokens: float | None = None
    failure: str | None = None
    started: float | None = None
    ended_local: float | None = None
    requests: tuple[Request, ...] = ()
    summaries: Mapping[str, Summary] = field(default_factory=dict)
    definitions: Mapping[str, str] = field(default_factory=dict)
    """How the per-request figures of each latency are defined."""
    waits: Mapping[str, float] = field(default_factory=dict)
    """What the tool states of how long requests waited in the client before they were sent (``mean``, ``max``)."""
    settings: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    """What the tool knows of the deployment (telemetry/told.py). Never more."""
    notes: tuple[str, ...] = ()
    remedies: Mapping[str, AnyAdvice] = field(default_factory=dict)
    """What makes this tool write more: ``requests`` (per-request data), ``percentiles``, ``failed``."""

    cut: Cut | None = None
    """Where a warm-up was cut off: everything else is of the requests that started after it."""

    @property
    def total(self) -> float | None:
        """Requests that were sent and ended, either way."""
        return None if self.completed is None else self.completed + (self.failed or 0.0)

    @property
    def complete(self) -> bool:
        """Whether there is a record of every completed request."""
        if not self.requests or self.completed is None or self.total is None:
            return bool(self.requests)
        return len(self.requests) >= self.total or len(self.succeeded) >= self.completed

    @property
    def succeeded(self) -> tuple[Request, ...]:
        """Records of the requests that gave what was asked."""
        return tuple(request for request in self.requests if not request.failed)
