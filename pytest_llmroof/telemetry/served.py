"""Which of the served models in some telemetry is read."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_llmroof.errors import SourceError
from pytest_llmroof.near import did_you_mean


def chosen_model(names: Iterable[str | None], served_model_name: str | None, where: str) -> str | None:
    """The served name whose engines are read; None: series that carry no such name.

    SourceError where several models are served and none is named, or another one is.
    """
    named = list(dict.fromkeys(name for name in names if name is not None))
    listed = ", ".join(repr(name) for name in named)
    if served_model_name is None:
        if len(named) > 1:
            raise SourceError(f"{where} holds several served models: {listed}", "name one with `served_model_name:`")
        # A series that lacks the label can only be of the one model there is, but it does not say so.
        return named[0] if named else None
    if not named:
        return None
    if served_model_name in named:
        return served_model_name
    near = did_you_mean(served_model_name, named)
    raise SourceError(
        f"{where} holds no served model {served_model_name!r}{near}, but {listed}",
        "name one of these with `served_model_name:`",
    )
