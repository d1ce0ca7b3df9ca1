"""Some inputs of every reader, the same in every run: what the long run feeds by the million (tests/fuzz/run.py)."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from fuzz.damage import cut, damaged_windows, spoilt
from fuzz.mutation import mutated
from fuzz.targets import TARGETS
from fuzz.worker import feed, schedule
from pytest_llmroof.resolve.modelfile import forget_models

#: Some seconds of one processor. The seeds as they are stand first, and are fed too.
INPUTS = 3_000
SEED = 20261130


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    forget_models()
    shutil.rmtree(tmp_path, ignore_errors=True)


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_is_a_fault(name: str, folder: Path) -> None:
    count = schedule(list(TARGETS), INPUTS)[name]
    *_, (_, _, tallies) = feed({name: max(count, 20)}, folder, SEED)
    tally = tallies[name]
    assert [fault.shown for fault in tally.faults.values()] == []
    assert tally.inputs == max(count, 20)


def test_the_same_number_makes_the_same_input() -> None:
    content = b'{"a": [1, 2.5, "x"]}\n' * 20
    inputs = [mutated(content, random.Random(number), [b"other"]) for number in range(200)]
    assert inputs == [mutated(content, random.Random(number), [b"other"]) for number in range(200)]
    assert len(set(inputs)) > 150


@pytest.mark.parametrize("damage", [cut, spoilt])
def test_damage_is_done(damage: object, folder: Path) -> None:
    assert callable(damage)
    contents = [seed.content for seed in damaged_windows()]
    changed = [damage(content, random.Random(number)) != content for number, content in enumerate(contents * 4)]
    assert sum(changed) > len(changed) / 2
