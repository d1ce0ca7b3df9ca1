"""A config whose model_type is not understood, with the user's word that its layers are a plain decoder's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_llmroof.errors import ConfigError, UnknownModelError
from pytest_llmroof.gates.file import load_gate_file
from pytest_llmroof.resolve import resolve
from pytest_llmroof.resolve.modelfile import model_of

OWN: dict[str, Any] = {
    "model_type": "our_own", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "rope_theta": 1e6, "torch_dtype": "bfloat16",
    "layer_types": None,
}  # fmt: skip
# two layers: q and o 64 x 64, k and v 32 x 64, gate, up and down 128 x 64, two norms; two tables, a last norm
PARAMETERS = 2 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 128 * 64 + 2 * 64) + 2 * 100 * 64 + 64


def own(folder: Path, **changes: Any) -> Path:
    (folder / "config.json").write_text(json.dumps({**OWN, **changes}))
    return folder


def test_the_users_word_makes_it_a_decoder(tmp_path: Path) -> None:
    own(tmp_path)
    with pytest.raises(UnknownModelError, match="architecture: decoder"):
        model_of("./config.json", tmp_path)
    model = model_of({"config": "config.json", "architecture": "decoder"}, tmp_path)
    assert model.parameters == PARAMETERS
    assert model.kv_bytes_per_token("bf16") == 2 * 2 * 2 * 16 * 2
    # a folder does as well, and a config alone is read as it is elsewhere
    assert model_of({"config": ".", "architecture": "decoder"}, tmp_path).parameters == PARAMETERS
    own(tmp_path, model_type="llama")
    assert model_of({"config": "."}, tmp_path).parameters == PARAMETERS


def test_what_is_understood_is_read_as_what_it_is(tmp_path: Path) -> None:
    own(tmp_path, model_type="qwen2")
    biases = 2 * (64 + 2 * 32)
    assert model_of({"config": ".", "architecture": "decoder"}, tmp_path).parameters == PARAMETERS + biases


def test_windows_are_read_where_they_are_switched_on(tmp_path: Path) -> None:
    vouched = {"config": ".", "architecture": "decoder"}

    def held(**changes: Any) -> float:
        model = model_of(vouched, own(tmp_path, sliding_window=10, **changes))
        return sum(mixer.held_bytes(100, 2) for mixer in model.mixers)  # type: ignore[attr-defined]  # attention alone is in there

    assert held() == 10 * 2 * 2 * 32 * 2
    assert held(use_sliding_window=True) == 10 * 2 * 2 * 32 * 2
    assert held(use_sliding_window=False) == 100 * 2 * 2 * 32 * 2


@pytest.mark.parametrize(
    ("changes", "gist"),
    [
        ({"num_experts": 8}, r"keys not understood: num_experts\)"),
        ({"layer_types": ["full_attention"]}, "layer_types"),
        ({"intermediate_size": None}, "keys not given: intermediate_size"),
    ],
)
def test_other_keys_are_no_plain_decoders(tmp_path: Path, changes: dict[str, Any], gist: str) -> None:
    own(tmp_path, **changes)
    with pytest.raises(UnknownModelError, match=gist) as caught:
        model_of({"config": ".", "architecture": "decoder"}, tmp_path)
    assert "parameters: 70e9" in str(caught.value)


def test_it_is_not_offered_where_it_would_not_help(tmp_path: Path) -> None:
    own(tmp_path, num_experts=8)
    with pytest.raises(UnknownModelError, match=r"keys not understood: num_experts") as caught:
        model_of("./config.json", tmp_path)
    assert "architecture" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "gist"),
    [
        ({"config": "config.json", "architecture": "encoder"}, "'decoder', not 'encoder'"),
        ({"config": "config.json", "architectur": "decoder"}, "did you mean 'architecture'"),
        ({"config": "config.json", "parameters": 7e9}, "unknown key 'parameters'"),
        ({"config": 7}, "config: expected"),
        ({"config": "model.gguf"}, "config: expected"),
        ({"config": "./elsewhere"}, "cannot be read"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, value: dict[str, Any], gist: str) -> None:
    own(tmp_path)
    with pytest.raises(ConfigError, match=gist):
        model_of(value, tmp_path)


def test_in_a_gate_file(tmp_path: Path) -> None:
    own(tmp_path)
    file = tmp_path / "x.llmroof.yaml"
    file.write_text(
        "gpu: h100\nmodel: {config: config.json, architecture: decoder}\n"
        "windows:\n  decode:\n    telemetry: recording\n    gates: [decode.mbu >= 50%]\n"
    )
    (window,) = load_gate_file(file, tmp_path)
    model = resolve(window).model
    assert model is not None
    assert model.parameters == PARAMETERS
