"""The schema that ships: an honest draft-07 one, in step with the code, and the only validator."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_llmroof.analysis.metrics import METRICS, metric_of
from pytest_llmroof.data import load
from pytest_llmroof.errors import ConfigErrors
from pytest_llmroof.gates.file import load_gate_file
from pytest_llmroof.gates.grammar import parse_gate
from pytest_llmroof.gates.schema import place_schema
from pytest_llmroof.roofline.accelerator import PRECISIONS
from pytest_llmroof.roofline.catalogue import accelerators
from pytest_llmroof.roofline.deployment import ELEMENT_BYTES
from pytest_llmroof.roofline.models import model_names

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").rglob("*llmroof.yaml"))


@pytest.fixture(scope="module")
def schema() -> Any:
    return json.loads(files("pytest_llmroof.data").joinpath("gatefile.schema.json").read_text(encoding="utf-8"))


def test_it_is_a_draft_07_schema(schema: Any) -> None:
    assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"
    jsonschema.Draft7Validator.check_schema(schema)


def test_every_key_is_described(schema: Any) -> None:
    def undescribed(node: Any, path: str) -> Iterator[str]:
        for key, entry in node.get("properties", {}).items():
            target = schema["definitions"][entry["$ref"].rpartition("/")[2]] if "$ref" in entry else entry
            if not target.get("description"):
                yield f"{path}.{key}"
            yield from undescribed(target, f"{path}.{key}")

    assert list(undescribed(schema, "")) == []
    for name, definition in schema["definitions"].items():
        assert list(undescribed(definition, name)) == []


def test_it_knows_what_the_code_knows() -> None:
    deployment = place_schema("window")["properties"]["deployment"]["properties"]
    aliases = list(load("precisions.yaml")["aliases"])
    assert deployment["weights"]["examples"] == deployment["kv_cache"]["examples"] == list(ELEMENT_BYTES)
    assert deployment["weights"]["enum"] == deployment["kv_cache"]["enum"] == [*ELEMENT_BYTES, *aliases]
    assert deployment["compute"]["examples"] == list(PRECISIONS)
    assert deployment["compute"]["enum"] == [*PRECISIONS, *aliases]
    gpu = place_schema("window")["properties"]["gpu"]["properties"]
    assert list(gpu["peaks"]["properties"]) == list(PRECISIONS)


def test_every_metric_is_described_to_editors() -> None:
    description = place_schema("gate")["properties"]["gate"]["description"]
    for metric in METRICS.values():
        assert f": {metric.meaning}" in description
        if not metric.parametrised:
            assert f"- {metric.name}{'.STAT' if metric.statistics else ''}:" in description
    for example in place_schema("gate")["examples"]:
        assert parse_gate(example).canonical == example


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_hold_for_any_draft_07_validator(schema: Any, path: Path) -> None:
    jsonschema.Draft7Validator(schema).validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    assert load_gate_file(path, path.parent)


LINES = st.sampled_from(
    ["windows:", "  w:", "    phase: decode", "    gates:", "      - decode.mbu >= 75%", "  <<: *a", "x: &a {w: {}}",
     "    telemetry: [a, {url: '${X}'}]", "    telemetry: {prometheus: http://p, end: now-1h}", "\tx", "- a", "? b",
     "gpu: {peaks: {bf16: 1}}", "deployment: {tensor_parallel: ${TP:-1}}", "'", "!!set {a}", "!x y", "---",
     "    repeat: 1e400"]
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.one_of(st.text(max_size=60), st.lists(LINES, max_size=9).map("\n".join)))
def test_any_text_is_a_gate_file_or_is_refused_with_its_places(tmp_path: Path, text: str) -> None:
    path = tmp_path / "llmroof.yaml"
    path.write_text(text, encoding="utf-8", errors="replace")
    errors = errors_of(path)
    assert [error.position.file for error in errors if error.position is not None] == ["llmroof.yaml"] * len(errors)


def errors_of(path: Path) -> list[Any]:
    try:
        assert load_gate_file(path, path.parent)
    except ConfigErrors as refusal:
        return list(refusal.errors)
    return []


def test_editors_offer_every_accelerator_model_and_metric(schema: Any) -> None:
    definitions = schema["definitions"]
    assert definitions["gpu"]["examples"] == sorted(accelerators())
    assert definitions["model"]["examples"] == sorted(model_names())
    offered = {metric_of(parse_gate(example).metric).name for example in definitions["gate"]["examples"]}
    assert offered == set(METRICS)
