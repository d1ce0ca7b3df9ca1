"""What is said of other vendors' accelerators: their tools, or none; NVIDIA's where nobody says whose it is."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from gpu_counters import gpu, watched
from hand_facts import decoding, llama_8b, llama_70b, window

from pytest_llmroof.analysis.attribute import attribute
from pytest_llmroof.analysis.communication import estimate
from pytest_llmroof.analysis.diagnose import diagnose
from pytest_llmroof.analysis.gather import gather
from pytest_llmroof.analysis.hardwaremetrics import each_gpu
from pytest_llmroof.analysis.measure import measure
from pytest_llmroof.analysis.measurement import NoData
from pytest_llmroof.analysis.observed import Observed
from pytest_llmroof.analysis.remedies import remedies
from pytest_llmroof.analysis.scenarios import LETTERS, missing, scenarios
from pytest_llmroof.analysis.vendors import clock_command, link_name, vendor_of
from pytest_llmroof.data import load
from pytest_llmroof.errors import ConfigError
from pytest_llmroof.roofline.accelerator import Accelerator
from pytest_llmroof.roofline.catalogue import accelerator, accelerator_from_mapping, accelerators
from pytest_llmroof.roofline.deployment import Deployment

#: What only somebody with NVIDIA's GPUs and tools can use.
NVIDIAS = re.compile(
    r"CUDA|NVLink|NVLINK|nvidia-smi|DCGM|dcgm|nsys|Nsight|\bncu\b|NCCL|FlashAttention|FlashInfer|CUTLASS|Marlin"
)
CPU = accelerator_from_mapping(
    {"name": "cores", "vendor": "cpu", "peaks": {"bf16": "400GFLOP/s"}, "memory_bandwidth": "30GB/s", "memory": "64GB"}
)


def plain(vendor: str | None) -> Accelerator:
    """An H100 by another maker."""
    return replace(accelerator("h100"), vendor=vendor)


def test_the_vendor_of_a_mapping() -> None:
    assert CPU.vendor == "cpu"
    base = {"name": "own", "base": "mi300x"}
    assert accelerator_from_mapping(base).vendor == "AMD"
    assert accelerator_from_mapping({**base, "vendor": "nvidia"}).vendor == "NVIDIA"  # spelt as in the catalogue
    assert accelerator_from_mapping({"name": "own", "peaks": {"bf16": "1TFLOP/s"}}).vendor is None
    with pytest.raises(ConfigError, match="vendor is a text"):
        accelerator_from_mapping({"name": "own", "vendor": 3})


def test_whose_words_are_used() -> None:
    def of(deployment: Deployment, *seen: str) -> str:
        counters = [gpu(0, device=name) for name in seen]
        return vendor_of(gather(watched(window(), *counters) if seen else window(), deployment))

    assert of(llama_8b()) == "NVIDIA"
    assert of(llama_8b(accelerator=accelerator("mi300x"))) == "AMD"
    assert of(llama_8b(accelerator=plain(None))) == "NVIDIA"
    assert of(llama_8b(accelerator=None)) == "NVIDIA"
    assert of(llama_8b(accelerator=None), *accelerators()["mi300x"].device_names[:1]) == "AMD"
    assert of(llama_8b(accelerator=CPU)) == "cpu"


def test_other_words_are_of_what_there_is() -> None:
    words = load("vendors.yaml")
    titles = {entry.title: entry for letter in LETTERS for entry in scenarios()[letter].remedies}
    assert set(words["remedies"]) <= set(titles)
    assert set(words["instruments"]) <= set(load("scenarios.yaml")["instruments"])
    assert set(words["measuring"]) <= set(load("measuring.yaml")["remedies"])
    assert set(words["elsewhere"]) <= set(load("measuring.yaml")["elsewhere"])
    vendors = {one.vendor for one in accelerators().values()}
    for title, said in words["remedies"].items():
        assert set(said) <= {*vendors, "other"}
        for changed in filter(None, said.values()):
            assert set(changed) <= {"title", "detail"}
            # The same figures are filled in.
            fields = set(re.findall(r"{(\w+)}", changed.get("detail", "")))
            assert fields <= set(re.findall(r"{(\w+)}", titles[title].detail))


@pytest.mark.parametrize("vendor", ["AMD", "Google", "CPU", "Intel"])
def test_no_tool_of_nvidia_s_is_named_to_others(vendor: str) -> None:
    for letter in LETTERS:
        for entry in scenarios()[letter].remedies:
            worded = entry.of(vendor)
            assert worded is None or not NVIDIAS.search(worded.title + worded.detail), (letter, entry.title)
            assert entry.of("NVIDIA") == entry
        for line in missing((letter,), vendor=vendor):
            assert not NVIDIAS.search(str(line)), (letter, line)
    for line in missing(("C", "D"), vendor=vendor):
        assert not NVIDIAS.search(str(line))


@pytest.mark.parametrize(
    ("vendor", "title", "look"),
    [
        ("NVIDIA", "Capture decode steps in CUDA graphs", "nsys profile"),
        (None, "Capture decode steps in CUDA graphs", "nsys profile"),
        ("AMD", "Capture decode steps in HIP graphs", "rocprofv3"),
        ("Google", "Launch decode steps as a whole", "PyTorch profile"),
    ],
)
def test_idle_gaps_within_steps(vendor: str | None, title: str, look: str) -> None:
    facts = decoding(llama_8b(accelerator=plain(vendor)), 0.02)
    observed = Observed(source="a profile", by="profile", idle_within=0.4, idle_between=0.0)
    offered = [each.title for each in remedies("D", facts, attribute(facts, {}, observed), observed=observed)]
    assert title in offered
    found = diagnose(facts, {}, attribute(facts, {}), "decode")
    assert any(look in line for line in map(str, found.missing))


def test_links_have_their_name() -> None:
    assert "over NVLink at" in _basis("h100")
    assert "over Infinity Fabric at" in _basis("mi300x")
    assert (link_name("Google"), link_name("Huawei")) == ("ICI", "the accelerators' own links")


def _basis(name: str) -> str:
    found = estimate(llama_70b(accelerator=accelerator(name)), 12)
    assert found is not None
    return found.basis


def test_counters_that_are_missing_are_the_vendor_s() -> None:
    def lacking(deployment: Deployment, metric: str) -> NoData:
        found = measure(gather(window(), deployment))[metric]
        assert isinstance(found, NoData)
        return found

    assert "DCGM" in str(lacking(llama_8b(), "hfu").remedy)
    amd = lacking(llama_8b(accelerator=accelerator("mi300x")), "hfu")
    assert "device metrics exporter" in amd.reason
    assert ":5000/metrics" in str(amd.remedy)
    cores = lacking(llama_8b(accelerator=CPU), "hardware.mbu")
    assert cores.reason.endswith("none of this accelerator are read")
    assert cores.remedy is None
    each = each_gpu(gather(window(), llama_8b(accelerator=accelerator("mi300x"))), "hardware.mbu")
    assert isinstance(each, NoData)
    assert not NVIDIAS.search(each.reason + str(each.remedy))


@pytest.mark.parametrize("name", ["timeline.idle", "kernels(gemm).mfu", "hfu", "hardware.idle"])
def test_what_no_engine_exports_is_told_by_the_vendor_s_tools(name: str) -> None:
    for board in (accelerator("mi300x"), CPU):
        found = measure(gather(window(), llama_8b(accelerator=board)))[name]
        assert isinstance(found, NoData)
        assert not NVIDIAS.search(found.reason + str(found.remedy)), (board.name, found)
    nvidia = measure(gather(window(), llama_8b()))[name]
    assert isinstance(nvidia, NoData)
    assert NVIDIAS.search(nvidia.reason + str(nvidia.remedy))
    if name == "timeline.idle":
        amd = measure(gather(window(), llama_8b(accelerator=accelerator("mi300x"))))[name]
        assert isinstance(amd, NoData)
        assert "torch_profiler_dir" in str(amd.remedy)  # PyTorch's own profiler is everybody's


def test_the_command_for_a_low_clock() -> None:
    assert str(clock_command("unknown", "NVIDIA")).startswith("nvidia-smi -q -d")
    assert str(clock_command("thermal", "AMD")).startswith("amd-smi metric")
    assert clock_command("thermal", "Google") is None
