"""What a config says about how its checkpoint is quantised, counted truthfully or refused in words."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from pytest_llmroof.data import load
from pytest_llmroof.roofline.models.compressed import compressed_tensors
from pytest_llmroof.roofline.models.formats import Format
from pytest_llmroof.roofline.models.modelopt import listed_layers, modelopt
from pytest_llmroof.roofline.models.patterns import Patterns
from pytest_llmroof.roofline.models.stored import (
    Checkpoint,
    Rule,
    cache_precision,
    group_size,
    names_of,
    refusal,
    sequence,
    stock_format,
)

__all__ = ["Checkpoint", "checkpoint_from_config", "quantisation_block"]

#: The experts of every layer, and nothing else.
_EXPERTS: Final = Patterns(["experts"])


def quantisation_block(config: Mapping[str, object]) -> object:
    """``quantization_config``, wherever a config keeps it: at the top, or in the language model's own config."""
    nested = (config.get(key) for key in load("quantisation.yaml")["nested"])
    for place in (config, *(each for each in nested if isinstance(each, Mapping))):
        for key in ("quantization_config", "compression_config"):
            if place.get(key) is not None:
                return place[key]
    return None


def checkpoint_from_config(config: Mapping[str, object]) -> Checkpoint | None:
    """What a config says about quantisation; None without a word. UnknownModelError for what is not understood."""
    block = quantisation_block(config)
    if block is None:
        return None
    if not isinstance(block, Mapping):
        raise refusal("quantization_config is not a mapping")
    method = str(block.get("quant_method") or ("modelopt" if "quant_algo" in block else ""))
    if method not in _READERS:
        raise refusal(f"quant_method {method!r} is not one that is counted here ({', '.join(_READERS)})")
    try:
        checkpoint = replace(_READERS[method](block), method=method)
    except re.error as error:
        raise refusal(f"a pattern in its lists of modules is no regular expression: {error}") from None
    if method == "fp8" and config.get("expert_dtype") == "fp4" and len(checkpoint.rules) == 1:
        # The experts are narrower than the block says (DeepSeek-V4): E8M0 scales for each 32.
        experts = Rule(stock_format("mxfp4"), "mxfp4", "fp8", _EXPERTS)
        checkpoint = replace(checkpoint, rules=(experts, *checkpoint.rules))
    return checkpoint


def _fp8(block: Mapping[str, object]) -> Checkpoint:
    """Every linear layer in FP8, scaled as a whole (static and dynamic activations alike) or in blocks."""
    size = block.get("weight_block_size")
    stored = stock_format("fp8_tensor")
    if size is not None:
        if not (isinstance(size, list | tuple) and len(size) == 2 and all(_is_whole(side) for side in size)):
            raise refusal(f"weight_block_size {size!r} is not two numbers")
        stored = replace(stock_format("fp8_block"), block=(size[0], size[1]))
    cache = cache_precision(block.get("kv_cache_quant_algo"))
    everything = Rule(stored, "fp8", "fp8")
    if block.get("quant_algo") == "MIXED_PRECISION":
        # What its list leaves out keeps the FP8 of the checkpoint that it was made from.
        return Checkpoint((*listed_layers(block), everything), Patterns(()), cache)
    return Checkpoint((everything,), names_of(block, "modules_to_not_convert", "ignored_layers"), cache)


def _fbgemm(block: Mapping[str, object]) -> Checkpoint:
    everything = Rule(stock_format("fp8_channel"), "fp8", "fp8")
    return Checkpoint((everything,), names_of(block, "modules_to_not_convert"))


def _mxfp4(block: Mapping[str, object]) -> Checkpoint:
    """The experts alone, however the list of the rest is written."""
    experts = Rule(stock_format("mxfp4"), "mxfp4", targets=_EXPERTS)
    return Checkpoint((experts,), names_of(block, "modules_to_not_convert"))


def _awq(block: Mapping[str, object]) -> Checkpoint:
    bits = _four_or_eight(block)
    zero_bits = bits if block.get("zero_point", True) else 0
    stored = _grouped(block, bits, zero_bits)
    return Checkpoint((Rule(stored, _weight_only(bits)),), names_of(block, "modules_to_not_convert"))


def _gptq(block: Mapping[str, object]) -> Checkpoint:
    bits = _four_or_eight(block)
    # Zero points and the order of the groups are stored whether or not the scheme needs them.
    stored = replace(_grouped(block, bits, bits), index_bytes=4)
    within = block.get("modules_in_block_to_quantize")
    targets = None
    if within:
        targets = Patterns(str(name) for names in sequence(within) for name in sequence(names))
    special, ignored = _gptq_dynamic(block, stored)
    head = bool(block.get("lm_head", False))
    return Checkpoint((*special, Rule(stored, _weight_only(bits), targets=targets)), ignored, head=head)


def _gptq_dynamic(block: Mapping[str, object], stored: Format) -> tuple[list[Rule], Patterns]:
    """Modules with settings of their own: ``-:pattern`` are left alone, ``+:pattern`` (or bare) stored differently."""
    dynamic = block.get("dynamic") or {}
    if not isinstance(dynamic, Mapping):
        raise refusal("GPTQ's `dynamic` is not a mapping")
    rules, ignored = [], []
    for pattern, settings in dynamic.items():
        entry = "re:" + str(pattern).removeprefix("+:").removeprefix("-:")
        if str(pattern).startswith("-:"):
            ignored.append(entry)
            continue
        own = {**block, **(settings if isinstance(settings, Mapping) else {})}
        bits = _four_or_eight(own)
        changed = replace(stored, bits=bits, zero_bits=bits, group=group_size(own, "group_size"))
        rules.append(Rule(changed, _weight_only(bits), targets=Patterns([entry])))
    return rules, Patterns(ignored)


_READERS: Final[Mapping[str, Callable[[Mapping[str, object]], Checkpoint]]] = {
    "fp8": _fp8, "fbgemm_fp8": _fbgemm, "awq": _awq, "gptq": _gptq, "mxfp4": _mxfp4, "gpt_oss_mxfp4": _mxfp4,
    "compressed-tensors": compressed_tensors, "modelopt": modelopt, "modelopt_fp4": modelopt,
    "modelopt_mxfp8": modelopt, "modelopt_mixed": modelopt,
}  # fmt: skip


def _grouped(block: Mapping[str, object], bits: int, zero_bits: float) -> Format:
    group = group_size(block, "group_size", "q_group_size")
    return Format(bits=bits, scales="group", scale_bytes=2, group=group, zero_bits=zero_bits)


def _four_or_eight(block: Mapping[str, object]) -> int:
    bits = block.get("bits", block.get("w_bit"))
    if bits not in (4, 8):
        raise refusal(f"weights of {bits} bits")
    return 4 if bits == 4 else 8


def _weight_only(bits: int) -> str:
    return "w4a16" if bits == 4 else "int8"


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
