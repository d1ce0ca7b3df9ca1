"""The families of models that are understood, each a few lines over the building blocks.

A family's class defaults (for keys that a config leaves out) and other names of its keys are data, in
``data/architectures.yaml``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from pytest_llmroof.errors import ConfigError
from pytest_llmroof.roofline.models.blocks import Block, Shape
from pytest_llmroof.roofline.models.families import dense, hybrid, latent, mixtures
from pytest_llmroof.roofline.models.reading import Config


@dataclass(frozen=True)
class Family:
    """How a config becomes a model: its sizes, and from them its tensors and mixers."""

    build: Callable[[Config, Shape], Block]
    shape: Callable[[Config], Shape] = Shape.of


#: What a user may vouch for where the model_type is not understood.
PLAIN_DECODER: Final = Family(dense.plain_decoder)

FAMILIES: Final[Mapping[str, Family]] = MappingProxyType({
    "llama": Family(dense.llama),
    "granite": Family(dense.llama),
    "mistral": Family(dense.mistral),
    "ministral3": Family(dense.mistral),
    "phi3": Family(dense.phi3),
    "qwen2": Family(dense.qwen2),
    "mimo": Family(dense.qwen2),
    "qwen3": Family(dense.qwen3),
    "qwen3_vl_text": Family(dense.qwen3),
    "gemma": Family(dense.gemma),
    "gemma2": Family(dense.gemma2),
    "gemma3_text": Family(dense.gemma3),
    "cohere": Family(dense.cohere),
    "cohere2": Family(dense.cohere2),
    "olmo2": Family(dense.olmo2),
    "olmo3": Family(dense.olmo3),
    "glm4": Family(dense.glm4),
    "starcoder2": Family(dense.starcoder2),
    "gpt2": Family(dense.gpt2),
    "gptj": Family(dense.gptj),
    "gpt_neox": Family(dense.gpt_neox),
    "opt": Family(dense.opt),
    "falcon": Family(dense.falcon),
    "phi": Family(dense.phi),
    "phi-msft": Family(dense.phi),
    "nemotron-nas": Family(dense.nemotron_nas),
    "mixtral": Family(mixtures.mixtral),
    "qwen2_moe": Family(mixtures.qwen2_moe),
    "qwen3_moe": Family(mixtures.qwen3_moe),
    "qwen3_vl_moe_text": Family(mixtures.qwen3_moe),
    "olmoe": Family(mixtures.olmoe),
    "glm4_moe": Family(mixtures.glm4_moe),
    "gpt_oss": Family(mixtures.gpt_oss),
    "llama4_text": Family(mixtures.llama4),
    "minimax_m2": Family(mixtures.minimax_m2),
    "minimax_m3": Family(mixtures.minimax_m3),
    "mimo_v2_flash": Family(mixtures.mimo_v2),
    "step3p5": Family(mixtures.step3),
    "gemma4_text": Family(mixtures.gemma4),
    "deepseek_v2": Family(latent.deepseek_v2),
    "deepseek_v3": Family(latent.deepseek_v3),
    "kimi_k2": Family(latent.deepseek_v3),
    "deepseek_v32": Family(latent.deepseek_sparse),
    "glm_moe_dsa": Family(latent.glm_sparse),
    "deepseek_v4": Family(latent.deepseek_v4),
    "deepseek_ref": Family(latent.deepseek_v4),
    "kimi_linear": Family(latent.kimi_linear),
    "qwen3_next": Family(hybrid.qwen3_next),
    "qwen3_5_text": Family(hybrid.qwen3_5),
    "qwen3_5_moe_text": Family(hybrid.qwen3_5_moe),
    "jamba": Family(hybrid.jamba),
    "nemotron_h": Family(hybrid.nemotron_h, hybrid.nemotron_h_shape),
})  # fmt: skip


def layers_of(family: Family, config: Config) -> tuple[Shape, Block]:
    """A whole model of a family. ConfigError where its keys contradict each other."""
    shape = family.shape(config)
    whole = family.build(config, shape)
    if whole.experts_per_token > whole.experts:
        raise ConfigError(f"{whole.experts_per_token} experts per token of {whole.experts} experts")
    return shape, whole
