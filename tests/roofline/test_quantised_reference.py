"""Quantised checkpoints as they are published, from config.json and hf_quant_config.json, against reference figures."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from pytest_llmroof.resolve.modelfile import model_of
from pytest_llmroof.roofline.models import Architecture
from pytest_llmroof.roofline.models.precisions import stated_cache, stated_weights

#: Where the reference takes the multimodal wrapper's names in a list of modules (`language_model.model.layers.0...`,
#: `model.language_model.layers.0...`) for other modules, and quantises what the list leaves alone. Ours reads them:
#: attention (and in two of them shared experts) in 16 bit. A checkpoint of Kimi K2.6 with attention left alone is
#: published with 590 GB on disk (wafer-ai/Kimi-K2.6-NVFP4), one with the shared experts too with 595 GB
#: (ISTA-DASLab/Kimi-K2.5-P48-NVFP4-W4A4-Preview); the reference has 581 GB.
WRAPPED = {
    "nvidia/Kimi-K2.5-NVFP4": 589_837_346_524,
    "nvidia/Kimi-K2.6-NVFP4": 594_205_582_336,
    "nvidia/Qwen3.5-397B-A17B-NVFP4": 237_031_675_392,
}


def _model(folder: Path, models: Path, name: str) -> Architecture:
    """A checkpoint's folder, as it is downloaded."""
    file, home = f"{name.replace('/', '__')}.json", folder / name.replace("/", "--")
    home.mkdir()
    (home / "config.json").write_bytes((models / "configs" / file).read_bytes())
    beside = models / "hf_quant_config" / file
    if beside.is_file():
        (home / "hf_quant_config.json").write_bytes(beside.read_bytes())
    model = model_of(str(home), folder)
    assert isinstance(model, Architecture)
    return model


def test_weight_bytes_of_every_quantised_row(shared_data: Path, tmp_path: Path) -> None:
    with (shared_data / "models" / "golden.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["quant"] and not row["quant"].startswith("dtype")]
    for row in rows:
        name = row["model"]
        model = _model(tmp_path, shared_data / "models", name)
        weights = stated_weights(model)
        assert weights is not None
        expected = WRAPPED.get(name, int(row["weight_bytes"]))
        assert model.weight_bytes(weights) == pytest.approx(expected, rel=1e-5), name
        element = {"2": None, "1": "fp8"}[row["kv_dtype_bytes"]]
        assert stated_cache(model) == element, name
    assert len(rows) == 29


def test_a_list_of_modules_spelt_by_a_wrapper(tmp_path: Path) -> None:
    """The same in small, and what the reference would make of it: attention left alone, wherever the wrapper stands."""
    text = {
        "model_type": "deepseek_v3", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 100,
        "intermediate_size": 128, "moe_intermediate_size": 32, "n_routed_experts": 4, "num_experts_per_tok": 2,
        "n_shared_experts": 1, "first_k_dense_replace": 1, "num_attention_heads": 4, "num_key_value_heads": 4,
        "q_lora_rank": 32, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 16, "v_head_dim": 16,
    }  # fmt: skip
    block = {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}
    ignored = [f"language_model.model.layers.{layer}.self_attn*" for layer in (0, 1)]
    # a layer's attention: 64 x 32 + 32 x 4 x 32 down and up, 64 x 32 latent and rotary key, 16 x 4 x 32, 64 x 64 out
    attention = 64 * 32 + 32 * 128 + 64 * 32 + 16 * 128 + 64 * 64
    sizes: list[float] = []
    for exclude in ([], ignored, ["re:.*self_attn.*"], ["self_attn"]):
        home = tmp_path / str(len(sizes))
        home.mkdir()
        (home / "config.json").write_text(json.dumps({"model_type": "kimi_k25", "text_config": text}))
        (home / "hf_quant_config.json").write_text(json.dumps({"quantization": {**block, "exclude_modules": exclude}}))
        model = model_of(str(home), tmp_path)
        sizes.append(model.weight_bytes("nvfp4"))
        assert stated_cache(model) == "fp8"
    # 2 bytes in place of 4.5 bits, and no second scale for each of the five matrices
    assert sizes[1] - sizes[0] == 2 * (attention * (2 - 4.5 / 8) - 5 * 4)
    assert sizes[1] == sizes[2] == sizes[3]
