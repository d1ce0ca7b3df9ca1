"""The HTTP API that Prometheus, VictoriaMetrics, Thanos and Mimir share: one question, one checked answer.

Whatever is no answer is a SourceError in words of its own. What the server says of an error is repeated, as it tells
what to change, but never a header, a token or a password. Warnings of an answer that is not complete are kept in
``said``.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final
from urllib.parse import quote, quote_plus

import requests
import urllib3

from pytest_llmroof import __version__
from pytest_llmroof.data import load
from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.connections import Adapter, Watch
from pytest_llmroof.telemetry.endpoint import Endpoint, shown_url
from pytest_llmroof.telemetry.fetching import authentication
from pytest_llmroof.telemetry.garbage import without_collections
from pytest_llmroof.telemetry.patience import PASSING, Unavailable, pause_before, retry_after
from pytest_llmroof.telemetry.unanswered import transport_error

#: More than any answer that is read here, and less than what fills a machine's memory.
MAXIMUM_BYTES: Final = 1 << 30
_CHUNK: Final = 1 << 20
_JSON: Final = frozenset("{[")
#: How much later than its time-out an answer is hung up on.
_SLACK_SECONDS: Final = 0.1
#: Values of a URL's parameters that are no secrets, and stand in many a sentence.
_WORDS: Final = frozenset({"true", "false"})
#: The most points that Prometheus answers for a series.
MOST_TIMES: Final = 11_000

#: The test in this process may patch the clock.
_monotonic = time.monotonic
_sleep = time.sleep

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
class Row:
    """One series of an answer: its labels (``__name__`` among them), times in Unix seconds, and values beside."""

    labels: Mapping[str, str]
    times: Sequence[float]
    values: Sequence[float]


@dataclass
class PrometheusApi:
    """Asks one server. ``parameters`` are those of the user's URL (``dedup=true``), sent with every question."""

    endpoint: Endpoint
    parameters: tuple[tuple[str, str], ...] = ()
    said: list[str] = field(default_factory=list)
    asked: int = 0
    _method: str = "POST"

    def __enter__(self) -> PrometheusApi:
        self._session = requests.Session()
        self._session.mount(self.endpoint.url.partition(":")[0] + "://", Adapter(self.endpoint))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._session.close()

    def names(self, selector: str, start: float, end: float) -> list[str]:
        """The names of all metrics that have a series which the selector matches, around that time."""
        given = {"match[]": selector, "start": _time(start), "end": _time(end)}
        found = self._ask("label/__name__/values", given, method="GET")
        if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
            raise self._strange("a list of names was expected")
        return found

    def instant(self, query: str, at: float) -> list[Row]:
        """The query's answer at one time: series with a value each, or with raw samples for a range selector."""
        return self._rows(self._ask("query", {"query": query, "time": _time(at), **self._limit()}))

    def range(self, query: str, start: float, end: float, step: float) -> list[Row]:
        """The query's answer at every ``step`` from ``start`` to ``end``, in seconds."""
        # VictoriaMetrics would round start and end to multiples of the step, so that its cache can serve them.
        given = {
            "query": query, "start": _time(start), "end": _time(end), "step": f"{step:.3f}", "nocache": "1",
            **self._limit(),
        }  # fmt: skip
        return self._rows(self._ask("query_range", given))

    def _limit(self) -> dict[str, str]:
        return {"timeout": f"{max(1, round(self.endpoint.timeout_seconds))}s"}

    def _ask(self, path: str, given: Mapping[str, str], method: str | None = None) -> Any:
        """The ``data`` of the answer. What may pass is asked again, as long as the time-out allows."""
        start, tries = _monotonic(), 0
        while True:
            tries += 1
            try:
                return self._asked_once(path, given, method or self._method, start + self.endpoint.timeout_seconds)
            except Unavailable as error:
                pause = pause_before(error, tries, _monotonic() - start, self.endpoint.timeout_seconds)
                if pause is None:
                    raise
            _sleep(pause)

    def _asked_once(self, path: str, given: Mapping[str, str], method: str, deadline: float) -> Any:
        status, after, body = self._answer(path, given, method, deadline)
        if status in (405, 501) and method == "POST":  # a proxy that lets reading pass only
            self._method = "GET"
            status, after, body = self._answer(path, given, "GET", deadline)
        text = body.decode("utf-8", errors="replace").lstrip("\ufeff \t\r\n")
        answer = _parsed(text)
        if isinstance(answer, dict) and answer.get("status") == "error":
            error = self._refused(status, str(answer.get("errorType", "")), str(answer.get("error", "")))
            raise _passing(error, after) if status in PASSING else error
        if status != 200:
            error = self._status_error(status, text)
            raise _passing(error, after) if status in PASSING else error
        if not isinstance(answer, dict) or answer.get("status") != "success" or "data" not in answer:
            raise self._no_answer(text)
        self._keep_warnings(answer)
        return answer["data"]

    def _answer(
        self, path: str, given: Mapping[str, str], method: str, deadline: float
    ) -> tuple[int, float | None, bytes]:
        """Status, the seconds that it asks to wait before the next try, and body."""
        self.asked += 1
        headers = {"User-Agent": f"pytest-llmroof/{__version__}", "Accept": "application/json"}
        headers |= {name: text for name, text in self.endpoint.headers.items() if name.lower() != "authorization"}
        fields = [*self.parameters, *given.items()]
        left = max(0.001, deadline - _monotonic())
        # Time-outs of sockets begin anew with every byte. A little longer, so that they say what they are about.
        watch = Watch(left + _SLACK_SECONDS)
        try:
            with watch, self._session.request(
                method, f"{self.endpoint.url}/api/v1/{path}", headers=headers, auth=authentication(self.endpoint),
                params=fields if method == "GET" else None, data=fields if method == "POST" else None,
                timeout=left, verify=self.endpoint.verify, cert=self.endpoint.cert,
                stream=True, allow_redirects=False,
            ) as response:  # fmt: skip
                if response.is_redirect:
                    target = shown_url(response.headers["Location"])
                    raise SourceError(f"{self.endpoint.shown} redirects to {target}", "name the address that answers")
                found = response.status_code, retry_after(response.headers), self._body(response, deadline)
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            if watch.expired:
                raise self._unfinished() from None
            raise transport_error(self.endpoint, error) from None
        if watch.expired:
            raise self._unfinished()
        return found

    def _body(self, response: requests.Response, deadline: float) -> bytes:
        body = bytearray()
        while chunk := response.raw.read1(_CHUNK, decode_content=True):
            body += chunk
            if len(body) > MAXIMUM_BYTES:
                raise TooMany(
                    f"{self.endpoint.shown} answered more than {MAXIMUM_BYTES >> 20} MiB", "narrow `selector`"
                )
            if _monotonic() > deadline:
                raise self._unfinished()
        return bytes(body)

    def _unfinished(self) -> SourceError:
        seconds = f"{self.endpoint.timeout_seconds:g} s"
        return SourceError(
            f"{self.endpoint.shown} did not finish its answer within {seconds}",
            "give a longer `timeout`, or narrow `selector` or `duration`",
        )

    def _refused(self, status: int, kind: str, said: str) -> SourceError:
        """The error for an answer that says itself what was wrong."""
        said = self._without_secrets(said)
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

    def _status_error(self, status: int, text: str) -> SourceError:
        failed = f"failed ({status})", "look at the server's log"
        strange = f"answered with status {status}", _ADDRESS
        problem, remedy = _STATUS.get(status, failed if status >= 500 else strange)
        first = self._without_secrets(text.split("\n", 1)[0])
        said = f": {first}" if first and not first.startswith("<") and status in (400, 413, 422, 429) else ""
        if any(phrase in first.lower() for phrase in load("prometheus.yaml")["too_many"]):
            return TooMany(f"{self.endpoint.shown} would have to read more than it allows: {first}", remedy)
        return SourceError(f"{self.endpoint.shown} {problem}{said}", remedy)

    def _no_answer(self, text: str) -> SourceError:
        if not text:
            return self._strange("its answer is empty")
        if text.startswith("<"):
            return SourceError(
                f"{self.endpoint.shown} answered HTML, no answer to a query",
                "a login, a proxy or a dashboard answered: name the server itself, and give its credentials",
            )
        if text[:1] in _JSON:
            return self._strange("its answer is cut, or not what Prometheus answers")
        return self._strange("its answer is text, not JSON")

    def _strange(self, what: str) -> SourceError:
        return SourceError(f"{self.endpoint.shown} is no Prometheus-compatible server: {what}", _ADDRESS)

    def _keep_warnings(self, answer: Mapping[str, Any]) -> None:
        for key in ("warnings", "infos"):
            for each in answer.get(key) or ():
                self._say(f"{self.endpoint.shown} warns: {self._without_secrets(str(each))}")
        if answer.get("isPartial") is True:
            self._say(f"{self.endpoint.shown} answered in part only: some of its storage did not answer")

    def _say(self, note: str) -> None:
        if note not in self.said:
            self.said.append(note)

    def _rows(self, data: Any) -> list[Row]:
        kind = data.get("resultType") if isinstance(data, dict) else None
        if kind not in ("vector", "matrix") or not isinstance(data.get("result"), list):
            raise self._strange(f"a {kind or 'nameless'} result was not expected")
        try:
            with without_collections():
                return [_row(entry) for entry in data["result"]]
        except (KeyError, TypeError, ValueError, AttributeError):
            raise self._strange("a series of its answer cannot be read") from None

    def _without_secrets(self, said: str) -> str:
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


def _passing(error: SourceError, after_seconds: float | None) -> SourceError:
    """The error as one that may pass; what the server would do again is none."""
    if isinstance(error, TooMany | TimedOut):
        return error
    return Unavailable(error.reason, error.remedy, passing=True, after_seconds=after_seconds)


def _parsed(text: str) -> Any:
    """The JSON that a text holds, None where it holds none."""
    try:
        with without_collections():
            return json.loads(text) if text[:1] in _JSON else None
    except (ValueError, RecursionError):
        return None


def _time(seconds: float) -> str:
    return f"{seconds:.3f}"


def _row(entry: Mapping[str, Any]) -> Row:
    labels = entry["metric"]
    if "histogram" in entry or "histograms" in entry:
        return Row(labels, (), ())  # a native histogram: no engine exports one
    samples = entry["values"] if "values" in entry else [entry["value"]]
    if not isinstance(labels, dict):
        raise TypeError("labels are a mapping")
    return Row(labels, [float(time) for time, _ in samples], [float(value) for _, value in samples])
