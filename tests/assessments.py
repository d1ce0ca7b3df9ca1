"""Assessments made by hand, for tests of everything that is written from one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from pytest_llmroof.analysis.attribution import Attribution, Cause, Share
from pytest_llmroof.analysis.diagnosis import Diagnosis, Evidence, Remedy
from pytest_llmroof.analysis.facts import Busy, DecodeFacts, WindowFacts
from pytest_llmroof.analysis.measurement import Impossible, Measurement, NoData, Outcome
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.gates.assessment import Assessment, Reasons
from pytest_llmroof.gates.gate import Gate, Limit, Operator
from pytest_llmroof.gates.spec import TelemetrySource, WindowSpec
from pytest_llmroof.gates.verdict import Verdict, Word
from pytest_llmroof.roofline.accelerator import Accelerator
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.roofline.models import named_model
from pytest_llmroof.roofline.step import Floor, StepCost
from pytest_llmroof.telemetry.window import Engine, SourceInfo, Window
from pytest_llmroof.units import Unit

H100 = Accelerator(
    name="h100-sxm5-80gb",
    product="NVIDIA H100 SXM5 80GB",
    peaks={"bf16": 989.4e12, "fp8": 1978.9e12},
    memory_bandwidth_bytes_per_second=3.35e12,
    memory_bytes=80e9,
    vendor="NVIDIA",
    achievable={"memory": 0.855, "bf16": 0.78},
)


TP4 = Deployment(
    model=named_model("llama-3.1-70b"),  # 70 553 706 496 parameters, 327 680 B of cache a token
    accelerator=H100,
    tensor_parallel=4,
    data_parallel=1,
    provenance={"tensor_parallel": "given", "weights": "given", "gpu": "given", "model": "given"},
)
BATCH, CONTEXT, ITL, SECONDS, TOKENS = 12.4, 1470.0, 0.0262, 60.0, 28_400.0


def step_cost(batch: float = BATCH, context: float = CONTEXT) -> StepCost:
    """A decode step: all weights but the input embedding's, the contexts' KV, attention 4 n_q d_h c per layer."""
    weights = (70_553_706_496 - 128_256 * 8192) * 2.0
    linear = 2 * 69_501_714_432 * batch
    return StepCost(
        flops=linear + batch * 80 * 4 * 64 * 128 * context,
        model_flops=linear,
        weight_bytes=weights,
        weight_bytes_low=weights,
        kv_bytes=batch * (context + 1) * 327_680,
        gpus=4,
    )


def floor_of(cost: StepCost) -> Floor:
    bandwidth, peak = 4 * 3.35e12, 4 * 989.4e12
    return Floor(
        compute_seconds=cost.flops / peak,
        memory_seconds=cost.bytes / bandwidth,
        weights_seconds=cost.weight_bytes / bandwidth,
        kv_seconds=cost.kv_bytes / bandwidth,
    )


def shares(
    step: float = ITL, *, communication: float = 0.34, idle: float = 0.04, ceiling: float = 0.07, observed: bool = True
) -> Attribution:
    """The floor's own share, what is given, and slow kernels as what is left."""
    floor = floor_of(step_cost())
    parts: dict[Cause, tuple[float, bool, str]] = {
        "memory floor: weights": (floor.weights_seconds / step, True, "roofline"),
        "memory floor: KV": (floor.kv_seconds / step, True, "roofline"),
        "exposed communication: transport": (communication, observed, "decode.pt.trace.json.gz"),
        "idle: between steps": (idle, observed, "decode.pt.trace.json.gz"),
        "kernel ceiling": (ceiling, False, "what kernels reach of H100's bandwidth"),
    }
    slow = 1 - sum(share for share, _, _ in parts.values())
    parts["slow kernels"] = (slow, observed, "decode.pt.trace.json.gz")
    return Attribution(
        of="decode step",
        seconds=step,
        shares=tuple(Share(cause, share * step, share, seen, source) for cause, (share, seen, source) in parts.items()),
    )


#: 26.2 ms less 34 % is 17.3 ms; with two GPUs' worth of collectives left in a step it stays at 19.0 ms.
SCENARIO_C = Diagnosis(
    scenario="C",
    candidates=("C",),
    title="communication and interconnect stalls",
    regime="memory: weights",
    confidence="high",
    of="decode",
    evidence=(
        Evidence("C", True, "all-reduce kernels exposed for 34 % of the step", "decode.pt.trace.json.gz"),
        Evidence("D", False, "the GPU was idle 4 % of the step", "decode.pt.trace.json.gz"),
    ),
    remedies=(
        Remedy(
            title="Keep tensor parallelism inside the NVLink domain",
            detail="Over PCIe or between sockets every all-reduce waits for the slowest link.",
            effect="step 26.2 ms toward 17.3 .. 19.0 ms",
            metric="decode.step_time",
            low=ITL * (1 - 0.34),
            high=0.0190,
        ),
    ),
)


def gate(
    metric: str = "decode.mbu",
    operator: Operator = ">=",
    limit: float = 0.75,
    written: str = "75%",
    unit: Unit = "fraction",
    **changes: Any,
) -> Gate:
    canonical = f"{metric} {operator} {written}"
    made = Gate(
        metric=metric, operator=operator, limit=Limit("absolute", limit), unit=unit,
        expression=canonical, canonical=canonical, name=canonical,
    )  # fmt: skip
    return replace(made, **changes)


def measured(metric: str, value: float, low: float, high: float, unit: Unit, **more: Any) -> Measurement:
    made = Measurement(
        metric, Bounded(value, low, high), unit,
        source="vllm:inter_token_latency_seconds", method="bytes of a step over its time", samples=3100,
    )  # fmt: skip
    return replace(made, **more)


def verdict(of: Gate, outcome: Outcome, word: Word = "fail", **changes: Any) -> Verdict:
    """Judged by hand: margin and supported limit as the definitions say."""
    if not isinstance(outcome, Measurement):
        made = Verdict(of, word, outcome, limit=of.limit.value, because=outcome.reason)
        return replace(made, **changes)
    value, limit = outcome.value, of.limit.value
    rising = of.operator in (">=", ">")
    margin = value - limit if of.unit == "fraction" else (value / limit - 1 if limit else 0.0)
    end = outcome.bounded.low * 0.95 if rising else outcome.bounded.high * 1.05
    made = Verdict(of, word, outcome, value, limit, margin if rising else -margin, supported=end)
    return replace(made, **changes)


def mbu() -> Measurement:
    """Floor over step: 0.4130; 0.409 to 0.418 by batch and context."""
    value = floor_of(step_cost()).memory_seconds / ITL
    return measured("decode.mbu", value, 0.409, 0.418, "fraction", achievable=0.855)


def itl() -> Measurement:
    return measured("itl.mean", ITL, ITL, ITL, "seconds", method="sum of the histogram over its count")


def window(**changes: Any) -> Window:
    made = Window(
        kind="vllm",
        engines=(Engine("engine 0", "meta-llama/Llama-3.1-70B-Instruct"),),
        sources=(SourceInfo("vllm", "after.prom"),),
        duration_seconds=SECONDS,
    )
    return replace(made, **changes)


def facts(deployment: Deployment = TP4, seen: Window | None = None, **changes: Any) -> WindowFacts:
    cost = step_cost()
    made = WindowFacts(
        window=seen or window(),
        deployment=deployment,
        phase="decode",
        phase_given=True,
        prefill_share=0.0,
        duration_seconds=SECONDS,
        busy=Busy(Bounded.exactly(SECONDS), "progress of the counters"),
        prompt_tokens=0.0,
        computed_prompt_tokens=0.0,
        generated_tokens=TOKENS,
        finished_requests=28.0,
        prefix_hit_rate=0.0,
        mean_prompt_tokens=1000.0,
        mean_output_tokens=1000.0,
        decode=DecodeFacts(
            step_seconds=Bounded.exactly(ITL),
            batch=Bounded.exactly(BATCH),
            context=Bounded(CONTEXT, 1450.0, 1490.0),
            steps=SECONDS / ITL,
            tokens_per_step=1,
            cost=cost,
            floor=floor_of(cost),
        ),
    )
    return replace(made, **changes)


def spec(**changes: Any) -> WindowSpec:
    made = WindowSpec(
        id="llmroof.yaml::decode",
        name="decode",
        base=Path("/project"),
        telemetry=(TelemetrySource("path", "after.prom", Path("/project/after.prom")),),
        gpu="h100",
        model="llama-3.1-70b",
        deployment={"tensor_parallel": 4},
        phase="decode",
    )
    return replace(made, **changes)


def assessment(*verdicts: Verdict, outcomes: Mapping[str, Outcome] | None = None, **changes: Any) -> Assessment:
    """The flagship's window: 70B on four H100, a third of each step waits for the others.

    ``attribution``, ``diagnosis`` and ``diagnoses`` among the changes stand for the window's reasons.
    """
    attribution = changes.pop("attribution", shares())
    diagnosis = changes.pop("diagnosis", SCENARIO_C)
    diagnoses = changes.pop("diagnoses", {"decode": SCENARIO_C})
    made = Assessment(
        spec=spec(),
        deployment=TP4,
        facts=facts(),
        outcomes=outcomes if outcomes is not None else {"decode.mbu": mbu(), "itl.mean": itl()},
        verdicts=verdicts or (flagship_verdict(),),
        reasons=MadeReasons(attribution, diagnosis, diagnoses),
    )
    return replace(made, **changes)


class MadeReasons(Reasons):
    """Reasons by hand, the window's own diagnosis apart from those of its families."""

    def __init__(self, attribution: object, diagnosis: object, diagnoses: object) -> None:
        known = cast("Mapping[str, Diagnosis]", diagnoses)
        super().__init__(lambda: cast("Attribution | None", attribution), known, None)
        self._own = cast("Diagnosis | None", diagnosis)

    @property
    def diagnosis(self) -> Diagnosis | None:
        return self._own


def flagship_verdict(**changes: Any) -> Verdict:
    return replace(verdict(gate(id="REL-7", default=True), mbu()), **changes)


def no_data(metric: str = "decode.mbu", reason: str = "connection refused at http://host:8000/metrics") -> NoData:
    return NoData(metric, reason, "python -m pytest_llmroof record --out=recordings/decode URL -- COMMAND")


def impossible() -> Impossible:
    return Impossible(
        "decode.mbu", "a step took 5.20 ms, and its floor is 10.8 ms: 208 % of the bandwidth", "weights (bf16)", 2.08
    )
