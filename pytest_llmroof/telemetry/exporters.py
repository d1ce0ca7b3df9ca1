"""What is known of exporters of GPU counters: data/exporters.yaml, whose head explains every key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Literal

from pytest_llmroof.data import load

Kind = Literal["gauge", "counter", "code"]

#: What a list calls the quantities.
_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "activity of engines": ("gr_engine",),
    "of SMs": ("sm_active", "sm_occupancy"),
    "of tensor cores": ("tensor",),
    "of memory": ("dram",),
    "links": ("nvlink_sent_bytes_per_second",),
    "GPU utilization": ("utilization",),
    "clocks": ("sm_clock_hertz",),
    "power": ("power_watts",),
    "energy": ("energy_joules",),
    "throttling": ("thermal_seconds", "power_seconds"),
}


@dataclass(frozen=True)
class GpuName:
    """One name of one quantity. ``rank`` orders several names of it, the preferred one first.

    Series that differ in the label ``part`` are parts of a whole; an ``addend`` is a part itself.
    """

    quantity: str
    name: str
    kind: Kind
    rank: int
    scale: float = 1.0
    where: Mapping[str, str] = field(default_factory=dict)
    part: str | None = None
    addend: bool = False
    combine: Literal["sum", "mean", "max"] = "max"

    def admits(self, labels: Mapping[str, str]) -> bool:
        """Whether a series with these labels is meant."""
        return all(labels.get(label, "").casefold() == value.casefold() for label, value in self.where.items())

    def canonical(self, value: float) -> float:
        """A value in the canonical unit: 95 % is 0.95, not 0.9500000000000001."""
        return value / round(1 / self.scale) if self.scale < 1 else value * self.scale


@dataclass(frozen=True)
class Blank:
    """Values that stand for no value (in the exporter's own unit), and why there is none."""

    low: float
    high: float
    why: str


@dataclass(frozen=True)
class Exporter:
    """One kind of exporter. ``names`` are its metrics by their name in lower case.

    ``spelled`` are all names that it may export, as it spells them. ``tables`` tells a tool that prints tables or
    documents instead of pages; ``absent`` are cells without a value, and why, ``units`` the factors of units that stand
    in cells. ``untold`` are quantities that no
    configuration of it tells, and what to do. ``flags`` are columns that tell one reason each.
    """

    key: str
    title: str
    prefixes: tuple[str, ...]
    optional_prefix: str
    tables: bool
    labels: Mapping[str, tuple[str, ...]]
    names: Mapping[str, tuple[GpuName, ...]]
    reasons: tuple[str, ...]
    bits: Mapping[str, int]
    blanks: tuple[Blank, ...]
    activities: tuple[str, ...]
    unknown_unit: Mapping[str, tuple[str, str]]
    spelled: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()
    interval_seconds: float | None = None
    sample_seconds: float | None = None
    expected: Mapping[str, str] = field(default_factory=dict)
    untold: Mapping[str, str] = field(default_factory=dict)
    none_of_them: str = ""
    missed: str = ""
    flags: Mapping[str, int] = field(default_factory=dict)
    explained: Mapping[int, int] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, float] = field(default_factory=dict)
    partitions: Mapping[int, str] = field(default_factory=dict)

    def plain(self, name: str) -> str:
        """A metric's name as it is looked up: in lower case, without what may stand in front of it."""
        return name.casefold().removeprefix(self.optional_prefix)

    def writes(self, name: str) -> bool:
        """Whether a metric of this name tells its exporter."""
        if self.tables:
            return False
        if self.prefixes:
            return name.startswith(self.prefixes)
        return self.plain(name) in self.names

    def blank(self, value: float) -> str | None:
        """Why a value is none, None where it is one."""
        return next((blank.why for blank in self.blanks if blank.low <= value <= blank.high), None)

    @property
    def device_labels(self) -> tuple[str, ...]:
        """Labels that hold the device's name."""
        return self.labels.get("device", ())


@cache
def exporters() -> Mapping[str, Exporter]:
    """All exporters, by their key."""
    return {key: _exporter(key, entry) for key, entry in load("exporters.yaml").items()}


def _exporter(key: str, entry: Mapping[str, Any]) -> Exporter:
    names: dict[str, list[GpuName]] = {}
    kinds: Sequence[tuple[str, Kind]] = (("gauges", "gauge"), ("counters", "counter"), ("codes", "code"))
    for section, kind in kinds:
        for quantity, specs in entry.get(section, {}).items():
            for name in _names(quantity, kind, specs):
                names.setdefault(name.name.casefold(), []).append(name)
    spelled = [name.name for found in names.values() for name in found] + list(entry.get("reasons", ()))
    spelled.extend(name for one in entry.get("unknown_unit", {}).values() for name in one["names"])
    prefix = entry.get("optional_prefix", "")
    if prefix:
        spelled.extend([prefix + name for name in spelled])
    return Exporter(
        key=key,
        spelled=tuple(dict.fromkeys(spelled)),
        title=entry["title"],
        prefixes=tuple(entry.get("prefixes", ())),
        optional_prefix=entry.get("optional_prefix", ""),
        tables=bool(entry.get("tables")),
        labels={"device": tuple(entry["device"])}
        | {role: tuple(labels) for role, labels in entry["labels"].items() if role != "whole"},
        names={name: tuple(found) for name, found in names.items()},
        reasons=tuple(name.casefold() for name in entry.get("reasons", ())),
        bits=entry.get("bits", {}),
        blanks=tuple(Blank(one["from"], one["to"], one["why"]) for one in entry.get("blanks", ())),
        activities=tuple(entry.get("activities", ())),
        unknown_unit={
            name.casefold(): (quantity, one["reason"])
            for quantity, one in entry.get("unknown_unit", {}).items()
            for name in one["names"]
        },
        whole=tuple(entry["labels"].get("whole", ())),
        interval_seconds=entry.get("interval_seconds"),
        sample_seconds=entry.get("sample_seconds"),
        expected=entry.get("expected", {}),
        untold=entry.get("untold", {}),
        none_of_them=entry.get("none_of_them", ""),
        missed=entry.get("missed", ""),
        flags={name.casefold(): bit for name, bit in entry.get("flags", {}).items()},
        explained=entry.get("explained", {}),
        absent={text.casefold(): why for text, why in entry.get("absent", {}).items()},
        units={unit.casefold(): factor for unit, factor in entry.get("units", {}).items()},
        partitions=entry.get("partitions", {}),
    )


def _names(quantity: str, kind: Kind, specs: Iterable[Any]) -> Iterator[GpuName]:
    """The names of a quantity; a list in the list are names that add up."""
    for rank, spec in enumerate(specs):
        several = isinstance(spec, list)
        for one in spec if several else [spec]:
            given = {"name": one} if isinstance(one, str) else one
            if several:
                given = {**given, "addend": True, "combine": "sum"}
            yield GpuName(quantity=quantity, kind=kind, rank=rank, **given)


def exporter_listing() -> Mapping[str, str]:
    """What ``--llmroof-list=engines`` prints of them: key -> title, and what they tell of GPUs."""
    return {
        key: f"{exporter.title}; GPU counters beside an engine: {_told(exporter)}"
        for key, exporter in exporters().items()
    }


def _told(exporter: Exporter) -> str:
    quantities = {name.quantity for names in exporter.names.values() for name in names}
    return ", ".join(word for word, needed in _WORDS.items() if quantities & set(needed))
