"""Windows that fail all of their gates, and damage to them that must let none of these pass.

What is cut away (a page or a file that ends early, lines that are lost) leaves less to know: a gate may have no data
then, be refused, or fail as before, and at most be undecided; it may not pass. A figure that became no number, less
than nothing or more than all counts for nothing. A figure that became another, plausible one is not damage that
anybody can see: where a second figure tells the same it is held against it (tests/stories/test_damaged_pages.py), and
else it is believed.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from benchmark_files import detailed, vllm_result

from fuzz import seeds
from fuzz.seeds import Seed
from pytest_llmroof.analysis.measurement import Measurement
from pytest_llmroof.assess import assess
from pytest_llmroof.gates.build import window_spec
from pytest_llmroof.gates.spec import WindowSpec

_VALUE = re.compile(rb"(?<=[ :])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?=[,\s}\]])")
_NO_NUMBERS = (b"NaN", b"+Inf", b"-Inf", b"Infinity", b"-1", b"-1e9", b"1e999", b"null", b"")
_KEYS = {"gpu": "h100", "model": "llama-3.1-8b", "deployment": {"tensor_parallel": 1, "weights": "bf16"}}


def damaged_windows() -> list[Seed]:
    """A seed for each file of each window that has gates to fail."""
    requests = [(0.05 + 0.001 * number, [0.02] * 9) for number in range(12)]
    # Only what its records say: a summary beside them that says something else would be believed where they are lost.
    unsaid: Any = {key: None for key in vllm_result() if key.endswith("_ms")}
    told = detailed(requests, **unsaid)
    results = [Seed(json.dumps(one, indent=1).encode(), "bench.json") for one in (vllm_result(), told)]
    gpus = [seed for seed in seeds.gpus() if len(seed.beside) > 1 or (not seed.beside and "smi" in seed.name)]
    return [*seeds.made_engines(), *results, *seeds.records()[:1], *gpus]


def cut(content: bytes, chance: random.Random, others: Sequence[bytes] = ()) -> bytes:
    """Less than there was: cut at any byte, or whole lines lost, some of one name or some of one kind."""
    kind = chance.randrange(4)
    if kind == 0:
        return content[: chance.randint(0, len(content))]
    lines = content.splitlines(keepends=True)
    if kind == 1:
        return b"".join(line for line in lines if chance.random() > 0.1)
    start = chance.randrange(len(lines)) if lines else 0
    if kind == 2:
        return b"".join(lines[:start] + lines[start + chance.randint(1, 12) :])
    names = [re.split(rb"[{ ]", line)[0] for line in lines if not line.startswith(b"#")]
    lost = chance.choice(names) if names else b"?"
    return b"".join(line for line in lines if not line.startswith(lost) or chance.random() < 0.3)


def spoilt(content: bytes, chance: random.Random, others: Sequence[bytes] = ()) -> bytes:
    """One or some figures that are no longer any."""
    found = list(_VALUE.finditer(content))
    for match in sorted(chance.sample(found, min(len(found), chance.choice((1, 1, 2, 8)))), key=lambda m: -m.start()):
        content = content[: match.start()] + chance.choice(_NO_NUMBERS) + content[match.end() :]
    return content


#: Metrics of which less is better, and those that only tell what load there was: no gate is put on these.
_LESS = ("ttft", "tpot", "itl", "e2e", "queue", "decode.step_time", "kv_cache", "waiting", "preemptions", "errors",
         "timeline.idle", "timeline.host", "timeline.communication", "timeline.gap", "hardware.idle")  # fmt: skip
_TOLD = ("decode.floor", "decode.batch", "decode.context", "decode.intensity", "prefill.intensity", "running", "input",
         "prefix_cache", "timeline.graph", "prefill.floor")  # fmt: skip


@cache
def failing(folder: Path, name: str, alone: bool) -> WindowSpec | None:
    """The specification of a whole window with gates that it fails, each a half beyond what was measured.

    None where it has none: its damage can turn nothing green.
    """
    keys = {**_KEYS, "telemetry": [name if alone else "."]}
    measured = assess(window_spec(keys, id="w", name="w", base=folder)).outcomes
    gates = []
    for metric, outcome in measured.items():
        if not isinstance(outcome, Measurement) or metric.startswith(_TOLD):
            continue
        low, high = outcome.bounded.low, outcome.bounded.high
        if metric.startswith(_LESS):
            gates += [f"{metric} <= {low / 2!r}"] if low > 0 else []
        elif high < 1e300 and not (outcome.unit == "fraction" and high * 1.5 > 1):
            gates.append(f"{metric} >= {high * 1.5!r}")
    if not gates:
        return None
    spec = window_spec({**keys, "gates": gates}, id="w", name="w", base=folder)
    failed = tuple(verdict.gate for verdict in assess(spec).verdicts if verdict.word == "fail")
    return replace(spec, gates=failed) if failed else None


def judge_damaged(folder: Path, seed: Seed, content: bytes) -> None:
    """No gate of a failing window passes of damage."""
    path = folder / seed.name
    path.write_bytes(seed.content)
    spec = failing(folder, seed.name, not seed.beside)
    if spec is None:
        return
    path.write_bytes(content)
    for verdict in assess(spec).verdicts:
        if verdict.gate.metric == "errors.rate" and b"dynamo_" in seed.content:
            continue  # a status that was first counted in this window and is cut out never was there: docs/security.md
        if verdict.word == "pass" and not verdict.approximate:
            raise AssertionError(f"{verdict.gate.expression} passes of damage, at {verdict.value!r}")
