"""What a run comes to: gates gathered from reports, where the user is. Light until a gate is met."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pytest

from pytest_llmroof.options import settings

if TYPE_CHECKING:
    from pytest_llmroof.outcomes import Payload

Document = dict[str, Any]

#: Names of the fixtures that make a test one of ours.
FIXTURES: Final = frozenset(("llmroof", "llmroof_factory", "llmroof_gpu", "llmroof_probe"))
#: Under which key a worker tells the controller what it collected.
_WORKER_KEY: Final = "llmroof"


class Hooks:
    """Shows its hooks and nothing else where pytest looks through all attributes of what is registered.

    Pytest looks for hooks and for fixtures, and what it does with each name was most of what an unused plugin cost.
    """

    def __dir__(self) -> list[str]:
        return [name for name in type(self).__dict__ if name.startswith("pytest_")]


class Collected(Hooks):
    """Which gates a process collected and deselected, by node id; a worker hands them to the controller."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.selected: dict[str, None] = {}
        self.deselected: dict[str, None] = {}
        self.any = False
        """Whether anything here concerns gates, tests that only read measurements included."""

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """What will run."""
        self.selected |= dict.fromkeys(item.nodeid for item in gated(session.items))
        if _must_have_gates(self.config) and not self.any:
            self.any = bool(self.selected or self.deselected) or any(map(_reads_measurements, session.items))

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """What will not."""
        self.deselected |= dict.fromkeys(item.nodeid for item in gated(items))
        self.any = self.any or any(map(_reads_measurements, items))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Tell the controller, from a worker."""
        output = getattr(self.config, "workeroutput", None)
        if output is not None:
            output[_WORKER_KEY] = {
                "selected": list(self.selected), "deselected": list(self.deselected), "any": self.any,
            }  # fmt: skip


class Aggregator(Hooks):
    """The account of all gates, registered where the user is (not in workers).

    ``windows`` holds every window (or its document) by the key it travelled under; ``gates`` the judged gates of each
    phase of a test as (key, index); the last report of a phase wins, whichever worker it came from.
    """

    def __init__(self, config: pytest.Config, collected: Collected) -> None:
        self.config = config
        self.collected = collected
        self.windows: dict[str, Any] = {}
        self.gates: dict[tuple[str, str], tuple[tuple[str, int], ...]] = {}
        self.stopped: dict[str, str] = {}
        self.other_failures = False
        self.document: Document | None = None
        self.messages: list[str] = []
        self.session: pytest.Session | None = None

    # What comes in.

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what a report carries."""
        payload: Payload | None = report.__dict__.get("_llmroof")
        if payload is None:
            if not report.passed and report.when != "teardown":
                self.stopped[report.nodeid] = _reason(report)
            self.other_failures = self.other_failures or report.failed
            return
        self.windows.update(payload["windows"])
        if report.outcome in ("passed", "failed", "skipped"):
            self.gates[report.nodeid, str(report.when)] = payload["gates"]
            self.other_failures = self.other_failures or (report.failed and not payload["breach"])
        if payload["word"] is None:
            # Pytest keeps every report to the end; what was read of it need not stay with it.
            del report.__dict__["_llmroof"]

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.CollectReport | pytest.TestReport) -> Any:
        """The word of an unmeasured or warned gate; pytest's own for everything else."""
        payload: Payload | None = report.__dict__.get("_llmroof")
        if payload is None or payload["word"] is None:
            return None
        if report.failed and report.when == "call":
            return "failed", "F", (payload["word"].upper(), {"red": True})
        if report.passed and payload["word"] == "warned":
            return "warned", "w", ("WARNED", {"yellow": True})
        return None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that could not be collected is a failure that no measurement mends."""
        self.other_failures = self.other_failures or report.failed

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """What a worker collected."""
        told = getattr(node, "workeroutput", {}).get(_WORKER_KEY)
        if told:
            self.collected.selected |= dict.fromkeys(told["selected"])
            self.collected.deselected |= dict.fromkeys(told["deselected"])
            self.collected.any = self.collected.any or told["any"]

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Gates of files and of the command line, known by name even where a worker dies before it can tell more."""
        self.collected.selected |= dict.fromkeys(filter(_is_gate, ids))

    # What goes out.

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write the reports, and settle the exit code. No report of an earlier run is left where one was asked for."""
        self.session = session
        concerned = self.concerned or any(path.exists() for path in settings(self.config).reports)
        if concerned and not self.config.option.collectonly and self._has_reader(exitstatus):
            self._guarded(lambda: self._write(session))
        if session.exitstatus != pytest.ExitCode.INTERNAL_ERROR:
            self._settle(session, exitstatus)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what came out, where there is something to say."""
        if self.document is not None:
            from pytest_llmroof.account import print_summary

            document = self.document
            self._guarded(lambda: print_summary(terminalreporter, document))
            if self._published:
                from pytest_llmroof.github import workflow_commands

                for command in workflow_commands(self.config, self.document):
                    terminalreporter.write_line(command)
        if settings(self.config).record is not None:
            from pytest_llmroof.rundir import kept_recordings

            for recording in kept_recordings(self.config):
                terminalreporter.write_line(f"llmroof: recorded {recording}")
        for message in self.messages:
            terminalreporter.write_line(message, red=True)

    @property
    def concerned(self) -> bool:
        """Whether any gate was met."""
        return bool(self.windows or self.collected.selected or self.collected.deselected)

    def _has_reader(self, exitstatus: int) -> bool:
        """Whether anybody will see the account: a quiet run whose gates all pass says nothing."""
        hook = self.config.hook.pytest_llmroof_report
        asked = settings(self.config).reports or self._published or hook.get_hookimpls()
        return bool(asked or self.config.get_verbosity() >= 0 or exitstatus != pytest.ExitCode.OK)

    @property
    def _published(self) -> bool:
        """Whether GitHub is told: it runs this, and the command line has an option that concerns gates."""
        here = os.environ.get("GITHUB_STEP_SUMMARY") or os.environ.get("GITHUB_ACTIONS")
        return bool(here) and bool(settings(self.config).asked)

    def _write(self, session: pytest.Session) -> None:
        from pytest_llmroof.account import account, write_reports

        self.document = account(self)
        self.config.hook.pytest_llmroof_report(config=self.config, report=self.document)
        self.messages += write_reports(self.config, self.document)
        if self.messages:
            session.exitstatus = pytest.ExitCode.USAGE_ERROR
        if self._published:
            from pytest_llmroof.github import append_summary

            self.messages += append_summary(self.document)

    def _guarded(self, account_for: Callable[[], None]) -> None:
        """A mistake of ours in accounting is one sentence, and no run of it green.

        No report of an earlier run is left to stand in for this one's.
        """
        try:
            account_for()
        except Exception as error:  # a mistake has no type of its own
            from pytest_llmroof.bugs import is_bug, sentence

            if self.config.option.fulltrace or not is_bug(error):
                raise
            if self.session is not None:
                self.session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
            self.messages.append(f"ERROR: the account of this run could not be made: {sentence(error)}")
            if self.document is None:
                for path in settings(self.config).reports:
                    path.unlink(missing_ok=True)

    def _settle(self, session: pytest.Session, exitstatus: int) -> None:
        """Exit codes: no gate collected is not green; nothing but unmeasured gates has a code of its own."""
        green = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        if _must_have_gates(self.config) and exitstatus in green and not (self.concerned or self.collected.any):
            from pytest_llmroof.misses import no_gate_message

            self.messages.append(no_gate_message(self.config))
            session.exitstatus = pytest.ExitCode.USAGE_ERROR
        elif session.exitstatus == pytest.ExitCode.TESTS_FAILED and self.document and not self.other_failures:
            summary = self.document["summary"]
            unmeasured = summary["no data"] + summary["inconclusive"] + summary["impossible"]
            if unmeasured and not summary["fail"]:
                session.exitstatus = settings(self.config).unmeasured_exit


def gated(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """The items that are gates, or tests with gates on their body. One look per parent and per item's own marks."""
    ours = sys.modules.get("pytest_llmroof.items")
    kinds: tuple[type, ...] = (ours.GateItem,) if ours else ()
    by_parent: dict[int, bool] = {}
    for item in items:
        parent = item.parent
        inherited = by_parent.get(id(parent))
        if inherited is None:
            marked = parent is not None and parent.get_closest_marker("llmroof_gate") is not None
            inherited = by_parent[id(parent)] = marked
        if inherited or isinstance(item, kinds) or any(mark.name == "llmroof_gate" for mark in item.own_markers):
            yield item


def _reads_measurements(item: pytest.Item) -> bool:
    return not FIXTURES.isdisjoint(getattr(item, "fixturenames", ())) or item.get_closest_marker("llmroof") is not None


def _must_have_gates(config: pytest.Config) -> bool:
    options = settings(config)
    return bool(options.asked or options.required)


def _is_gate(nodeid: str) -> bool:
    file = nodeid.split("::", 1)[0]
    return file == "llmroof" or (file.endswith(("llmroof.yaml", "llmroof.yml")) and "::" in nodeid)


def _reason(report: pytest.TestReport) -> str:
    if report.when == "setup":
        return "skipped" if report.skipped else "its setup failed"
    if report.failed:
        return "an error ended it before it was judged" if report.when == "call" else "the worker that ran it crashed"
    return "skipped"
