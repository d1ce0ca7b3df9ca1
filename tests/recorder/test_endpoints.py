"""Addresses: what may be shown of them, and how many servers are behind one."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmroof.errors import ConfigError
from pytest_llmroof.telemetry.endpoint import endpoints_of, shown_url
from pytest_llmroof.telemetry.recording import page_name, slug_of_page


def resolving(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    def resolve(host: str, port: int | str, **_: Any) -> list[tuple[Any, ...]]:
        return [
            (socket.AF_INET6 if ":" in each else socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port))
            for each in addresses
        ]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


def test_nothing_secret_is_shown() -> None:
    (endpoint,) = endpoints_of(
        ["http://me:s3cret@127.0.0.1:8000/metrics?key=t0ken#frag"], headers={"Authorization": "Bearer hunter2"}
    )
    assert endpoint.shown == "http://127.0.0.1:8000/metrics"
    assert endpoint.slug == "127.0.0.1-8000-metrics"
    assert endpoint.credentials == ("me", "s3cret")
    assert endpoint.url == "http://127.0.0.1:8000/metrics?key=t0ken"
    for secret in ("s3cret", "t0ken", "hunter2", "frag"):
        assert secret not in repr(endpoint)


@given(st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=5), st.sampled_from(["/metrics", "", "/"]))
def test_no_part_that_may_be_secret_is_ever_shown(secret: str, path: str) -> None:
    marked = f"S3-{secret}-S3"
    assert "S3-" not in shown_url(f"https://user:{marked}@host:1{path}?token={marked}&b#{marked}")


def test_slugs_are_readable_file_names_and_distinct() -> None:
    urls = [
        "http://127.0.0.1:8000/metrics", "http://127.0.0.1:8000/metrics?engine=2", "https://127.0.0.1/a/b/",
        "http://[::1]:9400/metrics", "http://127.0.0.1:8000/metrics",
    ]  # fmt: skip
    slugs = [endpoint.slug for endpoint in endpoints_of(urls)]
    assert slugs == ["127.0.0.1-8000-metrics", "127.0.0.1-8000-metrics-2", "127.0.0.1-443-a-b", "1-9400-metrics"]
    for slug in slugs:
        assert slug_of_page(page_name(slug, 12)) == slug
    assert page_name("a", 12) == "a.000012.prom"
    assert slug_of_page("before.prom") is None


@pytest.mark.parametrize(("url", "problem"), [
    ("localhost:8000/metrics", "'localhost:8000/metrics' is not an http:// or https:// URL; write "
                               "http://localhost:8000/metrics"),
    ("me:s3cret@host:8000/metrics?t0ken", "'host:8000/metrics' is not an http:// or https:// URL; write "
                                          "http://host:8000/metrics"),
    ("ftp://host/metrics", "'ftp://host/metrics' is not an http:// or https:// URL"),
    ("http:///metrics", "the URL 'http:///metrics' names no host"),
    ("http://host:port/metrics", "a URL cannot be understood: its host or port is not valid"),
    ("http://host:99999/metrics", "a URL cannot be understood: its host or port is not valid"),
    ("http://[::1/metrics", "a URL cannot be understood: its host or port is not valid"),
])  # fmt: skip
def test_what_is_no_address(url: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        endpoints_of([url])
    assert caught.value.problem == problem


def test_a_name_of_several_addresses_is_several_endpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, "10.0.0.2", "10.0.0.1", "10.0.0.2", "fd00::1", "fd00::2")
    found = endpoints_of(["http://vllm:8000/metrics"], timeout_seconds=3)
    assert [each.address for each in found] == ["10.0.0.1", "10.0.0.2"]
    assert [each.shown for each in found] == [
        "http://vllm:8000/metrics at 10.0.0.1", "http://vllm:8000/metrics at 10.0.0.2",
    ]  # fmt: skip
    assert [each.slug for each in found] == ["vllm-8000-metrics-10.0.0.1", "vllm-8000-metrics-10.0.0.2"]
    assert {each.timeout_seconds for each in found} == {3}


def test_one_host_with_an_address_of_each_kind_is_one_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, "::1", "127.0.0.1")
    (endpoint,) = endpoints_of(["http://localhost:8000/metrics"])
    assert endpoint.address is None


def test_a_proxy_resolves_names_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, "10.0.0.2", "10.0.0.1")
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    (endpoint,) = endpoints_of(["http://vllm:8000/metrics"])
    assert endpoint.address is None
