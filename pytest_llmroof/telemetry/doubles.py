"""Servers of a fleet that are there twice: behind two jobs, or two Prometheus servers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pytest_llmroof.telemetry.difference import SAME_START_SECONDS
from pytest_llmroof.telemetry.fleet import ASKED, Place, Server, interval_of, with_names

#: Seconds by which the start of a process may differ between two servers that scrape it: by rounding.
_SAME_PROCESS: Final = 0.01


def without_doubles(servers: Sequence[Server], said: list[str]) -> list[Server]:
    """Each server once, where several ways lead to it (two jobs, two Prometheis): the one with the most scrapes."""
    by_place: dict[Place, list[Server]] = {}
    for server in servers:
        by_place.setdefault(server.key[0], []).append(server)
    kept: list[Server] = []
    doubled = 0
    differing: set[str] = set()
    for same in by_place.values():
        same.sort(key=lambda server: -len(server.times))
        ways: list[Server] = []
        for server in same:
            twin = next((other for other in ways if _alike(server, other)), None)
            if twin is None:
                ways.append(server)
            else:
                doubled += 1
                differing |= {label for label, _ in set(server.key[1]) ^ set(twin.key[1])}
        kept.extend(ways)
    order = {server.key: index for index, server in enumerate(servers)}
    kept.sort(key=lambda server: order[server.key])
    if doubled:
        said.append(
            f"{doubled} of {len(servers)} servers are there twice, by another {' or '.join(sorted(differing))}: "
            "each is counted once"
        )
        kept = with_names(kept)
    return kept


def _alike(one: Server, other: Server) -> bool:
    """Whether two are the same server: its process started at the same time, or both had done the same."""
    models = [{identity.model_name for identity, *_ in (*server.work, *server.gauges)} for server in (one, other)]
    if not models[0] & models[1]:
        return False
    if one.starts and other.starts:
        # Of one process both Prometheis have the same figure. Servers of two clusters that are named alike and were
        # rolled out together start at nearly the same time.
        apart = SAME_START_SECONDS if dict(one.key[1]).get(ASKED) == dict(other.key[1]).get(ASKED) else _SAME_PROCESS
        return any(
            abs(start - began) <= apart
            for start in set(one.starts.values()) for began in set(other.starts.values())
        )  # fmt: skip
    low, high = max(one.times[0], other.times[0]), min(one.times[-1], other.times[-1])
    if low > high:
        return False  # one after the other
    # Totals at the same time differ by what is done between two scrapes at the most, in either direction.
    span = 2 * max(interval_of([one, other]), 0.001)
    slack = [abs(server.total(high) - server.total(high - span)) for server in (one, other)]
    return abs(one.total(high) - other.total(high)) <= max(slack)
