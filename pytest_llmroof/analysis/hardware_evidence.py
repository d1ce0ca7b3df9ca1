"""What the GPUs' own counters say of lost time: idle time, and how their table reads what is left.

Only of averages that lie inside the load (for idle time also of the whole window, where the busy time is known). Never
more than a medium sign: counters tell that something ran, not what.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pytest_llmroof.advice import AnyAdvice, behind
from pytest_llmroof.analysis.busytime import is_bound
from pytest_llmroof.analysis.clocks import slowest
from pytest_llmroof.analysis.communication import communicates
from pytest_llmroof.analysis.constants import counter_constant, counter_rows
from pytest_llmroof.analysis.diagnosis import Evidence
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.hardware import Over, Reading, Unread, common, read, silent
from pytest_llmroof.analysis.hardware_load import Stretch, beyond_samples
from pytest_llmroof.analysis.hardware_serving import serving
from pytest_llmroof.analysis.measurement import Measurement, Outcomes
from pytest_llmroof.analysis.observed import Observed, Rest, Sign
from pytest_llmroof.analysis.tokens import UNTOLD
from pytest_llmroof.analysis.vendors import remedy_for, vendor_of
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.telemetry.hardware import Gpu

#: Figures of the table by canonical quantity.
_QUANTITIES: Final = {"engine": "gr_engine", "sm": "sm_active", "dram": "dram", "tensor": "tensor"}
_WORDS: Final = {
    "engine": "engines active", "sm": "multiprocessors", "dram": "memory interface", "tensor": "tensor pipe",
    "link": "links",
}  # fmt: skip


@dataclass(frozen=True)
class Figures:
    """Means over the GPUs that serve, by the names of the table; ``over`` is that of the engine's activity.

    Of the engine's activity the least, where all of them share each step.
    """

    values: Mapping[str, float]
    over: Over | None
    source: str
    seen: Stretch

    @property
    def text(self) -> str:
        """``engines active 98 %, multiprocessors 40 %, memory interface 44 %``."""
        return ", ".join(f"{_WORDS[name]} {value * 100:.0f} %" for name, value in self.values.items())


def observed_by_counters(facts: WindowFacts) -> Observed | None:
    """Idle time, clock and the reading of the table; None where nothing in the counters can be held to the load."""
    found, low = figures(facts), slowest(facts)
    if found is None and low is None:
        return None
    idle = _idle(facts, found) if found is not None else None
    row = _row(facts.deployment, found) if found is not None and found.over == "load" else None
    signs = tuple(_signs(found, row)) if found is not None and row is not None else ()
    rest: Rest | None = None
    if row is not None and idle is not None and tuple(row["reads"]) in (("C",), ("F",)):
        rest = row["reads"][0]
    source = found.source if found is not None and idle is not None else low.source if low is not None else ""
    if idle is None and low is None and not signs:
        return None
    return Observed(
        source=source or (found.source if found is not None else ""),
        by="gpu counters",
        idle_between=idle,
        clock=low.ratio if low is not None else None,
        clock_cause=low.cause if low is not None else None,
        rest=rest,
        signs=signs,
        sources={
            "idle_between": f"{source}, within steps and between them",
            **({"clock": low.source} if low is not None else {}),
        },
        ranks=len(serving(facts).gpus),
    )


def figures(facts: WindowFacts) -> Figures | None:
    """The figures of the table; None without counters of the GPUs that serve, or without their engines' activity."""
    hardware, gpus = facts.window.hardware, serving(facts).gpus
    if hardware is None or not gpus:
        return None
    values: dict[str, float] = {}
    over: Over | None = None
    seen = (0.0, 0.0)
    for name, quantity in _QUANTITIES.items():
        readings = [_of(facts, gpu, quantity) for gpu in gpus]
        known = [reading for reading in readings if isinstance(reading, Reading)]
        if len(known) < len(gpus):
            continue
        whole = any(reading.over != "load" for reading in known)
        if name == "engine":
            over, seen = "window" if whole else "load", common(known)
        elif whole:
            continue
        told = [reading.bounded.value for reading in known]
        # GPUs that share each step wait for the one that is idle, inside of their exchanges: engines seem active there.
        values[name] = min(told) if name == "engine" and _share_steps(facts) else sum(told) / len(told)
    if over is None:
        return None
    if over == "load" and (link := _link(facts, gpus)) is not None:
        values["link"] = link
    return Figures(values, over, gpus[0].names.get("gr_engine", "GPU counters"), seen)


def _share_steps(facts: WindowFacts) -> bool:
    """Whether the GPUs that serve are the ranks of one replica, which begin and end each step together."""
    return facts.deployment.replicas == 1 and facts.deployment.pipeline_parallel == 1


def counters_missing(facts: WindowFacts, letters: tuple[str, ...]) -> Iterator[AnyAdvice]:
    """Why the counters that are there do not tell candidates apart, and what to switch on."""
    hardware, found = facts.window.hardware, serving(facts)
    if hardware is None or not set(letters) & set("CDF"):
        return
    if not found.gpus:
        yield _with_advice(found.problem or "the counters tell of no GPU", found.remedy)
        return
    known = figures(facts)
    if known is not None and known.over == "window" and _idle(facts, known) is None:
        more = remedy_for("more_counters", vendor_of(facts))
        yield _with_advice("no average of the counters lies inside the load, nor is the busy time known", more)
        return
    wanted = ["gr_engine", *(("sm_active", "dram", "tensor") if known is not None else ())]
    for quantity in wanted:
        reading = _of(facts, found.gpus[0], quantity)
        if isinstance(reading, Unread):
            yield _with_advice(reading.reason, reading.remedy)
            return
    if known is not None and "link" not in known.values and "C" in letters and communicates(facts.deployment):
        told = [text for name, text in hardware.missing.items() if name.startswith("nvlink")]
        if wanted_link := told[0] if told else remedy_for("link_traffic", vendor_of(facts)):
            yield wanted_link


def _with_advice(reason: str, advice: AnyAdvice | None) -> AnyAdvice:
    return behind(f"{reason}; ", advice) if advice else reason


def padding(facts: WindowFacts, outcomes: Outcomes) -> Iterator[Evidence]:
    """For F in prefill: the tensor pipe worked for much more than the prompts needed. In decode it says nothing."""
    if facts.phase != "prefill" or facts.window.hardware is None:
        return
    hfu, mfu = outcomes.get("hfu"), outcomes.get("prefill.mfu")
    if not isinstance(hfu, Measurement) or not isinstance(mfu, Measurement) or mfu.value <= 0:
        return
    if mfu.undecided == UNTOLD:
        return
    if hfu.value >= counter_constant("padded") * mfu.value:
        yield Evidence(
            "F",
            True,
            f"the hardware executed {hfu.value / mfu.value:.1f} times what the prompts need (HFU "
            f"{hfu.value * 100:.0f} %, MFU {mfu.value * 100:.0f} %): padding, prompts computed again, tiles too large",
            hfu.source,
        )


def _of(facts: WindowFacts, gpu: Gpu, quantity: str) -> Reading | Unread:
    if quantity in silent(facts, gpu):
        name = gpu.names.get(quantity, quantity)
        remedy = remedy_for("profiling_fields", vendor_of(facts))
        return Unread(f"{name} reads 0 while the GPU works: it was not measured", remedy)
    return read(facts, gpu, quantity, of_every_replica=True)


def _idle(facts: WindowFacts, found: Figures) -> float | None:
    """Idle time of the GPUs as a share of the loaded time; None where the averages cannot tell.

    Of averages over the whole window what was not busy is taken off: (1 - engines) window - (window - busy), by the
    least busy time; the window is the time that the averages cover, and no load may lie outside of it. Idle stages of a
    pipeline are bubbles, which are another cause.
    """
    if facts.deployment.pipeline_parallel > 1:
        return None
    engine = found.values["engine"]
    if found.over == "load":
        return max(0.0, 1 - engine)
    if len(facts.window.engines) > 1:
        return None  # one replica's GPUs may have had nothing to do while another's did
    busy = facts.busy
    if busy is None or is_bound(busy) or busy.seconds.low <= 0:
        return None
    least = busy.seconds.low
    if beyond_samples(facts, found.seen) > counter_constant("unseen_ends") * least:
        return None
    covered = found.seen[1] - found.seen[0]
    low, high = (((1 - engine) * covered - (covered - seconds)) / seconds for seconds in (least, busy.seconds.high))
    if high - max(0.0, low) > counter_constant("idle_unsure"):
        return None
    return max(0.0, low)


def _link(facts: WindowFacts, gpus: tuple[Gpu, ...]) -> float | None:
    """The busier direction of the busiest GPU's links, as a share of what one direction can move."""
    accelerator = facts.deployment.accelerator
    pcie = facts.deployment.interconnect == "pcie"
    if accelerator is None:
        return None
    both = accelerator.pcie_bytes_per_second if pcie else accelerator.link_bytes_per_second
    if not both:
        return None
    head = "pcie" if pcie else "nvlink"
    shares = []
    for gpu in gpus:
        directions = [_of(facts, gpu, f"{head}_{way}_bytes_per_second") for way in ("sent", "received")]
        known = [one.bounded.value for one in directions if isinstance(one, Reading) and one.over == "load"]
        whole = _of(facts, gpu, f"{head}_bytes_per_second")
        if not known and isinstance(whole, Reading) and whole.over == "load":
            known = [whole.bounded.value / 2]
        if not known:
            return None
        shares.append(max(known) / (both / 2))
    return max(shares)


def _row(deployment: Deployment, found: Figures) -> Mapping[str, Any] | None:
    """The first row of the table that holds."""
    values = dict(found.values)
    if "sm" in values and values["engine"] > 0:
        values["sm_of_engine"] = values["sm"] / values["engine"]
    several = communicates(deployment)
    if not several:
        values.setdefault("link", 0.0)
    return next((row for row in counter_rows() if _holds(row, values, several)), None)


def _holds(row: Mapping[str, Any], values: Mapping[str, float], several: bool) -> bool:
    if "exchanges" in row and row["exchanges"] is not several:
        return False
    bounds = {name: ends for name, ends in row.items() if name not in ("reads", "says", "exchanges")}
    return all(name in values and low <= values[name] <= high for name, (low, high) in bounds.items())


def _signs(found: Figures, row: Mapping[str, Any]) -> Iterator[Sign]:
    yield Sign(tuple(row["reads"]), f"{found.text}: {row['says']}", found.source)
