"""The marks ``llmroof`` and ``llmroof_gate``: what they say, merged, and the gates that they put on a test's body."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import pytest

from pytest_llmroof.additions import install
from pytest_llmroof.asked import frames
from pytest_llmroof.bugs import watch
from pytest_llmroof.errors import ConfigError, ConfigErrors, Position
from pytest_llmroof.gates.assessment import Assessment
from pytest_llmroof.gates.build import window_spec
from pytest_llmroof.gates.gate import Gate
from pytest_llmroof.gates.grammar import parse_gate
from pytest_llmroof.gates.spec import WindowSpec
from pytest_llmroof.gates.verdict import Verdict
from pytest_llmroof.items import GateItem
from pytest_llmroof.near import did_you_mean
from pytest_llmroof.outcomes import breach_of, publish
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.taken import Taken
from pytest_llmroof.windows import Assessed, assessed, completed

_GATE_KEYWORDS: Final = ("severity", "id", "why", "labels")


def marked_spec(item: pytest.Item) -> WindowSpec:
    """The window that a test's marks describe, with its gates. ConfigError where they do not hold."""
    install(item.config)
    path, line, _name = item.location
    at_test = Position(path, (line or 0) + 1)
    gates = gates_of(item.iter_markers("llmroof_gate"))
    return spec_of(item.config, marked_keys(item), tuple(replace(gate, position=at_test) for gate in gates), item)


def marked_keys(item: pytest.Item) -> dict[str, Any]:
    """The keys of a test's window. Marks of module, class and function merge; the closest wins per key."""
    keys: dict[str, Any] = {}
    for mark in reversed(list(item.iter_markers("llmroof"))):
        if mark.args:
            raise ConfigError(f"@pytest.mark.llmroof takes keywords only, like telemetry=[...], not {mark.args[0]!r}")
        keys.update(mark.kwargs)
    return keys


def mark_live_tests(items: Iterable[pytest.Item]) -> None:
    """Mark the tests whose window is a server's. What is wrong with a test's marks is told when it runs."""
    for item in items:
        with suppress(ConfigError):
            if probes(item) or marked_spec(item).live:
                item.add_marker("llmroof_live")


def probes(item: pytest.Item) -> bool:
    """Whether a test makes its load with ``llmroof_probe``."""
    return "llmroof_probe" in getattr(item, "fixturenames", ())


def spec_of(config: pytest.Config, keys: dict[str, Any], gates: tuple[Gate, ...], item: pytest.Item) -> WindowSpec:
    """A test's window from the keys of a gate file; paths are relative to the test's file."""
    spec = window_spec(keys, id=item.nodeid, name=item.name, base=item.path.parent)
    # Default gates belong to gate files: a marked helper test is not gated by surprise.
    return completed(config, replace(spec, gates=gates))


def gates_of(marks: Iterable[pytest.Mark]) -> tuple[Gate, ...]:
    """The gates of some ``llmroof_gate`` marks, outermost first, each once. ConfigError for a wrong one."""
    found = {(gate.name, gate.severity): gate for mark in reversed(list(marks)) for gate in gates_of_mark(mark)}
    return tuple(found.values())


def gates_of_mark(mark: pytest.Mark) -> list[Gate]:
    """The gates of one mark."""
    return parsed(mark.args, "@pytest.mark.llmroof_gate", **mark.kwargs)


def parsed(expressions: tuple[object, ...], where: str, **keywords: Any) -> list[Gate]:
    """Gates from expressions and keywords, as the mark and ``check()`` take them. ConfigError for a wrong one."""
    for name in keywords:
        if name not in _GATE_KEYWORDS:
            hint = did_you_mean(name, _GATE_KEYWORDS)
            raise ConfigError(f"{where} takes {', '.join(_GATE_KEYWORDS)}, not {name}={hint}")
    if not expressions:
        raise ConfigError(f"{where} needs an expression, like 'decode.mbu >= 75%'")
    if len(expressions) > 1 and keywords.keys() & {"id", "why"}:
        raise ConfigError(f"{where}: id= and why= need exactly one expression, not {len(expressions)}")
    if keywords.get("severity", "error") not in ("error", "warn"):
        raise ConfigError(f"{where}: severity= is 'error' or 'warn', not {keywords['severity']!r}")
    labels = keywords.get("labels") or {}
    if not (isinstance(labels, Mapping) and all(isinstance(one, str) for pair in labels.items() for one in pair)):
        raise ConfigError(f"{where}: labels= maps names to texts, like {{'branch': 'main'}}, not {labels!r}")
    for expression in expressions:
        if not isinstance(expression, str):
            raise ConfigError(f"{where} takes expressions as text, not {expression!r}")
    return [parse_gate(str(expression), **keywords) for expression in expressions]


def validate(metafunc: pytest.Metafunc) -> None:
    """Refuse a test with a wrong mark when it is collected, before anything runs."""
    item, problem = metafunc.definition, None
    try:
        marked_spec(item)
    except ConfigError as error:
        problem = _at_test(item, error)
    if problem is not None:  # not while the error is handled: pytest would show both
        pytest.fail(problem, pytrace=False)


def _at_test(item: pytest.Item, error: ConfigError) -> str:
    """Every problem of a test's marks with the test's file, line and name."""
    path, line, _name = item.location
    problems = error.errors if isinstance(error, ConfigErrors) and error.errors else [error]
    return "\n".join(f"{path}:{(line or 0) + 1}: {item.name}: {each}" for each in problems)


def judged_body(item: pytest.Item) -> Generator[None, object, object]:
    """Run a test's body, then judge the gates of its marks, all of them; one failure lists every breach."""
    if isinstance(item, GateItem):
        return (yield)
    watch(item.config)
    spec: WindowSpec | None = None
    try:
        spec = marked_spec(item)
    except ConfigError as error:
        problem = _at_test(item, error)
    if spec is None:
        # Marks of a parameter or of a TestCase's method are not seen when tests are generated.
        pytest.fail(problem, pytrace=False)
    if probes(item):
        return (yield from _judged_probe(item, spec))
    end, abandon = _opened(item, spec)
    try:
        result = yield
    except BaseException:  # an interrupt, too, and pytest's own fail and skip
        abandon()
        _not_judged(item, spec, "the test did not get to its end")
        raise
    if getattr(item, "_excinfo", None):
        # A TestCase keeps the failure of its body to itself until the report is made.
        abandon()
        _not_judged(item, spec, "the test did not get to its end")
        return result
    judge_all(item, assessed(item.config, spec, end()))
    return result


def _judged_probe(item: pytest.Item, spec: WindowSpec) -> Generator[None, object, object]:
    """The same where the body makes its load with ``llmroof_probe``: the probe's window is the one that is meant."""
    try:
        result = yield
    except BaseException:  # an interrupt, too, and pytest's own fail and skip
        _not_judged(item, spec, "the test did not get to its end")
        raise
    from pytest_llmroof.probing import judged_probe

    judge_all(item, judged_probe(item, spec))
    return result


def _opened(item: pytest.Item, spec: WindowSpec) -> tuple[Callable[[], Taken | None], Callable[[], None]]:
    """Open the window of a test's body, where its telemetry is a server's: how to end it well, and how otherwise."""
    if not frames(spec):
        return lambda: None, lambda: None
    from pytest_llmroof.live import Frame, framed

    # The length that the marks ask for; the option's default would dilute a short load with idle time.
    least = spec.duration_seconds if "duration" in marked_keys(item) else None
    frame = Frame(item.config, spec, least or 0.0)
    frame.open()

    def end() -> Taken | None:
        frame.close()
        return framed(item.config, spec)

    return end, frame.abandon


def judge_all(item: pytest.Item, window: Assessed) -> None:
    """Publish all gates of a test's window. GateBreach where some do not hold."""
    verdicts = window.assessment.verdicts
    item.user_properties[:] = [pair for pair in item.user_properties if not pair[0].startswith("llmroof.")]
    item.user_properties += [("llmroof.gate", f"{verdict.gate.canonical}: {verdict.word}") for verdict in verdicts]
    breach = publish(item.config, f"{item.nodeid}::marks", window, range(len(verdicts)))
    if breach:
        raise breach_of(item.config, window, breach)


def _not_judged(item: pytest.Item, spec: WindowSpec, reason: str) -> None:
    verdicts = tuple(Verdict(gate, "not judged", None, because=reason) for gate in spec.gates)
    assessment = Assessment(spec, Deployment(), None, {}, verdicts, failure=reason)
    publish(item.config, f"{item.nodeid}::unjudged", Assessed(assessment), range(len(spec.gates)))
