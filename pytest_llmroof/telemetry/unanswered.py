"""What kept an answer from coming, in words of our own, and how to get the data instead.

No message ever repeats what a library or a server said, as that may hold the URL's query or a header.
"""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Iterator
from typing import Final

import requests
import urllib3

from pytest_llmroof.advice import AnyAdvice
from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.certificates import unusable_file
from pytest_llmroof.telemetry.endpoint import Endpoint
from pytest_llmroof.telemetry.patience import PASSING, Unavailable

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


def failed(endpoint: Endpoint, problem: str, remedy: AnyAdvice | None = None) -> SourceError:
    """The error for what became of an endpoint's request, in words that follow its address."""
    return SourceError(f"{endpoint.shown} {problem}", remedy)


def unfinished(endpoint: Endpoint) -> SourceError:
    """The error for an answer that took longer than the time-out."""
    seconds = f"{endpoint.timeout_seconds:g} s"
    return failed(endpoint, f"did not finish its answer within {seconds}", "give a longer timeout")


def unsendable(endpoint: Endpoint) -> SourceError:
    """The error for a header or token that cannot be sent."""
    return SourceError(f"a header or token holds characters that HTTP does not allow, for {endpoint.shown}")


def status_error(endpoint: Endpoint, status: int, after_seconds: float | None) -> SourceError:
    """The error for an answer with another status than 200. ``after_seconds``: it asked to wait as long."""
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
    if type(error) is OSError or is_a(ssl.SSLError):
        unusable = unusable_file(endpoint)
        if unusable is not None:
            return unusable
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
        return unsendable(endpoint)
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
