"""What ``nsys stats`` prints as CSV: traces of the GPU become timelines, summaries what they can tell.

A trace (``cuda_gpu_trace``) tells when the GPU worked; with the calls beside it (``cuda_kern_exec_trace``) also why it
did not. Summaries tell which kernels took the time, and never how much of the time that was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from pytest_llmroof.advice import Advice, AnyAdvice
from pytest_llmroof.errors import SourceError
from pytest_llmroof.profiles.annotations import step_of
from pytest_llmroof.profiles.calls import launching
from pytest_llmroof.profiles.kernels import kernel_class
from pytest_llmroof.profiles.nsys_csv import Table, read_tables
from pytest_llmroof.profiles.nsys_traces import gpu_trace, kernel_trace
from pytest_llmroof.profiles.timeline import Timeline
from pytest_llmroof.units import whole_of

Report = Literal["cuda_gpu_kern_sum", "cuda_api_sum", "nvtx_sum"]

EXPORT: Final = Advice("export the report, and give the .sqlite file", "nsys export --type sqlite REPORT.nsys-rep")
_WHOLE: Final = 95.0
_CANNOT: Final[Mapping[Report, str]] = {
    "cuda_gpu_kern_sum": "sums of kernels, not when they ran: neither busy nor idle time, nor what overlapped",
    "cuda_api_sum": "sums of the host's calls, not what the GPU did meanwhile",
    "nvtx_sum": "sums of the host's ranges, not what the GPU did meanwhile",
}


@dataclass(frozen=True)
class Summed:
    """All instances of one name."""

    name: str
    count: int
    seconds: float


@dataclass(frozen=True)
class StatsSummary:
    """A table of sums. ``rows`` are kernels, calls of the GPU's API, or annotated steps, the longest first.

    ``classes`` are fractions of the summed time of kernels (empty for other tables): of the kernels alone, without
    copies and without graph replays that were recorded whole. ``cannot`` says what no such table can tell, ``remedy``
    how to get that.
    """

    location: str
    report: Report
    rows: tuple[Summed, ...]
    cannot: str
    remedy: AnyAdvice = EXPORT
    classes: Mapping[str, float] = field(default_factory=dict)
    distortions: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """The sum of all rows."""
        return sum(row.seconds for row in self.rows)

    @property
    def launches(self) -> int:
        """How many calls launched something (of calls)."""
        return self._count([bool(found) for found in launching(row.name for row in self.rows)])

    def refusal(self) -> SourceError:
        """Why it is no answer to a question about time."""
        return SourceError(f"{self.location} ({self.report}) holds {self.cannot}", self.remedy)

    def _count(self, which: list[bool]) -> int:
        return sum(row.count for row, found in zip(self.rows, which, strict=True) if found)


def read_stats(path: Path, location: str | None = None) -> tuple[Timeline, ...] | StatsSummary:
    """Timelines of a trace, else a summary. Of several tables in one file the one that tells most is read.

    Raises SourceError where the file is damaged, or holds none of the tables that are read.
    """
    place = location or path.name
    tables = read_tables(path, place)
    for known in ("kernel start", "duration"):
        for table in tables:
            if known in table.columns:
                return kernel_trace(table) if known == "kernel start" else gpu_trace(table)
    for table in tables:
        summary = _summary(table)
        if summary is not None:
            return summary
    raise SourceError(
        f"{place} holds a table of nsys stats that tells nothing about kernels, calls of the GPU's API or steps", EXPORT
    )


def _summary(table: Table) -> StatsSummary | None:
    if "range" in table.columns:
        return _summed(table, "nvtx_sum", "range", ("instances",), "")
    if "num calls" in table.columns and "name" in table.columns:
        return _summed(table, "cuda_api_sum", "name", ("num calls",), "")
    if "instances" in table.columns and ({"name", "operation"} & set(table.columns)):
        column = "name" if "name" in table.columns else "operation"
        return _summed(table, "cuda_gpu_kern_sum", column, ("instances",), "CUDA_KERNEL")
    return None


def _summed(table: Table, report: Report, column: str, counts: tuple[str, ...], category: str) -> StatsSummary | None:
    found: dict[str, tuple[int, int]] = {}
    percent = 0.0
    for row in table.rows:
        name = _name(report, table.text(row, column))
        listed = table.text(row, "time").replace(",", ".")
        percent += float(listed) if whole_of(listed.replace(".", "", 1)) is not None else 0.0
        if name is None or (category and table.text(row, "category") not in ("", category)):
            continue
        total, count = table.nanoseconds(row, "total time"), table.count(row, counts[0])
        if total is None or total < 0 or count is None or count < 0:
            raise SourceError(f"{table.place}:{row[0]}: no total time or no count of {name[:60]!r}", EXPORT)
        before = found.get(name, (0, 0))
        found[name] = (before[0] + count, before[1] + total)
    if not found:
        return None
    rows = sorted((Summed(name, count, total / 1e9) for name, (count, total) in found.items()),
                  key=lambda one: -one.seconds)  # fmt: skip
    said: tuple[str, ...] = ()
    if percent and percent < _WHOLE:
        said = (f"its rows add up to {percent:.0f} % only: others are missing",)
    classes = _classes(rows) if report == "cuda_gpu_kern_sum" else {}
    return StatsSummary(table.place, report, tuple(rows), _CANNOT[report], classes=classes, distortions=said)


def _name(report: Report, name: str) -> str | None:
    """The name of a row that is kept: of ranges only steps, of calls only those of the GPU's API."""
    if report == "nvtx_sum":
        own = name if step_of(name) is not None else name.partition(":")[2]  # behind the name of its domain
        return own if step_of(own) is not None else None
    if report == "cuda_api_sum":
        return name if name.startswith(("cuda", "cu", "hip")) else None
    return name


def _classes(rows: list[Summed]) -> dict[str, float]:
    total = sum(row.seconds for row in rows)
    shares: dict[str, float] = {}
    for row in rows:
        title = kernel_class(row.name)
        shares[title] = shares.get(title, 0.0) + (row.seconds / total if total else 0.0)
    return dict(sorted(shares.items(), key=lambda one: -one[1]))
