"""Windows in a pytest session: what the options add to a specification, and each window assessed only once."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pytest

from pytest_llmroof.additions import install
from pytest_llmroof.asked import asks
from pytest_llmroof.assess import assess, phase_of
from pytest_llmroof.baseline.matching import Baselines
from pytest_llmroof.baseline.places import Place
from pytest_llmroof.errors import ConfigError, ConfigErrors, Position
from pytest_llmroof.gates.assessment import Assessment
from pytest_llmroof.gates.build import window_spec
from pytest_llmroof.gates.defaults import default_gates
from pytest_llmroof.gates.sources import path_from, there
from pytest_llmroof.gates.spec import WindowSpec
from pytest_llmroof.options import Given, settings
from pytest_llmroof.report.document import window_document
from pytest_llmroof.resolve import resolve
from pytest_llmroof.taken import Taken

Document = dict[str, Any]


@dataclass(frozen=True)
class Assessed:
    """A window's assessment, and the earlier reports that its breaches are compared with."""

    assessment: Assessment
    baselines: Baselines = field(default_factory=Baselines)

    @cached_property
    def document(self) -> Document:
        """Its document (exact builtins), made when a breach, a report or another process needs it."""
        document = window_document(self.assessment)
        if not self.baselines:
            return document
        from pytest_llmroof.baseline.change import with_change

        return with_change(document, self.assessment.deployment, self.baselines)


@dataclass(frozen=True)
class Levels:
    """What the command line and the ini file say about every window, checked."""

    command_line: WindowSpec
    ini: WindowSpec
    accelerators: Mapping[str, Mapping[str, object]]
    """Accelerators that other plugins and conftest files add, by name."""
    engines: Mapping[str, Mapping[str, object]]
    """Serving engines that they add, by key."""


#: Fields of a specification that an option or ini key gives, None where nobody does.
_OPTIONAL: Final = ("gpu", "model", "phase", "duration_seconds", "interval_seconds")
_ASSESSED: Final = pytest.StashKey[dict[str, Assessed]]()
_BASELINES: Final = pytest.StashKey[Baselines]()
_LEVELS: Final = pytest.StashKey[Levels]()


def assessed(config: pytest.Config, spec: WindowSpec, taken: Taken | None = None) -> Assessed:
    """The window's assessment: read, measured and judged when the first of its gates asks, and kept.

    ``taken`` is what was recorded around a load; without it a window of servers is recorded now, for its duration.
    """
    cache = config.stash.setdefault(_ASSESSED, {})
    found = cache.get(spec.id)
    if found is None:
        if asks(spec):
            from pytest_llmroof.moments import asked_once

            taken = asked_once(config, spec, taken)
        elif spec.sampled and taken is None:
            from pytest_llmroof import live

            taken = live.taken(config, spec)
        from pytest_llmroof.garbage import without_collections

        with without_collections():
            earlier = baselines(config)
            assessment = assess(spec, strict=settings(config).strict, taken=taken, baselines=earlier)
            found = cache[spec.id] = Assessed(assessment, earlier)
    return found


def baselines(config: pytest.Config) -> Baselines:
    """The earlier reports that were given; each is read once in a process, when a gate or a breach asks for it."""
    found = config.stash.get(_BASELINES, None)
    if found is None:
        root = config.rootpath
        places = [Place(path, _portable(path, shown, root)) for path, shown in settings(config).baselines]
        found = config.stash[_BASELINES] = Baselines(places)
    return found


def _portable(path: Path, shown: str, root: Path) -> str:
    """How reports call a path: as it was written, but without folders of this machine."""
    if not Path(shown).is_absolute():
        return shown
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name


def levels(config: pytest.Config) -> Levels:
    """Command line and ini file as specifications, checked like a gate file. ConfigError where they do not hold."""
    found = config.stash.get(_LEVELS, None)
    if found is None:
        options = settings(config)
        found = config.stash[_LEVELS] = Levels(
            _level(options.command_line), _level(options.ini), _accelerators(config), added_engines(config)
        )
    return found


def completed(config: pytest.Config, spec: WindowSpec) -> WindowSpec:
    """The specification with what the command line overrides and what the ini file adds, its names resolved once.

    ConfigError where a name or value is wrong: nothing was measured yet.
    """
    install(config)
    level = levels(config)
    spec = _filled(_overridden(_with_telemetry(spec, level), level.command_line), level.ini)
    if isinstance(spec.gpu, str) and spec.gpu in level.accelerators:
        spec = replace(spec, gpu={"name": spec.gpu, **level.accelerators[spec.gpu]})
    if level.engines:
        spec = replace(spec, engines=level.engines)
    resolve(spec)
    return spec


def with_default_gates(spec: WindowSpec) -> WindowSpec:
    """A window that names no gates, with the default ones of the phase that is written, or that its traffic shows.

    Only files are read: where a phase could only be known from servers, ConfigError asks for it.
    """
    phase = spec.phase if spec.phase or spec.live or not spec.telemetry else phase_of(spec)
    try:
        gates = default_gates(phase, spec.default_severity or "error")
    except ConfigError as error:
        found = "" if spec.phase or phase is None else "its traffic mixes prefill and decode: "
        raise ConfigError(f"{spec.name}: {found}{error.problem}", spec.positions.get("telemetry")) from None
    return replace(spec, gates=gates, phase=phase, default_severity=None)


def is_live(spec: WindowSpec) -> bool:
    """Whether measuring the window touches a network."""
    return any(source.kind != "path" for source in spec.telemetry)


def _level(given: Given) -> WindowSpec:
    """One level as a specification without gates; its positions say where each key was given."""
    keys = given.keys()
    if given.telemetry:
        keys["telemetry"] = [option_source(entry, given.where["telemetry"]) for entry in given.telemetry]
    spec = placed(lambda: window_spec(keys, id="llmroof", name="cli", base=given.base), given.where)
    return replace(spec, positions={key: Position(place) for key, place in given.where.items()})


def placed(specify: Callable[[], WindowSpec], where: Mapping[str, str]) -> WindowSpec:
    """The specification; its errors name the options that they are about, instead of the keys of a gate file."""
    try:
        return specify()
    except ConfigError as error:
        problems = error.errors if isinstance(error, ConfigErrors) else [error]
        raise ConfigErrors([ConfigError(_named(each.problem, where), each.position) for each in problems]) from None


def _named(problem: str, where: Mapping[str, str]) -> str:
    key, _, rest = problem.partition(": ")
    option = where.get(re.split(r"[.\[]", key, maxsplit=1)[0])
    if option is None or not rest:
        return problem
    within = key.partition(".")[2]
    return f"{option}: {within}: {rest}" if within else f"{option}: {rest}"


def option_source(entry: str, where: str) -> object:
    """A path or URL as it is; ``{...}`` as the mapping that a gate file would hold. ConfigError names ``where``."""
    if not entry.lstrip().startswith("{"):
        return entry
    from pytest_llmroof.gates.inline import inline_value

    try:
        return inline_value(entry)
    except ConfigError as error:
        # Without the entry itself: it may hold a token.
        raise ConfigError(f"{where}: not a mapping like {{url: ..., timeout: 10s}}: {error.problem}") from None


def _accelerators(config: pytest.Config) -> Mapping[str, Mapping[str, object]]:
    found: dict[str, Mapping[str, object]] = {}
    for mapping in config.hook.pytest_llmroof_accelerators(config=config):
        found.update(mapping)
    return found


def added_engines(config: pytest.Config) -> Mapping[str, Mapping[str, object]]:
    """Entries of engines from other plugins and conftest files. ConfigError where one is wrong."""
    found: dict[str, Mapping[str, object]] = {}
    for mapping in config.hook.pytest_llmroof_readers(config=config):
        found.update(mapping)
    if found:
        from pytest_llmroof.telemetry.engine_entries import with_engines

        try:
            with_engines(found)
        except ConfigError as error:
            raise ConfigError(f"pytest_llmroof_readers: {error.problem}") from None
    return found


def _with_telemetry(spec: WindowSpec, level: Levels) -> WindowSpec:
    """Where a window names no telemetry, that of the command line serves, else that of the ini file."""
    for source in (level.command_line, level.ini):
        if source.telemetry and not spec.telemetry and not spec.unset:
            spec = replace(spec, telemetry=source.telemetry)
    return spec


def _overridden(spec: WindowSpec, command_line: WindowSpec) -> WindowSpec:
    """The command line wins over what a gate file or marker says."""
    keys = [key for key in _OPTIONAL if key != "duration_seconds" or spec.live or spec.duration_seconds is None]
    changes: dict[str, Any] = _given(command_line, spec.base, keys)
    changes |= _fallback(changes, spec)
    if command_line.phase and spec.gates and all(gate.default for gate in spec.gates):
        changes["gates"] = default_gates(command_line.phase)
    if command_line.deployment:
        changes["deployment"] = {**spec.deployment, **command_line.deployment}
    if not changes:
        return spec
    places = {key: place for key, place in command_line.positions.items() if key in changes}
    places |= {f"deployment.{key}": command_line.positions["deployment"] for key in command_line.deployment}
    return replace(spec, **changes, positions={**spec.positions, **places})


def _filled(spec: WindowSpec, ini: WindowSpec) -> WindowSpec:
    """What neither command line nor gate file says comes from the ini file."""
    missing = [key for key in _OPTIONAL if getattr(spec, key) is None]
    changes: dict[str, Any] = _given(ini, spec.base, missing)
    changes |= _fallback(changes, spec)
    added = {key: value for key, value in ini.deployment.items() if key not in spec.deployment}
    places = {key: place for key, place in ini.positions.items() if key in changes}
    places |= {f"deployment.{key}": ini.positions["deployment"] for key in added}
    if added:
        changes["deployment"] = {**spec.deployment, **added}
    return replace(spec, **changes, positions={**spec.positions, **places}) if changes else spec


def _fallback(changes: Mapping[str, Any], spec: WindowSpec) -> dict[str, Any]:
    """An option's duration is one of live windows: files with a clock of their own have theirs."""
    return {"duration_fallback": True} if "duration_seconds" in changes and not spec.live else {}


def _given(source: WindowSpec, base: Path, keys: Iterable[str]) -> dict[str, Any]:
    """The named fields that ``source`` sets; files among them as seen from ``base``."""
    values = {key: getattr(source, key) for key in keys}
    return {key: _rebased(value, source.base, base) for key, value in values.items() if value is not None}


def _rebased(value: object, base: Path, other: Path) -> object:
    """A relative path that exists under ``base``, as it is written from ``other``; anything else unchanged."""
    if not isinstance(value, str):
        return value
    try:
        if not there(path_from(base, value)):
            return value
    except ConfigError:  # to be said where it is looked up
        return value
    return os.path.relpath(base / value, other)
