"""From a judged window to pytest's reports: what travels with a test's report, and the text of a breach.

A window's document is judged in whatever process runs the test. It waits in the session's stash until pytest makes the
report of that phase, and leaves with it as an attribute of exact builtins: the way that survives pytest-xdist.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypedDict

import pytest

from pytest_llmroof.breach import GateBreach, representation
from pytest_llmroof.gates.verdict import Verdict
from pytest_llmroof.windows import Assessed

if TYPE_CHECKING:
    from pytest_llmroof.report.text import Told

#: The attribute of a report that holds a Payload.
ATTRIBUTE: Final = "_llmroof"
#: Verdicts that mean: not measured. For readers they are one word, for the exit code one kind.
UNMEASURED: Final = ("no data", "inconclusive", "impossible")


class Payload(TypedDict):
    """What a report carries: new windows by key, the gates that were judged, and a word for the terminal.

    A window is its document where the report leaves the process. ``breach`` tells whether gates, and nothing else,
    failed the test.
    """

    windows: dict[str, Any]
    gates: tuple[tuple[str, int], ...]
    word: str | None
    breach: bool


class Outbox:
    """Judged gates that wait for the report of the phase that they were judged in.

    ``sent`` holds the keys of windows that were sent before; ``told`` which gates showed the long text of their window
    (None: no gate failed yet); ``abroad`` says that reports leave the process.
    """

    def __init__(self, abroad: bool) -> None:
        self.abroad = abroad
        self.windows: dict[str, Any] = {}
        self.gates: list[tuple[str, int]] = []
        self.verdicts: list[Verdict] = []
        self.sent: set[str] = set()
        self.told: Told | None = None

    def put(self, key: str, window: Assessed, indexes: Iterable[int]) -> None:
        """Add judged gates of a window."""
        if key not in self.sent:
            self.sent.add(key)
            self.windows[key] = window.document if self.abroad else window
        for index in indexes:
            self.gates.append((key, index))
            self.verdicts.append(window.assessment.verdicts[index])

    def take(self, breach: bool) -> Payload:
        """What waits, once."""
        payload = Payload(windows=self.windows, gates=tuple(self.gates), word=_word(self.verdicts), breach=breach)
        self.windows, self.gates, self.verdicts = {}, [], []
        return payload


_OUTBOX: Final = pytest.StashKey[Outbox]()


def outbox(config: pytest.Config) -> Outbox:
    """The outbox of the process. Reports carry gates from here on."""
    box = config.stash.get(_OUTBOX, None)
    if box is None:
        box = config.stash[_OUTBOX] = Outbox(abroad=hasattr(config, "workerinput"))
        config.pluginmanager.register(GateReports(box), "llmroof-reports")
    return box


def publish(config: pytest.Config, key: str, window: Assessed, indexes: Sequence[int]) -> list[int]:
    """Send judged gates of a window with the next report; return the indexes of those that break the test."""
    outbox(config).put(key, window, indexes)
    return [index for index in indexes if breaks(window.assessment.verdicts[index])]


def breaks(verdict: Verdict) -> bool:
    """Whether a verdict fails its test: anything but a pass, unless the gate only warns."""
    return verdict.gate.severity == "error" and verdict.word != "pass"


def breach_of(config: pytest.Config, window: Assessed, indexes: Sequence[int]) -> GateBreach:
    """The failure of breached gates: their text in full once per window, then the first line and the limit."""
    from pytest_llmroof.report.text import Told, headline, text_of

    box = outbox(config)
    if box.told is None:
        box.told = Told()
    document = window.document
    rows = [document["gates"][index] for index in indexes]
    texts = [text_of(box.told, document, row, of=(document["id"], row["node_id"])) for row in rows]
    more = f" (+{len(rows) - 1} more)" if len(rows) > 1 else ""
    return GateBreach(headline(document, rows[0]) + more, "\n\n".join(texts))


class GateReports:
    """Puts judged gates on the report of their phase. Registered when the first gate of a process is judged."""

    def __init__(self, box: Outbox) -> None:
        self.box = box

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Judged gates leave with the report; a breach in a Python test is shown without its traceback."""
        report = yield
        breach = call.excinfo.value if call.excinfo is not None else None
        if self.box.gates:
            setattr(report, ATTRIBUTE, self.box.take(isinstance(breach, GateBreach)))
        if isinstance(breach, GateBreach) and call.excinfo and report.failed and isinstance(item, pytest.Function):
            path, line = _place(item, call.excinfo)
            report.longrepr = representation(breach.text, breach.headline, path, line)
        return report


def _place(item: pytest.Item, excinfo: pytest.ExceptionInfo[BaseException]) -> tuple[str, int]:
    """File and line, from 1: of the ``check()`` that failed, else of the test (the gates of a marker)."""
    inside = [entry.lineno for entry in excinfo.traceback if str(entry.path) == str(item.path)]
    path, line, _name = item.location
    return path, (inside[-1] if inside else line or 0) + 1


def _word(verdicts: Sequence[Verdict]) -> str | None:
    """The word that the terminal shows instead of FAILED or PASSED; None for pytest's own."""
    broken = [verdict.word for verdict in verdicts if breaks(verdict)]
    if broken:
        return broken[0] if all(word in UNMEASURED for word in broken) else None
    return "warned" if any(verdict.word not in ("pass", "not judged") for verdict in verdicts) else None
