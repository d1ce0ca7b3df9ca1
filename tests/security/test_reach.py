"""What a gate file reaches: the files that it names, read and nothing else; no code, no commands, no network.

The interpreter's own audit events are listened to (PEP 578), from below anything that a gate file could get at.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from gguf_files import dense
from planted import short_gaps
from timelines import write_kineto
from vllm_pages import write_pages

import pytest_llmroof

#: A gate file is collected, and each window without a network source is measured, judged and put into a report.
JUDGE = """
import json, os, sys
from pathlib import Path

from pytest_llmroof.assess import assess
from pytest_llmroof.gates.file import load_gate_file
from pytest_llmroof.report.document import window_document
from pytest_llmroof.resolve import resolve

RUN = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "pty.spawn",
       "socket.connect", "socket.bind", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "urllib.Request",
       "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.chmod", "os.link", "os.symlink", "os.truncate",
       "shutil.rmtree", "shutil.copyfile", "pickle.find_class", "marshal.loads", "ctypes.dlopen", "code.__new__",
       "open", "sqlite3.connect", "os.listdir", "os.scandir")
events = []

def listen(event, arguments):
    if event in RUN:
        flags = arguments[2] if event == "open" else 0
        events.append([event, str(arguments[0]) if arguments else "", flags])

root = Path(sys.argv[1])
sys.addaudithook(listen)
windows = load_gate_file(root / "gates" / "llmroof.yaml", root, resolve)
collected = len(events)
for window in windows:
    if not window.live:
        document = window_document(assess(window))
        assert document["gates"][0]["verdict"] in ("pass", "fail"), document["gates"][0]
sys.stdout.write(json.dumps({"windows": len(windows), "collected": events[:collected], "events": events}))
"""
GATES = """\
gpu: h100
model: ../model/it.gguf
deployment: {tensor_parallel: 1}
windows:
  pages:
    telemetry: ["../named/before.prom", ../named/after.prom, ../named/it.pt.trace.json]
    gates: [output.tokens_per_second >= 1]
  asked:
    telemetry: {prometheus: "http://prometheus.invalid:9090", headers: {X: "${HOME}"}, token_file: ../secret, end: now}
    duration: 60s
    gates: [output.tokens_per_second >= 1]
  live:
    telemetry: {url: "https://user:password@engine.invalid/metrics", cert: ../secret}
    gates: [output.tokens_per_second >= 1]
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("project").resolve()


@pytest.fixture(scope="module")
def heard(root: Path) -> dict[str, Any]:
    """What was heard while a gate file was read, resolved, measured and judged."""
    for folder in ("gates", "named", "model"):
        (root / folder).mkdir()
    write_pages(root / "named")
    write_kineto(short_gaps(), root / "named" / "it.pt.trace.json")
    (root / "named" / "beside.prom").write_text("never 1\n")
    (root / "model" / "it.gguf").write_bytes(dense())
    (root / "secret").write_text("token")
    (root / "gates" / "llmroof.yaml").write_text(GATES)
    done = subprocess.run(
        [sys.executable, "-B", "-c", JUDGE, str(root)], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["windows"] == 3
    return found


def own_code(path: str) -> bool:
    """Whether a file belongs to the interpreter, its libraries or this package: code and catalogues, no inputs."""
    homes = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    homes |= {str(Path(pytest_llmroof.__file__).parent), sys.prefix, sys.base_prefix}
    return path.endswith(".pyc") or any(Path(path).is_relative_to(home) for home in homes)


def test_nothing_is_run_and_nobody_is_asked(heard: dict[str, Any]) -> None:
    harmless = {"open", "os.listdir", "os.scandir", "ctypes.dlopen", "marshal.loads"}
    assert [event for event in heard["events"] if event[0] not in harmless] == []


def test_only_what_is_named_is_read(heard: dict[str, Any], root: Path) -> None:
    opened = {Path(path).resolve() for event, path, _ in heard["events"] if event == "open" and not own_code(path)}
    read = {path.relative_to(root).as_posix() for path in opened if path.is_relative_to(root)}
    named = {f"named/{name}" for name in ("before.prom", "after.prom", "it.pt.trace.json")}
    assert read == {"gates/llmroof.yaml", "model/it.gguf", *named}
    # What the interpreter and NumPy look up of the machine.
    machine = ("/proc/", "/sys/", "/dev/null", "/etc/ld", "/usr/")
    elsewhere = {path.as_posix() for path in opened if not path.is_relative_to(root)}
    assert {path for path in elsewhere if not path.startswith(machine)} == set()


def test_nothing_is_written(heard: dict[str, Any]) -> None:
    writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
    assert [event for event in heard["events"] if event[0] == "open" and event[2] & writing] == []


def test_collecting_reads_the_gate_file_alone(heard: dict[str, Any], root: Path) -> None:
    opened = [Path(path) for event, path, _ in heard["collected"] if event == "open" and not own_code(path)]
    assert {path.name for path in opened if path.resolve().is_relative_to(root)} == {"llmroof.yaml"}
