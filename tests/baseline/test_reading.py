"""Earlier reports, read with suspicion: whatever a file holds, a sentence or a report, and never more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import assessments as made
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_llmroof.baseline.change import with_change
from pytest_llmroof.baseline.limits import baseline_of, identity_of
from pytest_llmroof.baseline.matching import Baselines
from pytest_llmroof.baseline.places import Place
from pytest_llmroof.baseline.reading import read_report
from pytest_llmroof.errors import ConfigError, SourceError
from pytest_llmroof.gates.baseline import Baseline, NoBaseline
from pytest_llmroof.gates.grammar import parse_gate
from pytest_llmroof.report.document import report_document, window_document


def report(**changes: Any) -> dict[str, Any]:
    document = report_document(
        [window_document(made.assessment())], labels={"branch": "main"}, created="2026-11-28T03:00:00Z"
    )
    plain: dict[str, Any] = json.loads(json.dumps(document))
    return {**plain, **changes}


def held_against(baselines: Baselines) -> Baseline | NoBaseline | None:
    """A gate on the window of these tests, against its baseline."""
    assessment = made.assessment()
    assert assessment.facts is not None
    gate = parse_gate("decode.mbu >= 0.97x baseline")
    identity = identity_of(assessment.spec, assessment.facts)
    return baseline_of(gate, assessment.outcomes["decode.mbu"], identity, baselines)


def written(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


@pytest.mark.parametrize("wrong", [{"high": 0.0}, {"low": 0.9, "high": None}, {"low": 0.5, "high": 0.4}])
def test_a_value_outside_of_its_interval_is_damage(tmp_path: Path, wrong: dict[str, Any]) -> None:
    damaged = report()
    damaged["windows"][0]["measurements"]["decode.mbu"].update(wrong)
    with pytest.raises(SourceError, match=r"decode.mbu.* holds a value outside of its interval"):
        read_report(written(tmp_path / "r.json", damaged), "r.json")


def test_what_is_compared_is_kept_and_nothing_else(tmp_path: Path) -> None:
    (window,) = read_report(written(tmp_path / "r.json", report()), "r.json")
    assert window.labels == {"branch": "main"}
    assert window.document["measurements"]["decode.mbu"]["value"] == pytest.approx(0.413, abs=0.001)
    assert "diagnoses" not in window.document
    assert window.breached


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value of a document."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in entries:
        yield (*path, key)
        yield from places(entry, (*path, key))


DOCUMENT = report()
PLACES = list(places(DOCUMENT))


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.sampled_from(PLACES),
    st.sampled_from([None, True, -1, 10**400, "text", [], {}, [1], {"a": 1}, "\ud800", [[]], {"value": "x"}]),
)
def test_a_damaged_report_is_read_or_refused_in_a_sentence(
    tmp_path: Path, place: tuple[Any, ...], value: Any
) -> None:
    document = json.loads(json.dumps(DOCUMENT))
    inner = document
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    place_given = Place(written(tmp_path / "r.json", document), "r.json")
    # Neither holding a gate against it nor comparing with it ends in anything but sentences.
    here = window_document(made.assessment())
    for outcome in (
        held_against(Baselines([place_given])),
        with_change(here, made.TP4, Baselines([Place(place_given.path, "r.json")]))["change"],
    ):
        assert "\ud800" not in repr(outcome)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"windows": None}, "its windows are not as they were written"),
        ({"labels": {"a": 1}}, "labels holds something else than texts"),
        ({"schema": "llmroof.report/9"}, "a report of another version (llmroof.report/9); this one reads"),
    ],
)
def test_damage_is_named_with_its_place(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    with pytest.raises(SourceError) as error:
        read_report(written(tmp_path / "r.json", report(**change)), "r.json")
    assert said in str(error.value)


def test_a_value_of_the_wrong_kind_is_named_with_its_place(tmp_path: Path) -> None:
    document = report()
    document["windows"][0]["measurements"]["decode.mbu"]["value"] = "0.4"
    with pytest.raises(SourceError) as error:
        read_report(written(tmp_path / "r.json", document), "r.json")
    assert "windows[0].measurements['decode.mbu'].value is not a number" in str(error.value)
    text = json.dumps(report()).replace("0.0262", "1e999", 1)
    with pytest.raises(SourceError, match=r"r\.json: "):
        read_report(written(tmp_path / "r.json", text), "r.json")
    deep = '{"schema": "llmroof.report/1", "created": "x", "windows": ' + "[" * 100_000
    with pytest.raises(SourceError, match="not a report"):
        read_report(written(tmp_path / "r.json", deep), "r.json")


def test_a_huge_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(300 * 1024 * 1024)
    with pytest.raises(ConfigError, match=r"huge\.json: 314572800 bytes are too many for a report"):
        Place(path, "huge.json").check()


def test_a_folder_is_read_by_the_reports_own_time_and_broken_files_are_named(tmp_path: Path) -> None:
    for name, created in (("b", "2026-11-01T00:00:00Z"), ("a", "2026-11-03T00:00:00Z"), ("c", "2026-11-02T00:00:00Z")):
        written(tmp_path / f"{name}.json", report(created=created))
    written(tmp_path / "foreign.json", {"name": "package"})
    written(tmp_path / "reordered.json", dict(reversed(report(created="2026-11-04T00:00:00Z").items())))
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "gone.json").symlink_to(tmp_path / "nothing.json")
    place = Place(tmp_path, "base")
    names = [windows[0].report for windows in place.reports()]
    assert names == ["base/reordered.json", "base/a.json", "base/c.json", "base/b.json"]
    assert list(place.problems) == ["base/foreign.json"]
    assert "1 file there could not be used" in place.unread()
    place.check()  # a folder is never a usage error


def test_too_many_files_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_llmroof.baseline.places.MOST_FILES", 2)
    for number in range(3):
        written(tmp_path / f"{number}.json", "{}")
    with pytest.raises(SourceError, match="too many for a baseline"):
        list(Place(tmp_path, "base").reports())


def test_a_folder_without_reports_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "base"
    place = Place(folder, "base")
    assert place.lacking() == "base does not exist yet"
    folder.mkdir()
    (folder / "notes.txt").write_text("no report")
    assert place.lacking() == "base holds no report"
    (folder / "night1.json").write_text(json.dumps(report()))
    assert place.lacking() is None
    assert Place(folder / "night2.json", "base/night2.json").lacking() is None  # a missing file is a usage error
