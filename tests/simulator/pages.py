"""The recording of a run: a folder of pages, as the recorder writes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

from simulator import gpu_page, llamacpp_page, sglang_page, trtllm_page, vllm_page
from simulator.counted import Counted
from simulator.run import Run

#: The run's beginning, Unix seconds.
ZERO = 1_795_975_800.0
PAGES: Final[dict[str, Callable[[Counted, float], str]]] = {
    "vllm": vllm_page.page, "sglang": sglang_page.page, "trtllm": trtllm_page.page, "llama.cpp": llamacpp_page.page,
}  # fmt: skip
#: Scrapes of a window.
MOST = 12


def moments(run: Run) -> list[float]:
    """When servers are scraped: each interval, which is longer in a long window, and when the window closes."""
    span = run.closed - run.opened
    # Prompts alone make few steps: only close scrapes tell when their load began and ended.
    interval = max(run.plan.interval, span / MOST) if run.plan.traffic.output > 1 else run.plan.interval / 2
    return [*(run.opened + number * interval for number in range(int(span / interval))), run.closed]


def write_engine(run: Run, folder: Path) -> Path:
    """The engine's own pages."""
    folder.mkdir(parents=True, exist_ok=True)
    counted = Counted(run)
    engine = run.plan.flavour.partition(" ")[0]
    page = PAGES[engine]
    for number, moment in enumerate(moments(run), 1):
        text = f"# scraped_at {ZERO + moment:.6f}\n# scrape_seconds 0.002000\n{page(counted, moment)}"
        (folder / f"{engine}.{number:06d}.prom").write_text(text, encoding="utf-8")
    return folder


def write_gpus(run: Run, folder: Path) -> Path:
    """The pages of a DCGM exporter beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, text in enumerate(gpu_page.pages(run, moments(run), ZERO), 1):
        (folder / f"dcgm.{number:06d}.prom").write_text(text, encoding="utf-8")
    return folder


def write_client(run: Run, path: Path) -> Path:
    """What ``vllm bench serve --save-result --save-detailed`` keeps of it."""
    from simulator.bench_result import result

    path.write_text(json.dumps(result(run)), encoding="utf-8")
    return path
