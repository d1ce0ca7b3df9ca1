"""GGUF files named as models: read where they stand, split ones together, broken ones with the place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gguf_files import EMBEDDING, HEAD, attention, dense, feed_forward, gguf, keys, split_between

from pytest_llmroof.errors import ConfigError, Position, UnknownModelError
from pytest_llmroof.gates.build import window_spec
from pytest_llmroof.resolve import resolve
from pytest_llmroof.resolve.modelfile import model_of


def test_a_file_is_a_model(tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf").write_bytes(dense())
    model = model_of("./tiny.gguf", tmp_path)
    assert model.name == "tiny"
    # every tensor by hand: embedding and seven matrices a layer in Q4_K but v in Q6_K, norms F32, head F16
    layer = (2 * 256 * 256 + 256 * 128 + 3 * 256 * 512) // 256 * 144 + 256 * 128 // 256 * 210 + 2 * 256 * 4
    assert model.weight_bytes("bf16") == 256 * 1000 // 256 * 144 + 2 * layer + 256 * 4 + 256 * 1000 * 2


def test_a_large_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.gguf"
    path.write_bytes(dense())
    os.truncate(path, 40_000_000_000)  # a hole where the weights would be
    layer = 2 * 256 * 256 + 2 * 256 * 128 + 3 * 256 * 512 + 2 * 256
    assert model_of("large.gguf", tmp_path).parameters == 2 * layer + 256 + 2 * 256_000


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(ConfigError, match=r"model: \./pipe\.gguf is not a file"):
        model_of("./pipe.gguf", tmp_path)


def test_a_cut_header_names_the_byte(tmp_path: Path) -> None:
    (tmp_path / "cut.gguf").write_bytes(dense()[:200])
    said = r"^\./cut.gguf:byte 200: the header is broken: the file ends before its 21.*is the file whole"
    with pytest.raises(ConfigError, match=said):
        model_of("./cut.gguf", tmp_path)
    (tmp_path / "none.gguf").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"none.gguf:byte 0: .*GGUF"):
        model_of("none.gguf", tmp_path)


def split(folder: Path) -> None:
    for name, data in split_between("big", 3).items():
        (folder / name).write_bytes(data)


@pytest.mark.parametrize("part", [1, 2, 3])
def test_a_split_file_is_read_with_its_other_parts(tmp_path: Path, part: int) -> None:
    split(tmp_path)
    model = model_of(f"big-{part:05}-of-00003.gguf", tmp_path)
    assert model.name == "big"
    one = gguf(keys("llama"), [EMBEDDING, HEAD, *attention(0), *feed_forward(0), *attention(1), *feed_forward(1)])
    (tmp_path / "one.gguf").write_bytes(one)
    assert model.weight_bytes("") == model_of("one.gguf", tmp_path).weight_bytes("")


def test_parts_that_are_missing(tmp_path: Path) -> None:
    split(tmp_path)
    (tmp_path / "lone.gguf").write_bytes((tmp_path / "big-00001-of-00003.gguf").read_bytes())
    with pytest.raises(ConfigError, match=r"lone.gguf: one of 3 files .*NAME-00001-of-00003.gguf"):
        model_of("lone.gguf", tmp_path)
    (tmp_path / "big-00002-of-00003.gguf").unlink()
    at = Position("llmroof.yaml", 3, 8)
    with pytest.raises(ConfigError, match=r"^llmroof.yaml:3:8: model: big-00002-of-00003.gguf cannot be read: No such"):
        model_of("./big-00001-of-00003.gguf".removeprefix("./"), tmp_path, lambda key: at)
    (tmp_path / "big-00002-of-00003.gguf").write_bytes(gguf({}, attention(0)))
    with pytest.raises(ConfigError, match=r"hold \d+ tensors, not the 20 that it says"):
        model_of("big-00001-of-00003.gguf", tmp_path)


def test_what_is_wrong_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "odd.gguf").write_bytes(gguf(keys("rwkv7"), [EMBEDDING]))
    with pytest.raises(UnknownModelError, match=r"^odd.gguf: .*rwkv7"):
        model_of("odd.gguf", tmp_path)
    (tmp_path / "type.gguf").write_bytes(gguf(keys("llama"), [("x", (256,), 99)]))
    with pytest.raises(UnknownModelError, match=r"^type.gguf: the tensor 'x'"):
        model_of("type.gguf", tmp_path)
    (tmp_path / "keys.gguf").write_bytes(gguf(keys("llama", block_count=None), [EMBEDDING]))
    with pytest.raises(ConfigError, match=r"^keys.gguf: llama.block_count"):
        model_of("keys.gguf", tmp_path)
    (tmp_path / "folder.gguf").mkdir()
    with pytest.raises(ConfigError, match=r"folder.gguf is a folder"):
        model_of("folder.gguf", tmp_path)
    with pytest.raises(ConfigError, match=r"absent.gguf cannot be read: No such file"):
        model_of("absent.gguf", tmp_path)


def test_a_deployment_takes_its_precisions_from_the_file(tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf").write_bytes(dense())
    window = {"phase": "decode", "telemetry": ["a.prom", "b.prom"], "gpu": "rtx-4090", "model": "tiny.gguf"}
    deployment = resolve(window_spec(window, id="w", name="w", base=tmp_path))
    # the head's F16 bytes are fewer than those of the matrices in Q4_K
    assert (deployment.weights, deployment.kv_cache) == ("q4_k", "fp16")
    assert (deployment.provenance["weights"], deployment.provenance["kv_cache"]) == ("config", "assumed")
    assert deployment.compute in ("fp16", "bf16")
