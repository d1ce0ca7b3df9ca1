"""Whether a recording may be believed: what its profiler cost, what it lacks, and what it was taken of."""

from __future__ import annotations

from typing import Final

import numpy as np

from pytest_llmroof.errors import SourceError
from pytest_llmroof.profiles.calls import launching, replaying
from pytest_llmroof.profiles.figures import TimelineFigures
from pytest_llmroof.profiles.gaps import Gaps
from pytest_llmroof.profiles.intervals import union
from pytest_llmroof.profiles.steps import LEAST, DeviceSteps
from pytest_llmroof.profiles.timeline import GRAPH, KERNEL, Timeline
from pytest_llmroof.profiles.transport import Communication
from pytest_llmroof.units import format_quantity

_LEAST_SECONDS: Final = 1e-3
"""A shorter recording holds no step of a model."""
_FEW_KERNELS: Final = 0.2
"""While graphs are captured, calls launch nothing: fewer kernels than this part of the launches ran."""
_MANY_LAUNCHES: Final = 20
_NOTABLE: Final = 0.02
_MANY_UNKNOWN: Final = 0.1
_ONE_COLLECTIVE: Final = 0.5


def refuse_capture(timeline: Timeline) -> None:
    """Raise SourceError where the recording is of graphs being captured: nearly nothing that was launched ran."""
    launched = _kernel_launches(timeline)
    ran = int((timeline.work.kind == KERNEL).sum() + (timeline.work.kind == GRAPH).sum())
    if timeline.capturing and launched >= _MANY_LAUNCHES and ran < _FEW_KERNELS * launched:
        raise SourceError(
            f"{timeline.location} was recorded while graphs were captured ({ran} kernels ran of {launched} launched): "
            "it tells nothing about serving",
            "start the profiler after the server has warmed up, under load",
        )


def distortions_of(
    timeline: Timeline, gaps: Gaps, steps: DeviceSteps | None, communication: Communication, figures: TimelineFigures
) -> tuple[str, ...]:
    """Phrases on what makes the figures doubtful."""
    said = list(timeline.distortions)
    if timeline.options:
        said.append(f"recorded with {' and '.join(timeline.options[:2])}, which slow the host")
    first, last = timeline.work.start[:1], np.max(timeline.work.end, keepdims=True)
    overhead = union(timeline.overhead.start, timeline.overhead.end)
    burden = int(overhead.within(first, last).sum()) / (figures.whole.seconds * 1e9)
    if burden > _NOTABLE:
        said.append(f"the profiler itself took {format_quantity(burden, 'fraction', 2)} of the time")
    holes = gaps.holes
    if len(holes.start):
        lost = format_quantity(holes.total / 1e9, "seconds")
        said.append(f"for {lost} submitted work did not run and nothing else is shown: the recording was trimmed")
    if figures.steps_by is None:
        said.append("steps could not be told apart")
    elif steps is not None and len(steps) < LEAST:
        said.append(f"{len(steps)} step{'s' if len(steps) > 1 else ''} only, of which the first cannot be left out")
    if figures.graph_replays:
        said.append("graph replays are opaque: record with --cuda-graph-trace=node to see the kernels in them")
    if figures.whole.idle > _NOTABLE and not figures.whole.causes_known:
        said.append("most idle time has no recorded launch: its cause is not known")
    if figures.unknown_kernels > _MANY_UNKNOWN:
        share = format_quantity(figures.unknown_kernels, "fraction", 2)
        said.append(f"{share} of the work is of kernels whose names are not understood: some may be communication")
    longest = int(communication.durations.max(initial=0)) / (figures.whole.seconds * 1e9)
    if longest > _ONE_COLLECTIVE:
        share = format_quantity(longest, "fraction", 2)
        said.append(f"one collective takes {share} of the recording: its ranks began apart")
    return tuple(said)


def abstain_from(timeline: Timeline, figures: TimelineFigures) -> str | None:
    """Why figures must not be judged; None where they may be.

    What is missing would seem idle time, and a step without communication.
    """
    if figures.graph_replays == 0:
        launched = _kernel_launches(timeline)
        if launched >= _MANY_LAUNCHES and figures.kernels < _FEW_KERNELS * launched:
            return (
                f"{figures.location} shows {figures.kernels} of {launched} kernels that were launched: the profiler "
                "lost the others"
            )
        if figures.kernels == 0:
            return f"{figures.location} holds no kernel, only copies: what the GPU computed was not recorded"
    if figures.whole.seconds < _LEAST_SECONDS:
        length = format_quantity(figures.whole.seconds, "seconds")
        return f"{figures.location} holds {length} of GPU activity only, less than a step takes"
    return None


def _kernel_launches(timeline: Timeline) -> int:
    """Calls that launch one kernel each."""
    single = launching(timeline.names) & ~replaying(timeline.names)
    return int(single[timeline.launches.name].sum()) if len(timeline.launches) else 0
