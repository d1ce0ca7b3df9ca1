"""A Prometheus that scraped one server every second for very long: blocks of two hours, written by promtool."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from fleets import program, storage_of

#: 2025-06-02T00:00:00Z, where a block begins; the histories end here.
END: Final = 1748822400
BLOCK_SECONDS: Final = 7200
WEEK_SECONDS: Final = 7 * 86_400
#: What the server does each second: tokens, requests that finish, steps of 20 ms with ten sequences.
TOKENS, REQUESTS, STEPS, BATCH = 505, 5, 50, 10

_LABELS = 'instance="10.0.0.1:8000",engine="0",model_name="org/model-8b"'
_TARGET = 'instance="10.0.0.1:8000"'


def lines(at: int, began: int) -> Iterator[str]:
    """The scrape of a second, of a process that began at another."""
    done = at - began
    counters = {
        "generation_tokens_total": TOKENS * done, "prompt_tokens_total": 1000 * REQUESTS * done,
        "inter_token_latency_seconds_count": STEPS * BATCH * done,
    }  # fmt: skip
    gauges = {"num_requests_running": BATCH, "num_requests_waiting": 0, "kv_cache_usage_perc": 0.4}
    for name, value in (counters | gauges).items():
        yield f"vllm:{name}{{{_LABELS}}} {value} {at}"
    yield f"vllm:inter_token_latency_seconds_sum{{{_LABELS}}} {STEPS * BATCH * done * 0.02:.2f} {at}"
    for bound, share in (("0.01", 0), ("0.025", 1), ("+Inf", 1)):
        bucket = f'vllm:inter_token_latency_seconds_bucket{{{_LABELS},le="{bound}"}}'
        yield f"{bucket} {share * STEPS * BATCH * done} {at}"
    yield f'vllm:request_success_total{{{_LABELS},finished_reason="length"}} {REQUESTS * done} {at}'
    yield f"process_start_time_seconds{{{_TARGET}}} {began} {at}"
    yield f"scrape_duration_seconds{{{_TARGET}}} 0.004 {at}"
    yield f"up{{{_TARGET}}} 1 {at}"


def began(at: int, seconds: int) -> int:
    """When the process of a second began: it was started anew once a third of the history was over."""
    first = END - seconds
    restarted = first + seconds // 3
    return restarted if at >= restarted else first - 60


@contextmanager
def history(folder: Path, seconds: int) -> Iterator[str]:
    """The URL of a Prometheus that holds so many seconds up to ``END``."""
    storage, written = folder / "data", folder / "samples.txt"
    storage.mkdir(parents=True)
    first = END - seconds
    for begin in range(first, END + 1, BLOCK_SECONDS):
        # promtool reads all of its file again for every block: a file for each.
        with written.open("w", encoding="utf-8") as file:
            for at in range(begin, min(begin + BLOCK_SECONDS, END + 1)):
                file.write("\n".join(lines(at, began(at, seconds))) + "\n")
            file.write("# EOF\n")
        made = subprocess.run(
            [program("promtool"), "tsdb", "create-blocks-from", "openmetrics", "--quiet", str(written), str(storage)],
            capture_output=True, text=True, check=False, timeout=600,
        )  # fmt: skip
        assert made.returncode == 0, made.stderr
    written.unlink()
    blocks = ("--storage.tsdb.min-block-duration=2h", "--storage.tsdb.max-block-duration=2h")
    with storage_of(folder, storage, *blocks) as url:
        yield url
