"""Functions of other plugins: whatever goes wrong in one is told of it, and lets no gate go by."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_LONGEST_MESSAGE: Final = 200


@dataclass(frozen=True)
class Raised:
    """What a function raised: type and first line, without the way there; ``line`` is the deepest one of it."""

    said: str
    line: int


def called(
    function: Callable[Arguments, Result], *arguments: Arguments.args, **more: Arguments.kwargs
) -> Result | Raised:
    """What another plugin's function gives, or what it raised.

    Nothing that it raises is ours to foresee, and pytest's own skip and fail are no Exceptions: a skip from in there
    would let the gate go by. Only what ends the process is passed on.
    """
    try:
        return function(*arguments, **more)
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # code of others: anything
        *_, (_frame, line) = traceback.walk_tb(error.__traceback__)
        return Raised(_said(error), line)


def _said(error: BaseException) -> str:
    try:
        message = (str(error).splitlines() or [""])[0][:_LONGEST_MESSAGE]
    except Exception:  # its text is code of the plugin's, too
        message = ""
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
