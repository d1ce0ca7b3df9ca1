"""The summary of a GitHub job and its annotations, within their limits and never broken by a gate's text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import assessments as made
import pytest
import reports
from markdown_it import MarkdownIt

from pytest_llmroof import github as side
from pytest_llmroof.report import github
from pytest_llmroof.report.document import report_document, window_document
from pytest_llmroof.report.rows import uncommanded
from pytest_llmroof.report.terminal import summary_lines
from pytest_llmroof.report.text import failing_text

COMMAND = re.compile(r"::error (.*?)::(.*)")


def commands(document: dict[str, Any]) -> list[tuple[dict[str, str], str]]:
    """As the runner reads them: properties up to the next two colons, then the message; escapes undone."""
    found = []
    for line in github.error_commands(document, lambda file: f"perf/{file}"):
        match = COMMAND.fullmatch(line)
        assert match
        pairs = dict(pair.split("=", 1) for pair in match[1].split(","))
        found.append(({key: undone(value) for key, value in pairs.items()}, undone(match[2])))
    return found


def undone(text: str) -> str:
    for escaped, plain in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(escaped, plain)
    return text


def test_an_error_at_the_line_of_each_breach_the_worst_first() -> None:
    assert commands(reports.ordinary()) == [
        (
            {"file": "perf/llmroof.yaml", "line": "8", "title": "REL-7 decode.mbu"},
            "found 41.3 %, expected decode.mbu >= 75 % (33.7 points short); scenario C: communication and interconnect "
            "stalls   [REL-7]\ntokens come 2.4 times slower than this hardware's memory allows; a third of each step "
            "waits for other GPUs",
        ),
        (
            {"file": "perf/llmroof.yaml", "line": "10", "title": "REL-9 ttft.p99"},
            "NOT MEASURED: no series ttft; expected ttft.p99 <= 2 s   [REL-9]\n"
            "this could not be measured, so it cannot pass",
        ),
        (
            {"title": "REL-2 decode.mbu"},  # its place is not known
            "NOT MEASURED (impossible): a step took 5.20 ms, and its floor is 10.8 ms: 208 % of the bandwidth; "
            "expected decode.mbu >= 75 %   [REL-2]\n"
            "the inputs contradict each other, so no figure made from them can be trusted",
        ),
    ]


def test_at_most_ten_and_the_tenth_says_how_many_more() -> None:
    def breaches(count: int) -> dict[str, Any]:
        verdicts = [made.verdict(made.gate(limit=0.5 + place / 100, written="x"), made.mbu()) for place in range(count)]
        return report_document([window_document(made.assessment(*verdicts))], labels={}, created="")

    assert len(commands(breaches(10))) == 10
    assert "more gates" not in commands(breaches(10))[-1][1]
    eleven = commands(breaches(11))
    assert len(eleven) == 10
    assert eleven[-1][1] == (
        "Blocked: 11 of 11 gates failed; 2 more gates failed or were not measured: the job's summary lists them"
    )
    assert "expected decode.mbu >= 60 %" in eleven[0][1]  # the worst margin
    assert len(commands(reports.many(1000))) == 10


def test_hostile_texts_stay_within_their_command() -> None:
    lines = github.error_commands(reports.hostile(), lambda file: file)
    assert len(lines) == 10
    for line in lines:
        assert line.startswith("::error ")
        assert "\n" not in line
        assert "\r" not in line
        properties = line.removeprefix("::error ").partition("::")[0]
        assert [pair.partition("=")[0] for pair in properties.split(",")] in (
            ["file", "line", "title"], ["title"],
        )  # fmt: skip


class Tags(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)


def test_the_summary_is_the_checklist_with_the_whole_texts_folded() -> None:
    text = github.summary(reports.ordinary())
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert headings == [
        "# Release checklist", "## Not ticked", "## decode (llmroof.yaml)", "## Deviations", "## Not run",
    ]  # fmt: skip
    assert text.count("<details><summary><code>found 41.3 %, expected decode.mbu &gt;= 75 %") == 1
    assert "REMEDIATION    1. Keep tensor parallelism inside the NVLink domain" in text
    assert "Cut here" not in text


def test_hostile_texts_make_nothing_in_the_summary() -> None:
    html = MarkdownIt("commonmark", {"html": True}).enable(["table"]).render(github.summary(reports.hostile()))
    own = {"h1", "h2", "p", "strong", "ul", "li", "code", "pre", "details", "summary"}
    assert Tags(html).tags <= own


@pytest.mark.parametrize("room", [900 * 1024, 60_000, 5_000, 400, 80, 0, -5])
def test_a_large_summary_is_cut_between_its_parts(room: int) -> None:
    text = github.summary(reports.many(4000), room)
    assert len(text.encode()) <= max(room, 0)
    if room >= 400:
        assert text.startswith("# Release checklist\n\n**Blocked: 400 of 4000 gates failed, 400 were not measured**")
    if 80 <= room <= 60_000:
        assert text.endswith("**Cut here**: GitHub shows no more. The report files hold everything.\n")
        # No line is cut within.
        whole = set(github.summary(reports.many(4000), 10_000_000).splitlines())
        assert set(text.splitlines()[:-1]) <= whole


def test_ten_thousand_gates_fit() -> None:
    assert len(github.summary(reports.many()).encode()) <= github.MOST_SUMMARY_BYTES


def test_what_is_there_already_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "summary.md"
    path.write_text("x" * (github.MOST_SUMMARY_BYTES - 1000))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    assert side.append_summary(reports.ordinary()) == []
    assert path.stat().st_size <= github.MOST_SUMMARY_BYTES
    assert "x# Release checklist" in path.read_text()[-1100:]
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))
    (message,) = side.append_summary(reports.ordinary())
    assert message.startswith("llmroof: GITHUB_STEP_SUMMARY could not be written: ")


@pytest.mark.parametrize(
    ("workspace", "shown"), [("/repo", "perf/llmroof.yaml"), ("/repo/perf", "llmroof.yaml"), ("/else", "llmroof.yaml")]
)
def test_files_are_named_from_the_repository_on(workspace: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = cast(pytest.Config, SimpleNamespace(rootpath=Path("/repo/perf")))
    assert side.workflow_commands(config, reports.ordinary()) == []
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", workspace)
    assert side.workflow_commands(config, reports.ordinary())[0].startswith(f"::error file={shown},line=8,")


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("  ::error::x", "  \\::error::x"),
        ("::stop-commands::x", "\\::stop-commands::x"),
        ("a ::error::x", "a ::error::x"),
        ("a ##[add-mask]x", "a ##\\[add-mask]x"),
        ("##vso[task.setvariable variable=a]b", "##vso\\[task.setvariable variable=a]b"),
        ("llmroof.yaml::decode", "llmroof.yaml::decode"),
    ],
)
def test_no_line_is_a_command(line: str, shown: str) -> None:
    assert uncommanded(line) == shown


def test_no_printed_line_of_hostile_texts_is_a_command() -> None:
    document = reports.hostile()
    window = document["windows"][0]
    lines = summary_lines(document, 60, 1)
    lines += [line for gate in window["gates"] for line in failing_text(window, gate).splitlines()]
    assert lines
    assert not [line for line in lines if line.lstrip().startswith("::") or re.search(r"##\w*\[", line)]
