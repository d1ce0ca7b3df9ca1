"""Reads the pages of the documentation, and runs what they show as a reader would.

A page is Markdown. Before a fenced block, comments may say what is to be done with it:

    <!-- file: NAME -->           the block is a file of that name in the page's folder, for the blocks that follow
    <!-- not run: REASON -->      it cannot run here (a serving engine, an installation); its options are checked
    <!-- command: NAME -->        the same: CI runs it from the README
    <!-- exits with N -->         a sh or python block that does not exit with 0
    <!-- output of: COMMAND -->  the block is a part of what the command prints
    <!-- refused -->              a gate file with mistakes
    <!-- not a gate file -->      YAML of another kind

Every page has a folder of its own, with a copy of ``examples/``, a server of metrics at http://localhost:8000, and one
that also streams completions at http://localhost:8080. Its blocks run there in order. In ``console`` blocks a line
``...`` stands for any lines that are left out.

``python tests/docpages.py`` writes the real output into the console blocks that leave nothing out, and every table
that is generated (between ``<!-- generated: NAME -->`` and ``<!-- end -->``).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Final

import loopback
from completions import Server, serving
from loopback import CONTENT_TYPE, respond
from vllm_pages import Load
from vllm_pages import page as engine_page

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))

SHOWN_SERVER: Final = "http://localhost:8000"
SHOWN_ENGINE: Final = "http://localhost:8080"
_FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARKERS: Final = re.compile(r"((?:^<!-- [^\n]* -->\n+)+)\Z", re.MULTILINE)
_MARKER: Final = re.compile(r"<!-- ([\w ]+?)(?:: (.*?)| (\d+))? -->")
_COMMAND: Final = re.compile(r"^\$ (.*(?:(?<=\\)\n.*)*)\n", re.MULTILINE)
_SENTINEL: Final = "@@@ next command @@@"
_LIMIT_SECONDS: Final = 300


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, text and markers; ``line`` is that of its fence."""

    language: str
    text: str
    markers: dict[str, str]
    line: int
    start: int
    end: int

    @property
    def runs(self) -> bool:
        """Whether it can run here."""
        return "not run" not in self.markers and "command" not in self.markers

    @property
    def exit_code(self) -> int:
        """What it should exit with."""
        return int(self.markers.get("exits with", "0"))


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found = []
    for match in _FENCE.finditer(page):
        before = _MARKERS.search(page, 0, match.start())
        markers = {name: said or number for name, said, number in _MARKER.findall(before[1] if before else "")}
        line = page.count("\n", 0, match.start()) + 1
        found.append(Block(match[1], match[2], markers, line, match.start(2), match.end(2)))
    return found


def shown_runs(block: Block) -> list[tuple[str, str]]:
    """The commands of a console block, each with the output that is shown."""
    commands = list(_COMMAND.finditer(block.text))
    ends = [match.start() for match in commands[1:]] + [len(block.text)]
    return [(match[1], block.text[match.end() : end]) for match, end in zip(commands, ends, strict=True)]


class Desk:
    """The folder in which the blocks of a page run."""

    def __init__(self, folder: Path, server: str, engine: str) -> None:
        self.folder = folder
        self.server = server
        self.engine = engine
        ignored = shutil.ignore_patterns("__pycache__", ".pytest_cache")
        shutil.copytree(ROOT / "examples", folder / "examples", ignore=ignored)
        shutil.copytree(ROOT / "examples/recordings", folder / "recordings")  # a reader's own
        (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        programs = folder / ".venv" / "bin"
        programs.mkdir(parents=True)
        _program(programs / "python", f'exec "{sys.executable}" "$@"')
        _program(programs / "pytest", f'exec "{sys.executable}" -m pytest "$@"')
        _program(programs / "vllm", "exit 0")  # the load of a recording: the server's counters move by themselves
        if shutil.which("curl") is None:
            fetch = "import sys, urllib.request as r; sys.stdout.buffer.write(r.urlopen(sys.argv[-1]).read())"
            _program(programs / "curl", f'exec "{sys.executable}" -c "{fetch}" "$@"')
        self.environment = {
            **{key: value for key, value in os.environ.items() if key not in _UNWANTED},
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "COLUMNS": "100",
            "PYTEST_ADDOPTS": "-p no:hypothesispytest",  # a plugin of ours, not of readers, and slow to import
            "NO_COLOR": "1",
        }

    def write(self, name: str, text: str) -> Path:
        """A file of the page."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.here(text), encoding="utf-8")
        return path

    def here(self, text: str) -> str:
        """The text with the addresses of the servers that run here."""
        return text.replace(SHOWN_SERVER, self.server).replace(SHOWN_ENGINE, self.engine)

    def shell(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run a script; standard error goes with standard output, in order."""
        return subprocess.run(
            ["bash", "-c", self.here(script)], cwd=self.folder, env=self.environment, timeout=_LIMIT_SECONDS,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip

    def console(self, block: Block) -> list[tuple[str, str]]:
        """The commands of a console block, each with what it really prints."""
        commands = [command for command, _ in shown_runs(block)]
        script = "".join(f"{command}\n__code=$?; echo; echo '{_SENTINEL}'; (exit $__code)\n" for command in commands)
        printed = self.shell(script).stdout.split(f"\n{_SENTINEL}\n")
        outputs = [self._as_shown(text) for text in printed[: len(commands)]]
        return list(zip(commands, outputs, strict=True))

    def _as_shown(self, text: str) -> str:
        """What a command printed, in the words of a page."""
        text = text.replace(self.server, SHOWN_SERVER).replace(self.engine, SHOWN_ENGINE)
        text = text.replace(str(self.folder), "/work")
        text = re.sub(r"in \d+\.\d+s\b", "in 0.50s", text)
        text = re.sub(r"(?m)[ \t]+$", "", text).strip("\n")
        return f"{text}\n" if text else ""


#: What would change pytest's output from one machine to the next.
_UNWANTED: Final = frozenset(("CI", "BUILD_NUMBER", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "PYTEST_ADDOPTS", "NIGHT"))


def same(shown: str, real: str) -> bool:
    """Whether an output is what a page shows of it."""
    parts = re.split(r"(?m)^\.\.\.\n", normalised(shown))
    return re.fullmatch(r"(?:.*\n)*?".join(re.escape(part) for part in parts), normalised(real)) is not None


def normalised(text: str) -> str:
    """An output without what differs from run to run: times, dates, the length of rulers, the version of pytest."""
    text = re.sub(r"\b20\d\d-[01]\d-[0-3]\d\b", "2026-11-29", text)
    text = re.sub(r"\b[0-2]\d:[0-5]\d UTC\b", "12:00 UTC", text)
    text = re.sub(r"in \d+\.\d+s\b", "in 0.50s", text)
    text = re.sub(r"([=_!-])\1{3,}", r"\1\1\1", text)
    text = re.sub(r"(?m)[ \t]+$", "", text).strip("\n")
    return f"{text}\n" if text else ""


#: Its means lie far from where their printed digits would change.
_LOAD: Final = Load(
    model="meta-llama/Llama-3.1-8B-Instruct", itl=0.0062, batch=16, context=1024, output=64, queue=0.01, prefill=0.0204,
    running=16,
)  # fmt: skip


@contextmanager
def desk_for(folder: Path) -> Iterator[Desk]:
    """A desk with its servers: an engine under steady load, whose counters move with the clock, and one for probes."""
    started = time.monotonic()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = engine_page(_LOAD, (time.monotonic() - started) / _LOAD.seconds, None)
            respond(self, text.encode(), content_type=CONTENT_TYPE)

    with loopback.serving(Handler) as port, serving(Server(step_seconds=0.0062, first_seconds=0.03)) as engine:
        yield Desk(folder, f"http://127.0.0.1:{port}", engine.address)


def run_before(desk: Desk, block: Block) -> None:
    """Put a file of the page into its place."""
    if "file" in block.markers:
        desk.write(block.markers["file"], block.text)


def _program(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
    path.chmod(0o755)


def rewritten(path: Path, generated: dict[str, str]) -> str:
    """A page with real output and generated tables."""
    page = path.read_text(encoding="utf-8")
    for name, table in generated.items():
        mark, end = f"<!-- generated: {name} -->\n", "<!-- end -->"
        if mark in page:
            before, _, rest = page.partition(mark)
            page = f"{before}{mark}{table}{end}{rest.partition(end)[2]}"
    with tempfile.TemporaryDirectory() as folder, desk_for(Path(folder)) as desk:
        pieces, at = [], 0
        for block in blocks(page):
            run_before(desk, block)
            if not block.runs:
                continue
            if block.language == "sh":
                desk.shell(block.text)
            if block.language == "console":
                text = _with_output(desk, block)
                pieces += [page[at : block.start], text]
                at = block.end
        return "".join([*pieces, page[at:]])


def _with_output(desk: Desk, block: Block) -> str:
    shown = shown_runs(block)
    real = desk.console(block)
    kept = [
        output if re.search(r"(?m)^\.\.\.$", output) or same(output, now) else now
        for (_, output), (_, now) in zip(shown, real, strict=True)
    ]
    return "".join(f"$ {command}\n{output}" for (command, _), output in zip(shown, kept, strict=True))


if __name__ == "__main__":
    from doctables import TABLES

    for page_path in PAGES:
        new = rewritten(page_path, {name: make() for name, make in TABLES.items()})
        if new != page_path.read_text(encoding="utf-8"):
            page_path.write_text(new, encoding="utf-8")
            print(f"rewritten: {page_path.relative_to(ROOT)}")
