"""Whether a table's own times are on a window's clock: tools print the local time of a machine, without its zone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from pytest_llmroof.telemetry.gpurefresh import Reading
from pytest_llmroof.telemetry.gputables import GpuTable

#: Zones of the world, in quarters of an hour before or after UTC.
_ODD: Final = (-38, -14, -10, 14, 18, 22, 23, 26, 35, 38, 42, 51, 55)
_ZONES: Final = tuple(sorted({*range(-48, 57, 4), *_ODD}))
_QUARTER: Final = 900.0
#: A table that is begun before the load and ended after it covers the window; the tool takes seconds to begin.
_SLACK_SECONDS: Final = 5.0
_SLACK: Final = 0.05
#: nvidia-smi's first row comes so much later than the line that the shell wrote before it.
_FIRST_ROW_SECONDS: Final = 60.0


def on_the_clock(table: GpuTable, window: tuple[float, float] | None) -> tuple[tuple[Reading, ...], bool, str | None]:
    """The table's readings, whether their times are Unix seconds, and what to say of it.

    A local time becomes one where the file itself says when it was begun, or where a single time zone makes the table
    cover the window. ``window`` is from when to when (Unix seconds).
    """
    if table.clock == "unix":
        return table.readings, True, None
    single = table.span[1] - table.span[0] < _SLACK_SECONDS
    if table.clock == "none":
        if table.span == (0.0, 0.0):
            begun = table.scraped_at
            return (table.readings, False, None) if begun is None else (_shifted(table.readings, -begun), True, None)
        return table.readings, False, (
            f"{table.location} does not tell the time of its rows (query timestamp as well, with the day)"
        )  # fmt: skip
    if table.scraped_at is not None:
        found = list(_begun(table, table.scraped_at))
        if len(found) == 1:
            return _shifted(table.readings, found[0]), True, None
    if window is None:
        return table.readings, False, None
    found = list(_inside(table, window) if single else _covering(table, window))
    if len(found) == 1:
        note = f"{table.location} has local times: taken as {_named(found[0])}, where alone they fit the window"
        return _shifted(table.readings, found[0]), True, note
    if single:
        return table.readings, False, None
    why = "several time zones fit" if found else "in no time zone do they cover the window"
    return table.readings, False, (
        f"{table.location} has local times, and {why}: begin the file with (date '+# scraped_at %s'; nvidia-smi ...)"
    )  # fmt: skip


def _begun(table: GpuTable, scraped_at: float) -> Iterator[float]:
    for zone in _ZONES:
        if -1.0 <= table.span[0] - zone * _QUARTER - scraped_at <= _FIRST_ROW_SECONDS:
            yield zone * _QUARTER


def _covering(table: GpuTable, window: tuple[float, float]) -> Iterator[float]:
    (first, last), (begun, ended) = table.span, window
    slack = max(_SLACK_SECONDS, _SLACK * (ended - begun))
    for zone in _ZONES:
        offset = zone * _QUARTER
        if first - offset <= begun + slack and last - offset >= ended - slack:
            yield offset


def _inside(table: GpuTable, window: tuple[float, float]) -> Iterator[float]:
    """Zones in which a single look at the GPUs was taken inside the window."""
    for zone in _ZONES:
        if window[0] - _SLACK_SECONDS <= table.span[0] - zone * _QUARTER <= window[1] + _SLACK_SECONDS:
            yield zone * _QUARTER


def _shifted(readings: Sequence[Reading], offset: float) -> tuple[Reading, ...]:
    return tuple(replace(reading, time=reading.time - offset) for reading in readings)


def _named(offset: float) -> str:
    minutes = int(abs(offset) // 60)
    return f"UTC{'-' if offset < 0 else '+'}{minutes // 60:02}:{minutes % 60:02}" if offset else "UTC"
