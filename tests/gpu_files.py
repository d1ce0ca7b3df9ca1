"""Pages, tables and documents of GPU counters as exporters and tools write them, with figures easy to recompute."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pytest_llmroof.telemetry.hardware import Gpu, Hardware
from pytest_llmroof.telemetry.reading import read_window
from pytest_llmroof.telemetry.window import Window

#: 2026-09-04T00:00:00Z.
T0 = 1_788_480_000.0
H100 = "NVIDIA H100 80GB HBM3"


def dcgm_page(figures: Mapping[str, float | str], at: float | None = None, **labels: str) -> str:
    """A page of dcgm-exporter with one GPU: names without ``DCGM_FI_`` and their values."""
    told = {"gpu": "0", "UUID": "GPU-0", "device": "nvidia0", "modelName": H100, "Hostname": "n1", **labels}
    text = ",".join(f'{label}="{value}"' for label, value in told.items() if value)
    head = [] if at is None else [f"# scraped_at {at}"]
    return "\n".join([*head, *(f"DCGM_FI_{name}{{{text}}} {value}" for name, value in figures.items()), ""])


def vllm_page(tokens: float, at: float | None = None) -> str:
    """A page of vLLM that has generated so many tokens."""
    head = [] if at is None else [f"# scraped_at {at}"]
    names = [f'vllm:generation_tokens_total{{engine="0",model_name="m"}} {tokens}', "vllm:num_requests_running 3"]
    return "\n".join([*head, *names, ""])


def folder_of(folder: Path, files: Mapping[str, str]) -> Path:
    """A folder with these files."""
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def window_of(folder: Path, files: Mapping[str, str], **options: Any) -> Window:
    """The window that a folder with these files holds."""
    return read_window([(folder_of(folder, files), "rec")], **options)


def hardware_of(window: Window) -> Hardware:
    """Its hardware, which is there."""
    assert window.hardware is not None
    return window.hardware


def only_gpu(window: Window) -> Gpu:
    """Its only GPU."""
    (gpu,) = hardware_of(window).gpus
    return gpu


def csv_of(head: str, rows: Iterable[str]) -> str:
    """A table of nvidia-smi."""
    return "\n".join([head, *rows, ""])
