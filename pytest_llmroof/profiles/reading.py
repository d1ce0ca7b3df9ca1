"""From profile files to what they tell together. Ranks of one window explain each other, whatever file each is in."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_llmroof.errors import SourceError
from pytest_llmroof.profiles.analyse import analyse, analyse_ranks
from pytest_llmroof.profiles.chrome import read_chrome
from pytest_llmroof.profiles.kernel_table import KernelTable, joined
from pytest_llmroof.profiles.ncu import read_ncu
from pytest_llmroof.profiles.nsys import read_nsys
from pytest_llmroof.profiles.nsys_stats import StatsSummary, read_stats
from pytest_llmroof.profiles.profile import Profile, ProfileFile, Refused
from pytest_llmroof.profiles.recognise import refuse_report
from pytest_llmroof.profiles.timeline import Timeline


def read_profile(files: Sequence[ProfileFile]) -> Profile:
    """Everything that the files tell. A file that cannot be read is refused with its reason, never an exception."""
    timelines: list[tuple[ProfileFile, Timeline]] = []
    summaries: list[tuple[ProfileFile, StatsSummary]] = []
    tables: list[tuple[ProfileFile, KernelTable]] = []
    refused: list[Refused] = []
    for file in files:
        try:
            for one in _contents(file):
                if isinstance(one, Timeline):
                    timelines.append((file, one))
                elif isinstance(one, KernelTable):
                    tables.append((file, one))
                else:
                    summaries.append((file, one))
        except SourceError as error:
            refused.append(Refused(file, error.reason, error.remedy))
        except OSError as error:
            refused.append(Refused(file, f"it cannot be read ({error.strerror or type(error).__name__})", None))
    try:
        figures = analyse_ranks([timeline for _, timeline in timelines]) if timelines else ()
    except SourceError:
        timelines, bad = _sound(timelines)
        refused.extend(bad)
        figures = analyse_ranks([timeline for _, timeline in timelines]) if timelines else ()
    told = {file for file, _ in (*timelines, *summaries, *tables)}
    return Profile(
        figures,
        tuple(file for file in files if file in told),
        tuple(refused),
        tuple(summary for _, summary in summaries),
        joined([table for _, table in tables]) if tables else None,
    )


def _contents(file: ProfileFile) -> tuple[Timeline | StatsSummary | KernelTable, ...]:
    if file.kind == "torch trace":
        return read_chrome(file.path, file.location)
    if file.kind == "nsys sqlite":
        return read_nsys(file.path, file.location)
    if file.kind == "nsys stats csv":
        found = read_stats(file.path, file.location)
        return (found,) if isinstance(found, StatsSummary) else found
    if file.kind == "ncu csv":
        return (read_ncu(file.path, file.location),)
    if file.kind in ("nsys report", "ncu report"):
        raise refuse_report(file.path)
    raise SourceError(f"{file.location}: a profile that no reader here knows")


def _sound(
    timelines: Sequence[tuple[ProfileFile, Timeline]],
) -> tuple[list[tuple[ProfileFile, Timeline]], list[Refused]]:
    """Those that can be analysed by themselves, and why the others cannot."""
    sound, refused = [], []
    for file, timeline in timelines:
        try:
            analyse(timeline)
        except SourceError as error:
            refused.append(Refused(file, error.reason, error.remedy))
        else:
            sound.append((file, timeline))
    return sound, refused
