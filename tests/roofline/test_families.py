"""Families of models: counts against the model classes' own answers, and their mixers by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_llmroof.data import load
from pytest_llmroof.errors import ConfigError, UnknownModelError
from pytest_llmroof.roofline.cost import memory_fit, step_cost
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.roofline.models import Architecture, model_from_config, named_model
from pytest_llmroof.roofline.models.families import FAMILIES
from pytest_llmroof.roofline.models.mixers import CompressedAttention, GroupedQueryAttention, Indexer, LatentAttention
from pytest_llmroof.roofline.models.precisions import own_precision
from pytest_llmroof.roofline.models.states import RecurrentState
from pytest_llmroof.roofline.step import Prefill, Step

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "models-golden.json").read_text())
ROWS: list[dict[str, Any]] = GOLDEN["models"]


@pytest.mark.parametrize("row", ROWS, ids=[row["name"] for row in ROWS])
def test_counts_of_the_model_classes(row: dict[str, Any]) -> None:
    # What tests/development/check_models.py was told by the classes themselves, on the meta device.
    model = model_from_config(row["config"], row["name"])
    assert model.parameters == row["parameters"]
    assert sum(each.elements * each.count for each in model.tensors if each.role == "expert") == row["experts"]
    assert sum(each.matrix_elements * each.count for each in model.tensors if each.is_matrix) == row["matrices"]
    if "flops" in row:
        # A framework's counter: the full square of scores, and logits of all positions.
        tokens, square = GOLDEN["tokens"], 0.0
        for mixer in model.mixers:
            square += GOLDEN["tokens"] * mixer.decode_flops(GOLDEN["tokens"], 1)
        assert 2 * model.matmul_parameters * tokens + square == row["flops"]


def test_every_family_and_every_catalogue_entry_was_asked_about() -> None:
    asked = {row["config"]["model_type"] for row in ROWS}
    # These have no class in the library that reads their files: other tests count them by hand.
    assert set(FAMILIES) - asked == {"phi-msft", "nemotron-nas", "deepseek_ref", "step3p5"}
    for name, entry in load("models.yaml").items():
        (row,) = [row for row in ROWS if row["name"] == name]
        assert row["config"] == {key: value for key, value in entry["config"].items() if key != "quantization_config"}


def test_active_parameters_are_those_of_a_tokens_experts() -> None:
    for row in ROWS:
        model = model_from_config(row["config"], row["name"])
        if model.experts:
            idle = row["experts"] * (model.experts - model.experts_per_token) / model.experts
            assert model.active_parameters == row["parameters"] - idle


def kinds(model: Architecture, kind: type) -> list[Any]:
    return [mixer for mixer in model.mixers if isinstance(mixer, kind)]


def on(model: Architecture, **changes: Any) -> Deployment:
    return Deployment(model=model, weights=own_precision(model), **changes)


# Latent attention: DeepSeek-V3 has 61 layers of 128 heads, a latent of 512 and a rotary key of 64; keys 128 + 64 wide,
# values 128.


def test_a_latent_is_cached_once_for_all_heads() -> None:
    model = named_model("deepseek-v3")
    assert model.kv_bytes_per_token("bf16") == 61 * (512 + 64) * 2 == 70272
    assert model.kv_bytes_per_token("fp8") == 35136


def test_latent_attention_is_absorbed_in_decode_and_expanded_in_a_prompt() -> None:
    deployment = on(named_model("deepseek-v3"))
    matrices = 2 * 36624596992
    decoded = step_cost(deployment, Step(1, 4096)).flops
    assert decoded == matrices + 61 * 2 * 128 * 4096 * (2 * 512 + 64) == 142841085952
    last = step_cost(deployment, Step(prefills=(Prefill(1, cached=4095),))).flops
    assert last == matrices + 61 * 2 * 128 * 4096 * (128 + 64 + 128) == 93717397504
    # causal: 1 + 2 + ... + 1024 pairs; the head on the last position only
    head = 129280 * 7168
    prompt = step_cost(deployment, Step(prefills=(Prefill(1024),))).flops
    assert prompt == 2 * (36624596992 - head) * 1024 + 2 * head + 61 * 2 * 128 * 320 * 1024 * 1025 / 2


def test_every_tensor_parallel_rank_keeps_the_latent() -> None:
    model = named_model("deepseek-v3")
    one, eight = (step_cost(on(model, tensor_parallel=t), Step(4, 1000)) for t in (1, 8))
    assert one.kv_bytes == 4 * 1001 * 70272
    assert eight.kv_bytes == 8 * one.kv_bytes
    # and what makes it: both down-projections in fp8, routers and norms in 16 bits
    down = 61 * (1536 * 7168 + 12 * 56 * 4 + 576 * 7168 + 5 * 56 * 4)
    routers = 58 * (256 * 7168 + 256) * 2
    norms = (61 * (2 * 7168 + 1536 + 512) + 7168) * 2
    assert eight.weight_bytes - one.weight_bytes == pytest.approx(7 * (down + routers + norms), rel=1e-9)


def test_data_parallel_attention_with_spread_experts() -> None:
    # DP 8 and EP 8, 32 sequences a rank: all 256 tokens route, to 256 (1 - (31/32)^256) = 255.92 of 256 experts.
    model = named_model("deepseek-v3")
    deployment = on(model, kv_cache="bf16", data_parallel=8, expert_parallel=True)
    cost = step_cost(deployment, Step(32, 1024))
    # An expert is 3 x 2048 x 7168 fp8 bytes with a 4-byte scale for each block of 128 x 128, in 58 layers.
    expert = 3 * 2048 * 7168 * (1 + 4 / 128**2) * 58
    reached = 256 * (1 - (1 - 8 / 256) ** 256)
    rest = cost.weight_bytes - reached / 8 * expert
    assert reached / 8 * expert == pytest.approx(81.7e9, rel=1e-3)
    # The rest: active parameters but for 8 experts and the embedding, at a byte; the head and the routers at two.
    shared = 37552297472 - 8 * 3 * 2048 * 7168 * 58 - 926679040
    assert rest == pytest.approx(shared + 926679040 + 58 * 256 * 7168, rel=1e-3)
    assert cost.weight_bytes == pytest.approx(98.7e9, rel=5e-3)
    # With tokens of its own rank alone it would be 68: 256 (1 - (31/32)^32) = 163.3 experts, an eighth of them here.
    alone = step_cost(on(model, kv_cache="bf16"), Step(32, 1024))
    few = 256 * (1 - (1 - 8 / 256) ** 32)
    assert alone.weight_bytes == pytest.approx(rest + few * expert)
    assert rest + few / 8 * expert == pytest.approx(69e9, rel=0.01)
    # Attention is data-parallel: each rank has its own latents, once.
    assert cost.kv_bytes == 32 * 1025 * 70272


def test_ranks_that_spread_experts_fit_what_one_cannot() -> None:
    model = named_model("deepseek-v3")
    spread = memory_fit(on(model, data_parallel=8, expert_parallel=True, accelerator=_h200()), 4096)
    assert spread is not None
    experts = 256 * 3 * 2048 * 7168 * (1 + 4 / 128**2) * 58
    assert spread.weight_bytes == pytest.approx(model.weight_bytes("fp8") - experts * 7 / 8)


def _h200() -> Any:
    from pytest_llmroof.roofline.catalogue import accelerator

    return accelerator("h200")


# Sparse attention: DeepSeek-V3.2 attends to 2048 tokens, which 64 heads of 128 pick in each layer.


def test_sparse_attention_reads_what_was_picked_and_all_index_keys() -> None:
    deployment = on(named_model("deepseek-v3.2"), kv_cache="bf16")
    near, far = (step_cost(deployment, Step(1, context)) for context in (1024, 32768))
    latent, key = 61 * 576 * 2, 61 * 128
    assert near.kv_bytes == 1025 * (latent + key)
    assert far.kv_bytes == (2048 + 1) * latent + (32768 + 1) * key
    matrices = 2 * named_model("deepseek-v3.2").matmul_parameters
    assert far.flops == matrices + 61 * 2 * 128 * 1088 * 2048 + 61 * 2 * 64 * 128 * 32768
    # Index keys are no keys and values; a sequence holds both.
    assert named_model("deepseek-v3.2").kv_bytes_per_token("bf16") == latent


def test_layers_may_share_what_an_indexer_picked() -> None:
    # GLM-5.2: layers 0, 1, 2, then each fourth from 6 on: 3 + 18 of 78
    assert [mixer.layers for mixer in kinds(named_model("glm-5.2"), Indexer)] == [21]
    assert [mixer.layers for mixer in kinds(named_model("glm-5"), Indexer)] == [78]
    keys = {"model_type": "glm_moe_dsa", "num_hidden_layers": 4, "index_topk_pattern": "FSSF"}
    assert [mixer.layers for mixer in kinds(model_from_config(keys, "x"), Indexer)] == [2]


def test_blocks_of_tokens_are_picked_for_grouped_queries() -> None:
    # MiniMax-M3: 57 of 60 layers attend to 16 blocks of 128 tokens; 4 heads of 128 on 4 key-value heads' caches
    dense, sparse = kinds(named_model("minimax-m3"), GroupedQueryAttention)
    assert (dense.layers, dense.selected, sparse.layers, sparse.selected) == (3, None, 57, 2048)
    token = 57 * 2 * 4 * 128 * 2
    assert sparse.held_bytes(32768, 2) == 32768 * token
    assert sparse.read_bytes(32768, 2) == 2048 * token
    assert sparse.decode_flops(32768, 1) == 4 * 57 * 64 * 128 * 2048


def test_compressed_entries() -> None:
    # A layer that keeps a window of 128 and an entry for each 4 tokens, of which it reads 512
    mixer = CompressedAttention(layers=1, heads=64, head_dim=512, window=128, ratio=4, selected=512)
    vector = 512 * 2
    assert mixer.held_bytes(32768, 2) == (128 + 8192) * vector
    assert mixer.read_bytes(32768, 2) == (128 + 512) * vector
    assert mixer.read_bytes(1024, 2) == (128 + 256) * vector
    assert mixer.written_bytes(1, 2) == 1.25 * vector
    assert mixer.decode_flops(32768, 1) == 4 * 64 * 512 * (128 + 512)
    assert mixer.token_elements == 512 * 1.25
    assert mixer.ways == 1


# Windows and chunks.


def test_gemma_slides_in_five_layers_of_six() -> None:
    # 27B: 62 layers, 10 of them full; 16 heads of 128, keys and values: 8192 B a token and layer
    model = named_model("gemma-3-27b")
    assert model.kv_bytes_per_token("bf16") == 62 * 8192
    assert model.kv_bytes_per_sequence(32768, "bf16") == 8192 * (10 * 32768 + 52 * 1024) == 3120562176


def test_every_other_layer_of_gpt_oss_slides() -> None:
    full, near = sorted(kinds(named_model("gpt-oss-120b"), GroupedQueryAttention), key=lambda mixer: mixer.window or 0)
    assert (full.layers, full.window, near.layers, near.window) == (18, None, 18, 128)


def test_layers_may_all_be_of_one_kind() -> None:
    """Hybrids whose files list no layer of the other kind: nothing of that is made up."""
    attends = {"model_type": "qwen3_next", "num_hidden_layers": 2, "layer_types": ["full_attention"] * 2}
    assert kinds(model_from_config(attends, "x"), RecurrentState) == []
    assert [mixer.layers for mixer in kinds(model_from_config(attends, "x"), GroupedQueryAttention)] == [2]
    recurs = {**attends, "layer_types": ["linear_attention"] * 2}
    assert kinds(model_from_config(recurs, "x"), GroupedQueryAttention) == []
    assert [mixer.layers for mixer in kinds(model_from_config(recurs, "x"), RecurrentState)] == [2]
    nemotron = {"model_type": "nemotron_h", "hybrid_override_pattern": "*-*-"}
    assert kinds(model_from_config(nemotron, "x"), RecurrentState) == []
    mixed = model_from_config({"model_type": "jamba"}, "x")
    assert {state.state_bytes for state in kinds(mixed, RecurrentState)} == {4.0}  # fp32, where nothing else is said
    jamba = {"model_type": "jamba", "num_hidden_layers": 2, "attn_layer_period": 1, "attn_layer_offset": 0}
    assert kinds(model_from_config(jamba, "x"), RecurrentState) == []


def test_mimo_attends_to_everything_in_its_first_layer_and_in_each_sixth() -> None:
    model = model_from_config({"model_type": "mimo_v2_flash", "num_hidden_layers": 12}, "x")
    held = {bool(mixer.window): mixer.numbers for mixer in kinds(model, GroupedQueryAttention)}
    assert held == {False: (0, 5, 11), True: (1, 2, 3, 4, 6, 7, 8, 9, 10)}


@pytest.mark.parametrize("types", ["full_attention", ["full_attention", 3]])
def test_a_list_of_kinds_is_a_list_of_texts(types: object) -> None:
    with pytest.raises(ConfigError, match="layer_types"):
        model_from_config({"model_type": "qwen3_next", "num_hidden_layers": 2, "layer_types": types}, "x")


def test_sizes_that_are_left_to_the_class_are_told() -> None:
    sizes = {
        "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
        "vocab_size": 100,
    }  # fmt: skip
    assert model_from_config({"model_type": "llama", **sizes}, "x").class_defaults == ()
    del sizes["hidden_size"]
    assert model_from_config({"model_type": "llama", **sizes}, "x").class_defaults == ("hidden_size",)


def test_layers_of_the_first_qwen_mixtures_slide_by_turns_below_a_number() -> None:
    keys = {"model_type": "qwen2_moe", "num_hidden_layers": 6, "sliding_window": 100, "max_window_layers": 3}
    for used, sliding in ((True, (0, 2)), (False, ())):
        model = model_from_config({**keys, "use_sliding_window": used}, "x")
        held = {mixer.window: mixer.numbers for mixer in kinds(model, GroupedQueryAttention)}
        assert held.pop(100, ()) == sliding
        assert held == {None: tuple(layer for layer in range(6) if layer not in sliding)}


def test_every_fourth_layer_of_olmo_3_sees_everything() -> None:
    model = model_from_config({"model_type": "olmo3", "num_hidden_layers": 8}, "x")
    held = {bool(mixer.window): mixer.numbers for mixer in kinds(model, GroupedQueryAttention)}
    assert held == {True: (0, 1, 2, 4, 5, 6), False: (3, 7)}


def test_a_chunk_begins_anew() -> None:
    # Llama 4: 36 of 48 layers see back to the last multiple of 8192
    chunked = next(mixer for mixer in kinds(named_model("llama-4-maverick"), GroupedQueryAttention) if mixer.chunked)
    assert (chunked.layers, chunked.window) == (36, 8192)
    # a prompt of 20000: two whole chunks and 3616 tokens of a third, each a triangle
    triangles = 2 * 8192 * 8193 / 2 + 3616 * 3617 / 2
    assert chunked.prompt_flops(0, 20000) == 4 * 36 * 40 * 128 * triangles
    # in two parts it is the same
    assert chunked.prompt_flops(0, 9000) + chunked.prompt_flops(9000, 11000) == chunked.prompt_flops(0, 20000)
    # decoding reads a chunk at most
    assert chunked.read_bytes(20000, 2) == 8192 * 36 * 2 * 8 * 128 * 2
    full = next(mixer for mixer in kinds(named_model("llama-4-maverick"), GroupedQueryAttention) if not mixer.window)
    assert full.layers == 12


def test_keys_may_be_wider_than_values() -> None:
    # MiMo-V2-Flash: 9 full layers with 4 key-value heads, 39 that slide over 129 tokens with 8; keys 192, values 128
    full, near = kinds(named_model("mimo-v2-flash"), GroupedQueryAttention)
    assert (full.layers, full.token_elements) == (9, 9 * 4 * 320)
    assert (near.layers, near.window, near.token_elements) == (39, 129, 39 * 8 * 320)
    assert full.decode_flops(100, 1) == 2 * 9 * 64 * 320 * 100


def test_one_key_value_head_whatever_the_file_says() -> None:
    assert named_model("falcon-7b").kv_bytes_per_token("bf16") == 32 * 2 * 64 * 2 == 8192
    keys = {"model_type": "falcon", "num_kv_heads": 71, "multi_query": True}
    assert model_from_config(keys, "x").kv_bytes_per_token("bf16") == 8192


# Recurrent state.


def test_a_state_is_read_and_written_in_every_step() -> None:
    # Qwen3-Next: 36 layers of 32 states of 128 x 128 in fp32, and 3 past inputs of 8192 channels in 16 bits
    model = named_model("qwen3-next-80b-a3b")
    state = 36 * (32 * 128 * 128 * 4 + 3 * 8192 * 2)
    assert model.state_bytes_per_sequence == state == 77266944
    token = 12 * 2 * 2 * 256 * 2
    assert model.kv_bytes_per_token("bf16") == token
    assert step_cost(on(model), Step(4, 1000)).kv_bytes == 4 * (2 * state + 1001 * token)
    # the first chunk of a prompt has no state to read; all of its tokens write one
    first, later = (step_cost(on(model), Step(prefills=(Prefill(64, cached),))) for cached in (0, 64))
    assert first.kv_bytes == state + 64 * token
    assert later.kv_bytes == 2 * state + (64 + 64) * token


def test_flops_of_a_state_do_not_grow_with_the_context() -> None:
    (mixer,) = kinds(named_model("qwen3-next-80b-a3b"), RecurrentState)
    # 8 FLOPs an element of the state, 2 a tap of the convolution's kernel of 4
    assert mixer.decode_flops(10, 1) == mixer.decode_flops(10**6, 1) == 36 * (8 * 32 * 128 * 128 + 2 * 8192 * 4)
    assert mixer.prompt_flops(0, 100) == 100 * mixer.decode_flops(10, 1)


@pytest.mark.parametrize(
    ("name", "layers", "state", "window", "flops"),
    [
        # Nemotron 3 Nano: 64 heads of 64 x 128; 4096 + 2 x 8 x 128 channels; 6 FLOPs an element
        ("nemotron-3-nano-30b-a3b", 23, 64 * 64 * 128, 3 * 6144, 6 * 64 * 64 * 128 + 2 * 6144 * 4),
        # Jamba: 8192 channels of 16; 6 FLOPs an element
        ("jamba-1.5-mini", 28, 8192 * 16, 3 * 8192, 6 * 8192 * 16 + 2 * 8192 * 4),
        # Kimi Linear: 32 heads of 128 x 128; a convolution over queries, keys and values
        ("kimi-linear-48b-a3b", 20, 32 * 128 * 128, 3 * 3 * 4096, 8 * 32 * 128 * 128 + 2 * 3 * 4096 * 4),
    ],
)
def test_states(name: str, layers: int, state: int, window: int, flops: int) -> None:
    (mixer,) = kinds(named_model(name), RecurrentState)
    assert (mixer.layers, mixer.state, mixer.window, mixer.token_flops) == (layers, state, window, flops)


def test_the_states_precision_is_the_files() -> None:
    keys = {"model_type": "nemotron_h", "hybrid_override_pattern": "M*"}
    half = model_from_config({**keys, "mamba_ssm_cache_dtype": "bfloat16"}, "x").state_bytes_per_sequence
    full = model_from_config(keys, "x").state_bytes_per_sequence
    assert full - half == 128 * 64 * 128 * 2
    with pytest.raises(ConfigError, match="mamba_ssm_cache_dtype"):
        model_from_config({**keys, "mamba_ssm_cache_dtype": "int8"}, "x")


def test_memory_of_sequences_with_a_state() -> None:
    model = named_model("qwen3-next-80b-a3b")
    fit = memory_fit(on(model, accelerator=_h200(), tensor_parallel=2), 1000)
    assert fit is not None
    # 2 key-value heads and 32 states on two ranks: nothing is held twice
    each = 77266944 + 1000 * 24576
    assert fit.sequences == pytest.approx((2 * 141e9 * 0.9 - 2 * fit.weight_bytes) / each)


# Where the keys stand, and what is not understood.


def test_the_text_model_in_a_text_config() -> None:
    inner = {"model_type": "gemma3_text", "hidden_size": 128, "num_hidden_layers": 6, "intermediate_size": 256}
    plain = model_from_config(inner, "x")
    nested = model_from_config({"model_type": "gemma3", "text_config": inner, "vision_config": {"depth": 3}}, "x")
    assert nested.parameters == plain.parameters
    assert (plain.left_out, nested.left_out) == ((), ("the vision tower",))
    # the text_config may leave its type, and what it shares with the whole, to the whole
    untyped = {key: value for key, value in inner.items() if key != "model_type"}
    whole = {"model_type": "gemma3", "text_config": untyped, "tie_word_embeddings": False, "torch_dtype": "float16"}
    loose = model_from_config(whole, "x")
    assert loose.parameters == plain.parameters + 262208 * 128
    assert own_precision(loose) == "fp16"
    # and may be no more than a note beside the keys
    noted = model_from_config({**inner, "text_config": {"quantization_config": {"quant_method": "fp8"}}}, "x")
    assert noted.parameters == plain.parameters
    assert own_precision(noted) == "fp8"


def test_absent_and_null_ranks() -> None:
    keys = {"model_type": "deepseek_v2", "num_hidden_layers": 1, "num_experts_per_tok": 6, "num_attention_heads": 16,
            "first_k_dense_replace": 1, "hidden_size": 2048}  # fmt: skip
    # the class's rank of 1536 where it is absent: 2048 -> 1536 -> 16 x 192, a norm; null: 2048 -> 16 x 192
    absent, null = model_from_config(keys, "x"), model_from_config({**keys, "q_lora_rank": None}, "x")
    assert absent.parameters - null.parameters == 1536 * (2048 + 3072 + 1) - 2048 * 3072


def test_layers_that_predict_further_tokens_are_left_out() -> None:
    keys = {"model_type": "glm4_moe", "num_hidden_layers": 2}
    with_them = model_from_config({**keys, "num_nextn_predict_layers": 1}, "x")
    assert with_them.parameters == model_from_config(keys, "x").parameters
    assert with_them.left_out == ("layers that predict further tokens",)


def test_layers_found_by_a_search() -> None:
    # One layer with 8 key-value heads and an MLP of 2.625 x 2/3 x 512 = 896, rounded up to 1024; one with neither half;
    # one with attention alone.
    def block(group: int | None, factor: float | None) -> dict[str, Any]:
        return {
            "attention": {"no_op": group is None, "n_heads_in_group": group, "replace_with_linear": False},
            "ffn": {"no_op": factor is None, "ffn_mult": factor, "replace_with_linear": False},
        }

    keys = {
        "model_type": "nemotron-nas", "hidden_size": 512, "num_attention_heads": 16, "num_hidden_layers": 3,
        "vocab_size": 100, "num_key_value_heads": None, "intermediate_size": None,
        "block_configs": [block(2, 2.625), block(None, None), block(4, None)],
    }  # fmt: skip
    model = model_from_config(keys, "x")
    first = 2 * 512 * 512 + 2 * 256 * 512 + 3 * 1024 * 512 + 2 * 512
    third = 2 * 512 * 512 + 2 * 128 * 512 + 512
    assert model.parameters == first + third + 2 * 100 * 512 + 512
    assert model.kv_bytes_per_token("bf16") == 2 * (256 + 128) * 2
    keys["block_configs"][0]["ffn"]["replace_with_linear"] = True  # type: ignore[index]  # JSON, of known shape
    with pytest.raises(UnknownModelError, match="replace_with_linear"):
        model_from_config(keys, "x")
    with pytest.raises(ConfigError, match="a list of 3 layers"):
        model_from_config({**keys, "block_configs": []}, "x")


def test_an_older_files_names_of_phi() -> None:
    old = {"model_type": "phi-msft", "n_embd": 2560, "n_head": 32, "n_head_kv": None, "n_layer": 32, "n_inner": None,
           "vocab_size": 51200, "tie_word_embeddings": False}  # fmt: skip
    assert model_from_config(old, "x").parameters == named_model("phi-2").parameters == 2779683840


def test_sliding_layers_with_heads_of_their_own() -> None:
    keys = {"model_type": "step3p7", "num_hidden_layers": 4, "sliding_window": 512, "hidden_size": 256, "head_dim": 16,
            "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 100, "num_experts": 8,
            "layer_types": ["full_attention", "sliding_attention"] * 2 + ["full_attention"],
            "num_nextn_predict_layers": 1}  # fmt: skip
    same = model_from_config(keys, "x")
    more = model_from_config({**keys, "attention_other_setting": {"num_attention_heads": 12}}, "x")
    # four more heads in two layers: queries and outputs of 16 x 256, and a gate each
    assert more.parameters - same.parameters == 2 * 4 * (2 * 16 * 256 + 256)
    found = kinds(more, GroupedQueryAttention)
    assert [(mixer.layers, mixer.window) for mixer in found] == [(2, None), (2, 512)]


@pytest.mark.parametrize(
    ("keys", "gist"),
    [
        ({"model_type": "kimi_linear", "routed_expert_hidden_size": 3584, "mla_use_output_gate": True},
         "mla_use_output_gate, routed_expert_hidden_size"),
        ({"model_type": "gemma4_text"}, "hidden_size_per_layer_input"),
        ({"model_type": "gemma4_text", "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 2}, "num_kv_shared"),
        ({"model_type": "minimax_m2", "shared_intermediate_size": 512}, "shared_intermediate_size"),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "MX"}, "layers of type X"),
        ({"model_type": "glm_moe_dsa", "indexer_types": ["full", "odd"]}, "indexers of type odd"),
        ({"model_type": "deepseek_v32", "q_lora_rank": None}, "q_lora_rank"),
        ({"model_type": "gemma2", "num_hidden_layers": 1, "layer_types": ["odd"]}, "layers of type odd"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused(keys: dict[str, Any], gist: str) -> None:
    with pytest.raises(UnknownModelError, match=gist):
        model_from_config(keys, "x")


@pytest.mark.parametrize(
    ("keys", "gist"),
    [
        ({"model_type": "nemotron_h"}, "'hybrid_override_pattern'"),
        ({"model_type": "deepseek_v4", "num_hidden_layers": 2, "compress_ratios": [4, 7]}, "'compress_ratios'"),
        ({"model_type": "mimo_v2_flash", "hybrid_layer_pattern": [0, 1]}, "'hybrid_layer_pattern'"),
        ({"model_type": "minimax_m3", "sparse_attention_config": 3}, "'sparse_attention_config'"),
        ({"model_type": "jamba", "mamba_dt_rank": "big"}, "'mamba_dt_rank'"),
        ({"model_type": "glm_moe_dsa", "index_topk_pattern": 3}, "'index_topk_pattern'"),
    ],
)
def test_nonsense_is_named(keys: dict[str, Any], gist: str) -> None:
    with pytest.raises(ConfigError, match=gist):
        model_from_config(keys, "x")


def test_mixers_say_how_they_share() -> None:
    assert LatentAttention(1, 8, 4, 2, 4, 4).ways == Indexer(1, 8, 4).ways == 1
    assert RecurrentState(1, 8, 4, 2, 4, 4.0).ways == 8
    assert Indexer(2, 8, 4).written_bytes(3, 2) == 3 * 2 * 4
    assert Indexer(2, 8, 4).prompt_flops(0, 2) == 2 * 2 * 8 * 4 * (1 + 2)
