"""Write a small Llama with random weights: a Hugging Face folder, and a GGUF file where one is asked for.

    python model.py FOLDER [FILE.gguf]

needs numpy and tokenizers, for the GGUF file gguf, too. Nothing is fetched. Its weights are larger than four last-level
caches of 32 MiB, so that memory bandwidth can be what limits decode; the answers it gives are noise.
"""

from __future__ import annotations

import importlib
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HIDDEN, LAYERS, HEADS, KV_HEADS, INNER, CONTEXT = 1024, 10, 16, 8, 2816, 2048
HEAD = HIDDEN // HEADS
WORDS = ("roofline", "model", "decode", "prefill", "token", "bandwidth", "kernel", "memory", "latency", "server",
         "gate", "batch", "cache", "layer", "weights", "ridge")  # fmt: skip
SPECIAL = ["<unk>", "<s>", "</s>", "<pad>"]


def tokenizer() -> Any:
    """A byte-level BPE tokenizer, trained on a made-up text."""
    tokenizers = importlib.import_module("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    chance = random.Random(0)
    lines = [" ".join(f"{chance.choice(WORDS)}{chance.randint(0, 999)}" for _ in range(12)) for _ in range(2000)]
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=1024, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(lines, trainer)
    return made


def config(vocabulary: int) -> dict[str, Any]:
    """The model's config.json."""
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": LAYERS, "head_dim": HEAD,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "vocab_size": vocabulary,
        "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
        "attention_bias": False, "mlp_bias": False, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3,
        "torch_dtype": "bfloat16",
    }  # fmt: skip


#: Names of a layer's matrices: in the Hugging Face file, in the GGUF file, and their shape.
MATRICES = (
    ("self_attn.q_proj", "attn_q", (HEADS * HEAD, HIDDEN)),
    ("self_attn.k_proj", "attn_k", (KV_HEADS * HEAD, HIDDEN)),
    ("self_attn.v_proj", "attn_v", (KV_HEADS * HEAD, HIDDEN)),
    ("self_attn.o_proj", "attn_output", (HIDDEN, HEADS * HEAD)),
    ("mlp.gate_proj", "ffn_gate", (INNER, HIDDEN)),
    ("mlp.up_proj", "ffn_up", (INNER, HIDDEN)),
    ("mlp.down_proj", "ffn_down", (HIDDEN, INNER)),
)


def tensors(vocabulary: int) -> Iterator[tuple[str, str, Any]]:
    """Name in the Hugging Face file, name in the GGUF file, values (float32; vectors are norms)."""
    numpy = importlib.import_module("numpy")
    chance = numpy.random.default_rng(0)

    def noise(*shape: int) -> Any:
        return chance.standard_normal(shape, dtype=numpy.float32) * numpy.float32(0.02)

    ones = numpy.ones(HIDDEN, dtype=numpy.float32)
    yield "model.embed_tokens.weight", "token_embd.weight", noise(vocabulary, HIDDEN)
    yield "model.norm.weight", "output_norm.weight", ones
    yield "lm_head.weight", "output.weight", noise(vocabulary, HIDDEN)
    for layer in range(LAYERS):
        theirs, ours = f"model.layers.{layer}.", f"blk.{layer}."
        yield f"{theirs}input_layernorm.weight", f"{ours}attn_norm.weight", ones
        yield f"{theirs}post_attention_layernorm.weight", f"{ours}ffn_norm.weight", ones
        for name, short, shape in MATRICES:
            yield f"{theirs}{name}.weight", f"{ours}{short}.weight", noise(*shape)


def write_folder(folder: Path) -> None:
    """config.json, tokenizer and bf16 weights."""
    numpy = importlib.import_module("numpy")
    folder.mkdir(parents=True, exist_ok=True)
    made = tokenizer()
    made.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": CONTEXT, "unk_token": "<unk>",
        "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "chat_template":
        "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:",
    }  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))
    (folder / "config.json").write_text(json.dumps(config(made.get_vocab_size()), indent=1) + "\n")
    # A safetensors file: the length of a JSON header, the header, the values one after another.
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    values: list[bytes] = []
    end = 0
    for name, _, array in tensors(made.get_vocab_size()):
        # bf16 is the upper half of float32.
        data = (array.view(numpy.uint32) >> 16).astype("<u2").tobytes()
        header[name] = {"dtype": "BF16", "shape": list(array.shape), "data_offsets": [end, end + len(data)]}
        end += len(data)
        values.append(data)
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        file.writelines(values)


def write_gguf(folder: Path, path: Path) -> None:
    """The same values as F16 in a GGUF file (which pairs rotary values otherwise: of noise, any order is as good)."""
    numpy, gguf = importlib.import_module("numpy"), importlib.import_module("gguf")
    vocabulary = json.loads((folder / "tokenizer.json").read_text())
    words: dict[str, int] = vocabulary["model"]["vocab"]
    names = sorted(words, key=lambda word: words[word])
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_name("random-llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(HEAD)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(names))
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(names)
    kinds = gguf.TokenType
    writer.add_token_types([kinds.CONTROL if name in SPECIAL else kinds.NORMAL for name in names])
    merges = vocabulary["model"]["merges"]
    writer.add_token_merges([pair if isinstance(pair, str) else " ".join(pair) for pair in merges])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(3)
    for _, name, array in tensors(len(names)):
        writer.add_tensor(name, array.astype(numpy.float16 if array.ndim == 2 else numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    write_folder(Path(sys.argv[1]))
    if len(sys.argv) > 2:
        write_gguf(Path(sys.argv[1]), Path(sys.argv[2]))
