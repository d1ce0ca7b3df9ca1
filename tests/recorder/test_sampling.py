"""Sampling side by side, and what a recording's folder holds."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_llmroof.errors import ConfigError, SourceError
from pytest_llmroof.telemetry import sampling
from pytest_llmroof.telemetry.endpoint import Endpoint, endpoints_of
from pytest_llmroof.telemetry.live import live_window
from pytest_llmroof.telemetry.patience import Unavailable
from pytest_llmroof.telemetry.reading import read_window
from pytest_llmroof.telemetry.recording import Page, Recording
from pytest_llmroof.telemetry.sampling import Failure, Sampler


def page(slug: str = "a", at: float = 1764417600.25, body: bytes = b"a 1\n") -> Page:
    return Page(slug, f"http://{slug}/metrics", at, 0.012345, body)


def endpoint(slug: str = "a") -> Endpoint:
    return Endpoint(f"http://{slug}/metrics?t0ken", f"http://{slug}/metrics", slug)


def manifest(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "recording.json").read_text())
    return content


def test_a_slow_endpoint_holds_up_no_other(server: Any, start_server: Callable[[], Any]) -> None:
    slow, release = start_server(), threading.Event()
    slow.answer = lambda handler: release.wait(30)
    received: list[Page | Failure] = []
    sampler = Sampler(endpoints_of([slow.url, server.url]), received.append, 0.005)
    sampler.start()
    server.wait_for(5)
    release.set()
    sampler.stop()
    pages = [each for each in received if isinstance(each, Page)]
    assert len(pages) >= 5
    assert {each.endpoint for each in pages} == {server.url}
    assert all(isinstance(each, Page) or each.endpoint.shown == slow.url for each in received)
    times = [each.scraped_at for each in pages]
    assert times == sorted(times)
    assert all(0 < each.scrape_seconds < 30 for each in pages)
    before = server.count()
    sampler.stop()  # nothing runs any more
    assert server.count() == before


def test_all_at_once_gives_an_answer_each_in_order(server: Any, refused: str) -> None:
    first, second = Sampler(endpoints_of([refused, server.url]), lambda _: None, 1).scrape()
    assert isinstance(first, Failure)
    assert first.error.reason == f"connection refused at {refused}"
    assert isinstance(second, Page)
    assert second.slug == f"127.0.0.1-{server.port}-metrics"


def test_what_the_receiver_raises_comes_out_at_the_end(server: Any) -> None:
    def full(_: object) -> None:
        raise OSError(28, "No space left on device")

    sampler = Sampler(endpoints_of([server.url]), full, 0.001)
    sampler.start()
    server.wait_for(1)
    with pytest.raises(OSError, match="No space left"):
        sampler.stop()
    with pytest.raises(ValueError, match="interval"):
        Sampler([], full, 0)


def test_the_folder_reads_like_its_description(tmp_path: Path) -> None:
    folder = tmp_path / "rec" / "night1"
    recording = Recording(folder, [endpoint("a"), endpoint("b")], interval_seconds=1.0, command="vllm")
    assert manifest(folder)["ended"] is None
    recording.keep(page("a"))
    recording.keep(page("a", 1764417601.25))
    recording.keep(page("b", 1764417600.5))
    for at in (1764417601.5, 1764417602.5):
        recording.failed("b", at, "connection refused at http://b/metrics")
    recording.failed("a", 1764417602.6, "other")
    recording.failed("b", 1764417603.5, "http://b/metrics is not ready (503)")
    assert recording.failed_scrapes == 4
    recording.finish("command", 7)
    assert sorted(path.name for path in folder.iterdir()) == [
        "a.000001.prom", "a.000002.prom", "b.000001.prom", "recording.json",
    ]  # fmt: skip
    assert (folder / "a.000001.prom").read_text() == (
        "# scraped_at 1764417600.250000\n# scrape_seconds 0.012345\n# endpoint http://a/metrics\na 1\n"
    )
    assert manifest(folder) == {
        "schema": "llmroof.recording/1", "started": "2025-11-29T12:00:00.250Z", "interval_seconds": 1.0,
        "warmup_seconds": 0.0, "command": "vllm", "ended": "command", "exit_code": 7,
        "endpoints": [{"slug": "a", "endpoint": "http://a/metrics", "pages": 2},
                      {"slug": "b", "endpoint": "http://b/metrics", "pages": 1}],
        "failed_scrapes": [
            {"slug": "b", "first": 1764417601.5, "last": 1764417602.5, "count": 2,
             "reason": "connection refused at http://b/metrics"},
            {"slug": "a", "first": 1764417602.6, "last": 1764417602.6, "count": 1, "reason": "other"},
            {"slug": "b", "first": 1764417603.5, "last": 1764417603.5, "count": 1,
             "reason": "http://b/metrics is not ready (503)"},
        ],
    }  # fmt: skip


def test_two_recordings_never_mix(tmp_path: Path) -> None:
    Recording(tmp_path, [endpoint()], interval_seconds=1)
    with pytest.raises(ConfigError, match=r"^rec already holds a recording: remove it, or name another folder"):
        Recording(tmp_path, [endpoint()], interval_seconds=1, shown="rec")
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").touch()
    with pytest.raises(ConfigError, match=r"^other already holds 'notes.txt': "):
        Recording(other, [endpoint()], interval_seconds=1)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"^file is no folder"):
        Recording(tmp_path / "file", [endpoint()], interval_seconds=1)
    with pytest.raises(ConfigError, match=r"^below can't be written: Not a directory"):
        Recording(tmp_path / "file" / "below", [endpoint()], interval_seconds=1)


def test_a_discarded_recording_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").touch()
    recording = Recording(tmp_path, [endpoint()], interval_seconds=1)
    recording.keep(page())
    recording.discard()
    assert [path.name for path in tmp_path.iterdir()] == [".gitignore"]
    made = Recording(tmp_path / "new", [endpoint()], interval_seconds=1)
    made.discard()
    assert not (tmp_path / "new").exists()


def test_a_live_window_is_a_recording(server: Any, tmp_path: Path) -> None:
    asked: list[float] = []

    def sleep(seconds: float) -> None:
        asked.append(seconds)
        server.wait_for(server.count() + 2)

    endpoints = endpoints_of([server.url])
    folder = live_window(endpoints, tmp_path / "w", duration_seconds=30, interval_seconds=0.005, sleep=sleep)
    assert asked == [30]
    assert manifest(folder)["ended"] == "duration"
    texts = [path.read_text() for path in sorted(folder.glob("*.prom"))]
    assert len(texts) == server.count() >= 4
    counts = [float(re.findall(r"generation_tokens_total\{.*\} (\S+)", text)[0]) for text in texts]
    assert counts == list(range(1, len(texts) + 1))


def test_a_warm_up_is_not_part_of_the_window(server: Any, tmp_path: Path) -> None:
    def sleep(seconds: float) -> None:
        if seconds == 10:
            assert server.count() == 1  # the one that checks that the server answers
            server.tokens.inc(1000)

    folder = live_window(
        endpoints_of([server.url]), tmp_path / "w", duration_seconds=30, warmup_seconds=10, interval_seconds=60,
        sleep=sleep,
    )  # fmt: skip
    first, last = [path.read_text() for path in sorted(folder.glob("*.prom"))]
    assert 'generation_tokens_total{engine="0"} 1002.0' in first
    assert 'generation_tokens_total{engine="0"} 1003.0' in last
    assert manifest(folder)["warmup_seconds"] == 10


def test_a_live_window_lasts_until_there_is_enough(server: Any, tmp_path: Path) -> None:
    slept: list[float] = []
    answers = iter([False, False, True])
    live_window(
        endpoints_of([server.url]), tmp_path / "w", duration_seconds=5, interval_seconds=60,
        enough=lambda folder: next(answers), sleep=slept.append,
    )  # fmt: skip
    assert slept == [5, 60, 60]
    slept.clear()
    live_window(
        endpoints_of([server.url]), tmp_path / "v", duration_seconds=5, interval_seconds=60,
        enough=lambda folder: False, max_wait_seconds=180, sleep=slept.append,
    )  # fmt: skip
    assert slept == [5, 60, 60, 60]


def test_a_live_window_that_cannot_begin_leaves_nothing(server: Any, refused: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="connection refused"):
        live_window(endpoints_of([server.url, refused]), tmp_path / "w", duration_seconds=30)
    assert not (tmp_path / "w").exists()


def test_an_interrupted_live_window_keeps_what_it_has(server: Any, tmp_path: Path) -> None:
    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        live_window(endpoints_of([server.url]), tmp_path / "w", duration_seconds=30, sleep=interrupted)
    assert len(list((tmp_path / "w").glob("*.prom"))) == 1
    assert manifest(tmp_path / "w")["ended"] is None


def test_a_live_window_on_a_full_disk_is_no_window(
    server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Recording, page: Page) -> None:
        raise OSError(28, "No space left on device")

    def fill(_: float) -> None:
        monkeypatch.setattr(Recording, "keep", full)

    with pytest.raises(SourceError, match="the recording can't be written: No space left on device; is the disk full"):
        live_window(endpoints_of([server.url]), tmp_path / "w", duration_seconds=30, interval_seconds=60, sleep=fill)


def test_what_was_recorded_reads_as_a_window(server: Any, start_server: Callable[[], Any], tmp_path: Path) -> None:
    other = start_server()
    endpoints = endpoints_of([server.url, other.url])
    recording = Recording(tmp_path / "rec", endpoints, interval_seconds=1)
    sampler = Sampler(endpoints, lambda _: None, 1)
    for second in range(3):
        server.running.set(10 + second)
        server.tokens.inc(99)
        for each in sampler.scrape():
            assert isinstance(each, Page)
            recording.keep(replace(each, scraped_at=1764417600.0 + second))
    recording.finish("command", 0)
    window = read_window([(tmp_path / "rec", "rec")])
    assert window.duration_seconds == 2.0
    assert window.started == 1764417600.0
    assert len(window.engines) == 2  # two servers, each with an engine "0"
    assert window.samples == 3
    # Each scrape is one token of its own: 2 x (99 + 1) on the first server, 2 x 1 on the other.
    assert window.counter("generation_tokens") == 202
    # Which server comes first is up to its port.
    assert (10.0, 11.0, 12.0) in [engine.gauges["running"].values for engine in window.engines]
    assert window.unread == ()


@pytest.mark.parametrize(("timeout", "further"), [(10.0, 2.0), (1.0, 1.0)])
def test_a_scrape_takes_its_time_out_and_a_short_grace(
    monkeypatch: pytest.MonkeyPatch, timeout: float, further: float
) -> None:
    """A server that took up its whole time-out is asked once more, for 2 s; what is said is what happened first."""
    asked: list[float] = []
    clock = [0.0]

    def silent(endpoint: Endpoint) -> bytes:
        asked.append(endpoint.timeout_seconds)
        clock[0] += endpoint.timeout_seconds
        raise Unavailable(f"no answer within {endpoint.timeout_seconds:g} s", timed_out=True)

    monkeypatch.setattr(sampling, "fetch", silent)
    monkeypatch.setattr(sampling, "_monotonic", lambda: clock[0])
    monkeypatch.setattr(sampling, "_sleep", lambda seconds: None)
    (scraped,) = Sampler([replace(endpoint(), timeout_seconds=timeout)], lambda _: None, 1.0).scrape()
    assert isinstance(scraped, Failure)
    assert asked == [timeout, further]
    assert scraped.error.reason == f"no answer within {timeout:g} s"


def test_a_further_try_has_what_is_left_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    clock = [0.0]

    def slow(endpoint: Endpoint) -> bytes:
        asked.append(endpoint.timeout_seconds)
        clock[0] += 6.0
        raise Unavailable("is not ready (503)", passing=True)

    monkeypatch.setattr(sampling, "fetch", slow)
    monkeypatch.setattr(sampling, "_monotonic", lambda: clock[0])
    monkeypatch.setattr(sampling, "_sleep", lambda seconds: None)
    (scraped,) = Sampler([replace(endpoint(), timeout_seconds=10.0)], lambda _: None, 1.0).scrape()
    # 6 s of 10 are over: 4 are left. After 12 s nothing is asked any more.
    assert asked == [10.0, 4.0]
    assert isinstance(scraped, Failure)


def test_a_sampler_that_is_given_up_waits_for_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server keeps its answer until the sampler is gone: it is not received any more."""
    asked, answer, answered = threading.Event(), threading.Event(), threading.Event()
    received: list[object] = []

    def silent(endpoint: Endpoint) -> bytes:
        asked.set()
        assert answer.wait(60)
        answered.set()
        return b"a 1\n"

    monkeypatch.setattr(sampling, "fetch", silent)
    sampler = Sampler([endpoint()], received.append, 0.01)
    sampler.start()
    assert asked.wait(60)
    sampler.abandon()  # returns, although nothing was answered
    answer.set()
    assert answered.wait(60)
    for thread in threading.enumerate():
        if thread.name == "llmroof-sampler":
            assert thread.daemon
            thread.join(60)
    assert not received
