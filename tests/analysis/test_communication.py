"""The communication estimate against arithmetic by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hand_facts import llama_8b, llama_70b, mixtral

from pytest_llmroof.analysis.communication import communicates, estimate, expert_ranks, mean_estimate, on_nvlink
from pytest_llmroof.roofline.accelerator import Accelerator
from pytest_llmroof.roofline.catalogue import accelerator
from pytest_llmroof.roofline.deployment import Deployment


def test_one_gpu_exchanges_nothing() -> None:
    assert not communicates(llama_8b())
    assert estimate(llama_8b(), 16) is None


def test_replicas_exchange_nothing() -> None:
    assert not communicates(llama_8b(data_parallel=8))


def test_small_all_reduces_over_nvlink() -> None:
    found = estimate(llama_70b(), 12.4)
    assert found is not None
    # 80 layers x 2; 12.4 tokens x 8 192 x 2 B = 203 162 B, below 512 KiB: 8 us each, one exchange.
    # beta = 900 GB/s / 2 x 0.8 = 360 GB/s; 2 x 3/4 x 203 162 B / 360 GB/s = 0.8465 us.
    assert found.messages == 160
    assert found.message_bytes == pytest.approx(203_161.6)
    assert found.seconds == pytest.approx(160 * (8e-6 + 0.8465e-6), rel=1e-4)
    assert found.basis == "estimated: 160 all-reduces of 203 kB over NVLink at 360 GB/s"


def test_large_all_reduces_take_the_library() -> None:
    found = estimate(llama_70b(), 2048)
    assert found is not None
    # 2 048 x 8 192 x 2 B = 33.55 MB: 20 us + 1.5 x 33.55 MB / 360 GB/s = 159.8 us.
    assert found.seconds == pytest.approx(160 * (20e-6 + 1.5 * 33_554_432 / 360e9))


def test_without_one_shot_small_messages_wait_for_the_library_too() -> None:
    found = estimate(llama_70b(), 12.4, one_shot=False)
    assert found is not None
    assert found.seconds == pytest.approx(160 * (20e-6 + 0.8465e-6), rel=1e-4)


def test_pcie_has_its_own_latency_and_bandwidth() -> None:
    found = estimate(llama_70b(interconnect="pcie"), 12.4)
    assert found is not None
    # Hopper: PCIe 5.0 x16, 64 GB/s one way x 0.8 = 51.2 GB/s; 30 us + 1.5 x 203 161.6 / 51.2e9 = 35.95 us.
    assert found.link == "PCIe"
    assert found.seconds == pytest.approx(160 * (30e-6 + 1.5 * 203_161.6 / 51.2e9))


def test_a_group_wider_than_a_node_goes_over_the_network() -> None:
    found = estimate(llama_70b(tensor_parallel=16, internode_bytes_per_second=25e9), 10)
    assert found is not None
    # 25 GB/s x 0.8 = 20 GB/s; 10 x 16 384 B = 163 840 B; 20 us + 2 x 15/16 x 163 840 / 20e9 = 35.36 us.
    assert found.link == "the network between nodes"
    assert found.seconds == pytest.approx(160 * (20e-6 + 1.875 * 163_840 / 20e9))


def test_experts_are_dispatched_and_combined() -> None:
    deployment = mixtral(tensor_parallel=1, data_parallel=8, expert_parallel=True)
    assert expert_ranks(deployment) == 8
    found = estimate(deployment, 16)
    assert found is not None
    # 16 tokens on each of 8 ranks, k = 2, d = 4 096, 2 B: 128 x 2 x 8 192 B x (1 - 1/8) / 8 = 229 376 B from each GPU,
    # twice per layer, 32 layers; 8 us + 229 376 / 360e9 = 8.637 us. No all-reduce: each rank has its own attention.
    assert found.messages == 0
    assert found.seconds == pytest.approx(64 * (8e-6 + 229_376 / 360e9))
    assert "dispatch and combine" in found.basis


def test_expert_parallelism_keeps_the_all_reduce_of_attention() -> None:
    found = estimate(mixtral(tensor_parallel=2, expert_parallel=True), 16)
    assert found is not None
    assert found.messages == 32


def test_pipeline_stages_hand_over_hidden_states() -> None:
    found = estimate(llama_70b(tensor_parallel=2, pipeline_parallel=2), 10)
    assert found is not None
    # A stage holds 40 layers: 80 all-reduces of 163 840 B: 8 us + 163 840 / 360e9. One boundary in two stages: half a
    # hand-over per stage and step, 20 us + 163 840 / 360e9.
    assert found.messages == 80
    assert found.all_reduce_seconds == pytest.approx(80 * (8e-6 + 163_840 / 360e9))
    assert found.pipeline_seconds == pytest.approx(0.5 * (20e-6 + 163_840 / 360e9))


def test_the_mean_of_steps_is_not_the_step_of_the_mean() -> None:
    # Nine of ten steps hold 12 tokens, each tenth 2 060: the mean of 217 tokens would take the library's latency.
    mean = mean_estimate(llama_70b(), [(0.9, 12.0), (0.1, 2060.0)])
    small, large = estimate(llama_70b(), 12.0), estimate(llama_70b(), 2060.0)
    assert mean is not None
    assert small is not None
    assert large is not None
    assert mean.seconds == pytest.approx(0.9 * small.seconds + 0.1 * large.seconds)


def test_nothing_is_estimated_without_sizes() -> None:
    assert estimate(Deployment(accelerator=accelerator("h100"), tensor_parallel=4), 10) is None


def test_links_of_a_gpu_that_nobody_knows_are_those_of_any() -> None:
    # 32 GB/s one way x 0.8 = 25.6 GB/s: 30 us + 1.5 x 203 161.6 / 25.6e9 = 41.90 us.
    for unknown in (None, Accelerator("mine", "mine", {}, 3.35e12, 80e9)):
        found = estimate(llama_70b(accelerator=unknown), 12.4)
        assert found is not None
        assert (found.link, found.link_name) == ("PCIe", "PCIe")
        assert found.seconds == pytest.approx(160 * (30e-6 + 1.5 * 203_161.6 / 25.6e9))


def test_two_ranks_of_experts_exchange_too() -> None:
    # Mixtral over 2: half of 16 x 2 replicas' tokens x 2 experts x 8 192 B, half of it to the other: 131 072 B;
    # dispatch and combine in each of 32 layers, one exchange of 8 us each.
    found = estimate(mixtral(tensor_parallel=1, data_parallel=2, expert_parallel=True), 16)
    assert found is not None
    assert (found.messages, found.all_reduce_seconds) == (0.0, 0.0)
    assert found.expert_seconds == pytest.approx(32 * 2 * (8e-6 + 131_072 / 360e9))


def test_nvlink_needs_a_link_and_a_node() -> None:
    assert on_nvlink(llama_70b(interconnect="pcie")) == llama_70b()
    assert on_nvlink(llama_70b(tensor_parallel=16)) is None
    assert on_nvlink(replace(llama_70b(), accelerator=accelerator("l40s"))) is None
