"""A step's bytes and FLOPs, its floor, and what healthy kernels take for it, on ``split`` GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from simulator.gpus import Gpu
from simulator.nets import BYTES, Net


@dataclass(frozen=True)
class Work:
    """What one step computes: ``decodes`` sequences with ``contexts`` cached tokens in all, ``drafted`` tokens each
    beside their own, and ``chunks`` of prompts as (new tokens, tokens before them); ``ending`` of them are last ones.
    """

    decodes: int = 0
    contexts: float = 0.0
    drafted: int = 0
    chunks: tuple[tuple[int, int], ...] = ()
    ending: int = 0

    @property
    def decode_tokens(self) -> int:
        return self.decodes * (1 + self.drafted)

    @property
    def prompt_tokens(self) -> int:
        return sum(new for new, _ in self.chunks) if self.chunks else 0

    @cached_property
    def tokens(self) -> int:
        return self.decode_tokens + self.prompt_tokens

    @property
    def decode_only(self) -> Work:
        return Work(self.decodes, self.contexts, self.drafted)


@dataclass(frozen=True)
class Cost:
    """Bytes and FLOPs over all GPUs of the replica."""

    weights: float
    kv: float
    linear: float
    attention: float
    eight_bit: bool = False
    """Whether matrices are multiplied in 8 bit."""

    @property
    def memory(self) -> float:
        return self.weights + self.kv

    @property
    def flops(self) -> float:
        return self.linear + self.attention


def cost_of(net: Net, work: Work) -> Cost:
    """Weights once; cached keys and values read once for each sequence, those of new tokens written."""
    if not work.tokens:
        return Cost(0.0, 0.0, 0.0, 0.0)
    # Each of a sequence's new tokens attends to what is cached, to itself, and to the new ones before it.
    pairs = (1 + work.drafted) * work.contexts + work.decodes * (1 + work.drafted) * (2 + work.drafted) / 2
    read = work.contexts
    for new, before in work.chunks:
        pairs += new * before + new * (new + 1) / 2
        read += before
    rows = work.decode_tokens + work.ending
    return Cost(
        weights=net.weight_bytes(work.tokens),
        kv=net.kv_bytes * (read + work.tokens),
        linear=net.token_flops * work.tokens + net.logit_flops * rows,
        attention=net.attention_flops(pairs),
        eight_bit=net.matrix_bytes < BYTES,
    )


@dataclass(frozen=True)
class Floor:
    """The least seconds for a step, by roof."""

    compute: float
    weights: float
    kv: float

    @property
    def memory(self) -> float:
        return self.weights + self.kv

    @property
    def seconds(self) -> float:
        return max(self.compute, self.memory)


def floor_of(gpu: Gpu, split: int, cost: Cost) -> Floor:
    """Everything divides evenly: these models have a key-value head at least for each GPU."""
    bandwidth = gpu.bandwidth * split
    return Floor(cost.flops / (peak_of(gpu, cost) * split), cost.weights / bandwidth, cost.kv / bandwidth)


def peak_of(gpu: Gpu, cost: Cost) -> float:
    """The peak that a step is held against: of the precision of its matrices."""
    return gpu.flops_8bit if cost.eight_bit and gpu.flops_8bit else gpu.flops


def kernel_seconds(
    gpu: Gpu, split: int, cost: Cost, reach_memory: float, reach_compute: float, reach_attention: float,
    clock: float = 1.0,
) -> float:  # fmt: skip
    """What healthy kernels take: GEMMs and attention one after the other, each as fast as its own roof and reach let.

    So a step that is compute-bound in its GEMMs and memory-bound in its attention takes longer than its joint floor.
    Attention computes in 16 bit. Arithmetic follows the ``clock``, memory does not.
    """
    bandwidth, flops = gpu.bandwidth * split, gpu.flops * split * clock
    peak = peak_of(gpu, cost) * split * clock
    gemms = max(cost.weights / (bandwidth * reach_memory), cost.linear / (peak * reach_compute))
    attention = max(cost.kv / (bandwidth * reach_memory), cost.attention / (flops * reach_attention))
    return gemms + attention


def exchange_seconds(split: int, size: float, latency: float, bandwidth: float) -> float:
    """One all-reduce of ``size`` bytes by alpha and beta: each GPU sends 2 (t - 1) / t of it."""
    if split == 1:
        return 0.0
    return latency + 2 * (split - 1) / split * size / bandwidth
