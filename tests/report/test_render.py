"""``python -m pytest_llmroof render``: the same bytes as the run's own reports, and nothing from what is no report."""

from __future__ import annotations

import copy
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import reports

from pytest_llmroof import __main__ as command
from pytest_llmroof.formats import REPORT_WRITERS
from pytest_llmroof.report import json_report

DOCUMENTS = {"ordinary": reports.ordinary, "hostile": reports.hostile}


def write(ending: str, path: Path, document: dict[str, Any]) -> None:
    module, _, function = REPORT_WRITERS[ending].partition(":")
    getattr(import_module(module), function)(path, document)


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "report.json"
    json_report.write(path, reports.ordinary())
    return path


@pytest.mark.parametrize("ending", REPORT_WRITERS)
@pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS)
def test_the_same_bytes_as_the_runs_own(document: Callable[[], Any], ending: str, tmp_path: Path) -> None:
    own, again, source = (tmp_path / f"{name}{ending}" for name in ("own", "again", "source"))
    source = source.with_suffix(".json")
    write(ending, own, document())
    json_report.write(source, document())
    assert command.main(["render", str(source), f"--{ending[1:]}={again}"]) == 0
    assert again.read_bytes() == own.read_bytes()


def test_several_at_once_into_folders_that_it_makes(report: Path, tmp_path: Path) -> None:
    targets = [tmp_path / "made" / f"out{ending}" for ending in REPORT_WRITERS]
    options = [f"--{target.suffix[1:]}={target}" for target in targets]
    assert command.main(["render", str(report), *options]) == 0
    assert all(target.stat().st_size for target in targets)


@pytest.mark.parametrize(("option", "ending"), [("--junit", ".xml"), ("--markdown", ".md"), ("--prometheus", ".prom")])
def test_other_names_of_options(report: Path, tmp_path: Path, option: str, ending: str) -> None:
    assert command.main(["render", str(report), f"{option}={tmp_path / 'a'}"]) == 0
    write(ending, tmp_path / "b", reports.ordinary())
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_dash_is_standard_output(report: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest_llmroof", "render", report, "--md=-", f"--prom={tmp_path / 'a.prom'}"],
        capture_output=True, check=True, env={"PYTHONIOENCODING": "ascii", "PATH": ""},
    )  # fmt: skip
    write(".md", tmp_path / "own.md", reports.ordinary())
    assert done.stdout == (tmp_path / "own.md").read_bytes()
    assert (tmp_path / "a.prom").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "say what to write: --json=FILE, "),
        (["--md=-", "--xml=-"], "standard output holds one report"),
        (["--json=report.json"], "would overwrite the report"),
        (["--md=."], "."),
        (["--md=report.json/x.md"], "report.json/x.md: "),
    ],
)
def test_what_cannot_be_done_is_said(
    report: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(report.parent)
    before = report.read_bytes()
    assert command.main(["render", "report.json", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"render: {said}") or said in captured.err
    assert len(captured.err.splitlines()) == 1
    assert report.read_bytes() == before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not a report"),
        ("{}", "not a report: its schema is not llmroof.report/1; write one: pytest --llmroof-report=FILE.json"),
        ('{"schema": "llmroof.report/2", "windows": []}', "a report of another version (llmroof.report/2)"),
        ('{"schema": "llmroof.report/1", "windows": []}', "a damaged report: lacks 'created'"),
        ('{"schema": "llmroof.report/1", "windows": 1e999}', "1e999 is too large a number"),
        ('{"schema": "llmroof.report/1", "windows": ' + "9" * 5000 + "}", "a number of 5000 digits"),
    ],
)
def test_what_is_no_report_is_refused(tmp_path: Path, text: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    assert command.main(["render", str(path), f"--md={tmp_path / 'out.md'}"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"render: {path}: ")
    assert said in error
    assert not (tmp_path / "out.md").exists()


def test_a_missing_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["render", str(tmp_path / "gone.json"), "--md=-"]) == 2
    assert "gone.json: No such file or directory" in capsys.readouterr().err


def test_unsafe_characters_of_a_foreign_report_are_written_out(tmp_path: Path) -> None:
    document = reports.ordinary()
    document["labels"]["evil"] = "\x1b[2J \ud800 \u202e"
    path = tmp_path / "x.json"
    path.write_text(json.dumps(document))
    for ending in REPORT_WRITERS:
        assert command.main(["render", str(path), f"--{ending[1:]}={tmp_path / 'out'}"]) == 0
        text = (tmp_path / "out").read_text(encoding="utf-8")
        assert "\x1b" not in text
        assert "\u202e" not in text


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(inner, dict | list):
            yield from leaves(inner, (*path, key))
        else:
            yield (*path, key)


def test_a_report_that_was_changed_by_hand_is_rendered_or_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = tmp_path / "x.json", tmp_path / "out"
    document = reports.ordinary()
    chance = random.Random(1)
    paths = list(leaves(document))
    for number in range(300):
        copied = copy.deepcopy(document)
        for path in chance.sample(paths, 3):
            parent = copied
            for part in path[:-1]:
                parent = parent[part]
            parent[path[-1]] = chance.choice([None, 0, -1, 0.5, 1e300, -1e-300, "", "x", True, [], {}])
        source.write_text(json.dumps(copied))
        ending = list(REPORT_WRITERS)[number % len(REPORT_WRITERS)]
        assert command.main(["render", str(source), f"--{ending[1:]}={out}"]) in (0, 2)
        assert "Traceback" not in capsys.readouterr().err
