"""GGUF headers as models: every byte of them, and what a step reads and computes."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from gguf_files import EMBEDDING, FINAL_NORM, HEAD, attention, dense, feed_forward, gguf, keys
from hypothesis import given
from hypothesis import strategies as some

from pytest_llmroof.errors import ConfigError, UnknownModelError
from pytest_llmroof.roofline.cost import step_cost
from pytest_llmroof.roofline.deployment import Deployment, element_bytes
from pytest_llmroof.roofline.models.gguf import GgufModel
from pytest_llmroof.roofline.models.ggufheader import HeaderError, read_header
from pytest_llmroof.roofline.models.ggufreading import model_from_gguf
from pytest_llmroof.roofline.models.precisions import default_compute, own_dtype, stated_weights
from pytest_llmroof.roofline.step import Prefill, Step

# Q4_K: 144 bytes for 256 elements; Q6_K: 210; F16: 2 each; F32: 4 each.
Q4, Q6 = 144 / 256, 210 / 256
LAYER = 2 * 256 * 256 + 2 * 256 * 128 + 3 * 256 * 512
LAYER_BYTES = (LAYER - 256 * 128) * Q4 + 256 * 128 * Q6 + 2 * 256 * 4
ONE, HUGE = b"\1" + b"\0" * 7, b"\xff" * 7 + b"\x7f"
EMBEDDING_BYTES, HEAD_BYTES, NORM_BYTES = 256 * 1000 * Q4, 256 * 1000 * 2, 256 * 4


def model(data: bytes) -> GgufModel:
    return model_from_gguf(read_header(data), "tiny")


def built(metadata: dict[str, Any], tensors: list[Any]) -> GgufModel:
    return model(gguf(metadata, tensors))


def test_a_dense_model_to_the_byte() -> None:
    tiny = model(dense())
    assert tiny.weight_bytes("bf16") == EMBEDDING_BYTES + 2 * LAYER_BYTES + NORM_BYTES + HEAD_BYTES
    assert tiny.parameters == tiny.active_parameters == 2 * (LAYER + 2 * 256) + 256 + 2 * 256 * 1000
    assert tiny.matmul_parameters == 2 * LAYER + 256 * 1000
    assert (tiny.layers, tiny.hidden_size, tiny.attention_heads, tiny.title) == (2, 256, 4, "Tiny")
    # 2 layers x keys and values x 2 heads x 64 x 2 bytes
    assert tiny.kv_bytes_per_token("fp16") == 2 * 2 * 2 * 64 * 2


def test_a_decode_step_looks_the_embedding_up() -> None:
    cost = step_cost(Deployment(model=model(dense()), weights="q4_k", kv_cache="fp16"), Step(sequences=2, context=100))
    rows = 2 * 256 * Q4
    assert cost.weight_bytes == 2 * LAYER_BYTES + NORM_BYTES + HEAD_BYTES + rows
    assert cost.kv_bytes == 2 * (100 + 1) * 1024
    # 2 per matrix element and token; 4 heads x 64 x 4 per key
    assert cost.flops == 2 * 2 * (2 * LAYER + 256 * 1000) + 2 * 2 * 4 * 4 * 64 * 100


def test_a_tied_table_is_the_head() -> None:
    layers = [*attention(0), *feed_forward(0), *attention(1), *feed_forward(1)]
    tied = built(keys("llama"), [EMBEDDING, *layers, FINAL_NORM])
    assert tied.tied
    assert tied.matmul_parameters == 2 * LAYER + 256 * 1000
    cost = step_cost(Deployment(model=tied, weights="q4_k", kv_cache="fp16"), Step(sequences=1, context=1))
    assert cost.weight_bytes == tied.weight_bytes("q4_k") == EMBEDDING_BYTES + 2 * LAYER_BYTES + NORM_BYTES


def test_a_bias_of_the_head_is_no_matrix() -> None:
    layers = [*attention(0), *feed_forward(0), *attention(1), *feed_forward(1)]
    biased = built(keys("llama"), [EMBEDDING, *layers, FINAL_NORM, HEAD, ("output.bias", (1000,), "F32")])
    assert biased.matmul_parameters == 2 * LAYER + 256 * 1000
    assert biased.parameters == model(dense()).parameters + 1000


def test_ranks_copy_a_key_value_head_that_they_cannot_share() -> None:
    # One head of 64 in keys and values: the second rank reads both again, and the norms of 256, 5 in all.
    def layer(number: int) -> list[Any]:
        narrow = {"attn_k": "Q4_K", "attn_v": "Q6_K"}
        kept = [each for each in attention(number) if each[0].split(".")[2] not in narrow]
        single = [(f"blk.{number}.{name}.weight", (256, 64), kind) for name, kind in narrow.items()]
        return [*kept, *single, *feed_forward(number)]

    one = built(keys("llama", attention__head_count_kv=1), [EMBEDDING, *layer(0), *layer(1), FINAL_NORM, HEAD])
    alone, two = (
        step_cost(Deployment(one, weights="q4_k", kv_cache="fp16", tensor_parallel=ranks), Step(1, 1)).weight_bytes
        for ranks in (1, 2)
    )
    assert two - alone == 2 * 256 * 64 * (Q4 + Q6) + 5 * NORM_BYTES


def test_experts() -> None:
    joined = [
        ("blk.{0}.ffn_gate_inp.weight", (256, 8), "F32"),
        ("blk.{0}.ffn_gate_exps.weight", (256, 32, 8), "Q4_K"),
        ("blk.{0}.ffn_up_exps.weight", (256, 32, 8), "Q4_K"),
        ("blk.{0}.ffn_down_exps.weight", (256, 256, 8), "Q6_K"),
        ("blk.{0}.ffn_up_shexp.weight", (256, 32), "Q8_0"),
    ]
    layers = [
        tensor
        for layer in (0, 1)
        for tensor in (*attention(layer), *((name.format(layer), shape, kind) for name, shape, kind in joined))
    ]
    moe = built(keys("qwen3moe", expert_count=8, expert_used_count=2), [EMBEDDING, *layers, FINAL_NORM, HEAD])
    routed, shared, router = 8 * (2 * 256 * 32 + 256 * 256), 256 * 32, 256 * 8
    attended = 2 * 256 * 256 + 2 * 256 * 128
    assert moe.parameters == 2 * (attended + 512 + routed + shared + router) + 256 + 2 * 256000
    assert moe.active_parameters == moe.parameters - 2 * routed * 6 / 8
    assert moe.matmul_parameters == 2 * (attended + routed / 4 + shared + router) + 256000
    routed_bytes = 8 * (2 * 256 * 32 * Q4 + 256 * 256 * Q6)
    cost = step_cost(Deployment(model=moe, weights="q4_k", kv_cache="fp16"), Step(sequences=1, context=1))
    everything = moe.weight_bytes("q4_k") - EMBEDDING_BYTES + 256 * Q4
    assert cost.weight_bytes == pytest.approx(everything - 2 * routed_bytes * 6 / 8)
    assert (moe.experts, moe.experts_per_token) == (8, 2)


def test_experts_one_by_one() -> None:
    lone = [(f"blk.0.ffn_up.{number}.weight", (256, 32), "Q4_K") for number in range(4)]
    metadata = keys("llama", block_count=1, expert_count=4, expert_used_count=1)
    moe = built(metadata, [EMBEDDING, *attention(0), *lone, HEAD])
    assert moe.active_parameters == moe.parameters - 3 * 256 * 32


@pytest.mark.parametrize(
    ("architecture", "more", "held"),
    [
        ("llama", {}, 2 * 1000),
        ("gemma2", {"attention__sliding_window": 100}, 100 + 1000),  # even layers slide
        ("gemma3", {"attention__sliding_window": 100}, 2 * 100),  # five of six do
        ("phi3", {"attention__sliding_window": 100}, 2 * 100),
        ("llama", {"attention__sliding_window": 100, "attention__sliding_window_pattern": [False, True]}, 1100),
        ("gemma3", {"attention__sliding_window": 100, "attention__sliding_window_pattern": 2}, 1100),
        ("llama", {"attention__head_count_kv": [2, 0]}, 1000),  # the second layer attends to nothing
    ],
)
def test_what_a_context_of_a_thousand_keeps(architecture: str, more: dict[str, Any], held: int) -> None:
    tiny = built(keys(architecture, **more), [EMBEDDING, *attention(0), *attention(1)])
    # a token of a layer: keys and values of 2 heads x 64
    assert sum(mixer.held_bytes(1000, 1) for mixer in tiny.mixers) == held * 2 * 2 * 64


def test_heads_of_other_sizes_than_the_hidden_size_says() -> None:
    more = {"attention__key_length": 128, "attention__value_length": 96, "attention__head_count_kv": None}
    tiny = built(keys("llama", **more), [EMBEDDING, *attention(0)])
    assert tiny.kv_bytes_per_token("fp16") == 2 * 4 * (128 + 96) * 2


def test_latent_attention() -> None:
    more = {
        "attention__head_count_kv": 1, "attention__key_length": 576, "attention__value_length": 512,
        "attention__kv_lora_rank": 512, "attention__key_length_mla": 192, "attention__value_length_mla": 128,
        "rope__dimension_count": 64,
    }  # fmt: skip
    tiny = built(keys("deepseek2", **more), [EMBEDDING, *attention(0)])
    assert tiny.kv_bytes_per_token("bf16") == 2 * (512 + 64) * 2
    # absorbed in decode: 2 x heads x (2 x 512 + 64) per key and layer; expanded in a prompt: 2 x heads x (192 + 128)
    assert tiny.mixers[0].decode_flops(10, 1) == 2 * 2 * 4 * (2 * 512 + 64) * 10
    assert tiny.mixers[0].prompt_flops(9, 1) == 2 * 2 * 4 * (192 + 128) * 10


def test_layers_for_multi_token_prediction_are_in_the_file_alone() -> None:
    layers = [*attention(0), *attention(1), ("blk.1.nextn.eh_proj.weight", (512, 256), "Q8_0")]
    tiny = built(keys("glm4moe"), [EMBEDDING, *layers, HEAD])
    assert tiny.layers == 1
    assert tiny.left_out == ("layers that predict further tokens",)
    assert tiny.kv_bytes_per_token("fp16") == 2 * 2 * 64 * 2
    stepped = sum(part.bytes for part in tiny.parts("q4_k"))
    assert tiny.weight_bytes("q4_k") - stepped == 2 * 256 * 4 + (2 * 256**2 + 256 * 128) * Q4 + 256 * 128 * Q6 + (
        512 * 256 * 34 / 32
    )


def test_precomputed_positions_are_bytes_and_no_parameters() -> None:
    more = [("rope_freqs.weight", (64,), "F32"), ("blk.0.attn_q.bias", (256,), "F32")]
    with_table = built(keys("llama"), [EMBEDDING, *attention(0), *more, HEAD])
    without = built(keys("llama"), [EMBEDDING, *attention(0), HEAD])
    assert with_table.parameters == without.parameters + 256
    assert with_table.matmul_parameters == without.matmul_parameters
    assert with_table.weight_bytes("") == without.weight_bytes("") + (64 + 256) * 4


@pytest.mark.parametrize(
    ("kind", "word", "each", "compute"),
    [
        ("Q4_K", "q4_k", 0.5625, "bf16"),
        ("Q8_0", "q8_0", 34 / 32, "bf16"),
        ("IQ2_XXS", "iq2_xxs", 66 / 256, "bf16"),
        ("F16", "fp16", 2, "fp16"),
        ("BF16", "bf16", 2, "bf16"),
        ("MXFP4", "mxfp4", 17 / 32, "bf16"),
    ],
)
def test_the_word_for_the_weights(kind: str, word: str, each: float, compute: str) -> None:
    tensors = [EMBEDDING, *attention(0, kind), *feed_forward(0, kind), *attention(1, kind), *feed_forward(1, kind)]
    tiny = built(keys("llama"), tensors)
    assert stated_weights(tiny) == word
    assert element_bytes(word) == each
    assert own_dtype(tiny) in ("fp16", "bf16")
    assert default_compute(tiny, word, None) in (compute, "fp16")


def test_prompts_and_their_head() -> None:
    tiny = model(dense())
    cost = step_cost(Deployment(model=tiny, kv_cache="fp16"), Step(prefills=(Prefill(tokens=10),)))
    # causal pairs 55; the head for the last position only
    assert cost.flops == 2 * 2 * LAYER * 10 + 2 * 256 * 1000 + 2 * 4 * 4 * 64 * 55


@pytest.mark.parametrize("order", ["<", ">"])
def test_both_orders_of_bytes(order: str) -> None:
    data = gguf(keys("llama"), [EMBEDDING, *attention(0), HEAD], order=order)
    assert model(data).weight_bytes("") == model(gguf(keys("llama"), [EMBEDDING, *attention(0), HEAD])).weight_bytes("")


def test_vocabularies_are_passed_over() -> None:
    more = {
        "tokenizer.ggml.tokens": [f"t{number}" for number in range(1000)], "tokenizer.ggml.scores": [0.5] * 5000,
        "tokenizer.ggml.merges": [], "general.flag": True,
    }  # fmt: skip
    header = read_header(gguf({**keys("llama"), **more}, [EMBEDDING]))
    assert header.metadata["tokenizer.ggml.tokens"] == 1000
    assert header.metadata["tokenizer.ggml.scores"] == 5000
    assert header.metadata["general.flag"] is True
    assert header.tensors[0].bytes == EMBEDDING_BYTES


def test_every_cut_through_a_header_is_found() -> None:
    data = dense()
    for length in range(len(data)):
        with pytest.raises(HeaderError) as caught:
            read_header(data[:length])
        assert 0 <= caught.value.offset <= length


@pytest.mark.parametrize(
    ("data", "gist", "offset"),
    [
        (b"", "letters GGUF", 0),
        (b"GGML" + dense()[4:], "letters GGUF", 0),
        (gguf({}, [], version=1), "version 1", 4),
        (gguf({}, [], version=9), "version 9", 4),
        (gguf(keys("llama"), [("x", (100, 2), "Q4_K")]), "blocks", None),
        (gguf(keys("llama"), [("x", (), "F32")]), "0 dimensions", None),
        # Behind 24 bytes of head a text of one letter ends at 33: there stand the dimensions, or a value's type.
        (gguf({}, [("x", (), "F32")]), "0 dimensions", 33),
        (gguf(keys("llama"), [("x", (1, 1, 1, 1, 1), "F32")]), "5 dimensions", None),
        (gguf(keys("llama"), [("x", (0,), "F32")]), "blocks", None),
        (gguf({"a": "b"}, []).replace(b"\x08\0\0\0", b"\x63\0\0\0"), "type 99", 33),
        (gguf({"a": [1]}, []).replace(b"\4\0\0\0" + ONE, b"\x09\0\0\0" + ONE), "elements of", 37),
        (gguf({"ab": "c"}, []).replace(b"ab", b"\xff\xfe"), "UTF-8", None),
        (b"GGUF\3\0\0\0" + b"\xff" * 16, "ends before", None),
        (gguf({"a": ["b"]}, []).replace(ONE + b"b", HUGE + b"b"), "ends inside", None),
        (gguf({"a": ["b"]}, [])[:-9].replace(ONE, HUGE), "ends", None),
    ],
)  # fmt: skip
def test_broken_headers(data: bytes, gist: str, offset: int | None) -> None:
    with pytest.raises(HeaderError, match=gist) as caught:
        read_header(data)
    assert offset is None or caught.value.offset == offset


@given(some.integers(0, len(dense()) - 1), some.integers(0, 255))
def test_whatever_a_byte_says_the_reader_answers_in_words(place: int, byte: int) -> None:
    data = bytearray(dense())
    data[place] = byte
    # Nothing but errors in words may come out of it.
    with suppress(ConfigError, UnknownModelError):
        assert model(bytes(data)).weight_bytes("") > 0


@pytest.mark.parametrize(
    ("metadata", "tensors", "error", "gist"),
    [
        ({"general.name": "x"}, [EMBEDDING], ConfigError, "general.architecture"),
        ({**keys("llama"), "general.type": "adapter"}, [EMBEDDING], ConfigError, "not a language model"),
        (keys("clip"), [("v.patch_embd.weight", (16, 16), "F16")], ConfigError, "not a language model"),
        (keys("llama", block_count=None), [EMBEDDING], ConfigError, "llama.block_count"),
        (
            keys("deepseek2", attention__kv_lora_rank=64, rope__dimension_count=16), [EMBEDDING], ConfigError,
            "attention.key_length_mla",
        ),
        (
            keys("deepseek2", attention__kv_lora_rank=64, rope__dimension_count=16, attention__key_length=80),
            [EMBEDDING], ConfigError, "attention.value_length_mla",
        ),
        (keys("llama", block_count=2_000_000_000), [EMBEDDING], ConfigError, "2000000000 layers"),
        (keys("llama", embedding_length=True), [EMBEDDING], ConfigError, "embedding_length"),
        (keys("llama", attention__head_count_kv=[2]), [EMBEDDING], ConfigError, "each of 2 layers"),
        (keys("llama", expert_count=4, expert_used_count=5), [EMBEDDING], ConfigError, "5 of 4"),
        (
            keys("llama", expert_count=4, expert_used_count=2),
            [EMBEDDING, ("blk.0.ffn_up_exps.weight", (256, 32, 8), "Q4_K")],
            ConfigError,
            "8 experts, the header 4",
        ),
        (keys("llama"), [EMBEDDING, ("x", (256,), 99)], UnknownModelError, "type 99"),
        # what the header does tell is in the message, to go on with
        (keys("mamba"), [EMBEDDING], UnknownModelError, "parameters: 256000, weight_bytes: 144000"),
        (keys("llama", attention__sliding_window=9), [EMBEDDING], UnknownModelError, "which layers of llama slide"),
    ],
)
def test_what_is_no_model_or_not_understood(
    metadata: dict[str, Any], tensors: list[Any], error: type[Exception], gist: str
) -> None:
    with pytest.raises(error, match=gist):
        built(metadata, tensors)


def test_pipeline_stages_of_a_file() -> None:
    deployment = Deployment(model=model(dense()), weights="q4_k", kv_cache="fp16", pipeline_parallel=2)
    first, last = model(dense()).stages(2)
    assert first.weight_bytes("q4_k") == EMBEDDING_BYTES + LAYER_BYTES
    assert last.weight_bytes("q4_k") == LAYER_BYTES + NORM_BYTES + HEAD_BYTES
    assert (first.head_parameters, last.head_parameters) == (0, 256 * 1000)
    cost = step_cost(deployment, Step(1, 100))
    assert cost.busiest is not None
    assert cost.busiest.bytes == LAYER_BYTES + NORM_BYTES + HEAD_BYTES + 101 * 1024 / 2


def test_a_tied_table_stands_at_both_ends() -> None:
    layers = [*attention(0), *feed_forward(0), *attention(1), *feed_forward(1)]
    first, last = built(keys("llama"), [EMBEDDING, *layers, FINAL_NORM]).stages(2)
    assert first.weight_bytes("q4_k") == EMBEDDING_BYTES + LAYER_BYTES
    assert last.weight_bytes("q4_k") == LAYER_BYTES + NORM_BYTES + EMBEDDING_BYTES
    assert {part.access for part in first.parts("q4_k")} == {"lookup", "always"}
    assert {part.access for part in last.parts("q4_k")} == {"head", "always"}
