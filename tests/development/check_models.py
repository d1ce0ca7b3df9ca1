"""Asks the real model classes how many parameters they have, and keeps the answers for the tests.

    python tests/development/check_models.py

needs torch and transformers (5.24 is what the defaults are from), and no weights: classes are built on the meta device.
It compares every count with ours and writes tests/data/models-golden.json, which the tests read; it is none of them
itself. A difference is printed and fails the command. The file is written all the same: it holds what the classes say.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from pytest_llmroof.data import load
from pytest_llmroof.roofline.models import model_from_config

HERE = Path(__file__).parent
VARIANTS = HERE.parent / "data" / "model-variants.yaml"
GOLDEN = HERE.parent / "data" / "models-golden.json"

#: Tokens of the prompt whose FLOPs the framework counts, and models small or plain enough for its counter.
TOKENS = 128
COUNTED = frozenset({
    "llama", "granite", "mistral", "phi3", "qwen2", "qwen3", "gemma", "gemma2", "cohere", "olmo2", "starcoder2",
    "gpt2", "gptj", "gpt_neox", "opt", "falcon", "phi", "glm4",
})  # fmt: skip
#: Families that the library knows under another name, or only from files that bring their own code.
CLASSES = {"kimi_k2": "deepseek_v3", "mimo": "qwen2", "minimax_m3": "minimax_m3_vl_text"}
#: Text models that the library has no head for but under a whole model that sees, too.
HEADLESS = frozenset({"qwen3_vl_text", "qwen3_vl_moe_text"})
#: Keys that a class needs, or without which it is one that is not counted here.
FROM_NEARLY_NOTHING: dict[str, dict[str, Any]] = {
    "deepseek_v2": {"num_experts_per_tok": 6},
    "gemma4_text": {"hidden_size_per_layer_input": 0},
    "nemotron_h": {"hybrid_override_pattern": "ME*-"},
}
#: Families whose files always list their layers: the class's own list is not read here.
KEYS_NEEDED = frozenset({"deepseek_v4"})
NO_CLASS = frozenset({"phi-msft", "nemotron-nas", "deepseek_ref", "step3p5"})


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """A name and a config: the catalogue's, each class from nothing, and the variants."""
    for name, entry in load("models.yaml").items():
        config = {key: value for key, value in entry["config"].items() if key != "quantization_config"}
        yield name, config
    for kind in load("architectures.yaml")["defaults"]:
        if kind not in CLASSES and kind not in KEYS_NEEDED:
            yield f"{kind} from nothing", {"model_type": kind, **FROM_NEARLY_NOTHING.get(kind, {})}
    for number, variant in enumerate(yaml.safe_load(VARIANTS.read_text())):
        yield f"variant {number}: {variant['type']}", {"model_type": variant["type"], **variant["changes"]}


def main() -> int:
    """Ask, compare, write."""
    transformers = importlib.import_module("transformers")
    torch = importlib.import_module("torch")
    rows, wrong = [], 0
    for name, config in cases():
        if config["model_type"] in NO_CLASS:
            continue
        row = {"name": name, "config": config, **_answer(config, transformers, torch)}
        rows.append(row)
        for problem in compare(row):
            wrong += 1
            print(f"{name}: {problem}")
    document = {"transformers": transformers.__version__, "torch": torch.__version__, "tokens": TOKENS, "models": rows}
    GOLDEN.write_text(_lines(document))
    print(f"{len(rows)} models, {sum('flops' in row for row in rows)} of them with FLOPs, {wrong} differences")
    return 1 if wrong else 0


def compare(row: Mapping[str, Any]) -> Iterator[str]:
    """Where our counts differ from a class's."""
    model = model_from_config(row["config"], row["name"])
    if model.parameters != row["parameters"]:
        yield f"{model.parameters} parameters, not {row['parameters']}"
    experts = sum(tensor.elements * tensor.count for tensor in model.tensors if tensor.role == "expert")
    if experts != row["experts"]:
        yield f"{experts} parameters in experts, not {row['experts']}"
    matrices = sum(tensor.matrix_elements * tensor.count for tensor in model.tensors if tensor.is_matrix)
    if matrices != row["matrices"]:
        yield f"{matrices} parameters in matrices, not {row['matrices']}"
    if "flops" in row and counted_flops(model) != row["flops"]:
        yield f"{counted_flops(model)} FLOPs, not {row['flops']}"


def counted_flops(model: Any) -> int:
    """FLOPs of TOKENS tokens as the framework counts them: the full square of scores, logits of all positions."""
    scores = sum(mixer.token_elements * mixer.heads // mixer.kv_heads for mixer in model.mixers)
    return int(2 * model.matmul_parameters * TOKENS + 2 * scores * TOKENS**2)


def _answer(config: Mapping[str, Any], transformers: Any, torch: Any) -> dict[str, int]:
    kind = CLASSES.get(config["model_type"], config["model_type"])
    keys = {key: value for key, value in config.items() if key not in ("model_type", "torch_dtype")}
    settings = transformers.CONFIG_MAPPING[kind](**keys)
    with torch.device("meta"):
        if kind in HEADLESS:
            model = _with_head(transformers, torch, settings)
        else:
            model = transformers.AutoModelForCausalLM.from_config(settings, attn_implementation="eager")
    answer = {"parameters": 0, "experts": 0, "matrices": 0}
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if name.endswith("e_score_correction_bias"):
            answer["parameters"] += tensor.numel()
    for name, parameter in model.named_parameters():
        answer["parameters"] += parameter.numel()
        answer["experts"] += parameter.numel() if ".experts." in name else 0
        answer["matrices"] += parameter.numel() if _is_matrix(name, parameter) else 0
    if config["model_type"] in COUNTED:
        answer["flops"] = _flops(model, torch)
    return answer


def _with_head(transformers: Any, torch: Any, settings: Any) -> Any:
    body = transformers.AutoModel.from_config(settings)
    if getattr(settings, "tie_word_embeddings", False):
        return body
    return torch.nn.ModuleList([body, torch.nn.Linear(settings.hidden_size, settings.vocab_size, bias=False)])


def _is_matrix(name: str, parameter: Any) -> bool:
    """Matrices of products: experts are stacked in three dimensions (their biases in two), convolutions are none."""
    if "conv1d" in name or name.endswith(("A_log", "position_bias", "_bias", ".bias")):
        return False
    return parameter.dim() >= 2 and not any(word in name for word in ("wpe", "embed_positions", "q_norm", "k_norm"))


def _flops(model: Any, torch: Any) -> int:
    counter = importlib.import_module("torch.utils.flop_counter").FlopCounterMode(display=False)
    with torch.device("meta"):
        tokens = torch.zeros((1, TOKENS), dtype=torch.long)
        # A mask that is there keeps the class from looking into tokens that hold nothing.
        mask = torch.zeros((1, 1, TOKENS, TOKENS))
        with counter, torch.no_grad():
            model(input_ids=tokens, attention_mask=mask, position_ids=tokens, use_cache=False)
    return int(counter.get_total_flops())


def _lines(document: Mapping[str, Any]) -> str:
    """JSON with a model a line, so that a difference shows as one."""
    rows = ",\n".join(json.dumps(row) for row in document["models"])
    head = json.dumps({key: value for key, value in document.items() if key != "models"})[:-1]
    return f'{head}, "models": [\n{rows}\n]}}\n'


if __name__ == "__main__":
    sys.exit(main())
