"""A user who serves a GGUF file: its header is the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from gguf_files import dense, split_between

FILE = """
gpu: a10
model: ./tiny.gguf
windows:
  chat: {phase: decode, telemetry: [before.prom, after.prom], gates: [ttft.p99 <= 10s]}
"""


def test_the_header_is_the_model(
    gate: Callable[..., Any], pages: Callable[..., None], pytester: pytest.Pytester
) -> None:
    (pytester.path / "tiny.gguf").write_bytes(dense())
    pages(model="tiny", itl=0.01, batch=4, context=200, output=100)
    run = gate(FILE)
    assert run.rc == 0, run.text
    # Q4_K: 144 bytes for 256 elements, Q6_K 210; embedding and a layer's six matrices, v, norms in F32, head in F16
    layer = (2 * 256 * 256 + 256 * 128 + 3 * 256 * 512) // 256 * 144 + 256 * 128 // 256 * 210 + 2 * 256 * 4
    assert run.window["model"]["weight_bytes"] == 256_000 // 256 * 144 + 2 * layer + 256 * 4 + 256_000 * 2
    assert run.window["deployment"]["weights"] == "q4_k"
    assert run.window["provenance"]["weights"] == "config"


def test_a_header_that_is_cut_stops_the_collection(
    gate: Callable[..., Any], pages: Callable[..., None], pytester: pytest.Pytester
) -> None:
    (pytester.path / "tiny.gguf").write_bytes(dense()[:700])
    pages(model="tiny")
    run = gate(FILE)
    assert run.rc == 2
    assert "./tiny.gguf:byte 700: the header is broken: the file ends inside of" in run.one_line


def test_a_part_of_a_split_file_that_is_missing(
    gate: Callable[..., Any], pages: Callable[..., None], pytester: pytest.Pytester
) -> None:
    for name, data in split_between("big", 2).items():
        (pytester.path / name).write_bytes(data)
    pages(model="tiny")
    text = FILE.replace("tiny.gguf", "big-00002-of-00002.gguf")
    assert gate(text).rc == 0
    (pytester.path / "big-00001-of-00002.gguf").unlink()
    run = gate(text)
    assert run.rc == 2
    assert "llmroof.yaml:3:8: model: ./big-00001-of-00002.gguf cannot be read" in run.one_line
