"""The result file of a probe, ``llmroof.probe/1``: every request with the time of every piece that came.

A format of its own, as none of the load generators' holds what a probe knows: how many tokens each piece held, when
each request was sent on one clock, how long the client held it back, and how many sequences it kept decoding at once.
From these the decode step follows, without any server's telemetry. telemetry/bench_requests.py reads it; the live
window reads the same file as a replay does.

    {"schema": "llmroof.probe/1", "probe": {"phase": "decode", "prompt_tokens": 128, "output_tokens": 256,
     "requests": 4, "concurrency": 4}, "seed": 20250101, "endpoint": "http://127.0.0.1:8000/v1", "model": "my-llama",
     "api": "completions", "prompts": "token ids", "started": 1764417600.25, "duration_seconds": 2.61,
     "completed": 3, "failed": 1, "input_tokens": 384, "output_tokens": 768, "client_cpu_share": 0.12,
     "notes": ["..."], "failures": {"the stream was cut off before its end": 1},
     "results": [{"sent": 0.0, "wait": 0.0001, "input_tokens": 128, "output_tokens": 256,
                  "times": [0.051, 0.061], "tokens": [1, 1]}, {"sent": 0.0, "wait": 0.0, "failure": "..."}]}

``sent`` is seconds after ``started``, ``times`` are seconds after ``sent``; ``tokens`` is missing where the server does
not tell what a piece holds. ``most_output_tokens`` stands beside an ``output_tokens`` that is only the fewest which the
pieces can hold, where neither usage nor an end by length tells the number. ``computed_tokens`` (prompt tokens that no
cache held) is there where that is known.
Neither prompts nor outputs nor headers are in it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from pytest_llmroof.errors import SourceError
from pytest_llmroof.probe.completion import Answer
from pytest_llmroof.probe.load import Load
from pytest_llmroof.probe.plan import Plan
from pytest_llmroof.probe.target import Target
from pytest_llmroof.units import format_quantity

SCHEMA: Final = "llmroof.probe/1"
NAME: Final = "probe.json"

#: How far the server's count of a prompt may be from what was asked for without being worth a note.
_LENGTH: Final = 0.01
#: The share of one processor from which on the client's own work may lie between tokens.
_BUSY_CLIENT: Final = 0.5
#: Client waits shorter than this share of the time to first token change nothing.
_WAIT: Final = 0.01


def probe_document(plan: Plan, target: Target, load: Load, shown: str, notes: tuple[str, ...] = ()) -> dict[str, Any]:
    """The document of one load against ``shown``, exact builtins."""
    good = [answer for answer in load.answers if answer.failure is None]
    told = [answer.cached_tokens for answer in good if answer.cached_tokens is not None]
    failures = Counter(answer.failure.reason for answer in load.answers if answer.failure is not None)
    dialect = target.dialect
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "probe": plan.load,
        "seed": plan.seed,
        "endpoint": shown,
        "model": target.model,
        "api": dialect.api,
        "prompts": "token ids" if dialect.ids is not None else "text",
        "started": round(load.started, 6),
        "duration_seconds": round(load.seconds, 6),
        "completed": len(good),
        "failed": len(load.answers) - len(good),
        "input_tokens": sum(_input(plan, answer) for answer in good),
        "output_tokens": sum(answer.counted for answer in good),
        "client_cpu_share": round(load.cpu_share, 4),
        "notes": [*target.notes, *notes, *_notes(plan, load, good, failures)],
        "failures": dict(failures.most_common()),
        "results": [_result(plan, load, answer) for answer in load.answers],
    }
    if plan.fresh or len(told) == len(good):
        # Else a prefix cache may hold the prompts of an earlier run with the same seed, and nobody says so.
        document["computed_tokens"] = max(0, document["input_tokens"] - sum(told))
    return document


def write_document(folder: Path, document: dict[str, Any]) -> None:
    """Keep it in a recording, whole or not at all. SourceError where the disk does not take it."""
    partial = folder / f".{NAME}.part"
    try:
        partial.write_text(json.dumps(document, ensure_ascii=False) + "\n", encoding="utf-8")
        partial.replace(folder / NAME)
    except OSError as error:
        raise SourceError(f"the recording can't be written: {error.strerror}", "is the disk full?") from None


def _result(plan: Plan, load: Load, answer: Answer) -> dict[str, Any]:
    found: dict[str, Any] = {
        "sent": round(max(0.0, answer.sent - load.began), 6),
        "wait": round(answer.wait_seconds, 6),
    }
    if answer.failure is not None:
        return {**found, "failure": answer.failure.reason}
    found |= {"input_tokens": _input(plan, answer), "output_tokens": answer.counted}
    if answer.most > answer.counted:
        found["most_output_tokens"] = answer.most
    found["times"] = [round(time, 6) for time in answer.times]
    if None not in answer.tokens:
        found["tokens"] = list(answer.tokens)
    return found


def _input(plan: Plan, answer: Answer) -> int:
    return plan.prompt_tokens if answer.prompt_tokens is None else answer.prompt_tokens


def _notes(plan: Plan, load: Load, good: list[Answer], failures: Counter[str]) -> Iterator[str]:
    """What is said with every figure of this load."""
    if failures:
        reason, _ = failures.most_common(1)[0]
        total = sum(failures.values())
        yield f"{total} of {len(load.answers)} requests of the probe failed: {reason}"
    yield from _of_prompts(plan, good)
    short = [answer.counted for answer in good if answer.most < plan.output_tokens]
    if short:
        mean = sum(short) / len(short)
        yield (
            f"{len(short)} of {len(good)} outputs ended early: {mean:.0f} tokens on average, where "
            f"{plan.output_tokens} were asked for"
        )
    most = _most_at_once(good)
    if plan.phase == "decode" and good and most < plan.concurrency:
        yield (
            f"at most {most} of {plan.concurrency} requests decoded at a time: some failed or waited; does the server "
            "run fewer at once (--max-num-seqs, --parallel), or are outputs too short for all to overlap?"
        )
    yield from _of_counts(plan, good)
    if load.cpu_share > _BUSY_CLIENT:
        yield (
            f"the client's process used {load.cpu_share:.0%} of a processor: times between tokens may be its own; "
            "drive fewer requests at a time, or use a load generator of several processes"
        )
    longest = max((answer.wait_seconds for answer in good), default=0.0)
    first = min((answer.times[0] for answer in good if answer.times), default=0.0)
    if longest > _WAIT * first and longest > 0.001:
        held = format_quantity(longest, "seconds")
        yield f"the client held requests back for up to {held}, which is in no latency (TTFT counts from sending)"


def _of_counts(plan: Plan, good: list[Answer]) -> Iterator[str]:
    """By what output tokens were counted, where the server's usage does not say it."""
    untold = [answer for answer in good if answer.output_tokens is None]
    guessed = [answer for answer in untold if answer.most > answer.counted]
    ended = [answer for answer in untold if None in answer.tokens and answer.by_length]
    if ended:
        yield (
            f"the server reports no usage: {len(ended)} of {len(good)} outputs ended by length, and so are taken to "
            f"have the {plan.output_tokens} tokens that were asked for"
        )
    if guessed:
        yield (
            f"the server tells neither by usage nor by an end by length how many tokens {len(guessed)} of {len(good)} "
            f"outputs have: at least one a piece of the stream, at most the {plan.output_tokens} that were asked for"
        )
    if len(untold) > len(ended) + len(guessed):
        yield "the server reports no usage: output tokens are the pieces of the stream"


def _most_at_once(good: list[Answer]) -> int:
    """The most requests that were between their first and their last piece at one time."""
    moves = sorted(
        move for one in good for move in ((one.sent + one.times[0], 1), (one.sent + one.times[-1], -1)) if one.times
    )
    return max(accumulate(change for _, change in moves), default=0)


def _of_prompts(plan: Plan, good: list[Answer]) -> Iterator[str]:
    counts = [answer.prompt_tokens for answer in good if answer.prompt_tokens is not None]
    off = [count for count in counts if abs(count - plan.prompt_tokens) > _LENGTH * plan.prompt_tokens]
    if off:
        lengths = f"{min(off)}" if min(off) == max(off) else f"{min(off)} to {max(off)}"
        yield (
            f"the server counts {lengths} prompt tokens in {len(off)} of {len(counts)} prompts, where "
            f"{plan.prompt_tokens} were asked for"
        )
    if good and not counts:
        yield f"the server reports no usage: prompts are taken to have their {plan.prompt_tokens} tokens"
    cached = sum(answer.cached_tokens or 0 for answer in good)
    if cached:
        yield f"{cached} prompt tokens came from the server's prefix cache, and were not computed"
