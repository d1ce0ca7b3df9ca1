"""Nsight Compute's CSV (``--csv``, details or ``--page raw``) as a table of kernels."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

from pytest_llmroof.advice import as_advice
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.data import load
from pytest_llmroof.errors import SourceError
from pytest_llmroof.profiles.kernel_table import KernelDevice, KernelTable, Launch, Rule, Scope
from pytest_llmroof.profiles.ncu_flops import Conditions, count, counter_of
from pytest_llmroof.profiles.ncu_numbers import AmbiguousNumber, Kind, Sign, factor_of, is_number, parse_number
from pytest_llmroof.profiles.ncu_rows import RawLaunch, read_rows
from pytest_llmroof.profiles.recognise import refuse_report

_STALL: Final = re.compile(r"smsp__average_warps_issue_stalled_(?P<state>\w+?)_per_issue_active\.ratio")
_SCOPES: Final[Mapping[str, Scope]] = {"graph": "graph", "range": "range"}
_LONGEST_NAME: Final = 4096
#: Notes of one kind that a table keeps: of a thousand launches they say the same.
_MOST_NOTES: Final = 8
#: What the tool writes of a counter without a value.
_NOT_AVAILABLE: Final = frozenset({"", "n/a", "nan", "inf", "none"})


def read_ncu(path: Path, location: str | None = None) -> KernelTable:
    """The kernels of an export. Raises SourceError where it is damaged, ambiguous, or a report of the tool itself.

    ``location`` is what reports call the file; its name, where nothing else is given.
    """
    if path.suffix.lower() == ".ncu-rep":
        raise refuse_report(path)
    place = location or path.name
    rows = read_rows(path, place, _wanted)
    notes = list(rows.notes)
    launches: list[Launch] = []
    devices: dict[str, KernelDevice] = {}
    for raw in rows.launches:
        figures = _Figures(raw, rows.sign, place, notes)
        launches.append(_launch(raw, figures))
        if raw.device not in devices or devices[raw.device].name is None:
            devices[raw.device] = _device(raw, figures)
    return KernelTable(place, tuple(launches), tuple(devices.values()), tuple(dict.fromkeys(notes)))


@cache
def _wanted(section: str, metric: str) -> bool:
    """Whether a metric tells something that the table holds."""
    if metric in _raw_names() or counter_of(metric) is not None or _STALL.fullmatch(metric):
        return True
    return any(
        metric == name and section.startswith(begin)
        for entry in _metrics().values()
        for begin, name in entry.get("shown", ())
    )


def _metrics() -> Mapping[str, Any]:
    metrics: Mapping[str, Any] = load("ncu.yaml")["metrics"]
    return metrics


@cache
def _raw_names() -> frozenset[str]:
    return frozenset(name for entry in _metrics().values() for name in entry["raw"])


class _Figures:
    """The figures of one launch: cells found by name or by section and displayed name, converted to SI units."""

    def __init__(self, raw: RawLaunch, sign: Sign | None, place: str, notes: list[str]) -> None:
        self.raw = raw
        self.sign = sign
        self.place = place
        self.notes = notes
        self.by_name = {metric: (section, metric) for section, metric in reversed(raw.cells)}
        self.used: dict[str, str] = {}
        """Metric that each figure came from."""

    def __getitem__(self, figure: str) -> float | None:
        entry = _metrics()[figure]
        for key in self._keys(entry):
            value = self._value(key, entry["kind"])
            if value is not None:
                self.used[figure] = key[1] if "__" in key[1] else f"{key[0]}: {key[1]}"
                return value
        return None

    def raw_count(self, metric: str) -> float | None:
        """A raw metric that counts."""
        key = self.by_name.get(metric)
        return None if key is None else self._value(key, "number")

    def text(self, figure: str) -> str | None:
        """A figure that is a text."""
        for key in self._keys(_metrics()[figure]):
            text = _cleaned(self.raw.cells[key].text, 120)
            if text and text.lower() != "n/a":
                return text
        return None

    def _keys(self, entry: Mapping[str, Any]) -> list[tuple[str, str]]:
        found = [self.by_name[name] for name in entry["raw"] if name in self.by_name]
        for begin, name in entry.get("shown", ()):
            found.extend(key for key in self.raw.cells if key[1] == name and key[0].startswith(begin))
        return found

    def _value(self, key: tuple[str, str], kind: Kind) -> float | None:
        cell = self.raw.cells[key]
        where = f"{self.place}:{cell.line}"
        if key in self.raw.conflicts:
            self._note(f"{where}: {key[1]} has several values for one launch, and none was taken")
            return None
        if not is_number(cell.text):
            if cell.text.strip().lower().lstrip("+-") not in _NOT_AVAILABLE:
                self._note(f"{where}: {key[1]} is {_cleaned(cell.text, 40)!r}, which is no number; it was left out")
            return None
        factor = factor_of(cell.unit, kind)
        if factor is None:
            self._note(
                f"{where}: {key[1]} is in {_cleaned(cell.unit, 40)!r}, a unit that is not known; it was left out"
            )
            return None
        try:
            number = parse_number(cell.text, self.sign)
        except AmbiguousNumber:
            raise SourceError(
                f"{where}: {key[1]} is {_cleaned(cell.text, 40)!r}, and nothing in the file tells whether that "
                "separates thousands or decimals",
                as_advice(load("ncu.yaml")["remedies"]["locale"]),
            ) from None
        if number is not None and number < 0:
            self._note(
                f"{where}: {key[1]} is negative ({_cleaned(cell.text, 40)}), which no counter is; it was left out"
            )
            return None
        return None if number is None or not math.isfinite(number * factor) else number * factor

    def _note(self, text: str) -> None:
        if len(self.notes) < _MOST_NOTES:
            self.notes.append(text)


def _launch(raw: RawLaunch, figures: _Figures) -> Launch:
    scope = _SCOPES.get(raw.name.strip().casefold(), "kernel")
    seconds = figures["duration"] or None  # nothing runs for no time: it was not measured
    clock, tensor_share = figures["sm_clock"], figures["tensor_share"]
    names = {counter for _, metric in raw.cells if (counter := counter_of(metric)) is not None}
    about = Conditions(seconds, clock, scope, _capability(raw), tensor_share)
    counted = count(names, figures.raw_count, about)
    total, read, written = _bytes(figures, seconds)
    conflicts, wavefronts = figures["bank_conflicts"], figures["shared_wavefronts"]
    from_bytes = [figures.used[one] for one in figures.used if one.startswith("dram_") and one != "dram_share"]
    return Launch(
        name=_cleaned(raw.name, _LONGEST_NAME),
        scope=scope,
        device=raw.device,
        line=raw.line,
        seconds=seconds,
        operations=counted.operations,
        operations_lacking=counted.lacking,
        uncounted=counted.uncounted,
        partial=counted.partial,
        dram_bytes=total,
        dram_read_bytes=read,
        dram_write_bytes=written,
        dram_share=figures["dram_share"],
        compute_share=figures["compute_share"],
        memory_share=figures["memory_share"],
        tensor_share=tensor_share,
        l2_hit_rate=figures["l2_hit_rate"],
        waves=figures["waves"],
        occupancy=figures["occupancy"],
        sm_clock_hertz=clock,
        stalls=_stalls(raw, figures),
        bank_conflicts=conflicts,
        bank_conflict_share=conflicts / wavefronts if conflicts is not None and wavefronts else None,
        rules=_rules(raw),
        counters=(*counted.counters, *from_bytes),
    )


def _bytes(figures: _Figures, seconds: float | None) -> tuple[Bounded | None, float | None, float | None]:
    """Bytes that device memory moved: all, read, written. All of them has no upper bound where one half is missing."""
    read = _amount(figures, "dram_read", seconds)
    written = _amount(figures, "dram_write", seconds)
    if read is not None and written is not None:
        return Bounded.exactly(read + written), read, written
    total = _amount(figures, "dram_bytes", seconds)
    if total is None and (rate := figures["dram_rate"]) is not None and seconds is not None:
        total = rate * seconds
    if total is not None:
        return Bounded.exactly(total), read, written
    half = read if read is not None else written
    return (None if half is None else Bounded(half, half, float("inf"))), read, written


def _amount(figures: _Figures, figure: str, seconds: float | None) -> float | None:
    if (amount := figures[figure]) is not None:
        return amount
    if f"{figure}_rate" not in _metrics() or seconds is None:
        return None
    rate = figures[f"{figure}_rate"]
    return None if rate is None else rate * seconds


def _stalls(raw: RawLaunch, figures: _Figures) -> tuple[tuple[str, float], ...]:
    """Shares of the cycles that a warp spends per instruction issued, by what it waits for, largest first."""
    known: Mapping[str, str] = load("ncu.yaml")["stalls"]
    total = figures["warp_cycles"]
    if not total:
        return ()
    found: dict[str, float] = {}
    for _, metric in raw.cells:
        match = _STALL.fullmatch(metric)
        state = match["state"] if match else ""
        if state in known and (value := figures.raw_count(metric)):
            found[known[state]] = min(1.0, value / total)
    return tuple(sorted(found.items(), key=lambda item: -item[1]))


def _rules(raw: RawLaunch) -> tuple[Rule, ...]:
    longest = int(load("ncu.yaml")["rule_characters"])
    return tuple(
        Rule(_cleaned(name, 80), _cleaned(kind, 8), _cleaned(text, longest))
        for name, kind, text in raw.rules
        if text.strip()
    )


def _device(raw: RawLaunch, figures: _Figures) -> KernelDevice:
    return KernelDevice(
        index=_cleaned(raw.device, 16),
        name=figures.text("device_name"),
        compute_capability=_capability(raw),
        multiprocessors=figures["device_multiprocessors"],
        clock_hertz=figures["device_clock"] or None,
        memory_clock_hertz=figures["device_memory_clock"] or None,
        bus_bits=figures["device_bus_bits"] or None,
    )


def _capability(raw: RawLaunch) -> float | None:
    text = raw.compute_capability.strip().replace(",", ".")
    return float(text) if re.fullmatch(r"\d{1,2}\.\d{1,2}", text) else None


@lru_cache(maxsize=4096)
def _cleaned(text: str, longest: int) -> str:
    """One line that prints, cut where it is too long."""
    text = text[: longest * 4]
    if not text.isprintable():
        text = "".join(c if c.isprintable() or c.isspace() else "\ufffd" for c in text)
    text = " ".join(text.split())
    return text if len(text) <= longest else text[: longest - 3].rstrip() + "..."
