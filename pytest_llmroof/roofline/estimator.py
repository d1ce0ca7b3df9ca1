"""What vLLM's own estimator (``--enable-mfu-metrics``) computes for a step: to compare its counters like with like.

This is not what a step costs: attention is not halved for causality, latent attention is billed expanded, every tensor
between operations counts as memory traffic, scales and the embedding are left out. It is what the server would report
for a configuration, so that a difference tells of another model, parallelism or quantisation. The formulas are those of
vLLM 0.33; figures are per GPU of one engine. Symbols as in the physics: n tokens scheduled for a request, c its context
with them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import NamedTuple


@dataclass(frozen=True)
class EstimatedLatent:
    """Sizes of multi-head latent attention; ``query_rank`` is None where queries are projected at once."""

    latent: int
    rope: int
    nope: int
    value: int
    query_rank: int | None


@dataclass(frozen=True)
class EstimatedModel:
    """A model as the estimator sees it: sizes from its config, bytes of an activation, a weight, a cache element.

    ``weight_bytes`` is None for a quantisation that it does not know: it then bills the head alone. ``moe_layers`` of
    the layers are mixtures; ``sliding_layers`` see ``window`` tokens. ``size`` is the dense layers' width.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    size: int
    activation_bytes: float = 2.0
    weight_bytes: float | None = 2.0
    cache_bytes: float = 2.0
    window: int | None = None
    sliding_layers: int = 0
    experts: int = 0
    experts_per_token: int = 0
    expert_size: int = 0
    shared_experts: int = 0
    moe_layers: int = 0
    latent: EstimatedLatent | None = None


@dataclass(frozen=True)
class Parallel:
    """How the server splits the model: tensor, pipeline and data parallel degrees, and expert parallelism."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    experts: bool = False


class Scheduled(NamedTuple):
    """A request in a step: tokens scheduled, its context with them, and whether it is billed as prefill."""

    tokens: float
    context: float
    prefill: bool


@dataclass(frozen=True)
class Batch:
    """Sums over the requests of a step. ``product`` is the sum of n c; ``logits`` the rows that the head computes.

    The fields that end in ``_windowed`` cut every context to the window.
    """

    prefill_tokens: float
    decode_tokens: float
    prefill_context: float
    decode_context: float
    product: float
    logits: float
    prefill_context_windowed: float = 0.0
    decode_context_windowed: float = 0.0
    product_windowed: float = 0.0

    @property
    def tokens(self) -> float:
        """All tokens of the step."""
        return self.prefill_tokens + self.decode_tokens

    @classmethod
    def alike(cls, requests: float, each: Scheduled, window: int | None = None) -> Batch:
        """The sums for so many requests like one, which may be a mean: fractions are."""
        one = cls.of([each], window)
        return cls(*(requests * getattr(one, field.name) for field in fields(one)))

    @classmethod
    def of(cls, requests: Iterable[Scheduled], window: int | None = None) -> Batch:
        """The sums for these requests."""
        every = list(requests)
        prompts, decodes = [each for each in every if each.prefill], [each for each in every if not each.prefill]

        def seen(each: Scheduled) -> float:
            return each.context if window is None else min(each.context, window)

        decoded = sum(each.tokens for each in decodes)
        return cls(
            prefill_tokens=sum(each.tokens for each in prompts),
            decode_tokens=decoded,
            prefill_context=sum(each.context for each in prompts),
            decode_context=sum(each.context for each in decodes),
            product=sum(each.tokens * each.context for each in every),
            logits=len(prompts) + decoded,
            prefill_context_windowed=sum(map(seen, prompts)),
            decode_context_windowed=sum(map(seen, decodes)),
            product_windowed=sum(each.tokens * seen(each) for each in every),
        )


class Estimate(NamedTuple):
    """FLOPs and bytes read by one GPU."""

    flops: float = 0.0
    read: float = 0.0

    def plus(self, other: Estimate) -> Estimate:
        """The sum, component by component."""
        return Estimate(self.flops + other.flops, self.read + other.read)

    def times(self, factor: float) -> Estimate:
        """A multiple, component by component."""
        return Estimate(self.flops * factor, self.read * factor)


def estimate(model: EstimatedModel, parallel: Parallel, batch: Batch) -> Estimate:
    """What the estimator adds to its counters for one step."""
    head = _head(model, parallel, batch)
    weight = model.weight_bytes
    if weight is None:
        return head
    attention = _attention if model.latent is None else _latent_attention
    return attention(model, parallel, batch, weight).plus(_feed_forward(model, parallel, batch, weight)).plus(head)


def _attention(model: EstimatedModel, parallel: Parallel, batch: Batch, weight: float) -> Estimate:
    tokens, hidden, act = batch.tokens, model.hidden, model.activation_bytes
    queries = max(1, model.heads // parallel.tensor) * model.head_dim
    keys = max(1, model.kv_heads // parallel.tensor) * model.head_dim
    layers = model.layers / parallel.pipeline
    sliding = model.sliding_layers / parallel.pipeline
    full = layers - sliding

    def seen(whole: float, windowed: float) -> float:
        return whole * full + windowed * sliding

    product = seen(batch.product, batch.product_windowed)
    prefilled = seen(batch.prefill_context, batch.prefill_context_windowed)
    decoded = seen(batch.decode_context, batch.decode_context_windowed)
    projections = hidden * (queries + 2 * keys) + queries * hidden
    flops = 2 * tokens * projections * layers + 4 * queries * product
    read = layers * (tokens * (hidden + queries) * act + projections * weight)
    read += (batch.tokens * queries * layers + 2 * prefilled * keys) * act + 2 * decoded * keys * model.cache_bytes
    return Estimate(flops, read)


def _latent_attention(model: EstimatedModel, parallel: Parallel, batch: Batch, weight: float) -> Estimate:
    sizes, hidden, act, tokens = model.latent, model.hidden, model.activation_bytes, batch.tokens
    if sizes is None:
        raise ValueError("the model has no latent attention")
    layers, heads = model.layers // parallel.pipeline, max(1, model.heads // parallel.tensor)
    key, rank = sizes.nope + sizes.rope, sizes.query_rank
    query = heads * key * (rank or hidden) + (hidden * rank if rank else 0)
    matrices = (
        query
        + hidden * (sizes.latent + sizes.rope)
        + sizes.latent * heads * (sizes.nope + sizes.value)
        + heads * sizes.value * hidden
    )
    flops = 2 * tokens * matrices + 2 * heads * batch.product * (key + sizes.value)
    inputs = (hidden + rank if rank else hidden) + hidden + sizes.latent + heads * sizes.value
    read = weight * matrices + act * tokens * inputs
    read += act * heads * (tokens * key + batch.prefill_context * (key + sizes.value))
    read += model.cache_bytes * batch.decode_context * (sizes.latent + sizes.rope)
    return Estimate(flops, read).times(layers)


def _feed_forward(model: EstimatedModel, parallel: Parallel, batch: Batch, weight: float) -> Estimate:
    ranks = parallel.data * parallel.tensor
    tensor, expert = (1, ranks) if parallel.experts else (ranks, 1)
    dense = (model.layers - model.moe_layers) // parallel.pipeline
    mixtures = model.moe_layers // parallel.pipeline
    total = _dense(model, batch.tokens, model.size // tensor, weight).times(dense)
    if mixtures:
        total = total.plus(_mixture(model, batch.tokens, model.expert_size // tensor, expert, weight).times(mixtures))
    return total


def _dense(model: EstimatedModel, tokens: float, size: int, weight: float) -> Estimate:
    hidden, act = model.hidden, model.activation_bytes
    return Estimate(6 * hidden * size * tokens, act * tokens * (hidden + 3 * size) + 3 * hidden * size * weight)


def _mixture(model: EstimatedModel, tokens: float, size: int, ranks: int, weight: float) -> Estimate:
    hidden, act, shared = model.hidden, model.activation_bytes, model.shared_experts
    # Rows that the routed experts of this rank compute; each reaches another expert, as long as there are any.
    rows = tokens * model.experts_per_token // ranks
    hit = min(rows, model.experts // ranks)
    flops = 6 * hidden * size * (rows + shared * tokens)
    read = act * rows * (hidden + 3 * size) + 3 * hidden * size * hit * weight
    if shared:
        read += act * tokens * (hidden + 2 * size * shared + size) + 3 * hidden * size * shared * weight
    return Estimate(flops, read)


def _head(model: EstimatedModel, parallel: Parallel, batch: Batch) -> Estimate:
    """Never quantised, and billed to every pipeline stage."""
    rows, act = model.vocabulary // parallel.tensor, model.activation_bytes
    return Estimate(2 * batch.logits * model.hidden * rows, (batch.logits + rows) * model.hidden * act)
