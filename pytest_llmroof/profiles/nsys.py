"""The SQLite export of Nsight Systems (schemas 3.x) as timelines: one for each GPU, or for each device of a process."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pytest_llmroof.advice import Advice
from pytest_llmroof.errors import SourceError
from pytest_llmroof.profiles import nsys_facts as facts
from pytest_llmroof.profiles.nsys_build import CAPTURE, Context, timelines_of
from pytest_llmroof.profiles.nsys_columns import Columns, columns_of
from pytest_llmroof.profiles.nsys_database import Database
from pytest_llmroof.profiles.nsys_rows import read_rows
from pytest_llmroof.profiles.timeline import KERNEL, UNKNOWN, Timeline

_UNNAMED: Final = 0.05
_UNTIMED: Final = 0.1


def read_nsys(path: Path, location: str | None = None) -> tuple[Timeline, ...]:
    """The timelines of an export. Raises SourceError where it is damaged, or lacks the device's work.

    ``location`` is what reports call the file; its name, where nothing else is given.
    """
    place = location or path.name
    try:
        database = Database(path, place)
    except OSError as error:
        raise SourceError(f"{place} cannot be read: {error.strerror or error}") from None
    with database:
        if not database.tables:
            again = Advice("export it again", "nsys export --type sqlite REPORT.nsys-rep")
            raise SourceError(f"{place} holds no table of Nsight Systems", again)
        read = read_rows(database)
        columns = columns_of(database, read)
        if not len(columns.work.start) and not columns.untimed:
            raise SourceError(
                f"{place} holds no GPU activity (no kernels, copies or graph replays): it tells nothing about the GPU",
                f"record while requests are served: {CAPTURE}",
            )
        _check_times(columns, place)
        _check_names(columns, place)
        lost, other = facts.warnings(database)
        context = Context(
            place=place,
            gpus=facts.gpus(database),
            zero_unix_ns=facts.zero_unix_ns(database),
            annotations=facts.annotated(database, read.processes),
            overhead=facts.overhead(database, read.processes),
            waits=facts.recorded_waits(database, read.processes) if not len(columns.calls.start) else None,
            notes=_notes(database, columns, other),
            distortions=_distortions(columns, lost),
        )
    return timelines_of(columns, context)


def _check_times(columns: Columns, place: str) -> None:
    """Refuse work without times, which would seem idle time."""
    total = columns.untimed + len(columns.work.start)
    if columns.untimed > _UNTIMED * total:
        raise SourceError(
            f"{place}: the times of {columns.untimed} of {total} pieces of GPU work could not be collected",
            f"record it again, with the kernels of graphs: {CAPTURE}",
        )


def _check_names(columns: Columns, place: str) -> None:
    """Refuse kernels that cannot be told apart: communication among them would be passed over."""
    kernels = columns.work.kind == KERNEL
    ran = (columns.work.end - columns.work.start)[kernels]
    unnamed = int(ran[columns.work.name[kernels] == columns.unnamed].sum()) if columns.unnamed != UNKNOWN else 0
    if unnamed > _UNNAMED * int(ran.sum()):
        raise SourceError(f"{place}: its kernels have no names (StringIds lacks them)", "export it again, whole")


def _notes(database: Database, columns: Columns, warnings: int) -> tuple[str, ...]:
    said = []
    if note := facts.schema_note(database):
        said.append(note)
    if columns.unplaced:
        said.append(f"{database.place}: {columns.unplaced} calls without a usable time were left out")
    if warnings:
        plural = "s" if warnings > 1 else ""
        said.append(f"{database.place} holds {warnings} warning{plural} of Nsight Systems (table DIAGNOSTIC_EVENT)")
    return tuple(said)


def _distortions(columns: Columns, lost: int) -> tuple[str, ...]:
    said = []
    if columns.untimed:
        total = columns.untimed + len(columns.work.start)
        said.append(f"the times of {columns.untimed} of {total} pieces of GPU work could not be collected")
    if columns.mixed:
        said.append("the export does not tell processes apart, so that some launches are not known")
    if lost:
        said.append("Nsight Systems warns that CUDA events may be missing (table DIAGNOSTIC_EVENT)")
    return tuple(said)
