"""What a variable of the environment stands for: never shown where a secret belongs, shown where people read texts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_llmroof.assess import assess
from pytest_llmroof.errors import ConfigErrors
from pytest_llmroof.gates.file import load_gate_file
from pytest_llmroof.report.document import window_document

SECRET = "hunter2hunter2"
WINDOW = "windows:\n  w:\n    {keys}\n    gates: [itl.mean <= 1s]\n"


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", SECRET)


def told(folder: Path, text: str) -> str:
    """Everything that is said of a gate file: its errors, or its windows' documents."""
    (folder / "llmroof.yaml").write_text(text)
    try:
        windows = load_gate_file(folder / "llmroof.yaml", folder)
    except ConfigErrors as error:
        return str(error)
    return "".join(json.dumps(window_document(assess(window))) + repr(window) for window in windows)


@pytest.mark.parametrize(
    "keys",
    [
        'telemetry: {url: "${TOKEN}"}',
        'telemetry: {url: "http://me:${TOKEN}@host/metrics?key=${TOKEN}"}',
        'telemetry: {url: "http://host/", headers: {Authorization: "Bearer ${TOKEN}"}}',
        'telemetry: {url: "http://host/", token_file: "${TOKEN}"}',
        'telemetry: {url: "http://host/", timeout: "${TOKEN}"}',
        'telemetry: {prometheus: "http://host/", end: "${TOKEN}"}',
        'telemetry: {prometheus: "http://host/", headers: {X: ["${TOKEN}"]}}',
        'duration: "${TOKEN}"',
        'phase: "${TOKEN}"',
        'repeat: "${TOKEN}"',
        'deployment: {tensor_parallel: "${TOKEN}"}',
    ],
)
def test_where_secrets_belong_and_where_no_text_does(keys: str, tmp_path: Path) -> None:
    assert SECRET not in told(tmp_path, WINDOW.format(keys=keys))


@pytest.mark.parametrize("keys", ['labels: {x: "${TOKEN}"}', 'served_model_name: "${TOKEN}"', 'telemetry: "${TOKEN}"'])
def test_texts_for_people_are_shown(keys: str, tmp_path: Path) -> None:
    """docs/security.md says so: a secret has no place there."""
    assert SECRET in told(tmp_path, WINDOW.format(keys=keys))
