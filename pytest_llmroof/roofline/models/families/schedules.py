"""Which layers are of which kind, as configs say it: sliding windows, experts, linear attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pytest_llmroof.errors import UnknownModelError
from pytest_llmroof.roofline.models.blocks import Layers, Shape
from pytest_llmroof.roofline.models.reading import Config, ConfigKeyError

#: What configs call the kinds, in classes old and new.
FULL, SLIDING, CHUNKED, LINEAR = "full_attention", "sliding_attention", "chunked_attention", "linear_attention"


def window(config: Config, key: str = "sliding_window") -> int | None:
    """A sliding window; null (or 0) means none."""
    return config.whole(key) if config.get(key) else None


def everywhere(config: Config, shape: Shape) -> list[int | None]:
    """One window for all layers."""
    return [window(config)] * shape.layers


def kinds(
    config: Config, shape: Shape, default: Callable[[int], str], understood: Sequence[str] = (FULL, SLIDING)
) -> list[str]:
    """The kind of each layer: ``layer_types`` where the config has them, else what the class makes of its number."""
    given = config.names("layer_types")
    found = [default(layer) for layer in shape.all_layers] if given is None else list(given)
    strange = sorted(set(found) - set(understood))
    if strange:
        raise UnknownModelError(f"layers of type {', '.join(strange)} are not understood in this family")
    # Some files pad the list with the kinds of the layers that predict further tokens.
    predicting = config.count("num_nextn_predict_layers")
    if len(found) not in (shape.layers, shape.layers + predicting):
        raise ConfigKeyError("layer_types", f"config key 'layer_types': {len(found)} entries for {shape.layers} layers")
    return found[: shape.layers]


def every(period: int) -> Callable[[int], str]:
    """Each ``period``-th layer sees everything, the others slide."""
    return lambda layer: SLIDING if (layer + 1) % period else FULL


def sliding(config: Config, shape: Shape, default: Callable[[int], str]) -> list[int | None]:
    """Windows in the layers that slide."""
    size = window(config)
    return [size if kind == SLIDING else None for kind in kinds(config, shape, default)]


def upper_layers(config: Config, shape: Shape) -> list[int | None]:
    """Windows from ``max_window_layers`` upwards, where ``use_sliding_window`` switches them on."""
    if not config.flag("use_sliding_window"):
        return [None] * shape.layers
    first = config.count("max_window_layers")
    return sliding(config, shape, lambda layer: SLIDING if layer >= first else FULL)


def of_kind(all_kinds: Sequence[str], *wanted: str) -> Layers:
    """The layers of some kinds."""
    return tuple(layer for layer, kind in enumerate(all_kinds) if kind in wanted)


def rest(shape: Shape, layers: Layers) -> Layers:
    """All other layers."""
    return tuple(layer for layer in shape.all_layers if layer not in set(layers))


def sparse_by_step(config: Config, shape: Shape, experts: int) -> Layers:
    """Mixtures in each ``decoder_sparse_step``-th layer, but for ``mlp_only_layers``."""
    step, dense = config.whole("decoder_sparse_step"), set(config.numbers("mlp_only_layers"))
    found = (layer for layer in shape.all_layers if layer not in dense and (layer + 1) % step == 0)
    return tuple(found) if experts else ()


def sparse_after_dense(config: Config, shape: Shape) -> Layers:
    """Mixtures after the first ``first_k_dense_replace`` layers, unless the config lists the kinds."""
    given = config.names("mlp_layer_types")
    if given is not None:
        return tuple(layer for layer, kind in enumerate(given[: shape.layers]) if kind != "dense")
    return tuple(range(min(config.count("first_k_dense_replace"), shape.layers), shape.layers))


def marked(config: Config, key: str, shape: Shape) -> Layers:
    """The layers that a list of zeros and ones marks."""
    marks = config.numbers(key)
    if len(marks) < shape.layers:
        raise ConfigKeyError(key, f"config key {key!r}: {len(marks)} entries for {shape.layers} layers")
    return tuple(layer for layer in shape.all_layers if marks[layer])
