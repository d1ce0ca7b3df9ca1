"""Counters over a window of which little is known, of one GPU, and what is said where they tell nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_counters import gpu, gpus, watched
from hand_facts import decoding, engine, llama_8b, llama_70b, measured, prefilling

from pytest_llmroof.analysis.facts import Busy, WindowFacts
from pytest_llmroof.analysis.hardware_evidence import counters_missing, padding
from pytest_llmroof.analysis.measure import measure
from pytest_llmroof.analysis.measurement import Measurement
from pytest_llmroof.bounded import Bounded
from pytest_llmroof.telemetry.window import Series

#: Requests before and after, and none at either scrape: no average lies certainly in the load.
BURST = (engine(gauges={"running": Series((0.0, 60.0), (0.0, 0.0))}),)
LOADED = (engine(gauges={"running": Series((0.0, 60.0), (12.0, 12.0)), "waiting": Series((0.0, 60.0), (0.0, 0.0))}),)


def over_the_window(busy: Busy | None, dram: float) -> Measurement:
    """Two averages over 30 s that cover a minute with a load of which only ``busy`` is known."""
    facts = decoding(llama_8b(), 0.0066, 16, 1000, engines=BURST)
    window = watched(replace(facts.window, started=0.0), gpu(times=[30, 60], dram=dram), averaging=30.0)
    found = measure(replace(facts, window=window, busy=busy))["hardware.mbu"]
    assert isinstance(found, Measurement), found
    return found


@pytest.mark.parametrize(
    ("busy", "most"),
    [
        # 10 % of 60 s are 6 s of work, all of it inside the load: of 20 s at the least 30 %, of 5 s more than all.
        (Busy(Bounded(22, 20, 24), "first to last movement of the counters"), 0.30),
        (Busy(Bounded(7, 5, 9), "first to last movement of the counters"), 1.0),
        # An upper bound says nothing of the least, nor does nothing.
        (Busy(Bounded(60, 30, 60), "the window"), 1.0),
        (None, 1.0),
    ],
)
def test_work_over_a_window_was_done_in_its_load(busy: Busy | None, most: float) -> None:
    found = over_the_window(busy, dram=0.1)
    assert (found.value, found.low, found.high) == pytest.approx((0.1, 0.1, most))
    assert found.judged_by == "bounds"


def test_one_gpu_is_no_mean() -> None:
    def method(tensor_parallel: int) -> str:
        facts = decoding(llama_8b(), 0.0066, 16, 1000, engines=LOADED)
        window = watched(replace(facts.window, started=0.0), *gpus(tensor_parallel, dram=0.5))
        deployed = llama_8b(tensor_parallel=tensor_parallel)
        found = measure(replace(facts, window=window, deployment=deployed))["hardware.mbu"]
        assert isinstance(found, Measurement), found
        return found.method

    assert "; of one GPU; " in method(1)
    assert "; mean over 2 GPUs, equally weighted; " in method(2)


def asked(
    facts: WindowFacts, letters: tuple[str, ...], count: int, missing: dict[str, str], **fields: Any
) -> list[str]:
    window = replace(facts.window, started=0.0)
    seen = replace(facts, window=watched(window, *gpus(count, **fields), missing=missing))
    return list(map(str, counters_missing(seen, letters)))


def test_the_counter_that_is_missing_is_asked_for() -> None:
    full = {"gr_engine": 0.98, "sm_active": 0.4, "dram": 0.2, "tensor": 0.03}
    one = decoding(llama_8b(), 0.0066, 16, 1000, engines=LOADED)
    # Of one GPU, which talks to nobody: all is there, or what is not is named.
    assert asked(one, ("C", "D"), 1, {}, **full) == []
    lacking = {name: value for name, value in full.items() if name != "tensor"}
    (line,) = asked(one, ("D", "F"), 1, {"tensor": "add DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"}, **lacking)
    assert line.endswith("add DCGM_FI_PROF_PIPE_TENSOR_ACTIVE")
    assert asked(one, ("A", "B"), 1, {}, **full) == []
    # Of four: their links, in the exporter's own words where it has some.
    four = decoding(llama_70b(), 0.0262, engines=LOADED)
    told = {"nvlink_sent_bytes_per_second": "DCGM_FI_PROF_NVLINK_TX_BYTES is not exported: add it"}
    assert asked(four, ("C", "F"), 4, told, **full) == [told["nvlink_sent_bytes_per_second"]]
    (line,) = asked(four, ("C", "F"), 4, {}, **full)
    assert "NVLINK" in line
    assert asked(four, ("D", "F"), 4, told, **full) == []


def test_padding_is_what_was_executed_over_what_the_prompts_need() -> None:
    facts = prefilling(llama_8b(), 4096, 100, 20.0)
    seen = replace(facts, window=watched(replace(facts.window, started=0.0), gpu(tensor=0.7)))
    # 70.4 / 30.4 = 2.316
    (found,) = padding(seen, measured(hfu=0.704, prefill__mfu=0.304))
    assert found.statement == (
        "the hardware executed 2.3 times what the prompts need (HFU 70 %, MFU 30 %): padding, prompts computed again, "
        "tiles too large"
    )
    assert (found.scenario, found.supports) == ("F", True)
    # From 1.3 times on.
    assert list(padding(seen, measured(hfu=0.391, prefill__mfu=0.304))) == []  # 1.286
    assert list(padding(seen, measured(hfu=0.399, prefill__mfu=0.304)))  # 1.3125
    assert list(padding(seen, measured(hfu=0.704, prefill__mfu=0.0))) == []
    assert list(padding(replace(seen, phase="mixed"), measured(hfu=0.704, prefill__mfu=0.304))) == []
    assert list(padding(facts, measured(hfu=0.704, prefill__mfu=0.304))) == []
