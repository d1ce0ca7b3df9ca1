"""ModelOpt's quantisation: one algorithm for all linear layers, or one for each module that is listed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pytest_llmroof.data import load
from pytest_llmroof.roofline.models.patterns import Patterns
from pytest_llmroof.roofline.models.stored import (
    Checkpoint,
    Rule,
    cache_precision,
    group_size,
    names_of,
    refusal,
    stock_format,
)

_NONE = (None, "", "NONE", "NO_QUANT")


def modelopt(block: Mapping[str, object]) -> Checkpoint:
    """A checkpoint from ``quantization_config`` or from the ``quantization`` of hf_quant_config.json."""
    algorithm = block.get("quant_algo")
    cache = cache_precision(block.get("kv_cache_quant_algo") or block.get("kv_cache_scheme"))
    ignored = names_of(block, "exclude_modules", "ignore")
    if algorithm == "MIXED_PRECISION":
        # What is not listed is not quantised; the head is where it is listed.
        return Checkpoint(listed_layers(block), ignored, cache, head=True)
    rules = () if algorithm in _NONE else (_rule(str(algorithm), block),)
    return Checkpoint(rules, ignored, cache)


def listed_layers(block: Mapping[str, object]) -> tuple[Rule, ...]:
    """One rule for each algorithm of ``quantized_layers``, which gives every module its own."""
    layers = block.get("quantized_layers")
    if not isinstance(layers, Mapping) or not layers:
        raise refusal("ModelOpt's quant_algo MIXED_PRECISION without quantized_layers")
    modules: dict[tuple[object, object], list[str]] = {}
    for path, entry in layers.items():
        if not isinstance(entry, Mapping):
            raise refusal(f"the entry of {path!r} in quantized_layers is not a mapping")
        if entry.get("quant_algo") not in _NONE:
            modules.setdefault((str(entry["quant_algo"]), str(entry.get("group_size"))), []).append(str(path))
    rules = (_rule(str(layers[paths[0]]["quant_algo"]), layers[paths[0]]) for paths in modules.values())
    return tuple(
        replace(rule, targets=Patterns(paths)) for rule, paths in zip(rules, modules.values(), strict=True)
    )


def _rule(algorithm: str, block: Mapping[str, object]) -> Rule:
    entry: Mapping[str, str] = load("quantisation.yaml")["modelopt"].get(algorithm, {})
    if "refused" in entry:
        raise refusal(entry["refused"])
    if not entry:
        raise refusal(f"ModelOpt's quant_algo {algorithm}")
    stored = stock_format(entry["format"])
    if stored.scales == "group":
        size = group_size(block, "group_size", otherwise=stored.group)
        if stored.bits == 4 and stored.scale_bytes == 1 and size != stored.group:
            raise refusal(f"{algorithm} in groups of {size}")
        stored = replace(stored, group=size)
    return Rule(stored, entry["weights"], entry.get("activations"))
