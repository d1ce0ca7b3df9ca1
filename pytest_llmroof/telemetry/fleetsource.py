"""From a Prometheus source as a user wrote it to the server to ask and the question."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from pytest_llmroof.errors import ConfigError, SourceError
from pytest_llmroof.telemetry.clusters import window_of
from pytest_llmroof.telemetry.endpoint import Endpoint, endpoint_of
from pytest_llmroof.telemetry.engines import EngineNames
from pytest_llmroof.telemetry.promapi import PrometheusApi
from pytest_llmroof.telemetry.prometheus import answer_of, usual_interval
from pytest_llmroof.telemetry.question import Question, question_of, utc
from pytest_llmroof.telemetry.window import Window

#: A question may have the server read billions of samples; Prometheus itself gives up after two minutes.
TIMEOUT_SECONDS: Final = 60.0
#: How far back scrapes are looked at to learn how often there is one.
_LOOK_BACK_SECONDS: Final = 900.0
#: Times that differ by less are the same, written with fewer digits.
_SAME_SECONDS: Final = 0.002
#: What people copy from a browser or a client behind the address.
_BEHIND: Final = re.compile(r"/+(?:api/v1(?:/.*)?|graph|query|vmui|targets)?/*$")


def prometheus_window(
    options: Mapping[str, object],
    *more: Mapping[str, object],
    duration_seconds: float | None,
    warmup_seconds: float = 0.0,
    served_model_name: str | None = None,
    engines: Mapping[str, EngineNames] | None = None,
) -> Window:
    """The window that sources (the keys of their mappings) ask for together, over one stretch of time.

    ``duration_seconds`` counts where they name none; ``warmup_seconds`` are cut from the start. SourceError.
    """
    sources = with_common_time([options, *more])
    now = time.time()
    asked = [_asked(one, duration_seconds, warmup_seconds, lambda: now) for one in sources]
    first, question = asked[0]
    for api, other in asked[1:]:
        if max(abs(other.start - question.start), abs(other.end - question.end)) > _SAME_SECONDS:
            raise SourceError(
                f"{first.endpoint.shown} is asked from {utc(question.start)} to {utc(question.end)}, "
                f"{api.endpoint.shown} from {utc(other.start)} to {utc(other.end)}: one window has one time",
                "write `end` and `duration` alike in all of its sources, or in one of them only",
            )
    _refuse_twice(asked)
    marks = _marks([api for api, _ in asked])
    answers = [answer_of(api, one, engines, mark=mark) for (api, one), mark in zip(asked, marks, strict=True)]
    return window_of(answers, served_model_name)


def with_common_time(sources: Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
    """The sources, where those that name no ``end`` or ``duration`` have what another of them names."""
    common = {
        key: value for key in ("end", "duration")
        if (value := next((source[key] for source in sources if source.get(key) is not None), None)) is not None
    }  # fmt: skip
    return [{**common, **{key: value for key, value in source.items() if value is not None}} for source in sources]


def _asked(
    options: Mapping[str, object],
    duration_seconds: float | None,
    warmup_seconds: float,
    now: Callable[[], float],
) -> tuple[PrometheusApi, Question]:
    """The server of a source, and the question to it."""
    given: Mapping[str, Any] = options
    duration = given.get("duration", duration_seconds)
    api = api_of(options)
    if duration is None:
        raise SourceError(f"{api.endpoint.shown}: no duration is named", "write `duration:`, like 10m, beside `end:`")
    if duration <= warmup_seconds:
        raise SourceError(
            f"{api.endpoint.shown}: a window of {duration:g} s holds nothing after {warmup_seconds:g} s of warm-up",
            "widen `duration`",
        )
    try:
        question = question_of(
            str(given.get("selector", "")), duration=float(duration) - warmup_seconds,
            end=str(given.get("end", "now")), now=now,
        )  # fmt: skip
    except ConfigError as error:
        raise SourceError(f"{api.endpoint.shown}: selector: {error.problem}", "correct `selector`") from None
    return api, question


def _marks(apis: Sequence[PrometheusApi]) -> list[str | None]:
    """What tells several servers apart: their addresses, and numbers where one has several tenants or selectors."""
    if len(apis) == 1:
        return [None]
    shown = [api.endpoint.shown for api in apis]
    return [
        f"{name} (source {number})" if shown.count(name) > 1 else name for number, name in enumerate(shown, start=1)
    ]


def _refuse_twice(asked: Sequence[tuple[PrometheusApi, Question]]) -> None:
    """SourceError where one server is asked the same twice: that is a slip, and all would count twice."""
    seen: set[tuple[object, ...]] = set()
    for api, question in asked:
        headers = tuple(sorted(api.endpoint.headers.items()))
        key = (api.endpoint.url, api.parameters, headers, api.endpoint.token_file, question.selector)
        if key in seen:
            raise SourceError(
                f"{api.endpoint.shown} stands twice with the same selector", "leave one of them out, or correct it"
            )
        seen.add(key)


def scrape_interval(
    options: Mapping[str, object], end: float, engines: Mapping[str, EngineNames] | None = None
) -> float | None:
    """How far two scrapes of a source's servers lie apart, in seconds, by the quarter of an hour before ``end``.

    0 where none was scraped twice, None where there are no such servers. SourceError where it does not answer.
    """
    api = api_of(options)
    try:
        question = question_of(str(options.get("selector", "")), duration=_LOOK_BACK_SECONDS, end=repr(end))
    except ConfigError as error:
        raise SourceError(f"{api.endpoint.shown}: selector: {error.problem}", "correct `selector`") from None
    return usual_interval(api, question, engines=engines)


def api_of(options: Mapping[str, object]) -> PrometheusApi:
    """The server that a source names, with everything that is needed to ask it."""
    given: Mapping[str, Any] = options
    url = str(given["prometheus"])
    parts = urlsplit(url)
    cert, verify = given.get("cert"), given.get("verify", True)
    endpoint = endpoint_of(
        parts._replace(path=_BEHIND.sub("", parts.path), query="").geturl(),
        headers={str(name): str(value) for name, value in given.get("headers", {}).items()},
        token_file=given.get("token_file"),
        verify=str(verify) if isinstance(verify, Path) else verify,
        cert=(str(cert[0]), str(cert[1])) if isinstance(cert, tuple) else str(cert) if cert is not None else None,
        timeout_seconds=float(given.get("timeout", TIMEOUT_SECONDS)),
    )
    return PrometheusApi(_without_slash(endpoint), tuple(parse_qsl(parts.query)))


def _without_slash(endpoint: Endpoint) -> Endpoint:
    return replace(endpoint, url=endpoint.url.rstrip("/"), shown=endpoint.shown.rstrip("/"))
