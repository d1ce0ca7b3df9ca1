"""A small forward proxy on loopback: plain HTTP request by request, and tunnels by CONNECT."""

from __future__ import annotations

import base64
import contextlib
import http.client
import select
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from urllib.parse import urlsplit

from loopback import serving

#: Headers between two neighbours, which a proxy does not pass on.
_OF_ONE_HOP = ("connection", "keep-alive", "proxy-authorization", "proxy-connection", "transfer-encoding")


@dataclass
class Proxy:
    """``asked`` holds the method and target of every request; ``login`` is the user:password that it wants.

    ``hosts`` are names that only the proxy can resolve.
    """

    login: str | None = None
    hosts: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        login = f"{self.login}@" if self.login else ""
        return f"http://{login}127.0.0.1:{self.port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    proxy: Proxy

    def refused(self) -> bool:
        self.proxy.asked.append((self.command, self.path))
        login = self.proxy.login
        wanted = None if login is None else f"Basic {base64.b64encode(login.encode()).decode()}"
        if self.headers.get("Proxy-Authorization") == wanted:
            return False
        self.send_response(407)
        self.send_header("Proxy-Authenticate", 'Basic realm="proxy"')
        self.send_header("Content-Length", "0")
        self.end_headers()
        return True

    def do_GET(self) -> None:
        self.rfile_body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.refused():
            return
        target = urlsplit(self.path)
        host = str(target.hostname)
        onwards = http.client.HTTPConnection(self.proxy.hosts.get(host, host), target.port, timeout=30)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _OF_ONE_HOP}
        path = target._replace(scheme="", netloc="").geturl()
        with contextlib.closing(onwards):
            onwards.request(self.command, path, self.rfile_body or None, headers)
            answer = onwards.getresponse()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in (*_OF_ONE_HOP, "content-length", "date", "server"):
                    self.send_header(name, value)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            # Each piece goes on as it comes.
            while piece := answer.read1(65536):
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            self.wfile.write(b"0\r\n\r\n")

    do_POST = do_GET

    def do_CONNECT(self) -> None:
        if self.refused():
            return
        host, _, port = self.path.rpartition(":")
        with socket.create_connection((self.proxy.hosts.get(host, host), int(port)), 30) as onwards:
            self.send_response(200)
            self.end_headers()
            ways = {self.connection: onwards, onwards: self.connection}
            while ready := select.select(list(ways), (), (), 30)[0]:
                for source in ready:
                    data = source.recv(65536)
                    if not data:
                        self.close_connection = True
                        return
                    ways[source].sendall(data)


@contextlib.contextmanager
def proxying(proxy: Proxy) -> Iterator[Proxy]:
    """Serve on 127.0.0.1 until the end of the block."""

    with serving(type("Bound", (_Handler,), {"proxy": proxy})) as proxy.port:
        yield proxy
