"""The page for textfile collectors, as promtool and prometheus_client read it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import assessments as made
import pytest
import reports
from fleets import program
from prometheus_client.parser import text_string_to_metric_families

from pytest_llmroof.report import promfile
from pytest_llmroof.report.document import report_document, window_document

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]

SCOPE = {
    "file": "llmroof.yaml", "window": "decode", "phase": "decode", "model": "llama-3.1-70b", "gpu": "h100-sxm5-80gb",
}  # fmt: skip


def series(page: str) -> Series:
    """Every sample as prometheus_client reads it. One series twice, or a family in two places, is a fault."""
    found: Series = {}
    families = list(text_string_to_metric_families(page))
    assert len({family.name for family in families}) == len(families)
    for family in families:
        assert family.type == "gauge"
        assert family.documentation
        for sample in family.samples:
            assert sample.timestamp is None  # textfile collectors refuse them
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found
            found[key] = sample.value
    return found


def value(found: Series, name: str, **labels: str) -> float | None:
    return found.get((name, tuple(sorted({**SCOPE, **labels}.items()))))


def test_what_was_measured_judged_and_found() -> None:
    found = series(promfile.rendered(reports.ordinary()))
    assert value(found, "llmroof_measurement", metric="itl.mean", unit="seconds") == 0.0262
    assert value(found, "llmroof_measurement_low", metric="decode.mbu", unit="fraction") == 0.409
    assert value(found, "llmroof_measurement_high", metric="decode.mbu", unit="fraction") == 0.418
    flagship = {"gate": "REL-7 decode.mbu", "metric": "decode.mbu", "severity": "error", "id": "REL-7"}
    assert value(found, "llmroof_gate_judged", **flagship) == 1
    assert value(found, "llmroof_gate_passed", **flagship) == 0
    margin = value(found, "llmroof_gate_margin_ratio", **flagship)
    assert margin == pytest.approx(-0.337, abs=5e-4)  # 41.3 % of 75 %: 33.7 points short
    itl = {"gate": "itl.mean", "metric": "itl.mean", "severity": "error"}
    assert value(found, "llmroof_gate_passed", **itl) == 1
    assert value(found, "llmroof_gate_margin_ratio", **itl) == pytest.approx(0.476)  # 26.2 of 50 ms: 47.6 % to spare
    assert value(found, "llmroof_scenario", scenario="C") == 1
    assert found["llmroof_info", (("label_engine", "vllm-0.33.1"), ("version", "0.1.0"))] == 1
    assert found["llmroof_report_timestamp_seconds", ()] == 1795953600  # 2026-11-29T12:00:00Z


def test_the_causes_add_up_to_the_step() -> None:
    found = series(promfile.rendered(reports.ordinary()))
    parts = [seconds for (name, _), seconds in found.items() if name == "llmroof_step_seconds"]
    assert sum(parts) == pytest.approx(0.0262)
    label = {"cause": "exposed communication: transport", "of": "decode step"}
    assert value(found, "llmroof_step_seconds", **label) == pytest.approx(0.34 * 0.0262)


def test_what_was_not_measured_exports_nothing_but_that() -> None:
    found = series(promfile.rendered(reports.ordinary()))
    unmeasured = [
        {"gate": "REL-9 ttft.p99", "metric": "ttft.p99", "severity": "error", "id": "REL-9"},
        {"gate": "REL-2 decode.mbu", "metric": "decode.mbu", "severity": "error", "id": "REL-2"},
        {"gate": "REL-3 prefill.mfu", "metric": "prefill.mfu", "severity": "error", "id": "REL-3"},
    ]
    for labels in unmeasured:
        assert value(found, "llmroof_gate_judged", **labels) == 0
        assert value(found, "llmroof_gate_passed", **labels) is None
        assert value(found, "llmroof_gate_margin_ratio", **labels) is None
    assert not any(("metric", "ttft.p99") in labels for name, labels in found if name == "llmroof_measurement")


def test_an_unbounded_interval_has_no_high_end() -> None:
    late = made.measured("ttft.p99", 12.0, 10.0, float("inf"), "seconds")
    window = window_document(made.assessment(outcomes={"ttft.p99": late}))
    found = series(promfile.rendered(report_document([window], labels={}, created="")))
    assert value(found, "llmroof_measurement_low", metric="ttft.p99", unit="seconds") == 10.0
    assert value(found, "llmroof_measurement_high", metric="ttft.p99", unit="seconds") is None


def test_where_only_bounds_are_known_no_value_is_exported() -> None:
    # Scraped at two idle ends: the cache was used to 0 % at least and to 100 % at most. A dashboard must not show 0 %.
    largest = made.measured("kv_cache.usage.max", 0.0, 0.0, 1.0, "fraction", samples=0, judged_by="bounds")
    window = window_document(made.assessment(outcomes={"kv_cache.usage.max": largest}))
    found = series(promfile.rendered(report_document([window], labels={}, created="")))
    labels = {"metric": "kv_cache.usage.max", "unit": "fraction"}
    assert value(found, "llmroof_measurement", **labels) is None
    assert value(found, "llmroof_measurement_low", **labels) == 0.0
    assert value(found, "llmroof_measurement_high", **labels) == 1.0


def test_nothing_measured_is_a_page_that_says_so() -> None:
    window = window_document(
        made.assessment(
            made.verdict(made.gate(), made.no_data(), "no data"),
            outcomes={},
            facts=None,
            attribution=None,
            diagnosis=None,
            diagnoses={},
            failure="connection refused",
        )
    )
    page = promfile.rendered(report_document([window], labels={}, created="2026-11-29T12:00:00Z"))
    names = {name for name, _ in series(page)}
    assert names == {"llmroof_info", "llmroof_report_timestamp_seconds", "llmroof_gate_judged"}


def test_windows_of_one_name_have_series_of_their_own() -> None:
    window = window_document(made.assessment())
    other = {**window, "gpu": {**window["gpu"], "name": "b200"}}
    elsewhere = {**window, "id": "nested/llmroof.yaml::decode"}
    document = report_document([window, window, other, other, elsewhere], labels={}, created="")
    found = series(promfile.rendered(document))
    measured = [dict(labels) for name, labels in found if name == "llmroof_measurement"]
    assert len(measured) == 5 * 2
    assert {(labels["file"], labels["window"]) for labels in measured} == {
        ("llmroof.yaml", "decode (h100-sxm5-80gb)"), ("llmroof.yaml", "decode (h100-sxm5-80gb) #2"),
        ("llmroof.yaml", "decode (b200)"), ("llmroof.yaml", "decode (b200) #2"), ("nested/llmroof.yaml", "decode"),
    }  # fmt: skip


def test_the_window_of_the_command_line_has_no_file() -> None:
    window = window_document(made.assessment(spec=made.spec(id="llmroof", name="cli")))
    found = series(promfile.rendered(report_document([window], labels={}, created="")))
    (labels,) = [dict(labels) for name, labels in found if name == "llmroof_gate_judged"]
    assert labels["window"] == "cli"
    assert "file" not in labels


def test_labels_of_people_get_names_that_a_page_may_hold() -> None:
    labels = {"commit": "abc", "node pool": "a", "node.pool": "b", "größe": "x"}
    found = series(promfile.rendered(report_document([], labels=labels, created="")))
    ((_, info),) = found
    assert dict(info) == {
        "version": "0.1.0", "label_commit": "abc", "label_node_pool": "a", "label_gr__e": "x",
    }  # fmt: skip


DOCUMENTS = [reports.ordinary, reports.hostile, reports.many]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_it_is_one_whole_file_that_the_client_reads(document: Callable[[], dict[str, Any]], tmp_path: Path) -> None:
    path = tmp_path / "llmroof.prom"
    promfile.write(path, document())
    assert series(path.read_text(encoding="utf-8"))
    assert [one.name for one in tmp_path.iterdir()] == ["llmroof.prom"]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_promtool_finds_no_fault(document: Callable[[], dict[str, Any]]) -> None:
    command = [program("promtool"), "check", "metrics"]
    checked = subprocess.run(command, input=promfile.rendered(document()), capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_hostile_texts_come_back_as_they_are_shown() -> None:
    found = series(promfile.rendered(reports.hostile()))
    identities = {dict(labels).get("id") for name, labels in found if name == "llmroof_gate_judged"}
    assert "<script>alert(1)</script>" in identities
    assert "\\x1b[31mred\\x1b[0m \\x00 \\x07 \\x9b" in identities
    assert 'quote " and \\ backslash newline tab \\x0d return' in identities
