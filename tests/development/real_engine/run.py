"""The steps of a run: record, judge live, around a load and by a probe, replay, and hold every figure to others."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from development.real_engine import checks
from development.real_engine.asked import (
    DECODE,
    GATES,
    LOADS_TEST,
    PREFILL,
    PREFILL_GATES,
    PROBE_GATES,
    PROBE_TEST,
    PROBED,
    ROUNDS,
    SEEDS,
)
from development.real_engine.engines import HERE, SERVED, Broken, Engine, call, machine

REPOSITORY: Final = HERE.parents[2]


class Run:
    """One engine put through everything, in a folder of its own."""

    def __init__(self, engine: Engine, folder: Path, plugin: Path, gpu: Path | None) -> None:
        self.engine, self.folder, self.plugin, self.gpu = engine, folder, plugin, gpu
        self.checks = checks.Checks()
        self.same_version = False
        self.log = folder / "commands.log"
        # A model is called after its folder or file.
        model = SERVED if engine.model.is_dir() else f"{SERVED}.gguf"
        self.served = {"gpu": "cpu.yaml", "model": model, "deployment": {"tensor_parallel": 1}}

    def prepare(self) -> None:
        """What all steps need: the model's description, this machine's, and a pytest that is nobody else's."""
        self.folder.mkdir()
        model = self.engine.model if self.engine.model.is_dir() else self.engine.model.with_name("model")
        (self.folder / SERVED).mkdir()
        shutil.copy(model / "config.json", self.folder / SERVED)
        (self.folder / "model").symlink_to(model)
        if self.engine.model.is_file():
            (self.folder / f"{SERVED}.gguf").symlink_to(self.engine.model)
        (self.folder / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider --strict-markers\n")
        if self.gpu is None:
            say("measure this machine (--gpu=FILE where something else keeps it busy)")
        described = json.dumps(machine(self.engine)) if self.gpu is None else self.gpu.read_text()
        (self.folder / "cpu.yaml").write_text(described + "\n")

    def serve(self) -> None:
        """Every step that needs the server, and its end."""
        self.same_version = True
        say(f"serve {self.engine.name}")
        with self.engine.serving(self.folder / "server.log") as url:
            self.url, self.metrics = url, f"{url}/metrics"
            for shape in (DECODE, PREFILL):  # the first requests are slow, and are nobody's window
                self.load({**shape, "requests": shape["at_once"]})
            self.record("prefill", PREFILL)
            self.record("decode", DECODE)
            self.live()
            self.around_a_test()
            self.probe()

    def replays(self) -> None:
        """Every step that needs no server, over what the others left."""
        say("replay, without the server")
        self.config: dict[str, Any] = json.loads((self.folder / SERVED / "config.json").read_text())
        found = re.search(r"memory_bandwidth\W+([\d.]+)GB/s", (self.folder / "cpu.yaml").read_text())
        if found is None:
            raise Broken(f"{self.folder}/cpu.yaml says nothing like 'memory_bandwidth: 27.2GB/s'")
        self.bandwidth = float(found[1]) * 1e9
        self.judge_recordings()
        self.replay_live()
        self.replay_test()
        self.replay_probe()
        bench = Path(self.engine.serve[0]).with_name("llama-bench")
        if bench.exists():
            self.llama_bench(bench)

    # Loads

    def load(self, shape: Mapping[str, int]) -> None:
        """Send a load of our own and wait for it."""
        call([sys.executable, *self.load_command(shape)], self.folder, self.log)

    def load_command(self, shape: Mapping[str, int]) -> list[str]:
        options = [f"--{name.replace('_', '-')}={number}" for name, number in shape.items()]
        return [str(HERE / "load.py"), self.url, SERVED, *options]

    def benchmark(self, phase: str, shape: Mapping[str, int]) -> list[str]:
        """vLLM's own load generator, its result in the recording; for another engine our load."""
        if self.engine.name != "vllm":
            return [sys.executable, *self.load_command(shape), f"--result={phase}-load.json"]
        return [
            str(self.engine.python.with_name("vllm")), "bench", "serve", "--backend", "vllm", "--base-url", self.url,
            "--model", SERVED, "--tokenizer", "model", "--dataset-name", "random", "--ignore-eos",
            "--seed", SEEDS[phase],
            "--random-input-len", str(shape["prompt"]), "--random-output-len", str(shape["output"]),
            "--num-prompts", str(shape["requests"]), "--max-concurrency", str(shape["at_once"]),
            "--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "50,90,95,99",
            "--save-result", "--save-detailed", "--result-dir", f"recordings/{phase}",
            "--result-filename", "bench.json",
        ]  # fmt: skip

    # Steps

    def record(self, phase: str, shape: Mapping[str, int]) -> None:
        say(f"record {phase}")
        verb = [self.plugin, "-m", "pytest_llmroof", "record", f"--out=recordings/{phase}", "--interval=1s"]
        load = [self.metrics, "--", *self.benchmark(phase, shape)]
        call([*verb, *load], self.folder, self.log, **self.engine.environment, **_found())

    def live(self) -> None:
        say("live window of a gate file")
        # Where tokens are counted when requests end, the window has to hold several of them: shorter ones in a longer
        # window, their prompts shorter still, as it would not be one of decode otherwise.
        at_the_end = self.engine.name != "vllm"
        shape = {**DECODE, "prompt": 8, "output": 32} if at_the_end else DECODE
        duration = "24s" if at_the_end else "8s"
        # Its recording keeps the name of the window, as a user's would.
        self.gate_file("live", {"decode": {"phase": "decode", "telemetry": self.metrics, "duration": duration,
                                           "interval": "0.5s", "gates": list(GATES[self.engine.name])}})  # fmt: skip
        endless = [sys.executable, *self.load_command({**shape, "requests": 0})]
        with self.log.open("a") as out:
            load = subprocess.Popen(endless, cwd=self.folder, stdout=out, stderr=out)
        try:
            time.sleep(2)
            self.pytest("live", "live.llmroof.yaml", "--llmroof-record=kept", expect=1)
        finally:
            load.terminate()
            load.wait()
        self.checks.same("the endless load's exit code", load.returncode, 0)

    def around_a_test(self) -> None:
        say("window around a load in a test")
        passing = [gate for gate, verdict in GATES[self.engine.name].items() if verdict == "pass"]
        load = [*self.load_command(DECODE), "--result=test-load.json"]
        settings = {"telemetry": self.metrics, "served": self.served, "load": load, "gates": passing}
        (self.folder / "settings.json").write_text(json.dumps(settings))
        (self.folder / "test_loads.py").write_text(LOADS_TEST)
        self.pytest("test", "test_loads.py", "--llmroof-record=kept", expect=0)

    def probe(self) -> None:
        say("probes of both phases")
        settings = {
            "telemetry": self.metrics, "served": self.served,
            "prefill": {"prompt_tokens": PREFILL["prompt"], "requests": PROBED},
            "decode": {"batch": DECODE["at_once"], "prompt_tokens": DECODE["prompt"],
                       "output_tokens": DECODE["output"], "rounds": ROUNDS},
            "gates": PROBE_GATES,
        }  # fmt: skip
        (self.folder / "settings-probe.json").write_text(json.dumps(settings))
        (self.folder / "test_probe.py").write_text(PROBE_TEST)
        self.pytest("probe", "test_probe.py", "--llmroof-record=kept", expect=0)

    def judge_recordings(self) -> None:
        names = {"prefill": PREFILL_GATES, "decode": GATES}
        self.gate_file("recorded", {
            phase: {"phase": phase, "telemetry": f"recordings/{phase}", "gates": list(gates[self.engine.name])}
            for phase, gates in names.items()
        })  # fmt: skip
        self.pytest("recorded", "recorded.llmroof.yaml", expect=1)
        for window in checks.report(self.folder / "recorded.json"):
            phase = str(window["name"])
            what = f"recorded {phase}"
            pages = checks.Pages(self.folder / "recordings" / phase)
            checks.verdicts(self.checks, what, window, names[phase][self.engine.name])
            self.figures(what, window, pages)
            if self.engine.name == "vllm":
                result = json.loads((self.folder / "recordings" / phase / "bench.json").read_text())
                checks.client_and_server(self.checks, what, window, pages, result)
            else:
                checks.sent(self.checks, what, window, json.loads((self.folder / f"{phase}-load.json").read_text()))

    def replay_live(self) -> None:
        folder = self.folder / "kept" / "live.llmroof" / "decode"
        self.replay("live", folder, list(GATES[self.engine.name]), expect=1)
        (window,) = checks.report(self.folder / "live.json")
        checks.verdicts(self.checks, "live", window, GATES[self.engine.name])

    def replay_test(self) -> None:
        (folder,) = (path.parent for path in self.folder.glob("kept/test_loads/*/recording.json"))
        settings = json.loads((self.folder / "settings.json").read_text())
        self.replay("test", folder, settings["gates"], expect=0)
        (window,) = checks.report(self.folder / "test.json")
        counted = json.loads((self.folder / "test-load.json").read_text())
        checks.sent(self.checks, "test", window, counted)

    def replay_probe(self) -> None:
        """Both phases again from what the probe recorded: its own result and the server's pages lie side by side."""
        decoded = DECODE["at_once"] * ROUNDS
        tokens = {"prefill": (PROBED, PROBED * PREFILL["prompt"], PROBED),
                  "decode": (decoded, decoded * DECODE["prompt"], decoded * DECODE["output"])}  # fmt: skip
        probes = {path.parent.name: path.parent for path in self.folder.glob("kept/test_probe*/*/recording.json")}
        windows = {str(window["phase"]): window for window in checks.report(self.folder / "probe.json")}
        self.checks.same("probe: windows", sorted(windows), ["decode", "prefill"])
        self.checks.same("probe: recordings", len(probes), 2)
        for phase, folder in probes.items():
            kind = "prefill" if "prefill" in phase else "decode"
            requests, prompts, outputs = tokens[kind]
            counted = {"failures": [], "requests": requests, "prompt_tokens": prompts, "output_tokens": outputs}
            where = folder.relative_to(self.folder).as_posix()
            name = f"probe-{kind}-replayed"
            self.gate_file(name, {"probe": {"phase": kind, "telemetry": where, "gates": PROBE_GATES[kind]}})
            self.pytest(name, f"{name}.llmroof.yaml", expect=0)
            (again,) = checks.report(self.folder / f"{name}.json")
            self.compare(f"probe {kind}", windows[kind], again)
            checks.sent(self.checks, f"probe {kind}", windows[kind], counted)

    def replay(self, name: str, folder: Path, gates: Sequence[str], expect: int) -> None:
        """The same gates over the recording, and every figure as it was live."""
        where = folder.relative_to(self.folder).as_posix()
        self.gate_file(f"{name}-replayed", {"decode": {"phase": "decode", "telemetry": where, "gates": list(gates)}})
        self.pytest(f"{name}-replayed", f"{name}-replayed.llmroof.yaml", expect=expect)
        (live,) = checks.report(self.folder / f"{name}.json")
        (again,) = checks.report(self.folder / f"{name}-replayed.json")
        self.compare(name, live, again)
        self.figures(name, live, checks.Pages(folder))

    def compare(self, name: str, live: checks.Document, again: checks.Document) -> None:
        for difference in checks.replayed(live, again, self.same_version):
            self.checks.true(f"{name}: replayed to another figure", False, difference)
        self.checks.true(f"{name}: has measurements", len(live["measurements"]) >= 10, len(live["measurements"]))

    def llama_bench(self, bench: Path) -> None:
        """llama.cpp's own benchmark, which needs no server: one sequence, whose step is its time per token."""
        say("llama-bench")
        options = ["-p", "0", "-n", str(DECODE["output"]), "-t", "1", "-o", "json"]
        command = [str(bench), "-m", f"{SERVED}.gguf", *options]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
        (self.folder / "llama-bench.json").write_text(done.stdout)
        self.checks.same("llama-bench's exit code", done.returncode, 0)
        self.gate_file("bench", {"bench": {"telemetry": "llama-bench.json", "gates": ["decode.mbu >= 0.5%"]}})
        self.pytest("bench", "bench.llmroof.yaml", expect=0)
        (window,) = checks.report(self.folder / "bench.json")
        (test,) = json.loads(done.stdout)
        # Of several runs the mean time; avg_ts is the mean of their rates.
        step = test["avg_ns"] / 1e9 / test["n_gen"]
        self.checks.close("llama-bench: decode.step_time", checks.value(window, "decode.step_time"), step)

    def figures(self, what: str, window: checks.Document, pages: checks.Pages) -> None:
        if self.engine.name == "vllm":
            checks.vllm(self.checks, what, window, pages, self.config, self.bandwidth)
        else:
            checks.llamacpp(self.checks, what, window, pages)

    # Tools

    def gate_file(self, name: str, windows: Mapping[str, object]) -> None:
        # JSON is YAML, and needs no library to be written.
        text = json.dumps({**self.served, "windows": windows}, indent=1)
        (self.folder / f"{name}.llmroof.yaml").write_text(text + "\n")

    def pytest(self, name: str, *arguments: str, expect: int) -> None:
        command = [str(self.plugin), "-m", "pytest", *arguments, f"--llmroof-report={name}.json"]
        print(f"  $ pytest {' '.join(arguments)}", flush=True)
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, env={**os.environ, **_found()})
        (self.folder / f"{name}.txt").write_text(done.stdout + done.stderr)
        self.checks.same(f"{name}: pytest's exit code (see {name}.txt)", done.returncode, expect)
        self.checks.true(f"{name}: a bug of the plugin's own (see {name}.txt)", "this is a bug" not in done.stdout)


def _found() -> dict[str, str]:
    """This checkout's plugin, whatever else is installed."""
    return {"PYTHONPATH": str(REPOSITORY)}


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)
