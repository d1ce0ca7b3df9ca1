"""What is wrong with the files that TLS to an endpoint needs: asked only once a request failed."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.endpoint import Endpoint

#: Where requests looks for authorities that no option names, in its order.
_VARIABLES: Final = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def unusable_file(endpoint: Endpoint) -> SourceError | None:
    """The first of the endpoint's certificate files that can't be used; None where all can."""
    if not endpoint.url.startswith("https:"):
        return None
    for title, path in _files(endpoint):
        problem = _unreadable(path)
        if problem is not None:
            return SourceError(f"{endpoint.shown} was not asked: {title} {Path(path).name} {problem}")
    return _unusable(endpoint)


def _files(endpoint: Endpoint) -> Iterator[tuple[str, str]]:
    title, bundle = _authorities(endpoint)
    if bundle is not None:
        yield title, bundle
    if isinstance(endpoint.cert, tuple):
        certificate, key = endpoint.cert
        yield "the client certificate", certificate
        yield "the key of the client certificate", key
    elif endpoint.cert is not None:
        yield "the client certificate", endpoint.cert


def _authorities(endpoint: Endpoint) -> tuple[str, str | None]:
    """What names the authorities, and their file or folder; None where those of the system's own stand."""
    if isinstance(endpoint.verify, str):
        return "the authorities' file", endpoint.verify
    found = next((name for name in _VARIABLES if os.environ.get(name)), None)
    if endpoint.verify is False or found is None:
        return "", None
    return f"the authorities' file of {found},", os.environ[found]


def _unreadable(path: str) -> str | None:
    try:
        if not Path(path).is_dir():
            Path(path).open("rb").close()
    except OSError as error:
        return f"can't be read ({error.strerror or 'no such file'})"
    return None


def _unusable(endpoint: Endpoint) -> SourceError | None:
    """Files that can be read, and hold something else."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    title, bundle = _authorities(endpoint)
    if bundle is not None and not Path(bundle).is_dir():
        try:
            context.load_verify_locations(bundle)
        except ssl.SSLError:
            problem = f"{endpoint.shown} was not asked: {title} {Path(bundle).name} holds no certificate"
            return SourceError(problem, "give a PEM file (-----BEGIN CERTIFICATE-----)")
    if endpoint.cert is not None:
        certificate, key = endpoint.cert if isinstance(endpoint.cert, tuple) else (endpoint.cert, None)
        try:
            # An empty password: without one, OpenSSL asks on the terminal.
            context.load_cert_chain(certificate, key, password="")
        except ssl.SSLError as error:
            fits = "does not fit its key" if error.reason == "KEY_VALUES_MISMATCH" else "and its key can't be used"
            problem = f"{endpoint.shown} was not asked: the client certificate {Path(certificate).name} {fits}"
            return SourceError(problem, "give PEM files, the key without a password: cert: [client.pem, client.key]")
    return None
