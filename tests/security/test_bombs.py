"""Small files that would be large, or deep, once they are read: refused, or read in little memory."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_llmroof.assess import assess
from pytest_llmroof.baseline.reading import read_report
from pytest_llmroof.errors import LlmroofError
from pytest_llmroof.gates.build import window_spec
from pytest_llmroof.resolve.modelfile import model_of
from pytest_llmroof.telemetry import sources

DEEP = 200_000
#: What each reader takes for one of its own, with a value that is nested without end.
DEEP_FILES = {
    "a benchmark's result": '{"backend": "vllm", "completed": 1, "duration": %s, "total_input_tokens": 1}',
    "an engine's records": '[{"iter": 1, "iterLatencyMS": 1.0, "kvCacheStats": %s}]',
    "amd-smi's document": '{"gpu_data": [{"gpu": 0, "usage": %s}]}',
    "a trace": '{"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "kernel", "args": %s}]}',
    "a trace's header": '{"deviceProperties": %s, "traceEvents": [{"ph": "X", "cat": "kernel"}]}',
    "an export of AIPerf's": '{"schema_version": "1.0", "summary": {"endpoints_configured": []}, "metrics": %s}',
}


def said(folder: Path, name: str) -> str:
    """What is said of a window of one file, of which nothing can be measured."""
    keys = {"telemetry": [name], "gates": ["output.tokens_per_second > 0"]}
    found = assess(window_spec(keys, id="w", name="w", base=folder))
    (verdict,) = found.verdicts
    assert verdict.word == "no data"
    return "\n".join([str(verdict.reason), *(found.facts.window.unread if found.facts else ())])


@pytest.mark.parametrize("kind", DEEP_FILES)
@pytest.mark.parametrize("nested", ["[" * DEEP + "]" * DEEP, "[" * DEEP, '{"a":' * DEEP + "1" + "}" * DEEP])
def test_deep_json_is_no_data(kind: str, nested: str, tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text(DEEP_FILES[kind] % nested)
    assert "deep.json" in said(tmp_path, "deep.json")


@pytest.mark.parametrize("nested", ["[" * DEEP, '{"a":' * DEEP])
def test_a_deep_report_or_configuration_is_a_user_s_error(nested: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(nested)
    readers: tuple[Callable[[], object], ...] = (
        lambda: read_report(path, path.name), lambda: model_of("./config.json", tmp_path)
    )  # fmt: skip
    for read in readers:
        with pytest.raises(LlmroofError, match=r"config\.json"):
            read()


def test_packed_json_is_unpacked_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MAXIMUM_JSON_BYTES", 1 << 20)
    (tmp_path / "bench.json").write_bytes(gzip.compress(b'{"completed": 1,' + b" " * (2 << 20) + b"}"))
    assert "is larger than 1 MiB" in said(tmp_path, "bench.json")


#: Runs in a process of its own: what memory it may map is bounded for all of it.
BOUNDED = """
import resource, sys
from pathlib import Path
import numpy
from pytest_llmroof.profiles.chrome import read_chrome
from pytest_llmroof.errors import SourceError
mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (mapped + (400 << 20),) * 2)
try:
    read_chrome(Path(sys.argv[1]))
except SourceError as error:
    print(error)
"""
HEAD = b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "'
BOMBS = {
    "blanks before the events": (b"{", b" "),
    "an event without an end": (HEAD, b"a"),
    "what follows the events": (HEAD + b'k", "ts": 1, "dur": 1}], "x": "', b"a"),
}
TIMES, MEGABYTE = 600, 1 << 20


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="tells how much memory a process has mapped")
@pytest.mark.parametrize("kind", BOMBS)
def test_a_packed_trace_of_hundreds_of_megabytes_takes_little_memory(kind: str, tmp_path: Path) -> None:
    head, letter = BOMBS[kind]
    path = tmp_path / "bomb.pt.trace.json.gz"
    with gzip.open(path, "wb", compresslevel=1) as packed:
        packed.write(head)
        for _ in range(TIMES):
            packed.write(letter * MEGABYTE)
    assert path.stat().st_size < TIMES * MEGABYTE / 100
    done = subprocess.run(
        [sys.executable, "-c", BOUNDED, str(path)], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.stderr == ""
    assert "bomb.pt.trace.json.gz" in done.stdout


def test_json_that_is_fine_is_not_taken_for_a_bomb(tmp_path: Path) -> None:
    nested = "[" * 20 + "]" * 20
    (tmp_path / "it.json").write_text(json.dumps({"x": json.loads(nested)}))
    assert "no reader here knows it" in said(tmp_path, "it.json")
