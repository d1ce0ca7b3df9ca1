"""A vLLM server's exporter in a process of its own, with prometheus_client's HTTP server: it can be killed and stopped.

    python engine_process.py --port=PORT [--at=SCRAPE:SIGNAL]

Prints a line once it listens. ``slow`` on standard input doubles the time of its steps. At a scrape that ``--at``
names it sends itself that signal, in the middle of the answer.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from exporters import ITL, Process
from loopback import reserved
from prometheus_client import Metric, start_http_server
from prometheus_client.registry import Collector

_PATIENCE_SECONDS = 120.0


class EngineProcess:
    """One server, which may live several times at its port."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/metrics"

    def start(self, at: tuple[int, signal.Signals] | None = None) -> None:
        """A life of it; the port stays. ``at`` is a scrape at which it gets a signal."""
        fate = [] if at is None else [f"--at={at[0]}:{int(at[1])}"]
        self._process = subprocess.Popen(
            [sys.executable, __file__, f"--port={self.port}", *fate],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "listens\n"

    def slow(self) -> None:
        """Its steps take twice as long from now on."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write("slow\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """``kill -9``, and it is gone."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def stop(self) -> None:
        """SIGSTOP, and it stands: the system still takes connections for it."""
        self._signal(signal.SIGSTOP)
        until(lambda: self._state() == "T", "the server stands")

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def _state(self) -> str:
        assert self._process is not None
        return Path(f"/proc/{self._process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]


@contextmanager
def engine(at: tuple[int, signal.Signals] | None = None) -> Iterator[EngineProcess]:
    """A server that runs, and is gone at the end of the block."""
    with reserved() as port:
        served = EngineProcess(port)
        served.start(at)
        try:
            yield served
        finally:
            served.kill()


def until(holds: Callable[[], bool], what: str) -> None:
    """Wait until something holds, however long a busy machine takes for it; two minutes are a fault."""
    end = time.monotonic() + _PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < end, f"still not so: {what}"
        time.sleep(0.01)


class _Fate(Collector):
    """Gives no metric of its own: it counts scrapes, and sends the signal at one of them."""

    def __init__(self, scrape: int, number: int) -> None:
        self.left = scrape
        self.number = number

    def collect(self) -> Iterator[Metric]:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), self.number)
        return iter(())


def _serve(port: int, at: str | None) -> None:
    served = Process(started=time.time())
    if at is not None:
        scrape, _, number = at.partition(":")
        served.registry.register(_Fate(int(scrape), int(number)))
    slowed = threading.Event()

    def listen() -> None:
        for line in sys.stdin:
            if line.strip() == "slow":
                slowed.set()

    threading.Thread(target=listen, daemon=True).start()
    start_http_server(port, "127.0.0.1", served.registry)
    print("listens", flush=True)
    while True:
        # A server that was stopped did no work meanwhile.
        seconds = 2 * ITL if slowed.is_set() else ITL
        time.sleep(seconds)
        served.step(seconds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--at")
    given = parser.parse_args()
    _serve(given.port, given.at)
