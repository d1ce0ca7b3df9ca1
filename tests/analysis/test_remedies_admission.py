"""Remedies of a queue: places for requests, replicas by their arrivals, and who is offered what; each by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hand_facts import decoding, engine, exactly, llama_8b, mean_of, measured, series, window

from pytest_llmroof.analysis.attribute import attribute
from pytest_llmroof.analysis.attribute_ttft import attribute_ttft
from pytest_llmroof.analysis.diagnosis import Remedy
from pytest_llmroof.analysis.effects_admission import (
    demand,
    fitting,
    mean_waiting,
    more_slots,
    replicas,
    time_without_queue,
)
from pytest_llmroof.analysis.facts import Busy, WindowFacts
from pytest_llmroof.analysis.remedies import remedies
from pytest_llmroof.analysis.situation import Situation


def span(remedy: Remedy) -> tuple[float, float]:
    assert remedy.low is not None
    assert remedy.high is not None
    return remedy.low, remedy.high


def saturated(**gauges: tuple[float, ...]) -> WindowFacts:
    histograms = {"ttft": mean_of(2.0, 120), "queue": mean_of(1.6, 120), "prefill_time": mean_of(0.3, 120),
                  "e2e": mean_of(10.0, 120)}  # fmt: skip
    kept = engine(histograms=histograms, gauges={name: series(*values) for name, values in gauges.items()})
    return decoding(llama_8b(), 0.0066, 16, 1000, engines=(kept,))


def of_admission(facts: WindowFacts) -> dict[str, Remedy]:
    split = attribute_ttft(facts, measured(ttft__mean=2.0))
    return {remedy.title: remedy for remedy in remedies("E", facts, split)}


def test_e_slots_up_to_what_fits() -> None:
    facts = saturated(waiting=(0, 5, 9, 12, 8), running=(0, 16, 16, 16, 16), kv_usage=(0, 0.1, 0.1, 0.1, 0.1))
    remedy = of_admission(facts)["Allow more sequences at once"]
    # (72 GB - 16.06 GB) / (1 000 x 131 072 B) = 426 sequences; 16 ran.
    assert remedy.effect == "16 sequences at once toward 426 in each replica"
    assert "raise --max-num-seqs" in remedy.detail


@pytest.mark.parametrize(
    ("engine", "words"),
    [("sglang", "ran: raise --max-running-requests."), ("a new engine", "ran: let the engine run more at once.")],
)
def test_options_are_those_of_the_engine(engine: str, words: str) -> None:
    facts = saturated(waiting=(0, 5, 9, 12, 8), running=(0, 16, 16, 16, 16), kv_usage=(0, 0.1, 0.1, 0.1, 0.1))
    facts = replace(facts, window=replace(facts.window, kind=engine))
    assert of_admission(facts)["Allow more sequences at once"].detail.endswith(words)


def test_e_slots_are_worth_offering_where_a_tenth_more_fits() -> None:
    # 426 sequences fit: a tenth more than 380 is 418, than 400 it is 440.
    found = {most: more_slots(Situation(saturated(running=(0, most, 16)), None)) for most in (380.0, 400.0)}
    assert found[400.0] is None
    assert found[380.0] is not None
    assert found[380.0].text == "380 sequences at once toward 426 in each replica"


def test_e_slots_that_fit_where_no_step_tells_the_context() -> None:
    # A prompt of 1 000 tokens and half an output of 960: (72 GB - 16.06 GB) / (1 480 x 131 072 B) = 288.4 sequences.
    facts = replace(saturated(), decode=None)
    assert fitting(facts, facts.deployment) == pytest.approx((72e9 - 16.0605e9) / (1480 * 131_072), rel=1e-4)
    # Prompts alone: 1 000 tokens.
    prompts = replace(facts, mean_output_tokens=None)
    assert fitting(prompts, facts.deployment) == pytest.approx((72e9 - 16.0605e9) / (1000 * 131_072), rel=1e-4)
    assert fitting(replace(facts, mean_prompt_tokens=None), facts.deployment) is None


def test_e_a_smaller_cache_holds_twice_as_many() -> None:
    facts = saturated(waiting=(0, 5, 9, 12, 8), running=(0, 22, 24, 23, 24), kv_usage=(0, 0.97, 0.98, 0.99, 0.99))
    found = of_admission(facts)
    assert found["Keep the KV cache in FP8"].effect == "24 sequences toward 48 in each replica"
    assert "Allow more sequences at once" not in found


def test_e_replicas_by_arrivals() -> None:
    # 120 first tokens in a minute, and the line grows by 24 + 60 requests: 3.4 per second, 8.4 s each without the
    # queue: 28.6 places of 24: 2 replicas; 40 requests wait on average: (28.6 + 40) / 24: at most 3.
    facts = saturated(waiting=(0, 20, 40, 40, 60), running=(0, 24, 24, 24, 24))
    remedy = of_admission(facts)["Add replicas"]
    assert remedy.effect == "1 toward 2 to 3 replicas: time to first token 2 s toward 400 ms"
    assert span(remedy) == pytest.approx((0.4, 0.4))
    assert remedy.detail == (
        "3.4 requests/s that take 8.40 s each without the queue need 29 places, and 40 requests wait; a replica has 24."
    )


def test_e_arrivals_are_what_started_and_what_joined_the_line() -> None:
    # 120 first tokens in a minute: 2 a second. From an empty engine to 24 + 60 requests: 84 more, 3.4 a second.
    rates = []
    for waiting, running in (((0, 60), (0, 24)), ((5, 5), (24, 24)), ((9, 2), (24, 24))):
        asked = demand(saturated(waiting=waiting, running=running))
        assert asked is not None
        rates.append(asked.rate)
    # A line that only shrinks takes no arrival away.
    assert rates == pytest.approx([3.4, 2.0, 2.0])
    # Nobody saw a line; the load was half of the minute; nothing counts first tokens, but 90 requests finished.
    unseen = saturated()
    assert rate_of(unseen) == pytest.approx(2.0)
    assert rate_of(replace(unseen, busy=Busy(exactly(30.0), "samples"))) == pytest.approx(4.0)
    assert rate_of(replace(unseen, busy=None)) == pytest.approx(2.0)
    (one,) = unseen.window.engines
    late = {name: times for name, times in one.histograms.items() if name != "ttft"}
    uncounted = replace(unseen, window=window(replace(one, histograms=late)), finished_requests=90.0)
    assert rate_of(uncounted) == pytest.approx(1.5)
    assert rate_of(replace(uncounted, finished_requests=None)) is None
    assert rate_of(replace(unseen, busy=None, duration_seconds=None)) is None


def rate_of(facts: WindowFacts) -> float | None:
    asked = demand(facts)
    return asked.rate if asked is not None else None


def test_e_time_without_the_queue_by_what_the_engine_tells() -> None:
    def alone(**seconds: float) -> float | None:
        kept = engine(histograms={name: mean_of(value, 120) for name, value in seconds.items()})
        return time_without_queue(decoding(llama_8b(), 0.0066, 16, 1000, engines=(kept,)))

    assert alone(e2e=10.0, queue=1.6) == pytest.approx(8.4)
    assert alone(e2e=10.0) == pytest.approx(10.0)
    assert alone(e2e=1.0, queue=1.6) == 0  # the queue is of requests that have not ended yet
    assert alone(inference_time=8.0, queue=1.6) == pytest.approx(8.0)
    assert alone(queue=1.6) is None


def test_e_waiting_requests_are_those_of_the_samples_with_any() -> None:
    # Of one replica 1 and 3 in two of three samples, of another none in any, of a third nobody knows.
    seen = [engine(gauges={"waiting": series(0, 1, 3)}), engine(gauges={"waiting": series(0, 0, 0)}), engine()]
    named = tuple(replace(one, identity=f"engine {number}") for number, one in enumerate(seen))
    assert mean_waiting(decoding(llama_8b(), 0.0066, 16, 1000, engines=named)) == 2


def test_e_replicas_that_just_suffice() -> None:
    # 2 a second x (13.6 - 1.6 s) = 24 places of 24: one replica, and with 24 that wait two.
    facts = saturated(waiting=(24, 24, 24), running=(24, 24, 24))
    (one,) = facts.window.engines
    exact = replace(facts, window=window(replace(one, histograms={**one.histograms, "e2e": mean_of(13.6, 120)})))
    split = attribute_ttft(exact, measured(ttft__mean=2.0))
    found = replicas(Situation(exact, split))
    assert found is not None
    assert found.text == "1 toward 2 replicas: time to first token 2 s toward 400 ms"
    assert found.gain == pytest.approx(0.8)  # 1.6 of 2.0 s
    # Where none waits 24 places of 24 are enough.
    (calm,) = saturated(running=(24, 24, 24)).window.engines
    served = replace(facts, window=window(replace(calm, histograms={**calm.histograms, "e2e": mean_of(13.6, 120)})))
    assert replicas(Situation(served, split)) is None
    # Of a time that holds no queue nothing is said to go.
    step = replicas(Situation(exact, attribute(exact, {})))
    assert step is not None
    assert (step.text, step.metric, step.gain) == ("1 toward 2 replicas", None, None)


def test_e_no_replicas_where_one_keeps_up() -> None:
    facts = saturated(waiting=(0, 1, 0, 1, 0), running=(0, 24, 20, 24, 0))
    # 2.0 per second x 8.4 s = 16.8 places, 1 waits: 24 suffice.
    assert "Add replicas" not in of_admission(facts)


def test_e_prefill_as_the_cause_is_served_apart() -> None:
    facts = replace(saturated(), prefill_share=0.8)
    assert "Serve prefill and decode on GPUs of their own" in of_admission(facts)
    assert "Keep the KV cache in FP8" not in of_admission(facts)
