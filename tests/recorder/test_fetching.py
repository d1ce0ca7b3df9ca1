"""One page over HTTP: what is sent, what is taken, and what every failure says."""

from __future__ import annotations

import errno
import gzip
import socket
import zlib
from collections.abc import Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import requests

from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry import fetching
from pytest_llmroof.telemetry.endpoint import endpoints_of
from pytest_llmroof.telemetry.fetching import fetch

SECRETS = ("s3cret", "t0ken", "hunter2")


def fetched(url: str, **options: Any) -> bytes:
    (endpoint,) = endpoints_of([url], **options)
    return fetch(endpoint)


def refusal(url: str, **options: Any) -> str:
    with pytest.raises(SourceError) as caught:
        fetched(url, **options)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert not any(secret in str(caught.value) for secret in SECRETS)
    return str(caught.value)


def test_a_page_comes_as_it_is(server: Any) -> None:
    body = fetched(server.url)
    assert b'vllm:generation_tokens_total{engine="0"} 1.0\n' in body
    ((path, headers),) = server.asked
    assert path == "/metrics"
    assert headers["User-Agent"].startswith("pytest-llmroof/")
    assert headers["Accept"].startswith("text/plain")
    assert headers["Connection"] == "close"


def test_a_packed_page_is_unpacked(server: Any, respond_with: Callable[..., Any]) -> None:
    server.answer = respond_with(gzip.compress(b"a 1\n"), Content_Encoding="gzip")
    assert fetched(server.url) == b"a 1\n"


@pytest.mark.parametrize(("body", "status", "kind", "expected"), [
    (b"", 200, "text/plain", "{url} answered an empty page"),
    (b" \n\n", 200, "text/plain", "{url} answered an empty page"),
    (b"<!DOCTYPE html><p>hunter2", 200, "text/html", "{url} is HTML, not metrics"),
    (b'{"detail": "hunter2"}', 200, "application/json", "{url} is JSON, not metrics"),
    (b"hunter2", 401, "text/plain", "{url} asks for credentials (401); give them with a header, a token file, in the "
                                    "URL or in .netrc"),
    (b"hunter2", 403, "text/plain", "{url} refuses these credentials (403)"),
    (b"hunter2", 404, "text/plain", "{url} has no such page (404); engines serve metrics at /metrics"),
    (b"hunter2", 500, "text/plain", "{url} failed (500)"),
    (b"hunter2", 503, "text/plain", "{url} is not ready (503)"),
    (b"hunter2", 204, "text/plain", "{url} answered with status 204"),
    (b"hunter2", 418, "text/plain", "{url} answered with status 418"),
])  # fmt: skip
def test_answers_that_are_no_metrics(
    server: Any, respond_with: Callable[..., Any], body: bytes, status: int, kind: str, expected: str
) -> None:
    server.answer = respond_with(body if status != 204 else b"", status, kind)
    url = server.url.replace("http://", "http://me:s3cret@") + "?key=t0ken"
    assert refusal(url).startswith(expected.format(url=server.url))


def test_nobody_listens(refused: str) -> None:
    text = refusal(refused.replace("http://", "http://me:s3cret@") + "?key=t0ken")
    assert text == f"connection refused at {refused}; is the server running, and is this its port?"


def test_a_name_that_does_not_resolve(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    text = refusal("http://vllm.invalid:8000/metrics?key=t0ken")
    assert text.startswith("the host name can't be resolved: http://vllm.invalid:8000/metrics;")


def test_no_answer_in_time(server: Any) -> None:
    server.answer = lambda handler: server.closing.wait(30)
    assert refusal(server.url, timeout_seconds=0.05).startswith(f"no answer within 0.05 s at {server.url}; give a long")


def test_an_answer_in_drops_ends_with_the_timeout(server: Any) -> None:
    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        while not server.closing.wait(0.005):
            handler.wfile.write(b"#")
            handler.wfile.flush()

    server.answer = drip
    expected = f"{server.url} did not finish its answer within 1 s; give a longer timeout"
    assert refusal(server.url, timeout_seconds=1.0) == expected


def test_an_endless_answer_ends_with_the_size(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "MAXIMUM_BYTES", 2**20)

    def flood(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        while not server.closing.is_set():
            handler.wfile.write(b"#" * 65536)

    server.answer = flood
    assert refusal(server.url) == f"{server.url} answered more than 1 MiB, which is no page of metrics"


def test_a_small_answer_that_unpacks_big(
    server: Any, respond_with: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "MAXIMUM_BYTES", 2**20)
    server.answer = respond_with(gzip.compress(b"#" * 2**22), Content_Encoding="gzip")
    assert "answered more than 1 MiB" in refusal(server.url)


def test_a_damaged_or_broken_answer(server: Any, respond_with: Callable[..., Any]) -> None:
    server.answer = respond_with(b"no gzip", Content_Encoding="gzip")
    assert refusal(server.url) == f"the answer can't be unpacked at {server.url}"
    server.answer = lambda handler: handler.wfile.write(
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\na 1\n"
    )  # fmt: skip
    assert refusal(server.url) == f"the connection broke before the answer was complete at {server.url}"
    server.answer = lambda handler: None
    assert refusal(server.url) == f"the connection broke before the answer was complete at {server.url}"


@pytest.mark.parametrize("length", [10, 60, 100, -8, -1])
def test_a_packed_answer_that_breaks_off_is_not_taken_for_all_of_it(
    server: Any, respond_with: Callable[..., Any], length: int
) -> None:
    # Its length is the one announced, as where a proxy packs what a broken server sent. The lines that can be unpacked
    # may end where a line does, so that nothing in the text tells. The last 8 bytes are the sum and the length.
    packed = gzip.compress(b"".join(b"metric_%d %d\n" % (each, each * 7919) for each in range(100)))
    server.answer = respond_with(packed[:length], Content_Encoding="gzip")
    assert refusal(server.url) == f"the connection broke before the answer was complete at {server.url}"
    server.answer = respond_with(packed, Content_Encoding="gzip")
    assert fetched(server.url).endswith(b"metric_99 783981\n")  # 99 x 7919


def test_an_answer_packed_as_nobody_asked_for(server: Any, respond_with: Callable[..., Any]) -> None:
    server.answer = respond_with(zlib.compress(b"a 1\nb 2\n"), Content_Encoding="deflate")
    expected = f"{server.url} packs its answer in a way nobody asked for; serve it plain, or by gzip"
    assert refusal(server.url) == expected
    ((_, headers),) = server.asked
    assert headers["Accept-Encoding"] == "gzip"


def test_redirects_stay_within_the_server(server: Any, respond_with: Callable[..., Any], refused: str) -> None:
    def moved(handler: BaseHTTPRequestHandler) -> None:
        page = handler.path == "/metrics/"
        respond = respond_with(b"a 1\n") if page else respond_with(b"", 307, Location="/metrics/")
        respond(handler)

    server.answer = moved
    assert fetched(server.url) == b"a 1\n"
    server.answer = respond_with(b"", 302, Location=refused + "?key=t0ken")
    expected = f"{server.url} redirects to another server, {refused}; name the address to scrape"
    assert refusal(server.url) == expected
    server.answer = respond_with(b"", 302, Location="/metrics")
    assert refusal(server.url) == f"{server.url} redirects in a circle; name the address to scrape"


def test_credentials_of_every_kind(server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = tmp_path / "token"
    token.write_text("t0ken\n")
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login net password hunter2\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    with_user = server.url.replace("http://", "http://me:s3%40cret@")
    fetched(server.url)  # net:hunter2, as nothing else is given
    fetched(with_user)  # me:s3@cret
    fetched(with_user, headers={"authorization": "Bearer s3cret", "X-Team": "perf"})
    fetched(with_user, headers={"Authorization": "Bearer s3cret"}, token_file=token)
    sent = [headers for _, headers in server.asked]
    assert [each["Authorization"] for each in sent] == [
        "Basic bmV0Omh1bnRlcjI=", "Basic bWU6czNAY3JldA==", "Bearer s3cret", "Bearer t0ken",
    ]  # fmt: skip
    assert sent[2]["X-Team"] == "perf"
    token.write_text("n3w")
    fetched(server.url, token_file=token)  # read again at every scrape
    assert server.asked[-1][1]["Authorization"] == "Bearer n3w"
    token.unlink()
    assert refusal(server.url, token_file=token) == f"{server.url} was not asked: the token file token can't be read"


def test_a_token_that_no_header_can_hold(server: Any, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("t0ken\nhunter2")
    expected = f"a header or token holds characters that HTTP does not allow, for {server.url}"
    assert refusal(server.url, token_file=token) == expected
    token.write_text("t0ken€")
    assert refusal(server.url, token_file=token) == expected


def test_the_proxy_of_the_environment(server: Any, refused: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", server.url.removesuffix("/metrics"))
    fetched("http://engine.invalid:8000/metrics")
    assert server.asked[0][0] == "http://engine.invalid:8000/metrics"
    monkeypatch.setenv("http_proxy", refused.replace("http://", "http://me:s3cret@").removesuffix("/metrics"))
    assert refusal("http://engine.invalid/metrics").startswith("the proxy to http://engine.invalid/metrics failed;")


def test_https_against_a_server_without_it(server: Any) -> None:
    for options in ({}, {"verify": False}):
        text = refusal(server.url.replace("http:", "https:"), timeout_seconds=5, **options)
        assert text.startswith("no TLS connection at https://127.0.0.1")


def test_the_chosen_address_is_asked_by_the_name_of_the_host(server: Any) -> None:
    (endpoint,) = endpoints_of([f"http://engine.invalid:{server.port}/metrics?x=1"])
    assert b"vllm:" in fetch(replace(endpoint, address="127.0.0.1"))
    path, headers = server.asked[0]
    assert path == "/metrics?x=1"
    assert headers["Host"] == f"engine.invalid:{server.port}"


def test_a_header_that_cannot_be_sent(server: Any) -> None:
    expected = f"a header or token holds characters that HTTP does not allow, for {server.url}"
    for headers in ({"X-Key": "t0ken\nhunter2"}, {"X-Key": "t0ken€"}, {"Authorization": "t0ken\nhunter2"}):
        assert refusal(server.url, headers=headers) == expected


@pytest.mark.parametrize(("error", "expected"), [
    (requests.ConnectTimeout("t0ken"), "no connection within 10 s at {url}; is the host reachable from here?"),
    (requests.ConnectionError(OSError(errno.EHOSTUNREACH, "t0ken")), "the host can't be reached at {url}; is there a "
                                                                     "route from here to it?"),
    (requests.exceptions.InvalidSchema("t0ken"), "the request failed (InvalidSchema) at {url}"),
])  # fmt: skip
def test_what_else_can_keep_an_answer_from_coming(
    error: Exception, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(requests.Session, "get", failing)
    assert refusal("http://127.0.0.1:1/metrics?key=t0ken") == expected.format(url="http://127.0.0.1:1/metrics")
