"""Published tables, each under its own named convention, and published figures that cannot be.

The figures are facts from the tables named beside them, typed in; conventions differ from table to table and are
written out here, over our own tensors, bytes and peaks.
"""

from __future__ import annotations

import pytest
from made_windows import deployment, engine, figures, window

from pytest_llmroof.analysis.gather import gather
from pytest_llmroof.analysis.measure import measure
from pytest_llmroof.analysis.measurement import Impossible, Measurement
from pytest_llmroof.roofline.catalogue import accelerator
from pytest_llmroof.roofline.cost import step_cost
from pytest_llmroof.roofline.models import Architecture, named_model
from pytest_llmroof.roofline.models.formats import Format
from pytest_llmroof.roofline.models.tensors import LINEAR_ROLES
from pytest_llmroof.roofline.step import Prefill, Step

# gpt-fast: what it stores, by the name of its quantisation. int8: an output channel's scale in bf16; int4: scale and
# zero point of 32 inputs in bf16 each. It quantises the head too.
GPT_FAST = {
    "bf16": Format(bits=16, scales="tensor", scale_bytes=0),
    "int8": Format(bits=8, scales="channel", scale_bytes=2),
    "int4-g32": Format(bits=4, scales="group", scale_bytes=2, group=32, zero_bits=16),
}

# pytorch-labs/gpt-fast, README at 32971d3 (September 2024), A100-80GB: model, quantisation, tensor-parallel ranks,
# tokens/s, GB/s of one GPU; whether the input embedding is among the bytes.
GPT_FAST_RUNS = [
    ("llama-2-7b", "bf16", 1, 104.9, 1397.31, False),
    ("llama-2-7b", "int8", 1, 155.58, 1069.20, True),
    ("llama-2-70b", "int8", 1, 19.13, 1322.58, True),
    ("llama-2-70b", "int4-g32", 1, 25.25, 1097.66, True),
    ("llama-3.1-8b", "int8", 1, 137.64, 1030.89, False),
    ("llama-3.1-70b", "int8", 1, 18.04, 1253.78, False),
    ("llama-2-7b", "bf16", 4, 254.02, 955.83, True),
    ("llama-2-7b", "bf16", 8, 328.43, 704.10, True),
    ("llama-2-70b", "bf16", 4, 38.01, 1340.76, True),
    ("llama-2-70b", "bf16", 8, 62.50, 1135.29, True),
    ("llama-3.1-8b", "bf16", 2, 149.10, 1197.32, False),
    ("llama-3.1-8b", "bf16", 4, 217.21, 986.32, False),
    ("llama-3.1-70b", "bf16", 2, 16.03, 1130.81, False),
    ("llama-3.1-70b", "bf16", 4, 37.45, 1360.53, False),
    ("llama-2-70b", "int8", 8, 80.44, 752.04, True),
    ("llama-2-70b", "int4-g32", 8, 90.77, 548.10, True),
    ("llama-3.1-405b", "int8", 8, 15.60, 815.87, False),
    ("llama-2-7b", "bf16", 1, 76.33, 1028.70, True),  # on one die of an MI250X
]


def gpt_fast_bytes(model: Architecture, kind: str, ranks: int, embedding: bool) -> float:
    """Of one GPU: linear layers are split, the head, the norms and the embedding are on every rank. No cache."""
    stored, total = GPT_FAST[kind], 0.0
    for tensor in model.tensors:
        if tensor.role in LINEAR_ROLES:
            total += stored.bytes(tensor) * tensor.count / ranks
        elif tensor.role == "head":
            total += stored.bytes(tensor)
        elif tensor.role == "norm" or embedding:
            total += 2 * tensor.elements * tensor.count
    return total


@pytest.mark.parametrize(("name", "kind", "ranks", "rate", "published", "embedding"), GPT_FAST_RUNS)
def test_gpt_fast(name: str, kind: str, ranks: int, rate: float, published: float, embedding: bool) -> None:
    """Bytes of a step times tokens/s, at batch 1."""
    assert gpt_fast_bytes(named_model(name), kind, ranks, embedding) * rate / 1e9 == pytest.approx(published, rel=0.01)


# MPT: layers and hidden size. Vocabulary 50 368, tied, a learnt vector for each place of the T that a sequence has, no
# biases: V d + T d + L (12 d^2 + 2 d) + d parameters.
MPT = {"1b": (24, 2048), "3b": (32, 2560), "7b": (32, 4096), "13b": (40, 5120), "30b": (48, 7168), "70b": (80, 8192)}

# mosaicml/llm-foundry, scripts/train/benchmarking/README at 8c8dd48 (July 2025): size, accelerator, precision of the
# products, GPUs, sequence length, tokens/s of all GPUs, MFU in percent.
FOUNDRY_RUNS = [
    ("70b", "h100", "bf16", 64, 2048, 66_523, 42.57),
    ("30b", "h100", "bf16", 8, 8192, 11_072, 29.92),
    ("13b", "h100", "bf16", 8, 32_768, 15_812, 31.68),
    ("13b", "h100", "bf16", 8, 2048, 38_336, 39.79),
    ("7b", "h100", "bf16", 8, 65_536, 15_654, 28.59),
    ("7b", "h100", "bf16", 8, 2048, 85_144, 46.44),
    ("3b", "h100", "bf16", 8, 512, 223_721, 46.32),
    ("1b", "h100", "bf16", 8, 65_536, 44_050, 26.34),
    ("3b", "h100", "fp8", 8, 2048, 244_692, 27.70),
    ("1b", "h100", "fp8", 8, 512, 562_523, 29.06),
    ("13b", "a100", "bf16", 8, 32_768, 8134, 51.69),
    ("13b", "a100", "bf16", 8, 1024, 18_647, 59.48),
    ("7b", "a100", "bf16", 8, 8192, 25_655, 54.47),
]


@pytest.mark.parametrize(("size", "gpu", "precision", "gpus", "length", "rate", "published"), FOUNDRY_RUNS)
def test_llm_foundry(
    size: str, gpu: str, precision: str, gpus: int, length: int, rate: float, published: float
) -> None:
    """Training: 3 (2 N + 4 L d T) FLOPs a token: forward and twice backward, attention as a full square."""
    layers, hidden = MPT[size]
    parameters = (50_368 + length) * hidden + layers * (12 * hidden**2 + 2 * hidden) + hidden
    flops = 3 * (2 * parameters + 4 * layers * hidden * length)
    peak = accelerator(gpu).peak(precision)
    assert peak is not None
    assert 100 * flops * rate / (gpus * peak) == pytest.approx(published, rel=0.01)


# deepseek-ai/DeepGEMM, first README at a6d97a1 (February 2025), H800 SXM: M, N, K, TFLOP/s, GB/s.
DEEPGEMM_RUNS = [
    (64, 2112, 7168, 206, 1688),
    (64, 32_768, 512, 219, 2143),
    (64, 4096, 7168, 287, 2320),
    (128, 2112, 7168, 352, 1509),
    (128, 32_768, 512, 358, 2103),
    (128, 4096, 7168, 533, 2221),
    (4096, 2112, 7168, 1058, 527),
    (4096, 32_768, 512, 590, 1232),
    (4096, 4096, 7168, 1304, 500),
]


@pytest.mark.parametrize(("m", "n", "k", "teraflops", "published"), DEEPGEMM_RUNS)
def test_deepgemm(m: int, n: int, k: int, teraflops: float, published: float) -> None:
    """A product in FP8 with a bf16 result: operands once, scales not counted; below both roofs of the accelerator."""
    seconds = 2 * m * n * k / (teraflops * 1e12)
    rate = (m * k + k * n + 2 * m * n) / seconds
    assert rate / 1e9 == pytest.approx(published, rel=0.01)
    gpu = accelerator("h800-sxm5")
    peak, bandwidth = gpu.peak("fp8"), gpu.memory_bandwidth_bytes_per_second
    assert peak is not None
    assert bandwidth is not None
    assert teraflops * 1e12 < peak
    assert rate < bandwidth


def test_palm_training() -> None:
    """PaLM (arXiv 2204.02311, appendix B): 6 N + 12 L H Q T FLOPs a token on 6 144 TPU v4: 46.2 %, 45.7 % without
    attention.
    """
    parameters, layers, heads, width, length, rate = 540e9, 118, 48, 256, 2048, 238_300
    peak = accelerator("tpu-v4").peak("bf16")
    assert peak is not None
    whole = 6 * parameters + 12 * layers * heads * width * length
    assert whole * rate / (6144 * peak) == pytest.approx(0.462, rel=0.01)
    assert 6 * parameters * rate / (6144 * peak) == pytest.approx(0.457, rel=0.01)


def test_palm_inference() -> None:
    """Efficiently Scaling Transformer Inference (arXiv 2211.05102): int8 weights once per 29 ms on 64 TPU v4 are 24 %
    of their bandwidth; 76 % MFU in prefill are 12 385 tokens/s at 2 N a token.
    """
    made = deployment(figures(parameters=540e9, weight_bytes=540e9), "tpu-v4", tensor_parallel=64)
    cost, bandwidth = step_cost(made, Step(sequences=1, context=0)), made.bandwidth_bytes_per_second
    assert bandwidth is not None
    assert cost.bytes / (0.029 * 64 * bandwidth) == pytest.approx(0.2368, rel=0.01)
    prefill, peak = step_cost(made, Step(prefills=(Prefill(2048),))), made.peak_flops_per_second
    assert peak is not None
    assert prefill.model_flops / 2048 * 12_385 / (64 * peak) == pytest.approx(0.76, rel=0.01)


# "MFU in inference", a note on vLLM with Llama 3.3 70B in bf16, TP 4 on H100 SXM (2025): batch of prompts of 2 083
# tokens, seconds, MFU in percent by its own count of 296 TFLOP for 2 048 tokens.
NOTE_PREFILLS = [
    (1, 0.1892281991119186, 40.22, 39.26, 38.85),
    (4, 0.6514690578915179, 46.73, 45.62, 45.14),
    (16, 2.9849893894667425, 40.79, 39.83, 39.41),
]


@pytest.mark.parametrize(("batch", "seconds", "published", "two_p", "exact"), NOTE_PREFILLS)
def test_the_notes_prefills(batch: int, seconds: float, published: float, two_p: float, exact: float) -> None:
    made, tokens = deployment("llama-3.3-70b", "h100", tensor_parallel=4), batch * 2083
    peak = made.peak_flops_per_second
    assert peak is not None
    whole = seconds * 4 * peak / 100
    assert tokens * 296e12 / 2048 / whole == pytest.approx(published, rel=0.01)
    # 2 N counts the input embedding; ours does not, counts the head once a prompt and attention as causal.
    assert 2 * 70.55e9 * tokens / whole == pytest.approx(two_p, rel=0.01)
    cost = step_cost(made, Step(prefills=(Prefill(2083, sequences=batch),)))
    assert cost.flops / whole == pytest.approx(exact, rel=0.01)


# The same note's decodes: batch, outputs, tokens/s, MFU in percent (2 N), and what ours makes of its bytes.
NOTE_DECODES = [
    (1, 900, 56.14525257503265, 0.20, 58.32),
    (4, 900, 217.7917144922433, 0.77, 56.80),
    (16, 868.75, 788.6902491295602, 2.79, 52.24),
]


@pytest.mark.parametrize(("batch", "outputs", "rate", "published", "mbu"), NOTE_DECODES)
def test_the_notes_decodes(batch: int, outputs: float, rate: float, published: float, mbu: float) -> None:
    """Bytes are per step, of which there are tokens/s over batch; by tokens they would be ``batch`` times as many."""
    made = deployment("llama-3.3-70b", "h100", tensor_parallel=4)
    peak, bandwidth = made.peak_flops_per_second, made.bandwidth_bytes_per_second
    assert peak is not None
    assert bandwidth is not None
    assert 100 * 2 * 70.55e9 * rate / (4 * peak) == pytest.approx(published, abs=0.025)
    cost = step_cost(made, Step(sequences=batch, context=138 + outputs / 2))
    assert 100 * cost.bytes * rate / batch / (4 * bandwidth) == pytest.approx(mbu, rel=0.01)


def test_a_mixture_counts_the_experts_of_a_token() -> None:
    """AI-Hypercomputer/maxtext #678: a step of Mixtral 8x7B fell from 287.78 to 79.98 TFLOP with 2 of 8 counted."""
    model = named_model("mixtral-8x7b")
    assert model.parameters / model.active_parameters == pytest.approx(287.78 / 79.98, rel=0.01)


# What was published and cannot be: the product refuses each, and says what it would imply.


def test_a_single_stream_that_one_gpu_cannot_have() -> None:
    """vllm-project/vllm #18725: QwQ-32B "on H200" at 115 tokens/s: 64 GB a step on 4.8 TB/s are 153 %: TP was not 1."""
    steps, seconds = 5000.0, 1 / 115
    load = engine(itl=seconds, outputs=steps, steps=steps, prompt=100, output=1001, requests=5, present=(1, 1))
    made = window(load, seconds=steps * seconds)
    alone = measure(gather(made, deployment("qwen2.5-32b", "h200"), "decode"))["decode.mbu"]
    assert isinstance(alone, Impossible)
    assert alone.implied == pytest.approx(1.535, rel=0.02)
    assert "tensor_parallel" in alone.check
    two = measure(gather(made, deployment("qwen2.5-32b", "h200", tensor_parallel=2), "decode"))["decode.mbu"]
    assert isinstance(two, Measurement)


@pytest.mark.parametrize(
    ("claimed", "of", "on"),
    [
        (5.63, "a100", "mi355x"),  # AMD-AGI/Primus #772: 563 % on MI355X
        (1.057, "a100", "b300"),  # allenai/OLMo-core #817 had 105.7 % on B300: within boost clocks, on the wrong part
        (3.69, "h100", None),  # GindaChen/nsys-ai #385: 369 %
    ],
)
def test_peaks_of_another_accelerator(claimed: float, of: str, on: str | None) -> None:
    """FLOPs beyond the peak of the accelerator they were held against are refused; on the one that ran they are not."""
    peak = accelerator(of).peak("bf16")
    assert peak is not None
    tokens = claimed * peak * 60 / (2 * 70e9)
    made = window(engine(prompt=tokens / 100, requests=100, present=(0, 0)))

    def found(gpu: str) -> object:
        on_it = deployment(figures(parameters=70e9, weight_bytes=1e9), gpu)
        return measure(gather(made, on_it, "prefill"))["window.mfu"]

    outcome = found(of)
    if claimed > 1.10 * 1.02:
        assert isinstance(outcome, Impossible)
        assert outcome.implied == pytest.approx(claimed, rel=0.01)
    if on is not None:
        right = found(on)
        assert isinstance(right, Measurement)
        assert right.value < 0.8
