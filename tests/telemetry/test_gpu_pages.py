"""Pages of GPU exporters: units, blanks, slices, what cannot be, and how far a sample looks back."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpu_files import H100, T0, dcgm_page, hardware_of, only_gpu, vllm_page, window_of

from pytest_llmroof.telemetry.exporters import exporter_listing
from pytest_llmroof.telemetry.reading import read_window

DATA = Path(__file__).parents[2].parent / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the project's facts are not beside the checkout")


def test_units(tmp_path: Path) -> None:
    figures = {
        "PROF_GR_ENGINE_ACTIVE": 0.98, "PROF_DRAM_ACTIVE": 0.81, "DEV_GPU_UTIL": 99, "DEV_MEM_COPY_UTIL": 43,
        "DEV_SM_CLOCK": 1755, "DEV_MEM_CLOCK": 2619, "DEV_POWER_USAGE": 642.5, "DEV_GPU_TEMP": 61,
        "DEV_FB_USED": 70000, "DEV_FB_FREE": 11000,
    }  # fmt: skip
    gpu = only_gpu(window_of(tmp_path, {"dcgm.prom": dcgm_page(figures)}))
    assert {name: series.values[0] for name, series in gpu.series.items()} == {
        "gr_engine": 0.98, "dram": 0.81,  # ratios
        "utilization": 0.99, "memory_utilization": 0.43,  # percent in the same page
        "sm_clock_hertz": 1.755e9, "memory_clock_hertz": 2.619e9,  # MHz
        "power_watts": 642.5, "temperature_celsius": 61,
        "memory_used_bytes": 70000 * 2**20,  # MiB
        "memory_total_bytes": 81000 * 2**20,
    }  # fmt: skip
    assert (gpu.identity, gpu.device_name, gpu.uuid, gpu.host) == ("gpu 0", H100, "GPU-0", "n1")


def test_the_first_exporters_names(tmp_path: Path) -> None:
    page = 'dcgm_gpu_utilization{gpu="3",uuid="GPU-3"} 7\ndcgm_fi_prof_sm_active{gpu="3",uuid="GPU-3"} 0.25\n'
    gpu = only_gpu(window_of(tmp_path, {"old.prom": page}))
    assert (gpu.identity, gpu.uuid) == ("gpu 3", "GPU-3")
    assert {name: series.values for name, series in gpu.series.items()} == {
        "utilization": (0.07,), "sm_active": (0.25,)
    }  # fmt: skip


def test_rates_that_are_declared_counters(tmp_path: Path) -> None:
    """PROF_PCIE and PROF_NVLINK are bytes per second already: they are samples, and no difference is taken."""
    files = {
        f"{index}.prom": "# TYPE DCGM_FI_PROF_PCIE_TX_BYTES counter\n"
        + dcgm_page({"PROF_PCIE_TX_BYTES": sent, "PROF_PCIE_RX_BYTES": 5e6, "PROF_NVLINK_TX_BYTES": 2e9}, T0 + index)
        for index, sent in enumerate((33e6, 21e6))
    }
    gpu = only_gpu(window_of(tmp_path, files))
    assert gpu.series["pcie_sent_bytes_per_second"].values == (33e6, 21e6)
    assert gpu.series["pcie_bytes_per_second"].values == (38e6, 26e6)
    assert "nvlink_bytes_per_second" not in gpu.series  # one direction only
    assert gpu.counters == {}


def test_links_add_up_and_pods_that_share_a_gpu_do_not(tmp_path: Path) -> None:
    def link(number: int, pod: str) -> str:
        labels = f'gpu="0",UUID="GPU-0",nvlink="{number}",pod="{pod}"'
        return f"DCGM_FI_PROF_NVLINK_TX_BYTES{{{labels}}} 1e9\nDCGM_FI_PROF_NVLINK_RX_BYTES{{{labels}}} 2e9\n"

    page = "".join(link(number, pod) for number in range(4) for pod in ("a", "b"))
    gpu = only_gpu(window_of(tmp_path, {"dcgm.prom": page}))
    # 4 links of 1 GB/s out and 2 GB/s in, each exported twice.
    assert gpu.series["nvlink_sent_bytes_per_second"].values == (4e9,)
    assert gpu.series["nvlink_bytes_per_second"].values == (12e9,)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("9223372036854775794", "mostly: not supported"),
        ("2147483634", "does not support it"),
        ("2147483635", "not permitted"),
        ("140737488355330.000000", "does not support it"),
        ("140737488355329", "did not find it"),
        ("NaN", "is nan"),
    ],
)
def test_blanks_are_absence(tmp_path: Path, value: str, why: str) -> None:
    gpu = only_gpu(window_of(tmp_path, {"dcgm.prom": dcgm_page({"DEV_POWER_USAGE": value, "DEV_GPU_UTIL": 3})}))
    assert "power_watts" not in gpu.series
    assert why in gpu.unusable["power_watts"]


def test_totals_over_the_window(tmp_path: Path) -> None:
    def page(index: int) -> str:
        return dcgm_page({
            "DEV_TOTAL_ENERGY_CONSUMPTION": 1_000_000 + 700_000 * index,
            "DEV_POWER_VIOLATION": 10_000_000 * index,
            "DEV_THERMAL_VIOLATION": 0,
            "DEV_XID_ERRORS": 0 if index < 2 else 79,
            "DEV_CLOCK_THROTTLE_REASONS": 4 if index % 2 else 1,
        }, T0 + index)  # fmt: skip

    gpu = only_gpu(window_of(tmp_path, {f"{index}.prom": page(index) for index in range(4)}))
    # 2 100 000 mJ; 30 000 000 ns; one XID that came; capped by power in two of four samples.
    assert gpu.counters == {
        "energy_joules": pytest.approx(2100), "power_seconds": pytest.approx(0.03), "thermal_seconds": 0,
        "xid_errors": 1,
    }  # fmt: skip
    assert gpu.throttle_reasons == {"thermal": 0.0, "power": 0.5, "other": 0.0}


def test_totals_that_cannot_be(tmp_path: Path) -> None:
    pages = {
        "0.prom": dcgm_page({"DEV_TOTAL_ENERGY_CONSUMPTION": 9e6, "DEV_POWER_VIOLATION": 0}, T0),
        "1.prom": dcgm_page({"DEV_TOTAL_ENERGY_CONSUMPTION": 1e3, "DEV_POWER_VIOLATION": 90e9}, T0 + 10),
    }
    gpu = only_gpu(window_of(tmp_path, pages))
    assert gpu.counters == {}
    assert "went down" in gpu.unusable["energy_joules"]
    assert "grew by 90 s in 10 s" in gpu.unusable["power_seconds"]


def test_a_hardware_slowdown_is_told_by_its_cause(tmp_path: Path) -> None:
    # 0x48: hardware slowdown (0x8), by heat (0x40).
    gpu = only_gpu(window_of(tmp_path, {"dcgm.prom": dcgm_page({"DEV_CLOCKS_EVENT_REASONS": 0x48})}))
    assert gpu.throttle_reasons == {"thermal": 1.0, "power": 0.0, "other": 0.0}


def test_profiling_fields_that_are_missing(tmp_path: Path) -> None:
    window = window_of(tmp_path, {"dcgm.prom": dcgm_page({"DEV_GPU_UTIL": 100})})
    missing = hardware_of(window).missing
    assert set(missing) == {"gr_engine", "sm_active", "tensor", "dram", "nvlink_sent_bytes_per_second",
                            "nvlink_received_bytes_per_second"}  # fmt: skip
    assert "--cap-add SYS_ADMIN" in missing["dram"]
    window = window_of(tmp_path, {"dcgm.prom": dcgm_page({"PROF_GR_ENGINE_ACTIVE": 1, "PROF_DRAM_ACTIVE": 0.5})})
    assert "add the line `DCGM_FI_PROF_SM_ACTIVE, gauge," in hardware_of(window).missing["sm_active"]


def test_a_single_silent_field(tmp_path: Path) -> None:
    page = dcgm_page({"PROF_GR_ENGINE_ACTIVE": 0.99, "PROF_SM_ACTIVE": 0, "PROF_PIPE_TENSOR_ACTIVE": 0})
    gpu = only_gpu(window_of(tmp_path, {"dcgm.prom": page}))
    assert "it is not measured" in gpu.unusable["sm_active"]
    assert gpu.series["tensor"].values == (0.0,)  # a decode of matrix-vector products leaves the tensor pipe idle


def test_a_utilization_of_zero_beside_engines_at_work_was_not_measured(tmp_path: Path) -> None:
    page = dcgm_page({"PROF_GR_ENGINE_ACTIVE": 0.98, "PROF_DRAM_ACTIVE": 0.4, "DEV_GPU_UTIL": 0})
    gpu = only_gpu(window_of(tmp_path, {"dcgm.prom": page}))
    assert gpu.unusable == {
        "utilization": "DCGM_FI_DEV_GPU_UTIL says 0 while DCGM_FI_PROF_GR_ENGINE_ACTIVE says 98 %: it is not measured"
    }
    assert set(gpu.series) == {"gr_engine", "dram"}


def test_a_clock_of_zero_is_no_clock(tmp_path: Path) -> None:
    """No GPU that answers stands still; and where some samples hold none, the others count."""
    files = {f"{at}.prom": dcgm_page({"DEV_SM_CLOCK": mhz, "DEV_MEM_CLOCK": 0, "DEV_POWER_USAGE": at}, T0 + at)
             for at, mhz in ((1, 0), (2, 1755))}  # fmt: skip
    gpu = only_gpu(window_of(tmp_path, files))
    assert gpu.series["sm_clock_hertz"].values == (1.755e9,)
    assert gpu.unusable == {
        "memory_clock_hertz": "DCGM_FI_DEV_MEM_CLOCK says 0, as no GPU does: it is not measured"
    }


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("DEV_SM_CLOCK", 1_752_000, "1.75e+12 Hz"),  # kHz where MHz should stand
        ("PROF_NVLINK_TX_BYTES", 4e15, "4e+15 B/s"),  # a total where a rate should stand
        ("DEV_POWER_USAGE", 642_500, "6.42e+05 W"),  # mW
    ],
)
def test_more_than_a_gpu_can_do_is_in_another_unit(tmp_path: Path, field: str, value: float, said: str) -> None:
    gpu = only_gpu(window_of(tmp_path, {"dcgm.prom": dcgm_page({field: value, "PROF_DRAM_ACTIVE": 0.4})}))
    ((_, why),) = gpu.unusable.items()
    assert why == f"DCGM_FI_{field} says {said}, more than a GPU can do: it is in another unit, or a total"
    assert set(gpu.series) == {"dram"}


def test_an_idle_gpu_is_no_contradiction(tmp_path: Path) -> None:
    page = dcgm_page({"DEV_GPU_UTIL": 0, "PROF_GR_ENGINE_ACTIVE": 0, "PROF_DRAM_ACTIVE": 0})
    gpu = only_gpu(window_of(tmp_path, {"dcgm.prom": page}))
    assert gpu.unusable == {}
    assert gpu.series["gr_engine"].values == (0.0,)


def sampled(folder: Path, collected_every: int, seconds: int, every: int = 1) -> object:
    """DCGM pages, one every so many seconds, of an exporter that asks its GPU every ``collected_every``."""
    files = {
        f"dcgm.{index:06}.prom": dcgm_page({"PROF_DRAM_ACTIVE": 0.5 + index // collected_every / 1000}, T0 + index)
        for index in range(0, seconds + 1, every)
    }
    return hardware_of(window_of(folder, files))


@pytest.mark.parametrize(
    ("collected_every", "seconds", "every", "averaging", "samples"),
    [
        (10, 60, 1, 11, 7),  # shown for ten scrapes each: an average over 10 s that ended up to 1 s ago
        (1, 60, 1, 2, 61),  # new with every scrape: an interval of 1 s at most
        (30, 120, 5, 35, 5),
        (30, 20, 1, 31, 1),  # never new in 20 s: the usual 30 s
        (90, 80, 1, 80, 1),  # never new in 80 s: more than the usual 30 s
        (30, 120, 60, 60, 3),  # scraped less often than asked: the usual 30 s, that ended up to 30 s ago
    ],
)
def test_how_far_a_sample_looks_back(
    tmp_path: Path, collected_every: int, seconds: int, every: int, averaging: float, samples: int
) -> None:
    hardware = sampled(tmp_path, collected_every, seconds, every)
    assert hardware.averaging_seconds == averaging  # type: ignore[attr-defined]  # not None: it was sampled
    assert len(hardware.gpus[0].series["dram"].times) == samples  # type: ignore[attr-defined]  # not None: it was sampled


class TestBesideAnEngine:
    def test_on_its_clock(self, tmp_path: Path) -> None:
        files = {"a.prom": vllm_page(0, T0), "b.prom": vllm_page(100, T0 + 60)}
        files |= {f"dcgm{index}.prom": dcgm_page({"PROF_DRAM_ACTIVE": 0.5 + index / 100}, T0 + at)
                  for index, at in enumerate((-600, 0.2, 30, 60.2))}  # fmt: skip
        window = window_of(tmp_path, files)
        assert window.device_names == (H100,)
        assert window.unread == ()
        assert hardware_of(window).clocked
        # The page of ten minutes before is not the window's.
        assert only_gpu(window).series["dram"].times == (T0 + 0.2, T0 + 30, T0 + 60.2)

    def test_of_another_time(self, tmp_path: Path) -> None:
        files = {"a.prom": vllm_page(0, T0), "b.prom": vllm_page(100, T0 + 60)}
        files["dcgm.prom"] = dcgm_page({"PROF_DRAM_ACTIVE": 0.5}, T0 + 7200)
        window = window_of(tmp_path, files)
        assert window.hardware is None
        assert "no page of NVIDIA DCGM exporter lies inside the window: its counters are left out" in window.notes

    def test_without_a_clock(self, tmp_path: Path) -> None:
        files = {"before.prom": vllm_page(0), "after.prom": vllm_page(100)}
        files |= {f"dcgm-{index}.prom": dcgm_page({"PROF_DRAM_ACTIVE": 0.5 + index / 100}) for index in range(2)}
        hardware = hardware_of(window_of(tmp_path, files, duration_seconds=60.0))
        assert not hardware.clocked
        assert "not on the window's clock" in hardware.notes[0]

    def test_several_hosts_and_kinds(self, tmp_path: Path) -> None:
        other = dcgm_page({"DEV_GPU_UTIL": 5}, T0, UUID="GPU-9", Hostname="n2", modelName="NVIDIA A100-SXM4-80GB")
        files = {"a.prom": vllm_page(0, T0), "b.prom": vllm_page(100, T0 + 60)}
        files |= {"n1.prom": dcgm_page({"DEV_GPU_UTIL": 95}, T0), "n2.prom": other}
        window = window_of(tmp_path, files)
        assert [gpu.identity for gpu in hardware_of(window).gpus] == ["gpu 0 of n1", "gpu 0 of n2"]
        assert window.device_names == (H100, "NVIDIA A100-SXM4-80GB")


def test_slices_stand_apart_from_the_gpu(tmp_path: Path) -> None:
    page = dcgm_page({"PROF_SM_ACTIVE": 0.5})
    page += dcgm_page({"PROF_SM_ACTIVE": 0.9}, GPU_I_ID="7", GPU_I_PROFILE="1g.10gb")
    whole, part = hardware_of(window_of(tmp_path, {"dcgm.prom": page})).gpus
    assert (whole.mig, whole.series["sm_active"].values) == (None, (0.5,))
    assert part.identity == "slice 7 (1g.10gb) of gpu 0"
    assert part.mig is not None
    assert (part.mig.profile, part.mig.instance, part.series["sm_active"].values) == ("1g.10gb", "7", (0.9,))


def test_fields_of_no_gpu_are_none(tmp_path: Path) -> None:
    page = 'DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT{nvswitch="0"} 40\n' + dcgm_page({"DEV_GPU_UTIL": 5})
    assert [gpu.identity for gpu in hardware_of(window_of(tmp_path, {"dcgm.prom": page})).gpus] == ["gpu 0"]


def amd_page(at: float, activity: float, energy: float, **labels: str) -> str:
    told = {"gpu_id": "0", "gpu_uuid": "u-0", "card_series": "AMD Instinct MI300X OAM", "hostname": "n1",
            "gpu_partition_id": "0", "gpu_compute_partition_type": "spx", **labels}  # fmt: skip
    text = ",".join(f'{label}="{value}"' for label, value in told.items())
    clocks = "".join(
        f'gpu_clock{{{text},clock_type="GPU_CLOCK_TYPE_SYSTEM",clock_index="{index}"}} {mhz}\n'
        for index, mhz in enumerate((1900, 2100))
    )
    return (
        f"# scraped_at {at}\ngpu_gfx_activity{{{text}}} {activity}\ngpu_package_power{{{text}}} 750\n{clocks}"
        f"gpu_umc_activity{{{text}}} 65535\ngpu_energy_consumed{{{text}}} {energy}\ngpu_used_vram{{{text}}} 1024\n"
    )


def test_amds_exporter(tmp_path: Path) -> None:
    files = {f"{index}.prom": amd_page(T0 + index, 97 - index, 1e12 + 750e6 * index) for index in range(3)}
    window = window_of(tmp_path, files)
    gpu = only_gpu(window)
    assert hardware_of(window).kinds == ("amd",)
    assert (gpu.device_name, gpu.mig, gpu.uuid) == ("AMD Instinct MI300X OAM", None, "u-0")
    assert gpu.series["utilization"].values == pytest.approx((0.97, 0.96, 0.95))
    assert gpu.series["sm_clock_hertz"].values == (2e9,) * 3  # the mean of two dies
    assert gpu.series["memory_used_bytes"].values[0] == 2**30
    assert gpu.counters["energy_joules"] == pytest.approx(1500)  # 2 x 750 000 000 uJ
    assert "does not tell it" in gpu.unusable["memory_utilization"]
    assert "ProfilerMetrics" in hardware_of(window).missing["tensor"]
    part = only_gpu(window_of(tmp_path, {
        f"{index}.prom": amd_page(T0 + index, 50, 1, gpu_compute_partition_type="cpx", gpu_partition_id="3")
        for index in range(3)
    }))  # fmt: skip
    assert part.mig is not None
    assert part.identity == "slice 3 (cpx) of gpu 0"


def test_what_amds_exporter_never_tells_is_not_asked_of_it(tmp_path: Path) -> None:
    page = 'gpu_gfx_activity{gpu_id="0",card_series="AMD Instinct MI300X"} 99\n'
    missing = hardware_of(window_of(tmp_path, {"amd.prom": page})).missing
    assert "AMD's exporter does not tell it" in missing["dram"]
    assert "AMD's exporter does not tell it" in missing["sm_active"]
    assert "switch on ProfilerMetrics" in missing["tensor"]


def test_amds_names_with_a_prefix(tmp_path: Path) -> None:
    page = amd_page(T0, 97, 1).replace("\ngpu_", "\namd_gpu_")
    assert only_gpu(window_of(tmp_path, {"amd.prom": page})).series["utilization"].values == (0.97,)


def test_the_list_of_what_is_read() -> None:
    listing = exporter_listing()
    assert listing["dcgm"].endswith("activity of engines, of SMs, of tensor cores, of memory, links, GPU utilization, "
                                    "clocks, power, energy, throttling")  # fmt: skip
    assert "tensor" not in listing["nvidia-smi"]


@needs_data
class TestRealPages:
    """Transcribed from others' fixtures: see their INDEX.md."""

    def test_a100_with_slices(self) -> None:
        path = DATA / "engines" / "dcgm-exporter-2.x-a100-mig-excerpt.prom"
        window = read_window([(path, path.name)])
        whole, part = hardware_of(window).gpus
        assert whole.series["dram"].values == (0.690789,)
        assert list(whole.series["pcie_bytes_per_second"].values) == [33_011_804 + 97_863_601]
        assert list(whole.series["memory_total_bytes"].values) == [(35_690 + 4_845) * 2**20]
        assert "unit differs" in whole.unusable["nvlink_bytes"]
        assert (part.identity, part.series["dram"].values) == ("slice 13 (1g.5gb) of gpu 0", (0.800339,))

    def test_t4(self) -> None:
        path = DATA / "engines" / "dcgm-exporter-2.x-tesla-t4.prom"
        window = read_window([(path, path.name)])
        assert window.device_names == ("Tesla T4",)
        assert hardware_of(window).gpus[0].series["power_watts"].values == (8.969,)
        assert "SYS_ADMIN" in hardware_of(window).missing["dram"]

    @pytest.mark.parametrize(
        ("case", "quantity", "gist"),
        [
            ("52-dcgm-mig-over-one", "sm_active", "114 %, more than the whole"),
            ("76-dcgm-prof-zero-under-load", "dram", "say 0 while GPU utilization is 99 %"),
        ],
    )
    def test_what_cannot_be(self, case: str, quantity: str, gist: str) -> None:
        path = DATA / "cases" / case / "dcgm.prom"
        gpu = only_gpu(read_window([(path, path.name)]))
        assert quantity not in gpu.series
        assert gist in gpu.unusable[quantity]
