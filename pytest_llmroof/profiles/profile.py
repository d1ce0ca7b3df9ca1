"""What all profiles of one window tell together: figures of every device, and files that were refused."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_llmroof.advice import AnyAdvice
from pytest_llmroof.profiles.recognise import ProfileKind

if TYPE_CHECKING:
    from pytest_llmroof.profiles.figures import TimelineFigures
    from pytest_llmroof.profiles.kernel_table import KernelTable
    from pytest_llmroof.profiles.nsys_stats import StatsSummary

#: What reports call the sources.
SOURCE_KINDS: Final[dict[ProfileKind, str]] = {
    "torch trace": "pytorch_profiler",
    "nsys sqlite": "nsight_systems",
    "nsys stats csv": "nsight_systems",
    "nsys report": "nsight_systems",
    "ncu csv": "nsight_compute",
    "ncu report": "nsight_compute",
}


@dataclass(frozen=True)
class ProfileFile:
    """A file that a profiler wrote: ``location`` is what reports call it."""

    path: Path
    location: str
    kind: ProfileKind


@dataclass(frozen=True)
class Refused:
    """A profile that tells nothing here: why, and what to do instead."""

    file: ProfileFile
    reason: str
    remedy: AnyAdvice | None

    @property
    def line(self) -> str:
        """``decode.nsys-rep: a report that only Nsight Systems itself can open``."""
        named = self.reason.removeprefix(self.file.location).removeprefix(self.file.path.name)
        said = named.removeprefix(" is ").lstrip(": ")
        return f"{self.file.location}: {said}" + (f"; {self.remedy}" if self.remedy else "")


@dataclass(frozen=True)
class Profile:
    """The profiles of one window. ``read`` are the files that tell something."""

    timelines: tuple[TimelineFigures, ...] = ()
    read: tuple[ProfileFile, ...] = ()
    refused: tuple[Refused, ...] = ()
    summaries: tuple[StatsSummary, ...] = ()
    """Sums over a recording, which tell nothing of when anything ran."""
    kernels: KernelTable | None = None
    """Kernels that were profiled one by one, of all files."""

    @property
    def sources(self) -> tuple[tuple[str, str], ...]:
        """Kind and location of each source."""
        return tuple(dict.fromkeys((SOURCE_KINDS[file.kind], file.location) for file in self.read))

    @property
    def device_names(self) -> tuple[str, ...]:
        """The names of the devices that were profiled."""
        named = [one.device_name for one in self.timelines]
        named.extend(device.name for device in (self.kernels.devices if self.kernels is not None else ()))
        return tuple(dict.fromkeys(name for name in named if name))
