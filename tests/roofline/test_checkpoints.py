"""Quantised checkpoints: what is stored at which precision, scales counted, embedding and head left alone."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_llmroof.errors import UnknownModelError
from pytest_llmroof.roofline.models import Architecture, model_from_config, named_model
from pytest_llmroof.roofline.models.patterns import Patterns
from pytest_llmroof.roofline.models.precisions import default_compute, stated_cache, stated_weights

# One layer of q, o 64 x 64, k, v 32 x 64, gate, up 128 x 64, down 64 x 128; vocabulary 100
SMALL: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
}  # fmt: skip
LINEAR = 2 * 64 * 64 + 2 * 32 * 64 + 3 * 128 * 64
ROWS = 64 + 32 + 32 + 64 + 128 + 128 + 64
COLUMNS = 6 * 64 + 128
PLAIN = 2 * (2 * 100 * 64 + 3 * 64)  # embedding, head and three norms, 2 bytes each


def small(block: dict[str, Any], **changes: Any) -> Architecture:
    return model_from_config({**SMALL, **changes, "quantization_config": block}, "small")


def tensors(bits: int, kind: str, strategy: str, **more: Any) -> dict[str, Any]:
    return {"num_bits": bits, "type": kind, "strategy": strategy, "symmetric": True, **more}


def compressed(weights: dict[str, Any], inputs: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, "ignore": ["lm_head"], **more}


EIGHT_BIT = {"num_bits": 8, "type": "float", "dynamic": True}


@pytest.mark.parametrize(
    ("block", "precision", "size"),
    [
        # one fp32 scale for each of the seven matrices
        ({"quant_method": "fp8", "activation_scheme": "static"}, "fp8", LINEAR + 7 * 4),
        # fp32 scales of 64 x 64 blocks: q 1, k 1, v 1, o 1, gate 2, up 2, down 2
        ({"quant_method": "fp8", "weight_block_size": [64, 64]}, "fp8", LINEAR + 10 * 4),
        ({"quant_method": "fbgemm_fp8", "modules_to_not_convert": []}, "fp8", LINEAR + ROWS * 4),
        (compressed(tensors(8, "float", "channel"), EIGHT_BIT), "fp8", LINEAR + ROWS * 2),
        (compressed(tensors(8, "float", "tensor"), EIGHT_BIT), "fp8", LINEAR + 7 * 2),
        (compressed(tensors(8, "float", "block", block_structure="64x64"), EIGHT_BIT), "fp8", LINEAR + 10 * 2),
        (compressed(tensors(8, "int", "channel"), {"num_bits": 8, "type": "int"}), "int8", LINEAR + ROWS * 2),
        # 4 bits and a 2-byte scale for each 32 of a row
        (compressed(tensors(4, "int", "group", group_size=32)), "w4a16", LINEAR / 2 + LINEAR / 32 * 2),
        # not symmetric: a 4-bit zero point beside each scale
        (
            compressed({**tensors(4, "int", "group", group_size=32), "symmetric": False}),
            "w4a16",
            LINEAR / 2 + LINEAR / 32 * 2.5,
        ),
        ({"quant_method": "awq", "bits": 4, "group_size": 32}, "w4a16", LINEAR / 2 + LINEAR / 32 * 2.5),
        # GPTQ stores zero points always, and the group of each input channel in 4 bytes
        ({"quant_method": "gptq", "bits": 4, "group_size": 32}, "w4a16", LINEAR / 2 + LINEAR / 32 * 2.5 + COLUMNS * 4),
        # one group is a whole row
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "int8", LINEAR + ROWS * 3 + COLUMNS * 4),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8", LINEAR + 7 * 4),
        (compressed(tensors(4, "float", "tensor_group", group_size=16)), "nvfp4", LINEAR / 2 + LINEAR / 16 + 7 * 4),
        # only what a scheme names: the seven matrices but for those of attention
        (
            {"quant_method": "gptq", "bits": 4, "group_size": 32, "modules_in_block_to_quantize": [["mlp"]]},
            "w4a16",
            (3 * 128 * 64) * (1 / 2 + 2.5 / 32) + (2 * 64 + 128) * 4 + 2 * (LINEAR - 3 * 128 * 64),
        ),
        # an fp8 scale for each 16, and one fp32 scale a matrix
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4", LINEAR / 2 + LINEAR / 16 + 7 * 4),
    ],
)
def test_bytes_by_hand(block: dict[str, Any], precision: str, size: float) -> None:
    model = small(block)
    assert stated_weights(model) == precision
    assert model.weight_bytes(precision) == PLAIN + size
    assert model.parameters == LINEAR + 2 * 100 * 64 + 3 * 64  # parameters do not shrink with their bits


def test_the_head_is_quantised_only_where_a_scheme_says_so() -> None:
    everything = {**compressed(tensors(8, "float", "channel"), EIGHT_BIT), "ignore": []}
    assert small(everything).weight_bytes("fp8") == PLAIN - 100 * 64 + 100 * 2 + LINEAR + ROWS * 2
    tied = small(everything, tie_word_embeddings=True)
    assert tied.weight_bytes("fp8") == PLAIN - 2 * 100 * 64 + LINEAR + ROWS * 2


@pytest.mark.parametrize("entry", ["self_attn", "model.layers.0.self_attn.", "re:.*self_attn.*", "*self_attn*"])
def test_ignored_modules_keep_their_bits(entry: str) -> None:
    model = small({"quant_method": "fp8", "modules_to_not_convert": ["lm_head", entry]})
    attention = 2 * 64 * 64 + 2 * 32 * 64
    assert model.weight_bytes("fp8") == PLAIN + LINEAR + attention + 3 * 4


def test_experts_and_their_router() -> None:
    moe = {
        "model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
        "head_dim": 16,
    }  # fmt: skip
    base = {"quant_method": "fp8", "modules_to_not_convert": ["gate"]}
    expert, attention = 3 * 32 * 64, 2 * 64 * 64 + 2 * 32 * 64
    norms = 3 * 64 + 2 * 16
    plain = 2 * (2 * 100 * 64 + norms + 4 * 64)  # with the router
    quantised = small(base, **moe)
    assert quantised.weight_bytes("fp8") == plain + attention + 4 * expert + (4 + 4 * 3) * 4
    one_left = small({**base, "modules_to_not_convert": ["mlp.experts.3"]}, **moe)
    assert one_left.weight_bytes("fp8") == quantised.weight_bytes("fp8") + expert - 3 * 4


def test_names_match_whole_components() -> None:
    gate = Patterns(["gate"])
    assert gate.match("model.layers.0.mlp.gate")
    assert not gate.match("model.layers.0.mlp.gate_proj")
    assert not Patterns(["model.layers.1"]).match("model.layers.10.mlp.up_proj")
    assert Patterns(["model.layers.1."]).match("model.layers.1.mlp.up_proj")
    assert Patterns(["*.mlp.shared_expert.*"]).match("model.layers.1.mlp.shared_expert.up_proj")
    assert Patterns(["re:.*mlp.*"]).match("model.layers.1.mlp.up_proj")
    assert not Patterns([""]).match("model")


@pytest.mark.parametrize(
    ("block", "gist"),
    [
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "MIXED_PRECISION"),
        ({"quant_method": "gptq", "bits": 3}, "3 bits"),
        ({"quant_method": "gptq", "bits": 4, "dynamic": {"x": {}}}, "dynamic"),
        ({"quant_method": "fp8", "weight_block_size": 128}, "weight_block_size"),
        ({"quant_method": "compressed-tensors", "config_groups": {}}, "config_groups"),
        ({**compressed(tensors(8, "float", "tensor")), "sparsity_config": {"format": "sparse-24"}}, "sparse-24"),
        (compressed(tensors(8, "float", "tensor"), {"num_bits": 6, "type": "float"}), "6 bits"),
        (compressed(tensors(8, "float", "odd")), "odd"),
        ({"quant_method": "fp8", "ignored_layers": ["re:("]}, "regular expression"),
        ({"quant_method": "fp8", "weight_block_size": [128, "x"]}, "two numbers"),
        ({"quant_algo": "NVFP4", "group_size": 32}, "groups of 32"),
        ({"quant_algo": "FP8", "kv_cache_scheme": "INT3"}, "INT3"),
        ({"quant_method": "awq", "bits": 4, "group_size": "all"}, "group_size"),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": {"targets": ["Linear"]}}}, "without weights"),
        ({**compressed(tensors(4, "int", "group", group_size=32)), "format": "marlin-24"}, "marlin-24"),
        (compressed(tensors(2, "int", "channel")), "2 bits"),
        (compressed(tensors(4, "float", "group", group_size=32)), "NVFP4's 16"),
        (compressed(tensors(8, "float", "block", block_structure=None)), "block_structure"),
        ({}, "quant_method ''"),
        ("fp8", "not a mapping"),
    ],
)
def test_what_is_not_understood_is_refused_in_words(block: Any, gist: str) -> None:
    with pytest.raises(UnknownModelError, match=gist) as caught:
        small(block)
    assert "weight_bytes" in str(caught.value)


def test_layers_of_several_precisions_are_refused() -> None:
    groups = {
        "a": {"targets": ["re:.*mlp.*"], "weights": tensors(4, "int", "group", group_size=32)},
        "b": {"targets": ["Linear"], "weights": tensors(8, "float", "tensor"), "input_activations": EIGHT_BIT},
    }
    with pytest.raises(UnknownModelError, match="several precisions"):
        small({"quant_method": "compressed-tensors", "config_groups": groups})


def test_the_cache_that_a_config_states() -> None:
    assert stated_cache(small({"quant_algo": "FP8", "kv_cache_scheme": "FP8"})) == "fp8"
    assert stated_cache(small(compressed(tensors(8, "float", "tensor"), kv_cache_scheme=EIGHT_BIT))) == "fp8"
    assert stated_cache(small({"quant_algo": "FP8"})) is None


def test_compute_follows_the_activations() -> None:
    eight = small(compressed(tensors(8, "float", "channel"), EIGHT_BIT))
    only_weights = small(compressed(tensors(8, "float", "channel")))
    assert default_compute(eight, "fp8", None) == "fp8"
    assert default_compute(only_weights, "fp8", None) == "bf16"
    assert default_compute(small({"quant_algo": "NVFP4"}), "nvfp4", None) == "fp4"
    assert default_compute(named_model("llama-3.1-8b"), "w4a16", None) == "bf16"
    assert default_compute(named_model("llama-3.1-8b"), "fp8", None) == "fp8"


def test_weights_quantised_without_a_config() -> None:
    # Only the layers' matrices: 68.45e9 at 1 byte; embedding, head and norms at 2. 70.55e9 of weights are read.
    model = named_model("llama-3.1-70b")
    linear = 69501714432 - 128256 * 8192
    assert model.weight_bytes("fp8") == linear + 2 * (model.parameters - linear)
    # W4A16 in groups of 128: 4.156 bits
    assert model.weight_bytes("w4a16") == linear * 4.15625 / 8 + 2 * (model.parameters - linear)
