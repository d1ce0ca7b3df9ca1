"""The tables of the documentation that are made from the code and its data, so that they cannot drift from it."""

from __future__ import annotations

import csv
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml
from doclimits import limits_table

from pytest_llmroof.analysis.metrics import METRICS, list_metrics
from pytest_llmroof.data import load
from pytest_llmroof.declarations import INI, declared_options
from pytest_llmroof.telemetry.engine_entries import engine_listing
from pytest_llmroof.telemetry.engines import known_engines

SCENARIOS: Final = "ABCDEFG"


def metrics_table() -> str:
    """Every metric: name, unit, what must be known beside telemetry, meaning."""
    rows = ["| metric | unit | needs | meaning |", "|---|---|---|---|"]
    for metric, listed in zip(METRICS.values(), list_metrics(), strict=True):
        rows.append(f"| `{listed.name}` | {listed.unit} | {listed.needs or 'telemetry only'} | {metric.meaning} |")
    return "\n".join(rows) + "\n"


def scenarios_table() -> str:
    """The letters with their titles and words."""
    scenarios = load("scenarios.yaml")
    rows = ["| | scenario | in words |", "|---|---|---|"]
    rows += [f"| {letter} | {scenarios[letter]['title']} | {scenarios[letter]['words']} |" for letter in SCENARIOS]
    return "\n".join(rows) + "\n"


def scenario_section(letter: str) -> str:
    """Symptoms, cause, what confirms it, and the remedies of one scenario."""
    scenario: dict[str, Any] = load("scenarios.yaml")[letter]
    lines = [f"**Looks like**: {'; '.join(scenario['symptoms'])}.", "", f"**Comes from**: {scenario['cause']}.", ""]
    confirm = ", ".join(f"{one['what']} ({_INSTRUMENTS[one['with']]})" for one in scenario["confirm"])
    lines += [f"**Would confirm it**: {confirm}.", ""]
    if scenario["remedies"]:
        lines += ["| remedy | offered | effect |", "|---|---|---|"]
        for remedy in scenario["remedies"]:
            applies = ", ".join(_APPLIES[word] for word in remedy.get("applies", ())) or "always"
            lines.append(f"| {remedy['title']} | {applies} | {_EFFECTS[remedy['effect']]} |")
    else:
        lines.append("No remedy: measure under load.")
    return "\n".join(lines) + "\n"


def engines_table() -> str:
    """The engines whose metrics are read."""
    rows = ["| engine | versions |", "|---|---|"]
    rows += [f"| {engine['title']} | {engine.get('versions', '')} |" for engine in load("engines.yaml").values()]
    return "\n".join(rows) + "\n"


def engine_names_table() -> str:
    """What each engine's metrics begin with, and what they give: the list of --llmroof-list=engines."""
    rows = ["| engine | names | gives |", "|---|---|---|"]
    for key, listed in engine_listing().items():
        parts = dict(part.split(" ", 1) for part in listed.split("; ")[1:])
        names = " ".join(f"`{name}`" for name in parts["metrics"].split(", "))
        rows.append(f"| {known_engines()[key].title} | {names} | {parts.get('gives', '')} |")
    return "\n".join(rows) + "\n"


def engine_gaps_table() -> str:
    """What each engine cannot tell, why, and what can."""
    rows = ["| engine | cannot tell | because | what can |", "|---|---|---|---|"]
    for engine in known_engines().values():
        gaps: dict[tuple[str, str], list[str]] = {}
        for metric, gap in engine.cannot.items():
            gaps.setdefault((gap.reason, str(gap.remedy or "")), []).append(f"`{metric}`")
        rows += [
            f"| {engine.title} | {' '.join(metrics)} | {_cell(reason)} | {_cell(remedy)} |"
            for (reason, remedy), metrics in gaps.items()
        ]
    return "\n".join(rows) + "\n"


def options_table() -> str:
    """Every command-line option, as its help says it."""
    rows = ["| option | meaning |", "|---|---|"]
    for name, declared in declared_options().items():
        value = f"={declared['metavar']}" if "metavar" in declared else "=WHAT" if "choices" in declared else ""
        rows.append(f"| `--llmroof-{name}{_cell(value)}` | {_cell(declared['help'])} |")
    return "\n".join(rows) + "\n"


def ini_table() -> str:
    """Every ini key."""
    rows = ["| ini key | type | meaning |", "|---|---|---|"]
    rows += [f"| `llmroof_{name}` | {_INI_TYPES[kind]} | {_cell(meaning)} |" for name, kind, meaning in INI]
    return "\n".join(rows) + "\n"


DATA: Final = Path(__file__).parent / "data"


def published_kinds() -> dict[str, list[str]]:
    """Every kind of mistake that was made in public, and where it was seen."""
    kinds: dict[str, list[str]] = {}
    with (DATA / "published-kinds.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            for kind in row["kinds"].split():
                kinds.setdefault(kind, []).append(row["seen_in"])
    return kinds


def real_inputs() -> dict[str, dict[str, Any]]:
    """What the product does with each of them, and the tests that show it."""
    entries: dict[str, dict[str, Any]] = yaml.safe_load((DATA / "real-inputs.yaml").read_text(encoding="utf-8"))
    return entries


def real_inputs_table() -> str:
    """Every kind of mistake, what happens here, the tests, and where it was seen."""
    seen = published_kinds()
    rows = ["| | what went wrong | what happens here | shown by | seen in |", "|---|---|---|---|---|"]
    for kind, entry in sorted(real_inputs().items()):
        tests = "<br>".join(f"`tests/{test}`" for test in entry["tests"])
        where = "; ".join(seen[kind])
        rows.append(f"| {kind[:2]} | {entry['what']} | {_cell(entry['does'])} | {tests} | {_cell(where)} |")
    return "\n".join(rows) + "\n"


def other_figures() -> str:
    """Where a figure that was published as the right one is another one here, and why."""
    differing = [(kind, entry) for kind, entry in sorted(real_inputs().items()) if "differs" in entry]
    return "\n".join(f"- **{kind[:2]}** {entry['differs'].rstrip('.')}." for kind, entry in differing) + "\n"


def _cell(text: str) -> str:
    return text.replace("%%", "%").replace("|", "\\|").replace("{...}", "`{...}`")


_INI_TYPES: Final = {"string": "text", "linelist": "one a line", "bool": "true or false", "duration": "a duration"}

_INSTRUMENTS: Final = {
    "torch_profile": "a PyTorch profile",
    "nsys": "Nsight Systems",
    "dcgm": "DCGM",
    "ncu": "Nsight Compute",
    "recorder": "`record` under load",
}

#: What must hold of the deployment or the finding, in words (`applies` of a remedy).
_APPLIES: Final = {
    "wide_weights": "weights wider than 8 bits",
    "has_fp8": "GPU with FP8",
    "lacks_fp8": "GPU without FP8",
    "weights_over_4_bits": "weights wider than 4 bits",
    "wide_kv": "cache wider than 8 bits",
    "no_speculation": "no draft tokens yet",
    "decode_time": "a decode metric failed",
    "prefill_time": "a prefill metric or TTFT failed",
    "not_modern_attention": "the trace does not show them already",
    "not_replayed": "the trace does not show them already",
    "imbalance": "a profile shows a rank with more work",
    "bubble": "a profile shows a pipeline bubble",
    "computes_wide": "computes in 16 bits",
    "experts": "mixture of experts",
    "no_expert_parallelism": "expert parallelism is off",
    "slots": "the slots are full",
    "not_compute": "compute is not the cause",
    "compute": "prefill is the cause",
    "narrow_weights": "quantised weights",
}

#: What a remedy's effect is computed from.
_EFFECTS: Final = {
    "larger_batch": "batch that memory, the ridge and your limit on the time per token allow; tokens/s there",
    "fp8_weights": "new floor with the linear layers in 8 bits; weights read once per step",
    "int8_weights": "new floor with the linear layers in 8 bits",
    "int4_weights": "new floor with the linear layers in 4 bits; the compute roof stays",
    "fp8_kv": "new floor with half the cache bytes",
    "speculation": "time per token with 3 drafts at 60 to 80 % acceptance (or as measured)",
    "smaller_cache": "the step without its cache bytes: the most it could give",
    "chunked_prefill": "a step's share of prompt tokens at the ridge",
    "disaggregation": "the step less its interleaved prefill",
    "attention_kernels": "attention FLOPs at 55 to 70 % of the peak instead of 35 %",
    "fp8_compute": "linear FLOPs at the FP8 peak and what kernels reach of it",
    "prefix_caching": "prefill falls by the share of tokens found",
    "inside_nvlink": "exchange time on NVLink; or, where the cause is in doubt, the whole loss as an upper bound",
    "lower_degree": "floor and kernel ceiling x t/t', and the exchanges of fewer ranks, where the weights still fit",
    "pipeline_across_nodes": "the exchanges that then cross the network",
    "expert_parallelism": "the exchanges of tokens instead of all-reduces",
    "fused_all_reduce": "count x (latency + size / bandwidth)",
    "no_idle_within": "the step less the idle time within steps",
    "no_idle_between": "the step less the idle time between steps",
    "no_waiting": "the step less the waiting",
    "more_slots": "sequences that fit into memory",
    "fp8_kv_capacity": "sequences that fit with half the cache bytes",
    "replicas": "arrival rate x time of a request without its queue, over places per replica",
    "disaggregation_ttft": "TTFT without waiting for the other phase",
    "no_slow_kernels": "the step less its slow kernels",
}

TABLES: Final[dict[str, Callable[[], str]]] = {
    "metrics": metrics_table,
    "scenarios": scenarios_table,
    **{f"scenario {letter}": partial(scenario_section, letter) for letter in SCENARIOS},
    "engines": engines_table,
    "engine names": engine_names_table,
    "engine gaps": engine_gaps_table,
    "real inputs": real_inputs_table,
    "other figures": other_figures,
    "options": options_table,
    "ini": ini_table,
    "limits": limits_table,
}
