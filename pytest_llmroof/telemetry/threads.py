"""Work in a thread that nobody has to wait for."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import ParamSpec, TypeVar

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
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    Thread(target=run, name=name, daemon=True).start()
    return future
