"""Entries of engines: checked where somebody else wrote them, and listed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from pytest_llmroof.errors import ConfigError
from pytest_llmroof.near import did_you_mean
from pytest_llmroof.telemetry.engines import EngineNames, known_engines
from pytest_llmroof.telemetry.quantities import COUNTERS, GAUGES, HISTOGRAMS

_KEYS: Final = frozenset({
    "title", "versions", "prefixes", "labels", "conventions", "work", "counters", "histograms", "gauges", "finished",
    "derived", "zero_means_off", "facts", "unused", "unused_families", "absent_until_fed", "server_wide", "beside",
    "records", "cannot", "from_start", "agree", "begun", "always", "split",
})  # fmt: skip
_QUANTITIES: Final[Mapping[str, frozenset[str]]] = {"counters": COUNTERS, "histograms": HISTOGRAMS, "gauges": GAUGES}
_NAME_KEYS: Final = frozenset({"name", "where", "scale", "part", "combine", "disabled", "whole", "times"})
_LABEL_ROLES: Final = frozenset({
    "model", "rank", "replica", "process", "repeats", "own", "tensor_ranks", "pipeline_ranks", "expert_ranks",
})  # fmt: skip
#: What a list of engines says that they give, in this order.
_GIVEN: Final[Mapping[str, tuple[str, ...]]] = {
    "ttft": ("ttft",),
    "itl": ("itl",),
    "tpot": ("tpot",),
    "e2e": ("e2e",),
    "queue": ("queue",),
    "decode steps": ("itl", "decode_step_seconds", "decode_seconds", "decode_time"),
    "batch by steps": ("steps", "decode_steps"),
    "kv cache": ("kv_usage",),
    "prefix hits": ("prefix_hits", "prompt_tokens_cached", "prefix_hit_rate"),
    "speculation": ("draft_steps", "accept_length"),
    "idle time": ("forward_seconds",),
}


def engine_from_mapping(key: str, mapping: Mapping[str, object]) -> EngineNames:
    """An engine that somebody else describes. ConfigError where the description is wrong, with what is."""
    where = f"engine {key!r}"
    if not isinstance(mapping, Mapping):
        raise ConfigError(f"{where}: a mapping is needed, as in data/engines.yaml")
    _known(where, mapping, _KEYS)
    prefixes = mapping.get("prefixes")
    if not _texts(prefixes) or not prefixes:
        raise ConfigError(f"{where}: prefixes: a list of what stands in front of every name is needed")
    labels = mapping.get("labels", {})
    if not isinstance(labels, Mapping) or not all(_texts(names) for names in labels.values()):
        raise ConfigError(f"{where}: labels: each role needs a list of labels")
    _known(f"{where}: labels", labels, _LABEL_ROLES)
    for kind, quantities in _QUANTITIES.items():
        _check_names(f"{where}: {kind}", mapping.get(kind, {}), quantities)
    if not any(mapping.get(kind) for kind in _QUANTITIES):
        raise ConfigError(f"{where}: counters, histograms or gauges are needed")
    return EngineNames(key, {"title": key, "versions": "", **mapping})


def with_engines(added: Mapping[str, Mapping[str, object]]) -> Mapping[str, EngineNames]:
    """The engines of the catalogue and those added, which win."""
    if not added:
        return known_engines()
    return {**known_engines(), **{key: engine_from_mapping(key, entry) for key, entry in added.items()}}


def engine_listing(engines: Mapping[str, EngineNames] | None = None) -> Mapping[str, str]:
    """What ``--llmroof-list=engines`` prints: key -> title, versions, names, what it gives and what it cannot tell."""
    return {key: "; ".join(_listed(engine)) for key, engine in (engines or known_engines()).items()}


def _listed(engine: EngineNames) -> Iterator[str]:
    yield f"{engine.title} {engine.entry['versions']}".strip()
    yield f"metrics {', '.join(prefix + '*' for prefix in engine.prefixes)}"
    quantities = {quantity for kind in _QUANTITIES for quantity in engine.entry.get(kind, ())}
    given = [what for what, needed in _GIVEN.items() if quantities & set(needed)]
    yield f"gives {', '.join(given) or 'counters only'}"
    if engine.cannot:
        yield f"cannot tell {', '.join(engine.cannot)}"


def _check_names(where: str, names: object, quantities: Iterable[str]) -> None:
    if not isinstance(names, Mapping):
        raise ConfigError(f"{where}: a mapping of quantities to names is needed")
    _known(where, names, quantities)
    for quantity, specs in names.items():
        if not isinstance(specs, list | tuple) or not specs:
            raise ConfigError(f"{where}: {quantity}: a list of names is needed, the preferred one first")
        for spec in specs:
            if isinstance(spec, Mapping):
                _known(f"{where}: {quantity}", spec, _NAME_KEYS)
                spec = spec.get("name")
            if not isinstance(spec, str) or not spec:
                raise ConfigError(f"{where}: {quantity}: a name is a text, or a mapping with `name`")


def _known(where: str, names: Iterable[object], known: Iterable[str]) -> None:
    known = sorted(known)
    for name in names:
        if name not in known:
            near = did_you_mean(str(name), known)
            raise ConfigError(f"{where}: unknown key {name!r}{near or ' (known: ' + ', '.join(known) + ')'}")


def _texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(text, str) for text in value)
