"""What a config says about how its checkpoint is quantised, counted truthfully or refused in words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_llmroof.errors import UnknownModelError
from pytest_llmroof.roofline.models.formats import Format, Scales
from pytest_llmroof.roofline.models.patterns import Patterns
from pytest_llmroof.roofline.models.tensors import LINEAR_ROLES, Tensor

FP8_TENSOR = Format(bits=8, scales="tensor", scale_bytes=4)
NVFP4 = Format(bits=4, scales="group", scale_bytes=1, group=16, tensor_bytes=4)


@dataclass(frozen=True)
class Rule:
    """The matrices that one format is used for: those that ``targets`` mean (None: every linear layer)."""

    format: Format
    targets: Patterns | None = None


@dataclass(frozen=True)
class Checkpoint:
    """How a checkpoint is stored. ``precision`` is the deployment's word for its weights.

    ``activations`` and ``kv_cache`` are their precisions where the config states them. The first rule that means a
    module gives its format; what ``ignored`` means, embeddings, norms and routers stay unquantised, as does the head
    unless ``head`` says that linear layers include it.
    """

    precision: str
    rules: tuple[Rule, ...]
    ignored: Patterns
    activations: str | None = None
    kv_cache: str | None = None
    head: bool = False

    def matrix_bytes(self, tensor: Tensor, plain: float) -> float:
        """Bytes of all modules of a tensor, without biases; ``plain`` is the size of an unquantised element."""
        unquantised = tensor.matrix_elements * plain
        if not self._quantisable(tensor):
            return unquantised * tensor.count
        each = tensor.experts if self._by_expert and tensor.experts > 1 else 1
        total = 0.0
        for _, place in tensor.places():
            for expert in range(each):
                found = self._format(place.replace("{expert}", str(expert)))
                total += found.bytes(tensor) if found else unquantised
        return total * (tensor.experts / each)

    @property
    def _by_expert(self) -> bool:
        return self.ignored.by_expert or any(rule.targets.by_expert for rule in self.rules if rule.targets)

    def _quantisable(self, tensor: Tensor) -> bool:
        return tensor.role in LINEAR_ROLES or (self.head and tensor.role == "head")

    def _format(self, path: str) -> Format | None:
        if self.ignored.match(path):
            return None
        return next((rule.format for rule in self.rules if rule.targets is None or rule.targets.match(path)), None)


def checkpoint_from_config(config: Mapping[str, object]) -> Checkpoint | None:
    """What ``quantization_config`` says; None without one. UnknownModelError for schemes that are not understood."""
    block = config.get("quantization_config")
    if block is None:
        return None
    if not isinstance(block, Mapping):
        raise _refusal("quantization_config is not a mapping")
    method = str(block.get("quant_method") or ("modelopt" if "quant_algo" in block else ""))
    readers = {
        "fp8": _fp8,
        "fbgemm_fp8": _fbgemm,
        "awq": _awq,
        "gptq": _gptq,
        "compressed-tensors": _compressed_tensors,
        "modelopt": _modelopt,
        "modelopt_fp4": _modelopt,
    }
    if method not in readers:
        raise _refusal(f"quant_method {method!r} is not one that is counted here ({', '.join(readers)})")
    try:
        return readers[method](block)
    except re.error as error:
        raise _refusal(f"a pattern in its lists of modules is no regular expression: {error}") from None


def _fp8(block: Mapping[str, object]) -> Checkpoint:
    size = block.get("weight_block_size")
    stored = FP8_TENSOR
    if size is not None:
        if not (isinstance(size, Sequence) and len(size) == 2 and all(isinstance(side, int) for side in size)):
            raise _refusal(f"weight_block_size {size!r} is not two numbers")
        stored = Format(bits=8, scales="block", scale_bytes=4, block=(size[0], size[1]))
    return Checkpoint("fp8", (Rule(stored),), _names(block, "modules_to_not_convert", "ignored_layers"), "fp8")


def _fbgemm(block: Mapping[str, object]) -> Checkpoint:
    stored = Format(bits=8, scales="channel", scale_bytes=4)
    return Checkpoint("fp8", (Rule(stored),), _names(block, "modules_to_not_convert"), "fp8")


def _awq(block: Mapping[str, object]) -> Checkpoint:
    bits = _four_or_eight(block)
    zero_bits = bits if block.get("zero_point", True) else 0
    stored = Format(bits=bits, scales="group", scale_bytes=2, group=_group(block), zero_bits=zero_bits)
    return Checkpoint(_weight_only(bits), (Rule(stored),), _names(block, "modules_to_not_convert"))


def _gptq(block: Mapping[str, object]) -> Checkpoint:
    bits = _four_or_eight(block)
    if block.get("dynamic"):
        raise _refusal("GPTQ with `dynamic` rules stores layers differently")
    # Zero points and the order of the groups are stored whether or not the scheme needs them.
    stored = Format(bits=bits, scales="group", scale_bytes=2, group=_group(block), zero_bits=bits, index_bytes=4)
    within = block.get("modules_in_block_to_quantize")
    targets = None
    if within:
        targets = Patterns(str(name) for names in _sequence(within) for name in _sequence(names))
    head = bool(block.get("lm_head", False))
    return Checkpoint(_weight_only(bits), (Rule(stored, targets),), Patterns(()), head=head)


def _compressed_tensors(block: Mapping[str, object]) -> Checkpoint:
    sparsity = block.get("sparsity_config")
    if isinstance(sparsity, Mapping) and sparsity.get("format") not in (None, "dense"):
        raise _refusal(f"sparse weights ({sparsity.get('format')})")
    if block.get("format") == "marlin-24":
        raise _refusal("2:4 sparse weights (marlin-24)")
    groups = block.get("config_groups")
    if not isinstance(groups, Mapping) or not groups:
        raise _refusal("compressed-tensors without config_groups")
    rules, precisions, activations = [], [], []
    for name, group in groups.items():
        if not isinstance(group, Mapping) or not isinstance(group.get("weights"), Mapping):
            raise _refusal(f"config group {name!r} without weights")
        stored, precision, inputs = _compressed_group(group)
        targets = [str(target) for target in _sequence(group.get("targets") or ["Linear"])]
        rules.append(Rule(stored, None if "Linear" in targets else Patterns(targets)))
        precisions.append(precision)
        activations.append(inputs)
    # Named targets come before "every linear layer", whatever their order in the file.
    rules.sort(key=lambda rule: rule.targets is None)
    if len(set(precisions)) > 1 or len(set(activations)) > 1:
        raise _refusal(f"layers of several precisions ({', '.join(sorted(set(precisions)))}) in one checkpoint")
    cache = _cache(block.get("kv_cache_scheme"))
    return Checkpoint(precisions[0], tuple(rules), _names(block, "ignore"), activations[0], cache, head=True)


def _compressed_group(group: Mapping[str, object]) -> tuple[Format, str, str | None]:
    weights, inputs = group["weights"], group.get("input_activations")
    if not isinstance(weights, Mapping):
        raise _refusal("a config group without weights")
    bits, kind = weights.get("num_bits"), weights.get("type", "int")
    if not isinstance(bits, int) or (bits, kind) not in ((8, "float"), (4, "float"), (8, "int"), (4, "int")):
        raise _refusal(f"weights of {bits} bits of type {kind}")
    activations = _activation(inputs)
    if (bits, kind) == (4, "float"):
        if weights.get("group_size") != 16:
            raise _refusal("4-bit floats in groups other than NVFP4's 16")
        return NVFP4, "nvfp4", activations
    stored = _strategy(weights, bits)
    if kind == "float":
        return stored, "fp8", activations
    return stored, "int8" if bits == 8 else "w4a16", activations


def _strategy(weights: Mapping[str, object], bits: int) -> Format:
    strategy = weights.get("strategy") or ("group" if weights.get("group_size") else "tensor")
    zero_bits = 0.0 if weights.get("symmetric", True) else float(bits)
    kinds: dict[object, Scales] = {"tensor": "tensor", "channel": "channel", "group": "group", "block": "block"}
    if strategy not in kinds:
        raise _refusal(f"quantisation strategy {strategy!r}")
    plain = Format(bits=bits, scales=kinds[strategy], scale_bytes=2, zero_bits=zero_bits)
    if strategy == "group":
        return replace(plain, group=_group(weights))
    if strategy == "block":
        size = weights.get("block_structure")
        # Older files write the block as "128x128".
        sides = [int(side) for side in re.findall(r"\d+", str(size))]
        if len(sides) != 2:
            raise _refusal(f"block_structure {size!r} is not two numbers")
        return replace(plain, block=(sides[0], sides[1]))
    return plain


def _modelopt(block: Mapping[str, object]) -> Checkpoint:
    algorithm = str(block.get("quant_algo"))
    known = {"FP8": (FP8_TENSOR, "fp8", "fp8"), "NVFP4": (NVFP4, "nvfp4", "fp4")}
    if algorithm not in known:
        raise _refusal(f"ModelOpt's quant_algo {algorithm}")
    stored, precision, activations = known[algorithm]
    if algorithm == "NVFP4" and block.get("group_size", 16) != 16:
        raise _refusal(f"NVFP4 in groups of {block['group_size']}")
    cache = _cache(block.get("kv_cache_quant_algo") or block.get("kv_cache_scheme"))
    return Checkpoint(precision, (Rule(stored),), _names(block, "exclude_modules", "ignore"), activations, cache)


def _activation(inputs: object) -> str | None:
    if not isinstance(inputs, Mapping):
        return None
    found = {(8, "float"): "fp8", (4, "float"): "fp4", (8, "int"): "int8"}.get(
        (inputs.get("num_bits"), inputs.get("type", "int"))  # type: ignore[arg-type]  # any value may stand in a config
    )
    if found is None:
        raise _refusal(f"activations of {inputs.get('num_bits')} bits of type {inputs.get('type')}")
    return found


def _cache(scheme: object) -> str | None:
    if scheme is None:
        return None
    if isinstance(scheme, Mapping):
        scheme = {(8, "float"): "FP8", (8, "int"): "INT8", (4, "float"): "NVFP4"}.get(
            (scheme.get("num_bits"), scheme.get("type", "float")), scheme  # type: ignore[arg-type]
        )
    known = {"FP8": "fp8", "INT8": "int8", "NVFP4": "nvfp4"}
    if scheme not in known:
        raise _refusal(f"KV cache scheme {scheme!r}")
    return known[str(scheme)]


def _four_or_eight(block: Mapping[str, object]) -> int:
    bits = block.get("bits", block.get("w_bit"))
    if bits not in (4, 8):
        raise _refusal(f"weights of {bits} bits")
    return 4 if bits == 4 else 8


def _group(block: Mapping[str, object]) -> int:
    size = block.get("group_size", block.get("q_group_size", 128))
    if not isinstance(size, int):
        raise _refusal(f"group_size {size!r} is not a number")
    return max(0, size)


def _weight_only(bits: int) -> str:
    return "w4a16" if bits == 4 else "int8"


def _names(block: Mapping[str, object], *keys: str) -> Patterns:
    return Patterns(str(name) for key in keys for name in _sequence(block.get(key) or ()))


def _sequence(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else (value,)


def _refusal(what: str) -> UnknownModelError:
    return UnknownModelError(
        f"the checkpoint's quantisation is not understood: {what}; give its size by hand: "
        "model: {parameters: ..., active_parameters: ..., weight_bytes: ..., kv_bytes_per_token: ...}"
    )
