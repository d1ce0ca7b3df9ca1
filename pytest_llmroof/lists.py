"""``--llmroof-list=WHAT``: what the package knows, printed from the same data that gates are judged with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import pytest

from pytest_llmroof.errors import ConfigError, SourceError
from pytest_llmroof.report.files import print_whole
from pytest_llmroof.units import format_quantity


def print_list(config: pytest.Config) -> int:
    """Print one list; the run stops with exit code 0."""
    try:
        lines = list(_LISTS[config.getoption("llmroof_list")](config))
        print_whole(("\n".join(lines) + "\n").encode())
    except (ConfigError, SourceError) as error:
        raise pytest.UsageError(str(error)) from None
    return 0


def _gpus(config: pytest.Config) -> Iterator[str]:
    from pytest_llmroof.roofline.accelerator import Accelerator
    from pytest_llmroof.roofline.catalogue import accelerator_from_mapping, accelerators, short_names

    short: dict[str, list[str]] = {}
    for name, full in short_names().items():
        if name != full:
            short.setdefault(full, []).append(name)
    rows = [["name", "dense peaks", "memory bandwidth", "memory", "also called"]]

    def row(known: Accelerator) -> list[str]:
        peaks = ", ".join(f"{precision} {format_quantity(peak, 'FLOP/s')}" for precision, peak in known.peaks.items())
        bandwidth, memory = known.memory_bandwidth_bytes_per_second, known.memory_bytes
        return [
            known.name, peaks or "unknown",
            format_quantity(bandwidth, "bytes/s") if bandwidth else "unknown",
            format_quantity(memory, "bytes") if memory else "unknown",
            ", ".join(sorted(short.get(known.name, []), key=len)),
        ]  # fmt: skip

    rows += [row(known) for known in accelerators().values()]
    for added in config.hook.pytest_llmroof_accelerators(config=config):
        rows += [row(accelerator_from_mapping({"name": name, **mapping})) for name, mapping in added.items()]
    yield from _table(rows)


def _models(config: pytest.Config) -> Iterator[str]:
    from pytest_llmroof.roofline.models import model_names, named_model

    rows = [["name", "model", "parameters", "active"]]
    for name in model_names():
        model = named_model(name)
        rows.append([name, model.title, f"{model.parameters / 1e9:.2f}e9", f"{model.active_parameters / 1e9:.2f}e9"])
    yield from _table(rows)
    yield "any other model: its config.json, or a mapping (parameters, layers, hidden_size, ...)"


def _metrics(config: pytest.Config) -> Iterator[str]:
    from pytest_llmroof.additions import install
    from pytest_llmroof.analysis.metrics import list_metrics

    install(config)
    rows = [["metric", "unit", "needs", "meaning"]]
    yield from _table(rows + [[one.name, one.unit, one.needs, one.meaning] for one in list_metrics()])


def _scenarios(config: pytest.Config) -> Iterator[str]:
    from pytest_llmroof.additions import install
    from pytest_llmroof.analysis.added_scenarios import added_scenarios
    from pytest_llmroof.data import load

    install(config)
    scenarios = load("scenarios.yaml")
    rows = [[letter, scenario["title"]] for letter, scenario in scenarios.items() if len(letter) == 1]
    yield from _table(rows + [[added.key, added.scenario.title] for added in added_scenarios()])


def _engines(config: pytest.Config) -> Iterator[str]:
    from pytest_llmroof.telemetry.engine_entries import engine_listing, with_engines
    from pytest_llmroof.telemetry.exporters import exporter_listing
    from pytest_llmroof.windows import added_engines

    listed = {**engine_listing(with_engines(added_engines(config))), **exporter_listing()}
    yield from _table([[key, text] for key, text in listed.items()])


def _table(rows: list[list[str]]) -> Iterator[str]:
    """Columns as wide as their widest cell; the last one runs free."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()


_LISTS: Final[dict[str, Callable[[pytest.Config], Iterator[str]]]] = {
    "gpus": _gpus, "models": _models, "metrics": _metrics, "scenarios": _scenarios, "engines": _engines,
}  # fmt: skip
