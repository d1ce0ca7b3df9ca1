"""An accelerator as a user describes it."""

from __future__ import annotations

import pytest

from pytest_llmroof.errors import ConfigError, ConfigErrors, Position
from pytest_llmroof.roofline.catalogue import accelerator, accelerator_from_mapping


def test_a_complete_description() -> None:
    own = accelerator_from_mapping({
        "name": "my-gpu", "peaks": {"bf16": "400TFLOP/s", "fp8": 800e12}, "memory_bandwidth": "2TB/s", "memory": "80GB",
        "link": "600 GB/s", "l2": "40MiB", "clock": "1.4GHz", "achievable": {"memory": "85%", "bf16": 0.75},
        "device_names": ["My GPU 80GB"],
    })  # fmt: skip
    assert (own.name, own.product, own.confidence, own.source) == ("my-gpu", "my-gpu", "given", "given")
    assert own.peaks == {"bf16": 400e12, "fp8": 800e12}
    assert own.memory_bandwidth_bytes_per_second == 2e12
    assert own.memory_bytes == 80e9
    assert own.link_bytes_per_second == 600e9
    assert own.l2_bytes == 40 * 2**20
    assert own.clock_hertz == 1.4e9
    assert own.achievable == {"memory": 0.85, "bf16": 0.75}
    assert own.device_names == ("My GPU 80GB",)
    assert own.ridge("bf16") == 200.0  # 400e12 / 2e12


def test_what_is_missing_stays_unknown() -> None:
    own = accelerator_from_mapping({"name": "cpu", "memory_bandwidth": "40GB/s"})
    assert own.peaks == {}
    assert own.memory_bytes is None
    assert own.link_bytes_per_second is None
    assert own.ridge("bf16") is None
    assert own.achievable == {}


@pytest.mark.parametrize(("peak", "ridge"), [("989TFLOP/s", 295.2), ("1979TFLOP/s", 590.7)])
def test_the_golden_ridges(peak: str, ridge: float) -> None:
    # 989e12 / 3.35e12 = 295.2 FLOP/B, 1979e12 / 3.35e12 = 590.7 FLOP/B
    own = accelerator_from_mapping({"name": "h100", "peaks": {"bf16": peak}, "memory_bandwidth": "3.35TB/s"})
    assert own.name == "h100"
    assert own.memory_bytes is None  # a name is only a name: nothing comes from the catalogue without base
    found = own.ridge("bf16")
    assert found is not None
    assert round(found, 1) == ridge


def test_nothing_but_a_name_is_a_catalogue_name() -> None:
    assert accelerator_from_mapping({"name": "h100"}) == accelerator("h100")
    with pytest.raises(ConfigError, match=r"unknown accelerator 'my-gpu'") as caught:
        accelerator_from_mapping({"name": "my-gpu"}, lambda key: Position("g.yaml", 3, 7) if key == "name" else None)
    assert str(caught.value).startswith("g.yaml:3:7: unknown accelerator 'my-gpu'")


@pytest.mark.parametrize(("said", "kept"), [("nvidia ", "NVIDIA"), ("amd", "AMD"), (" Acme", "Acme")])
def test_a_maker_is_spelt_as_in_the_catalogue_where_it_is_there(said: str, kept: str) -> None:
    assert accelerator_from_mapping({"name": "x", "memory": "80GB", "vendor": said}).vendor == kept


def test_a_base_gives_what_is_not_said() -> None:
    slice_ = accelerator_from_mapping({
        "name": "h100-1g", "base": "h100", "peaks": {"bf16": "141.3TFLOP/s"}, "memory": "10GB",
    })  # fmt: skip
    whole = accelerator("h100")
    assert slice_.name == slice_.product == "h100-1g"
    assert slice_.peaks["bf16"] == 141.3e12
    assert slice_.peaks["fp8"] == whole.peaks["fp8"]
    assert slice_.memory_bytes == 10e9
    assert slice_.memory_bandwidth_bytes_per_second == whole.memory_bandwidth_bytes_per_second
    assert slice_.device_names == whole.device_names
    assert slice_.confidence == "given"
    # The share that was measured of a peak does not hold for another peak.
    assert slice_.achievable.keys() == {"memory", "fp8"}
    assert accelerator_from_mapping({"base": "h100"}) == whole


@pytest.mark.parametrize(("mapping", "problem"), [
    ({"name": "x", "peeks": {"bf16": 1}}, "unknown key 'peeks' of an accelerator (did you mean 'peaks'?)"),
    ({"name": "x", "peaks": {"bf61": 1e12}}, "unknown entry 'bf61' of peaks (did you mean 'bf16' or 'fp16'?)"),
    ({"name": "x", "peaks": {"posit": 1e12}}, "unknown entry 'posit' of peaks; known are fp32, tf32, bf16, fp16, fp8, "
                                              "int8, fp4"),
    ({"name": "x", "peaks": "400TFLOP/s"}, "peaks is a mapping, like {fp32: ...}, with fp32, tf32, bf16, fp16, fp8, "
                                           "int8, fp4"),
    ({"name": "x", "peaks": {"bf16": "2TB/s"}}, "peaks.bf16: expected a compute rate (989TFLOP/s), not a bandwidth "
                                                "(3.35TB/s)"),
    ({"name": "x", "memory": "80GB/s"}, "memory: expected a size (80GB), not a bandwidth (3.35TB/s)"),
    ({"name": "x", "memory": 0}, "memory: must be more than zero (leave out what is not known)"),
    ({"name": "x", "memory_bandwidth": "-2TB/s"}, "memory_bandwidth: must be more than zero (leave out what is not "
                                                  "known)"),
    ({"name": "x", "memory": True}, "memory: expected a size (80GB), not bool"),
    ({"name": "x", "achievable": {"bf16": "110%"}}, "achievable.bf16: no kernel reaches more than all of a peak"),
    ({"name": "x", "achievable": {"ram": 0.5}}, "unknown entry 'ram' of achievable; known are memory, fp32, tf32, bf16,"
                                                " fp16, fp8, int8, fp4"),
    ({"name": "x", "base": "h1000"}, "unknown accelerator 'h1000' (did you mean 'h100' or 'v100' or 'h800'?); "
                                     "--llmroof-list=gpus names all"),
    ({"name": "x", "base": 100}, "base is the catalogue name of an accelerator, not int"),
    ({"name": 5}, "the name of an accelerator is a text that is not empty"),
    ({"memory": "80GB"}, "an accelerator of one's own needs a name, which reports and baselines go by"),
    ({"name": "x", "device_names": ["x", 1]}, "device_names is a list of texts, as `nvidia-smi --query-gpu=name` "
                                              "prints them"),
    ({"name": "x", "vendor": " "}, "vendor is a text: NVIDIA, AMD, ..., or CPU"),
    ({"name": "x", "device_names": [1]}, "device_names is a list of texts, as `nvidia-smi --query-gpu=name` prints "
                                         "them"),
])  # fmt: skip
def test_what_is_refused(mapping: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        accelerator_from_mapping(mapping)
    assert caught.value.problem == problem
    assert type(caught.value) is ConfigError  # one problem is no list


def test_all_problems_at_once_each_at_its_place() -> None:
    places = {"peaks": Position("g.yaml", 2, 5), "peaks.bf16": Position("g.yaml", 2, 13), "": Position("g.yaml", 1, 1)}
    with pytest.raises(ConfigErrors) as caught:
        accelerator_from_mapping({"peaks": {"bf16": "many", "bf61": 1}, "memory": "80GB"}, places.get)
    assert str(caught.value).splitlines() == [
        "g.yaml:1:1: an accelerator of one's own needs a name, which reports and baselines go by",
        "g.yaml:2:13: peaks.bf16: 'many' is not a quantity: a number with an optional unit, like 75%, 50ms or 3.2TB/s",
        "g.yaml:2:5: unknown entry 'bf61' of peaks (did you mean 'bf16' or 'fp16'?)",
    ]
