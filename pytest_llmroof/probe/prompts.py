"""Prompts of an exact length, every one different from its first token on, so that no prefix cache holds them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from pytest_llmroof.probe.asking import Caller, Failed

#: Token ids that every vocabulary of a size has as plain text; special ones stand at either end.
RANGES: Final = ((1_000, 20_000), (300, 900), (10, 250))
_TRIES: Final = 6

#: Words that most vocabularies have as one token with the blank before them.
_WORDS: Final = (
    "time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school", "state",
    "family", "student", "group", "country", "problem", "hand", "part", "place", "case", "week", "company", "system",
    "program", "question", "work", "government", "number", "night", "point", "home", "water", "room", "mother",
    "area", "money", "story", "fact", "month", "lot", "right", "study", "book", "eye", "job", "word",
)  # fmt: skip

#: Counts the tokens of a text; None where nobody can.
Counter = Callable[[str], int | None]


def of_ids(seed: int, index: int, tokens: int, ids: tuple[int, int]) -> list[int]:
    """A prompt of exactly so many tokens."""
    random = Random(f"{seed}:{index}")  # noqa: S311 - no secret
    first, last = ids
    return [random.randrange(first, last) for _ in range(tokens)]


def of_words(seed: int, index: int, words: int) -> str:
    """A text of so many words."""
    random = Random(f"{seed}:{index}")  # noqa: S311 - no secret
    return " ".join(random.choice(_WORDS) for _ in range(words))


def fitted(seed: int, index: int, tokens: int, words: int, count: Counter) -> tuple[str, int, int | None]:
    """A text that comes nearest to so many tokens, beginning at ``words`` words: the text, its words, its tokens."""
    best: tuple[str, int, int | None] = (of_words(seed, index, words), words, None)
    seen: set[int] = set()
    for _ in range(_TRIES):
        if words in seen:
            break
        seen.add(words)
        text = of_words(seed, index, words)
        found = count(text)
        if found is None:
            return (text, words, None)
        if best[2] is None or abs(found - tokens) < abs(best[2] - tokens):
            best = (text, words, found)
        if found == tokens:
            break
        words = max(1, words + round((tokens - found) / max(1.0, found / words)))
    return best


def tokenizer(caller: Caller, model: str) -> Counter | None:
    """The server's own count of a text's tokens (vLLM, SGLang and llama.cpp have one); None where it has none."""

    def count(text: str) -> int | None:
        body = {
            "model": model, "prompt": text, "content": text, "add_special": True, "add_special_tokens": True,
        }  # fmt: skip
        try:
            found = caller.json("/tokenize", body)
        except Failed:
            return None
        if not isinstance(found, dict):
            return None
        if isinstance(found.get("count"), int):
            return int(found["count"])
        return len(found["tokens"]) if isinstance(found.get("tokens"), list) else None

    return count if count("hello") else None
