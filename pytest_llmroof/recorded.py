"""Whether a recording that was just made holds a window: servers that answered to its end, and enough requests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pytest_llmroof.errors import SourceError
from pytest_llmroof.gates.spec import WindowSpec
from pytest_llmroof.telemetry.bodies import is_json
from pytest_llmroof.telemetry.endpoint import Endpoint
from pytest_llmroof.telemetry.engine_entries import with_engines
from pytest_llmroof.telemetry.reading import read_window
from pytest_llmroof.telemetry.recording import MANIFEST, slug_of_page
from pytest_llmroof.units import grouped

#: The share of a window that may be missing at its end before the server counts as gone.
_MISSING: Final = 0.1


def refuse_gone(folder: Path, found: Sequence[Endpoint], ended: float, seconds: float) -> None:
    """SourceError where a server did not answer to the end: what it did then is not known, and may be a crash."""
    heard = answered(folder)
    for endpoint in found:
        last = heard[endpoint.slug][1] if endpoint.slug in heard else ended - seconds
        if ended - last > _MISSING * seconds:
            why = _reasons(folder).get(endpoint.slug)
            raise SourceError(
                f"{endpoint.shown} did not answer to the window's end: its last answer came "
                f"{max(0.0, seconds - (ended - last)):.1f} s into {seconds:.1f} s" + (f" ({why})" if why else ""),
                "look at the server's log, and measure again",
            )


def answered(folder: Path) -> dict[str, tuple[float, float]]:
    """By endpoint, when its first and its last page were asked for (Unix seconds)."""
    return {slug: (_scraped_at(first), _scraped_at(last)) for slug, (first, last) in _ends(folder).items()}


def _ends(folder: Path) -> dict[str, tuple[Path, Path]]:
    """By endpoint, its first and its last page."""
    pages: dict[str, list[Path]] = {}
    for path in folder.iterdir():
        slug = slug_of_page(path.name)
        if slug is not None:
            pages.setdefault(slug, []).append(path)

    def order(path: Path) -> tuple[int, str]:  # numbers outgrow six digits
        return len(path.name), path.name

    return {slug: (min(found, key=order), max(found, key=order)) for slug, found in pages.items()}


def _scraped_at(page: Path) -> float:
    with page.open(encoding="utf-8") as file:
        return float(file.readline().rpartition(" ")[2])


def _reasons(folder: Path) -> dict[str, str]:
    """By endpoint, why its last failed scrape failed."""
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    return {failure["slug"]: failure["reason"] for failure in manifest["failed_scrapes"]}


def enough(spec: WindowSpec, folder: Path) -> bool:
    """Whether as many requests finished as were asked for; also where nobody counts them: waiting would not help."""
    finished = _finished_requests(spec, folder)
    return finished is None or finished >= (spec.min_requests or 0)


def refuse_few(spec: WindowSpec, folder: Path, seconds: float) -> None:
    """SourceError where fewer requests finished than were asked for, or nobody counts them."""
    if spec.min_requests is None:
        return
    finished = _finished_requests(spec, folder)
    if finished is None:
        raise SourceError("these sources do not count finished requests", "leave out `min_requests:`")
    if finished < spec.min_requests:
        raise SourceError(
            f"only {grouped(finished)} of the {grouped(spec.min_requests)} requests asked for (min_requests) finished",
            "drive more load, wait longer (max_wait), or ask for fewer",
        )


def _finished_requests(spec: WindowSpec, folder: Path) -> float | None:
    """Requests that finished from the first to the last page; None where the sources do not tell."""
    ends = _ends(folder)
    # Of running totals two pages tell; of an endpoint that hands out each record once all of them do.
    drained = {slug for slug, (_first, last) in ends.items() if is_json(last.read_text(encoding="utf-8"))}
    kept = [path for path in sorted(folder.iterdir()) if slug_of_page(path.name) in drained]
    kept += [path for slug, both in ends.items() if slug not in drained for path in dict.fromkeys(both)]
    pages = [(path, path.name) for path in kept]
    try:
        engines = with_engines(spec.engines)
        window = read_window(pages, served_model_name=spec.served_model_name, engines=engines)
    except SourceError:
        return 0.0  # Not yet two scrapes, or a server that still starts: the whole window will say what is wrong.
    counted = window.counter("requests_finished")
    if counted is not None:
        return counted
    histogram = window.histogram("e2e")
    return None if histogram is None else histogram.count
