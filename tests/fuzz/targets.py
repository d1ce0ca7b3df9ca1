"""What reads an input, and what it may answer: figures that hold, or an error that a user is meant to see.

A target returns where the input was read or refused as it should; anything it raises is a fault: another exception of
the reader's, or a ``Broken`` promise.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fuzz import seeds
from fuzz.damage import cut, damaged_windows, judge_damaged, spoilt
from fuzz.fleet import answers, ask
from fuzz.mutation import mutated
from fuzz.seeds import Seed
from pytest_llmroof import declarations, options
from pytest_llmroof.analysis.measurement import Measurement
from pytest_llmroof.assess import assess
from pytest_llmroof.baseline.reading import read_report
from pytest_llmroof.errors import ConfigError, LlmroofError, SourceError
from pytest_llmroof.gates.assessment import Assessment
from pytest_llmroof.gates.build import window_spec
from pytest_llmroof.gates.file import load_gate_file
from pytest_llmroof.gates.grammar import parse_expression
from pytest_llmroof.gates.sources import check_end, check_source, telemetry_source
from pytest_llmroof.gates.spec import WindowSpec
from pytest_llmroof.profiles.finding import find_profiles
from pytest_llmroof.profiles.reading import read_profile
from pytest_llmroof.report import json_report
from pytest_llmroof.report.calibrate import calibrated
from pytest_llmroof.report.document import report_document, window_document
from pytest_llmroof.report.terminal import summary_lines
from pytest_llmroof.resolve import resolve
from pytest_llmroof.resolve.gguffile import forget_headers
from pytest_llmroof.resolve.modelfile import forget_models, model_of
from pytest_llmroof.roofline.model import Model
from pytest_llmroof.telemetry.question import end_of, question_of, utc
from pytest_llmroof.telemetry.reading import read_window
from pytest_llmroof.units import UnitError, format_quantity, parse_quantity, precise
from pytest_llmroof.windows import option_source

#: One of so many inputs of telemetry is measured, judged and reported, which takes ten times as long as to read it.
_WHOLE_WAY = 32


class Broken(AssertionError):
    """A promise that was not kept: an answer that no reader may give."""


@dataclass(frozen=True)
class Target:
    """``read`` is given the folder of the seed's files, the seed, and what became of its content.

    ``share`` is how many of all inputs are this target's, beside the others' shares: fewer where one takes long.
    """

    name: str
    seeds: Callable[[], list[Seed]]
    read: Callable[[Path, Seed, bytes], None]
    share: float = 1.0
    mutate: Callable[[bytes, random.Random, Sequence[bytes]], bytes] = mutated


def _written(folder: Path, seed: Seed, content: bytes) -> Path:
    path = folder / seed.name
    path.write_bytes(content)
    return path


@cache
def _spec(base: Path, telemetry: tuple[str, ...]) -> WindowSpec:
    """Nothing of it changes from input to input but what the files hold."""
    gates = ["decode.mbu >= 75%", "tpot.p99 <= 50ms", {"gate": "hardware.sm_active >= 50%", "per": "gpu"}]
    keys: dict[str, object] = {"gpu": "h100", "model": "llama-3.1-8b", "telemetry": list(telemetry)}
    keys |= {"gates": gates, "deployment": {"tensor_parallel": 1}}
    return window_spec(keys, id="llmroof.yaml::w", name="w", base=base)


def telemetry(folder: Path, seed: Seed, content: bytes) -> None:
    """Read as a folder, or by name where it stands alone; some inputs go the whole way to a report, like any window."""
    path = _written(folder, seed, content)
    if zlib.crc32(content) % _WHOLE_WAY == 0:
        _reported(assess(_spec(folder, (seed.name,) if not seed.beside else (".",))))
        return
    named = (path, path.name) if not seed.beside else (folder, "recording")
    with _refused():
        profiles = find_profiles([named])
        if profiles:
            read_profile(profiles)
        window = read_window([named], elsewhere=frozenset(file.path for file in profiles))
        for engine in window.engines:
            _finite("a counter", *engine.counters.values(), *(one.total for one in engine.histograms.values()))


def _reported(assessment: Assessment) -> None:
    """Measured, diagnosed, judged and reported: every figure is one."""
    if assessment.facts is None:
        return
    for name, outcome in assessment.outcomes.items():
        if isinstance(outcome, Measurement):
            _finite(name, outcome.bounded.value, outcome.bounded.low)
    document = window_document(assessment)
    for name, found in document["measurements"].items():
        _finite(name, found["value"], found["low"])
    report = report_document([document], labels={}, created="2026-11-29T12:00:00Z")
    json.dumps(report, allow_nan=False, ensure_ascii=False).encode()
    for line in summary_lines(report):
        line.encode()


def _finite(name: str, *values: object) -> None:
    for value in values:
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise Broken(f"{name} is {value!r}")


def model(folder: Path, seed: Seed, content: bytes) -> None:
    """A configuration; what stands beside one is read with it."""
    forget_models()
    _written(folder, seed, content)
    with _refused():
        _counted(model_of("./config.json", folder))


def header(folder: Path, seed: Seed, content: bytes) -> None:
    """A GGUF file's header."""
    forget_headers()
    path = _written(folder, seed, content)
    with _refused():
        _counted(model_of(f"./{path.name}", folder))


def _counted(found: Model) -> None:
    """A model that is understood has figures that can be divided by."""
    figures = (found.parameters, found.active_parameters, found.weight_bytes("bf16"), found.kv_bytes_per_token("bf16"))
    _finite("a model's figures", *figures)
    if not 0 < found.active_parameters <= found.parameters * (1 + 1e-9):
        raise Broken(f"{found.active_parameters} of {found.parameters} parameters are active")


def report(folder: Path, seed: Seed, content: bytes) -> None:
    """A report, as a baseline and as something to render."""
    path = _written(folder, seed, content)
    with _refused():
        read_report(path, path.name)
    with _refused():
        document = json_report.load_whole(path)
        for write in (*_renderings(), _gate_file):
            write(document).encode()


@cache
def _renderings() -> tuple[Callable[[Mapping[str, Any]], str], ...]:
    from pytest_llmroof.report import checklist, github, html, junit, promfile

    def lines(document: Mapping[str, Any]) -> str:
        return "\n".join([*summary_lines(dict(document)), *github.error_commands(dict(document), str)])

    rendered: Sequence[Any] = (checklist.rendered, junit.rendered, promfile.rendered, github.summary, html.render)
    return (*rendered, lines)


def _gate_file(document: Mapping[str, Any]) -> str:
    with json_report.fitting("report.json"):
        return calibrated([("report.json", dict(document))])


def gate_file(folder: Path, seed: Seed, content: bytes) -> None:
    """A gate file, with the names in it looked up as for a run."""
    path = _written(folder, seed, content)
    with _refused():
        for spec in load_gate_file(path, folder, resolve):
            resolve(spec)


def accelerator(folder: Path, seed: Seed, content: bytes) -> None:
    """A YAML file of an accelerator."""
    path = _written(folder, seed, content)
    with _refused():
        chip = resolve(window_spec({"gpu": f"./{path.name}"}, id="w", name="w", base=folder)).accelerator
        if chip is None:
            raise Broken("a file that describes no accelerator")
        told = (*chip.peaks.values(), chip.memory_bandwidth_bytes_per_second, chip.memory_bytes)
        _finite("an accelerator's figures", *(figure for figure in told if figure is not None))


def expression(folder: Path, seed: Seed, content: bytes) -> None:
    """A gate's expression; its canonical spelling means the same."""
    with _refused():
        parsed = parse_expression(content.decode(errors="replace"))
        if parse_expression(parsed.canonical) != parsed:
            raise Broken(f"{parsed.canonical!r} means something else than what it was made of")


def quantity(folder: Path, seed: Seed, content: bytes) -> None:
    """A quantity; printed, it can be read."""
    try:
        found = parse_quantity(content.decode(errors="replace"))
    except UnitError:
        return
    _finite("a quantity", found.value)
    if found.unit is not None:
        format_quantity(found.value, found.unit)
        precise(found.value, found.unit)


def option(folder: Path, seed: Seed, content: bytes) -> None:
    """Every option that takes a text which is read: a usage error, or a value."""
    text = content.decode(errors="surrogateescape")
    for read in _option_types():
        with _refused(argparse.ArgumentTypeError):
            read(text)
    for sourced in (
        lambda: window_spec({"deployment": dict([options.scalar(text)])}, id="w", name="w", base=folder),
        lambda: window_spec({"telemetry": [option_source(text, "--llmroof-telemetry")]}, id="w", name="w", base=folder),
        lambda: telemetry_source(text, folder),
        lambda: check_source(text),
        lambda: _end(text),
        lambda: question_of(text, duration=60.0, end="1000"),
        lambda: model_of(text, folder),
        lambda: resolve(window_spec({"gpu": text}, id="w", name="w", base=folder)),
    ):
        with _refused():
            sourced()


def _end(text: str) -> None:
    check_end(text)
    utc(end_of(text))


@cache
def _option_types() -> tuple[Callable[[str], object], ...]:
    """What argparse converts each option with."""
    return tuple({one["type"] for one in declarations.declared_options().values() if "type" in one})


class _refused:
    """A user's error ends the block; it says something, and can be shown."""

    def __init__(self, *more: type[Exception]) -> None:
        self._kinds: tuple[type[BaseException], ...] = (LlmroofError, *more)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> bool:
        if not isinstance(error, self._kinds):
            return False
        if not str(error).strip():
            raise Broken("an error that says nothing")
        if isinstance(error, SourceError | ConfigError) and "Traceback" in str(error):
            raise Broken("an error that shows a traceback")
        return True


def _targets() -> Iterator[Target]:
    """Shares are in thousandths, as many as the readers' speeds allow: each gets thousands of a million inputs."""
    yield Target("engines' pages", seeds.engines, telemetry, 20)
    yield Target("GPU counters", seeds.gpus, telemetry, 12)
    yield Target("benchmark results", seeds.benchmarks, telemetry, 50)
    yield Target("iteration records", seeds.records, telemetry, 12)
    yield Target("profiles", seeds.profiles, telemetry, 10)
    yield Target("Prometheus answers", answers, ask, 10)
    yield Target("model configurations", seeds.models, model, 130)
    yield Target("GGUF headers", seeds.headers, header, 160)
    yield Target("accelerator files", seeds.accelerators, accelerator, 15)
    yield Target("gate files", seeds.gate_files, gate_file, 15)
    yield Target("gate expressions", seeds.texts(*seeds.GATES), expression, 200)
    yield Target("quantities", seeds.texts(*_QUANTITIES), quantity, 364)
    yield Target("options", seeds.texts(*_OPTIONS), option, 8)
    yield Target("reports", seeds.reports, report, 1.5)
    yield Target("cut windows", damaged_windows, judge_damaged, 2, cut)
    yield Target("spoilt windows", damaged_windows, judge_damaged, 2, spoilt)


_QUANTITIES = ("75%", "0.75", "50 ms", "3.2TB/s", "1e-3 s", "24GiB", "1_980MHz")
_OPTIONS = (
    "60s", "1.5m", "tensor_parallel=4", "draft_model={parameters: 1e9, layers: 2}", "weights=fp8", "release=1.5.0", "7",
    "decode", "out/report.json", "http://user:pw@host:8000/metrics?token=x#y", "https://[::1]:9/m", "recordings/decode",
    "{url: 'http://h/metrics', headers: {A: b}, timeout: 10s}", "h100",
    "{prometheus: 'http://p', selector: 'a=\"b\"', end: now}",
    "now-24h", "2026-11-29T12:00:00Z", 'namespace="prod",pod=~"a.*"', "llama-3.1-70b", "NVIDIA H100 80GB HBM3",
)  # fmt: skip

TARGETS: Mapping[str, Target] = {target.name: target for target in _targets()}
