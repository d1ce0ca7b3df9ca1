"""What came of measuring the live sources of a window: recordings of them, or the reason why there are none."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_llmroof.advice import Advice, AnyAdvice, as_advice
from pytest_llmroof.errors import ConfigError, LlmroofError, SourceError

if TYPE_CHECKING:
    from pytest_llmroof.telemetry.window import Window


@dataclass(frozen=True)
class Block:
    """The block of a test that a Prometheus server is asked about: Unix seconds, and how long it was waited after."""

    start: float
    end: float
    waited_seconds: float


@dataclass(frozen=True)
class Taken:
    """Recordings of a window's live sources, each as (folder, what messages may call it), one for every repeat.

    Where the window could not be taken there are none, and ``failure`` is the reason with its remedy. ``block`` is what
    a Prometheus server is asked about, and ``window`` what it answered (never written: it is this process's own).
    """

    recordings: tuple[tuple[Path, str], ...] = ()
    failure: tuple[str, AnyAdvice | None] | None = None
    block: Block | None = None
    window: Window | None = None

    @classmethod
    def failed(cls, error: LlmroofError) -> Taken:
        """Nothing, for the reason that an error gives."""
        if isinstance(error, SourceError):
            return cls(failure=(error.reason, error.remedy))
        return cls(failure=(error.problem if isinstance(error, ConfigError) else str(error), None))

    def write(self, path: Path) -> None:
        """Keep it in a file, which is there whole or not at all."""
        recordings = [[str(folder), shown] for folder, shown in self.recordings]
        content = {"recordings": recordings, "failure": self._failure()}
        partial = path.with_suffix(".part")
        partial.write_text(json.dumps(content), encoding="utf-8")
        os.replace(partial, path)

    @classmethod
    def read(cls, path: Path) -> Taken:
        """What ``write`` kept."""
        content = json.loads(path.read_text(encoding="utf-8"))
        recordings = tuple((Path(folder), str(shown)) for folder, shown in content["recordings"])
        if content["failure"] is None:
            return cls(recordings)
        reason, remedy = content["failure"]
        return cls(recordings, (reason, None if remedy is None else as_advice(remedy)))

    def _failure(self) -> object:
        """The failure as JSON holds it: advice with a command is a mapping."""
        if self.failure is None:
            return None
        reason, remedy = self.failure
        return [reason, asdict(remedy) if isinstance(remedy, Advice) else remedy]
