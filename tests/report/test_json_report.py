"""The JSON report as a file: whole or not at all, and read with suspicion."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import assessments as made
import pytest

from pytest_llmroof.errors import SourceError
from pytest_llmroof.report import files, json_report
from pytest_llmroof.report.document import report_document, window_document


def report() -> dict[str, Any]:
    return report_document([window_document(made.assessment())], labels={"engine": "vllm-0.33.0"}, created="2026-11-29")


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    json_report.write(path, report())
    assert json_report.load(path) == report()
    assert os.listdir(tmp_path) == ["report.json"]
    assert path.stat().st_mode & 0o777 == 0o666 & ~files._umask()


def test_an_earlier_report_survives_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    json_report.write(path, report())
    before = path.read_bytes()
    with pytest.raises(ValueError, match="JSON compliant"):
        json_report.write(path, {"value": float("nan")})
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["report.json"]


def test_a_folder_that_is_not_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        json_report.write(tmp_path / "gone" / "report.json", report())


def test_a_target_that_is_a_folder_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "report.json").mkdir()
    with pytest.raises(OSError, match="directory"):
        json_report.write(tmp_path / "report.json", report())
    assert os.listdir(tmp_path) == ["report.json"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not a report: Expecting value"),
        ("[]", "its schema is not llmroof.report/1"),
        ('{"schema": 3}', "its schema is not llmroof.report/1"),
        ('{"schema": "llmroof.report/9", "windows": []}', "another version"),
        ('{"schema": "llmroof.report/1", "windows": [{"id": "x"}]}', "damaged"),
        ('{"schema": "llmroof.report/1"}', "damaged"),
        ('{"schema": NaN}', "NaN is not JSON"),
        ("[" * 100_000, "not a report"),
        ("\udc80", "not UTF-8"),
    ],
)
def test_anything_else_is_refused_by_name(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "old.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(SourceError, match=problem) as caught:
        json_report.load(path, "base/old.json")
    assert caught.value.reason.startswith("base/old.json: ")


def test_a_missing_or_huge_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SourceError, match=r"gone\.json: No such file"):
        json_report.load(tmp_path / "gone.json")
    path = tmp_path / "huge.json"
    path.write_text(json.dumps(report()))
    monkeypatch.setattr(json_report, "LARGEST_BYTES", 10)
    with pytest.raises(SourceError, match="too many for a report"):
        json_report.load(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_or_device_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "report.json"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero")):
        with pytest.raises(SourceError, match="not a report: not a file"):
            json_report.load(path)


@pytest.mark.skipif(not Path("/dev/fd").is_dir(), reason="this system does not name open files")
def test_what_a_shell_opened_is_read(tmp_path: Path) -> None:
    """``init --from <(zcat report.json.gz)``."""
    path = tmp_path / "r.json"
    json_report.write(path, report())
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as end:
        end.write(path.read_bytes())
    try:
        assert json_report.load(Path(f"/dev/fd/{reading}")) == report()
    finally:
        os.close(reading)
