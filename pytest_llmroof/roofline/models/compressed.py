"""compressed-tensors: groups of modules, each with a scheme for weights and one for activations."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from pytest_llmroof.roofline.models.formats import Format, Scales
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

_KINDS: Final = ((8, "float"), (4, "float"), (8, "int"), (4, "int"))
_FLOAT_GROUPS: Final[Mapping[tuple[int, object], tuple[str, str]]] = {
    (4, 16): ("nvfp4", "nvfp4"), (4, 32): ("mxfp4", "mxfp4"), (8, 32): ("mxfp8", "fp8"),
}  # fmt: skip
_STRATEGIES: Final[Mapping[object, Scales]] = {
    "tensor": "tensor", "channel": "channel", "group": "group", "block": "block",
}  # fmt: skip
_SPARSE: Final = ("marlin-24", "sparse-24-bitmask", "sparse-bitmask")


def compressed_tensors(block: Mapping[str, object]) -> Checkpoint:
    """A checkpoint from ``quantization_config``."""
    sparsity = block.get("sparsity_config")
    if isinstance(sparsity, Mapping) and sparsity.get("format") not in (None, "dense"):
        raise refusal(f"sparse weights ({sparsity.get('format')})")
    if block.get("format") in _SPARSE:
        raise refusal(f"2:4 sparse weights ({block['format']})")
    groups = block.get("config_groups")
    if not isinstance(groups, Mapping) or not groups:
        raise refusal("compressed-tensors without config_groups")
    rules = [_rule(str(name), group) for name, group in groups.items()]
    # Named targets come before "every linear layer", whatever their order in the file.
    rules.sort(key=lambda rule: rule.targets is None)
    cache = cache_precision(block.get("kv_cache_scheme"))
    return Checkpoint(tuple(rules), names_of(block, "ignore"), cache, head=True)


def _rule(name: str, group: object) -> Rule:
    weights = group.get("weights") if isinstance(group, Mapping) else None
    if not isinstance(group, Mapping) or not isinstance(weights, Mapping):
        raise refusal(f"config group {name!r} without weights")
    bits, kind = weights.get("num_bits"), weights.get("type", "int")
    if not isinstance(bits, int) or (bits, kind) not in _KINDS:
        raise refusal(f"weights of {bits} bits of type {kind}")
    stored, precision = _floats(weights, bits) if kind == "float" else _integers(weights, bits)
    targets = [str(target) for target in sequence(group.get("targets") or ["Linear"])]
    inputs = _activations(group.get("input_activations"))
    return Rule(stored, precision, inputs, None if "Linear" in targets else Patterns(targets))


def _floats(weights: Mapping[str, object], bits: int) -> tuple[Format, str]:
    size = weights.get("group_size")
    if (bits, size) in _FLOAT_GROUPS:
        name, precision = _FLOAT_GROUPS[bits, size]
        return stock_format(name), precision
    if bits == 4:
        raise refusal(f"4-bit floats in groups of {size}, neither NVFP4's 16 nor MXFP4's 32")
    return _strategy(weights, bits), "fp8"


def _integers(weights: Mapping[str, object], bits: int) -> tuple[Format, str]:
    return _strategy(weights, bits), "int8" if bits == 8 else "w4a16"


def _strategy(weights: Mapping[str, object], bits: int) -> Format:
    strategy = weights.get("strategy") or ("group" if weights.get("group_size") else "tensor")
    zero_bits = 0.0 if weights.get("symmetric", True) else float(bits)
    if strategy not in _STRATEGIES:
        raise refusal(f"quantisation strategy {strategy!r}")
    plain = Format(bits=bits, scales=_STRATEGIES[strategy], scale_bytes=2, zero_bits=zero_bits)
    if strategy == "group":
        return replace(plain, group=group_size(weights, "group_size"))
    if strategy == "block":
        size = weights.get("block_structure")
        # Older files write the block as "128x128".
        sides = [int(side) for side in re.findall(r"\d+", str(size))]
        if len(sides) != 2 or not all(sides):
            raise refusal(f"block_structure {size!r} is not two numbers")
        return replace(plain, block=(sides[0], sides[1]))
    return plain


def _activations(inputs: object) -> str | None:
    if not isinstance(inputs, Mapping):
        return None
    bits, kind = inputs.get("num_bits"), inputs.get("type", "int")
    found: Mapping[tuple[object, object], str] = {(8, "float"): "fp8", (4, "float"): "fp4", (8, "int"): "int8"}
    if (bits, kind) not in found:
        raise refusal(f"activations of {bits} bits of type {kind}")
    return found[bits, kind]
