"""The simulator's bytes, FLOPs and floors against published figures and hand arithmetic."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from simulator.draw import draw
from simulator.gpus import H100
from simulator.nets import LLAMA_8B, LLAMA_70B, MISTRAL_7B, MIXTRAL, Net
from simulator.physics import Work, cost_of, exchange_seconds, floor_of, kernel_seconds
from simulator.plan import Causes
from simulator.timing import Timer


@pytest.mark.parametrize(
    ("net", "parameters"),
    [
        (LLAMA_8B, 8_030_261_248),
        (LLAMA_70B, 70_553_706_496),
        (MISTRAL_7B, 7_248_023_552),
        (MIXTRAL, 46_702_792_704),
    ],
    ids=lambda value: value.name if isinstance(value, Net) else "",
)
def test_weights_are_those_of_the_published_models(net: Net, parameters: int) -> None:
    """In 16 bit, to the last parameter."""
    assert net.stored_bytes == pytest.approx(2 * parameters, rel=1e-12)


def test_a_decode_step() -> None:
    """Four sequences of 1 000 tokens on Llama 3.1 8B."""
    cost = cost_of(LLAMA_8B, Work(decodes=4, contexts=4000.0))
    # All weights but the input embedding's: (8 030 261 248 - 128 256 x 4 096) x 2 B.
    assert cost.weights == (8_030_261_248 - 128_256 * 4_096) * 2
    # 2 x 32 layers x 8 heads x 128 x 2 B a token; 4 000 are read, 4 written.
    assert cost.kv == 131_072 * 4_004
    # Two FLOPs a weight of a matrix, and 4 x 32 x 32 x 128 for each of 4 x 1 001 pairs.
    matrices = 8_030_261_248 - 128_256 * 4_096 - 65 * 4_096
    assert cost.linear == 2 * matrices * 4
    assert cost.attention == 4 * 32 * 32 * 128 * 4_004
    floor = floor_of(H100, 1, cost)
    assert floor.seconds == pytest.approx((15_009_849_344 + 524_812_288) / 3.35e12)  # 4.64 ms, memory
    assert floor_of(H100, 2, cost).seconds == pytest.approx(floor.seconds / 2)


def test_a_prompt_in_chunks_costs_what_it_costs_whole() -> None:
    """Attention of 0 + 1 024 and 1 024 + 1 024 tokens: 2 048 x 2 049 / 2 pairs; logits for one row."""
    whole = cost_of(LLAMA_8B, Work(chunks=((2048, 0),), ending=1))
    first, second = (
        cost_of(LLAMA_8B, Work(chunks=((1024, before),), ending=ending)) for before, ending in ((0, 0), (1024, 1))
    )
    assert whole.attention == 4 * 32 * 32 * 128 * 2048 * 2049 / 2
    assert first.attention + second.attention == whole.attention
    assert first.linear + second.linear == whole.linear
    assert first.weights + second.weights == 2 * whole.weights


def test_experts_are_hit_as_even_routing_has_it() -> None:
    """Of 8 experts one token hits 2; two tokens 8 (1 - 0.75²) = 3.5."""
    assert MIXTRAL.experts_hit(1) == pytest.approx(2)
    assert MIXTRAL.experts_hit(2) == pytest.approx(3.5)


def test_drafts_attend_to_each_other() -> None:
    """One sequence of 100 tokens with 3 drafts: 101 + 102 + 103 + 104 pairs, and four rows of logits."""
    cost = cost_of(LLAMA_8B, Work(decodes=1, contexts=100.0, drafted=3))
    assert cost.attention == 4 * 32 * 32 * 128 * (101 + 102 + 103 + 104)
    assert cost.kv == 131_072 * 104


def test_gemms_and_attention_each_have_their_roof() -> None:
    """A step whose GEMMs compute and whose attention reads takes the sum of both, more than the larger roof."""
    cost = cost_of(LLAMA_8B, Work(decodes=16, contexts=400_000.0, chunks=((2048, 0),)))
    floor = floor_of(H100, 1, cost)
    taken = kernel_seconds(H100, 1, cost, 1.0, 1.0, 1.0)
    assert taken == pytest.approx(cost.linear / 989e12 + cost.kv / 3.35e12)
    assert taken > floor.seconds


def test_an_all_reduce() -> None:
    """200 kB between 4: 8 us and 1.5 x 200 kB over 400 GB/s, 0.75 us."""
    assert exchange_seconds(4, 200e3, 8e-6, 400e9) == pytest.approx(8.75e-6)
    assert exchange_seconds(1, 200e3, 8e-6, 400e9) == 0.0


@pytest.mark.parametrize("kind", ["latency", "bandwidth"])
def test_planted_causes_take_their_share_of_a_typical_step(kind: str) -> None:
    """30 % communication and 20 % idle time, without noise."""
    drawn = next(one for one in map(draw, range(200)) if one.plan.planted == "A" and one.plan.split > 1)
    causes = Causes(communication=0.3, idle=0.2, communication_kind="latency" if kind == "latency" else "bandwidth")
    plan = replace(drawn.plan, causes=causes, noise=0.0, health=replace(drawn.plan.health, skew=0.0))
    parts = Timer(plan, drawn.typical).time(drawn.typical, random.Random(1))
    assert parts.transport / parts.total == pytest.approx(0.3)
    assert parts.within / parts.total == pytest.approx(0.2)
    assert parts.total == pytest.approx(parts.kernels / 0.5)


def test_eight_bit_matrices_leave_the_head_and_norms_as_they_are() -> None:
    """32 layers of 218 103 808 weights in one byte; the head's 525 336 576 and 65 norms of 4 096 in two."""
    net = replace(LLAMA_8B, matrix_bytes=1.0, cache_bytes=1.0)
    cost = cost_of(net, Work(decodes=4, contexts=4000.0))
    assert cost.weights == 32 * 218_103_808 + 2 * (525_336_576 + 65 * 4_096)
    assert cost.kv == 131_072 / 2 * 4_004
    assert floor_of(H100, 1, cost).compute == pytest.approx(cost.flops / 1979e12)


def test_a_low_clock_slows_arithmetic_and_no_memory() -> None:
    prompts, decodes = cost_of(LLAMA_8B, Work(chunks=((4096, 0),))), cost_of(LLAMA_8B, Work(4, 4000.0))
    for cost, factor in ((prompts, 2.0), (decodes, 1.0)):
        full, half = (kernel_seconds(H100, 1, cost, 0.85, 0.75, 0.6, clock) for clock in (1.0, 0.5))
        assert half == pytest.approx(factor * full)


def test_a_late_rank_takes_its_share_of_a_typical_step() -> None:
    drawn = next(one for one in map(draw, range(200)) if one.plan.planted == "A" and one.plan.split > 1)
    for kind in ("work", "host"):
        causes = Causes(late=0.4, late_kind="work" if kind == "work" else "host")
        plan = replace(drawn.plan, causes=causes, noise=0.0, health=replace(drawn.plan.health, skew=0.0))
        parts = Timer(plan, drawn.typical).time(drawn.typical, random.Random(1))
        assert parts.late / parts.total == pytest.approx(0.4)
        assert (parts.late_work, parts.late_host).index(0.0) == (1 if kind == "work" else 0)
