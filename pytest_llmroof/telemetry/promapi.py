"""The HTTP API that Prometheus, VictoriaMetrics, Thanos and Mimir share: one question, one checked answer.

Whatever is no answer, or an answer in part only, is a SourceError in words of its own (``promrefusals``). Warnings
that leave nothing out are kept in ``said``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final

import requests
import urllib3

from pytest_llmroof import __version__
from pytest_llmroof.errors import SourceError
from pytest_llmroof.garbage import without_collections
from pytest_llmroof.telemetry.connections import Adapter, Watch
from pytest_llmroof.telemetry.endpoint import Endpoint, shown_url
from pytest_llmroof.telemetry.fetching import authentication
from pytest_llmroof.telemetry.patience import PASSING, Unavailable, pause_before, retry_after
from pytest_llmroof.telemetry.promrefusals import JSON, Refusals, TooMany, passing
from pytest_llmroof.telemetry.unanswered import transport_error

#: More than any answer that is read here, and less than what fills a machine's memory.
MAXIMUM_BYTES: Final = 1 << 30
_TEXT: Final = frozenset({str})
_CHUNK: Final = 1 << 20
#: The end of the year 9999, beyond which no calendar reaches.
_LATEST: Final = 253_402_300_799.0
#: How much later than its time-out an answer is hung up on.
_SLACK_SECONDS: Final = 0.1
#: The most points that Prometheus answers for a series.
MOST_TIMES: Final = 11_000

#: The test in this process may patch the clock.
_monotonic = time.monotonic
_sleep = time.sleep


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
            raise self._refusals.strange("a list of names was expected")
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

    @property
    def _refusals(self) -> Refusals:
        return Refusals(self.endpoint, self.parameters)

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
            error = self._refusals.refused(status, str(answer.get("errorType", "")), str(answer.get("error", "")))
            raise passing(error, after) if status in PASSING else error
        if status != 200:
            error = self._refusals.status_error(status, text)
            raise passing(error, after) if status in PASSING else error
        if not isinstance(answer, dict) or answer.get("status") != "success" or "data" not in answer:
            raise self._refusals.no_answer(text)
        self._refusals.refuse_a_part(answer)
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
                raise self._refusals.unfinished() from None
            raise transport_error(self.endpoint, error) from None
        if watch.expired:
            raise self._refusals.unfinished()
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
                raise self._refusals.unfinished()
        return bytes(body)

    def _keep_warnings(self, answer: Mapping[str, Any]) -> None:
        for key in ("warnings", "infos"):
            for each in answer.get(key) or ():
                note = f"{self.endpoint.shown} warns: {self._refusals.without_secrets(str(each))}"
                if note not in self.said:
                    self.said.append(note)

    def _rows(self, data: Any) -> list[Row]:
        kind = data.get("resultType") if isinstance(data, dict) else None
        if kind not in ("vector", "matrix") or not isinstance(data.get("result"), list):
            raise self._refusals.strange(f"a {kind or 'nameless'} result was not expected")
        try:
            with without_collections():
                return [_row(entry) for entry in data["result"]]
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            raise self._refusals.strange("a series of its answer cannot be read") from None


def _parsed(text: str) -> Any:
    """The JSON that a text holds, None where it holds none."""
    try:
        with without_collections():
            return json.loads(text) if text[:1] in JSON else None
    except (ValueError, RecursionError):
        return None


def _time(seconds: float) -> str:
    return f"{seconds:.3f}"


def _row(entry: Mapping[str, Any]) -> Row:
    labels = entry["metric"]
    if "histogram" in entry or "histograms" in entry:
        return Row(labels, (), ())  # a native histogram: no engine exports one
    samples = entry["values"] if "values" in entry else [entry["value"]]
    if not isinstance(labels, dict) or not _TEXT.issuperset(map(type, labels.values())):
        raise TypeError("labels are a mapping of texts")
    times = [float(time) for time, _ in samples]
    if times and not (min(times) >= 0 and max(times) <= _LATEST and sum(times) >= 0):
        raise ValueError("a time that no calendar has")
    return Row(labels, times, [float(value) for _, value in samples])
