"""A model whose figures are given by hand."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_llmroof.errors import ConfigError, ConfigErrors, Position
from pytest_llmroof.roofline.models import model_from_mapping


def test_all_figures() -> None:
    model = model_from_mapping({
        "name": "mine", "parameters": "8.03e9", "active_parameters": 4e9, "matmul_parameters": 3.5e9,
        "weight_bytes": "4.92GB", "kv_bytes_per_token": "128KiB", "layers": "32", "hidden_size": 4096,
    })  # fmt: skip
    assert (model.name, model.title) == ("mine", "mine")
    assert (model.parameters, model.active_parameters, model.matmul_parameters) == (8.03e9, 4e9, 3.5e9)
    assert model.weight_bytes("bf16") == model.weight_bytes("fp8") == pytest.approx(4.92e9)
    assert model.kv_bytes_per_token("fp8") == 131072
    assert (model.layers, model.hidden_size) == (32, 4096)


def test_parameters_alone() -> None:
    model = model_from_mapping({"parameters": 70e9})
    assert model.name == "70B parameters"
    assert model.active_parameters == model.matmul_parameters == 70e9
    assert (model.weight_bytes("bf16"), model.weight_bytes("fp8"), model.weight_bytes("fp4")) == (140e9, 70e9, 35e9)
    assert model.kv_bytes_per_token("bf16") == 0
    assert model.layers is None


def test_one_is_a_number_and_nothing_is_none() -> None:
    model = model_from_mapping({"parameters": 1, "layers": 1, "experts": 0, "experts_per_token": 0})
    assert (model.parameters, model.layers, model.experts) == (1, 1, 0)
    with pytest.raises(ConfigError, match="layers: must be more than zero"):
        model_from_mapping({"parameters": 1, "layers": 0})


@pytest.mark.parametrize(
    ("mapping", "gist"),
    [
        ({}, "needs `parameters`"),
        ({"parameters": 7e9, "parameter": 7e9}, "did you mean 'parameters'"),
        ({"parameters": "seven"}, "parameters: 'seven' is not a quantity"),
        ({"parameters": "70GB"}, "parameters: expected a number"),
        ({"parameters": 0}, "more than zero"),
        ({"parameters": -1}, "more than zero"),
        ({"parameters": True}, "parameters: expected a number"),
        ({"parameters": None}, "no value"),
        ({"parameters": 7e9, "weight_bytes": "3ms"}, "weight_bytes: expected a size"),
        ({"parameters": 7e9, "active_parameters": 8e9}, "exceed parameters"),
        ({"parameters": 7e9, "matmul_parameters": 8e9}, "exceed the active parameters"),
        ({"parameters": 7e9, "layers": 1.5}, "layers: a whole number"),
        ({"parameters": 7e9, "experts": 8}, "given together"),
        ({"parameters": 7e9, "experts": 8, "experts_per_token": 8}, "not fewer"),
        ({"parameters": 7e9, "active_parameters": 1e9, "experts": 8, "experts_per_token": 4}, "experts alone"),
    ],
)
def test_what_is_wrong(mapping: dict[str, Any], gist: str) -> None:
    with pytest.raises(ConfigError, match=gist) as caught:
        model_from_mapping(mapping)
    assert type(caught.value) is ConfigError  # one problem is no list


def test_all_problems_at_once_with_their_places() -> None:
    def position(key: str) -> Position | None:
        return {"": Position("a.yaml", 2, 8), "layrs": Position("a.yaml", 3, 3)}.get(key)

    with pytest.raises(ConfigErrors) as caught:
        model_from_mapping({"layrs": 3}, position)
    assert [str(error.position) for error in caught.value.errors] == ["a.yaml:3:3", "a.yaml:2:8"]
