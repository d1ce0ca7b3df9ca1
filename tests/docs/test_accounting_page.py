"""Every line of arithmetic in docs/accounting.md, and the figures that it ends in."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from pytest_llmroof.roofline.cost import step_cost
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.roofline.models import named_model
from pytest_llmroof.roofline.step import Prefill, Step

PAGE: Final = (Path(__file__).parents[2] / "docs" / "accounting.md").read_text(encoding="utf-8")
#: label = expression = value
BLOCKS: Final = "".join(re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
LINES: Final = re.findall(r"^(\S.*?)\s+= ([^=\n]+?)\s+= ([\d,.]+)$", BLOCKS, re.MULTILINE)
OPERATORS: Final[dict[type[ast.operator], Callable[[float, float], float]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}  # fmt: skip


def evaluated(node: ast.expr) -> float:
    """An expression of numbers and the five operators."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    assert isinstance(node, ast.BinOp)
    return OPERATORS[type(node.op)](evaluated(node.left), evaluated(node.right))


def value(text: str) -> float:
    return float(text.replace(",", ""))


def test_there_is_arithmetic() -> None:
    # No line of the blocks escapes.
    assert len(LINES) == len(BLOCKS.splitlines()) > 40


@pytest.mark.parametrize(("label", "expression", "result"), LINES, ids=[line[0] for line in LINES])
def test_each_line_is_true(label: str, expression: str, result: str) -> None:
    computed = evaluated(ast.parse(expression, mode="eval").body)
    assert computed == pytest.approx(value(result), rel=1e-9 if "." not in result else 1e-4), label


def section(title: str) -> dict[str, float]:
    """The last value of each label in a section."""
    text = PAGE.split(f"\n## {title}")[1].split("\n## ")[0]
    return {label: value(result) for label, _, result in LINES if f"{label} " in text and f"= {result}" in text}


def cost_of(name: str, step: Step, tensor_parallel: int = 1) -> tuple[float, float, float, float]:
    cost = step_cost(Deployment(model=named_model(name), tensor_parallel=tensor_parallel), step)
    return cost.flops, cost.weight_bytes, cost.weight_bytes_low, cost.kv_bytes


def test_the_dense_models_figures_are_ours() -> None:
    page, model = section("A dense model"), named_model("llama-3.1-8b")
    assert model.parameters == page["parameters"]
    assert model.matmul_parameters == page["matrix parameters"]
    assert model.weight_bytes("bf16") == page["weight bytes in bf16"]
    assert model.kv_bytes_per_token("bf16") == page["cache bytes of a token in bf16"]
    flops, weights, _, cache = cost_of("llama-3.1-8b", Step(32, 4096))
    assert flops == page["FLOPs of the step"]
    assert weights == page["weight bytes read"]
    assert cache == page["cache bytes read"] + page["cache bytes written"]
    assert weights + cache == page["bytes of the step"]
    assert cost_of("llama-3.1-8b", Step(prefills=(Prefill(4096),)))[0] == page["FLOPs of the prompt"]
    assert cost_of("llama-3.1-8b", Step(32, 4096), 8)[1] == page["weight bytes read by all 8"]


def test_the_mixtures_figures_are_ours() -> None:
    page, model = section("A mixture of experts"), named_model("qwen3-30b-a3b")
    assert model.parameters == page["parameters"]
    assert model.active_parameters == page["active parameters"]
    assert model.matmul_parameters == page["matrix parameters"]
    assert model.body_parameters == page["matrix parameters of the layers"]
    assert model.weight_bytes("bf16") == page["weight bytes in bf16"]
    assert model.kv_bytes_per_token("bf16") == page["cache bytes of a token in bf16"]
    flops, weights, least, cache = cost_of("qwen3-30b-a3b", Step(32, 4096))
    assert flops == page["FLOPs of the step"]
    assert weights == pytest.approx(page["weight bytes read"], abs=1)
    assert least == page["the least, with all tokens on 8"]
    assert cache == page["cache bytes read and written"]
    assert cost_of("qwen3-30b-a3b", Step(prefills=(Prefill(4096),)))[0] == page["FLOPs of the prompt"]
    _, weights, _, cache = cost_of("qwen3-30b-a3b", Step(32, 4096), 8)
    assert weights == pytest.approx(page["weight bytes read by all 8"], abs=1)
    assert cache == page["cache bytes of all 8"]
