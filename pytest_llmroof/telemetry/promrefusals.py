"""What a Prometheus-compatible server means that does not answer a question: errors in words of their own.

What the server says is repeated, as it tells what to change, but never a header, a token or a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, quote_plus

from pytest_llmroof.data import load
from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.endpoint import Endpoint
from pytest_llmroof.telemetry.patience import Unavailable

#: What JSON begins with that can be an answer.
JSON: Final = frozenset("{[")
#: Values of a URL's parameters that are no secrets, and stand in many a sentence.
_WORDS: Final = frozenset({"true", "false"})

_ADDRESS: Final = "name the address before /api/v1, with the path that stands in front of it"
#: What a status means where the server itself says nothing, and what to do.
_STATUS: Final[Mapping[int, tuple[str, str | None]]] = {
    400: ("refuses the query (400)", "check `selector`"),
    401: ("asks for credentials (401)", "give them with a header, a token file, in the URL or in .netrc"),
    403: ("refuses these credentials (403)", "check the header, token file, URL or .netrc entry, and the tenant"),
    404: ("has no query API there (404)", _ADDRESS),
    413: ("refuses the query as too large (413)", "narrow `selector`"),
    422: ("cannot execute the query (422)", "narrow `selector` or `duration`"),
    429: ("refuses as it is asked too much (429)", "narrow `selector` or `duration`, or ask later"),
    502: ("has nothing behind its gateway (502)", "is the server running?"),
    503: ("is not ready, or took too long (503)", "wait until it is, or narrow `selector` or `duration`"),
    504: ("took too long for its gateway (504)", "narrow `selector` or `duration`, or raise the gateway's limit"),
}


class TimedOut(SourceError):
    """The server gave up on a query, and would again."""


class TooMany(SourceError):
    """The answer would be larger than the server allows: fewer samples may be answered."""


@dataclass(frozen=True)
class Refusals:
    """What one server means. ``parameters`` are those of the user's URL, which may hold secrets."""

    endpoint: Endpoint
    parameters: tuple[tuple[str, str], ...]

    def unfinished(self) -> SourceError:
        """The answer did not end within the time-out."""
        seconds = f"{self.endpoint.timeout_seconds:g} s"
        return SourceError(
            f"{self.endpoint.shown} did not finish its answer within {seconds}",
            "give a longer `timeout`, or narrow `selector` or `duration`",
        )

    def refused(self, status: int, kind: str, said: str) -> SourceError:
        """The error for an answer that says itself what was wrong."""
        said = self.without_secrets(said)
        lowered = said.lower()
        where = self.endpoint.shown
        if any(phrase in lowered for phrase in load("prometheus.yaml")["too_many"]):
            return TooMany(f"{where} would have to read more than it allows: {said}", "narrow `selector` or `duration`")
        if kind in ("timeout", "canceled") or "timed out" in lowered or "deadline exceeded" in lowered:
            return TimedOut(
                f"{where}: the query timed out ({said})",
                "narrow `selector` or `duration`, or raise the server's limit",
            )
        if kind == "bad_data" or "parse error" in lowered or "unparsed data" in lowered:
            return SourceError(f"{where} refuses the query: {said}", "check `selector`")
        label = kind if kind and not kind.isdigit() else str(status)
        remedy = _STATUS.get(status, (None, "look at the server's log"))[1]
        return SourceError(f"{where} cannot execute the query ({label}): {said}", remedy)

    def refuse_a_part(self, answer: Mapping[str, Any]) -> None:
        """SourceError where an answer says that series were left out of it: the replicas that lack would never fail."""
        given = answer.get("warnings")
        warnings = [str(each) for each in given] if isinstance(given, list) else []
        phrases = load("prometheus.yaml")["left_out"]
        lost = next((each for each in warnings if any(phrase in each.lower() for phrase in phrases)), None)
        if lost is None and answer.get("isPartial") is not True:
            return
        why = "some of its storage did not answer" if lost is None else self.without_secrets(lost)
        raise SourceError(
            f"{self.endpoint.shown} answered in part only: {why}",
            "ask again once all of its storage answers, or narrow `selector` to what the rest holds",
        )

    def status_error(self, status: int, text: str) -> SourceError:
        """The error for a status that is no success, where the server itself says nothing of it as JSON."""
        failed = f"failed ({status})", "look at the server's log"
        strange = f"answered with status {status}", _ADDRESS
        problem, remedy = _STATUS.get(status, failed if status >= 500 else strange)
        first = self.without_secrets(text.split("\n", 1)[0])
        said = f": {first}" if first and not first.startswith("<") and status in (400, 413, 422, 429) else ""
        if any(phrase in first.lower() for phrase in load("prometheus.yaml")["too_many"]):
            return TooMany(f"{self.endpoint.shown} would have to read more than it allows: {first}", remedy)
        return SourceError(f"{self.endpoint.shown} {problem}{said}", remedy)

    def no_answer(self, text: str) -> SourceError:
        """The error for a success that holds no answer."""
        if not text:
            return self.strange("its answer is empty")
        if text.startswith("<"):
            return SourceError(
                f"{self.endpoint.shown} answered HTML, no answer to a query",
                "a login, a proxy or a dashboard answered: name the server itself, and give its credentials",
            )
        if text[:1] in JSON:
            return self.strange("its answer is cut, or not what Prometheus answers")
        return self.strange("its answer is text, not JSON")

    def strange(self, what: str) -> SourceError:
        """The error for what no server of this kind answers."""
        return SourceError(f"{self.endpoint.shown} is no Prometheus-compatible server: {what}", _ADDRESS)

    def without_secrets(self, said: str) -> str:
        """One printable line of what the server said, without anything that was sent to be kept secret."""
        for secret in sorted(self._secrets(), key=len, reverse=True):
            said = said.replace(secret, "***")
        line = re.sub(r"\s+", " ", "".join(letter if letter.isprintable() else " " for letter in said)).strip()
        return f"{line[:297]}..." if len(line) > 300 else line

    def _secrets(self) -> Iterator[str]:
        values = [*self.endpoint.headers.values(), *(self.endpoint.credentials or ())]
        if self.endpoint.token_file is not None:
            try:
                values.append(self.endpoint.token_file.read_text(encoding="utf-8").strip())
            except (OSError, UnicodeDecodeError):
                values.append("")
        # A proxy may repeat the whole request, in which they are as the URL had them, or encoded.
        given = [text for _, text in self.parameters if text.casefold() not in _WORDS]
        values.extend(encoded for text in given for encoded in (text, quote(text, safe=""), quote_plus(text)))
        for value in values:
            yield from (part for part in (value, *value.split()) if len(part) > 3)


def passing(error: SourceError, after_seconds: float | None) -> SourceError:
    """The error as one that may pass; what the server would do again is none."""
    if isinstance(error, TooMany | TimedOut):
        return error
    return Unavailable(error.reason, error.remedy, passing=True, after_seconds=after_seconds)
