"""Model types of other plugins, built like a family that is known: names, defaults, translations, what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pytest_llmroof.errors import ConfigError, UnknownModelError
from pytest_llmroof.roofline.models import model_from_config
from pytest_llmroof.roofline.models.added import architecture_from_entry, set_architectures

CONFIG = {
    "model_type": "lab_llm", "width": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 4, "torch_dtype": "bfloat16",
}  # fmt: skip
#: Embedding and head 1000 x 64 each, two layers of 4 x 64 x 64 (attention) + 3 x 64 x 128 (MLP) + 2 x 64 (norms), and
#: the last norm: 128 000 + 2 x (16 384 + 24 576 + 128) + 64.
PARAMETERS = 210_240


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    set_architectures({})


def parameters(entry: dict[str, Any], **changes: object) -> float:
    set_architectures({"lab_llm": architecture_from_entry(entry, "lab.py")})
    return model_from_config({**CONFIG, **changes}, "lab").parameters


def test_other_names_and_defaults() -> None:
    entry = {"like": "llama", "defaults": {"vocab_size": 1000}, "names": {"hidden_size": ["width"]}}
    assert parameters(entry) == PARAMETERS
    # What the file says goes before a default: 2 x 500 x 64 more.
    assert parameters(entry, vocab_size=1500) == PARAMETERS + 2 * 500 * 64


def test_a_translation_makes_the_familys_keys_and_keeps_the_precision() -> None:
    kept = {key: value for key, value in CONFIG.items() if key.startswith(("inter", "num"))}
    entry = {"like": "llama", "keys": lambda file: {**kept, "hidden_size": file["width"], "vocab_size": 1000}}
    set_architectures({"lab_llm": architecture_from_entry(entry, "lab.py")})
    model = model_from_config(CONFIG, "lab")
    assert model.parameters == PARAMETERS
    # The translation says nothing of the precision, the file does: bfloat16.
    assert model.dtype == "bf16"
    assert model_from_config({**CONFIG, "torch_dtype": "float32"}, "lab").dtype == "fp32"


def test_without_the_plugin_it_is_not_known_again() -> None:
    parameters({"like": "llama", "defaults": {"vocab_size": 1000}, "names": {"hidden_size": ["width"]}})
    set_architectures({})
    with pytest.raises(UnknownModelError, match="'lab_llm' is not understood"):
        model_from_config(CONFIG, "lab")


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (lambda file: file["widths"], "`keys` of lab.py raised KeyError: 'widths'"),
        (lambda file: 3, "`keys` of lab.py gave int, not a mapping of keys"),
    ],
)
def test_a_translation_that_fails_names_the_plugin(function: object, problem: str) -> None:
    with pytest.raises(UnknownModelError, match=problem):
        parameters({"like": "llama", "keys": function})


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (3, "expected a mapping with like, defaults, names, keys, not int"),
        ({"as": "llama"}, "unknown key 'as'"),
        ({"like": "lama"}, "not 'lama' (did you mean 'llama'"),
        ({"like": None}, "like: expected the model_type of a known family, not None"),
        ({"like": "llama", "defaults": 3}, "defaults: expected a mapping of config keys to values, not 3"),
        ({"like": "llama", "defaults": {3: 4}}, "defaults: expected a mapping of config keys to values, not {3: 4}"),
        ({"like": "llama", "names": 3}, "names: expected a mapping of the family's keys to lists of other names"),
        ({"like": "llama", "names": {"hidden_size": "width"}}, "lists of other names, not {'hidden_size': 'width'}"),
        ({"like": "llama", "names": {"hidden_size": [3]}}, "lists of other names, not {'hidden_size': [3]}"),
        ({"like": "llama", "keys": {}}, "keys: expected a function of a config's keys, not dict"),
    ],
)
def test_a_wrong_entry_says_what_is_wrong(entry: object, problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        architecture_from_entry(entry, "lab.py")
    assert problem in error.value.problem
