"""From the paths a user names to pages: files, and recordings with everything else that may lie in them.

A file is recognised by content. A file that is named itself, or that is called a page, has to be one: SourceError tells
what it is instead. Anything else that no reader knows is listed in ``unread`` with the reason.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.aiperfserver import ServerExport, chosen, server_export
from pytest_llmroof.telemetry.answers import EMPTY, Answer, Answers, without_head
from pytest_llmroof.telemetry.benchmarks import LLAMA_BENCH, Run, clients_of, records_client, tool_runs, unread_reason
from pytest_llmroof.telemetry.bodies import MAXIMUM_JSON_BYTES, decoded, records_of
from pytest_llmroof.telemetry.client import Client
from pytest_llmroof.telemetry.engines import EngineNames
from pytest_llmroof.telemetry.exposition import Page, parse_page
from pytest_llmroof.telemetry.gputables import GpuTable
from pytest_llmroof.telemetry.known import KnownSeries
from pytest_llmroof.telemetry.namedfiles import PAGE_NAME, body_of, by_name, mode_of, record_hint, resolves_inside
from pytest_llmroof.telemetry.recording import MANIFEST, slug_of_page
from pytest_llmroof.telemetry.records import read_records
from pytest_llmroof.telemetry.smi import read_amd_json, read_table
from pytest_llmroof.telemetry.sniffing import Content, sniff, unreadable

#: What pages repeat, shared by all that this process reads: windows of one server repeat each other's text.
_KNOWN: Final = KnownSeries()
_REASONS: Final[dict[Content, str]] = {
    "json": "JSON, and no reader here knows it",
    "html": "HTML",
    "empty": "empty",
    "binary": "binary, and no reader here knows it",
    "text": "no reader here knows it",
    "metrics": "metrics",
    "table": "a table of GPU counters",
    "statistics": "AIPerf's table has no buckets: server_metrics_export.json of the same run is read",
}


@dataclass(frozen=True)
class Located:
    """A page and where it came from: ``group`` tells servers apart, ``source`` is the path that the user named.

    ``recorded`` pages are a recording's, of which there are two at least.
    """

    page: Page
    group: str
    source: str
    recorded: bool = False


@dataclass
class Sources:
    """Reads the pages of the paths that a user named, one after the other, and keeps what there is to say of the rest.

    ``bad`` are scrapes of a recording that could not be read, by their names' group, beside how many ``good`` ones it
    has; ``failed`` are those that the recorder noted. ``answers`` are an engine's records in JSON, by server;
    ``clients`` are runs of load generators, ``engine_runs`` those of tools that measure an engine without any requests.
    ``exports`` is what a load generator saw of the servers, each with its source.
    ``engines`` are those that pages may be of, None for the known ones. Files ``elsewhere`` are read by others.
    """

    paths: Sequence[tuple[Path, str]]
    unread: list[tuple[str, str]] = field(default_factory=list)
    bad: dict[str, list[SourceError]] = field(default_factory=dict)
    good: dict[str, int] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    engines: Mapping[str, EngineNames] | None = None
    answers: dict[tuple[str, str], Answers] = field(default_factory=dict)
    clients: list[Client] = field(default_factory=list)
    engine_runs: list[tuple[str, list[Run]]] = field(default_factory=list)
    tables: list[GpuTable] = field(default_factory=list)
    exports: list[tuple[str, ServerExport]] = field(default_factory=list)
    elsewhere: frozenset[Path] = frozenset()

    def pages(self) -> Iterator[Located]:
        """Every page. Raises SourceError for a named path that is missing, unreadable or no page."""
        if not self.paths:
            raise SourceError("no telemetry is named", "name a recording, or the scrapes before and after the load")
        for path, shown in self.paths:
            if path in self.elsewhere:
                continue
            mode = mode_of(path, shown)
            if stat.S_ISDIR(mode):
                yield from self._folder(path, shown)
            elif stat.S_ISREG(mode):
                yield from self._file(path, shown)
            else:
                raise SourceError(f"{shown} is neither a file nor a folder", "name a recording or a scrape")
        for (group, source), answers in self.answers.items():
            for page in answers.pages():
                yield Located(page, group, source or page.location, recorded=answers.recorded)
            if answers.engine is None:
                self.unread.extend((answer.location, EMPTY) for answer in answers.answers)
            self.failed.extend([answers.missing] if answers.missing else [])

    def exported(self, served: bool) -> Iterator[Located]:
        """The servers' pages as a load generator saw them, where their own are not there (``served``)."""
        used, unread = chosen(self.exports, served)
        self.unread.extend(unread)
        for source, export in used:
            self.failed.extend(f"{export.location}: {note}" for note in export.notes)
            yield from (Located(page, page.endpoint or "", source, recorded=True) for page in export.pages)

    def losses(self) -> Iterator[str]:
        """What to say of scrapes that are missing. SourceError where too many of one server's could not be read."""
        for group, errors in self.bad.items():
            if 2 * len(errors) > self.good.get(group, 0) or self.good[group] < 2:
                raise errors[0]
            scrapes = "1 scrape is" if len(errors) == 1 else f"{len(errors)} scrapes are"
            yield f"{scrapes} left out as unreadable ({errors[0].reason})"
        yield from self.failed

    def unread_lines(self) -> tuple[str, ...]:
        """``unread`` for reports: many files with one reason share a line."""
        by_reason: dict[str, list[str]] = {}
        for name, reason in self.unread:
            by_reason.setdefault(reason, []).append(name)
        return tuple(
            f"{', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}: {reason}"
            for reason, names in by_reason.items()
        )

    def _file(self, path: Path, shown: str) -> Iterator[Located]:
        content = sniff(path, shown)
        if content == "json" and self._read_json(path, shown, "", ""):
            return
        if content == "table" and self._read_table(path, shown):
            return
        if content in ("json", "binary", "text", "table", "statistics") and not PAGE_NAME.fullmatch(path.name):
            self.unread.append((shown, _REASONS[content]))
            return
        page = parse_page(body_of(path, shown), shown, _KNOWN)
        yield Located(page, page.endpoint or slug_of_page(path.name) or "", shown)

    def _folder(self, folder: Path, shown: str) -> Iterator[Located]:
        try:
            entries = sorted((entry for entry in folder.iterdir() if not entry.name.startswith(".")), key=by_name)
        except OSError as error:
            raise unreadable(shown, error) from None
        if not entries:
            raise SourceError(f"{shown} is an empty folder", record_hint(shown))
        inside = folder.resolve()
        for entry in entries:
            if entry in self.elsewhere:
                continue
            location = f"{shown.rstrip('/')}/{entry.name}"
            group = slug_of_page(entry.name)
            group = f"{shown}/{group}" if group else shown
            try:
                located = self._entry(entry, location, group, shown, inside)
            except SourceError as error:
                self.bad.setdefault(group, []).append(error)
                continue
            if located is not None:
                self.good[group] = self.good.get(group, 0) + 1
                yield located

    def _entry(self, entry: Path, location: str, group: str, shown: str, inside: Path) -> Located | None:
        called_a_page = PAGE_NAME.fullmatch(entry.name) is not None
        if entry.is_symlink() and not resolves_inside(entry, inside):
            if called_a_page:
                raise SourceError(f"{location} is a link that leads out of the recording", "copy the file itself")
            self.unread.append((location, "a link that leads out of the recording"))
            return None
        mode = mode_of(entry, location)
        if not stat.S_ISREG(mode):
            reason = "a folder: name it itself" if stat.S_ISDIR(mode) else "not a regular file"
            self.unread.append((location, reason))
            return None
        if entry.name == MANIFEST:
            self._manifest(entry, location)
            return None
        content = sniff(entry, location)
        if content in ("json", "table") and self._read_entry(content, entry, location, group, shown):
            return None
        if not called_a_page and content != "metrics":
            self.unread.append((location, _REASONS[content]))
            return None
        page = parse_page(body_of(entry, location), location, _KNOWN)
        return Located(page, page.endpoint or group, shown, recorded=slug_of_page(entry.name) is not None)

    def _read_entry(self, content: Content, path: Path, location: str, group: str, source: str) -> bool:
        """A recording's file that is no page: a damaged one is listed, and the recording is read without it."""
        try:
            if content == "table":
                return self._read_table(path, location)
            return self._read_json(path, location, group, source)
        except SourceError as error:
            if PAGE_NAME.fullmatch(path.name):
                raise
            self.unread.append((location, error.reason.removeprefix(location).lstrip(": ")))
            return True

    def _read_json(self, path: Path, location: str, group: str, source: str) -> bool:
        """Keep what a JSON file holds: an engine's records, or results of a benchmark. False where it is neither."""
        text = decoded(body_of(path, location, MAXIMUM_JSON_BYTES), location, MAXIMUM_JSON_BYTES)
        export = server_export(text, location)
        if export is not None:
            self.exports.append((source or location, export))
            return True
        if self._read_records(text, location, group, source):
            return True
        table = read_amd_json(text, location)
        if table is not None:
            self.tables.append(table)
        return table is not None or self._read_results(text, location)

    def _read_table(self, path: Path, location: str) -> bool:
        """Keep the GPU counters that a tool printed. False where a file only begins as if it held some."""
        text = decoded(body_of(path, location, MAXIMUM_JSON_BYTES), location, MAXIMUM_JSON_BYTES)
        table = read_table(text, location)
        self.tables.extend([table] if table is not None else [])
        return table is not None

    def _read_records(self, text: str, location: str, group: str, source: str) -> bool:
        """Keep the records of an engine; those of one server follow each other."""
        head, body = without_head(text)
        found = read_records(body, location, self.engines)
        if found is None and (head.scraped_at is None or records_of(body) != []):
            return False
        kept = self.answers.setdefault((head.endpoint or group, source), Answers())
        engine, records = found or (None, [])
        kept.engine = kept.engine or engine
        kept.answers.append(Answer(records, location, head, slug_of_page(Path(location).name) is not None))
        return True

    def _read_results(self, text: str, location: str) -> bool:
        """Keep the runs of a load generator."""
        runs, others = tool_runs(text, location)
        if runs and others:
            self.unread.append((location, f"values that are no run that is known here: {others}"))
        if not runs:
            records = records_client(text, location)
            self.clients.extend([records] if records is not None else [])
            return records is not None
        clients: list[tuple[str, Run]] = []
        for tool in dict.fromkeys(tool for tool, _ in runs):
            ours = [(key, run) for key, run in runs if key == tool]
            if (reason := unread_reason(tool)) is not None:
                self.unread.append((location, reason))
            elif tool == LLAMA_BENCH:
                self.engine_runs.append((location, [run for _, run in ours]))
            else:
                clients.extend(ours)
        self.clients.extend(clients_of(clients, location))
        return True

    def _manifest(self, path: Path, location: str) -> None:
        """What the recorder noted beside the pages: scrapes that failed. It gives no other fact."""
        try:
            content = json.loads(body_of(path, location))
            failures = content.get("failed_scrapes", [])
            for failure in failures:
                count, reason = int(failure["count"]), str(failure["reason"])
                self.failed.append(f"{count} scrape{'s' if count != 1 else ''} failed ({reason[:200]})")
        except (ValueError, AttributeError, TypeError, KeyError, OverflowError, RecursionError):
            self.unread.append((location, "not what the recorder writes"))
