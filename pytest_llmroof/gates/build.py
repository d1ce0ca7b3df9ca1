"""From the keys of a window, checked for shape, to its specification; for gate files, markers and the command line."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from pytest_llmroof.errors import ConfigError, ConfigErrors, Position
from pytest_llmroof.gates import schema as shape
from pytest_llmroof.gates.defaults import default_gates
from pytest_llmroof.gates.gate import Gate
from pytest_llmroof.gates.grammar import parse_gate
from pytest_llmroof.gates.scalars import Variables, scalar
from pytest_llmroof.gates.sources import telemetry_source
from pytest_llmroof.gates.spec import TelemetrySource, WindowSpec
from pytest_llmroof.units import parse_as

_DURATIONS: Final = {
    "duration": "duration_seconds",
    "interval": "interval_seconds",
    "warmup": "warmup_seconds",
    "max_wait": "max_wait_seconds",
}
_COUNTS: Final = ("repeat", "min_requests")
_AS_WRITTEN: Final = ("phase", "gpu", "model", "flops", "served_model_name")
_LISTS: Final = ("telemetry", "gates")
_MAPPINGS: Final = ("deployment", "labels")


@dataclass(frozen=True)
class Written:
    """A window's keys, those of the head included, and where they stand.

    ``spoiled`` are paths of values that are already reported as wrong, or stand for an unset variable: they are left
    out. ``gates_at`` gives the place of a gate's expression by its index, ``place`` that of a path, ``filled`` what was
    written where a variable stands (its value is never shown).
    """

    keys: Mapping[str, Any]
    spoiled: Sequence[shape.Path] = ()
    unset: tuple[str, ...] = ()
    positions: Mapping[str, Position] = field(default_factory=dict)
    gates_at: Sequence[Position | None] = ()
    place: Callable[[shape.Path], Position | None] = lambda path: None
    filled: Callable[[shape.Path], str | None] = lambda path: None
    prefix: str = ""


def window_spec(mapping: Mapping[str, object], *, id: str, name: str, base: Path) -> WindowSpec:
    """The specification of a window from Python values (a marker's keywords, options), checked like a gate file.

    Keys are those of a gate file's head and of one window. ``${VAR}`` is filled in as in a file. No default gates are
    added: those are a gate file's. Raises ConfigErrors with all problems, each led by its key.
    """
    variables = Variables()
    errors: list[ConfigError] = []
    keys = _plain(mapping, shape.place_schema("window"), (), variables, errors)
    assert isinstance(keys, dict)
    problems = [
        problem for problem in shape.problems(keys, "window", variables.shown) if problem.path not in variables.unset
    ]
    errors += [ConfigError(f"{dotted(problem.path)}: {problem.text}") for problem in problems]
    written = Written(
        keys,
        spoiled=[*(problem.path for problem in problems), *variables.unset],
        unset=names_of(variables.unset),
        gates_at=[None] * len(keys["gates"]) if isinstance(keys.get("gates"), list) else (),
        filled=variables.shown,
    )
    spec, wrong = assemble(written, id=id, name=name, base=base, defaults=False)
    if errors or wrong:
        raise ConfigErrors([*errors, *wrong])
    return spec


def assemble(
    written: Written, *, id: str, name: str, base: Path, defaults: bool
) -> tuple[WindowSpec, list[ConfigError]]:
    """The specification of keys whose shape was checked, and what is wrong beyond their shape."""
    errors: list[ConfigError] = []
    keys = _without(written.keys, written.spoiled)
    gates, default_severity = _gates(keys, written, errors), None
    telemetry = _telemetry(keys, base)
    if defaults and "gates" not in written.keys:
        severity = keys.get("severity", "error")
        if "phase" not in written.keys and telemetry and all(source.kind == "path" for source in telemetry):
            default_severity = severity
        else:
            try:
                gates = default_gates(keys.get("phase"), severity)
            except ConfigError as error:
                errors.append(_error(written, (), error))
    spec = WindowSpec(
        id=id,
        name=name,
        base=base,
        telemetry=telemetry,
        gates=gates,
        default_severity=default_severity,
        title=keys.get("name"),
        deployment=keys.get("deployment", {}),
        labels=keys.get("labels", {}),
        unset=written.unset,
        positions=written.positions,
        **_figures(keys),
    )
    return spec, errors


def _figures(keys: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a specification that hold what one key says."""
    return {
        **{key: keys[key] for key in _AS_WRITTEN if key in keys},
        **{key: int(keys[key]) for key in _COUNTS if key in keys},
        **{field: parse_as(keys[key], "seconds") for key, field in _DURATIONS.items() if key in keys},
    }


def names_of(unset: Mapping[shape.Path, tuple[str, ...]]) -> tuple[str, ...]:
    """The variables without a value, each once."""
    return tuple(dict.fromkeys(name for names in unset.values() for name in names))


def dotted(path: shape.Path) -> str:
    """A path as people write it: ``windows.decode.gates[2].severity``."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def _error(written: Written, path: shape.Path, error: ConfigError, position: Position | None = None) -> ConfigError:
    where = written.prefix + ("." if written.prefix and path else "") + dotted(path)
    return ConfigError(f"{where}: {error.problem}" if where else error.problem, position or written.place(path))


def _without(keys: Mapping[str, Any], spoiled: Sequence[shape.Path]) -> dict[str, Any]:
    """The keys that can be used. What is spoiled in a list becomes None, so that its neighbours keep their index."""
    kept = dict(keys)
    for path in spoiled:
        key, within = path[0] if path else None, path[1] if len(path) > 1 else None
        if not isinstance(key, str) or key not in kept:
            continue
        value = kept[key]
        if key in _LISTS and isinstance(within, int):
            kept[key] = [None if index == within else entry for index, entry in enumerate(value)]
        elif key in _MAPPINGS and isinstance(value, Mapping) and within is not None:
            kept[key] = {name: entry for name, entry in value.items() if name != within}
        else:
            del kept[key]
    return kept


def _telemetry(keys: Mapping[str, Any], base: Path) -> tuple[TelemetrySource, ...]:
    value = keys.get("telemetry", [])
    entries = value if isinstance(value, list) else [value]
    return tuple(telemetry_source(entry, base) for entry in entries if entry is not None)


def _gates(keys: Mapping[str, Any], written: Written, errors: list[ConfigError]) -> tuple[Gate, ...]:
    """The gates in the order of the file, each under a name of its own."""
    severity = keys.get("severity", "error")
    seen: dict[tuple[object, ...], Gate] = {}
    names: set[str] = set()
    for index, entry in enumerate(keys.get("gates", ())):
        if entry is None:
            continue
        options = {"gate": entry} if isinstance(entry, str) else entry
        try:
            gate = _gate(options, severity, written.gates_at[index])
            _add(gate, seen, names)
        except ConfigError as error:
            raw = written.filled(("gates", index)) or written.filled(("gates", index, "gate"))
            if raw is not None:
                error = ConfigError(f"with its variables filled in {raw!r} is no gate", error.position)
            errors.append(_error(written, ("gates", index), error, error.position))
    return tuple(seen.values())


def _gate(options: Mapping[str, Any], severity: Any, position: Position | None) -> Gate:
    return parse_gate(
        options["gate"],
        id=options.get("id"),
        why=options.get("why"),
        severity=options.get("severity", severity),
        per=options.get("per"),
        position=position,
        labels=options.get("labels"),
    )


def _add(gate: Gate, seen: dict[tuple[object, ...], Gate], names: set[str]) -> None:
    """Add a gate under a free name. ConfigError where the very same gate is there already."""
    key = (gate.canonical, gate.severity, gate.per, gate.id, gate.labels)
    if key in seen:
        first = seen[key].position
        where = f", first in line {first.line}" if first else ""
        raise ConfigError(f"the same gate stands here twice: {gate.canonical!r}{where}", gate.position)
    name, number = gate.name, 1
    while name in names:
        number += 1
        name = f"{gate.name}#{number}"
    names.add(name)
    seen[key] = gate if number == 1 else replace(gate, name=name)


def _plain(
    value: object, schema: shape.Schema, path: shape.Path, variables: Variables, errors: list[ConfigError]
) -> object:
    """A Python value as YAML would have given it: plain builtins, paths as text, variables filled in."""
    if isinstance(value, Mapping):
        return {
            str(key): _plain(entry, shape.child(schema, str(key)), (*path, str(key)), variables, errors)
            for key, entry in value.items()
        }
    if isinstance(value, list | tuple):
        within = shape.child(schema, 0)
        return [_plain(entry, within, (*path, index), variables, errors) for index, entry in enumerate(value)]
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if schema.get("x-check") == "end" and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)  # Unix seconds; a gate file has them as text
    if not isinstance(value, str):
        return value
    try:
        return scalar(value, schema, path, variables, plain=False)
    except ConfigError as error:
        errors.append(ConfigError(f"{dotted(path)}: {error.problem}"))
        return value
