"""Where earlier reports lie: files, which must be reports, and folders, which hold whatever past runs left there."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pytest_llmroof.baseline.reading import EarlierWindow, read_report
from pytest_llmroof.errors import ConfigError, SourceError
from pytest_llmroof.report.json_report import LARGEST_BYTES
from pytest_llmroof.report.wire import visible

ENDING: Final = ".json"
#: A folder of more reports is an archive: looking through it would take longer than measuring.
MOST_FILES: Final = 10_000
#: So much of a file is read to learn when its report was made; it stands in the first lines.
_HEAD_BYTES: Final = 4096
_CREATED: Final = re.compile(r'"created":\s*"([^"\\]{1,40})"')
_OURS: Final = re.compile(r'"schema":\s*"llmroof\.report/')
_MOST_NAMED: Final = 3


@dataclass
class Place:
    """One ``--llmroof-baseline``: ``shown`` is how it was written.

    A file must be a report. In a folder what is no report, or a damaged one, is passed over and named in ``problems``:
    a night's run that was killed must not end all later comparisons. Each file is read once.
    """

    path: Path
    shown: str
    problems: dict[str, str] = field(default_factory=dict)
    _read: dict[Path, tuple[EarlierWindow, ...]] = field(default_factory=dict)
    _order: list[Path] | None = None

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder, or may become one."""
        return self.path.is_dir() or (not self.path.exists() and self.path.suffix != ENDING)

    def lacking(self) -> str | None:
        """Why nothing can be compared with it: it does not exist, or holds no report; None where something may be."""
        if not self.is_folder:
            return None
        if not self.path.exists():
            return f"{self.shown} does not exist yet"
        try:
            return None if self._files() else f"{self.shown} holds no report"
        except SourceError as error:
            return error.reason

    def check(self) -> None:
        """ConfigError where a file is no report that can be read: known before anything is measured."""
        try:
            if not self.is_folder:
                self._file(self.path, self.shown)
        except SourceError as error:
            raise ConfigError(f"--llmroof-baseline={self.shown}: {error}") from None

    def reports(self) -> Iterator[tuple[EarlierWindow, ...]]:
        """The reports, the newest first. SourceError where a file is none, or a folder cannot be looked through."""
        if not self.is_folder:
            yield self._file(self.path, self.shown)
            return
        if self._order is None:
            self._order = self._newest_first()
        for path in self._order:
            shown = f"{self.shown.rstrip('/')}/{visible(path.name)}"
            try:
                yield self._file(path, shown)
            except SourceError as error:
                self.problems[shown] = error.reason

    def unread(self) -> str:
        """``; 2 files there are not read: base/x.json: not a report ...``, empty where all was read."""
        if not self.problems:
            return ""
        reasons = list(self.problems.values())
        more = f" and {len(reasons) - _MOST_NAMED} more" if len(reasons) > _MOST_NAMED else ""
        count = f"{len(reasons)} file{'s' * (len(reasons) > 1)} there could not be used"
        return f"; {count}: {'; '.join(reasons[:_MOST_NAMED])}{more}"

    def _file(self, path: Path, shown: str) -> tuple[EarlierWindow, ...]:
        if path not in self._read:
            self._read[path] = read_report(path, shown)
        return self._read[path]

    def _newest_first(self) -> list[Path]:
        """By the time that a report says it was made: files that are copied or checked out forget theirs."""
        found = [(_created(path), path) for path in self._files()]
        return [path for _when, path in sorted(found, key=lambda one: (one[0], one[1].name), reverse=True)]

    def _files(self) -> list[Path]:
        if not self.path.exists():
            return []
        paths = []
        try:
            with os.scandir(self.path) as entries:
                for entry in entries:
                    if not entry.name.endswith(ENDING) or entry.name.startswith("."):
                        continue
                    if entry.is_file():
                        paths.append(Path(entry.path))
                    if len(paths) > MOST_FILES:
                        raise SourceError(
                            f"{self.shown}: more than {MOST_FILES} files are too many for a baseline",
                            "keep the reports of the last weeks there",
                        )
        except OSError as error:
            raise SourceError(f"{self.shown}: {error.strerror or 'cannot be read'}") from None
        return paths


def _created(path: Path) -> str:
    """When a report was made, from its first lines; empty where they do not tell, so that such a file comes last."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
    found = _CREATED.search(head) if _OURS.search(head) else None
    return found.group(1) if found else _created_anywhere(path)


def _created_anywhere(path: Path) -> str:
    """Of a report that something else has written again, with its keys in another order."""
    try:
        if path.stat().st_size > LARGEST_BYTES:
            return ""
        created = json.loads(path.read_bytes()).get("created")
    except (OSError, ValueError, RecursionError, AttributeError):
        return ""
    return created if isinstance(created, str) else ""
