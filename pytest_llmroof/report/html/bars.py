"""Where the time went, as one stacked bar a window: what was observed, computed and estimated told apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from pytest_llmroof.report.figures import percentages, quantity, yielding
from pytest_llmroof.report.headline import one_line
from pytest_llmroof.report.wire import Document

#: How a share is known: counted or traced; computed from the roofline; estimated; or nothing but what is left.
Known = Literal["observed", "computed", "estimated", "remainder"]

#: The colour family of a cause: useful work, a limit of kernels, waiting for others, waiting for the host, ...
_FAMILIES: Final = {
    "memory floor: weights": "floor",
    "memory floor: KV": "floor-kv",
    "compute floor": "floor",
    "interleaved prefill": "prefill",
    "other requests' prefill": "prefill",
    "kernel ceiling": "ceiling",
    "slow kernels": "slow",
    "exposed communication: transport": "communication",
    "exposed communication: waiting": "waiting",
    "idle: within steps": "idle",
    "idle: between steps": "idle",
    "clock": "slow",
    "queue": "queue",
    "front end": "waiting",
    "not attributed": "rest",
}
#: Causes whose time follows from the roofline.
_COMPUTED: Final = ("memory floor: weights", "memory floor: KV", "compute floor", "interleaved prefill")
_TITLES: Final = {
    "decode step": "Mean decode step",
    "prefill": "Time in prefill",
    "ttft": "Mean time to first token",
    "recording": "Recorded time",
}
#: A narrower part has no room for its per cents.
_LABELLED: Final = 0.075


@dataclass(frozen=True)
class Part:
    """One cause: its place on the bar in per cent, and its figures as text."""

    cause: str
    family: str
    known: Known
    start: float
    width: float
    percent: str
    time: str
    source: str
    labelled: bool


@dataclass(frozen=True)
class Bar:
    """The parts of one kind of time of a window."""

    window: str
    title: str
    whole: str
    parts: tuple[Part, ...]

    @property
    def spoken(self) -> str:
        """The bar as a sentence, for who cannot see it."""
        return ", ".join(f"{part.percent} {part.cause} ({part.known})" for part in self.parts)


def bar(window: Document) -> Bar | None:
    """The bar of a window's attribution; None where nothing was attributed."""
    attributed = window["attributed"]
    shares = [share for share in window["attribution"] if share["share"] > 0]
    if not shares or attributed is None:
        return None
    return Bar(
        window=one_line(window["name"]),
        title=_TITLES.get(attributed["of"], attributed["of"]),
        whole=quantity(attributed["seconds"], "seconds"),
        parts=_parts(shares),
    )


def _parts(shares: Sequence[Document]) -> tuple[Part, ...]:
    causes = [share["cause"] for share in shares]
    whole = percentages([share["share"] for share in shares], yielding(causes))
    parts, start = [], 0.0
    for share, percent in zip(shares, whole, strict=True):
        parts.append(
            Part(
                cause=share["cause"],
                family=_FAMILIES.get(share["cause"], "rest"),
                known=_known(share),
                start=round(start * 100, 3),
                width=round(share["share"] * 100, 3),
                percent=f"{percent} %" if percent else "< 1 %",
                time=quantity(share["seconds"], "seconds"),
                source=one_line(share["source"] or ""),
                labelled=share["share"] >= _LABELLED,
            )
        )
        start += share["share"]
    return tuple(parts)


def _known(share: Document) -> Known:
    if share["cause"] in _COMPUTED:
        return "computed"
    if share["cause"] == "not attributed":
        return "remainder"
    return "observed" if share["observed"] else "estimated"
