"""From a judged window to pytest's reports: what travels with a test's report, and the text of a breach.

A window's document is judged in whatever process runs the test. It waits in the session's stash until pytest makes the
report of that phase, and leaves with it as an attribute of exact builtins: the way that survives pytest-xdist.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any, Final, TypedDict

import pytest

from pytest_llmroof.breach import GateBreach, representation

Document = dict[str, Any]
#: The attribute of a report that holds a Payload.
ATTRIBUTE: Final = "_llmroof"
#: Verdicts that mean: not measured. For readers they are one word, for the exit code one kind.
UNMEASURED: Final = ("no data", "inconclusive", "impossible")


class Payload(TypedDict):
    """What a report carries: new window documents by key, the gates that were judged, and a word for the terminal.

    ``breach`` tells whether gates, and nothing else, failed the test.
    """

    documents: dict[str, Document]
    gates: list[tuple[str, int]]
    word: str | None
    breach: bool


class Outbox:
    """Judged gates that wait for the report of the phase that they were judged in.

    ``sent`` holds the keys of window documents that left this process; ``told`` maps a window to the gate that shows
    its long text.
    """

    def __init__(self) -> None:
        self.documents: dict[str, Document] = {}
        self.gates: list[tuple[str, int]] = []
        self.rows: list[Document] = []
        self.sent: set[str] = set()
        self.told: dict[str, str] = {}

    def put(self, key: str, document: Document, indexes: Iterable[int]) -> None:
        """Add judged gates of a window."""
        if key not in self.sent:
            self.sent.add(key)
            self.documents[key] = document
        for index in indexes:
            self.gates.append((key, index))
            self.rows.append(document["gates"][index])

    def take(self, breach: bool) -> Payload:
        """What waits, once."""
        payload = Payload(documents=self.documents, gates=self.gates, word=_word(self.rows), breach=breach)
        self.documents, self.gates, self.rows = {}, [], []
        return payload


_OUTBOX: Final = pytest.StashKey[Outbox]()


def outbox(config: pytest.Config) -> Outbox:
    """This process's outbox. Reports carry gates from here on."""
    box = config.stash.get(_OUTBOX, None)
    if box is None:
        box = config.stash[_OUTBOX] = Outbox()
        config.pluginmanager.register(GateReports(box), "llmroof-reports")
    return box


def publish(config: pytest.Config, key: str, document: Document, indexes: Sequence[int]) -> list[Document]:
    """Send judged gates of a window with the next report; return those that break the test."""
    outbox(config).put(key, document, indexes)
    return [row for row in (document["gates"][index] for index in indexes) if breaks(row)]


def breaks(row: Document) -> bool:
    """Whether a gate's verdict fails its test: anything but a pass, unless it only warns."""
    return bool(row["severity"] == "error" and row["verdict"] != "pass")


def verdict_text(config: pytest.Config, document: Document, rows: Sequence[Document]) -> tuple[str, str]:
    """Headline and text of breached gates: in full once per window, then the first line and the limit."""
    from pytest_llmroof.report.text import failing_text, headline

    told = outbox(config).told
    texts = []
    for row in rows:
        # A rerun of the gate that told everything tells it again.
        teller = told.setdefault(document["id"], row["node_id"])
        texts.append(failing_text(document, row, first=teller == row["node_id"]))
    more = f" (+{len(rows) - 1} more)" if len(rows) > 1 else ""
    return headline(document, rows[0]) + more, "\n\n".join(texts)


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


def _word(rows: Sequence[Document]) -> str | None:
    """The word that the terminal shows instead of FAILED or PASSED; None for pytest's own."""
    broken = [row["verdict"] for row in rows if breaks(row)]
    if broken:
        return broken[0] if all(verdict in UNMEASURED for verdict in broken) else None
    warned = any(row["severity"] == "warn" and row["verdict"] not in ("pass", "not judged") for row in rows)
    return "warned" if warned else None
