"""From a specification to a deployment: what is looked up, defaulted, refused, and left for telemetry to tell."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from gguf_files import EMBEDDING, gguf, keys

from pytest_llmroof.errors import ConfigError, ConfigErrors, Position
from pytest_llmroof.gates.spec import WindowSpec
from pytest_llmroof.resolve import modelfile, resolve, with_telemetry
from pytest_llmroof.roofline.models import Architecture, model_from_config
from pytest_llmroof.telemetry.window import Engine, SourceInfo, Window

LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "vocab_size": 100, "torch_dtype": "bfloat16",
}  # fmt: skip
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic"}


def spec(base: Path = Path(), **facts: Any) -> WindowSpec:
    return WindowSpec(id="llmroof.yaml::decode", name="decode", base=base, **facts)


def window(*names: str, devices: tuple[str, ...] = (), **facts: str) -> Window:
    engines = tuple(Engine(f"engine {index}", name, facts=facts) for index, name in enumerate(names))
    return Window("vllm", engines, (SourceInfo("vllm", "after.prom"),), device_names=devices)


def checkpoint(folder: Path, **changes: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "config.json"
    path.write_text(json.dumps({**LLAMA, **changes}))
    return path


def test_names_and_keys() -> None:
    deployment = resolve(spec(
        gpu="h100", model="llama-3.1-70b", flops="exact",
        deployment={
            "tensor_parallel": 4, "pipeline_parallel": "2", "data_parallel": 3, "expert_parallel": "true",
            "gpus_per_node": 4, "internode": "50GB/s", "weights": "fp8", "kv_cache": "bfloat16", "compute": "bf16",
            "interconnect": "PCIe", "speculative_tokens": 3, "draft_model": "llama-3.2-1b",
        },
    ))  # fmt: skip
    assert deployment.accelerator is not None
    assert deployment.accelerator.name == "h100-sxm5-80gb"
    assert deployment.model is not None
    assert deployment.model.name == "llama-3.1-70b"
    assert deployment.draft is not None
    assert deployment.draft.name == "llama-3.2-1b"
    assert (deployment.tensor_parallel, deployment.pipeline_parallel, deployment.data_parallel) == (4, 2, 3)
    assert (deployment.gpus_per_replica, deployment.gpus) == (8, 24)
    assert deployment.expert_parallel is True
    assert deployment.internode_bytes_per_second == 50e9
    assert (deployment.weights, deployment.kv_cache, deployment.compute) == ("fp8", "bf16", "bf16")
    assert deployment.interconnect == "pcie"
    assert (deployment.speculative_tokens, deployment.flops) == (3, "exact")
    assert set(deployment.provenance.values()) == {"given"}
    assert deployment.missing == {}


def test_nothing_named() -> None:
    deployment = resolve(spec())
    assert deployment.model is None
    assert deployment.accelerator is None
    assert deployment.missing["gpu"] == "no accelerator is named, and the telemetry names no device"
    assert deployment.missing["model"].startswith("no model is named, and the telemetry serves none")
    assert set(deployment.provenance.values()) == {"assumed"}
    assert (deployment.weights, deployment.kv_cache, deployment.compute) == ("bf16", "bf16", "bf16")


def test_a_catalogue_model_is_served_in_its_precision_as_far_as_we_assume() -> None:
    deployment = resolve(spec(gpu="h100", model="meta-llama/Llama-3.1-70B-Instruct"))
    assert (deployment.weights, deployment.kv_cache, deployment.compute) == ("bf16", "bf16", "bf16")
    assert deployment.provenance["weights"] == deployment.provenance["kv_cache"] == "assumed"
    assert deployment.provenance["tensor_parallel"] == "assumed"
    assert deployment.provenance["model"] == "given"
    assert deployment.interconnect == "nvlink"
    assert resolve(spec(gpu="l40s", model="qwen3-8b")).interconnect == "pcie"


def test_a_config_states_its_precisions(tmp_path: Path) -> None:
    checkpoint(tmp_path / "plain", torch_dtype="float16")
    checkpoint(tmp_path / "eight", quantization_config=FP8)
    plain = resolve(spec(tmp_path, gpu="h100", model="plain/config.json"))
    assert (plain.weights, plain.kv_cache, plain.compute) == ("fp16", "fp16", "fp16")
    assert plain.provenance["weights"] == plain.provenance["compute"] == "config"
    assert plain.provenance["kv_cache"] == "assumed"
    eight = resolve(spec(tmp_path, gpu="h100", model="./eight"))
    assert (eight.weights, eight.kv_cache, eight.compute) == ("fp8", "bf16", "fp8")
    assert eight.model is not None
    assert eight.model.name == "eight"
    # an accelerator without fp8 computes in 16 bit; without bf16 in fp16
    assert resolve(spec(tmp_path, gpu="a100", model="./eight")).compute == "bf16"
    assert resolve(spec(tmp_path, gpu="v100", model="llama-3.1-8b")).compute == "fp16"


def test_a_side_file_states_the_quantisation(tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "side")
    assert resolve(spec(tmp_path, model="./side")).weights == "bf16"
    block = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
    (path.parent / "hf_quant_config.json").write_text(json.dumps(block))
    deployment = resolve(spec(tmp_path, model="./side"))
    assert (deployment.weights, deployment.kv_cache, deployment.compute) == ("fp8", "fp8", "fp8")
    assert deployment.provenance["kv_cache"] == "config"


def test_given_precisions_win(tmp_path: Path) -> None:
    checkpoint(tmp_path, quantization_config=FP8)
    deployment = resolve(spec(tmp_path, model="config.json", deployment={"weights": "bf16"}))
    assert (deployment.weights, deployment.compute) == ("bf16", "bf16")
    assert deployment.provenance["weights"] == "given"


def test_figures_and_an_accelerator_of_ones_own(tmp_path: Path) -> None:
    chip = {"name": "mine", "peaks": {"bf16": "400TFLOP/s"}, "memory_bandwidth": "2TB/s", "memory": "80GB"}
    deployment = resolve(spec(gpu=chip, model={"parameters": "70e9"}))
    assert deployment.peak_flops_per_second == 400e12
    assert deployment.model is not None
    assert deployment.model.parameters == 70e9
    (tmp_path / "mine.yaml").write_text("name: mine\npeaks: {bf16: 400TFLOP/s}\nmemory_bandwidth: 2TB/s\n")
    from_file = resolve(spec(tmp_path, gpu="mine.yaml"))
    assert from_file.accelerator is not None
    assert from_file.bandwidth_bytes_per_second == 2e12


@pytest.mark.parametrize(
    ("key", "value", "gist"),
    [
        ("tensor_paralel", 4, "did you mean 'tensor_parallel'"),
        ("tensor_parallel", 0, "positive whole number, not 0"),
        ("tensor_parallel", "two", "not 'two'"),
        ("tensor_parallel", 1.5, "not 1.5"),
        ("tensor_parallel", True, "not True"),
        ("expert_parallel", "maybe", "true or false"),
        ("weights", "bf8", "did you mean 'fp8'"),
        ("compute", "w4a16", "one of fp32"),
        ("interconnect", "infiniband", "nvlink, pcie"),
        ("internode", "5ms", "bandwidth"),
        ("internode", 0, "more than zero"),
        ("speculative_tokens", -1, "whole number"),
        ("draft_model", "llama-3.2-2b", "llama-3.2-1b"),
        ("tensor_parallel", 64, "64 ranks cannot share the 32 attention heads of llama-3.1-8b"),
        ("pipeline_parallel", 33, "33 stages cannot share the 32 layers"),
    ],
)
def test_wrong_keys_and_values(key: str, value: Any, gist: str) -> None:
    place = Position("llmroof.yaml", 7, 3)
    with pytest.raises(ConfigError, match=gist) as caught:
        resolve(spec(model="llama-3.1-8b", deployment={key: value}, positions={f"deployment.{key}": place}))
    assert caught.value.position == place
    assert key == "draft_model" or f"deployment.{key}" in caught.value.problem


def test_all_problems_at_once() -> None:
    positions = {"gpu": Position("a.yaml", 1, 6), "model": Position("a.yaml", 2, 8)}
    with pytest.raises(ConfigErrors) as caught:
        resolve(spec(gpu="h1OO", model="lama-3.1-8b", deployment={"weights": "q"}, positions=positions))
    text = str(caught.value)
    assert "deployment.weights" in text
    assert "a.yaml:1:6" in text
    assert "h100" in text
    assert "a.yaml:2:8" in text
    assert "llama-3.1-8b" in text


@pytest.mark.parametrize(
    ("content", "where", "gist"),
    [
        ('{"model_type": "llama",\n "hidden_size": }', "config.json:2:17", "not JSON"),
        ('{\n  "architectures": ["X"]\n}', "config.json:1:1", "no `model_type`"),
        ('{"model_type": "llama",\n  "hidden_size": "many"}', "config.json:2:3", "'hidden_size'"),
        ("[1]", "config.json:1:1", "no object"),
        ('{"model_type": "llama", "num_attention_heads": 3, "num_key_value_heads": "x"}', "config.json:1:51", "heads"),
        ("", "config.json:1:1", "not JSON"),
        ('{"layers": ' + "9" * 5000 + "}", "config.json", "it holds a number that is none"),
        (" " * (modelfile.MOST_BYTES + 1), "config.json", "larger than 16 MiB"),
        (b"\xff\xfe{", "config.json", "UTF-8"),
        ("[" * 100_000, "config.json", "deep"),
        ("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "config.json", "git lfs pull"),
        ('{"tokenizer_class": "X"}', "config.json:1:1", "name the checkpoint's own config.json or its folder"),
        ('{"model_type": "llama",\n "num_hidden_layers": null}', "config.json:2:2", "whole number, not null"),
        ('{"model_type": "llama", "num_hidden_layers": 4000000000}', "config.json:1:25", "expected at most 10000"),
        ('{"model_type": "llama", "vocab_size": 1' + "0" * 400 + "}", "config.json:1:25", "expected a whole number"),
        ('{"model_type": "llama", "num_key_value_heads": 7}', "config.json:1:25", "a divisor of the 32"),
    ],
)
def test_a_config_that_is_none(tmp_path: Path, content: str | bytes, where: str, gist: str) -> None:
    (tmp_path / "config.json").write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ConfigError, match=gist) as caught:
        resolve(spec(tmp_path, model="config.json"))
    assert str(caught.value.position) == where


@pytest.mark.parametrize("value", ["absent/config.json", "./absent", "absent.json"])
def test_a_file_that_is_not_there(tmp_path: Path, value: str) -> None:
    place = Position("llmroof.yaml", 3, 8)
    with pytest.raises(ConfigError, match="cannot be read") as caught:
        resolve(spec(tmp_path, model=value, positions={"model": place}))
    assert caught.value.position == place
    assert str(tmp_path) not in str(caught.value)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.parametrize("key", ["model", "gpu"])
def test_a_pipe_is_not_waited_for(tmp_path: Path, key: str) -> None:
    os.mkfifo(tmp_path / "it.json")
    os.mkfifo(tmp_path / "it.yaml")
    name = "./it.json" if key == "model" else "./it.yaml"
    with pytest.raises(ConfigError, match=r"is not a file|there is no file"):
        resolve(spec(tmp_path, **{key: name}))


def test_a_side_file_that_is_wrong(tmp_path: Path) -> None:
    side = checkpoint(tmp_path).parent / "hf_quant_config.json"
    side.write_text("{}")
    assert "no `quantization`" in resolve(spec(tmp_path, model="config.json")).missing["model"]
    side.write_text("{")
    with pytest.raises(ConfigError, match="not JSON") as caught:
        resolve(spec(tmp_path, model="./", flops="exact"))
    assert "hf_quant_config.json:1:2" in str(caught.value)


def test_a_model_that_is_neither_text_nor_mapping(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected a catalogue name"):
        resolve(spec(tmp_path, model=" "))


def test_an_accelerator_file_that_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no file mine\.yaml"):
        resolve(spec(tmp_path, gpu="mine.yaml"))
    (tmp_path / "mine.yaml").write_text("name: mine\npeaks:\n  bf61: 400TFLOP/s\n")
    with pytest.raises(ConfigError, match="bf61") as caught:
        resolve(spec(tmp_path, gpu="mine.yaml"))
    assert str(caught.value).startswith("mine.yaml:3:")
    (tmp_path / "mine.yaml").write_text("- h100\n")
    with pytest.raises(ConfigError, match="is a mapping"):
        resolve(spec(tmp_path, gpu="mine.yaml"))


def test_what_is_not_understood_is_no_data_and_no_error(tmp_path: Path) -> None:
    checkpoint(tmp_path / "odd", model_type="qwen4", strange=1)
    odd = resolve(spec(tmp_path, gpu="h100", model="odd/config.json"))
    assert odd.model is None
    assert "'qwen4'" in odd.missing["model"]
    assert "strange" in odd.missing["model"]
    checkpoint(tmp_path / "bits", quantization_config={"quant_method": "bitsandbytes"})
    assert "bitsandbytes" in resolve(spec(tmp_path, model="./bits")).missing["model"]
    (tmp_path / "odd.gguf").write_bytes(gguf(keys("rwkv7"), [EMBEDDING]))
    assert "'rwkv7'" in resolve(spec(tmp_path, model="odd.gguf")).missing["model"]


def test_without_its_draft_a_model_has_no_floor(tmp_path: Path) -> None:
    checkpoint(tmp_path / "odd", model_type="qwen4")
    for model in ("llama-3.1-8b", None):
        asked = spec(tmp_path, model=model, deployment={"draft_model": "./odd"})
        drafted = with_telemetry(resolve(asked), window("llama-3.1-8b"), asked)
        assert drafted.model is None
        assert "draft model" in drafted.missing["model"]


def test_a_file_is_read_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = checkpoint(tmp_path)
    reads: list[str] = []

    def counted(config: dict[str, object], name: str, architecture: str | None) -> Architecture:
        reads.append(name)
        return model_from_config(config, name, architecture)

    monkeypatch.setattr(modelfile, "model_from_config", counted)
    models = {id(resolve(spec(tmp_path, model="config.json", flops="exact")).model) for _ in range(100)}
    assert len(reads) == len(models) == 1
    path.write_text(json.dumps({**LLAMA, "vocab_size": 1000}))
    model = resolve(spec(tmp_path, model="config.json")).model
    assert model is not None
    assert len(reads) == 2
    assert model.parameters - 2 * 900 * 64 == model_from_config(LLAMA, "x").parameters


def test_a_bare_catalogue_name_is_not_hidden_by_a_folder(tmp_path: Path) -> None:
    checkpoint(tmp_path / "llama-3.1-8b")
    checkpoint(tmp_path / "meta-llama" / "Llama-3.1-8B")
    named = resolve(spec(tmp_path, model="llama-3.1-8b")).model
    folder = resolve(spec(tmp_path, model="meta-llama/Llama-3.1-8B")).model
    assert named is not None
    assert named.parameters == 8030261248
    assert folder is not None
    assert folder.parameters < 1e6


def test_telemetry_tells_what_nobody_gave() -> None:
    asked = spec()
    seen = window("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct",
                  devices=("NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3"), cache_dtype="fp8_e4m3")  # fmt: skip
    deployment = with_telemetry(resolve(asked), seen, asked)
    assert deployment.accelerator is not None
    assert deployment.accelerator.name == "h100-sxm5-80gb"
    assert deployment.model is not None
    assert deployment.model.name == "llama-3.1-8b"
    assert deployment.data_parallel == 2
    assert deployment.kv_cache == "fp8"
    for key in ("gpu", "model", "data_parallel", "kv_cache"):
        assert deployment.provenance[key] == "telemetry"
    assert deployment.provenance["weights"] == "assumed"
    assert deployment.missing == {}


def test_what_was_given_stays() -> None:
    asked = spec(gpu="h200", model="qwen3-8b", deployment={"data_parallel": 4, "kv_cache": "bf16"})
    seen = window("llama-3.1-8b", devices=("NVIDIA H100 80GB HBM3",), cache_dtype="fp8")
    deployment = with_telemetry(resolve(asked), seen, asked)
    assert deployment.accelerator is not None
    assert deployment.accelerator.name == "h200-sxm-141gb"
    assert deployment.model is not None
    assert deployment.model.name == "qwen3-8b"
    assert (deployment.data_parallel, deployment.kv_cache) == (4, "bf16")
    assert deployment.provenance["data_parallel"] == deployment.provenance["kv_cache"] == "given"


def test_a_model_of_32_bit_has_a_cache_of_16(tmp_path: Path) -> None:
    checkpoint(tmp_path / "wide", torch_dtype="float32")
    asked = spec(tmp_path, model="wide/config.json")
    for deployment in (resolve(asked), with_telemetry(resolve(asked), window("x", cache_dtype="auto"), asked)):
        assert (deployment.weights, deployment.kv_cache) == ("fp32", "bf16")


def test_an_engine_that_says_auto_confirms_the_models_own_precision() -> None:
    asked = spec(model="llama-3.1-8b")
    deployment = with_telemetry(resolve(asked), window("x", cache_dtype="auto"), asked)
    assert (deployment.kv_cache, deployment.provenance["kv_cache"]) == ("bf16", "telemetry")


@pytest.mark.parametrize(
    ("seen", "key", "gist"),
    [
        (window("meta-llama/Llama-3.1-8B-Instruct-FP8"), "model", "is no catalogue name"),
        (window("llama-3.1-8b", "qwen3-8b"), "model", "several models"),
        (window(), "model", "no model is named"),
        (window("x", devices=("NVIDIA H100",)), "gpu", "none we know"),
        (window("x", devices=("NVIDIA H100 PCIe", "NVIDIA A100-SXM4-80GB")), "gpu", "several devices"),
        (window("x"), "gpu", "no accelerator is named"),
    ],
)
def test_what_telemetry_does_not_tell(seen: Window, key: str, gist: str) -> None:
    deployment = with_telemetry(resolve(spec()), seen, spec())
    assert gist in deployment.missing[key]
    assert key not in deployment.provenance


def test_telemetry_of_a_model_that_cannot_be_so_wide() -> None:
    asked = spec(deployment={"tensor_parallel": 64})
    deployment = with_telemetry(resolve(asked), window("llama-3.1-8b"), asked)
    assert deployment.model is None
    assert "64 ranks" in deployment.missing["model"]


def test_which_model_of_several_is_meant() -> None:
    asked = spec(served_model_name="qwen3-8b")
    deployment = with_telemetry(resolve(asked), window("llama-3.1-8b", "qwen3-8b"), asked)
    assert deployment.model is not None
    assert deployment.model.name == "qwen3-8b"
