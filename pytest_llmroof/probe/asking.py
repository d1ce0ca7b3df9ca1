"""Sending requests to an OpenAI-compatible endpoint: one caller for each thread, all of them hung up on at a deadline.

No message repeats what a server said, as that may hold a key. Redirects are followed within the same server only.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import requests
import urllib3

from pytest_llmroof import __version__
from pytest_llmroof.advice import AnyAdvice
from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.connections import Adapter, Watch
from pytest_llmroof.telemetry.endpoint import Endpoint, shown_url
from pytest_llmroof.telemetry.fetching import authentication
from pytest_llmroof.telemetry.unanswered import transport_error

_monotonic = time.monotonic

_REDIRECTS: Final = 3
_MAXIMUM_BYTES: Final = 16 * 2**20
#: A kept connection that breaks so soon, before any of an answer, was closed between two requests (llama.cpp closes
#: after every stream, and says that it keeps): the request goes out again on a new one, as any client's does.
_STALE_SECONDS: Final = 1.0
#: How long to wait for the end of an answer whose last event was read: its connection is then used again.
_END_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 30.0

_HEADERS: Final = {"User-Agent": f"pytest-llmroof/{__version__}", "Content-Type": "application/json"}
_REFUSED: Final[dict[int, tuple[str, str | None]]] = {
    400: ("refused the request (400)", "do prompt_tokens and output_tokens fit into the model's context?"),
    401: ("asks for credentials (401)", "give them with a header, a token file, in the URL or in .netrc"),
    403: ("refuses these credentials (403)", "check the header, token file, URL or .netrc entry and its rights"),
    404: ("has no such page, or no such model (404)", "name the API's address: url='http://HOST:PORT/v1'"),
    405: ("takes no such requests (405)", "name the API's address: url='http://HOST:PORT/v1'"),
    407: ("is behind a proxy that asks for credentials (407)", "give them: HTTP_PROXY=http://USER:PASSWORD@HOST:PORT"),
    413: ("refused the request as too long (413)", "ask for fewer prompt_tokens"),
    422: ("refused the request (422)", "do prompt_tokens and output_tokens fit into the model's context?"),
    429: ("refused as it is asked too often (429)", "lower the concurrency, or raise the server's limit"),
    503: ("is not ready (503)", "wait until the server's health check passes"),
}

_TROUBLE: Final = (
    requests.RequestException, urllib3.exceptions.HTTPError, http.client.HTTPException, OSError, ValueError
)  # fmt: skip


class Failed(Exception):
    """A request that gave no answer: ``reason`` in words, the HTTP ``status`` and how long the server asks to wait."""

    def __init__(
        self, reason: str, remedy: AnyAdvice | None = None, *, status: int | None = None, retry_after: float = 0.0
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy
        self.status = status
        self.retry_after_seconds = retry_after

    @property
    def as_source_error(self) -> SourceError:
        """The same where nothing can be measured without the answer."""
        return SourceError(self.reason, self.remedy)


@dataclass(frozen=True)
class Deadline:
    """When everything has to be over, by the monotonic clock; ``seconds`` is what was granted."""

    at: float
    seconds: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """So many seconds from now."""
        return cls(_monotonic() + seconds, seconds)

    @property
    def left(self) -> float:
        """Seconds until then, 0 once it has passed."""
        return max(0.0, self.at - _monotonic())

    @property
    def failure(self) -> Failed:
        """What became of a request that was cut off by it."""
        return Failed(f"the probe's time of {self.seconds:g} s was over", "raise max_wait, or ask for less")


class Caller:
    """Sends the requests of one thread, over one connection as long as the server keeps it. A context manager."""

    def __init__(self, base: Endpoint, deadline: Deadline) -> None:
        self.base = base
        self.deadline = deadline
        self._session = requests.Session()
        self._watch = Watch(max(0.001, deadline.left))

    def __enter__(self) -> Caller:
        self._session.__enter__()
        self._session.mount(self.base.url.partition(":")[0] + "://", Adapter(self.base))
        self._watch.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._watch.__exit__(kind, error, traceback)
        self._session.close()

    def hang_up(self) -> None:
        """Break off whatever is under way; from any thread."""
        self._watch.expire()

    def json(self, path: str, body: object = None) -> Any:
        """What ``GET path`` (or ``POST path`` with a body) answers, as JSON. Failed otherwise.

        ``path`` is below the base; one that begins with ``/`` is below what the base's ``/v1`` is below.
        """
        data = None if body is None else json.dumps(body).encode()
        try:
            with self.send(path, data) as response:
                content = bytearray()
                while chunk := self.read(response):
                    content += chunk
                    if len(content) > _MAXIMUM_BYTES:
                        raise Failed(f"{self.base.shown} answered more than an API does")
            return json.loads(bytes(content))
        except (ValueError, RecursionError):
            remedy = "name the API's address: url='http://HOST:PORT/v1'"
            raise Failed(f"{self.base.shown} answered no JSON", remedy) from None

    def send(self, path: str, data: bytes | None) -> requests.Response:
        """The answer's head, where its status is 200. Failed otherwise."""
        endpoint = self.base
        try:
            response = self._sent_afresh(_below(endpoint.url, path), data)
        except SourceError as error:
            raise Failed(error.reason, error.remedy) from None
        except _TROUBLE as error:
            raise self.failure(error) from None
        if response.status_code != 200:
            with response:
                raise _refused(endpoint, response)
        return response

    def read(self, response: requests.Response) -> bytes:
        """What has come of an answer's body, at least a byte; nothing at its end. Failed where it broke off."""
        try:
            # read1 returns what is there: the time at which a piece came is then its own.
            chunk: bytes = response.raw.read1(65536, decode_content=True)
        except _TROUBLE as error:
            raise self.failure(error) from None
        if not chunk and self._watch.expired:
            raise self.deadline.failure
        return chunk

    def finish(self, response: requests.Response) -> None:
        """Read an answer to its end, where that comes soon, so that its connection can be used again."""
        connection = getattr(response.raw, "connection", None)
        stream = getattr(connection, "sock", None)
        if stream is None:
            return
        with contextlib.suppress(*_TROUBLE):
            stream.settimeout(_END_SECONDS)
            for _ in range(8):
                if not response.raw.read1(65536, decode_content=True):
                    return

    def failure(self, error: Exception) -> Failed:
        """What broke a request off."""
        if self._watch.expired or not self.deadline.left:
            return self.deadline.failure
        # No time-out but the deadline's applies once a connection stands.
        found = transport_error(self.base, error)
        return Failed(found.reason, found.remedy)

    def _sent_afresh(self, url: str, data: bytes | None) -> requests.Response:
        """As :meth:`_sent`, and once more where only a connection was stale."""
        opened, began = self._watch.opened, _monotonic()
        try:
            return self._sent(url, data)
        except (requests.ConnectionError, ConnectionError):
            kept = self._watch.opened == opened and opened > 0
            if not kept or self._watch.expired or _monotonic() - began > _STALE_SECONDS:
                raise
        return self._sent(url, data)

    def _sent(self, url: str, data: bytes | None) -> requests.Response:
        auth = authentication(self.base)
        given = {name: text for name, text in self.base.headers.items() if name.lower() != "authorization"}
        for _ in range(_REDIRECTS + 1):
            response = self._session.request(
                "GET" if data is None else "POST", url, data=data, headers={**given, **_HEADERS}, auth=auth,
                timeout=(self.base.timeout_seconds, self.deadline.left + _END_SECONDS), verify=self.base.verify,
                cert=self.base.cert, stream=True, allow_redirects=False,
            )  # fmt: skip
            if not response.is_redirect:
                return response
            target = urljoin(url, response.headers["Location"])
            response.close()
            if urlsplit(target)[:2] != urlsplit(url)[:2]:
                raise SourceError(
                    f"{self.base.shown} redirects to another server, {shown_url(target)}",
                    "name the API's own address: url='http://HOST:PORT/v1'",
                )
            url = target
        raise SourceError(f"{self.base.shown} redirects in a circle", "name the API's own address")


def _below(base: str, path: str) -> str:
    parts = urlsplit(base)
    folder = parts.path.rstrip("/")
    if path.startswith("/"):
        folder = folder.removesuffix("/v1")
    return parts._replace(path=f"{folder}/{path.lstrip('/')}").geturl()


def _refused(endpoint: Endpoint, response: requests.Response) -> Failed:
    status = response.status_code
    what = f"failed ({status})" if status >= 500 else f"answered with status {status}"
    problem, remedy = _REFUSED.get(status, (what, None))
    return Failed(f"{endpoint.shown} {problem}", remedy, status=status, retry_after=_pause(response.headers))


def _pause(headers: Mapping[str, str]) -> float:
    """Seconds of ``Retry-After``; a date there, or nothing, is no pause."""
    text = headers.get("Retry-After", "").strip()
    return min(float(text), _LONGEST_PAUSE_SECONDS) if text.isascii() and text.isdigit() else 0.0
