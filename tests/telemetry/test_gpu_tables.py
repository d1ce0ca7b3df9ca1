"""What nvidia-smi and amd-smi print: units, absent cells, damaged files, and whether their times are the window's."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from gpu_files import H100, T0, csv_of, dcgm_page, hardware_of, only_gpu, vllm_page, window_of
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.gputables import GpuTable
from pytest_llmroof.telemetry.smi import is_table, read_table

HEAD = (
    "timestamp, index, name, utilization.gpu [%], memory.used [MiB], clocks.current.sm [MHz], power.draw [W], "
    "clocks_event_reasons.sw_power_cap, clocks_event_reasons.hw_slowdown"
)


def row(second: float, index: int = 0, use: str = "98 %", power: str = "640.50 W", capped: str = "Not Active") -> str:
    time = f"{datetime.fromtimestamp(T0 + 7200 + second, UTC):%Y/%m/%d %H:%M:%S.%f}"[:-3]
    return f"{time}, {index}, {H100}, {use}, 70000 MiB, 1755 MHz, {power}, {capped}, Not Active"


def refused(folder: Path, text: str, name: str = "smi.csv") -> SourceError:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SourceError) as caught:
        read_table(text, name)
    return caught.value


def test_csv_of_two_gpus_in_turns(tmp_path: Path) -> None:
    capped = ("Active", "Not Active")
    rows = [row(at + index / 100, index, capped=capped[at]) for at in (0, 1) for index in (0, 1)]
    window = window_of(tmp_path, {"smi.csv": csv_of(HEAD, rows)})
    assert (window.kind, len(window.engines)) == ("nvidia-smi", 0)
    assert window.duration_seconds == pytest.approx(1.01)
    first, second = hardware_of(window).gpus
    assert (first.identity, first.device_name, second.identity) == ("gpu 0", H100, "gpu 1")
    assert {name: series.values[0] for name, series in first.series.items()} == {
        "utilization": 0.98, "memory_used_bytes": 70000 * 2**20, "sm_clock_hertz": 1.755e9, "power_watts": 640.5,
    }  # fmt: skip
    # Of the power brake (0x80) nothing was asked: the cap held in one of two rows, and else nothing is known.
    assert first.throttle_reasons == {"power": 1.0}
    assert hardware_of(window).averaging_seconds == 1
    assert "record a DCGM exporter" in hardware_of(window).missing["dram"]


def test_without_units(tmp_path: Path) -> None:
    text = csv_of("index, utilization.gpu [%], clocks.current.sm [MHz], memory.total [MiB]", ["0, 55, 1200, 81559"])
    gpu = only_gpu(window_of(tmp_path, {"smi.csv": text}))
    assert gpu.series["utilization"].values == pytest.approx((0.55,))
    assert gpu.series["sm_clock_hertz"].values == (1.2e9,)
    assert gpu.series["memory_total_bytes"].values == (81559 * 2**20,)


def test_a_single_column(tmp_path: Path) -> None:
    text = "utilization.gpu [%]\n55 %\n65 %\n"
    assert list(only_gpu(window_of(tmp_path, {"smi.csv": text})).series["utilization"].values) == [0.55, 0.65]


@pytest.mark.parametrize("cell", ["[N/A]", "[Not Supported]", "N/A", "[Unknown Error]", "[GPU is lost]", "-", ""])
def test_absent_cells(tmp_path: Path, cell: str) -> None:
    gpu = only_gpu(window_of(tmp_path, {"smi.csv": csv_of(HEAD, [row(0, power=cell), row(1, power=cell)])}))
    assert "power_watts" not in gpu.series
    assert gpu.unusable["power_watts"].startswith("power.draw: ")


def test_a_mask_of_reasons(tmp_path: Path) -> None:
    rows = ["0, 97 %, 0x0000000000000004", "0, 97 %, 0x0000000000000044", "0, 97 %, 0x0000000000000001"]
    text = csv_of("index, utilization.gpu [%], clocks_throttle_reasons.active", rows)
    # 4: software power cap; 44: with heat; 1: idle, which is no throttling.
    assert only_gpu(window_of(tmp_path, {"smi.csv": text})).throttle_reasons == {
        "power": pytest.approx(2 / 3), "thermal": pytest.approx(1 / 3), "other": 0.0
    }  # fmt: skip


def test_counters_of_reasons_add_up(tmp_path: Path) -> None:
    head = (
        "timestamp, index, clocks_event_reasons_counters.sw_power_cap [us], "
        "clocks_event_reasons_counters.hw_thermal_slowdown [us], clocks_event_reasons_counters.sw_thermal_slowdown [us]"
    )
    rows = [f"2026/09/04 02:00:{at:02}.000, 0, {at * 1000} us, {at * 100} us, {at * 10} us" for at in (0, 10)]
    counters = only_gpu(window_of(tmp_path, {"smi.csv": csv_of(head, rows)})).counters
    assert counters["power_seconds"] == pytest.approx(0.01)
    assert counters["thermal_seconds"] == pytest.approx(0.0011)


def test_rows_without_a_gpus_name_are_one_gpu_and_said(tmp_path: Path) -> None:
    text = csv_of("timestamp, utilization.gpu [%]", ["2026/09/04 02:00:00.000, 5 %", "2026/09/04 02:00:01.000, 7 %"])
    hardware = hardware_of(window_of(tmp_path, {"smi.csv": text}))
    assert [gpu.identity for gpu in hardware.gpus] == ["the GPU"]
    assert hardware.notes == ("no column of rec/smi.csv tells its GPUs apart: its rows are taken as one GPU's",)


class TestClock:
    """The machine's local time is UTC+02:00 in all of these; the window begins at 00:00 UTC, 02:00 there."""

    @staticmethod
    def engine(seconds: float = 60) -> dict[str, str]:
        return {"a.prom": vllm_page(0, T0), "b.prom": vllm_page(100, T0 + seconds)}

    def test_the_only_zone_that_covers_the_window(self, tmp_path: Path) -> None:
        rows = [row(at) for at in range(62)]
        window = window_of(tmp_path, {**self.engine(), "smi.csv": csv_of(HEAD, rows)})
        hardware = hardware_of(window)
        assert hardware.clocked
        assert "taken as UTC+02:00" in hardware.notes[0]
        assert only_gpu(window).series["utilization"].times[0] == T0
        assert window.device_names == (H100,)
        assert ("nvidia-smi", "rec/smi.csv") in [(one.kind, one.location) for one in window.sources]

    def test_a_line_of_the_files_own(self, tmp_path: Path) -> None:
        """Three hours of rows cover the window in many zones; the line before them says which."""
        rows = [row(at) for at in range(-3600, 7200, 30)]
        window = window_of(tmp_path, {**self.engine(), "smi.csv": csv_of(HEAD, rows)})
        assert not hardware_of(window).clocked
        assert "several time zones fit" in hardware_of(window).notes[0]
        text = f"# scraped_at {T0 - 3601.5}\n" + csv_of(HEAD, rows)
        window = window_of(tmp_path, {**self.engine(), "smi.csv": text})
        assert hardware_of(window).clocked
        assert only_gpu(window).series["utilization"].times == (T0, T0 + 30, T0 + 60)

    def test_another_time(self, tmp_path: Path) -> None:
        rows = [row(at) for at in range(400, 420)]
        hardware = hardware_of(window_of(tmp_path, {**self.engine(), "smi.csv": csv_of(HEAD, rows)}))
        assert not hardware.clocked
        assert "in no time zone do they cover the window" in hardware.notes[0]
        assert "# scraped_at" in hardware.notes[0]

    def test_a_time_with_its_zone(self, tmp_path: Path) -> None:
        text = csv_of("timestamp,index,utilization.gpu", [f"2026-09-04T02:00:{at:02},5+02:00,0,50" for at in (1, 9)])
        window = window_of(tmp_path, {**self.engine(), "smi.csv": text.replace(",5+", "+")})
        assert hardware_of(window).clocked
        assert only_gpu(window).series["utilization"].times == (T0 + 1, T0 + 9)

    def test_beside_dcgm_each_gpu_is_there_once(self, tmp_path: Path) -> None:
        files = self.engine()
        files |= {f"dcgm{at}.prom": dcgm_page({"PROF_DRAM_ACTIVE": 0.5 + at / 1000}, T0 + at) for at in (0, 60)}
        window = window_of(tmp_path, {**files, "smi.csv": csv_of(HEAD, [row(at) for at in range(62)])})
        gpu = only_gpu(window)
        assert hardware_of(window).kinds == ("dcgm", "nvidia-smi")
        assert set(gpu.series) >= {"dram", "utilization"}
        assert "dram" not in hardware_of(window).missing
        # Without a clock that is known, of nvidia-smi only names and totals are used.
        files["smi.csv"] = csv_of("index, name, utilization.gpu [%]", [f"0, {H100}, 50 %", f"0, {H100}, 60 %"])
        window = window_of(tmp_path, files)
        assert set(only_gpu(window).series) == {"dram"}
        assert "no common clock" in " ".join(hardware_of(window).notes)

    def test_amd_smi_tells_unix_seconds(self, tmp_path: Path) -> None:
        rows = [f"{T0 + at:.0f},0,0,750,60,1900,97,61,180000,196592" for at in (0, 60)]
        head = "timestamp,gpu,xcp,power_usage,hotspot_temperature,gfx_clk,gfx,mem,vram_used,vram_total"
        window = window_of(tmp_path, {**self.engine(), "amd.csv": csv_of(head, rows)})
        gpu = only_gpu(window)
        assert (hardware_of(window).clocked, hardware_of(window).kinds, gpu.mig) == (True, ("amd-smi",), None)
        assert {name: series.values[0] for name, series in gpu.series.items()} == {
            "power_watts": 750, "temperature_celsius": 60, "sm_clock_hertz": 1.9e9, "utilization": 0.97,
            "memory_utilization": 0.61, "memory_used_bytes": 180000 * 2**20, "memory_total_bytes": 196592 * 2**20,
        }  # fmt: skip

    def test_amd_smi_s_partitions_are_slices(self, tmp_path: Path) -> None:
        """A GPU in CPX mode: eight rows at a time, of which none is the whole GPU's; another one is not cut."""
        head = "timestamp,gpu,xcp,power_usage,gfx_clk,gfx,mem"
        rows = []
        for at in (0, 60):
            rows += [f"{T0 + at:.0f},0,{xcp},{'750' if xcp == 0 else 'N/A'},1900,{10 * xcp},61" for xcp in range(8)]
            rows += [f"{T0 + at:.0f},1,0,700,1900,97,61"]
        window = window_of(tmp_path, {**self.engine(), "amd.csv": csv_of(head, rows)})
        found = {(gpu.index, gpu.mig.instance if gpu.mig else None): gpu for gpu in hardware_of(window).gpus}
        assert set(found) == {*(("0", str(xcp)) for xcp in range(8)), ("1", None)}
        for xcp in range(8):
            cut = found["0", str(xcp)]
            assert cut.mig is not None
            assert cut.mig.profile == "CPX (8 partitions)"
            assert cut.series["utilization"].values[0] == pytest.approx(xcp / 10)
        assert found["1", None].series["utilization"].values[0] == 0.97

    def test_amd_smi_s_documents_tell_partitions_too(self, tmp_path: Path) -> None:
        rows = [{"timestamp": int(T0 + at), "gpu": 0, "xcp": xcp, "gfx": {"value": 50 + xcp, "unit": "%"},
                 "mem": {"value": 10, "unit": "%"}} for at in (0, 60) for xcp in (0, 1)]  # fmt: skip
        window = window_of(tmp_path, {**self.engine(), "amd.json": json.dumps(rows)})
        assert [gpu.mig and gpu.mig.profile for gpu in hardware_of(window).gpus] == ["DPX (2 partitions)"] * 2


class TestDamage:
    def test_a_last_line_that_was_cut(self, tmp_path: Path) -> None:
        whole = csv_of(HEAD, [row(0), row(1)])
        for cut in ("2026/09/04 02:00:0", row(2)[:-4]):  # within a cell of few, and of all columns
            hardware = hardware_of(window_of(tmp_path, {"smi.csv": whole + cut}))
            assert len(hardware.gpus[0].series["utilization"].values) == 2
            assert "last line" in hardware.notes[0]

    def test_a_line_inside(self, tmp_path: Path) -> None:
        error = refused(tmp_path, csv_of(HEAD, [row(0), "2026/09/04 02:00:01.000, 0", row(2)]))
        assert error.reason == "smi.csv:3: 2 cells where the head has 9 columns"

    def test_a_tool_that_failed(self, tmp_path: Path) -> None:
        said = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
        assert "smi.csv:1: the tool failed: NVIDIA-SMI has failed" in refused(tmp_path, said + "\n").reason
        lost = "Unable to determine the device handle for GPU0000:01:00.0: Unknown Error"
        assert "smi.csv:3: the tool failed" in refused(tmp_path, csv_of(HEAD, [row(0), lost])).reason

    def test_no_head(self, tmp_path: Path) -> None:
        rows = csv_of("# a run of the night", ["2026/09/04 02:00:00.000, 0, 97, 1755"])
        error = refused(tmp_path, rows)
        assert "leave out noheader" in str(error.remedy)
        named = rows.replace("# a run of the night", "# timestamp, index, utilization.gpu, clocks.sm")
        assert only_gpu(window_of(tmp_path, {"smi.csv": named})).series["sm_clock_hertz"].values == (1.755e9,)

    def test_no_figure(self, tmp_path: Path) -> None:
        assert refused(tmp_path, csv_of(HEAD, [row(0, use="lots")])).reason == (
            "smi.csv:2: utilization.gpu is 'lots', which is no figure"
        )
        assert "no row of figures" in refused(tmp_path, HEAD + "\n").reason

    def test_a_recording_is_read_without_it(self, tmp_path: Path) -> None:
        files = {**TestClock.engine(), "smi.csv": csv_of(HEAD, [row(0), "x, y", row(1)])}
        window = window_of(tmp_path, files)
        assert window.hardware is None
        assert window.unread == ("rec/smi.csv: 3: 2 cells where the head has 9 columns",)

    def test_other_tables_are_left_alone(self) -> None:
        page = "# HELP x y\nx 1\n"
        for text in ("step,loss,gpu\n1,2,0\n", "<html><body>404</body></html>", "name\nAlice\n", page, ""):
            assert not is_table(text)
            assert read_table(text, "t") is None


XML = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
  <timestamp>Fri Sep  4 02:00:30 2026</timestamp>
  <gpu id="00000000:29:00.0">
    <product_name>NVIDIA A100-SXM4-80GB</product_name><uuid>GPU-e1</uuid>
    <clocks_event_reasons>
      <clocks_event_reason_sw_power_cap>Active</clocks_event_reason_sw_power_cap>
    </clocks_event_reasons>
    <fb_memory_usage><total>81920 MiB</total><used>984 MiB</used></fb_memory_usage>
    <utilization><gpu_util>93 %</gpu_util><memory_util>N/A</memory_util></utilization>
    <gpu_power_readings><instant_power_draw>301.5 W</instant_power_draw></gpu_power_readings>
    <clocks><sm_clock>1410 MHz</sm_clock></clocks>
  </gpu>
</nvidia_smi_log>
"""

QUERY = """
==============NVSMI LOG==============

Timestamp                                 : Fri Sep  4 02:00:30 2026
Driver Version                            : 535.104.05
Attached GPUs                             : 2
GPU 00000000:29:00.0
    Product Name                          : NVIDIA L4
    MIG Mode
        Current                           : N/A
    GPU UUID                              : GPU-e2
    FB Memory Usage
        Total                             : 23034 MiB
        Used                              : 1 MiB
    Utilization
        Gpu                               : 12 %
    Clocks
        SM                                : 2040 MHz
    Max Clocks
        SM                                : 9999 MHz
GPU 00000000:2A:00.0
    Product Name                          : NVIDIA L4
    GPU UUID                              : GPU-e3
"""


class TestDocuments:
    def test_xml(self, tmp_path: Path) -> None:
        window = window_of(tmp_path, {**TestClock.engine(), "q.xml": XML})
        gpu = only_gpu(window)
        assert (gpu.device_name, gpu.uuid, gpu.identity) == ("NVIDIA A100-SXM4-80GB", "GPU-e1", "gpu 0")
        assert {name: series.values[0] for name, series in gpu.series.items()} == {
            "memory_total_bytes": 81920 * 2**20, "memory_used_bytes": 984 * 2**20, "utilization": 0.93,
            "power_watts": 301.5, "sm_clock_hertz": 1.41e9,
        }  # fmt: skip
        assert gpu.throttle_reasons == {"power": 1.0}
        assert hardware_of(window).clocked  # within the window in one zone only

    def test_xml_that_attacks(self, tmp_path: Path) -> None:
        attack = XML.replace(
            '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">',
            '<!DOCTYPE nvidia_smi_log [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>',
        )
        assert "declares entities" in refused(tmp_path, attack.replace("GPU-e1", "&b;"), "q.xml").reason
        assert "damaged XML" in refused(tmp_path, XML.replace("</gpu>", "</g>"), "q.xml").reason
        assert "cut off" in refused(tmp_path, XML[:-20], "q.xml").reason

    def test_query(self, tmp_path: Path) -> None:
        one, two = hardware_of(window_of(tmp_path, {"q.txt": QUERY})).gpus
        assert (one.identity, one.device_name, one.uuid, two.uuid) == ("gpu 0", "NVIDIA L4", "GPU-e2", "GPU-e3")
        assert one.series["sm_clock_hertz"].values == (2.04e9,)
        assert one.series["utilization"].values == (0.12,)

    def test_queries_one_after_the_other(self, tmp_path: Path) -> None:
        later = QUERY.replace("02:00:30", "02:01:00").replace("12 %", "14 %")
        one, two = hardware_of(window_of(tmp_path, {"q.txt": QUERY + later})).gpus
        assert (one.identity, two.identity) == ("gpu 0", "gpu 1")
        assert one.series["utilization"].values == (0.12, 0.14)

    def test_a_long_line_takes_no_time(self, tmp_path: Path) -> None:
        blanks = " " * 200_000
        text = f"+--+\n| NVIDIA-SMI 535.104.05 |\n|   0  A{blanks}B\n|   1  NVIDIA L4   On  | 00000000:29:00.0 Off |\n"
        assert window_of(tmp_path, {"smi.txt": text}).device_names == ("NVIDIA L4",)
        query = QUERY + f"    a{blanks}b\n    c{blanks}: d\n"
        assert len(hardware_of(window_of(tmp_path / "q", {"q.txt": query})).gpus) == 2

    def test_the_list_names_slices(self, tmp_path: Path) -> None:
        text = f"GPU 0: {H100} (UUID: GPU-63)\n  MIG 1g.10gb     Device  0: (UUID: MIG-5c)\n"
        whole, part = hardware_of(window_of(tmp_path, {"list.txt": text})).gpus
        assert whole.mig is None
        assert (part.identity, part.mig and part.mig.profile) == ("slice 0 (1g.10gb) of gpu 0", "1g.10gb")

    def test_the_plain_table_names_devices(self, tmp_path: Path) -> None:
        text = (
            "+------+\n| NVIDIA-SMI 535.104.05    Driver Version: 535.104.05   CUDA Version: 12.2     |\n"
            "|   0  NVIDIA GeForce RTX 3080        On  | 00000000:28:00.0 Off |                  N/A |\n"
            "|   1  NVIDIA H100 80G...             On  | 00000000:29:00.0 Off |                  N/A |\n"
        )
        window = window_of(tmp_path, {"smi.txt": text})
        assert window.device_names == ("NVIDIA GeForce RTX 3080",)  # a name that was cut is none
        assert "only the devices' names are read" in hardware_of(window).notes[0]

    def test_dmon(self, tmp_path: Path) -> None:
        text = (
            "#Date       Time        gpu    pwr  gtemp     sm    mem   mclk   pclk\n"
            "#YYYYMMDD   HH:MM:SS    Idx      W      C      %      %    MHz    MHz\n"
            " 20260904   02:00:00      0    267     39    100     95   6250   1710\n"
            " 20260904   02:01:01      0      -     41     85     80   6250   1710\n"
        )
        window = window_of(tmp_path, {**TestClock.engine(), "dmon.txt": text})
        gpu = only_gpu(window)
        assert hardware_of(window).clocked
        assert gpu.series["utilization"].values == (1.0, 0.85)
        assert gpu.series["power_watts"].values == (267.0,)
        assert gpu.series["sm_clock_hertz"].values == (1.71e9, 1.71e9)

    @pytest.mark.parametrize(("cut", "said"), [(3, "does not end"), (30, "is cut off")])
    def test_a_dmon_that_was_cut(self, tmp_path: Path, cut: int, said: str) -> None:
        text = (
            "#Date       Time        gpu    pwr  gtemp     sm    mem   mclk   pclk\n"
            " 20260904   02:00:00      0    267     39    100     95   6250   1710\n"
            " 20260904   02:01:01      0    250     41     85     80   6250   1710\n"
        )
        window = window_of(tmp_path, {**TestClock.engine(), "dmon.txt": text[:-cut]})
        assert only_gpu(window).series["power_watts"].values == (267.0,)
        assert any(f"dmon.txt:3: the last line {said}, and " in note for note in hardware_of(window).notes)

    def test_amd_json(self, tmp_path: Path) -> None:
        def one(gpu: int, use: int) -> dict[str, object]:
            return {
                "gpu": gpu, "usage": {"gfx_activity": {"value": use, "unit": "%"}, "vcn_activity": ["N/A"]},
                "power": {"socket_power": {"value": 239, "unit": "W"}, "throttle_status": "UNTHROTTLED"},
                "mem_usage": {"total_vram": {"value": 294896, "unit": "MB"}},
                "energy": {"total_energy_consumption": {"value": 10.5 + use, "unit": "J"}},
            }  # fmt: skip

        text = json.dumps({"gpu_data": [one(0, 47), {"gpu": 2, "usage": "N/A"}]})
        gpus = hardware_of(window_of(tmp_path, {"amd.json": text})).gpus
        assert [gpu.identity for gpu in gpus] == ["gpu 0", "gpu 2"]
        assert list(gpus[0].series["utilization"].values) == pytest.approx([0.47])
        assert list(gpus[0].series["memory_total_bytes"].values) == [294896 * 2**20]
        # Watching prints one document after the other.
        watched = "\n".join(json.dumps([{"timestamp": int(T0) + at, **one(0, at)}]) for at in (0, 60))
        gpu = only_gpu(window_of(tmp_path, {**TestClock.engine(), "amd.json": watched}))
        assert gpu.series["utilization"].times == (T0, T0 + 60)
        assert gpu.counters["energy_joules"] == pytest.approx(60)


CELLS = st.one_of(
    st.sampled_from(["97 %", "1755 MHz", "[N/A]", "0x4", "Active", "Not Active", "", "640.5 W", "70000 MiB", "1e400"]),
    st.text(st.characters(exclude_characters="\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"), max_size=12),
)


def read_or_refused(text: str) -> tuple[GpuTable | None, str]:
    """A text's table, and why there is none where it is refused."""
    try:
        return read_table(text, "the file"), ""
    except SourceError as error:
        return None, error.reason


@given(st.lists(st.lists(CELLS, min_size=1, max_size=10), max_size=5), st.booleans())
def test_whatever_stands_there_is_read_or_refused_in_words(rows: list[list[str]], ended: bool) -> None:
    text = "\n".join([HEAD, row(0), *(", ".join(cells) for cells in rows)]) + ("\n" if ended else "")
    table, reason = read_or_refused(text)
    assert (table is not None and table.readings) or reason.startswith("the file")


@given(st.text(max_size=400))
def test_any_text_is_no_table_or_one(text: str) -> None:
    table, reason = read_or_refused(text)
    assert reason.startswith("the file") if reason else table is None or table.readings


@given(st.floats(0, 100), st.sampled_from(["{:.2f} %", "{:.2f}", "{:.2f}%"]))
def test_a_percentage_is_a_share(value: float, spelled: str) -> None:
    text = csv_of("index, utilization.gpu [%]", [f"0, {spelled.format(value)}"])
    table = read_table(text, "smi.csv")
    assert table is not None
    assert table.readings[0].gpus[0].gauges["utilization"] == pytest.approx(round(value, 2) / 100)
