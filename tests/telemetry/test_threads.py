"""What is told of work in a thread whose frames hold secrets."""

from __future__ import annotations

import traceback

import pytest

from pytest_llmroof.errors import ConfigError, LlmroofError, SourceError
from pytest_llmroof.telemetry.threads import secluded

SECRET = "s3cr3t"


def failing(error: BaseException) -> None:
    raise error


def test_the_result_comes_back() -> None:
    assert secluded("t", "it failed", max, 1, 2, key=lambda number: -number) == 1


@pytest.mark.parametrize("error", [SourceError("no answer", "start it"), ConfigError("no such key")])
def test_an_error_of_this_package_comes_without_the_frames_of_its_thread(error: LlmroofError) -> None:
    with pytest.raises(type(error)) as caught:
        secluded("t", "it failed", failing, error)
    assert caught.value is error
    assert "failing" not in [frame.name for frame in traceback.extract_tb(caught.tb)]


def test_of_any_other_error_its_type_and_place_are_told() -> None:
    with pytest.raises(SourceError, match=r"^it failed \(RuntimeError in test_threads\.py:\d+\)$") as caught:
        secluded("t", "it failed", failing, RuntimeError(f"Bearer {SECRET}"))
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__suppress_context__
    assert caught.value.__context__ is None
