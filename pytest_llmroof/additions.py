"""What other plugins and conftest files add through hooks, checked and put in place before the first gate is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, get_args

import pytest

from pytest_llmroof import extend
from pytest_llmroof.analysis.added_scenarios import AddedRemedy, AddedScenario, set_scenarios
from pytest_llmroof.analysis.metrics import PACKAGED, Metric, set_added
from pytest_llmroof.analysis.scenarios import LETTERS
from pytest_llmroof.errors import ConfigError
from pytest_llmroof.foreign import Raised, called
from pytest_llmroof.gates.grammar import parse_expression
from pytest_llmroof.near import did_you_mean
from pytest_llmroof.resolve.modelfile import forget_models
from pytest_llmroof.roofline.models.added import AddedArchitecture, architecture_from_entry, set_architectures
from pytest_llmroof.units import UNITS, Unit

_METRICS: Final = "pytest_llmroof_metrics"
_ARCHITECTURES: Final = "pytest_llmroof_architectures"
_SCENARIOS: Final = "pytest_llmroof_scenarios"
#: Keys of scenarios of other plugins: never a letter.
_KEY: Final = re.compile(r"[A-Z][A-Z0-9-]{1,19}")
_NAME: Final = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+")
_UNIT: Final[Mapping[str, Unit]] = {unit: unit for unit in get_args(Unit)}
#: How many implementations of each hook were asked; conftest files of folders come later than plugins.
_ASKED: Final = pytest.StashKey[dict[str, int]]()


def install(config: pytest.Config) -> None:
    """Know what other plugins add until the session ends. ConfigError where it is wrong; names the plugin."""
    asked = config.stash.get(_ASKED, None)
    if asked is None:
        asked = config.stash[_ASKED] = dict.fromkeys(_ADD, 0)
        config.add_cleanup(_forget)
    for hook, add in _ADD.items():
        count = len(getattr(config.hook, hook).get_hookimpls())
        if count != asked[hook]:
            add(config)
            asked[hook] = count


def _add_metrics(config: pytest.Config) -> None:
    found: dict[str, Metric] = {}
    for plugin, given in implementations(config, _METRICS):
        for name, metric in _metrics_of(plugin, given).items():
            if name in found:
                both = f"{found[name].plugin} and {plugin}"
                raise ConfigError(f"{_METRICS}: {both} both add a metric {name!r}: rename one")
            found[name] = metric
    _know(found)


def _add_architectures(config: pytest.Config) -> None:
    found: dict[str, AddedArchitecture] = {}
    for plugin, given in implementations(config, _ARCHITECTURES):
        where = f"{_ARCHITECTURES}: {plugin}"
        for kind, entry in _mapping(where, given, "model types to entries").items():
            if kind in found:
                both = f"{found[kind].plugin} and {plugin}"
                raise ConfigError(f"{_ARCHITECTURES}: {both} both add the model type {kind!r}: leave one of them out")
            try:
                found[str(kind)] = architecture_from_entry(entry, plugin)
            except ConfigError as error:
                raise ConfigError(f"{where}: {kind!r}: {error.problem}") from None
    set_architectures(found)
    forget_models()


def _add_scenarios(config: pytest.Config) -> None:
    scenarios: dict[str, AddedScenario] = {}
    remedies: list[AddedRemedy] = []
    for plugin, given in implementations(config, _SCENARIOS):
        where = f"{_SCENARIOS}: {plugin}"
        for key, entry in _mapping(where, given, "keys to Scenario").items():
            if key in LETTERS:
                remedies += [AddedRemedy(key, one, plugin) for one in _remedies(f"{where}: {key!r}", entry)]
                continue
            if key in scenarios:
                both = f"{scenarios[key].plugin} and {plugin}"
                raise ConfigError(f"{_SCENARIOS}: {both} both add a scenario {key!r}: rename one")
            scenarios[key] = AddedScenario(key, _scenario(f"{where}: {key!r}", key, entry), plugin)
    set_scenarios(tuple(scenarios.values()), tuple(remedies))


def _scenario(where: str, key: object, entry: object) -> extend.Scenario:
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        raise ConfigError(f"{where}: a key is a letter of {', '.join(LETTERS)}, or capitals like 'LAB-NUMA'")
    if not isinstance(entry, extend.Scenario):
        raise ConfigError(f"{where}: expected a Scenario of pytest_llmroof.extend, not {type(entry).__name__}")
    _phrases(where, title=entry.title, words=entry.words)
    if not callable(entry.condition):
        raise ConfigError(f"{where}: condition: expected a function, not {type(entry.condition).__name__}")
    _remedies(where, entry.remedies)
    return entry


def _remedies(where: str, given: object) -> list[extend.Remedy]:
    if not isinstance(given, list | tuple) or not all(isinstance(one, extend.Remedy) for one in given):
        raise ConfigError(f"{where}: expected a list of Remedy of pytest_llmroof.extend, not {given!r}")
    for one in given:
        _phrases(f"{where}: remedy", title=one.title, detail=one.detail)
        if not isinstance(one.effect, str) or not (one.applies is None or callable(one.applies)):
            raise ConfigError(f"{where}: remedy {one.title!r}: effect is a phrase, applies a function or None")
    return list(given)


def _phrases(where: str, **phrases: object) -> None:
    for name, phrase in phrases.items():
        if not (isinstance(phrase, str) and phrase.strip() and phrase.isprintable()):
            raise ConfigError(f"{where}: {name}: expected a phrase, not {phrase!r}")


def _forget() -> None:
    """Leave the process as it was found: another session may follow in it."""
    _know({})
    set_scenarios((), ())
    set_architectures({})
    forget_models()


def implementations(config: pytest.Config, hook: str) -> Iterator[tuple[str, Any]]:
    """What each implementation of a hook gives, with the plugin that did. ConfigError where it raises."""
    manager = config.pluginmanager
    plugins = list(dict.fromkeys(each.plugin for each in getattr(config.hook, hook).get_hookimpls()))
    for plugin in plugins:
        name = _called(config, manager.get_name(plugin) or repr(plugin))
        alone = manager.subset_hook_caller(hook, [other for other in plugins if other is not plugin])
        results = called(alone, config=config)
        if isinstance(results, Raised):
            raise ConfigError(f"{hook}: {name} raised {results.said} (line {results.line})")
        for given in results:
            yield name, given


def _know(metrics: Mapping[str, Metric]) -> None:
    set_added(metrics)
    parse_expression.cache_clear()


def _called(config: pytest.Config, name: str) -> str:
    """A plugin as messages name it: the path of a conftest file from the root."""
    path = Path(name)
    return path.relative_to(config.rootpath).as_posix() if path.is_relative_to(config.rootpath) else path.name


def _metrics_of(plugin: str, given: object) -> dict[str, Metric]:
    where = f"{_METRICS}: {plugin}"
    metrics = _mapping(where, given, "names to Metric")
    return {str(name): _metric(f"{where}: {name!r}", plugin, name, metric) for name, metric in metrics.items()}


def _mapping(where: str, given: object, of: str) -> Mapping[Any, Any]:
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where} gave {type(given).__name__}: expected a mapping of {of}")
    return given


def _metric(where: str, plugin: str, name: object, metric: object) -> Metric:
    """One metric of a plugin, as gates know it."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(f"{where}: a name is words in lower case joined by dots, like 'lab.joules_per_token'")
    head = name.partition(".")[0]
    if head in PACKAGED:
        own = f"names that begin with {head!r} are pytest-llmroof's own"
        raise ConfigError(f"{where}: {own}: begin with a word of your plugin's")
    if not isinstance(metric, extend.Metric):
        raise ConfigError(f"{where}: expected a Metric of pytest_llmroof.extend, not {type(metric).__name__}")
    unit = _UNIT.get(str(metric.unit))
    if unit is None:
        hint = did_you_mean(str(metric.unit), UNITS)
        raise ConfigError(f"{where}: unknown unit {metric.unit!r}{hint}: one of {', '.join(UNITS)}")
    if not (isinstance(metric.meaning, str) and metric.meaning.strip() and metric.meaning.isprintable()):
        raise ConfigError(f"{where}: meaning: expected a phrase that says what the figure is, not {metric.meaning!r}")
    if not callable(metric.measure):
        raise ConfigError(f"{where}: measure: expected a function of a WindowView, not {type(metric.measure).__name__}")
    families, needs = get_args(extend.Family), get_args(extend.Need)
    if metric.family not in families:
        raise ConfigError(f"{where}: family: expected one of {', '.join(families)}, not {metric.family!r}")
    asked: object = metric.needs
    if not isinstance(asked, tuple | list) or any(need not in needs for need in asked):
        raise ConfigError(f"{where}: needs: expected a tuple of {', '.join(needs)}, not {metric.needs!r}")
    return Metric(
        name=name,
        unit=unit,
        meaning=metric.meaning,
        family=metric.family,
        needs=tuple(need for need in needs if need in asked),
        measure=metric.measure,
        plugin=plugin,
    )


_ADD: Final[Mapping[str, Callable[[pytest.Config], None]]] = {
    _METRICS: _add_metrics, _ARCHITECTURES: _add_architectures, _SCENARIOS: _add_scenarios,
}  # fmt: skip
