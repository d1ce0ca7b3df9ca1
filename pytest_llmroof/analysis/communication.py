"""How long communication between GPUs takes in a step: an estimate, where no profile tells.

A message of ``size`` bytes takes ``alpha + size / beta``. All-reduce over t ranks moves 2 (t - 1) / t times the size.
An estimate never decides more than a low-confidence diagnosis: topology and implementation change it several-fold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pytest_llmroof.analysis.constants import communication_constant as constant
from pytest_llmroof.analysis.vendors import link_name
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.units import grouped

Link = Literal["NVLink", "PCIe", "the network between nodes"]


@dataclass(frozen=True)
class CommunicationEstimate:
    """Communication of one step of one replica. ``messages`` are all-reduces, ``message_bytes`` the size of one."""

    link: Link
    link_name: str
    bytes_per_second: float
    messages: float
    message_bytes: float
    all_reduce_seconds: float
    expert_seconds: float
    pipeline_seconds: float

    @property
    def seconds(self) -> float:
        """All of it, none hidden behind computation."""
        return self.all_reduce_seconds + self.expert_seconds + self.pipeline_seconds

    @property
    def basis(self) -> str:
        """What was assumed, for the share's source."""
        parts = []
        if self.messages:
            parts.append(f"{grouped(self.messages)} all-reduces of {self.message_bytes / 1e3:.0f} kB")
        if self.expert_seconds:
            parts.append("dispatch and combine of the experts")
        if self.pipeline_seconds:
            parts.append("hand-over between pipeline stages")
        return f"estimated: {', '.join(parts)} over {self.link_name} at {self.bytes_per_second / 1e9:.0f} GB/s"


def expert_ranks(deployment: Deployment) -> int:
    """e: the GPUs that routed experts are spread over; 1 without expert parallelism."""
    model = deployment.model
    if not deployment.expert_parallel or model is None or not model.experts:
        return 1
    return deployment.tensor_parallel * deployment.replicas


def communicates(deployment: Deployment) -> bool:
    """Whether a step needs other GPUs at all: tensor, pipeline or expert parallelism above 1."""
    return deployment.gpus_per_replica > 1 or expert_ranks(deployment) > 1


def estimate(deployment: Deployment, tokens: float, *, one_shot: bool = True) -> CommunicationEstimate | None:
    """The communication of a step of one replica with ``tokens``; None where nothing is exchanged or sizes are unknown.

    With pipeline parallelism a step's time is that of one stage, which holds 1/p of the layers. ``one_shot`` says
    whether small all-reduces inside a node take a single exchange; without it they take the library's latency.
    """
    model = deployment.model
    if model is None or model.layers is None or model.hidden_size is None or not communicates(deployment):
        return None
    t, p, e = deployment.tensor_parallel, deployment.pipeline_parallel, expert_ranks(deployment)
    row_bytes = model.hidden_size * constant("activation_bytes")
    layers = model.layers / p
    link, beta = _link(deployment, t)
    size = tokens * row_bytes
    # With expert parallelism the feed-forward part is exchanged by dispatch and combine, not reduced.
    messages = layers * (constant("reductions_per_layer") if e == 1 else 1.0) if t > 1 else 0.0
    all_reduce = messages * (_latency(link, size, one_shot) + 2 * (t - 1) / t * size / beta)
    expert = 0.0
    if e > 1:
        expert_link, expert_beta = _link(deployment, e)
        # The tokens of all data-parallel ranks meet in the experts; each GPU sends its part of them.
        sent = tokens * deployment.replicas * model.experts_per_token * row_bytes * (1 - 1 / e) / e
        expert = layers * constant("exchanges_per_layer") * (_latency(expert_link, sent, one_shot) + sent / expert_beta)
        link, beta = (expert_link, expert_beta) if t == 1 else (link, beta)
    pipeline = 0.0
    if p > 1:
        hop_link, hop_beta = _link(deployment, t * p)
        pipeline = (p - 1) / p * (_latency(hop_link, size, one_shot=False) + size / hop_beta)
        link, beta = (hop_link, hop_beta) if t == 1 and e == 1 else (link, beta)
    vendor = deployment.accelerator.vendor if deployment.accelerator else None
    name = link_name(vendor) if link == "NVLink" else link
    return CommunicationEstimate(link, name, beta, messages, size, all_reduce, expert, pipeline)


def mean_estimate(
    deployment: Deployment, steps: Sequence[tuple[float, float]], *, one_shot: bool = True
) -> CommunicationEstimate | None:
    """The mean over kinds of steps, each a share of all steps and its tokens; messages are those of the first kind.

    Sizes add up but latencies change with the size: the mean of the steps is not the step of the mean.
    """
    found = [(share, estimate(deployment, tokens, one_shot=one_shot)) for share, tokens in steps]
    known = [(share, one) for share, one in found if one is not None]
    if not known:
        return None
    return replace(
        known[0][1],
        all_reduce_seconds=sum(share * one.all_reduce_seconds for share, one in known),
        expert_seconds=sum(share * one.expert_seconds for share, one in known),
        pipeline_seconds=sum(share * one.pipeline_seconds for share, one in known),
    )


def on_nvlink(deployment: Deployment) -> Deployment | None:
    """The same deployment with its tensor-parallel group inside one NVLink domain; None where it cannot be."""
    accelerator = deployment.accelerator
    if accelerator is None or not accelerator.link_bytes_per_second:
        return None
    if deployment.tensor_parallel > deployment.gpus_per_node:
        return None
    return replace(deployment, interconnect="nvlink")


def _link(deployment: Deployment, width: int) -> tuple[Link, float]:
    """What a group of ``width`` neighbouring GPUs talks over, and its bytes per second in one direction."""
    accelerator = deployment.accelerator
    if width > deployment.gpus_per_node:
        given = deployment.internode_bytes_per_second
        return "the network between nodes", (given or constant("internode")) * constant("link_efficiency")
    link = accelerator.link_bytes_per_second if accelerator else None
    if deployment.interconnect == "nvlink" and link:
        return "NVLink", link / 2 * constant("link_efficiency")
    architecture = accelerator.architecture if accelerator and accelerator.architecture else "default"
    return "PCIe", constant("pcie", architecture) * constant("link_efficiency")


def _latency(link: Link, size: float, one_shot: bool) -> float:
    if link == "PCIe":
        return constant("latency", "pcie")
    if link == "NVLink" and one_shot and size < constant("one_shot_bytes"):
        return constant("latency", "nvlink_one_shot")
    return constant("latency", "nccl")
