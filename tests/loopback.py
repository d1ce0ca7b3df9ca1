"""HTTP servers of tests on loopback: how they begin and end, and whole answers for their handlers."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

Answer = Callable[[BaseHTTPRequestHandler], None]

#: Of pages of metrics in the text format, as exporters say it.
CONTENT_TYPE = "text/plain; version=0.0.4"


class _Http(ThreadingHTTPServer):
    request_queue_size = 128


@contextlib.contextmanager
def serving(
    handler: type[BaseHTTPRequestHandler], port: int = 0, certificate: Path | None = None
) -> Iterator[int]:
    """Serve on 127.0.0.1 until the end of the block, over TLS with a certificate; the port."""

    class Quiet(handler):  # type: ignore[misc, valid-type]  # a base that is only known here
        def handle(self) -> None:
            # A client may hang up: on an answer that is too long, on a certificate that it does not trust.
            with contextlib.suppress(ConnectionError, TimeoutError, ssl.SSLError):
                super().handle()

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    http = _Http(("127.0.0.1", port), Quiet)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        http.socket = context.wrap_socket(http.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield http.server_port
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


@contextlib.contextmanager
def reserved() -> Iterator[int]:
    """A port that is given to nobody who asks for any, until the end of the block: for a server that is told its port.

    It is bound but not listened at, so that who names it may listen there, as often as wanted (SO_REUSEADDR).
    """
    with socket.socket() as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def respond(
    handler: BaseHTTPRequestHandler, body: bytes, status: int = 200, content_type: str = "text/plain", **headers: str
) -> None:
    """A whole answer."""
    handler.send_response(status)
    handler.send_header("Content-Type", content_type)
    handler.send_header("Content-Length", str(len(body)))
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


def always(body: bytes, status: int = 200, content_type: str = "text/plain", **headers: str) -> Answer:
    """An answer that is always the same."""
    return lambda handler: respond(handler, body, status, content_type, **headers)
