"""Gate files and command-line gates as pytest collects them: a file, a collector per window, an item per gate."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from pytest_llmroof.additions import install
from pytest_llmroof.breach import GateBreach, representation
from pytest_llmroof.bugs import bug_representation, is_bug
from pytest_llmroof.errors import ConfigError, ConfigErrors
from pytest_llmroof.gates.build import window_spec
from pytest_llmroof.gates.file import load_gate_file
from pytest_llmroof.gates.gate import Gate
from pytest_llmroof.gates.spec import WindowSpec
from pytest_llmroof.options import settings
from pytest_llmroof.outcomes import breach_of, publish
from pytest_llmroof.windows import assessed, completed, is_live, placed, with_default_gates

#: Node id of the collector of command-line gates, and so the first part of their own.
COMMAND_LINE: Final = "llmroof"


class GateFile(pytest.File):
    """One ``llmroof.yaml``: its windows, or all of its errors at once."""

    def collect(self) -> Iterator[pytest.Collector]:
        """A collector per window. Every wrong name or value of the file is found here; nothing is measured."""
        install(self.config)
        specs = load_gate_file(self.path, self.config.rootpath, partial(completed, self.config))
        self.add_marker("llmroof")
        for spec in _all_completed(self.config, specs):
            yield WindowNode.from_parent(self, name=spec.name, spec=spec)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Every problem with its position, without a traceback."""
        if isinstance(excinfo.value, ConfigError):
            return _collection_error(self, excinfo.value)
        return _bug(self, excinfo) or super().repr_failure(excinfo)


class WindowNode(pytest.Collector):
    """One window. Its marks are those of all its gates."""

    def __init__(self, *, spec: WindowSpec, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.spec = spec
        if spec.phase:
            self.add_marker(spec.phase)
        mark_live(self, spec)

    def collect(self) -> Iterator[pytest.Item]:
        """An item per gate."""
        for index, gate in enumerate(self.spec.gates):
            yield GateItem.from_parent(self, name=gate.name, spec=self.spec, gate=gate, index=index)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """A mistake of ours, in a sentence."""
        return _bug(self, excinfo) or super().repr_failure(excinfo)


class CommandLineGates(pytest.Collector):
    """The gates of the command line: one window, ``cli``, added to whatever else is collected."""

    def collect(self) -> Iterator[pytest.Item]:
        """An item per gate, or per default gate of the phase where only telemetry was given."""
        self.add_marker("llmroof")
        spec = command_line_spec(self.config)
        if spec.phase:
            self.add_marker(spec.phase)
        mark_live(self, spec)
        for index, gate in enumerate(spec.gates):
            yield GateItem.from_parent(self, name=gate.name, spec=spec, gate=gate, index=index)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """A problem of the options, without a traceback."""
        if isinstance(excinfo.value, ConfigError):
            return _collection_error(self, excinfo.value)
        return _bug(self, excinfo) or super().repr_failure(excinfo)


class GateItem(pytest.Item):
    """One gate as a test."""

    def __init__(self, *, spec: WindowSpec, gate: Gate, index: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.spec = spec
        self.gate = gate
        self.index = index
        if gate.id:
            self.extra_keyword_matches.add(gate.id)
        if gate.severity == "warn":
            self.add_marker(pytest.mark.llmroof_gate(severity="warn"))

    def runtest(self) -> None:
        """Judge the gate; its window is measured when the first of its gates runs."""
        window = assessed(self.config, self.spec)
        verdict = window.assessment.verdicts[self.index]
        breach = publish(self.config, self.spec.id, window, [self.index])
        self.user_properties[:] = [pair for pair in self.user_properties if not pair[0].startswith("llmroof.")]
        self.user_properties.append(("llmroof.verdict", verdict.word))
        if verdict.value is not None and verdict.limit is not None:
            # Exact builtins: anything else ends a run under pytest-xdist.
            found, limit = ("llmroof.value", float(verdict.value)), ("llmroof.limit", float(verdict.limit))
            self.user_properties += (found, limit)
        if breach:
            raise breach_of(self.config, window, breach)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """What was found, why, and what to do; no traceback."""
        if isinstance(excinfo.value, GateBreach):
            path, line, _name = self.reportinfo()
            shown = _relative(path, self.config.rootpath)
            return representation(excinfo.value.text, excinfo.value.headline, shown, (line or 0) + 1)
        return _bug(self, excinfo) or super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """File and line of the gate. The title must not end the node id: pytest would rewrite its dots."""
        line = self.gate.position.line if self.gate.position else 0
        return self.path, line - 1 if line else None, f"{self.spec.name}: {self.name}"


def mark_live(node: pytest.Collector, spec: WindowSpec) -> None:
    """Marks of a window that touches a network; whichever gate runs first waits for all of it."""
    if not is_live(spec):
        return
    node.add_marker("llmroof_live")
    if spec.sampled and node.config.pluginmanager.hasplugin("timeout"):
        from pytest_llmroof.live import timeout_seconds

        node.add_marker(pytest.mark.timeout(timeout_seconds(spec)))


def command_line_spec(config: pytest.Config) -> WindowSpec:
    """The window ``cli``. ConfigError where an expression or option is wrong."""
    install(config)
    options = settings(config)
    given = options.command_line
    keys: dict[str, object] = {"gates": list(options.gates)} if options.gates else {}
    spec = placed(lambda: window_spec(keys, id=COMMAND_LINE, name="cli", base=given.base), given.where)
    spec = completed(config, spec)
    if options.gates:
        return spec
    try:
        return with_default_gates(spec)
    except ConfigError:
        if not spec.live:
            raise
        raise ConfigError("--llmroof-telemetry alone needs a phase for its default gate: add --llmroof-phase=decode or "
                          "--llmroof-phase=prefill, or gates of your own (--llmroof-gate='ttft.p99 <= 2s')") from None


def wants_command_line(config: pytest.Config) -> bool:
    """Whether the command line asks for a window of its own."""
    options = settings(config)
    return bool(options.gates or options.command_line.telemetry)


def _all_completed(config: pytest.Config, specs: tuple[WindowSpec, ...]) -> list[WindowSpec]:
    """Every window with the options applied, or all errors of the file."""
    done: list[WindowSpec] = []
    errors: list[ConfigError] = []
    for spec in specs:
        try:
            spec = completed(config, spec)
            done.append(with_default_gates(spec) if spec.default_severity else spec)
        except ConfigErrors as error:
            errors.extend(error.errors)
        except ConfigError as error:
            errors.append(error)
    if errors:
        # What stands at the head of a file is wrong for each of its windows: say it once.
        distinct = list({str(error): error for error in errors}.values())
        raise distinct[0] if len(distinct) == 1 else ConfigErrors(distinct)
    return done


def _bug(node: pytest.Item | pytest.Collector, excinfo: pytest.ExceptionInfo[BaseException]) -> Any:
    """A mistake of ours in a sentence; None for anything else, and where the whole traceback was asked for."""
    if node.config.option.fulltrace or not is_bug(excinfo.value):
        return None
    line = (node.reportinfo()[1] or 0) + 1 if isinstance(node, pytest.Item) else 0
    return bug_representation(node, excinfo.value, line)


def _collection_error(node: pytest.Collector, error: ConfigError) -> Any:
    text = str(error)
    if hasattr(node.config, "workerinput"):
        # The controller drops the same error of a second worker only where both are plain text.
        return text
    first = error.errors[0] if isinstance(error, ConfigErrors) and error.errors else error
    more = f" (+{len(error.errors) - 1} more)" if isinstance(error, ConfigErrors) and len(error.errors) > 1 else ""
    line = first.position.line if first.position else 0
    return representation(text, f"{first.problem}{more}", _relative(node.path, node.config.rootpath), line)


def _relative(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
