"""A network between a client and a server that can be cut: forwards connections on loopback, until told otherwise."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

#: How a connection ends: its end, a reset, silence.
Kind = Literal["close", "reset", "blackhole"]
_RESET = struct.pack("ii", 1, 0)


@dataclass(frozen=True)
class Cut:
    """What becomes of an answer, behind a share of it (0 to 1)."""

    kind: Kind
    share: float = 0.0


class Network:
    """Forwards to ``target``. ``cut`` is what becomes of answers now; ``delay_seconds`` is how late they are."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.cut: Cut | None = None
        self.delay_seconds = 0.0
        self.asked = 0
        self.at_once = 0
        self.most_at_once = 0
        self._changed = threading.Condition()
        self._over = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self._threads: list[threading.Thread] = [threading.Thread(target=self._accept)]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/metrics"

    def wait_for(self, more: int) -> None:
        """Until so many more connections came than there were."""
        with self._changed:
            wanted = self.asked + more
            assert self._changed.wait_for(lambda: self.asked >= wanted, timeout=60)

    def start(self) -> None:
        self._threads[0].start()

    def close(self) -> None:
        self._over.set()
        # A plain close would leave accept() waiting.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                thread = threading.Thread(target=self._handle, args=(client,))
                self._threads.append(thread)
                thread.start()

    def _handle(self, client: socket.socket) -> None:
        with self._changed:
            self.asked += 1
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            self._changed.notify_all()
        try:
            # Whichever end hangs up: that is what this is for.
            with client, contextlib.suppress(OSError):
                self._forward(client)
        finally:
            with self._changed:
                self.at_once -= 1

    def _forward(self, client: socket.socket) -> None:
        client.settimeout(60)
        request = client.recv(65536)
        answer = b"" if self.cut is not None and not self.cut.share else self._answer(request)
        self._over.wait(self.delay_seconds)
        cut = self.cut
        if cut is None:
            client.sendall(answer)
            return
        client.sendall(answer[: int(cut.share * len(answer))])
        if cut.kind == "blackhole":
            # Nothing more, until the client gives up.
            client.settimeout(0.05)
            while not self._over.is_set():
                with contextlib.suppress(TimeoutError):
                    if not client.recv(1):
                        return
        elif cut.kind == "reset":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)

    def _answer(self, request: bytes) -> bytes:
        """The whole answer. The server hangs up behind it, as it is asked to."""
        parts = []
        with socket.create_connection(("127.0.0.1", self.target), 60) as server:
            server.sendall(request)
            server.settimeout(0.05)
            while not self._over.is_set():
                with contextlib.suppress(TimeoutError):
                    part = server.recv(65536)
                    if not part:
                        break
                    parts.append(part)
        return b"".join(parts)


@contextmanager
def network(target: int) -> Iterator[Network]:
    """A network to a server's port, until the end of the block."""
    between = Network(target)
    between.start()
    try:
        yield between
    finally:
        between.close()
