"""``kernels(PATTERN).mfu/.mbu/.time_share`` and ``hfu`` from a table of profiled kernels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from pytest_llmroof.analysis.kernelwork import (
    Utilisation,
    advice,
    compute_utilisation,
    figure,
    memory_utilisation,
    other_device,
    precision_of,
    seconds_of,
)
from pytest_llmroof.analysis.measurement import Impossible, Measurement, NoData, Outcome
from pytest_llmroof.analysis.thresholds import remedy
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.near import did_you_mean
from pytest_llmroof.profiles.kernel_names import matches, short_name
from pytest_llmroof.profiles.kernel_table import KernelTable, Launch
from pytest_llmroof.roofline.accelerator import Accelerator
from pytest_llmroof.roofline.roof import achievable
from pytest_llmroof.units import format_quantity

_NAME: Final = re.compile(r"kernels\((?P<pattern>.*)\)\.(?P<figure>mfu|mbu|time_share)", re.DOTALL)
_SHOWN: Final = 3
_NAME_SHOWN: Final = 60
_REGULAR: Final = re.compile(r"\.\*|\.\+|\[[^\]]*\]|\||\\")


def kernel_outcome(table: KernelTable, gpu: Accelerator | None, metric: str) -> Outcome:
    """The outcome of ``kernels(PATTERN).FIGURE`` or ``hfu``: of what was profiled, and of nothing else.

    ValueError for any other metric.
    """
    if metric == "hfu":
        return _utilised(table, table.launches, gpu, metric, "mfu")
    match = _NAME.fullmatch(metric)
    if match is None:
        raise ValueError(f"kernels tell nothing of {metric}")
    chosen = [launch for launch in table.launches if matches(match["pattern"], launch.name)]
    if not chosen:
        return _none_match(table, metric, match["pattern"])
    if match["figure"] == "time_share":
        return _time_share(table, chosen, metric)
    return _utilised(table, chosen, gpu, metric, match["figure"])


def _time_share(table: KernelTable, chosen: Sequence[Launch], metric: str) -> Outcome:
    whole, part = table.seconds, seconds_of(chosen)
    if not whole or part is None:
        return _no_time(table, table.launches, metric)
    return Measurement(
        metric=metric,
        bounded=Bounded.exactly(min(1.0, part / whole)),
        unit="fraction",
        source=_source(table, chosen, ("gpu__time_duration",)),
        method=f"{_counted(chosen)} over the time of all {len(table.launches)} profiled launches "
        f"({format_quantity(whole, 'seconds')} of kernels one by one, gaps not counted); what was not profiled counts "
        "nowhere",
        samples=len(chosen),
    )


def _utilised(table: KernelTable, chosen: Sequence[Launch], gpu: Accelerator | None, metric: str, kind: str) -> Outcome:
    if gpu is None:
        return NoData(metric, "it needs a GPU's peak", remedy("gpu"))
    if (other := other_device(table, gpu)) is not None:
        return Impossible(metric, *other)
    if seconds_of(chosen) is None:
        return _no_time(table, chosen, metric)
    found = compute_utilisation(chosen, gpu) if kind == "mfu" else memory_utilisation(chosen, gpu)
    if found is None:
        return _not_counted(table, chosen, gpu, metric, kind)
    if found.bounded.low > figure("above_peak") * _boost(chosen, gpu):
        return _above_peak(table, gpu, metric, kind, found)
    precision = precision_of(chosen, gpu)
    reach = achievable(gpu, "memory") if kind == "mbu" else achievable(gpu, precision) if precision else None
    undecided = None
    if not found.bounded.exact:
        undecided = _open(table, chosen, found, kind)
    return Measurement(
        metric=metric,
        bounded=found.bounded,
        unit="fraction",
        source=_source(table, chosen, ("sm__ops_path_tensor", "sm") if kind == "mfu" else ("dram",)),
        method="; ".join(_method(chosen, gpu, kind)),
        samples=len(chosen),
        achievable=reach,
        judged_by="value" if undecided is None else "bounds",
        undecided=undecided,
        settle=None if undecided is None else advice("flops" if kind == "mfu" else "bytes"),
    )


def _method(chosen: Sequence[Launch], gpu: Accelerator, kind: str) -> list[str]:
    """How a utilisation was made, in phrases."""
    scope = "executed operations" if kind == "mfu" else "bytes that device memory moved"
    if kind == "mfu":
        precisions = dict.fromkeys(
            one for launch in chosen for each in launch.operations or () for one in each.precisions
        )
        peaks = [f"{format_quantity(peak, 'FLOP/s')} {one}" for one in precisions if (peak := gpu.peak(one))]
        against = f"the dense peaks of {gpu.product} ({', '.join(peaks) or 'no operations'})"
    else:
        against = format_quantity(gpu.memory_bandwidth_bytes_per_second or 0.0, "bytes/s")
    parts = [f"{scope} in {_counted(chosen)}, against {against}"]
    if kind == "mfu":
        uncounted = dict.fromkeys(one for launch in chosen for one in launch.uncounted)
        if uncounted:
            parts.append(f"not counted: {', '.join(uncounted)}")
    parts.append("of profiled launches only, one by one and without the gaps between them")
    parts.append(_clocks(chosen, gpu))
    return parts


def _clocks(chosen: Sequence[Launch], gpu: Accelerator) -> str:
    """What the clocks were: the tool holds them at base unless told otherwise."""
    known = [(launch.sm_clock_hertz, launch.seconds) for launch in chosen if launch.sm_clock_hertz and launch.seconds]
    locked = "Nsight Compute holds clocks at base unless run with --clock-control none"
    if not known or gpu.clock_hertz is None:
        return locked
    mean = sum((clock or 0.0) * (time or 0.0) for clock, time in known) / sum(time or 0.0 for _, time in known)
    ran = (
        f"the SM clock was {format_quantity(mean, 'hertz')}, the peak is of {format_quantity(gpu.clock_hertz, 'hertz')}"
    )
    return f"{ran}: {locked}" if mean < figure("clock_below") * gpu.clock_hertz else ran


def _boost(chosen: Sequence[Launch], gpu: Accelerator) -> float:
    """How far above the stated peak the SMs could compute, by the clock that they ran at."""
    clocks = [launch.sm_clock_hertz for launch in chosen if launch.sm_clock_hertz]
    return max(1.0, max(clocks) / gpu.clock_hertz) if clocks and gpu.clock_hertz else 1.0


def _open(table: KernelTable, chosen: Sequence[Launch], found: Utilisation, kind: str) -> str:
    """Why a utilisation lies between bounds."""
    if not found.unknown:
        return "packed half-precision instructions may count one operation or two, or a counter tells no precision"
    of = f"of {found.unknown} of {len(chosen)} launches in {table.location}"
    if kind == "mbu":
        return f"reads and writes of device memory were not both counted {of}"
    lacking = Counter(launch.operations_lacking for launch in chosen if launch.operations_lacking)
    if lacking:
        return f"the operations {of} are not known ({lacking.most_common(1)[0][0]})"
    uncounted = dict.fromkeys(one for launch in chosen for one in launch.uncounted)
    return f"not all operations {of} were counted" + (f" (missing: {', '.join(uncounted)})" if uncounted else "")


def _counted(chosen: Sequence[Launch]) -> str:
    time = format_quantity(seconds_of(chosen) or 0.0, "seconds")
    kinds = Counter(launch.scope for launch in chosen)
    words = {"kernel": "kernel", "graph": "whole graph", "range": "range"}
    return " and ".join(f"{n} {words[scope]}{'' if n == 1 else 's'}" for scope, n in kinds.items()) + f" of {time}"


def _source(table: KernelTable, chosen: Sequence[Launch], beginnings: tuple[str, ...]) -> str:
    names = dict.fromkeys(name for launch in chosen for name in launch.counters if name.lower().startswith(beginnings))
    shown = list(names)[:_SHOWN]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return f"Nsight Compute ({table.location})" + (f": {', '.join(shown)}{more}" if shown else "")


def _none_match(table: KernelTable, metric: str, pattern: str) -> NoData:
    names = list(dict.fromkeys(short_name(launch.name) for launch in table.launches))
    longest = sorted(table.launches, key=lambda launch: -(launch.seconds or 0.0))
    shown = list(dict.fromkeys(short_name(launch.name)[:_NAME_SHOWN] for launch in longest))[:_SHOWN]
    reason = (
        f"none of the {len(table.launches)} launches that {table.location} holds matches {pattern!r}"
        f"{did_you_mean(pattern, names)}: the longest are {', '.join(shown)}"
    )
    if all(launch.scope == "graph" for launch in table.launches):
        return NoData(metric, f"{reason}; whole graphs do not tell their kernels apart", advice("nodes"))
    hint = "* stands for any text and ? for one character; a pattern without them is looked for anywhere in the name"
    if _REGULAR.search(pattern):
        hint += " (patterns are no regular expressions)"
    return NoData(metric, reason, hint)


def _no_time(table: KernelTable, chosen: Sequence[Launch], metric: str) -> NoData:
    lacking = sum(launch.seconds is None for launch in chosen)
    return NoData(
        metric,
        f"{table.location} holds no time (gpu__time_duration) of {lacking} of {len(chosen)} launches",
        advice("bytes"),
    )


def _not_counted(table: KernelTable, chosen: Sequence[Launch], gpu: Accelerator, metric: str, kind: str) -> NoData:
    if kind == "mbu":
        if gpu.memory_bandwidth_bytes_per_second is None:
            return NoData(
                metric,
                f"the memory bandwidth of {gpu.product} is not known",
                _describe(gpu, "memory_bandwidth: ...GB/s"),
            )
        shares = [launch.dram_share for launch in chosen if launch.dram_share is not None]
        beside = f" (only shares of the memory's own peak: {max(shares) * 100:.1f} % at most)" if shares else ""
        return NoData(
            metric, f"{table.location} holds no bytes of device memory for these kernels{beside}", advice("bytes")
        )
    reasons = Counter(launch.operations_lacking for launch in chosen if launch.operations_lacking)
    if not reasons:
        precisions = dict.fromkeys(
            one for launch in chosen for each in launch.operations or () for one in each.precisions
        )
        named = ", ".join(precisions)
        return NoData(
            metric, f"the {named} peak of {gpu.product} is not known", _describe(gpu, f"peaks: {{{named}: ...TFLOP/s}}")
        )
    return NoData(metric, f"{table.location}: {reasons.most_common(1)[0][0]}", advice("flops"))


def _describe(gpu: Accelerator, what: str) -> str:
    return f"write it: `gpu: {{name: ..., base: {gpu.name}, {what}}}`"


def _above_peak(table: KernelTable, gpu: Accelerator, metric: str, kind: str, found: Utilisation) -> Impossible:
    what = "operations" if kind == "mfu" else "bytes"
    return Impossible(
        metric,
        f"the {what} that {table.location} counts are {found.bounded.value * 100:.0f} % of what {gpu.product} can do "
        "in that time",
        "`gpu:`, the counters that were collected, and that the export is whole",
        found.bounded.value,
    )
