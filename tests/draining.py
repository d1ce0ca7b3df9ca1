"""A server that hands out its engine's iteration records once, as trtllm-serve's /metrics does."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from loopback import respond

#: An iteration decodes 8 sequences in 10 ms; every 25th of them ends one request.
SECONDS, BATCH, EVERY = 0.010, 8, 25


def iteration(number: int) -> dict[str, Any]:
    """What an engine keeps of one iteration."""
    return {
        "iter": number,
        "iterLatencyMS": 19.0,
        "hostStepTimeMS": 1e3 * SECONDS,
        "gpuForwardTimeMS": 8.0,
        "schedulerMode": "overlap",
        "numActiveRequests": BATCH,
        "numQueuedRequests": 2,
        "numCompletedRequests": int(number % EVERY == 0),
        "kvCacheStats": {"usedNumBlocks": 250, "maxNumBlocks": 1000, "tokensPerBlock": 32},
        "inflightBatchingStats": {
            "numGenRequests": BATCH,
            "numContextRequests": 0,
            "numCtxTokens": 0,
            "avgNumDecodedTokensPerIter": 1.0,
        },
        "numGenKvTokens": 1000 * BATCH,
    }


@dataclass
class Iterations:
    """An answer for the exporter: the iterations since the answer before. ``handed`` are all lists that it gave."""

    handed: list[list[dict[str, Any]]] = field(default_factory=list)
    idle: bool = False
    _until: float = field(default_factory=time.monotonic)
    _next: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, handler: BaseHTTPRequestHandler) -> None:
        with self._lock:
            records = self.drain()
            self.handed.append(records)
        respond(handler, json.dumps(records).encode(), content_type="application/json")

    def drain(self) -> list[dict[str, Any]]:
        """The records that nobody was handed yet; an idle engine did none meanwhile."""
        now = time.monotonic()
        count = 0 if self.idle else int((now - self._until) / SECONDS)
        self._until = now if self.idle else self._until + count * SECONDS
        self._next += count
        return [iteration(number) for number in range(self._next - count, self._next)]

    def restart(self) -> None:
        """A new process: its iterations begin at 0, and what was in the queue is gone."""
        self._until, self._next = time.monotonic() - 0.1, 0
