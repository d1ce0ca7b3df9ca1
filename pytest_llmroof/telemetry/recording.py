"""The layout of a recording: a folder of scrapes that a person can read, sort, thin out or write by hand.

    rec/night1/
        127.0.0.1-8000-metrics.000001.prom      <endpoint's slug>.<number, six digits or more>.prom
        127.0.0.1-8000-metrics.000002.prom
        dcgm-9400-metrics.000001.prom
        recording.json                          what the pages can't say: failed scrapes, interval, exit code

A page is what the endpoint answered (unpacked, as UTF-8) under a head of three comment lines:

    # scraped_at 1764417600.250134
    # scrape_seconds 0.012345
    # endpoint http://127.0.0.1:8000/metrics

``scraped_at`` (Unix seconds, when the request was sent) always is the first line: it gives the page its clock, and
pages are ordered by it. ``scrape_seconds`` is how long the answer took, so how far that clock may be off.
``endpoint`` is the address without user, password, query and fragment. Pages of one endpoint share the name up to the
number. ``recording.json`` may be missing: a folder with nothing but ``.prom`` files written by hand, each with its
``# scraped_at``, is a recording too; then pages whose names do not end in a number are told apart by their series.
A failed scrape leaves no page (never an empty or zero one) and uses no number: it is noted in ``recording.json``.

``recording.json``:

    {"schema": "llmroof.recording/1", "started": "2026-11-29T12:00:00Z", "interval_seconds": 1.0,
     "warmup_seconds": 0.0, "command": "vllm", "ended": "command", "exit_code": 0,
     "endpoints": [{"slug": "127.0.0.1-8000-metrics", "endpoint": "http://127.0.0.1:8000/metrics", "pages": 64}],
     "failed_scrapes": [{"slug": "127.0.0.1-8000-metrics", "first": 1764417601.2, "last": 1764417603.2, "count": 3,
                         "reason": "http://127.0.0.1:8000/metrics: connection refused"}]}

``ended`` is null while it is being written (or where the recorder was killed), then ``command``, ``duration``,
``signal``, or ``block`` (of a test that was framed). Of the command only the program's name is kept, as arguments may
hold secrets.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from pytest_llmroof.errors import ConfigError
from pytest_llmroof.telemetry.endpoint import Endpoint

MANIFEST: Final = "recording.json"
SCHEMA: Final = "llmroof.recording/1"

Ended = Literal["command", "duration", "signal", "block"]

_PAGE_NAME: Final = re.compile(r"(?P<slug>.+)\.(?P<number>\d{6,})\.prom")


def page_name(slug: str, number: int) -> str:
    """The file name of an endpoint's page; pages are numbered from 1."""
    return f"{slug}.{number:06d}.prom"


def slug_of_page(name: str) -> str | None:
    """Which endpoint a page's file name belongs to, None where the name is not one of the recorder's."""
    match = _PAGE_NAME.fullmatch(name)
    return match["slug"] if match else None


@dataclass(frozen=True)
class Page:
    """One answered scrape. ``endpoint`` is what may be shown of the address; times are in seconds."""

    slug: str
    endpoint: str
    scraped_at: float
    scrape_seconds: float
    body: bytes

    def content(self) -> bytes:
        """The page as it is kept: the head, then the body."""
        head = (
            f"# scraped_at {self.scraped_at:.6f}\n"
            f"# scrape_seconds {self.scrape_seconds:.6f}\n"
            f"# endpoint {self.endpoint}\n"
        )
        return head.encode() + self.body


@dataclass
class _Failures:
    """Scrapes of one endpoint that failed one after another for one reason."""

    slug: str
    reason: str
    first: float
    last: float
    count: int = 1


class Recording:
    """Writes a recording. Pages and failures may come from several threads; each page is there whole or not at all."""

    def __init__(
        self,
        folder: Path,
        endpoints: Sequence[Endpoint],
        *,
        interval_seconds: float,
        warmup_seconds: float = 0.0,
        command: str | None = None,
        shown: str | None = None,
    ) -> None:
        """Begin one in ``folder`` (called ``shown`` in messages), which is made, or has nothing in it but dot files.

        ConfigError for a folder that holds anything else, as two recordings in one would be read as one, and for one
        that can't be written.
        """
        self.folder = folder
        self.pages = dict.fromkeys((endpoint.slug for endpoint in endpoints), 0)
        self.failures: list[_Failures] = []
        self._lock = threading.Lock()
        self._made = not folder.exists()
        self._facts: dict[str, Any] = {
            "interval_seconds": interval_seconds, "warmup_seconds": warmup_seconds, "command": command,
        }  # fmt: skip
        self._endpoints = {endpoint.slug: endpoint.shown for endpoint in endpoints}
        self._started: float | None = None
        shown = shown or folder.name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            others = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
            if others:
                what = "a recording" if MANIFEST in others or any(map(slug_of_page, others)) else f"{others[0]!r}"
                raise ConfigError(f"{shown} already holds {what}: remove it, or name another folder, as two would mix")
            # "x": of two recorders that start in one folder at the same time, one is refused.
            with (folder / MANIFEST).open("x", encoding="utf-8") as file:
                file.write(self._manifest(None, None))
        except FileExistsError:
            raise ConfigError(f"{shown} is no folder, or another recording just began in it") from None
        except OSError as error:
            raise ConfigError(f"{shown} can't be written: {error.strerror}") from None

    @property
    def failed_scrapes(self) -> int:
        """How many scrapes failed so far."""
        return sum(each.count for each in self.failures)

    def keep(self, page: Page) -> None:
        """Write a page beside those before it. OSError where the disk does not take it."""
        with self._lock:
            self._started = self._started or page.scraped_at
            self.pages[page.slug] += 1
            name = page_name(page.slug, self.pages[page.slug])
            partial = self.folder / f".{name}.part"
            partial.write_bytes(page.content())
            partial.replace(self.folder / name)

    def failed(self, slug: str, at: float, reason: str) -> None:
        """Note a failed scrape; those that follow each other for one reason become one note."""
        with self._lock:
            last = next((each for each in reversed(self.failures) if each.slug == slug), None)
            if last is not None and last.reason == reason:
                last.last, last.count = at, last.count + 1
            else:
                self.failures.append(_Failures(slug, reason, at, at))

    def finish(self, ended: Ended, exit_code: int | None = None) -> None:
        """Complete the manifest. OSError where the disk does not take it."""
        partial = self.folder / f".{MANIFEST}.part"
        partial.write_text(self._manifest(ended, exit_code), encoding="utf-8")
        partial.replace(self.folder / MANIFEST)

    def discard(self) -> None:
        """Leave the folder as it was found, where the recording never began."""
        with contextlib.suppress(OSError):
            for path in self.folder.iterdir():
                if path.name == MANIFEST or slug_of_page(path.name):
                    path.unlink()
            if self._made:
                os.rmdir(self.folder)

    def _manifest(self, ended: Ended | None, exit_code: int | None) -> str:
        started = None if self._started is None else datetime.fromtimestamp(self._started, UTC)
        document = {
            "schema": SCHEMA,
            "started": started and started.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            **self._facts,
            "ended": ended,
            "exit_code": exit_code,
            "endpoints": [
                {"slug": slug, "endpoint": shown, "pages": self.pages[slug]} for slug, shown in self._endpoints.items()
            ],
            "failed_scrapes": [
                {"slug": each.slug, "first": round(each.first, 6), "last": round(each.last, 6), "count": each.count,
                 "reason": each.reason} for each in self.failures
            ],
        }  # fmt: skip
        return json.dumps(document, indent=1, ensure_ascii=False) + "\n"
