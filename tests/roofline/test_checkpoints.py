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
        # of 32 rows and 64 columns: q and o 2, k and v 1, gate and up 4, down 2 x 2
        (compressed(tensors(8, "float", "block", block_structure=[32, 64]), EIGHT_BIT), "fp8", LINEAR + 18 * 2),
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
        # one scale for each 32 of a row, of one byte
        (compressed(tensors(8, "float", "group", group_size=32)), "fp8", LINEAR + LINEAR / 32),
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
        # an E8M0 scale for each 32
        (compressed(tensors(4, "float", "group", group_size=32)), "mxfp4", LINEAR / 2 + LINEAR / 32),
        ({"quant_method": "modelopt", "quant_algo": "MXFP8"}, "fp8", LINEAR + LINEAR / 32),
        ({"quant_algo": "W4A16_AWQ", "group_size": 64}, "w4a16", LINEAR / 2 + LINEAR / 64 * 2),
        ({"quant_algo": "W8A8_SQ_PER_CHANNEL"}, "int8", LINEAR + ROWS * 4),
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


@pytest.mark.parametrize(
    ("entries", "left"),
    [
        ([], 0),
        (["self_attn"], 12),
        (["re:.*self_attn.*"], 12),
        ([r"re:.*layers\.\d+\.self_attn.*"], 12),
        # of one layer, of some, of ten
        (["model.layers.1.self_attn"], 1),
        (["model.layers.1.*"], 1),
        (["model.layers.1*"], 3),
        (["model.layers.0*", "layers.3.self_attn.", "model.layers.11.self_attn*"], 3),
        ([r"re:.*layers\.\d\.self_attn.*"], 10),
        ([r"re:.*layers\..\.self_attn.*"], 10),
        ([r"re:.*layers\.(2|7)\.self_attn.*"], 2),
        (["*.[23].self_attn*"], 2),
        (["*.1?.self_attn*"], 2),
        (["4.self_attn"], 1),
    ],
)
def test_layers_are_told_apart_in_every_way(entries: list[str], left: int) -> None:
    # 12 layers: attention of those that are left alone has a byte more for each element, and four scales less.
    model = small({"quant_method": "fp8", "modules_to_not_convert": [*entries, "mlp"]}, num_hidden_layers=12)
    everything = small({"quant_method": "fp8", "modules_to_not_convert": ["mlp"]}, num_hidden_layers=12)
    assert model.weight_bytes("fp8") - everything.weight_bytes("fp8") == left * (ATTENTION - 4 * 4)


def test_names_match_whole_components() -> None:
    gate = Patterns(["gate"])
    assert gate.match("model.layers.0.mlp.gate")
    assert not gate.match("model.layers.0.mlp.gate_proj")
    assert not Patterns(["model.layers.1"]).match("model.layers.10.mlp.up_proj")
    assert Patterns(["model.layers.1."]).match("model.layers.1.mlp.up_proj")
    assert Patterns(["*.mlp.shared_expert.*"]).match("model.layers.1.mlp.shared_expert.up_proj")
    assert Patterns(["re:.*mlp.*"]).match("model.layers.1.mlp.up_proj")
    assert not Patterns([""]).match("model")
    assert Patterns(["model.layers.0*"]).match("model.layers.0.mlp.up_proj")
    assert Patterns(["model.layers.*.self_attn"]).match("model.layers.3.self_attn.q_proj")
    assert not Patterns(["model.layers.*.self"]).match("model.layers.3.self_attn.q_proj")
    assert Patterns(["model.layers.1.mlp.experts.7"]).match("model.layers.1.mlp.experts.7.up_proj")
    assert not Patterns(["model.layers.1.mlp.experts.7"]).match("model.layers.1.mlp.experts.70.up_proj")


@pytest.mark.parametrize(
    "entry",
    [
        "model.language_model.layers.4.mlp", "language_model.model.layers.4.mlp", "backbone.layers.4.mlp",
        "layers.4.mlp", "language_model.model.layers.4*", r"re:^language_model\.model\.layers\.4\.",
        r"re:model\.layers\.4\.mlp.*",
        "*.layers.4.mlp.*", "*language_model*",
    ],
)  # fmt: skip
def test_what_wraps_the_decoder_does_not_matter(entry: str) -> None:
    assert Patterns([entry]).match("model.layers.4.mlp.up_proj")


def test_a_prefix_may_name_one_expert_of_one_layer() -> None:
    named = Patterns(["model.layers.3.mlp.experts.1.*"])
    assert named.which("model.layers.3.mlp.experts.{expert}.up_proj", 4) == {1}
    assert named.which("model.layers.4.mlp.experts.{expert}.up_proj", 4) == set()
    both = Patterns(["model.layers.3.mlp.experts.1.*", "model.layers.3.self_attn.*"])
    assert both.which("model.layers.3.mlp.experts.{expert}.up_proj", 4) == {1}
    assert both.which("model.layers.3.self_attn.q_proj") == {0}


@pytest.mark.parametrize(
    ("block", "gist"),
    [
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "without quantized_layers"),
        ({"quant_algo": "MIXED_PRECISION", "quantized_layers": {}}, "without quantized_layers"),
        ({"quant_algo": "MIXED_PRECISION", "quantized_layers": ["a"]}, "without quantized_layers"),
        ({"quant_algo": "MIXED_PRECISION", "quantized_layers": {"a": "FP8"}}, "is not a mapping"),
        ({"quant_algo": "MIXED_PRECISION", "quantized_layers": {"a": {"quant_algo": "INT2"}}}, "INT2"),
        ({"quant_algo": "NVFP4_SVDQUANT"}, "low-rank"),
        ({"quant_method": "gptq", "bits": 3}, "3 bits"),
        ({"quant_method": "gptq", "bits": 4, "dynamic": ["x"]}, "dynamic"),
        ({"quant_method": "gptq", "bits": 4, "dynamic": {"+:x": {"bits": 2}}}, "2 bits"),
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
        (compressed(tensors(4, "float", "group", group_size=64)), "groups of 64"),
        (compressed(tensors(8, "float", "block", block_structure=None)), "block_structure"),
        ({}, "quant_method ''"),
        ("fp8", "not a mapping"),
    ],
)
def test_what_is_not_understood_is_refused_in_words(block: Any, gist: str) -> None:
    with pytest.raises(UnknownModelError, match=gist) as caught:
        small(block)
    assert "weight_bytes" in str(caught.value)


ATTENTION, MLP = 2 * 64 * 64 + 2 * 32 * 64, 3 * 128 * 64


def test_groups_of_several_precisions() -> None:
    groups = {
        "b": {"targets": ["Linear"], "weights": tensors(8, "float", "tensor"), "input_activations": EIGHT_BIT},
        "a": {"targets": ["re:.*mlp.*"], "weights": tensors(4, "int", "group", group_size=32)},
    }
    block = {"quant_method": "compressed-tensors", "config_groups": groups, "ignore": ["lm_head"]}
    model = small(block)
    # attention in fp8 with four 2-byte scales, the mlp in 4 bits and a 2-byte scale for each 32
    assert model.weight_bytes("w4a16") == PLAIN + ATTENTION + 4 * 2 + MLP / 2 + MLP / 32 * 2
    # the narrowest gives the name, the highest peak the roof: a floor must not be above what the hardware can do
    assert stated_weights(model) == "w4a16"
    assert default_compute(model, "w4a16", None) == "fp8"


def test_a_precision_for_each_module() -> None:
    layers = {
        "model.language_model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"},
        "model.language_model.layers.0.mlp": {"quant_algo": "W4A16_NVFP4", "group_size": 16},
        "lm_head": {"quant_algo": "W4A16_NVFP4", "group_size": 16},
    }
    block = {
        "quant_algo": "MIXED_PRECISION", "quantized_layers": layers, "kv_cache_quant_algo": "FP8",
        "exclude_modules": ["mtp*"], "group_size": 16,
    }  # fmt: skip
    head, query, rest = 100 * 64, 64 * 64, 64 * 64 + 2 * 32 * 64
    # q in fp8 with one scale; mlp and head at 4.5 bits with one scale a matrix; k, v and o as they were
    expected = PLAIN - 2 * head + query + 4 + (MLP + head) * 4.5 / 8 + 4 * 4 + 2 * rest
    for config in ({**SMALL, "quantization_config": block}, {**SMALL, "text_config": {"quantization_config": block}}):
        model = model_from_config(config, "small")
        assert model.weight_bytes("nvfp4") == expected
        assert stated_weights(model) == "nvfp4"
        assert stated_cache(model) == "fp8"
        # weight-only NVFP4 computes in 16 bit, the FP8 layers in fp8
        assert default_compute(model, "nvfp4", None) == "fp8"


def test_a_cache_may_be_all_that_is_quantised() -> None:
    model = small({"quant_method": "modelopt", "quant_algo": None, "kv_cache_quant_algo": "FP8"})
    assert stated_weights(model) == "bf16"
    assert stated_cache(model) == "fp8"
    assert model.weight_bytes("bf16") == 2 * model.parameters


MOE: dict[str, Any] = {
    "model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
    "head_dim": 16,
}  # fmt: skip
MOE_EXPERT, MOE_REST = 3 * 32 * 64, 2 * (2 * 100 * 64 + 3 * 64 + 2 * 16 + 4 * 64)


def test_mxfp4_is_for_experts_alone() -> None:
    model = small({"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}, **MOE)
    assert model.weight_bytes("mxfp4") == MOE_REST + 2 * ATTENTION + 4 * MOE_EXPERT * 4.25 / 8
    assert default_compute(model, "mxfp4", None) == "bf16"


def test_experts_that_a_list_tells_apart() -> None:
    listed = {f"layers.0.ffn.experts.{number}.w3": {"quant_algo": "FP8"} for number in (0, 1, 3)}  # up_proj
    model = small({"quant_algo": "MIXED_PRECISION", "quantized_layers": listed}, **MOE)
    matrix = 32 * 64
    assert model.weight_bytes("fp8") == MOE_REST + 2 * ATTENTION + 2 * 4 * MOE_EXPERT - 3 * matrix + 3 * 4
    ignored = small({"quant_method": "fp8", "modules_to_not_convert": ["re:.*experts\\.[12]\\..*"]}, **MOE)
    assert ignored.weight_bytes("fp8") == MOE_REST + ATTENTION + 4 * 4 + 2 * MOE_EXPERT + 6 * 4 + 2 * 2 * MOE_EXPERT


def test_listed_layers_over_an_fp8_checkpoint() -> None:
    block = {
        "quant_method": "fp8", "weight_block_size": [64, 64], "quant_algo": "MIXED_PRECISION", "ignore": ["*.attn.*"],
        "quantized_layers": {"layers.0.mlp.experts": {"quant_algo": "NVFP4", "group_size": 16}},
    }  # fmt: skip
    model = small(block, **MOE)
    # attention keeps FP8 in four blocks (k and v are half a block each); experts have 4.5 bits and 12 scales of 4 bytes
    assert model.weight_bytes("nvfp4") == MOE_REST + ATTENTION + 4 * 4 + 4 * MOE_EXPERT * 4.5 / 8 + 12 * 4
    assert default_compute(model, "nvfp4", None) == "fp4"
    narrow = small({"quant_method": "fp8", "weight_block_size": [64, 64]}, expert_dtype="fp4", **MOE)
    assert narrow.weight_bytes("mxfp4") == MOE_REST + ATTENTION + 4 * 4 + 4 * MOE_EXPERT * 4.25 / 8


def test_gptq_with_settings_of_its_own_for_some_modules() -> None:
    dynamic = {"-:.*self_attn.*": {}, "+:.*down_proj": {"bits": 8, "group_size": 64}}
    model = small({"quant_method": "gptq", "bits": 4, "group_size": 32, "dynamic": dynamic})
    four, eight = 2 * 128 * 64, 64 * 128
    size = four * (1 / 2 + 2.5 / 32) + eight * (1 + 3 / 64) + (2 * 64 + 128) * 4
    assert model.weight_bytes("w4a16") == PLAIN + 2 * ATTENTION + size


def test_the_cache_that_a_config_states() -> None:
    assert stated_cache(small({"quant_algo": "FP8", "kv_cache_scheme": "FP8"})) == "fp8"
    assert stated_cache(small(compressed(tensors(8, "float", "tensor"), kv_cache_scheme=EIGHT_BIT))) == "fp8"
    assert stated_cache(small({"quant_algo": "FP8"})) is None
    for scheme, precision in (({"num_bits": 8, "type": "int"}, "int8"), ({"num_bits": 8}, "fp8"),
                              ({"num_bits": 4, "type": "float"}, "nvfp4")):  # fmt: skip
        assert stated_cache(small({"quant_algo": "FP8", "kv_cache_scheme": scheme})) == precision


def test_a_group_that_is_not_stated_has_128_inputs() -> None:
    # Rows of 64 inputs are one group; the 128 of the last matrix are one, too: one scale and zero point for each row.
    stated, silent = ({"quant_method": "awq", "bits": 4, **more} for more in ({"group_size": 128}, {}))
    assert small(silent).weight_bytes("w4a16") == small(stated).weight_bytes("w4a16") == PLAIN + LINEAR / 2 + ROWS * 2.5


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
