"""Inputs that are well formed and make no sense: the right keys, in the right places, with any value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz.seeds import Seed, benchmarks, models, records
from fuzz.targets import model, telemetry

#: The same examples in every run.
same = settings(
    derandomize=True, max_examples=60, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.sampled_from([10**400, -(10**400), 2**63, 2**53, 0, 1, 10_000]),
    st.floats(), st.text(max_size=8), st.just([]), st.just({}), st.lists(st.floats(), max_size=3),
)  # fmt: skip


def changed(value: Any, draw: st.DrawFn) -> Any:
    """A JSON value some parts of which are replaced, left out, or listed twice."""
    if isinstance(value, dict):
        kept = {key: changed(one, draw) for key, one in value.items() if not _seldom(draw)}
        return draw(VALUES) if _seldom(draw) else kept
    if isinstance(value, list):
        some = [changed(one, draw) for one in value[:6]]
        return some * 2 if _seldom(draw) else some
    return draw(VALUES) if _seldom(draw) else value


def _seldom(draw: st.DrawFn) -> bool:
    return draw(st.integers(0, 19)) == 0


@st.composite
def whole_but_senseless(draw: st.DrawFn, seeds: list[Seed]) -> tuple[Seed, bytes]:
    """A seed, and what became of its JSON."""
    seed = draw(st.sampled_from(seeds))
    values = json.loads(seed.content)
    return seed, json.dumps(changed(values, draw)).encode()


def _json(seeds: list[Seed]) -> list[Seed]:
    """Those that hold one JSON value, and are small enough to be changed part by part."""
    return [seed for seed in seeds if seed.content[:1] in b"{[" and not seed.beside and seed.name.endswith(".json")
            and len(seed.content) < 6000]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@same
@given(given_input=whole_but_senseless(_json([*benchmarks(), *records()])))
def test_results_of_senseless_values(folder: Path, given_input: tuple[Seed, bytes]) -> None:
    telemetry(folder, *given_input)


@same
@given(given_input=whole_but_senseless(_json(models())))
def test_configurations_of_senseless_values(folder: Path, given_input: tuple[Seed, bytes]) -> None:
    model(folder, *given_input)


NAMES = st.sampled_from(["vllm:generation_tokens_total", "vllm:prompt_tokens_total", "vllm:num_requests_running",
                         "vllm:inter_token_latency_seconds_bucket", "vllm:inter_token_latency_seconds_sum",
                         "vllm:inter_token_latency_seconds_count", "vllm:request_success_total"])  # fmt: skip
LABELS = st.dictionaries(
    st.sampled_from(["engine", "model_name", "le", "finished_reason"]),
    st.sampled_from(["0", "1", "+Inf", "0.5", "NaN", "-1", "abort", ""]), max_size=3,
)  # fmt: skip
NUMBERS = st.one_of(st.floats(width=32), st.integers(-1, 1000), st.sampled_from(["NaN", "+Inf", "1e308", "-0"]))


@st.composite
def pages(draw: st.DrawFn) -> bytes:
    """A page of lines that are all right, each by itself."""
    lines = [f"# scraped_at {draw(st.integers(0, 2 * 10**9))}"]
    for name, labels, value in draw(st.lists(st.tuples(NAMES, LABELS, NUMBERS), max_size=12)):
        told = ",".join(f'{label}="{text}"' for label, text in labels.items())
        lines.append(f"{name}{{{told}}} {value}")
    return ("\n".join(lines) + "\n").encode()


@same
@given(first=pages(), last=pages())
def test_pages_of_senseless_lines(folder: Path, first: bytes, last: bytes) -> None:
    (folder / "before.prom").write_bytes(first)
    telemetry(folder, Seed(last, "after.prom", {"before.prom": first}), last)
