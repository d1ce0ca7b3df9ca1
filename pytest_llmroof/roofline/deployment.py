"""A deployment: a model on accelerators, with its parallelism and precisions, and where each fact comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from pytest_llmroof.data import load
from pytest_llmroof.roofline.accelerator import Accelerator
from pytest_llmroof.roofline.model import Model

Provenance = Literal["given", "config", "telemetry", "assumed"]
FlopsConvention = Literal["model", "exact"]

#: Bytes of one element at each precision name a user may write.
ELEMENT_BYTES: Final[Mapping[str, float]] = {
    "fp32": 4.0, "tf32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5, "int4": 0.5,
    "mxfp4": 0.53125, "nvfp4": 0.5625, "w4a16": 0.51953125,
}  # fmt: skip


def element_bytes(weights: str) -> float:
    """Bytes of an element of weights: of a precision that users write, or of a type of GGUF files (``q4_k``)."""
    if weights in ELEMENT_BYTES:
        return ELEMENT_BYTES[weights]
    types: Mapping[int, tuple[str, int, int]] = load("gguf.yaml")["types"]
    return next(size / block for name, block, size in types.values() if name.lower() == weights)


@dataclass(frozen=True)
class Deployment:
    """What was served, and on what.

    ``model`` and ``accelerator`` are None where they were not named; ``missing`` then says why (keys ``model`` and
    ``gpu``), and only the gates that need them have no data. ``weights``, ``kv_cache`` and ``compute`` are precision
    names (the weights of a GGUF file: the type that most of them have); ``compute`` chooses the peak.
    ``data_parallel`` is None until telemetry shows the replicas.
    ``provenance`` says of every fact whether it was given, read from the config, seen in telemetry, or assumed.
    """

    model: Model | None = None
    accelerator: Accelerator | None = None
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data_parallel: int | None = None
    expert_parallel: bool = False
    gpus_per_node: int = 8
    internode_bytes_per_second: float | None = None
    weights: str = "bf16"
    kv_cache: str = "bf16"
    compute: str = "bf16"
    interconnect: Literal["nvlink", "pcie"] = "nvlink"
    speculative_tokens: int = 0
    draft: Model | None = None
    flops: FlopsConvention = "model"
    provenance: Mapping[str, Provenance] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)

    @property
    def gpus_per_replica(self) -> int:
        """N: the GPUs that hold one replica (tensor times pipeline parallel)."""
        return self.tensor_parallel * self.pipeline_parallel

    @property
    def replicas(self) -> int:
        """The data-parallel degree, 1 where nothing told it."""
        return self.data_parallel or 1

    @property
    def gpus(self) -> int:
        """G: all GPUs of the deployment."""
        return self.gpus_per_replica * self.replicas

    @property
    def peak_flops_per_second(self) -> float | None:
        """Dense peak of one GPU at the compute precision."""
        return self.accelerator.peak(self.compute) if self.accelerator else None

    @property
    def bandwidth_bytes_per_second(self) -> float | None:
        """Memory bandwidth of one GPU, as the datasheet says it."""
        return self.accelerator.memory_bandwidth_bytes_per_second if self.accelerator else None
