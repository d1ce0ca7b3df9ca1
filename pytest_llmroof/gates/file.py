"""The gate file: from its path to the specifications of its windows, or every problem at once with its place."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from pytest_llmroof.errors import ConfigError, ConfigErrors, Position
from pytest_llmroof.garbage import without_collections
from pytest_llmroof.gates import schema as shape
from pytest_llmroof.gates.build import Written, assemble, dotted, names_of
from pytest_llmroof.gates.document import Document, read
from pytest_llmroof.gates.spec import WindowSpec

#: Keys of the head that a window's are merged into; every other key of a window replaces the head's.
_MERGED: Final = ("deployment", "labels")


def load_gate_file(
    path: Path, root: Path, look_up: Callable[[WindowSpec], object] | None = None
) -> tuple[WindowSpec, ...]:
    """The windows of a gate file, in its order. Raises ConfigErrors with every problem, in the order of the file.

    ``root`` is pytest's root directory: node ids and positions are relative to it. Nothing but the file is read.
    ``look_up`` raises ConfigError where a window names a GPU or model that nobody knows: in a file that is wrong
    anyway such names are reported with the rest.
    """
    shown = Path(os.path.relpath(path, root)).as_posix()
    with without_collections():
        try:
            document = Document(read(path, shown), shown, shape.document_schema())
        except ConfigError as error:
            raise ConfigErrors([error]) from None
        return _File(document, shown, path.parent).windows(look_up)


class _File:
    """One gate file that is being read."""

    def __init__(self, document: Document, shown: str, base: Path) -> None:
        self.document = document
        self.shown = shown
        self.base = base
        self.errors: list[ConfigError] = list(document.errors)
        self.spoiled: list[shape.Path] = []

    def windows(self, look_up: Callable[[WindowSpec], object] | None) -> tuple[WindowSpec, ...]:
        """All windows; ConfigErrors where anything is wrong."""
        value = self.document.value
        if not isinstance(value, dict):
            raise ConfigErrors([*self.errors, self._no_mapping(value)])
        self._check(value)
        self.head = {key: entry for key, entry in value.items() if key != "windows"}
        self.head_positions = dict(self._positions((), self.head))
        windows = value.get("windows")
        specs = [
            self._window(name, keys)
            for name, keys in (windows.items() if isinstance(windows, dict) else ())
            if self._named(name) and isinstance(keys, dict)
        ]
        if self.errors:
            wrong_names = _wrong_names(specs, look_up) if look_up else ()
            raise ConfigErrors(_in_order([*self.errors, *wrong_names]))
        return tuple(specs)

    def _no_mapping(self, value: object) -> ConfigError:
        if value is None:
            return ConfigError("the file is empty: a gate file needs windows:", Position(self.shown))
        kind = "a list" if isinstance(value, list) else "a single value"
        return ConfigError(f"expected a mapping with windows:, not {kind}", self.document.position(()))

    def _check(self, value: Mapping[str, Any]) -> None:
        """Hold the file against the schema: the gates apart, as most of them have one shape."""
        for problem in shape.problems(_with_sample_gates(value), "file", self.document.variables.shown):
            self._note(problem)
        known: set[object] = set()
        for path, index, gate in _all_gates(value):
            if isinstance(gate, str) and gate:
                continue
            form = _form(gate)
            if form in known:
                continue
            wrong = shape.problems(gate, "gate", partial(self._shown, (*path, index)))
            for problem in wrong:
                self._note(shape.Problem((*path, index, *problem.path), problem.text, problem.on_key))
            if not wrong and form is not None:
                known.add(form)

    def _shown(self, at: shape.Path, path: shape.Path) -> str | None:
        return self.document.variables.shown((*at, *path))

    def _note(self, problem: shape.Problem) -> None:
        if problem.path in self.document.variables.unset:
            return
        where = f"{dotted(problem.path)}: " if problem.path else ""
        place = self.document.position(problem.path, problem.on_key)
        self.errors.append(ConfigError(f"{where}{problem.text}", place))
        self.spoiled.append(problem.path)

    def _named(self, name: str) -> bool:
        """Whether a window's name can be part of a node id; notes why not."""
        wrong = next((part for part in ("::", "[", "]") if part in name), None)
        if wrong is not None:
            problem = f"a window's name must not hold {wrong!r}: pytest could not select it"
        elif not name.strip():
            problem = "a window's name must not be empty"
        elif not name.isprintable():
            problem = "a window's name must not hold control characters"
        else:
            return True
        self.errors.append(ConfigError(f"{problem} ({name!r})", self.document.position(("windows", name), True)))
        return False

    def _window(self, name: str, own: Mapping[str, Any]) -> WindowSpec:
        at: shape.Path = ("windows", name)
        keys = {**self.head, **own}
        for key in _MERGED:
            if isinstance(self.head.get(key), dict) and isinstance(own.get(key), dict):
                keys[key] = {**self.head[key], **own[key]}
        unset = dict(self._of_window(at, own, self.document.variables.unset))
        spoiled = [path for path, _ in self._of_window(at, own, dict.fromkeys(self.spoiled))]
        key_wrong = any(path[: len(at)] == at and len(path) == len(at) + 1 for path in self.spoiled)
        written = Written(
            keys,
            spoiled=[*spoiled, *unset],
            unset=names_of(unset),
            positions={**_surviving(self.head_positions, own), **dict(self._positions(at, own))},
            gates_at=self.document.text_positions((*at, "gates"), "gate"),
            place=lambda path: self.document.position((*at, *path), on_key=not path),
            filled=partial(self._shown, at),
            prefix=dotted(at),
        )
        spec, errors = assemble(written, id=f"{self.shown}::{name}", name=name, base=self.base, defaults=not key_wrong)
        self.errors += errors
        return spec

    def _of_window(self, at: shape.Path, own: Mapping[str, Any], paths: Mapping[shape.Path, Any]) -> Iterator[Any]:
        """What concerns this window of things that are known by path, the path seen from its keys."""
        for path, value in paths.items():
            if path[: len(at)] == at:
                yield path[len(at) :], value
            elif path and path[0] != "windows" and not _overridden(path, own):
                yield path, value

    def _positions(self, at: shape.Path, keys: Mapping[str, Any]) -> Iterator[tuple[str, Position]]:
        """Where each key's value stands, nested ones of mappings too; gates know their own."""
        for path in _paths(keys):
            yield dotted(path), self.document.position((*at, *path))


def _wrong_names(specs: list[WindowSpec], look_up: Callable[[WindowSpec], object]) -> Iterator[ConfigError]:
    """What is wrong about names alone: mappings may lack what was wrong in them, and was reported."""
    for spec in specs:
        gpu, model = (value if isinstance(value, str) else None for value in (spec.gpu, spec.model))
        try:
            look_up(replace(spec, gpu=gpu, model=model, deployment={}))
        except ConfigErrors as error:
            yield from error.errors
        except ConfigError as error:
            yield error


def _paths(value: object, path: shape.Path = ()) -> Iterator[shape.Path]:
    if path:
        yield path
    if isinstance(value, dict):
        for key, entry in value.items():
            if path or key != "gates":
                yield from _paths(entry, (*path, key))
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            yield from _paths(entry, (*path, index))


def _overridden(path: shape.Path, own: Mapping[str, Any]) -> bool:
    """Whether a window's own keys stand in for what the head says at a path."""
    key = path[0]
    if key not in own:
        return False
    if key in _MERGED and isinstance(own[key], dict):
        return len(path) > 1 and path[1] in own[key]
    return True


def _surviving(positions: Mapping[str, Position], own: Mapping[str, Any]) -> dict[str, Position]:
    """The head's positions, without those of keys that the window replaces."""
    replaced = {key for key in own if key not in _MERGED}
    return {key: place for key, place in positions.items() if key.partition(".")[0].partition("[")[0] not in replaced}


def _with_sample_gates(value: Mapping[str, Any]) -> dict[str, Any]:
    """The file with one valid gate in place of each list of gates."""
    windows = value.get("windows")
    if not isinstance(windows, dict):
        return dict(value)
    return {**value, "windows": {name: _with_sample(window) for name, window in windows.items()}}


def _with_sample(window: object) -> object:
    if isinstance(window, dict) and isinstance(window.get("gates"), list) and window["gates"]:
        return {**window, "gates": ["decode.mbu >= 75%"]}
    return window


def _all_gates(value: Mapping[str, Any]) -> Iterator[tuple[shape.Path, int, object]]:
    windows = value.get("windows")
    for name, window in windows.items() if isinstance(windows, dict) else ():
        gates = window.get("gates") if isinstance(window, dict) else None
        for index, gate in enumerate(gates if isinstance(gates, list) else ()):
            yield ("windows", name, "gates"), index, gate


def _form(gate: object) -> object:
    """What decides whether a gate's shape is valid; None where it is not worth remembering."""
    if not isinstance(gate, dict):
        return None
    texts = ("gate", "id", "why")
    return tuple(
        (key, isinstance(value, str) and bool(value)) if key in texts else (key, str(value))
        for key, value in gate.items()
    )


def _in_order(errors: list[ConfigError]) -> list[ConfigError]:
    """Each problem once, in the order of the file."""
    unique = {str(error): error for error in errors}
    return sorted(unique.values(), key=lambda error: _line_and_column(error.position))


def _line_and_column(place: Position | None) -> tuple[int, int]:
    return (place.line, place.column) if place else (0, 0)
