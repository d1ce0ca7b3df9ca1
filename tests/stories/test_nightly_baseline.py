"""The nightly gates of a performance engineer, the nights after the first: earlier reports as the baseline."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import runs
from vllm_pages import Load, page

NIGHT = Load(
    model="meta-llama/Llama-3.1-8B-Instruct", batch=24, context=1500, output=1000, itl=0.009, seconds=60.0, running=24
)
GATES = """
model: llama-3.1-8b
deployment: {tensor_parallel: 1, weights: bf16}
windows:
  decode: {telemetry: "${NIGHT}", gates: ["decode.mbu >= 0.97x baseline", "kv_cache.usage.max <= 95%"]}
"""


@pytest.fixture
def night(
    pytester: pytest.Pytester, gate: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """One night: a recording of 13 scrapes (a gauge is known from its samples), and the gates on it."""

    def run(itl: float, *options: str, report: str | None = None, gates: str = GATES, **load: Any) -> Any:
        folder = pytester.path / "rec" / f"{itl}"
        folder.mkdir(parents=True, exist_ok=True)
        tonight = replace(NIGHT, itl=itl, **load)
        for number in range(13):
            done = number / 12
            text = page(tonight, done, tonight.started + done * tonight.seconds)
            (folder / f"vllm.{number:06}.prom").write_text(text, encoding="utf-8")
        monkeypatch.setenv("NIGHT", f"rec/{itl}")
        gpu = () if any(one.startswith("--llmroof-gpu") for one in options) else ("--llmroof-gpu=h100",)
        written = (f"--llmroof-report=base/{report}",) if report else ()
        return gate(gates, *gpu, *options, *written, name="perf.llmroof.yaml")

    return run


#: The same window with its phase written down, and a gate on its pace.
ITL = GATES.replace("telemetry:", "phase: decode, telemetry:").replace("decode.mbu >= 0.97x", "itl.mean <= 1.03x")


@pytest.fixture
def three_nights(
    night: Callable[..., Any], pytester: pytest.Pytester, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Three reports of the H100, 1 % apart, and one of another accelerator: made once, each test has a copy."""
    made = tmp_path_factory.getbasetemp() / "three-nights"
    if made.exists():
        shutil.copytree(made, pytester.path / "base")
        return
    for number, itl in enumerate((0.009, 0.00909, 0.00891), 1):
        night(itl, "--llmroof-label=engine=vllm-0.33.0", report=f"h100-{number}.json")
    night(0.0045, "--llmroof-gpu=b200", report="b200-1.json")
    shutil.copytree(pytester.path / "base", made)


def test_the_first_night_has_no_baseline_and_makes_one(night: Callable[..., Any], pytester: pytest.Pytester) -> None:
    run = night(0.009, "--llmroof-label=engine=vllm-0.33.0", report="h100-1.json")
    assert run.rc == 1
    assert run.verdicts == ["no data", "pass"]
    assert fnmatch(run.one_line, "*decode.mbu*NOT MEASURED*no baseline*--llmroof-report=*")
    report = json.loads((pytester.path / "base" / "h100-1.json").read_text())
    assert report["labels"] == {"engine": "vllm-0.33.0"}


@pytest.mark.usefixtures("three_nights")
def test_a_slow_night_fails_against_the_three_of_its_kind(night: Callable[..., Any]) -> None:
    run = night(0.00972, "--llmroof-baseline=base")  # 8 % slower
    assert run.rc == 1
    assert run.verdicts == ["fail", "pass"]
    assert fnmatch(
        run.one_line, "*found *, expected decode.mbu >= 0.97x baseline*(3 reports, median *, spread *)*short*"
    )
    baseline = run.window["gates"][0]["baseline"]
    assert sorted(baseline["reports"]) == ["base/h100-1.json", "base/h100-2.json", "base/h100-3.json"]
    # The median night has an ITL of 9 ms; the logarithms of 0.99, 1 and 1.01 deviate by 1 %.
    assert baseline["spread"] == pytest.approx(0.01, rel=0.01)
    assert run.window["gates"][0]["limit"] == pytest.approx(0.97 * baseline["value"])
    # 8 % slower is 1 / 1.08 of the bandwidth.
    assert run.window["gates"][0]["value"] / baseline["value"] == pytest.approx(1 / 1.08, rel=0.002)
    # t(2) = 4.303, 1 % * sqrt(1 + 1/3) = 1.155 %: the ratio is known to 5.1 % either way.
    assert baseline["ratio"]["high"] / baseline["ratio"]["value"] == pytest.approx(1.0511, rel=0.002)


@pytest.mark.usefixtures("three_nights")
def test_a_night_within_the_limit_passes(night: Callable[..., Any]) -> None:
    run = night(0.00909, "--llmroof-baseline=base")
    assert run.rc == 0, run.text
    # 1 % slower lies within the noise of three windows: said, and with --llmroof-strict not enough.
    assert run.window["gates"][0]["approximate"]
    assert "within the noise of 3 baseline windows" in run.window["gates"][0]["reason"]
    strict = night(0.00909, "--llmroof-baseline=base", "--llmroof-strict")
    assert strict.rc == 1
    assert strict.verdicts == ["inconclusive", "pass"]


@pytest.mark.usefixtures("three_nights")
def test_another_accelerator_has_no_baseline_and_hears_how_near_the_nearest_is(night: Callable[..., Any]) -> None:
    run = night(0.009, "--llmroof-baseline=base", "--llmroof-gpu=mi300x")
    assert run.rc == 1
    assert run.verdicts == ["no data", "pass"]
    # Of two that are as near, the kind of which there are more reports.
    assert "nearest: gpu h100-sxm5-80gb there, mi300x here (base/h100-3.json)" in run.one_line


@pytest.mark.usefixtures("three_nights")
def test_a_slow_night_says_what_changed(night: Callable[..., Any]) -> None:
    run = night(0.012, "--llmroof-baseline=base", gates=ITL, batch=40, context=3000, running=40)
    change = run.window["change"]
    assert change == run.window["changes"]["decode"]
    assert change["baseline"]["report"] == "base/h100-1.json"  # the median one of three, by its step
    assert change["baseline"]["windows"] == 3
    assert change["traffic_seconds"] + change["engine_seconds"] == pytest.approx(0.003)
    assert change["traffic_seconds"] > 0
    for of, seconds in (("traffic", change["traffic_seconds"]), ("engine", change["engine_seconds"])):
        assert sum(part["seconds"] for part in change["parts"] if part["of"] == of) == pytest.approx(seconds, rel=0.02)
    assert re.search(r"CHANGE\s+decode step 9\.0 -> 12\.0 ms \(\+3\.0\) against base/h100-1\.json of ", run.text)
    assert "batch 24 -> 40, context 1.5k -> 3k" in run.one_line
    # The conditions of the load are said with the verdict, too.
    assert "batch 24 there, 40 here" in run.one_line


@pytest.mark.usefixtures("three_nights")
@pytest.mark.parametrize("before", ["goodput(ttft<=2s) >= 95%", "requests_per_second >= 900"])
def test_what_changed_stands_in_the_terminal_whichever_gate_failed_before(
    night: Callable[..., Any], before: str
) -> None:
    gates = ITL.replace("gates: [", f'gates: ["{before}", ')
    gates = gates.replace('"kv_cache.usage.max <= 95%"', '"decode.mbu >= 0.97x baseline"')
    run = night(0.012, "--llmroof-baseline=base", gates=gates)
    assert run.verdicts[1:] == ["fail", "fail"]
    assert len(re.findall(r"^CHANGE +decode step 9\.00? -> 12\.00? ms", run.text, re.MULTILINE)) == 1, run.text
    assert run.text.index("CHANGE") < run.text.index("_ decode: decode.mbu >= 0.97x baseline _")


def test_a_creeping_regression_is_caught_by_the_median_of_ten(
    night: Callable[..., Any], pytester: pytest.Pytester
) -> None:
    """Half a per cent a night: no night is 3 % slower than the last, but each is held against the ten before it."""
    itl, verdicts = 0.009, []
    for number in range(1, 11):
        run = night(itl, "--llmroof-baseline=base", report=f"n{number:02}.json")
        verdicts.append(run.verdicts[0])
        itl *= 1.01
        # A second apart in the reports' own clock, which orders them.
        path = pytester.path / "base" / f"n{number:02}.json"
        report = json.loads(path.read_text())
        path.write_text(json.dumps({**report, "created": f"2026-11-{number:02}T03:00:00Z"}))
    assert verdicts[0] == "no data"
    assert verdicts[1:6] == ["pass"] * 5
    # The nights that failed do not count, so that the median stays where it was.
    assert verdicts[-1] == "fail"
    last = night(itl, "--llmroof-baseline=base")
    assert len(last.window["gates"][0]["baseline"]["reports"]) < 10


def test_three_windows_are_held_against_three_reports_by_python_gates_under_xdist(
    night: Callable[..., Any], pytester: pytest.Pytester
) -> None:
    night(0.009)  # writes the recording
    pytester.makepyfile(
        test_perf="""
        import pytest

        @pytest.mark.llmroof(model="llama-3.1-8b", deployment={"tensor_parallel": 1, "weights": "bf16"},
                             gpu="h100", telemetry="rec/0.009")
        @pytest.mark.llmroof_gate("itl.mean <= 1.05x baseline")
        def test_decode(llmroof):
            pass

        @pytest.mark.llmroof(model="llama-3.1-8b", deployment={"tensor_parallel": 1, "weights": "bf16"},
                             gpu="h100", telemetry="rec/0.009")
        def test_checked(llmroof):
            llmroof.check("itl.mean <= baseline + 2ms")
        """
    )
    pytester.path.joinpath("perf.llmroof.yaml").unlink()
    options = ("-n", "2")
    first = runs.run(pytester, *options, "--llmroof-report=base/1.json")
    assert first.ret == 1
    second = runs.run(pytester, *options, "--llmroof-baseline=base", "--llmroof-report=out.json")
    assert second.ret == 0, second.stdout.str()
    report = json.loads((pytester.path / "out.json").read_text())
    found = {gate["expression"]: gate for window in report["windows"] for gate in window["gates"]}
    assert {gate["verdict"] for gate in found.values()} == {"pass"}
    assert found["itl.mean <= 1.05x baseline"]["baseline"]["reports"] == ["base/1.json"]
    assert found["itl.mean <= baseline + 2ms"]["limit"] == pytest.approx(0.011)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not a report"),
        ("[1, 2]", "not a report"),
        ('{"schema": "llmroof.report/2", "windows": []}', "a report of another version (llmroof.report/2)"),
        ('{"schema": "llmroof.report/1", "created": "x", "windows": [{}]}', "a damaged report"),
        ('{"schema": "llmroof.report/1", "created": 5, "windows": []}', "created is not a text"),
        ('{"schema": "other/1", "windows": []}', "its schema is not llmroof.report/1"),
    ],
)
def test_a_file_that_is_no_report_is_a_usage_error(
    night: Callable[..., Any], pytester: pytest.Pytester, content: str, said: str
) -> None:
    (pytester.path / "old.json").write_text(content)
    run = night(0.009, "--llmroof-baseline=old.json")
    assert run.rc == 4
    assert "--llmroof-baseline=old.json: old.json: " in run.one_line
    assert said in run.one_line


def test_a_file_that_is_not_there_is_a_usage_error_and_a_folder_is_not_there_yet(night: Callable[..., Any]) -> None:
    run = night(0.009, "--llmroof-baseline=old.json")
    assert run.rc == 4
    assert "old.json: No such file or directory" in run.one_line
    run = night(0.009, "--llmroof-baseline=nights")
    assert run.rc == 1
    assert run.verdicts == ["no data", "pass"]
    assert "no baseline: nights does not exist yet; make one: pytest ... --llmroof-report=" in run.one_line


def test_what_lies_in_a_folder_besides_reports_is_passed_over_and_named(
    night: Callable[..., Any], pytester: pytest.Pytester
) -> None:
    folder = pytester.path / "base"
    folder.mkdir()
    run = night(0.009, "--llmroof-baseline=base")
    assert "no baseline: no report in base" in run.one_line
    (folder / "package.json").write_text('{"name": "x"}')
    (folder / "cut.json").write_text('{"schema": "llmroof.report/1", "created": "2026-11-01T00:00:00Z", "windows": [')
    (folder / "notes.txt").write_text("not even JSON")
    (folder / "evil\x1b[31m\u202e.json").write_text("{}")
    run = night(0.009, "--llmroof-baseline=base")
    assert run.verdicts == ["no data", "pass"]
    assert "3 files there could not be used" in run.one_line
    assert "\x1b" not in run.text
    assert "\u202e" not in run.text
    night(0.009, report="h100-1.json")
    run = night(0.009, "--llmroof-baseline=base")
    assert run.verdicts == ["pass", "pass"]


def test_the_ini_file_names_the_baseline_too(
    night: Callable[..., Any], pytester: pytest.Pytester
) -> None:
    night(0.009, report="h100-1.json")
    # Folders of this machine reach no report.
    absolute = night(0.0095, f"--llmroof-baseline={pytester.path / 'base'}")
    assert absolute.window["gates"][0]["baseline"]["reports"] == ["base/h100-1.json"]
    assert absolute.window["change"]["baseline"]["report"] == "base/h100-1.json"
    pytester.makeini("[pytest]\nllmroof_baseline =\n    base\n")
    assert night(0.009).verdicts == ["pass", "pass"]
    assert night(0.0095).verdicts == ["fail", "pass"]


@pytest.mark.parametrize(
    ("gates", "itl", "verdict"),
    [
        ('"itl.mean <= 1.05x baseline"', 0.0094, "pass"),  # 9.45 ms
        ('"itl.mean <= 1.05x baseline"', 0.0095, "fail"),
        ('"itl.mean <= baseline + 0.2ms"', 0.0091, "pass"),
        ('"decode.mbu >= baseline - 2%"', 0.0091, "pass"),  # 1.1 % less
        ('"decode.mbu >= baseline - 2%"', 0.0093, "fail"),  # 3.2 % less
        ('{gate: itl.mean <= 1.05x baseline, per: replica}', 0.0094, "pass"),
        ('{gate: itl.mean <= 1.05x baseline, per: replica}', 0.0095, "fail"),
        ('{gate: itl.mean <= 1.05x baseline, labels: {branch: main}}', 0.009, "pass"),
        ('{gate: itl.mean <= 1.05x baseline, labels: {branch: other}}', 0.009, "no data"),
        ('"preemptions <= 1.5x baseline"', 0.009, "pass"),  # 0 against 0
    ],
)
def test_limits_in_terms_of_a_baseline(night: Callable[..., Any], gates: str, itl: float, verdict: str) -> None:
    file = GATES.replace('"decode.mbu >= 0.97x baseline", "kv_cache.usage.max <= 95%"', gates)
    night(0.009, "--llmroof-label=branch=main", report="1.json", gates=file)
    run = night(itl, "--llmroof-baseline=base/1.json", gates=file)
    assert run.verdicts == [verdict], run.text
    if "other" in gates:
        assert "label branch=main there, branch=other asked for" in run.one_line


def test_more_than_a_baseline_of_zero_fails(night: Callable[..., Any]) -> None:
    file = GATES.replace('"decode.mbu >= 0.97x baseline", "kv_cache.usage.max <= 95%"', '"preemptions <= 2x baseline"')
    night(0.009, report="1.json", gates=file)
    run = night(0.009, "--llmroof-baseline=base", gates=file, preemptions=3)
    assert run.verdicts == ["fail"], run.text
    assert "found 3" in run.one_line


def test_another_hit_rate_is_said_with_the_verdict(night: Callable[..., Any]) -> None:
    night(0.009, report="1.json", hit_rate=0.4)
    run = night(0.009, "--llmroof-baseline=base", hit_rate=0.05)
    assert "prefix hits 40 % there, 5 % here" in run.window["gates"][0]["baseline"]["conditions"]
    assert run.verdicts[0] == "pass"
    slow = night(0.0099, "--llmroof-baseline=base", hit_rate=0.05)
    assert "prefix hits 40 % there, 5 % here" in slow.one_line


def test_two_hundred_reports_are_looked_through_in_the_order_they_were_made(
    night: Callable[..., Any], pytester: pytest.Pytester
) -> None:
    night(0.009, report="h100-1.json")
    report = json.loads((pytester.path / "base" / "h100-1.json").read_text())
    for number in range(200):
        created = f"2026-{1 + number // 28:02}-{1 + number % 28:02}T03:00:00Z"
        # Names and times of files say nothing: the newest have names that come first.
        path: Path = pytester.path / "base" / f"{999 - number}.json"
        path.write_text(json.dumps({**report, "created": created}), encoding="utf-8")
    run = night(0.009, "--llmroof-baseline=base")
    reports = run.window["gates"][0]["baseline"]["reports"]
    assert reports == ["base/h100-1.json", *(f"base/{999 - number}.json" for number in range(199, 190, -1))]


def test_a_baseline_that_is_not_there_is_said_where_no_gate_asks_for_it(night: Callable[..., Any]) -> None:
    absolute = GATES.replace("decode.mbu >= 0.97x baseline", "decode.mbu >= 10%")
    run = night(0.009, "--llmroof-baseline=bsae", gates=absolute)
    assert run.rc == 0
    assert "No baseline: bsae does not exist yet, so that nothing was compared with it." in run.one_line
    run = night(0.009, "--llmroof-baseline=base", report="first.json", gates=absolute)  # the run makes the folder
    assert "No baseline" not in run.text
