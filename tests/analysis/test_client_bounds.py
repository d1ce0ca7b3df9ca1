"""What bounds a client's percentiles: stated ones beside it, steps that several outputs share, and failures."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from made_windows import deployment

from pytest_llmroof.analysis.clientfacts import cold_start
from pytest_llmroof.analysis.clientlatency import belied
from pytest_llmroof.analysis.gather import gather
from pytest_llmroof.analysis.measure import measure
from pytest_llmroof.analysis.measurement import Measurement
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.telemetry.client import Client, Request, Summary
from pytest_llmroof.telemetry.window import Window


def stating(completed: float, failed: float, **milliseconds: float) -> Client:
    """A tool that states percentiles of the time to the first token (``p67_5`` is p67.5)."""
    values = {name.replace("_", "."): value / 1e3 for name, value in milliseconds.items()}
    summary = Summary("ttft", values, "from sending")
    return Client("tool", "a tool", "run.json", completed=completed, failed=failed, summaries={"ttft": summary})


def of(client: Client, metric: str) -> Measurement:
    outcome = measure(gather(Window("tool", (), (), client=client), deployment("llama-3.1-8b")))[metric]
    assert isinstance(outcome, Measurement), outcome
    return outcome


def test_failures_move_the_ranks_between_which_a_stated_percentile_lies() -> None:
    # The median of 100, 10 of which failed: ranks 40 and 61 of 100, 44.4 % and 67.8 % of the 90 that answered.
    client = stating(90, 10, p40=40, p44=44, p45=45, p50=50, p60=60, p67_5=67.5, p70=70)
    found = of(client, "ttft.p50").bounded
    assert (found.low, found.value, found.high) == pytest.approx((0.044, 0.050, 0.070))
    # Without failures: ranks 40 and 61 of 100.
    found = of(stating(100, 0, p40=40, p44=44, p50=50, p60=60, p61=61, p70=70), "ttft.p50").bounded
    assert (found.low, found.value, found.high) == pytest.approx((0.040, 0.050, 0.061))


def test_the_largest_stated_value_bounds_a_percentile_that_nothing_else_does() -> None:
    # p95 of 100 has rank 100 as the upper one, which is the maximum, not p99.
    assert of(stating(100, 0, p50=50, p95=95, p99=99, max=300), "ttft.p95").bounded.high == pytest.approx(0.3)
    assert of(stating(100, 0, p50=50, p95=95, p99=99), "ttft.p95").bounded.high == math.inf


def test_times_between_pieces_of_one_step_are_counted_once() -> None:
    # 8 requests of 25 gaps, 1 / 1 005 .. 200 / 1 005 s: 200 x 201 / 2 / 1 005 = 20 s of waiting in 10 s, so that two
    # outputs come from each step: 100 of 200 are independent. Ranks 40 and 61 of 100 are 80 and 122 of 200.
    gaps = [number / 1005 for number in range(1, 201)]
    requests = tuple(
        Request(ttft=0.1, e2e=0.1 + sum(gaps[first::8]), itls=tuple(gaps[first::8]), output_tokens=26.0)
        for first in range(8)
    )
    client = Client("tool", "a tool", "run.json", duration_seconds=10.0, completed=8, failed=0, requests=requests)
    found = of(client, "itl.p50").bounded
    assert (found.low, found.value, found.high) == pytest.approx((80 / 1005, 100.5 / 1005, 122 / 1005))


def test_a_failed_request_has_no_times_between_pieces() -> None:
    # The largest of 60 gaps is near their p99; one more that failed and counted as slower would hold it.
    gaps = tuple(0.01 + number / 1e4 for number in range(60))
    answered = Request(ttft=0.1, e2e=0.1 + sum(gaps), itls=gaps, output_tokens=61.0)
    client = Client("tool", "a tool", "run.json", duration_seconds=2.0, completed=1, failed=1,
                    requests=(answered, Request(failed=True)))  # fmt: skip
    found = of(client, "itl.p99")
    assert found.judged_by == "value"
    assert found.value == pytest.approx(0.01 + 0.99 * 59 / 1e4)


def test_goodput_of_requests_that_nothing_counts_is_of_those_recorded() -> None:
    fast = Request(ttft=0.1, e2e=1.1, tpot=0.04, output_tokens=26.0)
    single, slow = Request(ttft=0.1, e2e=0.1, output_tokens=1.0), replace(fast, ttft=3.0)
    client = Client("tool", "a tool", "run.json", requests=(*[fast] * 6, single, slow, Request(failed=True)))
    # 6 fast ones and 1 of a single token, of 9.
    found = of(client, "goodput(ttft<=2s, tpot<=50ms)")
    assert found.value == pytest.approx(7 / 9)
    assert found.samples == 9
    assert "over all 9 that were sent; 1 of one output token have no time per output token" in found.method
    assert "one output token" not in of(client, "goodput(ttft<=2s)").method


def test_of_fewer_than_twenty_requests_none_is_called_cold() -> None:
    def note(warm: int) -> str | None:
        cold = [Request(ttft=48.0, started=0.0)] * 5
        rest = [Request(ttft=0.7, started=60.0 + number) for number in range(warm)]
        return cold_start(Client("tool", "a tool", "run.json", requests=(*cold, *rest)))

    assert note(14) is None
    said = note(15)
    assert said is not None
    assert said.startswith("the first 5 requests waited 48 s for their first token, the others 700 ms (medians)")


def test_a_server_is_belied_by_any_percentile_below() -> None:
    served = Measurement("ttft.max", Bounded.exactly(1.5), "seconds", "server", "the largest")
    # A maximum of 1.5 s at the server, where one of a thousand waited 2 s at the client.
    assert belied(stating(1000, 0, p50=100, p99_9=2000), "ttft.max", served)
    assert not belied(stating(1000, 0, p50=100, p99_9=1400), "ttft.max", served)
    # A p95 says nothing of a p90.
    assert not belied(stating(1000, 0, p95=2000), "ttft.p90", served)
    assert belied(stating(1000, 0, p90=2000), "ttft.p90", served)
    assert not belied(stating(1000, 0, p90=2000), "ttft.mean", served)
