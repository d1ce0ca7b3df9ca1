"""A gate file with the limits that reports support: the low end of each interval less 5 %, or a histogram's bound."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pytest_llmroof.advice import Advice
from pytest_llmroof.data import load
from pytest_llmroof.errors import SourceError
from pytest_llmroof.report.figures import precise, quantity
from pytest_llmroof.report.gatefile import Commented, gate_file
from pytest_llmroof.report.headline import one_line
from pytest_llmroof.report.limits import supported_limit, vacuous
from pytest_llmroof.report.wire import Document
from pytest_llmroof.units import Unit

_ALLOWANCE: Final = 0.05
_INTRODUCTION: Final = (
    "Limits that {reports} support{s}: the low end of each interval less 5 % (for `<=` the high end plus 5 %),",
    "latencies on a bound of the histogram where they come from one. Each gate says what was measured.",
    "Save it in pytest's root directory: paths are relative to that. Raise a limit when the server has become faster.",
)
#: Endings of files that may stand for a model or an accelerator.
_FILES: Final = (".json", ".gguf", ".yaml", ".yml")
_SECRETS: Final = "headers, selectors and credentials are in no report: add what this server needs"


@dataclass(frozen=True)
class Seen:
    """One report's window, and the report's name."""

    report: str
    created: str
    window: Document


@dataclass(frozen=True)
class Limit:
    """A gate to be written: what it asks, and what was measured in each report."""

    metric: str
    operator: str
    unit: Unit
    per: str | None
    gate_id: str | None
    severity: str
    ends: tuple[tuple[float | None, float | None], ...]
    bucketed: bool
    origins: tuple[str, ...]

    @property
    def value(self) -> float | None:
        """The limit that all reports support; None where one of them bounds nothing."""
        rising = self.operator in (">=", ">")
        ends = [low if rising else high for low, high in self.ends]
        if not ends or any(end is None for end in ends):
            return None
        known = [end for end in ends if end is not None]
        bound = min(known) if rising else max(known)
        if self.bucketed and not rising:
            return bound
        limit = supported_limit(bound * (1 - _ALLOWANCE if rising else 1 + _ALLOWANCE), bound, self.operator, self.unit)
        return None if vacuous(limit, self.operator, self.unit) else limit

    @property
    def expression(self) -> str | None:
        """``decode.mbu >= 39%``, None where no limit is supported."""
        limit = self.value
        if limit is None:
            return None
        return f"{self.metric} {self.operator} {precise(limit, self.unit).replace(' ', '')}"


def calibrated(reports: Sequence[tuple[str, Document]]) -> str:
    """The YAML text of a gate file that the windows of these reports pass; ``reports`` are names and documents."""
    groups: dict[str, list[Seen]] = {}
    for name, document in reports:
        for window in document["windows"]:
            groups.setdefault(_group(window), []).append(Seen(name, document["created"], window))
    windows = {_window_name(seen, list(groups.values())): _window(seen) for seen in groups.values()}
    names = ", ".join(dict.fromkeys(name for name, _ in reports))
    bare = [name for name, keys in windows.items() if not any(map(_asks, keys.get("gates", ())))]
    if len(bare) == len(windows):
        raise SourceError(
            f"{names}: no limit is supported, as nothing was measured ({', '.join(bare) or 'no window'})",
            Advice("mend what its gates lack, and write the report again", "pytest --llmroof-report=FILE.json"),
        )
    introduction = [line.format(reports=names, s="" if len(reports) > 1 else "s") for line in _INTRODUCTION]
    if bare:
        introduction.append(f"Left out, as nothing was measured that supports a limit: {', '.join(bare)}.")
    return gate_file(introduction, {name: keys for name, keys in windows.items() if name not in bare})


def _asks(gate: object) -> bool:
    """Whether a gate is more than a comment."""
    return not (isinstance(gate, Commented) and gate.value is None)


def _group(window: Document) -> str:
    """Windows of one name, hardware, model and deployment are one window measured several times."""
    gpu, model = window["gpu"] or {}, window["model"] or {}
    return repr((window["name"], gpu.get("name"), gpu.get("count"), model.get("name"), window["deployment"]))


def _window_name(seen: Sequence[Seen], groups: Sequence[Sequence[Seen]]) -> str:
    """The window's name, with what tells it from others of that name."""
    name = str(seen[0].window["name"])
    alike = [others for others in groups if others[0].window["name"] == name]
    if len(alike) == 1:
        return name
    names = [_qualified(others[0].window) for others in alike]
    place = next(index for index, others in enumerate(alike) if others is seen)
    return names[place] if names.count(names[place]) == 1 else f"{names[place]} {place + 1}"


def _qualified(window: Document) -> str:
    """``decode llama-3.1-70b h100-sxm5-80gb``."""
    return " ".join(str(part["name"]) for part in (window, window["model"], window["gpu"]) if part)


def _window(seen: Sequence[Seen]) -> dict[str, Any]:
    """The keys of one window in a gate file."""
    window = seen[-1].window
    asked, folder = window["asked"], posixpath.dirname(window["id"].partition("::")[0])
    keys: dict[str, Any] = {
        "gpu": _from_root(asked["gpu"], folder),
        "model": _from_root(asked["model"], folder),
        "deployment": asked["deployment"],
        "flops": asked["flops"] if asked["flops"] != "model" else None,
        "served_model_name": asked["served_model_name"],
        "phase": window["phase"],
        "telemetry": _telemetry(window["telemetry"], folder),
        "duration": f"{asked['duration_seconds']:g}s" if asked["duration_seconds"] else None,
        "gates": [_gate(limit) for limit in _limits(seen)],
    }
    if asked["model"] is None and window["model"] and window["provenance"].get("model") == "given":
        named = f"{window['model']['title']}: its catalogue name, or the folder of its config.json"
        keys["model"] = Commented(None, named)
    return {key: value for key, value in keys.items() if value not in (None, {}, [])}


def _telemetry(sources: Sequence[Document], folder: str) -> Any:
    written = [
        _joined(one["shown"], folder) if one["kind"] == "path" else {one["kind"]: one["shown"]} for one in sources
    ]
    value = written[0] if len(written) == 1 else written
    return value if all(one["kind"] == "path" for one in sources) else Commented(value, _SECRETS)


def _from_root(value: Any, folder: str) -> Any:
    """A name as it is; a path relative to the file that named it becomes relative to the root directory."""
    is_path = isinstance(value, str) and (value.startswith(".") or value.endswith(_FILES))
    return _joined(value, folder) if is_path else value


def _joined(path: str, folder: str) -> str:
    return posixpath.normpath(posixpath.join(folder, path))


def _gate(limit: Limit) -> Any:
    origin = "; ".join(limit.origins)
    expression = limit.expression
    if expression is None:
        return Commented(None, f"{limit.metric} {limit.operator}: no limit is supported: {origin}")
    keys = {"gate": expression, "id": limit.gate_id, "per": limit.per, "why": origin}
    if limit.severity != "error":
        keys["severity"] = limit.severity
    return {key: value for key, value in keys.items() if value is not None}


def _limits(seen: Sequence[Seen]) -> Iterator[Limit]:
    """First the gates of the reports, then those that such a phase is usually held to."""
    done = set[tuple[str, str | None]]()
    for one in seen:
        for gate in one.window["gates"]:
            key = (gate["metric"], gate["per"])
            if key not in done:
                done.add(key)
                yield _limit(gate["metric"], gate["operator"], seen, gate)
    for entry in load("calibration.yaml").get(seen[-1].window["phase"], ()):
        metric, operator = entry.split()
        if (metric, None) not in done and all(metric in one.window["measurements"] for one in seen):
            yield _limit(metric, operator, seen, None)


def supported(metric: str, operator: str, seen: Sequence[Seen], per: str | None) -> Limit | None:
    """The limit that windows support, whatever their reports gated; None where one of them did not measure it."""
    if any(_found(one.window, metric, per) is None for one in seen):
        return None
    rows = [gate for one in seen for gate in one.window["gates"] if (gate["metric"], gate["per"]) == (metric, per)]
    return _limit(metric, operator, seen, rows[0] if rows else None)


def _limit(metric: str, operator: str, seen: Sequence[Seen], gate: Document | None) -> Limit:
    per = gate["per"] if gate else None
    found = [_found(one.window, metric, per) for one in seen]
    units = [one["unit"] for one in found if one] + ([gate["unit"]] if gate else [])
    return Limit(
        metric=metric,
        operator=operator,
        unit=units[0],
        per=per,
        gate_id=gate["id"] if gate else None,
        severity=gate["severity"] if gate else "error",
        ends=tuple((one["low"], one["high"]) if one else (None, None) for one in found),
        bucketed=any(one["bucketed"] for one in found if one),
        origins=tuple(_origin(one, was) for one, was in zip(seen, found, strict=True)),
    )


def _found(window: Document, metric: str, per: str | None) -> Document | None:
    """What a window measured: for each replica the worst one, which only its gate has."""
    whole: Document | None = window["measurements"].get(metric)
    if per is None:
        return whole
    gates = [gate for gate in window["gates"] if gate["metric"] == metric and gate["per"] == per]
    if not gates or gates[0]["value"] is None:
        return None
    bucketed = whole["bucketed"] if whole else False
    return {**gates[0], "samples": None, "bucketed": bucketed}


def _origin(one: Seen, found: Document | None) -> str:
    """``41.3 % (40.9 to 41.8 %, 3100 samples) in report.json of 2026-11-29``."""
    where = f"in {one.report} of {one.created[:10]}"
    if found is None:
        return one_line(f"not measured {where}")
    unit, low, high = found["unit"], found["low"], found["high"]
    details = [] if low == high else [f"{quantity(low, unit)} to {quantity(high, unit)}"]
    details += [f"{found['samples']} samples"] if found["samples"] is not None else []
    inside = f" ({', '.join(details)})" if details else ""
    return f"{quantity(found['value'], unit)}{inside} {where}"
