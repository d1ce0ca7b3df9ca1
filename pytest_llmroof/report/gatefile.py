"""Gate files written by the package: YAML for people, with comments, that reads back as it was meant."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

#: Keys that go to the head of the file where all windows agree on them.
_HEAD: Final = ("gpu", "model", "deployment", "flops", "served_model_name")

_COMMENT_WIDTH: Final = 118


@dataclass(frozen=True)
class Commented:
    """A value with a comment above it; without a value the comment alone."""

    value: Any
    comment: str


def gate_file(introduction: Sequence[str], windows: Mapping[str, Mapping[str, Any]]) -> str:
    """The text of a gate file. What all windows share stands once, at its head."""
    shared = _shared(list(windows.values()))
    lines = [f"# {line}" for line in introduction]
    lines += _entries(shared, 0)
    lines.append("windows:")
    for name, keys in windows.items():
        lines.append(f"  {scalar(name)}:")
        lines += _entries({key: value for key, value in keys.items() if key not in shared}, 4)
    return "\n".join(lines) + "\n"


def _shared(windows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    if not windows:
        return {}
    return {
        key: windows[0][key]
        for key in _HEAD
        if key in windows[0] and all(window.get(key) == windows[0][key] for window in windows)
    }


def _entries(keys: Mapping[str, Any], indent: int) -> Iterator[str]:
    blanks = " " * indent
    for key, value in keys.items():
        plain = value.value if isinstance(value, Commented) else value
        if isinstance(value, Commented):
            yield from _comment(f"{key}: {value.comment}" if plain is None else value.comment, blanks)
        if plain is None:
            continue
        if key == "gates":
            yield f"{blanks}gates:"
            yield from _gates(plain, indent + 2)
        else:
            yield f"{blanks}{key}: {flow(plain)}"


def _gates(gates: Sequence[Any], indent: int) -> Iterator[str]:
    blanks = " " * indent
    for gate in gates:
        plain = gate.value if isinstance(gate, Commented) else gate
        if isinstance(gate, Commented):
            yield from _comment(gate.comment, blanks)
        if isinstance(plain, Mapping):
            for position, (key, value) in enumerate(plain.items()):
                yield f"{blanks}{'  ' if position else '- '}{key}: {scalar(value)}"
        elif plain is not None:
            yield f"{blanks}- {scalar(plain)}"


def _comment(text: str, blanks: str) -> Iterator[str]:
    line = blanks + "#"
    for word in text.split():
        if len(line) + len(word) + 1 > _COMMENT_WIDTH and len(line) > len(blanks) + 1:
            yield line
            line = blanks + "#"
        line += " " + word
    yield line


def flow(value: Any) -> str:
    """A value on one line: ``{tensor_parallel: 4}``, ``[before.prom, after.prom]``."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{scalar(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    return scalar(value)


#: Plain scalars that are text in every YAML, in flow and block alike; expressions of gates are among them.
_PLAIN: Final = re.compile(r"[A-Za-z_][\w./-]*(?: (?:>=|<=|<|>) [\w.%/]+)?")


def scalar(value: Any) -> str:
    """One scalar, quoted where a YAML reader could take it for something else. Its text must be ``wire.visible``."""
    if not isinstance(value, str):
        return json.dumps(value)
    if _PLAIN.fullmatch(value) and value.isascii() and yaml.safe_load(value) == value:
        return value
    return json.dumps(value, ensure_ascii=False)
