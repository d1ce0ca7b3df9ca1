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


@pytest.fixture
def folder(certificate: Path, tmp_path: Path) -> Path:
    """Files that a user may name by mistake: a certificate alone, a key alone, and neither."""
    end = "-----END CERTIFICATE-----\n"
    alone, _, key = certificate.read_text().partition(end)
    assert key.startswith("-----BEGIN ")
    (tmp_path / "alone.pem").write_text(alone + end)
    (tmp_path / "key.pem").write_text(key)
    (tmp_path / "neither.pem").write_text("no certificate\n")
    return tmp_path


@pytest.mark.parametrize(("authorities", "own", "expected"), [
    ("absent.pem", None, r"the authorities' file absent\.pem can't be read \(No such file or directory\)"),
    ("neither.pem", None, r"the authorities' file neither\.pem holds no certificate; give a PEM file"),
    (None, ("absent.pem", "key.pem"), r"the client certificate absent\.pem can't be read \(No such file"),
    (None, ("alone.pem", "absent.pem"), r"the key of the client certificate absent\.pem can't be read"),
    (None, ("neither.pem", "key.pem"), r"the client certificate neither\.pem and its key can't be used; give PEM"),
    (None, ("alone.pem", "neither.pem"), r"the client certificate alone\.pem and its key can't be used"),
    (None, "alone.pem", r"the client certificate alone\.pem and its key can't be used"),
])  # fmt: skip
def test_files_that_cannot_be_used_are_named(
    authorities: str | None, own: str | tuple[str, str] | None, expected: str, engine: Endpoint, folder: Path,
    certificate: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(folder)
    asked = replace(engine, verify=authorities or str(certificate), cert=own)
    with pytest.raises(SourceError, match=rf"^https://engine\.invalid:\d+/metrics was not asked: {expected}"):
        fetch(asked)


def test_authorities_that_the_environment_names(engine: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nowhere/ours.pem")
    with pytest.raises(SourceError, match=r"the authorities' file of REQUESTS_CA_BUNDLE, ours\.pem can't be read"):
        fetch(engine)


def test_files_that_can_be_used_are_not_blamed(engine: Endpoint, certificate: Path) -> None:
    both = replace(engine, verify=str(certificate), cert=str(certificate))
    assert b"host{" in fetch(both)
    with pytest.raises(SourceError, match=r"^the certificate is not trusted at https://engine\.invalid"):
        fetch(replace(both, verify=True))


def test_an_unencrypted_server_is_no_fault_of_the_files(certificate: Path) -> None:
    with serving(Handler) as port:
        (endpoint,) = endpoints_of([f"https://127.0.0.1:{port}/metrics"])
        expected = "^no TLS connection at .*; check whether the server speaks https or http"
        with pytest.raises(SourceError, match=expected):
            fetch(replace(endpoint, verify=str(certificate), cert=str(certificate)))
