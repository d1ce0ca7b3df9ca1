"""The accelerators we know, by name, by what a driver prints, and as a user describes one of their own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Any, Final

from pytest_llmroof.data import load
from pytest_llmroof.errors import ConfigError, ConfigErrors, Position
from pytest_llmroof.near import did_you_mean
from pytest_llmroof.roofline.accelerator import PRECISIONS, Accelerator
from pytest_llmroof.units import Unit, UnitError, parse_as

#: GB/s of one PCIe lane in one direction, by generation: the signalling rate, as datasheets state links.
_PCIE_LANE: Final = {"3": 1.0, "4": 2.0, "5": 4.0, "6": 8.0}

#: Keys of a mapping that hold one quantity, with its unit.
_QUANTITIES: Final[Mapping[str, Unit]] = {
    "memory_bandwidth": "bytes/s", "memory": "bytes", "link": "bytes/s", "l2": "bytes",
    "clock": "hertz",
}  # fmt: skip
_KEYS: Final = ("name", "base", "vendor", "peaks", *_QUANTITIES, "achievable", "device_names")


@cache
def accelerators() -> Mapping[str, Accelerator]:
    """Every accelerator of the catalogue by its key, in the catalogue's order."""
    return MappingProxyType({key: _from_catalogue(key, entry) for key, entry in _catalogue()["accelerators"].items()})


@cache
def short_names() -> Mapping[str, str]:
    """What people call them: short name -> key."""
    return MappingProxyType({name: entry["key"] for name, entry in _catalogue()["short_names"].items()})


def accelerator(name: str) -> Accelerator:
    """The accelerator called ``name``: a key, a short name or exactly what a driver prints, in any case.

    A short name that boards of another memory share names them in ``also``. ConfigError, with the nearest names,
    where nothing or more than one thing goes by that name.
    """
    key = _hyphenated(name)
    if key in accelerators():
        return accelerators()[key]
    if key in short_names():
        also = tuple(_catalogue()["short_names"][key].get("also", ()))
        return replace(accelerators()[short_names()[key]], also=also)
    found = accelerator_for_device(name)
    if found is None:
        raise ConfigError(_unknown(name))
    return found


def accelerator_for_device(device: str) -> Accelerator | None:
    """The accelerator for which drivers, frameworks and exporters print exactly ``device``.

    Only a whole string matches ("H20" is in "H200"); "NVIDIA " in front may be missing (old drivers) and blanks may
    be underscores (file names of tuned kernels). None for unknown strings, for those that several boards print, and
    for a slice of an accelerator ("... MIG 1g.10gb").
    """
    return _devices().get(_device(device))


def accelerator_from_mapping(
    mapping: Mapping[str, object], position: Callable[[str], Position | None] = lambda key: None
) -> Accelerator:
    """An accelerator as a user describes it; ``position`` tells where a key (``peaks.bf16``) stands in their file.

    ``base`` names a catalogue entry whose figures hold where none is given; a mapping of nothing but ``name`` is that
    catalogue entry. What is not given stays unknown. ConfigError (ConfigErrors for several) for all that is wrong.
    """
    if set(mapping) == {"name"} and isinstance(mapping["name"], str):
        return _named(mapping["name"], position("name"))
    return _Description(mapping, position).read()


def _catalogue() -> dict[str, Any]:
    content: dict[str, Any] = load("accelerators.yaml")
    return content


def _from_catalogue(key: str, entry: Mapping[str, Any]) -> Accelerator:
    link = entry.get("link_gb_per_second")
    measured = load("ceilings.yaml")["measured"].get(key, {})
    return Accelerator(
        name=key,
        product=entry["product"],
        # Read as decimal text, so that 989.4 TFLOP/s is 989.4e12 and not a neighbour of it.
        peaks=MappingProxyType({precision: float(f"{peak}e12") for precision, peak in entry["peaks"].items()}),
        memory_bandwidth_bytes_per_second=float(f"{entry['memory']['gb_per_second']}e9"),
        memory_bytes=float(f"{entry['memory']['gb']}e9"),
        link_bytes_per_second=None if link is None else float(f"{link}e9"),
        vendor=entry["vendor"],
        architecture=entry["architecture"],
        device_names=tuple(entry.get("device_names", ())),
        source=entry["source"],
        confidence=entry["confidence"],
        conflicts=entry.get("conflicts", ""),
        l2_bytes=parse_as(entry["l2"], "bytes") if "l2" in entry else None,
        achievable=MappingProxyType({kind: figures["reach"] for kind, figures in measured.items()}),
        pcie_bytes_per_second=_pcie(entry.get("pcie", "")),
        clock_hertz=float(f"{entry['clock_mhz']}e6") if "clock_mhz" in entry else None,
    )


def _pcie(interface: str) -> float | None:
    """Bytes per second in both directions of ``5.0 x16``; None where generation or lanes are not stated."""
    match = re.match(r"(\d)\.0 x(\d+)\b", interface)
    return 2 * _PCIE_LANE[match[1]] * int(match[2]) * 1e9 if match else None


@cache
def _devices() -> Mapping[str, Accelerator]:
    return {_device(name): each for each in accelerators().values() for name in each.device_names}


def _device(name: str) -> str:
    words = name.casefold().replace("_", " ").split()
    return " ".join(words[1:] if words[:1] == ["nvidia"] else words)


def _hyphenated(name: str) -> str:
    return re.sub(r"[\s_]+", "-", name.strip().casefold())


def _named(name: str, position: Position | None) -> Accelerator:
    try:
        return accelerator(name)
    except ConfigError as error:
        raise ConfigError(error.problem, position) from None


def _unknown(name: str) -> str:
    ambiguous: Mapping[str, str] = {
        _device(each): text for each, text in _catalogue()["ambiguous_device_names"].items()
    }
    device = _device(name)
    if device in ambiguous:
        return f"accelerator {name!r} is not unique: {ambiguous[device]}; --llmroof-list=gpus names the boards"
    whole = _devices().get(device.partition(" mig ")[0])
    if whole is not None and " mig " in device:
        return (
            f"accelerator {name!r} is a slice of {whole.name}: describe it as a mapping with name, base: {whole.name}, "
            "and the peaks, memory_bandwidth and memory of the slice"
        )
    names = [*accelerators(), *short_names(), *(text for each in accelerators().values() for text in each.device_names)]
    return f"unknown accelerator {name!r}{did_you_mean(name, names)}; --llmroof-list=gpus names all"


class _Description:
    """Reads one user's mapping, collecting every problem before it gives up."""

    def __init__(self, mapping: Mapping[str, object], position: Callable[[str], Position | None]) -> None:
        self.mapping = mapping
        self.position = position
        self.errors: list[ConfigError] = []

    def read(self) -> Accelerator:
        """The accelerator; ConfigError or ConfigErrors."""
        for key in self.mapping:
            if key not in _KEYS:
                self.wrong(str(key), f"unknown key {key!r} of an accelerator{did_you_mean(str(key), _KEYS)}")
        base = self.base()
        name = self.name(base)
        peaks = dict(self.entries("peaks", PRECISIONS, "FLOP/s"))
        reached = dict(self.entries("achievable", ("memory", *PRECISIONS), "fraction"))
        figures = {
            key: value
            for key, unit in _QUANTITIES.items()
            if key in self.mapping and (value := self.quantity(key, self.mapping[key], unit)) is not None
        }
        names = self.device_names()
        vendor = self.vendor()
        if self.errors:
            raise self.errors[0] if len(self.errors) == 1 else ConfigErrors(self.errors)
        if set(self.mapping) == {"base"}:
            return base
        # A measured fraction belongs to the peak it was measured against: it goes where that peak is replaced.
        replaced = {*peaks, *(["memory"] if "memory_bandwidth" in self.mapping else [])}
        kept = {kind: share for kind, share in base.achievable.items() if kind not in replaced}
        return replace(
            base, name=name, product=name, also=(), source="given", confidence="given", conflicts="",
            vendor=vendor or base.vendor,
            peaks={**base.peaks, **peaks}, achievable={**kept, **reached},
            device_names=base.device_names if names is None else names,
            memory_bandwidth_bytes_per_second=figures.get("memory_bandwidth", base.memory_bandwidth_bytes_per_second),
            memory_bytes=figures.get("memory", base.memory_bytes),
            link_bytes_per_second=figures.get("link", base.link_bytes_per_second),
            l2_bytes=figures.get("l2", base.l2_bytes),
            clock_hertz=figures.get("clock", base.clock_hertz),
        )  # fmt: skip

    def base(self) -> Accelerator:
        """What the figures start from: a catalogue entry, or nothing known."""
        unknown = Accelerator("", "", {}, None, None)
        if "base" not in self.mapping:
            return unknown
        name = self.mapping["base"]
        if not isinstance(name, str):
            self.wrong("base", f"base is the catalogue name of an accelerator, not {type(name).__name__}")
            return unknown
        try:
            return accelerator(name)
        except ConfigError as error:
            self.wrong("base", error.problem)
            return unknown

    def name(self, base: Accelerator) -> str:
        """What reports call it."""
        name = self.mapping.get("name")
        if isinstance(name, str) and name.strip():
            return name.strip()
        if "name" in self.mapping:
            self.wrong("name", "the name of an accelerator is a text that is not empty")
        elif set(self.mapping) != {"base"}:
            self.wrong("", "an accelerator of one's own needs a name, which reports and baselines go by")
        return base.name

    def entries(self, key: str, valid: tuple[str, ...], unit: Unit) -> Iterator[tuple[str, float]]:
        """The quantities of a mapping within the mapping."""
        entries = self.mapping.get(key, {})
        if not isinstance(entries, Mapping):
            self.wrong(key, f"{key} is a mapping, like {{{valid[0]}: ...}}, with {', '.join(valid)}")
            return
        for name, value in entries.items():
            place = f"{key}.{name}"
            if name not in valid:
                near = did_you_mean(str(name), valid) or f"; known are {', '.join(valid)}"
                self.wrong(place, f"unknown entry {name!r} of {key}{near}")
            elif (quantity := self.quantity(place, value, unit)) is not None:
                if unit == "fraction" and quantity > 1:
                    self.wrong(place, f"{place}: no kernel reaches more than all of a peak")
                else:
                    yield name, quantity

    def quantity(self, key: str, value: object, unit: Unit) -> float | None:
        """A positive quantity, None where it is noted as wrong."""
        try:
            quantity = parse_as(value, unit)
        except UnitError as error:
            self.wrong(key, f"{key}: {error}")
            return None
        if quantity <= 0:
            self.wrong(key, f"{key}: must be more than zero (leave out what is not known)")
            return None
        return quantity

    def vendor(self) -> str | None:
        """Who makes it, spelt as in the catalogue where it is there; None where that is not given."""
        vendor = self.mapping.get("vendor")
        if vendor is None:
            return None
        if not isinstance(vendor, str) or not vendor.strip():
            self.wrong("vendor", "vendor is a text: NVIDIA, AMD, ..., or CPU")
            return None
        known = {one.vendor.casefold(): one.vendor for one in accelerators().values() if one.vendor}
        return known.get(vendor.strip().casefold(), vendor.strip())

    def device_names(self) -> tuple[str, ...] | None:
        """The strings that drivers print for it, None where they are not given."""
        names = self.mapping.get("device_names")
        if names is None:
            return None
        names = [names] if isinstance(names, str) else names
        if isinstance(names, list | tuple) and all(isinstance(name, str) for name in names):
            return tuple(names)
        self.wrong("device_names", "device_names is a list of texts, as `nvidia-smi --query-gpu=name` prints them")
        return None

    def wrong(self, key: str, problem: str) -> None:
        """Note a problem at a key's place, or at the nearest place that is known."""
        self.errors.append(
            ConfigError(problem, self.position(key) or self.position(key.partition(".")[0]) or self.position(""))
        )
