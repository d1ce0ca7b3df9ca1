"""Nsight Compute's CSV as tests write it: wide (``--page raw``) and long (the details page), every cell quoted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

IDS = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size",
       "Device", "CC")  # fmt: skip
LONG = (*IDS, "Section Name", "Metric Name", "Metric Unit", "Metric Value")
RULES = ("Rule Name", "Rule Type", "Rule Description", "Estimated Speedup Type", "Estimated Speedup")

#: Names that no report may hold.
PROCESS, HOST = "secret-process", "secret-host.example"

Values = Mapping[str, tuple[str, str]]
"""Metric -> (unit, value)."""


def line(cells: Sequence[str]) -> str:
    """One row, every cell quoted."""
    return ",".join('"' + cell.replace('"', '""') + '"' for cell in cells)


def ids(number: int, name: str, cc: str = "8.0") -> tuple[str, ...]:
    """The first cells of a launch's row."""
    return (str(number), "4711", PROCESS, HOST, name, "1", "7", "(128, 1, 1)", "(108, 1, 1)", "0", cc)


def wide(path: Path, launches: Sequence[tuple[str, Values]], *, cc: str = "8.0", before: str = "") -> Path:
    """A raw page: a column per metric, a row of units, a row per launch."""
    metrics = list(dict.fromkeys(name for _, values in launches for name in values))
    units = {name: unit for _, values in launches for name, (unit, _) in values.items()}
    rows = [line((*IDS, *metrics)), line(("",) * len(IDS) + tuple(units[name] for name in metrics))]
    for number, (kernel, values) in enumerate(launches):
        rows.append(line((*ids(number, kernel, cc), *(values.get(name, ("", ""))[1] for name in metrics))))
    path.write_text(before + "\n".join(rows) + "\n", encoding="utf-8")
    return path


def long(
    path: Path,
    launches: Sequence[tuple[str, Mapping[tuple[str, str], tuple[str, str]]]],
    *,
    rules: Sequence[tuple[str, str, str]] = (),
    cc: str = "8.0",
    before: str = "",
    with_rules: bool = True,
) -> Path:
    """A details page: a row per metric, and rows of rules where there are any."""
    rows = [line((*LONG, *RULES) if with_rules else LONG)]
    for number, (kernel, values) in enumerate(launches):
        for (section, metric), (unit, value) in values.items():
            rows.append(line((*ids(number, kernel, cc), section, metric, unit, value)) + ("," if with_rules else ""))
        for name, kind, text in rules:
            rows.append(line((*ids(number, kernel, cc), "Rules", "", "", "", name, kind, text, "global", "10.0")))
    path.write_text(before + "\n".join(rows) + "\n", encoding="utf-8")
    return path


def seconds(microseconds: float) -> tuple[str, str]:
    """A duration as ``--print-units base`` prints it."""
    return ("ns", f"{microseconds * 1000:.0f}")
