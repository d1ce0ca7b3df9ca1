"""Scraping over TLS: whom to trust, and whose name counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from loopback import serving

from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.endpoint import Endpoint, endpoints_of
from pytest_llmroof.telemetry.fetching import fetch


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"host{{name=\"{self.headers['Host']}\"}} 1\n".encode())


@pytest.fixture
def certificate(data: Path) -> Path:
    return data / "tls" / "engine.invalid.pem"


@pytest.fixture
def engine(certificate: Path) -> Iterator[Endpoint]:
    """engine.invalid, which is 127.0.0.1 for once."""
    with serving(Handler, certificate=certificate) as port:
        (endpoint,) = endpoints_of([f"https://engine.invalid:{port}/metrics"])
        yield replace(endpoint, address="127.0.0.1")


def test_a_certificate_that_nobody_vouches_for(engine: Endpoint) -> None:
    with pytest.raises(SourceError, match=r"^the certificate is not trusted at https://engine\.invalid:\d+/metrics"):
        fetch(engine)


def test_the_name_of_the_host_is_what_the_certificate_must_say(engine: Endpoint, certificate: Path) -> None:
    trusting = replace(engine, verify=str(certificate))
    name = engine.url.removeprefix("https://").removesuffix("/metrics")
    assert fetch(trusting) == f'host{{name="{name}"}} 1\n'.encode()
    by_address = replace(trusting, url=engine.url.replace("engine.invalid", "127.0.0.1"), address=None)
    with pytest.raises(SourceError, match="the certificate is not trusted"):
        fetch(by_address)


def test_checks_can_be_switched_off_without_a_warning(engine: Endpoint) -> None:
    assert b"host{" in fetch(replace(engine, verify=False))  # warnings are errors here
