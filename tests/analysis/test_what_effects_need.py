"""Remedies put no figure to what is not known, and a diagnosis says which ranks it did not see."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hand_facts import decoding, exactly, llama_8b, llama_70b, mixtral, prefilling, window
from kernel_tables import seconds, wide

from pytest_llmroof.analysis.attribute import attribute
from pytest_llmroof.analysis.diagnose import diagnose
from pytest_llmroof.analysis.effects_bytes import larger_batch, no_ridge, speculation
from pytest_llmroof.analysis.effects_compute import attention_kernels, chunk_tokens, fp8_compute, prefix_caching
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.fitting import parallelism_that_fits, product_that_fits
from pytest_llmroof.analysis.observed import Observed
from pytest_llmroof.analysis.remedies import EFFECTS
from pytest_llmroof.analysis.situation import Situation
from pytest_llmroof.profiles.ncu import read_ncu
from pytest_llmroof.profiles.profile import Profile
from pytest_llmroof.roofline.accelerator import Accelerator
from pytest_llmroof.roofline.catalogue import accelerator
from pytest_llmroof.roofline.models import model_from_mapping
from pytest_llmroof.roofline.step import Step

DENSE = decoding(llama_70b(), 0.0262)
PREFILL = prefilling(llama_8b(), 4096, 100, 11.53)


def situation(facts: WindowFacts, observed: Observed | None = None) -> Situation:
    return Situation(facts, attribute(facts, {}, observed), observed)


def without(facts: WindowFacts, *what: str) -> Situation:
    """The split of a time as it was, with a deployment of which that is no longer known."""
    gone: dict[str, Any] = dict.fromkeys(what)
    return replace(situation(facts), facts=replace(facts, deployment=replace(facts.deployment, **gone)))


@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize(
    "bare",
    [
        replace(situation(DENSE), attribution=None),
        without(replace(DENSE, decode=None), "model"),
        without(replace(DENSE, decode=None), "model", "accelerator"),
    ],
    ids=["nothing split", "no model", "neither"],
)
def test_no_figure_without_a_time_or_a_model(effect: str, bare: Situation) -> None:
    found = EFFECTS[effect](bare)
    if found is not None and found.low is not None:
        # What goes away whole needs only the split: T without some of it.
        assert bare.attribution is not None
        assert effect.startswith("no_")


def test_a_larger_batch_needs_a_limit_that_can_be_told() -> None:
    assert larger_batch(situation(DENSE)) is not None
    # Neither a ridge nor a size of memory: nothing tells how far.
    unknown = Accelerator("mine", "mine", {}, 3.35e12, None)
    mine = replace(DENSE, deployment=llama_70b(accelerator=unknown))
    assert larger_batch(replace(situation(DENSE), facts=mine)) is None
    assert DENSE.decode is not None
    empty = replace(DENSE, decode=replace(DENSE.decode, batch=exactly(0.0)))
    assert larger_batch(replace(situation(DENSE), facts=empty)) is None


def test_drafts_need_a_floor_that_can_be_told() -> None:
    # Neither a bandwidth nor a peak: no pass has a floor, before or after.
    unknown = llama_70b(accelerator=Accelerator("mine", "mine", {}, None, None))
    assert speculation(replace(situation(DENSE), facts=replace(DENSE, deployment=unknown))) is None


def test_where_no_batch_reaches_the_ridge() -> None:
    """70B at 4k: 2 x 69.5e9 + 4 x 64 x 128 x 80 x 4 096 FLOP a sequence over its 4 097 x 327 680 B: 111.5 FLOP/B."""
    text = no_ridge(situation(DENSE), Step(12.4, 4096))
    assert text == "no batch reaches the ridge at this context (the intensity tends to 112 FLOP/B)"
    assert no_ridge(situation(DENSE), Step(12.4, 100)) is None  # 4 300 FLOP/byte, above 295
    assert no_ridge(without(DENSE, "accelerator"), Step(12.4, 4096)) is None


def test_verifying_drafts_above_the_ridge_gains_nothing() -> None:
    crowded = decoding(llama_8b(), 0.020, batch=256, context=100)  # 256 x 4 tokens a step are above 295
    assert speculation(situation(crowded)) is None
    assert speculation(situation(decoding(llama_8b(), 0.020, batch=32, context=100))) is not None


def test_a_chunk_needs_the_ridge() -> None:
    assert chunk_tokens(llama_70b(accelerator=None)) is None
    assert chunk_tokens(llama_70b(accelerator=Accelerator("mine", "mine", {}, 3.35e12, 80e9))) is None


def test_fp8_and_newer_attention_only_where_there_is_any() -> None:
    assert fp8_compute(situation(PREFILL)) is not None
    assert attention_kernels(situation(PREFILL)) is not None
    on_a100 = prefilling(llama_8b(accelerator=accelerator("a100")), 4096, 100, 40.0)
    assert fp8_compute(situation(on_a100)) is None  # no FP8 there
    assert attention_kernels(situation(on_a100)) is None  # written for Hopper and Blackwell
    assert fp8_compute(situation(decoding(llama_8b(), 0.009))) is None  # nothing of that time is arithmetic
    figures = replace(PREFILL, deployment=llama_8b(model=model_from_mapping({"parameters": 8e9})))
    assert attention_kernels(situation(figures)) is None  # no heads are known, so no scores are counted


def test_sharing_prefixes_that_are_shared_already_saves_little_more() -> None:
    assert prefix_caching(situation(replace(PREFILL, prefix_hit_rate=0.5))) is not None
    assert prefix_caching(situation(replace(PREFILL, prefix_hit_rate=0.51))) is None
    assert prefix_caching(situation(decoding(llama_8b(), 0.009, phase="decode"))) is not None
    untold = prefix_caching(situation(replace(PREFILL, prefix_hit_rate=None)))
    assert untold is not None
    assert untold.fill == {"hit_rate": "not known"}


# What fits instead -------------------------------------------------------------------------------------------------


def test_a_degree_that_the_heads_refuse_is_not_proposed() -> None:
    """141.1 GB: 70.6 GB on each of two; eight key-value heads share among 2, 4 and 8."""
    assert parallelism_that_fits(llama_70b(tensor_parallel=1)) == "tensor_parallel: 2 (70.6 GB on each)"
    assert parallelism_that_fits(llama_70b(tensor_parallel=2)) == "tensor_parallel: 4 (35.3 GB on each)"
    small = llama_70b(tensor_parallel=1, accelerator=Accelerator("tiny", "tiny", {}, 1e12, 1e9))
    assert parallelism_that_fits(small) is None


def test_a_product_of_the_same_maker_with_enough() -> None:
    h100 = accelerator("h100")
    large = product_that_fits(h100, memory_bytes=141.1e9)
    assert large is not None
    assert accelerator(large).vendor == "NVIDIA"
    assert (accelerator(large).memory_bytes or 0) >= 141.1e9
    fast = product_that_fits(h100, bandwidth_factor=2.0)
    assert fast is not None
    assert (accelerator(fast).memory_bandwidth_bytes_per_second or 0) >= 6.7e12
    # The smallest that has enough, if only just.
    assert product_that_fits(h100, memory_bytes=141e9) == "h20-3e-141gb"
    assert product_that_fits(h100, memory_bytes=1e15) is None
    assert product_that_fits(h100, bandwidth_factor=1e3) is None
    assert product_that_fits(h100) is None
    assert product_that_fits(Accelerator("x", "x", {}, None, None), bandwidth_factor=1.0) is None


# What was not seen -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("captured", "of", "said"),
    [
        ((0, 1), 4, "2 of 4 ranks were profiled, not ranks 2 and 3: whether all of them wait for another one; "),
        ((0, 1, 3), 4, "3 of 4 ranks were profiled, not rank 2: whether all of them wait for another one; "),
        ((0, 1), 11, "2 of 11 ranks were profiled, not ranks 2, 3, 4, 5, 6, 7, 8, 9 and 1 more: whether"),
        ((), 4, "2 of 4 ranks were profiled: whether all of them wait for another one; "),
    ],
)
def test_ranks_that_were_not_profiled_are_asked_for(captured: tuple[int, ...], of: int, said: str) -> None:
    seen = Observed(
        "trace", transport=0.34, idle_within=0.03, idle_between=0.01, ranks=max(2, len(captured)), ranks_of=of,
        captured=captured,
    )  # fmt: skip
    found = diagnose(DENSE, {}, attribute(DENSE, {}, seen), "decode", seen)
    assert [text for text in map(str, found.missing) if text.startswith(said)]


def test_waiting_for_a_rank_that_was_not_profiled_asks_for_its_trace() -> None:
    seen = Observed("trace", transport=0.05, waiting=0.3, idle_within=0.03, idle_between=0.01, ranks=1, ranks_of=4)
    found = diagnose(DENSE, {}, attribute(DENSE, {}, seen), "decode", seen)
    said = "1 of 4 ranks was profiled, not the late one; "
    assert [text for text in map(str, found.missing) if text.startswith(said)]
    known = replace(seen, late_rank=2)
    found = diagnose(DENSE, {}, attribute(DENSE, {}, known), "decode", known)
    assert not [text for text in map(str, found.missing) if "not the late one" in text]


def test_kernels_alone_speak_where_no_time_can_be_split(tmp_path: Path) -> None:
    """A matrix-vector product at 80 % of an A100's 1 935 GB/s for 90 % of the profiled time."""
    moved = {"gpu__time_duration.sum": seconds(900), "dram__bytes.sum": ("byte", f"{0.8 * 900e-6 * 1935e9:.0f}")}
    path = wide(tmp_path / "k.csv", [("gemv", moved), ("norm", {"gpu__time_duration.sum": seconds(100)})])
    bare = replace(
        decoding(llama_8b(accelerator=accelerator("a100-pcie")), 0.02), decode=None, busy=None, window=window()
    )
    assert diagnose(bare, {}, None, "decode", None).scenario is None
    found = diagnose(replace(bare, profile=Profile((), kernels=read_ncu(path))), {}, None, "decode", None)
    assert (found.scenario, found.confidence) == ("A", "medium")
    assert "kernels of 90 % of the profiled time (gemv)" in found.evidence[0].statement
    # Half of the time speaks for nothing.
    path = wide(tmp_path / "h.csv", [("gemv", moved), ("norm", {"gpu__time_duration.sum": seconds(900)})])
    half = replace(bare, profile=Profile((), kernels=read_ncu(path)))
    assert diagnose(half, {}, None, "decode", None).scenario is None


def test_experts_need_a_model_that_has_some() -> None:
    assert chunk_tokens(mixtral()) == pytest.approx(4 * 295.3, rel=1e-3)  # 8 experts, 2 of them for a token
