"""Files and folders: what is read, what is named as unread, and what each missing thing says."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry import namedfiles
from pytest_llmroof.telemetry.reading import read_window
from pytest_llmroof.telemetry.sniffing import content_of
from pytest_llmroof.telemetry.window import Window

T0 = 1_795_975_800


def page(count: int, second: int, head: str = "") -> str:
    return f'# scraped_at {T0 + second}\n{head}vllm:generation_tokens_total{{engine="0",model_name="m"}} {count}\n'


def recording(folder: Path, pages: int = 2) -> Path:
    folder.mkdir(exist_ok=True)
    for index in range(pages):
        (folder / f"pod.{index + 1:06}.prom").write_text(page(10 * index, index), encoding="utf-8")
    return folder


def read(*paths: Path) -> Window:
    return read_window([(path, path.name) for path in paths])


def refused(*paths: Path) -> SourceError:
    with pytest.raises(SourceError) as caught:
        read(*paths)
    return caught.value


class TestNothingThere:
    def test_no_path(self) -> None:
        assert refused().reason == "no telemetry is named"

    def test_a_missing_scrape(self, tmp_path: Path) -> None:
        error = refused(tmp_path / "before.prom")
        assert error.reason == "before.prom does not exist"
        assert str(error.remedy) == "scrape the server: curl -sf http://HOST:PORT/metrics > before.prom"

    def test_a_missing_recording(self, tmp_path: Path) -> None:
        error = refused(tmp_path / "rec")
        assert error.reason == "rec does not exist"
        assert error.remedy is not None
        assert "python -m pytest_llmroof record --out=rec" in str(error.remedy)

    def test_below_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(SourceError, match="x does not exist"):
            read(tmp_path / "file" / "x")

    def test_an_empty_folder(self, tmp_path: Path) -> None:
        folder = tmp_path / "rec"
        folder.mkdir()
        (folder / ".hidden").touch()
        assert refused(folder).reason == "rec is an empty folder"

    def test_an_empty_file(self, tmp_path: Path) -> None:
        (tmp_path / "a.prom").touch()
        assert refused(tmp_path / "a.prom").reason == "a.prom is empty"

    def test_a_name_that_no_system_takes(self, tmp_path: Path) -> None:
        assert "cannot be read" in refused(tmp_path / ("x" * 5000)).reason
        assert "cannot be read" in refused(tmp_path / "a\0b").reason

    def test_no_permission(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "a.prom"
        path.write_text(page(1, 0), encoding="utf-8")

        def denied(self: Path, *args: object, **kwargs: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "open", denied)
        assert refused(path).reason == "a.prom may not be read (permission denied)"

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
    def test_a_named_pipe_is_not_opened(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        assert refused(tmp_path / "pipe").reason == "pipe is neither a file nor a folder"
        folder = recording(tmp_path / "rec")
        os.mkfifo(folder / "pipe")
        assert read(folder).unread == ("rec/pipe: not a regular file",)


class TestFolders:
    def test_the_recorders(self, tmp_path: Path) -> None:
        folder = recording(tmp_path / "rec", 5)
        (folder / "recording.json").write_text(json.dumps({"schema": "llmroof.recording/1", "failed_scrapes": []}))
        window = read(folder)
        assert (window.samples, window.counter("generation_tokens"), window.unread, window.notes) == (5, 40, (), ())
        assert [(source.kind, source.location) for source in window.sources] == [("vllm", "rec")]

    def test_of_a_recording_with_one_scrape_no_difference_can_be_taken(self, tmp_path: Path) -> None:
        """Its load is not what the server did since its start."""
        folder = recording(tmp_path / "rec", 1)
        assert refused(folder).reason == "rec holds one scrape only (cut short): no difference can be taken"
        failures = [{"slug": "pod", "first": 1.0, "last": 2.0, "count": 1, "reason": "connection refused"}]
        (folder / "recording.json").write_text(json.dumps({"failed_scrapes": failures}))
        assert "1 scrape failed (connection refused)" in refused(folder).reason
        assert read(folder / "pod.000001.prom").since_start

    def test_failed_scrapes_are_said(self, tmp_path: Path) -> None:
        folder = recording(tmp_path / "rec")
        failures = [{"slug": "pod", "first": 1.0, "last": 2.0, "count": 3, "reason": "connection refused"}]
        (folder / "recording.json").write_text(json.dumps({"failed_scrapes": failures}))
        assert read(folder).notes == ("3 scrapes failed (connection refused)",)

    @pytest.mark.parametrize("content", [
        "[]", "{", '{"failed_scrapes": [{"count": Infinity, "reason": "x"}]}', '{"failed_scrapes": [{}]}',
        '{"failed_scrapes": 5}', "\udcff",
    ])  # fmt: skip
    def test_a_damaged_manifest_changes_nothing(self, tmp_path: Path, content: str) -> None:
        folder = recording(tmp_path / "rec")
        (folder / "recording.json").write_bytes(content.encode("utf-8", "surrogateescape"))
        window = read(folder)
        assert window.counter("generation_tokens") == 10
        assert window.unread == ("rec/recording.json: not what the recorder writes",)

    def test_what_no_reader_knows_is_named(self, tmp_path: Path) -> None:
        folder = recording(tmp_path / "rec")
        (folder / "bench.json").write_text('{"date": "20261129"}')
        (folder / "rank0.trace.json.gz").write_bytes(gzip.compress(b'{"traceEvents": []}' * 5000))
        (folder / "server.log").write_text("INFO started\nINFO ready\n")
        (folder / "report.nsys-rep").write_bytes(bytes(range(256)) * 10)
        (folder / "profiles").mkdir()
        (folder / "empty.txt").touch()
        assert read(folder).unread == (
            "rec/bench.json, rec/rank0.trace.json.gz: JSON, and no reader here knows it",
            "rec/empty.txt: empty",
            "rec/profiles: a folder: name it itself",
            "rec/report.nsys-rep: binary, and no reader here knows it",
            "rec/server.log: no reader here knows it",
        )

    def test_many_files_with_one_reason_share_a_line(self, tmp_path: Path) -> None:
        folder = recording(tmp_path / "rec")
        for index in range(5):
            (folder / f"x{index}.log").write_text("hello world, how are you\n")
        assert read(folder).unread == ("rec/x0.log, rec/x1.log, rec/x2.log and 2 more: no reader here knows it",)

    def test_nothing_but_what_no_reader_knows(self, tmp_path: Path) -> None:
        (tmp_path / "rec").mkdir()
        (tmp_path / "rec" / "bench.json").write_text("{}")
        assert refused(tmp_path / "rec").reason == "rec/bench.json: JSON, and no reader here knows it"
        assert refused(tmp_path / "rec" / "bench.json").reason == "bench.json: JSON, and no reader here knows it"

    def test_pages_are_recognised_by_content_whatever_their_name(self, tmp_path: Path) -> None:
        folder = tmp_path / "rec"
        folder.mkdir()
        (folder / "before").write_text(page(1, 0), encoding="utf-8")
        (folder / "during.txt").write_bytes(b"\xef\xbb\xbf" + page(5, 5).encode())
        (folder / "after.metrics.gz").write_bytes(gzip.compress(page(9, 9).encode()))
        window = read(folder)
        assert (window.samples, window.counter("generation_tokens")) == (3, 8)

    def test_a_few_bad_scrapes_of_many_are_said(self, tmp_path: Path) -> None:
        folder = recording(tmp_path / "rec", 5)
        (folder / "pod.000006.prom").write_text("<html>502</html>")
        window = read(folder)
        assert window.samples == 5
        assert window.notes == ("1 scrape is left out as unreadable (rec/pod.000006.prom is HTML, not metrics)",)

    def test_a_bad_scrape_of_two_refuses_the_window(self, tmp_path: Path) -> None:
        """It must not become a window since the server's start."""
        folder = recording(tmp_path / "rec", 1)
        (folder / "pod.000002.prom").write_text(page(10, 1) + "vllm:x{ 1\n", encoding="utf-8")
        assert refused(folder).reason.startswith("rec/pod.000002.prom:3: the labels are not closed")

    def test_links_that_lead_out_are_not_followed(self, tmp_path: Path) -> None:
        secret = tmp_path / "secret.prom"
        secret.write_text(page(99, 9), encoding="utf-8")
        folder = recording(tmp_path / "rec", 5)
        (folder / "notes").symlink_to(secret)
        (folder / "gone").symlink_to(tmp_path / "nowhere")
        window = read(folder)
        assert window.counter("generation_tokens") == 40
        assert window.unread == ("rec/gone, rec/notes: a link that leads out of the recording",)
        (folder / "pod.000006.prom").symlink_to(secret)
        assert read(folder).notes == (
            "1 scrape is left out as unreadable (rec/pod.000006.prom is a link that leads out of the recording)",
        )

    def test_links_inside_are_followed(self, tmp_path: Path) -> None:
        folder = recording(tmp_path / "rec", 1)
        (folder / ".kept.prom").write_text(page(10, 1), encoding="utf-8")
        (folder / "pod.000002.prom").symlink_to(folder / ".kept.prom")
        assert read(folder).counter("generation_tokens") == 10

    def test_a_linked_recording_is_read(self, tmp_path: Path) -> None:
        recording(tmp_path / "rec")
        (tmp_path / "latest").symlink_to(tmp_path / "rec")
        assert read(tmp_path / "latest").counter("generation_tokens") == 10

    def test_huge_files_are_not_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(namedfiles, "MAXIMUM_BYTES", 1000)
        path = tmp_path / "a.prom"
        path.write_text(page(1, 0) * 50, encoding="utf-8")
        assert "is larger than" in refused(path).reason


class TestFiles:
    def test_other_telemetry_beside_scrapes_is_named(self, tmp_path: Path) -> None:
        before, after, trace = tmp_path / "before.prom", tmp_path / "after.prom", tmp_path / "decode.pt.trace.json.gz"
        before.write_text(page(1, 0), encoding="utf-8")
        after.write_text(page(9, 9), encoding="utf-8")
        trace.write_bytes(gzip.compress(b'{"traceEvents": []}'))
        window = read(before, after, trace)
        assert window.counter("generation_tokens") == 8
        assert window.unread == ("decode.pt.trace.json.gz: JSON, and no reader here knows it",)

    @pytest.mark.parametrize(
        ("body", "reason"),
        [
            (b"<html></html>", "a.txt is HTML, not metrics"),
            (b"", "a.txt is empty"),
            (b"hello world\n", "a.txt: no reader here knows it"),
        ],
    )
    def test_each_has_its_own_text(self, tmp_path: Path, body: bytes, reason: str) -> None:
        (tmp_path / "a.txt").write_bytes(body)
        assert refused(tmp_path / "a.txt").reason == reason

    def test_two_of_a_recordings_pages(self, tmp_path: Path) -> None:
        folder = recording(tmp_path / "rec", 5)
        window = read(folder / "pod.000004.prom", folder / "pod.000002.prom")
        assert (window.counter("generation_tokens"), window.duration_seconds) == (20, 2)

    def test_a_page_that_may_be_cut_is_said(self, tmp_path: Path) -> None:
        (tmp_path / "a.prom").write_text(page(1, 0), encoding="utf-8")
        (tmp_path / "b.prom").write_text(page(15, 9).rstrip("\n"), encoding="utf-8")
        window = read(tmp_path / "a.prom", tmp_path / "b.prom")
        assert window.counter("generation_tokens") == 14
        assert window.notes == ("b.prom does not end in a line feed: its last line may be cut",)


@pytest.mark.parametrize(
    ("head", "content"),
    [
        (b"# HELP a b\n", "metrics"),
        (b"\n\n# scraped_at 1\n", "metrics"),
        (b'vllm:x{engine="0"} 5\n', "metrics"),
        ("# TYPE a gauge\n".encode("utf-16"), "metrics"),
        (gzip.compress(b"a_total 5\n", mtime=0), "metrics"),
        (b"\x1f\x8b\xff\xff\xff", "binary"),
        (b"SQLite format 3\0", "binary"),
        (b"[1]", "json"),
        (b" {}", "json"),
        (b"<?xml", "html"),
        (b" \n", "empty"),
        (b"timestamp, name, pci.bus_id\n", "table"),
        (b"# a README\n\nof things\n", "text"),
    ],
)
def test_what_a_file_holds(head: bytes, content: str) -> None:
    assert content_of(head) == content
