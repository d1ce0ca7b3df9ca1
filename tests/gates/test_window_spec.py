"""A window from Python values: markers and the command line, checked like a gate file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_llmroof.errors import ConfigErrors
from pytest_llmroof.gates.build import window_spec
from pytest_llmroof.gates.spec import WindowSpec

BASE = Path("/project/tests")


def built(**keys: Any) -> WindowSpec:
    return window_spec(keys, id="test_x.py::test_decode", name="test_decode", base=BASE)


def refused(**keys: Any) -> list[str]:
    with pytest.raises(ConfigErrors) as refusal:
        built(**keys)
    return [str(error) for error in refusal.value.errors]


def test_python_values_are_taken() -> None:
    spec = built(
        model="llama-3.1-70b", deployment={"tensor_parallel": 4, "expert_parallel": True},
        telemetry=(Path("before.prom"), "http://localhost:8000/metrics", {"prometheus": "http://p:9090", "timeout": 3}),
        phase="decode", duration=60, warmup="500ms", severity="warn", labels={"run": "7"},
        gates=("decode.mbu >= 75%", {"gate": "tpot.p99 <= 50ms", "id": "REL-1", "severity": "error"}),
    )  # fmt: skip
    assert (spec.id, spec.name, spec.base) == ("test_x.py::test_decode", "test_decode", BASE)
    assert (spec.model, spec.phase) == ("llama-3.1-70b", "decode")
    assert (spec.duration_seconds, spec.warmup_seconds) == (60.0, 0.5)
    assert spec.deployment == {"tensor_parallel": 4, "expert_parallel": True}
    assert [(source.kind, source.shown) for source in spec.telemetry] == [
        ("path", "before.prom"), ("url", "http://localhost:8000/metrics"), ("prometheus", "http://p:9090")]  # fmt: skip
    assert spec.telemetry[0].path == BASE / "before.prom"
    assert spec.telemetry[2].options["timeout"] == 3.0
    assert [(gate.canonical, gate.id, gate.severity, gate.position) for gate in spec.gates] == [
        ("decode.mbu >= 75%", None, "warn", None), ("tpot.p99 <= 50ms", "REL-1", "error", None)]  # fmt: skip
    assert spec.positions == {}


@pytest.mark.parametrize(
    ("telemetry", "live", "sampled"),
    [
        (["before.prom", "after.prom"], False, False),
        (["before.prom", "http://h/metrics"], True, True),  # one server is enough
        (["before.prom", {"prometheus": "http://p:9090"}], True, False),  # which sampled while nobody waited
        ([], False, False),
    ],
)
def test_what_touches_a_network_and_what_takes_time(telemetry: list[Any], live: bool, sampled: bool) -> None:
    spec = built(telemetry=telemetry) if telemetry else built(phase="decode")
    assert (spec.live, spec.sampled) == (live, sampled)


def test_all_problems_are_led_by_their_keys() -> None:
    problems = refused(
        gpuu="h100", phase="decod", duration="60 parsec", repeat=True, deployment={"tensor_parallel": 0},
        gates=["decode.mbuu >= 75%", "decode.mbu >= 75%", "decode.mbu>=75%", 3], telemetry={"url": "localhost:8000"},
    )  # fmt: skip
    assert sorted(problem.partition(": ")[0] for problem in problems) == sorted(
        ["gpuu", "phase", "duration", "repeat", "deployment.tensor_parallel", "gates[0]", "gates[2]", "gates[3]",
         "telemetry.url"]
    )  # fmt: skip
    assert "gpuu: unknown key 'gpuu' (did you mean 'gpu'?)" in problems
    assert "gates[2]: the same gate stands here twice: 'decode.mbu >= 75%'" in problems


@pytest.mark.parametrize("value", [float("nan"), float("inf"), pytest.param(10**400, id="huge"), None, object()])
def test_values_that_no_file_could_hold(value: object) -> None:
    (problem,) = refused(duration=value)
    assert problem.startswith("duration: expected a duration")


def test_default_gates_are_a_gate_files() -> None:
    assert built(phase="decode").gates == ()


def test_variables_and_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "s3cret-s3cret")
    monkeypatch.delenv("UNSET", raising=False)
    spec = built(telemetry={"url": "http://h/m", "headers": {"Authorization": "Bearer ${TOKEN}"}}, gpu="${UNSET}")
    assert spec.telemetry[0].options["headers"] == {"Authorization": "Bearer s3cret-s3cret"}
    assert (spec.unset, spec.gpu) == (("UNSET",), None)
    assert refused(phase="${TOKEN}", gates=["${TOKEN}"]) == [
        "phase: expected decode, prefill or mixed, not what ${TOKEN} stands for",
        "gates[0]: with its variables filled in '${TOKEN}' is no gate",
    ]
    assert refused(gpu="${}")[0].startswith("gpu: '${' starts no variable")
