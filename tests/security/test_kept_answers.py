"""What workers of a run hand to each other: the package's own records, and nothing that could run."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from fuzz import fleet

from pytest_llmroof.moments import kept_answer
from pytest_llmroof.taken import Taken
from pytest_llmroof.telemetry.clusters import window_of
from pytest_llmroof.telemetry.prometheus import answer_of
from pytest_llmroof.telemetry.question import Question


class Runs:
    """Unpickled as it asks to be, it would make a file."""

    def __init__(self, what: Any, *arguments: Any) -> None:
        self.what, self.arguments = what, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.what, self.arguments


def test_an_answer_comes_back_whole() -> None:
    window = window_of([answer_of(fleet.scripted({}), Question("", 940.0, 1000.0))], None)
    assert window.hardware is not None
    for taken in (Taken(window=window), Taken(failure=("it fell", None)), Taken(((Path("a"), "a"),))):
        assert kept_answer(pickle.dumps(taken)) == taken


@pytest.mark.parametrize("what", [os.system, os.mkdir, eval, getattr, __import__, Path.touch, print])
def test_nothing_else_is_made(what: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for hostile in (Runs(what, "made"), Taken(failure=(Runs(what, "made"), None))):  # type: ignore[arg-type]
        with pytest.raises(pickle.UnpicklingError, match="no part of an answer"):
            kept_answer(pickle.dumps(hostile))
    assert list(tmp_path.iterdir()) == []


def test_a_function_of_the_package_is_not_called_either() -> None:
    from pytest_llmroof.report.files import write_whole

    with pytest.raises(pickle.UnpicklingError, match=r"write_whole is no part of an answer"):
        kept_answer(pickle.dumps(Runs(write_whole, Path("x"), "y")))


def test_another_record_is_no_answer() -> None:
    with pytest.raises(pickle.UnpicklingError):
        kept_answer(pickle.dumps(Question("", 1.0, 2.0)))
