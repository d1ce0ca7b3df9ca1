"""Connections of our own requests: to an endpoint's own address, hung up on in time, and silent in the logs."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from typing import Any, Final
from urllib.parse import urlsplit

import requests
import urllib3
from requests.adapters import HTTPAdapter

from pytest_llmroof.telemetry.endpoint import Endpoint

#: The process under test may patch this while its load runs (``responses`` and the like): a scrape must not see it.
_SEND: Final = HTTPAdapter.send


class Watch:
    """Hangs up on a server that takes its time: time-outs of sockets begin anew with every byte that comes."""

    def __init__(self, seconds: float) -> None:
        self.expired = False
        self._sockets: list[socket.socket] = []
        self._outer: Watch | None = None
        self._timer = threading.Timer(seconds, self.expire)
        self._timer.daemon = True

    def __enter__(self) -> Watch:
        self._outer = _WATCH.current
        _WATCH.current = self
        self._timer.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._timer.cancel()
        self._timer.join()
        _WATCH.current = self._outer
        self._sockets.clear()

    @property
    def opened(self) -> int:
        """How many connections there were."""
        return len(self._sockets)

    def over(self, connection: socket.socket | None) -> None:
        """Look after a connection; one that comes too late is hung up on at once."""
        if connection is not None:
            if not any(connection is each for each in self._sockets):
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


def _watch(connection: socket.socket | None) -> None:
    if _WATCH.current is not None:
        _WATCH.current.over(connection)


class _Connection(urllib3.connection.HTTPConnection):
    def connect(self) -> None:
        super().connect()
        _watch(self.sock)

    def putrequest(self, *args: Any, **kwargs: Any) -> None:
        """A kept connection was made under another watch."""
        _watch(self.sock)
        super().putrequest(*args, **kwargs)


class _TlsConnection(_Connection, urllib3.connection.HTTPSConnection):
    """The same over TLS."""


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
