"""Very many vLLM servers behind one port, in a process of its own: ``/replica/N/metrics`` is that of the N-th.

Prints the port once it listens. N sequences run on the N-th server; every scrape of it shows one more of its loads.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from functools import lru_cache
from http.server import BaseHTTPRequestHandler

from loopback import respond, serving
from vllm_pages import Load, page

_scrapes: Counter[int] = Counter()
_lock = threading.Lock()


@lru_cache(100_000)
def body(replica: int, loads: int) -> bytes:
    """A server's page after so many loads."""
    return page(Load(running=float(replica)), float(loads), None).encode()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        replica = int(self.path.split("/")[2])
        with _lock:
            _scrapes[replica] += 1
            loads = _scrapes[replica]
        respond(self, body(replica, loads))


if __name__ == "__main__":
    with serving(Handler) as port:
        print(port, flush=True)
        sys.stdin.read()  # until whoever started it is gone, or closes it
