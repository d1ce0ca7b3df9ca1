"""The layout of a recording: a folder of scrapes that a person can read, sort, thin out or write by hand.

    rec/night1/
        127.0.0.1-8000-metrics.000001.prom      <endpoint's slug>.<number, six digits or more>.prom
        127.0.0.1-8000-metrics.000002.prom
        dcgm-9400-metrics.000001.prom
        recording.json                          what the pages can't say: failed scrapes, interval, exit code

A page is what the endpoint answered, byte for byte, under a head of three comment lines:

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

``ended`` is null while it is being written (or where the recorder was killed), then ``command``, ``duration`` or
``signal``. Of the command only the program's name is kept, as arguments may hold secrets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

MANIFEST: Final = "recording.json"
SCHEMA: Final = "llmroof.recording/1"

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
        """The page as it is kept: the head, then the body as it came."""
        head = (
            f"# scraped_at {self.scraped_at:.6f}\n"
            f"# scrape_seconds {self.scrape_seconds:.6f}\n"
            f"# endpoint {self.endpoint}\n"
        )
        return head.encode() + self.body
