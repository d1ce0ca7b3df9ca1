"""A real serving engine, end to end: recorded, gated live and around a load, replayed, and every figure checked.

    python tests/development/real_engine [--engine=vllm|llama.cpp] [--work=FOLDER] [--keep=FOLDER]

It installs the engine into an environment of its own (minutes, the first time), writes a small model with random
weights, serves it on loopback, and puts the plugin through what a user does:

1. `record` around a load (vLLM: `vllm bench serve`, whose result lies in the recording);
2. a live window of a gate file, kept by --llmroof-record; `with llmroof.window():` around a load in a test; loads that
   the plugin sends itself, by `llmroof_probe`;
3. gates that hold, a gate that must fail, gates on what the engine cannot tell;
4. the same gates over the recordings: every figure the same to the last digit.

Figures are held against arithmetic on the pages themselves (checks.py) and against what the client counted. Exit code 1
and a list of what differs, if anything does. `--keep=FOLDER` packs the results as test data.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from development.real_engine import keep
from development.real_engine.engines import ENGINES, Broken, call
from development.real_engine.run import REPOSITORY, Run, say


def _plugin(work: Path) -> Path:
    """An interpreter that has what the plugin needs: this one, or one of its own."""
    try:
        import pytest_llmroof  # noqa: F401 - whether it is there

        return Path(sys.executable)
    except ImportError:
        python = work / "environment-plugin" / "bin" / "python"
        if not python.exists():
            call([sys.executable, "-m", "venv", work / "environment-plugin"], work, work / "install.log")
            call([python, "-m", "pip", "install", "-e", REPOSITORY], work, work / "install.log")
        return python


def main() -> int:
    """Install, run, check, say."""
    parser = argparse.ArgumentParser("real_engine", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--engine", choices=sorted(ENGINES), default="vllm")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "llmroof-real-engine",
                        help="where environments, model and results go (default: %(default)s)")  # fmt: skip
    parser.add_argument("--llama-server", type=Path, metavar="FILE",
                        help="llama.cpp of your own (default: from a wheel), with its llama-bench")  # fmt: skip
    parser.add_argument("--gpu", type=Path, metavar="FILE",
                        help="what this machine reaches, like examples/cpu/cpu.yaml (default: measured)")  # fmt: skip
    parser.add_argument("--again", type=Path, metavar="FOLDER", help="replay and check the results of an earlier run")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="pack the results as test data, into this folder")
    given = parser.parse_args()
    work = given.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    folder = work / f"results-{given.engine}-{time.strftime('%Y%m%d-%H%M%S')}"
    try:
        say(f"{given.engine}: environment and model in {work}")
        plugin = _plugin(work)
        binary = given.llama_server.resolve() if given.llama_server else None
        engine = ENGINES[given.engine](work, binary)
        run = Run(engine, given.again.resolve() if given.again else folder, plugin, given.gpu)
        if not given.again:
            run.prepare()
            run.serve()
        run.replays()
        if given.keep:
            keep.results(run.folder, given.keep.resolve())
    except Broken as problem:
        print(f"real_engine: {problem}", file=sys.stderr)
        return 1
    say(f"results are in {run.folder}")
    for difference in run.checks.wrong:
        print(f"DIFFERS  {difference}", file=sys.stderr)
    print(f"{run.checks.held - len(run.checks.wrong)} of {run.checks.held} checks hold")
    return 1 if run.checks.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
