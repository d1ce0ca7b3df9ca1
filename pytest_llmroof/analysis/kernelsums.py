"""``kernels(PATTERN).time_share`` from sums of kernels (``nsys stats --report cuda_gpu_kern_sum``)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pytest_llmroof.analysis.measurement import Measurement, NoData, Outcome
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.profiles.kernel_names import matches

if TYPE_CHECKING:
    from pytest_llmroof.profiles.nsys_stats import StatsSummary

_SHARE: Final = re.compile(r"kernels\((?P<pattern>.*)\)\.time_share", re.DOTALL)


def summed_share(summary: StatsSummary, metric: str) -> Outcome | None:
    """The share of the kernels' summed time; None for any other metric, and of sums that hold no kernels."""
    match = _SHARE.fullmatch(metric)
    if match is None or summary.report != "cuda_gpu_kern_sum" or not summary.seconds:
        return None
    chosen = [row for row in summary.rows if matches(match["pattern"], row.name)]
    if not chosen:
        longest = ", ".join(row.name[:60] for row in summary.rows[:3])
        held = f"the {len(summary.rows)} kernels that {summary.location} holds"
        return NoData(metric, f"none of {held} matches: the longest are {longest}")
    share = sum(row.seconds for row in chosen) / summary.seconds
    # What is not listed may be any kernel's.
    listed = 0.0 if summary.distortions else share
    return Measurement(
        metric=metric,
        bounded=Bounded(share, listed, 1.0 if summary.distortions else share),
        unit="fraction",
        source=summary.location,
        method="summed time of the kernels that match, over that of all kernels; kernels of graph replays that were "
        "recorded whole are not among them" + "".join(f"; {said}" for said in summary.distortions),
        samples=sum(row.count for row in chosen),
        judged_by="bounds" if summary.distortions else "value",
        undecided=summary.distortions[0] if summary.distortions else None,
        settle=summary.remedy if summary.distortions else None,
    )
