"""Fetching one page over HTTP. Whatever goes wrong is a SourceError that says what, and how to get the data instead.

Proxies and CA bundles come from the environment, credentials from the URL, a header, a token file or ``.netrc``.
"""

from __future__ import annotations

import gzip
import io
import time
import zlib
from typing import Final
from urllib.parse import urljoin, urlsplit

import requests
import urllib3
from requests.auth import AuthBase, HTTPBasicAuth

from pytest_llmroof import __version__
from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.bodies import MAXIMUM_BYTES, decoded, records_of, text_of
from pytest_llmroof.telemetry.connections import Adapter, Watch
from pytest_llmroof.telemetry.endpoint import Endpoint, shown_url
from pytest_llmroof.telemetry.patience import retry_after
from pytest_llmroof.telemetry.unanswered import failed, status_error, transport_error, unfinished, unsendable

_monotonic = time.monotonic

_REDIRECTS: Final = 3
#: What an answer may be encoded in, and whether that is packed.
_ENCODINGS: Final = {"": False, "identity": False, "gzip": True, "x-gzip": True}
_CHUNK: Final = 64 * 1024

_HEADERS: Final = {
    "User-Agent": f"pytest-llmroof/{__version__}",
    "Accept": "text/plain;version=0.0.4, application/openmetrics-text;version=1.0.0;q=0.5, */*;q=0.1",
    # The one that tells by itself where it ends: of others, what came of a broken one looks whole.
    "Accept-Encoding": "gzip",
    # A connection of its own for every scrape: behind a balanced address another server may then answer, which a
    # reader notices by its counters. One kept alive would hide all servers but one.
    "Connection": "close",
}


class _Authorization(AuthBase):
    """A given Authorization header; as an ``auth`` it wins over ``.netrc``, which a plain header does not."""

    def __init__(self, value: str) -> None:
        self.value = value

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = self.value
        return request


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
                    raise status_error(endpoint, response.status_code, retry_after(response.headers))
                encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
                if encoding not in _ENCODINGS:
                    raise failed(endpoint, "packs its answer in a way nobody asked for", "serve it plain, or by gzip")
                body = _body(endpoint, response, deadline)
                if _ENCODINGS[encoding]:
                    body = _unpacked(endpoint, body)
    except (requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        if watch.expired:
            raise unfinished(endpoint) from None
        raise transport_error(endpoint, error) from None
    if watch.expired:
        raise unfinished(endpoint)
    if not body.strip():
        raise failed(endpoint, "answered an empty page")
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
            raise failed(endpoint, f"redirects to another server, {shown_url(target)}", "name the address to scrape")
        url = target
    raise failed(endpoint, "redirects in a circle", "name the address to scrape")


def authentication(endpoint: Endpoint) -> AuthBase | None:
    """What the endpoint's token file, header or credentials make of a request; None: whatever ``.netrc`` says."""
    if endpoint.token_file is not None:
        try:
            token = endpoint.token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            raise failed(endpoint, f"was not asked: the token file {endpoint.token_file.name} can't be read") from None
        return _authorization(endpoint, f"Bearer {token}")
    given = next((text for name, text in endpoint.headers.items() if name.lower() == "authorization"), None)
    if given is not None:
        return _authorization(endpoint, given)
    return HTTPBasicAuth(*endpoint.credentials) if endpoint.credentials else None


def _authorization(endpoint: Endpoint, value: str) -> AuthBase:
    if not (value.isascii() and value.isprintable()):
        raise unsendable(endpoint)
    return _Authorization(value)


def _body(endpoint: Endpoint, response: requests.Response, deadline: float) -> bytes:
    """The whole body, within the time and size that a page may take (also where it comes in drops, or unpacks big)."""
    body = bytearray()
    # read1 returns what has come, so that the clock is looked at even while a server sends a byte at a time.
    # Packed still: urllib3 takes what came of a packed answer that breaks off for all of it.
    while chunk := response.raw.read1(_CHUNK, decode_content=False):
        body += chunk
        if len(body) > MAXIMUM_BYTES:
            raise _too_large(endpoint)
        if _monotonic() > deadline:
            raise unfinished(endpoint)
    return bytes(body)


def _unpacked(endpoint: Endpoint, body: bytes) -> bytes:
    """A body that came packed. An answer that broke off is one whose packed data lack their ending."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(body)) as file:
            unpacked = file.read(MAXIMUM_BYTES + 1)
    except EOFError:
        raise urllib3.exceptions.ProtocolError("cut off") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise urllib3.exceptions.DecodeError from error
    if len(unpacked) > MAXIMUM_BYTES:
        raise _too_large(endpoint)
    return unpacked


def _too_large(endpoint: Endpoint) -> SourceError:
    return failed(endpoint, f"answered more than {MAXIMUM_BYTES // 2**20} MiB, which is no page of metrics")
