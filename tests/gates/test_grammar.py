"""What is a gate, what is not, and what the refusal says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmroof.analysis.facts import Phase
from pytest_llmroof.analysis.metrics import METRICS, find_metric, metric_names
from pytest_llmroof.errors import ConfigError, Position
from pytest_llmroof.gates.defaults import default_gates
from pytest_llmroof.gates.gate import Gate, Limit
from pytest_llmroof.gates.grammar import parse_gate


@pytest.mark.parametrize(
    ("expression", "canonical", "limit"),
    [
        ("decode.mbu >= 75%", "decode.mbu >= 75%", Limit("absolute", 0.75)),
        ("decode.mbu>=75%", "decode.mbu >= 75%", Limit("absolute", 0.75)),
        ("  decode.mbu\t>=   75 % ", "decode.mbu >= 75%", Limit("absolute", 0.75)),
        ("decode.mbu >= 0.75", "decode.mbu >= 0.75", Limit("absolute", 0.75)),
        ("decode.mbu >= 95%", "decode.mbu >= 95%", Limit("absolute", 0.95)),
        ("decode.mbu >= 1", "decode.mbu >= 1", Limit("absolute", 1.0)),
        ("tpot.p99 <= 50ms", "tpot.p99 <= 50ms", Limit("absolute", 0.05)),
        ("tpot.p99.9 < 2s", "tpot.p99.9 < 2s", Limit("absolute", 2.0)),
        ("queue.max <= 0", "queue.max <= 0", Limit("absolute", 0.0)),
        ("ttft.p99 <= 2", "ttft.p99 <= 2", Limit("absolute", 2.0)),
        ("tpot.p99 <= 0.05", "tpot.p99 <= 0.05", Limit("absolute", 0.05)),
        ("e2e.max <= 1e3ms", "e2e.max <= 1e3ms", Limit("absolute", 1.0)),
        ("e2e.max <= 1_000 ms", "e2e.max <= 1_000ms", Limit("absolute", 1.0)),
        ("output.tokens_per_second >= 120tok/s", "output.tokens_per_second >= 120tok/s", Limit("absolute", 120.0)),
        ("decode.intensity > 12", "decode.intensity > 12", Limit("absolute", 12.0)),
        ("preemptions <= 0", "preemptions <= 0", Limit("absolute", 0.0)),
        ("prefill.mfu >= 85 %  of  achievable", "prefill.mfu >= 85% of achievable", Limit("of achievable", 0.85)),
        ("prefill.mfu >= 0.85 of achievable", "prefill.mfu >= 0.85 of achievable", Limit("of achievable", 0.85)),
        ("tpot.p99 <= 1.05x baseline", "tpot.p99 <= 1.05x baseline", Limit("x baseline", 1.05)),
        ("tpot.p99 <= 1.05 x  baseline", "tpot.p99 <= 1.05x baseline", Limit("x baseline", 1.05)),
        ("tpot.p99<=105%x baseline", "tpot.p99 <= 105%x baseline", Limit("x baseline", 1.05)),
        ("decode.mbu >= 2x baseline", "decode.mbu >= 2x baseline", Limit("x baseline", 2.0)),
        ("decode.mbu >= baseline", "decode.mbu >= baseline", Limit("baseline", 0.0)),
        ("decode.mbu >= baseline-2%", "decode.mbu >= baseline - 2%", Limit("baseline", -0.02, relative=True)),
        ("tpot.p99 <= baseline + 5 ms", "tpot.p99 <= baseline + 5ms", Limit("baseline", 0.005)),
        ("decode.mbu >= baseline - 0.02", "decode.mbu >= baseline - 0.02", Limit("baseline", -0.02)),
        ("goodput( ttft <= 2s ,tpot<50 ms)>=95%", "goodput(ttft<=2s, tpot<50ms) >= 95%", Limit("absolute", 0.95)),
        ("kernels( void gemm(int)<1> ).mfu >= 75%", "kernels(void gemm(int)<1>).mfu >= 75%", Limit("absolute", 0.75)),
        ("kernels(nccl).time_share <= 5%", "kernels(nccl).time_share <= 5%", Limit("absolute", 0.05)),
    ],
)  # fmt: skip
def test_what_a_gate_says(expression: str, canonical: str, limit: Limit) -> None:
    gate = parse_gate(expression)
    assert gate.expression == expression
    assert gate.canonical == gate.name == canonical
    assert (gate.limit.kind, gate.limit.relative) == (limit.kind, limit.relative)
    assert gate.limit.value == pytest.approx(limit.value)
    assert canonical.startswith(f"{gate.metric} {gate.operator} ")


def test_a_number_that_may_be_meant_in_per_cent_is_asked_about_once() -> None:
    def problem(expression: str) -> str:
        with pytest.raises(ConfigError) as error:
            parse_gate(expression)
        return str(error.value)

    assert problem("decode.mbu >= 2").count("did you mean") == 1
    # What may well be seconds is taken to be: from 100 on of requests, from 1 on of steps it can only be milliseconds.
    assert parse_gate("ttft.p99 <= 99.5").limit.value == 99.5
    assert parse_gate("itl.mean <= 0.9").limit.value == 0.9
    assert "a share cannot exceed 100 % (did you mean 1.9%?)" in problem("decode.mbu >= 1.9")


def test_the_item_name_holds_nothing_that_pytest_splits_at() -> None:
    gate = parse_gate("kernels(cutlass::gemm[a-z]*).mfu >= 75%")
    assert gate.canonical == "kernels(cutlass::gemm[a-z]*).mfu >= 75%"
    assert gate.metric == "kernels(cutlass::gemm[a-z]*).mfu"
    assert gate.name == "kernels(cutlass.gemm{a-z}*).mfu >= 75%"


def test_every_plain_metric_can_be_gated_in_its_own_unit() -> None:
    for name in metric_names():
        if "(" not in name:
            unit = "s" if find_metric(name)[0].unit == "seconds" else ""
            assert parse_gate(f"{name} >= 1{unit}").metric == name


@pytest.mark.parametrize(
    ("expression", "column", "words"),
    [
        ("", 1, "expected a metric"),
        (">= 75%", 1, "expected a metric"),
        ("decode.mbuu >= 75%", 1, "did you mean 'decode.mbu'"),
        ("mfu >= 40%", 1, "prefill.mfu or decode.mfu or window.mfu"),
        ("ttft <= 2s", 1, "needs a statistic: ttft.mean, ttft.p50"),
        ("ttft.p42 <= 2s", 1, "no statistic 'p42'"),
        ("decode.mbu", 11, "expected an operator (>=, <=, >, <) after decode.mbu, found none"),
        ("decode.mbu => 75%", 12, "did you mean '>='"),
        ("decode.mbu ≥ 75%", 12, "did you mean '>='"),
        ("decode.mbu == 75%", 12, "not '=='"),
        ("decode.mbu >=", 14, "expected a limit"),
        ("decode.mbu >= 75", 15, "did you mean 75%?"),
        ("decode.mbu >= 100", 15, "did you mean 100%?"),
        ("decode.mbu >= 101", 15, "101 is above 1: a share cannot exceed 100 %"),
        ("decode.mbu >= 2", 15, "did you mean 2%?"),
        ("decode.mbu > 1.2", 14, "is above 1: a share cannot exceed 100 % (did you mean 1.2%?)"),
        ("decode.mbu > 120", 14, "and 120 is above 1: a share cannot exceed 100 %, at"),
        ("throughput >= 2000", 1, "did you mean 'output.tokens_per_second' or"),
        ("latency <= 2s", 1, "did you mean 'ttft.p99' or 'tpot.p99' or 'e2e.p99'?"),
        ("decode.mbu >= 75 of achievable", 15, "did you mean 75%?"),
        ("decode.mbu >= baseline - 2", 26, "did you mean 2%?"),
        ("decode.mbu >= -5%", 15, "must not be negative"),
        ("tpot.p99 <= baseline + -5ms", 24, "must not be negative"),
        ("decode.mbu >= nan", 15, "finite"),
        ("decode.mbu >= .inf", 15, "finite"),
        ("decode.mbu >= 1e999", 15, "out of range"),
        ("decode.mbu >= 50ms", 15, "expected a share (75%), not a duration"),
        ("tpot.p99 <= 3GB", 13, "expected a duration (50ms, 2s), not a size"),
        ("tpot.p99 <= 50 parsec", 16, "unknown unit 'parsec'"),
        ("decode.batch <= 60:30", 19, "unexpected ':30'"),
        ("itl.mean <= 8", 13, "itl.mean is a duration, and 8 has no unit: did you mean 8ms or 8s?"),
        ("decode.step_time < 20", 20, "did you mean 20ms or 20s?"),
        ("ttft.p99 <= 500", 13, "did you mean 500ms or 500s?"),
        ("ttft.p99 <= 100", 13, "did you mean 100ms or 100s?"),
        ("itl.mean <= 1", 13, "did you mean 1ms or 1s?"),
        ("tpot.p99 <= baseline + 5", 24, "did you mean 5ms or 5s?"),
        ("goodput(ttft<=2s, tpot<=50) >= 95%", 25, "tpot is a duration, and 50 has no unit: did you mean 50ms or 50s?"),
        ("decode.mbu >= basline", 15, "did you mean 'baseline'"),
        ("decode.mbu >= 75% extra", 19, "unexpected 'extra'"),
        ("decode.mbu >= 75% of achivable", 22, "expected 'achievable'"),
        ("ttft.p99 <= 75% of achievable", 17, "fits utilisations"),
        ("ttft.p99 <= 1.05 baseline", 13, "written 1.05x baseline"),
        ("ttft.p99 <= 5msx baseline", 14, "unknown unit 'msx'"),
        ("ttft.p99 <= 0x baseline", 13, "above 0"),
        ("ttft.p99 <= 5ms x baseline", 13, "expected a factor"),
        ("ttft.p99 <= baseline * 2", 22, "expected + or -"),
        ("ttft.p99 <= baseline - 100%", 24, "leaves no limit"),
        ("ttft.p99 <= baseline -", 23, "expected a number"),
        ("goodput >= 95%", 1, "goodput(ttft<=2s, tpot<=50ms)"),
        ("goodput() >= 95%", 9, "limits on ttft"),
        ("goodput(ttft.p99<=2s) >= 95%", 9, "write 'ttft'"),
        ("goodput(ttft<=2s, tpott<=1s) >= 95%", 19, "did you mean 'tpot'"),
        ("goodput(ttft>=2s) >= 95%", 13, "expected <= or <"),
        ("goodput(ttft<=2GB) >= 95%", 15, "not a size"),
        ("goodput(ttft<=2s 3s) >= 95%", 18, "unexpected '3s'"),
        ("goodput(ttft<=2s, ttft<=3s) >= 95%", 18, "ttft twice"),
        ("goodput(ttft<=2s >= 95%", 8, "never closed"),
        ("goodput(ttft<=2s).p99 >= 95%", 18, "expected nothing after goodput(...)"),
        ("kernels(gemm) >= 75%", 14, "expected .mfu, .mbu, .time_share"),
        ("kernels( ).mfu >= 75%", 9, "needs a pattern"),
        ("kernels(a\nb).mfu >= 75%", 9, "control characters"),
        ("ttft(p99) <= 2s", 1, "takes no parentheses"),
    ],
)  # fmt: skip
def test_a_refusal_points_at_the_column(expression: str, column: int, words: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        parse_gate(expression)
    assert words in refusal.value.problem
    assert refusal.value.problem.endswith(f"at column {column} of {expression!r}")
    assert refusal.value.position is None
    with pytest.raises(ConfigError) as placed:
        parse_gate(expression, position=Position("llmroof.yaml", 7, 9))
    assert placed.value.position == Position("llmroof.yaml", 7, 9 + column - 1)
    with pytest.raises(ConfigError) as folded:
        parse_gate(expression, position=Position("llmroof.yaml", 7))
    assert folded.value.position == Position("llmroof.yaml", 7)


def test_a_long_expression_is_cut_in_messages() -> None:
    with pytest.raises(ConfigError) as refusal:
        parse_gate("x" * 5000 + " >= 1")
    assert len(str(refusal.value)) < 400


def test_surroundings_are_kept() -> None:
    gate = parse_gate("decode.mbu >= 75%", id="REL-1", why="headroom", severity="warn", per="replica", default=True)
    assert (gate.id, gate.why, gate.severity, gate.per, gate.default) == ("REL-1", "headroom", "warn", "replica", True)


def test_default_gates() -> None:
    assert [gate.canonical for gate in default_gates("decode")] == ["decode.mbu >= 75%"]
    assert [gate.canonical for gate in default_gates("prefill", "warn")] == ["prefill.mfu >= 45%"]
    assert all(gate.default and gate.severity == "warn" for gate in default_gates("prefill", "warn"))
    phases: list[Phase | None] = ["mixed", None]
    for phase in phases:
        with pytest.raises(ConfigError, match=r"write gates:, like 'roofline\.efficiency >= 50%'"):
            default_gates(phase)


def test_gates_that_are_offered_are_gates() -> None:
    from pytest_llmroof.data import load

    for expression in load("default_gates.yaml")["offered"]:
        assert parse_gate(expression).canonical == expression


BLANKS = st.sampled_from(["", " ", "  ", "\t"])
NUMBERS = st.one_of(
    st.integers(0, 10**6).map(str),
    st.floats(0, 1e6).map(repr),
    st.sampled_from(["1e3", "1_000", ".5", "5.", "0.50", "2.5E-3"]),
)


@st.composite
def expressions(draw: st.DrawFn) -> str:
    """Valid gates in any spelling."""
    pattern = draw(st.text("ab:[]{}<>=,. *|^$\\-_#", max_size=8)) + "k"
    plain = [name for name in metric_names() if "(" not in name]
    kernels = [f"kernels({pattern}).{ending}" for ending in ("mfu", "mbu", "time_share")]
    metric = draw(st.sampled_from([*plain, *kernels, "goodput(ttft<=2s,tpot< 50ms)"]))
    number, one, two = draw(NUMBERS), draw(BLANKS), draw(BLANKS)
    factor = f"{number}x{two} baseline" if float(number) > 0 else "1x baseline"
    limit = draw(st.sampled_from([factor, f"baseline {one}+{two}{number}%", "baseline", "0"]))
    return f"{one}{metric}{two}{draw(st.sampled_from(['>=', '<=', '>', '<']))}{one}{limit}{two}"


@given(expressions())
def test_the_canonical_spelling_is_the_same_gate(expression: str) -> None:
    gate = parse_gate(expression)
    again = parse_gate(gate.canonical)
    assert again == parse_gate(again.canonical)
    assert said(again) == said(gate)
    assert "::" not in gate.name
    assert not {"[", "]"} & set(gate.name)


def said(gate: Gate) -> tuple[object, ...]:
    return gate.metric, gate.operator, gate.limit, gate.unit, gate.canonical, gate.name


TOKENS = st.sampled_from(
    [*METRICS, "goodput(", "kernels(", ")", ").mfu", "ttft", ">=", "<", "75%", "50ms", "x", "of", "achievable",
     "baseline", "+", "-", " ", ",", "1e3", "nan", "\n", "%", "::", "[", "]", "\ud800", "٣", "²"]
)  # fmt: skip


@given(st.one_of(st.text(max_size=30), st.lists(TOKENS, max_size=8).map("".join)))
def test_any_text_is_a_gate_or_is_refused(text: str) -> None:
    found = gate_or_refusal(text)
    if isinstance(found, Gate):
        assert said(parse_gate(found.canonical)) == said(found)
    else:
        assert found.position is not None
        assert 1 <= found.position.column <= len(text) + 1


def gate_or_refusal(text: str) -> Gate | ConfigError:
    try:
        return parse_gate(text, position=Position("f", 1, 1))
    except ConfigError as refusal:
        return refusal


@pytest.mark.parametrize("id", ["", "  ", "REL\n7", "\x1b[31mREL"])
def test_an_id_stands_in_one_line(id: str) -> None:
    with pytest.raises(ConfigError, match="id"):
        parse_gate("decode.mbu >= 75%", id=id)
