"""What a probe asks for: one phase, so many tokens, so many requests at a time."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Final, Literal

from pytest_llmroof.errors import ConfigError

#: The most of anything that one process can drive from threads without being the bottleneck itself.
_MOST: Final = {"concurrency": 1024, "batch": 1024}


@dataclass(frozen=True)
class Plan:
    """A closed loop: ``concurrency`` requests under way until all ``requests`` were sent.

    ``seed`` makes the prompts; the same one makes the same prompts, which a prefix cache may then hold: with a
    ``fresh`` one, that nobody chose, none does.
    """

    phase: Literal["prefill", "decode"]
    prompt_tokens: int
    output_tokens: int
    requests: int
    concurrency: int
    seed: int
    fresh: bool = True

    @property
    def load(self) -> dict[str, str | int]:
        """What tells this load from another, whatever the seed."""
        return {
            "phase": self.phase,
            "prompt_tokens": self.prompt_tokens,
            "output_tokens": self.output_tokens,
            "requests": self.requests,
            "concurrency": self.concurrency,
        }


def prefill_plan(prompt_tokens: int, requests: int, concurrency: int, seed: int | None = None) -> Plan:
    """Long prompts with one output token each. ConfigError for numbers that make no load."""
    _whole("llmroof_probe.prefill", prompt_tokens=prompt_tokens, requests=requests, concurrency=concurrency)
    return Plan("prefill", prompt_tokens, 1, requests, min(concurrency, requests), *_seed("prefill", seed))


def decode_plan(batch: int, prompt_tokens: int, output_tokens: int, rounds: int, seed: int | None = None) -> Plan:
    """Short prompts with long outputs, ``batch`` at a time, ``rounds`` times over."""
    where = "llmroof_probe.decode"
    _whole(where, batch=batch, prompt_tokens=prompt_tokens, output_tokens=output_tokens, rounds=rounds)
    if output_tokens < 2:
        raise ConfigError(f"{where}: output_tokens=1 decodes nothing: the first token belongs to the prefill")
    return Plan("decode", prompt_tokens, output_tokens, batch * rounds, batch, *_seed("decode", seed))


def _seed(phase: str, given: object) -> tuple[int, bool]:
    if given is None:
        return secrets.randbelow(2**32), True
    if isinstance(given, bool) or not isinstance(given, int):
        raise ConfigError(f"llmroof_probe.{phase}: seed= is a whole number, not {given!r}")
    return given, False


def _whole(where: str, **counts: object) -> None:
    for name, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ConfigError(f"{where}: {name}= is a whole number of at least 1, not {count!r}")
        if count > _MOST.get(name, 10_000_000):
            raise ConfigError(f"{where}: {name}={count} is more than one client can drive ({_MOST[name]} at the most)")
