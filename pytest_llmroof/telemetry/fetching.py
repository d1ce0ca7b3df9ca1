"""Fetching one page over HTTP. Whatever goes wrong is a SourceError that says what, and how to get the data instead.

No message ever repeats what a library or a server said, as that may hold the URL's query or a header.
Proxies and CA bundles come from the environment, credentials from the URL, a header, a token file or ``.netrc``.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import requests
import urllib3
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase, HTTPBasicAuth

from pytest_llmroof import __version__
from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.bodies import MAXIMUM_BYTES, decoded, records_of, text_of
from pytest_llmroof.telemetry.endpoint import Endpoint, shown_url
from pytest_llmroof.telemetry.patience import PASSING, Unavailable, retry_after

#: The process under test may patch these while its load runs (``responses`` and the like): a scrape must not see it.
_SEND: Final = HTTPAdapter.send
_monotonic = time.monotonic

_REDIRECTS: Final = 3
_CHUNK: Final = 64 * 1024

_HEADERS: Final = {
    "User-Agent": f"pytest-llmroof/{__version__}",
    "Accept": "text/plain;version=0.0.4, application/openmetrics-text;version=1.0.0;q=0.5, */*;q=0.1",
    # A connection of its own for every scrape: behind a balanced address another server may then answer, which a
    # reader notices by its counters. One kept alive would hide all servers but one.
    "Connection": "close",
}

#: What an HTTP status means for the reader of a report, and what to do.
_STATUS: Final[dict[int, tuple[str, str | None]]] = {
    401: ("asks for credentials (401)", "give them with a header, a token file, in the URL or in .netrc"),
    403: ("refuses these credentials (403)", "check the header, token file, URL or .netrc entry and its rights"),
    404: ("has no such page (404)", "engines serve metrics at /metrics; SGLang needs --enable-metrics"),
    429: ("refuses as it is asked too often (429)", "use a longer interval"),
    501: ("does not serve metrics (501)", "start llama.cpp's server with --metrics"),
    502: ("has nothing behind its gateway (502)", "is the server running?"),
    503: ("is not ready (503)", "wait until the server's health check passes"),
    504: ("took too long for its gateway (504)", "look at the server's load"),
}


class NoSuchPage(SourceError):
    """A server that is there, and serves no metrics at this address."""


class _Authorization(AuthBase):
    """A given Authorization header; as an ``auth`` it wins over ``.netrc``, which a plain header does not."""

    def __init__(self, value: str) -> None:
        self.value = value

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = self.value
        return request


class Watch:
    """Hangs up on a server that takes its time: time-outs of sockets begin anew with every byte that comes."""

    def __init__(self, seconds: float) -> None:
        self.expired = False
        self._sockets: list[socket.socket] = []
        self._timer = threading.Timer(seconds, self.expire)
        self._timer.daemon = True

    def __enter__(self) -> Watch:
        _WATCH.current = self
        self._timer.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._timer.cancel()
        self._timer.join()
        _WATCH.current = None
        self._sockets.clear()

    @property
    def opened(self) -> int:
        """How many connections there were."""
        return len(self._sockets)

    def over(self, connection: socket.socket | None) -> None:
        """Look after a connection; one that comes too late is hung up on at once."""
        if connection is not None:
            self._sockets.append(connection)
            if self.expired:
                self.expire()

    def expire(self) -> None:
        """Hang up now."""
        self.expired = True
        for each in list(self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


class _Local(threading.local):
    current: Watch | None = None
    asking: bool = False


#: Every endpoint is fetched in a thread of its own.
_WATCH: Final = _Local()


class _Discreet(logging.Filter):
    """Drops what libraries log of our requests: it holds the URL's query. Those of the test itself pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record may be shown."""
        return not _WATCH.asking


for _name in ("urllib3.connectionpool", "urllib3.connection", "urllib3.poolmanager", "urllib3.util.retry"):
    logging.getLogger(_name).addFilter(_Discreet())


class _Connection(urllib3.connection.HTTPConnection):
    def connect(self) -> None:
        super().connect()
        if _WATCH.current is not None:
            _WATCH.current.over(self.sock)


class _TlsConnection(urllib3.connection.HTTPSConnection):
    def connect(self) -> None:
        super().connect()
        if _WATCH.current is not None:
            _WATCH.current.over(self.sock)


class _Unverified(_TlsConnection):
    """TLS whose certificate the user asked not to check: that needs no warning at every scrape."""

    def connect(self) -> None:
        super().connect()
        self.is_verified = True


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


class _UnverifiedPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _Unverified


class Adapter(HTTPAdapter):
    """Asks the endpoint's own address where its host's name stands for several, still by the name of the host."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        super().__init__()

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Connections that know the host's name, and do not warn where the user asked not to check it."""
        host = urlsplit(self.endpoint.url).hostname
        if self.endpoint.address and self.endpoint.url.startswith("https:"):
            kwargs |= {"server_hostname": host, "assert_hostname": host}
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = self._pools()

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:
        """The same connections behind a proxy."""
        manager = super().proxy_manager_for(proxy, **kwargs)
        manager.pool_classes_by_scheme = self._pools()
        return manager

    def _pools(self) -> dict[str, type[urllib3.HTTPConnectionPool]]:
        return {"http": _Pool, "https": _UnverifiedPool if self.endpoint.verify is False else _TlsPool}

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        """Send the request to the endpoint's own address, where it has one."""
        if self.endpoint.address and request.url:
            request = request.copy()
            parts = urlsplit(str(request.url))
            address = f"[{self.endpoint.address}]" if ":" in self.endpoint.address else self.endpoint.address
            request.headers["Host"] = parts.netloc
            port = f":{parts.port}" if parts.port else ""
            request.url = parts._replace(netloc=f"{address}{port}").geturl()
        _WATCH.asking = True
        try:
            return _SEND(self, request, *args, **kwargs)
        finally:
            _WATCH.asking = False


def fetch(endpoint: Endpoint) -> bytes:
    """What an endpoint answers, unpacked, as UTF-8, and checked: metrics' text, or a list of an engine's records.

    SourceError for anything else.
    """
    deadline = _monotonic() + endpoint.timeout_seconds
    # A little longer than what each step may take by itself, so that the plain time-outs say what they are about.
    watch = Watch(1.25 * endpoint.timeout_seconds + 0.1)
    try:
        with watch, requests.Session() as session:
            session.mount(endpoint.url.partition(":")[0] + "://", Adapter(endpoint))
            with _answer(session, endpoint) as response:
                if response.status_code != 200:
                    raise _status_error(endpoint, response.status_code, retry_after(response.headers))
                body = _body(endpoint, response, deadline)
    except (requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        if watch.expired:
            raise _unfinished(endpoint) from None
        raise transport_error(endpoint, error) from None
    if watch.expired:
        raise _unfinished(endpoint)
    if not body.strip():
        raise _error(endpoint, "answered an empty page")
    text = decoded(body, endpoint.shown)
    return (text if records_of(text) is not None else text_of(text, endpoint.shown)).encode()


def _answer(session: requests.Session, endpoint: Endpoint) -> requests.Response:
    """The first answer that is no redirect. Redirects are followed within the same server only."""
    auth = authentication(endpoint)
    headers = {**_HEADERS, **{name: text for name, text in endpoint.headers.items() if name.lower() != "authorization"}}
    url = endpoint.url
    for _ in range(_REDIRECTS + 1):
        response = session.get(
            url, headers=headers, auth=auth, timeout=endpoint.timeout_seconds, verify=endpoint.verify,
            cert=endpoint.cert, stream=True, allow_redirects=False,
        )  # fmt: skip
        if not response.is_redirect:
            return response
        response.close()
        target = urljoin(url, response.headers["Location"])
        if urlsplit(target)[:2] != urlsplit(url)[:2]:
            raise _error(endpoint, f"redirects to another server, {shown_url(target)}", "name the address to scrape")
        url = target
    raise _error(endpoint, "redirects in a circle", "name the address to scrape")


def authentication(endpoint: Endpoint) -> AuthBase | None:
    """What the endpoint's token file, header or credentials make of a request; None: whatever ``.netrc`` says."""
    if endpoint.token_file is not None:
        try:
            token = endpoint.token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            raise _error(endpoint, f"was not asked: the token file {endpoint.token_file.name} can't be read") from None
        return _authorization(endpoint, f"Bearer {token}")
    given = next((text for name, text in endpoint.headers.items() if name.lower() == "authorization"), None)
    if given is not None:
        return _authorization(endpoint, given)
    return HTTPBasicAuth(*endpoint.credentials) if endpoint.credentials else None


def _authorization(endpoint: Endpoint, value: str) -> AuthBase:
    if not (value.isascii() and value.isprintable()):
        raise _unsendable(endpoint)
    return _Authorization(value)


def _body(endpoint: Endpoint, response: requests.Response, deadline: float) -> bytes:
    """The whole body, within the time and size that a page may take (also where it comes in drops, or unpacks big)."""
    body = bytearray()
    # read1 returns what has come, so that the clock is looked at even while a server sends a byte at a time.
    while chunk := response.raw.read1(_CHUNK, decode_content=True):
        body += chunk
        if len(body) > MAXIMUM_BYTES:
            raise _error(endpoint, f"answered more than {MAXIMUM_BYTES // 2**20} MiB, which is no page of metrics")
        if _monotonic() > deadline:
            raise _unfinished(endpoint)
    return bytes(body)


def _error(endpoint: Endpoint, problem: str, remedy: str | None = None) -> SourceError:
    return SourceError(f"{endpoint.shown} {problem}", remedy)


def _unfinished(endpoint: Endpoint) -> SourceError:
    seconds = f"{endpoint.timeout_seconds:g} s"
    return _error(endpoint, f"did not finish its answer within {seconds}", "give a longer timeout")


def _unsendable(endpoint: Endpoint) -> SourceError:
    return SourceError(f"a header or token holds characters that HTTP does not allow, for {endpoint.shown}")


def _status_error(endpoint: Endpoint, status: int, after_seconds: float | None) -> SourceError:
    problem, remedy = _STATUS.get(
        status, (f"failed ({status})" if status >= 500 else f"answered with status {status}", None)
    )
    said = f"{endpoint.shown} {problem}"
    if status in (404, 405, 501):
        return NoSuchPage(said, remedy)
    if status in PASSING or status >= 500:
        return Unavailable(said, remedy, passing=status in PASSING, after_seconds=after_seconds)
    return SourceError(said, remedy)


def transport_error(endpoint: Endpoint, error: Exception) -> SourceError:
    """What kept an answer from coming, by the kinds of the errors only: their texts may hold secrets."""
    causes = list(_causes(error))

    def is_a(*kinds: type[BaseException]) -> bool:
        return any(isinstance(cause, kinds) for cause in causes)

    timeout = f"{endpoint.timeout_seconds:g} s"
    where = f"at {endpoint.shown}"
    if is_a(requests.exceptions.ProxyError, urllib3.exceptions.ProxyError):
        return SourceError(f"the proxy to {endpoint.shown} failed", "check HTTP_PROXY, HTTPS_PROXY and NO_PROXY")
    if is_a(socket.gaierror, urllib3.exceptions.NameResolutionError):
        return SourceError(f"the host name can't be resolved: {endpoint.shown}", "check its spelling and the resolver")
    if is_a(ssl.SSLCertVerificationError):
        remedy = "set REQUESTS_CA_BUNDLE to the CA that signed it (or switch verification off)"
        return SourceError(f"the certificate is not trusted {where}", remedy)
    if is_a(ssl.SSLError):
        return SourceError(f"no TLS connection {where}", "check whether the server speaks https or http")
    if is_a(ConnectionRefusedError):
        return Unavailable(f"connection refused {where}", "is the server running, and is this its port?")
    if is_a(requests.ConnectTimeout):
        return SourceError(f"no connection within {timeout} {where}", "is the host reachable from here?")
    if is_a(requests.ReadTimeout, urllib3.exceptions.ReadTimeoutError, TimeoutError):
        remedy = "give a longer timeout, or look at the server's load"
        return Unavailable(f"no answer within {timeout} {where}", remedy, timed_out=True)
    if any(isinstance(cause, OSError) and cause.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH) for cause in causes):
        return SourceError(f"the host can't be reached {where}", "is there a route from here to it?")
    if is_a(urllib3.exceptions.DecodeError, requests.exceptions.ContentDecodingError):
        return SourceError(f"the answer can't be unpacked {where}")
    if is_a(urllib3.exceptions.ProtocolError, ConnectionError):
        return Unavailable(f"the connection broke before the answer was complete {where}")
    if is_a(UnicodeError, requests.exceptions.InvalidHeader):
        return _unsendable(endpoint)
    return SourceError(f"the request failed ({type(error).__name__}) {where}")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and everything it came from: chained, wrapped as an argument, or given as a ``reason``."""
    seen: list[BaseException] = []
    pending: list[object] = [error]
    while pending:
        each = pending.pop()
        if isinstance(each, BaseException) and not any(each is other for other in seen):
            seen.append(each)
            pending += [each.__cause__, each.__context__, getattr(each, "reason", None), *each.args]
            yield each
