"""Work in a thread that nobody has to wait for, and whose frames nobody sees."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from threading import Thread
from typing import ParamSpec, TypeVar

from pytest_llmroof.errors import LlmroofError, SourceError

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def apart(
    name: str, function: Callable[Arguments, Result], *arguments: Arguments.args, **more: Arguments.kwargs
) -> Future[Result]:
    """Run a function in a thread of that name, for its result or error.

    The interpreter waits at its end for the threads of a pool, also for one that hangs on a slow server or resolver.
    It waits for none of these: whoever was interrupted is gone at once.
    """
    future: Future[Result] = Future()

    def run() -> None:
        try:
            result = function(*arguments, **more)
        except BaseException as error:  # whatever it is, it belongs to who waits for the result
            future.set_exception(error)
        else:
            future.set_result(result)

    Thread(target=run, name=name, daemon=True).start()
    return future


def secluded(
    name: str, problem: str, function: Callable[Arguments, Result], *arguments: Arguments.args, **more: Arguments.kwargs
) -> Result:
    """The result of a function that touches headers, tokens or addresses, run in a thread of that name.

    What pytest prints of the thread that waits (the locals of a traceback, after Ctrl-C or a time-out) holds none of
    them then. Errors come without a traceback, whose frames hold them. Of one that nobody foresaw only its type and
    place are told, in a SourceError that begins with ``problem``: its text may hold a header, or the query of a URL.
    """
    try:
        return apart(name, function, *arguments, **more).result()
    except LlmroofError as error:
        told = error.with_traceback(None)
    except Exception as error:  # one that nobody foresaw
        *_, place = traceback.extract_tb(error.__traceback__)
        told = SourceError(f"{problem} ({type(error).__name__} in {Path(place.filename).name}:{place.lineno})")
    raise told from None
