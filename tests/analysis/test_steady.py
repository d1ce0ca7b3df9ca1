"""The decode step from a client's pieces, and a probe's result file read back: all by hand."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmark_files import found, measured, missing, window_of
from hand_facts import H100_BANDWIDTH, llama_8b

from pytest_llmroof.analysis.clientfacts import belongs
from pytest_llmroof.analysis.facts import DecodeFacts
from pytest_llmroof.analysis.steady import kept_full, steady_decode
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.probe.asking import Failed
from pytest_llmroof.probe.completion import Answer, Dialect
from pytest_llmroof.probe.document import probe_document, write_document
from pytest_llmroof.probe.load import Load
from pytest_llmroof.probe.plan import Plan, decode_plan, prefill_plan
from pytest_llmroof.probe.target import Target
from pytest_llmroof.telemetry.client import Client
from pytest_llmroof.telemetry.window import Engine, Histogram, SourceInfo, Window

#: Llama 3.1 8B in bf16 without the input embedding: 2 x (8 030 261 248 - 128 256 x 4 096) bytes.
WEIGHTS = 2 * (8_030_261_248 - 525_336_576)
KV = 131_072
TARGET = Target("meta-llama/Llama-3.1-8B-Instruct", Dialect(ids=(1_000, 20_000)))


def answer(sent: float, times: list[float], tokens: list[int | None] | None = None, **changes: Any) -> Answer:
    """Pieces at these times on the load's clock, by default one token each."""
    held = tokens or [1] * len(times)
    whole = Answer(
        sent, [time - sent for time in times], held, prompt_tokens=100, output_tokens=sum(count or 1 for count in held)
    )
    return replace(whole, **changes)


def written(folder: Path, plan: Plan, *answers: Answer, seconds: float = 2.0, cpu_share: float = 0.1) -> Path:
    load = Load(answers, 1_764_417_600.25, 0.0, seconds, cpu_share)
    write_document(folder, probe_document(plan, TARGET, load, "http://localhost:8000/v1"))
    return folder / "probe.json"


def client(path: Path) -> Client:
    found = window_of(path).client
    assert found is not None
    return found


DECODE = replace(decode_plan(2, 100, 11, 1), output_tokens=11)
#: A decodes alone first, B alone last, and that faster: one token every 10 ms, and every 5 ms.
A = answer(0.0, [1.0 + 0.01 * step for step in range(11)])
B = answer(0.0, [*(1.031 + 0.01 * step for step in range(7)), *(1.101 + 0.005 * step for step in range(4))])


def test_only_where_all_decode_counts(tmp_path: Path) -> None:
    """Both decode from 1.031 s (B's first piece) to 1.1 s (A's last): A's pieces at 1.04 .. 1.1, B's at 1.031 .. 1.091.

    Of each that is six tokens in 0.06 s behind the first one. A's are its tokens 6 to 11, made behind 100 + 5 to
    100 + 10 others, mean 107.5; B's are 2 to 7, behind 101 to 106, mean 103.5.
    """
    decode = steady_decode(client(written(tmp_path, DECODE, A, B)), llama_8b())
    assert decode is not None
    assert (decode.step_seconds.low, decode.step_seconds.value, decode.step_seconds.high) == pytest.approx((0.01,) * 3)
    assert (decode.batch.value, decode.batch.exact) == (2.0, True)
    assert decode.context is not None
    assert decode.context.value == pytest.approx(105.5)
    assert decode.steps == pytest.approx(6)
    assert decode.basis.startswith("time per output token at the client; batch = the 2 requests that the client kept ")


def test_bandwidth_utilisation_without_any_server(tmp_path: Path) -> None:
    """(weights + 2 x 105.5 x 131 072 B) / (3.35 TB/s x 10 ms) = 15.037 GB / 33.5 GB = 44.9 %."""
    outcomes = measured(written(tmp_path, DECODE, A, B), of=llama_8b())
    mbu = found(outcomes, "decode.mbu")
    assert mbu.value == pytest.approx((WEIGHTS + 2 * 105.5 * KV) / (H100_BANDWIDTH * 0.01), rel=1e-3)
    assert mbu.value == pytest.approx(0.449, abs=0.001)
    assert "the 2 requests that the client kept decoding, over the 0.07 s in which all did" in mbu.method


def test_pieces_of_several_tokens_are_one_step_at_the_least(tmp_path: Path) -> None:
    """Pieces of two tokens every 20 ms: a step took 10 ms where each made one of them, 20 ms where it made both."""
    twice: list[int | None] = [1, *[2] * 5]
    pieces = answer(0.0, [1.0 + 0.02 * step for step in range(6)], twice)
    decode = steady_decode(client(written(tmp_path, replace(DECODE, concurrency=1), pieces)), llama_8b())
    assert decode is not None
    assert (decode.step_seconds.value, decode.step_seconds.low, decode.step_seconds.high) == pytest.approx(
        (0.02, 0.01, 0.02)
    )
    assert decode.basis.startswith(
        "time per output token at the client, where a piece of the stream holds 2 tokens of one step or of several; "
    )
    # Ten tokens behind 101 to 110 others.
    assert decode.context is not None
    assert decode.context.value == pytest.approx(105.5)


def test_what_pieces_hold_may_be_untold(tmp_path: Path) -> None:
    untold = answer(0.0, [1.0 + 0.02 * step for step in range(6)], [None] * 6, output_tokens=11)
    decode = steady_decode(client(written(tmp_path, replace(DECODE, concurrency=1), untold)), llama_8b())
    assert decode is not None
    assert (decode.step_seconds.low, decode.step_seconds.high) == pytest.approx((0.01, 0.02))


def test_pieces_that_come_late_and_together_widen_the_interval(tmp_path: Path) -> None:
    """Eleven pieces in 0.1 s, of which those due at 0.02 to 0.05 s come at 0.05 s: the first of them 30 ms late.

    Even pace is 10 ms; nothing came early. So (0.1 - 0.03) / 10 to (0.1 + 0.03) / 10 s.
    """
    late = answer(0.0, [1.0, 1.01, 1.05, 1.05, 1.05, 1.05, 1.06, 1.07, 1.08, 1.09, 1.1])
    decode = steady_decode(client(written(tmp_path, replace(DECODE, concurrency=1), late)), llama_8b())
    assert decode is not None
    step = decode.step_seconds
    assert (step.low, step.value, step.high) == pytest.approx((0.007, 0.01, 0.013))


def test_a_batch_that_never_was_is_not_claimed(tmp_path: Path) -> None:
    apart = answer(0.0, [5.0 + 0.01 * step for step in range(11)])
    assert steady_decode(client(written(tmp_path, DECODE, A, apart, seconds=6.0)), llama_8b()) is None
    failed = Answer(0.0, failure=Failed("the stream was cut off before its end"))
    assert steady_decode(client(written(tmp_path, DECODE, A, failed)), llama_8b()) is None


def test_replicas_share_the_batch_nobody_knows_how(tmp_path: Path) -> None:
    decode = steady_decode(client(written(tmp_path, DECODE, A, B)), llama_8b(data_parallel=2))
    assert decode is not None
    assert (decode.batch.low, decode.batch.value, decode.batch.high) == (1.0, 1.0, 2.0)


def test_latencies_read_back(tmp_path: Path) -> None:
    outcomes = measured(written(tmp_path, DECODE, A, B), of=llama_8b())
    # TTFT 1.0 and 1.031 s; e2e 1.1 and 1.116 s; TPOT (1.1 - 1.0) / 10 and (1.116 - 1.031) / 10.
    assert found(outcomes, "ttft.mean").value == pytest.approx(1.0155)
    assert found(outcomes, "e2e.max").value == pytest.approx(1.116)
    assert found(outcomes, "tpot.mean").value == pytest.approx((0.01 + 0.0085) / 2)
    assert found(outcomes, "itl.mean").value == pytest.approx((0.1 + 0.085) / 20)
    assert found(outcomes, "output.tokens_per_second").value == pytest.approx(22 / 2.0)
    assert found(outcomes, "errors.rate").value == 0


def test_tokens_that_come_with_the_first_one_are_in_no_time_per_token(tmp_path: Path) -> None:
    held: list[int | None] = [3, 1, 1]
    outcomes = measured(written(tmp_path, replace(DECODE, output_tokens=5), answer(0.0, [1.0, 1.1, 1.2], held)))
    assert found(outcomes, "tpot.mean").value == pytest.approx(0.2 / 2)


def test_failures_count_and_are_said(tmp_path: Path) -> None:
    failed = Answer(0.5, failure=Failed("http://localhost:8000/v1 refused as it is asked too often (429)"))
    path = written(tmp_path, DECODE, A, failed, failed)
    outcomes = measured(path)
    assert found(outcomes, "errors.rate").value == pytest.approx(2 / 3)
    assert client(path).notes[0] == (
        "2 of 3 requests of the probe failed: http://localhost:8000/v1 refused as it is asked too often (429)"
    )


def test_where_all_failed_the_reason_stands_in_every_gate(tmp_path: Path) -> None:
    failed = Answer(0.0, failure=Failed("the stream held no token"))
    outcomes = measured(written(tmp_path, DECODE, failed, failed), of=llama_8b())
    for metric in ("ttft.p50", "decode.mbu", "prefill.mfu"):
        assert missing(outcomes, metric).reason.startswith("all 2 requests failed: the stream held no token (")


def test_prefill_without_a_server(tmp_path: Path) -> None:
    """Four prompts of 8 192 tokens in 2 s: 2 x 7 504 924 672 FLOP a token, over 989.4 TFLOP/s x 2 s."""
    plan = prefill_plan(8192, 4, 1)
    one = [answer(0.5 * number, [0.5 * number + 0.5], prompt_tokens=8192) for number in range(4)]
    path = written(tmp_path, plan, *one)
    outcomes = measured(path, of=llama_8b())
    assert found(outcomes, "prefill.tokens_per_second").value == pytest.approx(4 * 8192 / 2.0)
    flops = 4 * 8192 * 2 * (8_030_261_248 - 525_336_576)
    assert found(outcomes, "prefill.mfu").value == pytest.approx(flops / (989.4e12 * 2.0), rel=0.01)
    assert missing(outcomes, "tpot.mean").reason.endswith("had one output token: there is no time between tokens")


def test_prompts_that_a_cache_may_hold_are_not_called_computed(tmp_path: Path) -> None:
    one = answer(0.0, [0.5], prompt_tokens=8192)
    path = written(tmp_path, prefill_plan(8192, 1, 1, seed=7), one)
    assert "computed_tokens" not in json.loads(path.read_text())
    assert "how much of the prompts was cached" in missing(measured(path, of=llama_8b()), "prefill.mfu").reason
    told = replace(one, cached_tokens=8000)
    document = json.loads(written(tmp_path, prefill_plan(8192, 1, 1, seed=7), told).read_text())
    assert document["computed_tokens"] == 192
    assert "8000 prompt tokens came from the server's prefix cache, and were not computed" in document["notes"]


def notes(folder: Path, plan: Plan, *answers: Answer, **changes: float) -> list[str]:
    return list(client(written(folder, plan, *answers, **changes)).notes)


def test_other_lengths_than_asked_for_are_said(tmp_path: Path) -> None:
    assert notes(tmp_path, DECODE, A, B) == []
    assert notes(tmp_path, DECODE, A, replace(B, prompt_tokens=101)) == []  # one per cent
    assert notes(tmp_path, DECODE, A, replace(B, prompt_tokens=102)) == [
        "the server counts 102 prompt tokens in 1 of 2 prompts, where 100 were asked for"
    ]
    short = answer(0.0, [1.03, 1.04, 1.05])
    assert notes(tmp_path, DECODE, A, short) == [
        "1 of 2 outputs ended early: 3 tokens on average, where 11 were asked for"
    ]
    silent = replace(A, prompt_tokens=None, output_tokens=None)
    assert notes(tmp_path, replace(DECODE, concurrency=1), silent) == [
        "the server reports no usage: prompts are taken to have their 100 tokens",
        "the server reports no usage: output tokens are the pieces of the stream",
    ]


#: 40 tokens in 10 pieces, the first at 1 s, then one every 40 ms: 0.36 s behind the first.
FOURS = answer(0.0, [1.0 + 0.04 * step for step in range(10)], [None] * 10, output_tokens=None, asked=40)
ONE = replace(decode_plan(1, 100, 40, 1), output_tokens=40)


def test_an_end_by_length_tells_the_tokens(tmp_path: Path) -> None:
    """0.36 s over 39 tokens behind the first are 9.231 ms, and 40 tokens in 2 s are 20 a second."""
    path = written(tmp_path, ONE, replace(FOURS, by_length=True))
    outcomes = measured(path, of=llama_8b())
    tpot, rate = found(outcomes, "tpot.mean"), found(outcomes, "output.tokens_per_second")
    assert (tpot.bounded.low, tpot.value, tpot.bounded.high) == pytest.approx((0.36 / 39,) * 3)
    assert (rate.bounded.low, rate.value, rate.bounded.high) == pytest.approx((20.0,) * 3)
    step = found(outcomes, "decode.step_time").bounded
    assert (step.low, step.value) == pytest.approx((0.36 / 39, 0.04))
    assert list(client(path).notes) == [
        "the server reports no usage: 1 of 1 outputs ended by length, and so are taken to have the 40 tokens that were "
        "asked for"
    ]


def test_where_nothing_tells_the_tokens_they_are_open(tmp_path: Path) -> None:
    """Ten pieces hold 10 tokens to 40: 0.36 s over 9 to 39, and 5 to 20 a second."""
    path = written(tmp_path, ONE, FOURS)
    assert json.loads(path.read_text())["results"][0]["most_output_tokens"] == 40
    outcomes = measured(path, of=llama_8b())
    measurement = found(outcomes, "tpot.mean")
    assert measurement.undecided == "how many tokens each piece of the stream holds is not told"
    tpot = measurement.bounded
    assert (tpot.low, tpot.value, tpot.high) == pytest.approx((0.36 / 39, 0.04, 0.04))
    rate = found(outcomes, "output.tokens_per_second").bounded
    assert (rate.low, rate.value, rate.high) == (5.0, 5.0, 20.0)
    step = found(outcomes, "decode.step_time").bounded
    assert (step.low, step.value, step.high) == pytest.approx((0.36 / 39, 0.04, 0.04))
    met = found(outcomes, "goodput(tpot<=20ms)").bounded
    assert (met.value, met.high) == (0.0, 1.0)  # by 40 tokens it meets it
    (note,) = client(path).notes
    assert note.endswith("at least one a piece of the stream, at most the 40 that were asked for")


@pytest.mark.parametrize(("generated", "same"), [(10.0, True), (40.0, True), (60.0, False)])
def test_an_open_number_of_tokens_may_be_what_the_server_counted(tmp_path: Path, generated: float, same: bool) -> None:
    window = replace(served(generated, 40.0), client=client(written(tmp_path, ONE, FOURS)))
    one = Engine("engine 0", "m", counters={"generation_tokens": generated, "requests_finished": 1.0})
    assert belongs(replace(window, engines=(one,))) is same


def test_one_piece_of_nobody_knows_how_many_tokens_has_no_time_per_token(tmp_path: Path) -> None:
    path = written(tmp_path, ONE, replace(FOURS, times=[1.0], tokens=[None]))
    assert missing(measured(path, of=llama_8b()), "tpot.mean").reason.endswith("holds no time per output token")


def test_a_server_that_runs_fewer_at_once_is_said(tmp_path: Path) -> None:
    waited = answer(0.0, [5.0 + 0.01 * step for step in range(11)])
    (note,) = notes(tmp_path, DECODE, A, waited, seconds=6.0)
    assert note.startswith("at most 1 of 2 requests decoded at a time: some failed or waited; does the server run")
    (failed, fewer) = notes(tmp_path, DECODE, A, Answer(0.0, failure=Failed("the stream held no token")))
    assert failed.startswith("1 of 2 requests of the probe failed")
    assert fewer.startswith("at most 1 of 2")


def served(generated: float, steps: float) -> Window:
    """A server's window with this client: its own batch is outputs over steps."""
    itl = Histogram((0.02, math.inf), (generated, 0.0), 0.01 * generated)
    counters = {"generation_tokens": generated, "requests_finished": 2.0, "steps": steps}
    one = Engine("engine 0", "m", counters=counters, histograms={"itl": itl})
    return Window("vllm", (one,), (SourceInfo("vllm", "after.prom"),), duration_seconds=3.0)


def test_a_batch_that_the_client_kept_is_the_servers_too(tmp_path: Path) -> None:
    """Six of ten steps were full: 12 of 22 outputs. The server's mean over all steps is the interval's other end."""
    seen = client(written(tmp_path, DECODE, A, B))
    decode = hand_decode(batch=1.6)
    kept = kept_full(decode, replace(served(22.0, 14.0), client=seen), llama_8b())
    assert (kept.batch.low, kept.batch.value, kept.batch.high) == (1.6, 2.0, 2.0)
    assert kept.basis.endswith("and the 2 requests that the client kept decoding")
    # Of another load, of several replicas, or without a client nothing is known.
    for window, deployment in (
        (replace(served(500.0, 300.0), client=seen), llama_8b()),
        (replace(served(22.0, 14.0), client=seen), llama_8b(data_parallel=2)),
        (served(22.0, 14.0), llama_8b()),
    ):
        assert kept_full(decode, window, deployment) is decode


@pytest.mark.parametrize("begun", [1.2, 1.08])
def test_a_batch_that_was_seldom_kept_is_not_the_servers(tmp_path: Path, begun: float) -> None:
    """The second begins when the first has ended, or two steps before: 4 of 22 outputs are of full steps."""
    late = answer(0.0, [begun + 0.01 * step for step in range(11)])
    seen = client(written(tmp_path, DECODE, A, late))
    decode = hand_decode(batch=1.1)
    assert kept_full(decode, replace(served(22.0, 20.0), client=seen), llama_8b()) is decode


def hand_decode(batch: float) -> DecodeFacts:
    return DecodeFacts(Bounded.exactly(0.01), Bounded.exactly(batch), Bounded.exactly(105.5), 10.0, 1.0, basis="x; y")


def test_a_client_that_is_in_its_own_way_says_so(tmp_path: Path) -> None:
    (busy,) = notes(tmp_path, DECODE, A, B, cpu_share=0.8)
    assert busy.startswith("the client's process used 80% of a processor: times between tokens may be its own")
    (held,) = notes(tmp_path, DECODE, A, replace(B, wait_seconds=15.0))
    assert held == "the client held requests back for up to 15 s, which is in no latency (TTFT counts from sending)"
