"""Write the modelled recordings of the examples again: `python tests/example_recordings.py`.

No GPU ran for these. Each is what a vLLM server would expose around a steady load whose figures are set below; step
times follow from the roofline (bytes over bandwidth) and the share of it that is assumed. The recording under
`examples/cpu/` is not made here: a real server wrote it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import dcgm_pages
from profiled_steps import decode
from timelines import write_kineto
from vllm_pages import Load, page

EXAMPLES = Path(__file__).parents[1] / "examples"

H100_BANDWIDTH, H100_BF16 = 3.35e12, 989.4e12  # bytes/s, FLOP/s (dense)
LLAMA_8B = "meta-llama/Llama-3.1-8B-Instruct"
LLAMA_8B_READ, LLAMA_8B_KV = 15.01e9, 131_072  # bytes of weights a step reads, bytes a token keeps
LLAMA_8B_MATMUL = 7.505e9  # parameters in matrix products


def memory_step(batch: float, context: float, mbu: float) -> float:
    """Seconds of a decode step of Llama 3.1 8B in bf16 on one H100 that reaches an MBU."""
    return (LLAMA_8B_READ + batch * context * LLAMA_8B_KV) / (mbu * H100_BANDWIDTH)


def prefill_time(prompt: int, mfu: float) -> float:
    """Seconds to compute a prompt alone at an MFU (2 FLOPs per parameter and token)."""
    return 2 * LLAMA_8B_MATMUL * prompt / (mfu * H100_BF16)


LOADS = {
    # Decode near the roof: MBU 79 %.
    "decode-8b": Load(model=LLAMA_8B, batch=16, context=1024, output=1536, itl=memory_step(16, 1024, 0.79),
                      running=16, prefill=0.02, kv_usage=0.31),
    # Prefill only: one token is asked for after each prompt of 4,096; MFU 54 %.
    "prefill-8b": Load(model=LLAMA_8B, context=4096, output=1, prefill=prefill_time(4096, 0.54), queue=0.004,
                       front_end=0.012, running=1, kv_usage=0.05),
    # 70B on four H100: 41 % of the bandwidth, where 47 to 58 % are known to be reached.
    "decode-70b-tp4": Load(batch=12.4, context=1500, output=600, itl=0.0262, running=12, kv_usage=0.42),
    # Long prompts, computed at 50 % MFU: the first token waits for arithmetic, not for a slot.
    "long-prompts-8b": Load(model=LLAMA_8B, context=32_000, output=1, prefill=prefill_time(32_000, 0.50), queue=0.01,
                            front_end=0.05, running=1, kv_usage=0.2),
}  # fmt: skip

# A cache that is full: 24 sequences run, 40 wait, and some are thrown out again.
SATURATED = Load(model=LLAMA_8B, batch=24, context=2000, output=800, itl=memory_step(24, 2000, 0.70), queue=6.1,
                 prefill=0.12, running=24, waiting=40, kv_usage=0.993, preemptions=60)  # fmt: skip

# The candidate of the release rehearsal: steps take 16 % longer than under the last release, prompts a hundredth.
CANDIDATE = {
    "decode": replace(LOADS["decode-8b"], itl=memory_step(16, 1024, 0.68)),
    "prefill": replace(LOADS["prefill-8b"], prefill=prefill_time(4096, 0.535)),
}


# The same 70B steps with a DCGM exporter beside the server, which collects every 5 s: the engines of the GPUs are idle
# 45 % of the time, while nvidia-smi's utilization reads 100 %.
GAPS = {"DEV_GPU_UTIL": 100, "DEV_SM_CLOCK": 1830, "PROF_GR_ENGINE_ACTIVE": 0.55, "PROF_SM_ACTIVE": 0.50,
        "PROF_PIPE_TENSOR_ACTIVE": 0.03, "PROF_DRAM_ACTIVE": 0.42}  # fmt: skip


def main() -> None:
    """Write every recording."""
    for name, load in LOADS.items():
        write(f"recordings/{name}", [(0.1, load), (1.1, load)])
    watched = LOADS["decode-70b-tp4"]
    write("recordings/decode-70b-tp4-gpus", [(0.1, watched), (1.1, watched)])
    for number in range(13):
        at = watched.started + 5 * number
        text = dcgm_pages.page(at, watched.started, GAPS)
        path = EXAMPLES / f"recordings/decode-70b-tp4-gpus/dcgm.{number + 1:06d}.prom"
        path.write_text(text, encoding="utf-8")
    # A trace of one rank: all-reduces that nothing hides take 34 % of each step, 4 % wait for the host.
    write_kineto(decode(communication=0.34, idle=0.04, steps=6),
                 EXAMPLES / "recordings" / "decode-70b-tp4.pt.trace.json.gz")  # fmt: skip
    for name, load in CANDIDATE.items():
        write(f"release/candidate/{name}", [(0.1, load), (1.1, load)])
    last_release()
    idle = replace(SATURATED, running=0, waiting=0, kv_usage=0.0)
    samples = 12
    inside = [(0.1 + step / samples, replace(SATURATED, waiting=30 + step % 12)) for step in range(1, samples)]
    write("recordings/saturated-8b", [(0.1, idle), *inside, (1.1, idle)])


def last_release() -> None:
    """The report of the last release: the rehearsal's gate file on what was recorded then."""
    with tempfile.TemporaryDirectory() as folder:
        new = Path(folder) / "last-release.json"
        recorded = {"DECODE": "../recordings/decode-8b", "PREFILL": "../recordings/prefill-8b"}
        options = ["--llmroof-gpu=h100", f"--llmroof-report={new}", "--llmroof-label=release=1.4.0"]
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, str(EXAMPLES / "release")]
        # It exits with 1: the first release of all has none before it that its gates could be held against.
        subprocess.run(command, env={**os.environ, **recorded}, check=False, stdout=subprocess.DEVNULL)
        shutil.copyfile(new, EXAMPLES / "release" / "last-release.json")


def write(name: str, pages: list[tuple[float, Load]]) -> None:
    """One recording: a page for each share of the load's work."""
    folder = EXAMPLES / name
    folder.mkdir(parents=True, exist_ok=True)
    for number, (share, load) in enumerate(pages, start=1):
        text = page(load, share, load.started + (share - 0.1) * load.seconds)
        head, _, rest = text.partition("\n")
        (folder / f"vllm.{number:06d}.prom").write_text(
            f"{head}\n# modelled, not measured: see tests/example_recordings.py\n{rest}", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
