"""Headers of GGUF files, as small as they come; the weights themselves are left out."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

TYPES = {"F32": 0, "F16": 1, "Q8_0": 8, "Q4_K": 12, "Q6_K": 14, "IQ2_XXS": 16, "BF16": 30, "MXFP4": 39}

#: Name, shape (inputs first) and type.
Tensors = Sequence[tuple[str, tuple[int, ...], str | int]]


def text(value: str, order: str = "<") -> bytes:
    data = value.encode()
    return struct.pack(order + "Q", len(data)) + data


def value(content: Any, order: str = "<") -> bytes:
    """A value with its type before it: texts, whole numbers (u32), truth values, floats, lists of them."""
    if isinstance(content, str):
        return struct.pack(order + "I", 8) + text(content, order)
    if isinstance(content, bool):
        return struct.pack(order + "I?", 7, content)
    if isinstance(content, float):
        return struct.pack(order + "If", 6, content)
    if isinstance(content, list):
        each = [value(item, order) for item in content] or [value(0, order)]
        body = b"".join(item[4:] for item in each[: len(content)])
        return struct.pack(order + "I", 9) + each[0][:4] + struct.pack(order + "Q", len(content)) + body
    return struct.pack(order + "II", 4, content)


def gguf(metadata: Mapping[str, Any], tensors: Tensors, *, order: str = "<", version: int = 3) -> bytes:
    """A header with this metadata and these tensors."""
    parts = [b"GGUF", struct.pack(order + "IQQ", version, len(tensors), len(metadata))]
    parts += [text(key, order) + value(content, order) for key, content in metadata.items()]
    for name, shape, kind in tensors:
        number = TYPES[kind] if isinstance(kind, str) else kind
        form = f"{order}I{len(shape)}QIQ"
        parts.append(text(name, order) + struct.pack(form, len(shape), *shape, number, 0))
    return b"".join(parts)


def keys(architecture: str, **more: Any) -> dict[str, Any]:
    """Metadata of a small model: 2 layers, hidden size 256, 4 heads on 2."""
    usual = {
        "block_count": 2, "embedding_length": 256, "attention.head_count": 4, "attention.head_count_kv": 2,
        "context_length": 4096,
    }  # fmt: skip
    given = {key.replace("__", "."): content for key, content in more.items()}
    own = {f"{architecture}.{key}": content for key, content in {**usual, **given}.items() if content is not None}
    return {"general.architecture": architecture, "general.name": "Tiny", **own}


def attention(layer: int, kind: str = "Q4_K") -> list[tuple[str, tuple[int, ...], str]]:
    return [
        (f"blk.{layer}.attn_norm.weight", (256,), "F32"),
        (f"blk.{layer}.attn_q.weight", (256, 256), kind),
        (f"blk.{layer}.attn_k.weight", (256, 128), kind),
        (f"blk.{layer}.attn_v.weight", (256, 128), "Q6_K"),
        (f"blk.{layer}.attn_output.weight", (256, 256), kind),
        (f"blk.{layer}.ffn_norm.weight", (256,), "F32"),
    ]


def feed_forward(layer: int, kind: str = "Q4_K") -> list[tuple[str, tuple[int, ...], str]]:
    return [
        (f"blk.{layer}.ffn_gate.weight", (256, 512), kind),
        (f"blk.{layer}.ffn_up.weight", (256, 512), kind),
        (f"blk.{layer}.ffn_down.weight", (512, 256), kind),
    ]


EMBEDDING = ("token_embd.weight", (256, 1000), "Q4_K")
HEAD = ("output.weight", (256, 1000), "F16")
FINAL_NORM = ("output_norm.weight", (256,), "F32")


def dense() -> bytes:
    """Two layers in Q4_K and Q6_K, embedding Q4_K, head F16."""
    layers = [tensor for layer in (0, 1) for tensor in (*attention(layer), *feed_forward(layer))]
    return gguf(keys("llama"), [EMBEDDING, *layers, FINAL_NORM, HEAD])


def split_between(stem: str, count: int) -> dict[str, bytes]:
    """The files of a split model, by name: metadata in the first, each with a part of the tensors."""
    tensors = [EMBEDDING, *(each for layer in (0, 1) for each in (*attention(layer), *feed_forward(layer))), HEAD]
    files = {}
    for number in range(count):
        about = {"split.no": number, "split.count": count, "split.tensors.count": len(tensors)}
        first = keys("llama") if number == 0 else {}
        files[f"{stem}-{number + 1:05}-of-{count:05}.gguf"] = gguf({**first, **about}, tensors[number::count])
    return files
