"""From a page (or rows of a table) of an exporter of GPU counters to readings: one of each GPU or slice on it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from pytest_llmroof.telemetry.exporters import Exporter, GpuName, exporters
from pytest_llmroof.telemetry.exposition import Page


@dataclass(frozen=True)
class GpuKey:
    """What tells one GPU, or slice of one, from the others: its UUID where it has one, else host and index."""

    host: str | None
    index: str | None
    uuid: str | None
    instance: str | None


@dataclass(frozen=True)
class GpuReading:
    """What one page says of one GPU. Values are in canonical units; ``counters`` are running totals.

    ``reasons`` tell why clocks are lowered at that moment (None: not told). ``blank`` are quantities that are exported
    without a value, and why.
    """

    key: GpuKey
    device_name: str | None = None
    host: str | None = None
    index: str | None = None
    bus: str | None = None
    uuid: str | None = None
    instance: str | None = None
    profile: str | None = None
    pod: str | None = None
    gauges: Mapping[str, float] = field(default_factory=dict)
    counters: Mapping[str, float] = field(default_factory=dict)
    codes: Mapping[str, float] = field(default_factory=dict)
    reasons: Mapping[str, bool] | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    blank: Mapping[str, str] = field(default_factory=dict)


#: A metric's name, its labels, and its value; a text instead of one says why there is none.
Labelled = tuple[str, Mapping[str, str], float | str]


def page_readings(page: Page) -> tuple[Exporter | None, tuple[GpuReading, ...]]:
    """The exporter that wrote a page (None: no exporter of GPU counters), and a reading of each GPU."""
    told = {name: key for name in {sample.name for sample in page.samples} if (key := _exporter_of(name)) is not None}
    for key, exporter in exporters().items():
        if key in told.values():
            ours = (sample for sample in page.samples if told.get(sample.name) == key)
            return exporter, readings_of(exporter, ((sample.name, sample.labels, sample.value) for sample in ours))
    return None, ()


@lru_cache(maxsize=65_536)
def _exporter_of(name: str) -> str | None:
    """Which exporter writes metrics of this name; pages of engines, which have many, repeat the question."""
    return next((key for key, exporter in exporters().items() if exporter.writes(name)), None)


def readings_of(exporter: Exporter, samples: Iterable[Labelled]) -> tuple[GpuReading, ...]:
    """A reading of each GPU that these samples are of."""
    gpus: dict[GpuKey, _Gpu] = {}
    for name, labels, value in samples:
        told = {role: _first(labels, names) for role, names in exporter.labels.items()}
        if told.get("profile") in exporter.whole or told.get("profile") is None:
            told["profile"] = None
            if exporter.whole:
                told["instance"] = None
        key = _key(told)
        gpu = gpus.get(key)
        if gpu is None:
            gpu = gpus[key] = _Gpu(exporter, key)
        for role, text in told.items():
            if text:
                gpu.told.setdefault(role, text)
        gpu.add(name, labels, value)
    named = exporter.tables  # a table of one GPU need not name it
    return tuple(gpu.reading() for gpu in gpus.values() if named or gpu.key.index or gpu.key.uuid)


def _first(labels: Mapping[str, str], names: Iterable[str]) -> str | None:
    return next((labels[name] for name in names if labels.get(name)), None)


def _key(told: Mapping[str, str | None]) -> GpuKey:
    instance, uuid = told.get("instance"), told.get("uuid") or told.get("bus")
    if uuid:
        return GpuKey(None, None, uuid, instance)
    return GpuKey(told.get("host"), told.get("index"), None, instance)


class _Gpu:
    """Gathers the samples of one GPU."""

    def __init__(self, exporter: Exporter, key: GpuKey) -> None:
        self.exporter = exporter
        self.key = key
        self.told: dict[str, str] = {}
        self.values: dict[tuple[str, int], dict[str, float]] = {}
        self.metrics: dict[tuple[str, int], tuple[GpuName, str]] = {}
        self.blank: dict[str, str] = {}
        self.mask, self.asked = 0, 0

    def add(self, name: str, labels: Mapping[str, str], value: float | str) -> None:
        plain = self.exporter.plain(name)
        if plain in self.exporter.reasons or plain in self.exporter.flags:
            if not isinstance(value, str) and 0 <= value < math.inf and self.exporter.blank(value) is None:
                self.mask |= int(value)
                self.asked |= self.exporter.flags.get(plain, -1)
            return
        if plain in self.exporter.unknown_unit:
            quantity, reason = self.exporter.unknown_unit[plain]
            self.blank.setdefault(quantity, f"{name}: {reason}")
            return
        for metric in self.exporter.names.get(plain, ()):
            if not metric.admits(labels):
                continue
            why = value if isinstance(value, str) else self.exporter.blank(value)
            if isinstance(value, str) or why is not None:
                self.blank.setdefault(metric.quantity, f"{name}: {why}")
            elif math.isfinite(value):
                part = plain if metric.addend else labels.get(metric.part, "") if metric.part else ""
                found = self.values.setdefault((metric.quantity, metric.rank), {})
                # A GPU that several pods share is exported once for each of them: the same value, no part.
                found[part] = max(metric.canonical(value), found.get(part, -math.inf))
                self.metrics[metric.quantity, metric.rank] = (metric, name)
            else:
                self.blank.setdefault(metric.quantity, f"{name} is {value:g}")

    def reading(self) -> GpuReading:
        kinds: dict[str, dict[str, float]] = {"gauge": {}, "counter": {}, "code": {}}
        names: dict[str, str] = {}
        for key in sorted(self.values):
            quantity, (metric, name) = key[0], self.metrics[key]
            if quantity not in names:
                kinds[metric.kind][quantity] = _combined(metric, list(self.values[key].values()))
                names[quantity] = name
        gauges = kinds["gauge"]
        _add_both_directions(gauges, names)
        _add_total_memory(gauges, names)
        return GpuReading(
            key=self.key,
            device_name=self.told.get("device"),
            host=self.told.get("host"),
            index=self.told.get("index"),
            bus=self.told.get("bus"),
            uuid=self.told.get("uuid"),
            instance=self.told.get("instance"),
            profile=self.told.get("profile"),
            pod=self.told.get("pod"),
            gauges=gauges,
            counters=kinds["counter"],
            codes=kinds["code"],
            reasons=self._reasons(),
            names=names,
            blank={quantity: why for quantity, why in self.blank.items() if quantity not in names},
        )

    def _reasons(self) -> dict[str, bool] | None:
        """Why clocks are lowered. A reason of which not all was asked holds or is not known."""
        if not self.asked:
            return None
        mask = self.mask
        for general, special in self.exporter.explained.items():
            if mask & special:
                mask &= ~general
        return {
            word: bool(mask & bits)
            for word, bits in self.exporter.bits.items()
            if mask & bits or self.asked & bits == bits
        }


def _combined(metric: GpuName, values: list[float]) -> float:
    if metric.combine == "sum":
        return sum(values)
    return sum(values) / len(values) if metric.combine == "mean" else max(values)


def _add_both_directions(gauges: dict[str, float], names: dict[str, str]) -> None:
    """A link's traffic in both directions, where each is told."""
    for link in ("nvlink", "pcie"):
        sent, received = f"{link}_sent_bytes_per_second", f"{link}_received_bytes_per_second"
        if sent in gauges and received in gauges:
            gauges.setdefault(f"{link}_bytes_per_second", gauges[sent] + gauges[received])
            names.setdefault(f"{link}_bytes_per_second", f"{names[sent]} + {names[received]}")


def _add_total_memory(gauges: dict[str, float], names: dict[str, str]) -> None:
    """The memory in all, where what is used and what is free are told. What the driver keeps is in neither."""
    free, name = gauges.pop("memory_free_bytes", None), names.pop("memory_free_bytes", "")
    if free is not None and "memory_used_bytes" in gauges and "memory_total_bytes" not in gauges:
        gauges["memory_total_bytes"] = gauges["memory_used_bytes"] + free
        names["memory_total_bytes"] = f"{names['memory_used_bytes']} + {name}"
