"""From a Prometheus source as a user wrote it to the server to ask and the question."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from pytest_llmroof.errors import ConfigError, SourceError
from pytest_llmroof.telemetry.endpoint import Endpoint, endpoint_of
from pytest_llmroof.telemetry.engines import EngineNames
from pytest_llmroof.telemetry.fleetgpus import device_names, fleet_gpus
from pytest_llmroof.telemetry.gpujoin import joined
from pytest_llmroof.telemetry.promapi import PrometheusApi
from pytest_llmroof.telemetry.prometheus import question_of, read_prometheus, usual_interval
from pytest_llmroof.telemetry.promql import matchers
from pytest_llmroof.telemetry.window import SourceInfo, Window

#: A question may have the server read billions of samples; Prometheus itself gives up after two minutes.
TIMEOUT_SECONDS: Final = 60.0
#: How far back scrapes are looked at to learn how often there is one.
_LOOK_BACK_SECONDS: Final = 900.0
#: What people copy from a browser or a client behind the address.
_BEHIND: Final = re.compile(r"/+(?:api/v1(?:/.*)?|graph|query|vmui|targets)?/*$")


def prometheus_window(
    options: Mapping[str, object],
    *,
    duration_seconds: float | None,
    warmup_seconds: float = 0.0,
    served_model_name: str | None = None,
    engines: Mapping[str, EngineNames] | None = None,
) -> Window:
    """The window that a source's ``options`` (the keys of its mapping) ask for.

    ``duration_seconds`` counts where they name none; ``warmup_seconds`` are cut from the start. SourceError.
    """
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
            end=str(given.get("end", "now")), served_model_name=served_model_name,
        )  # fmt: skip
    except ConfigError as error:
        raise SourceError(f"{api.endpoint.shown}: selector: {error.problem}", "correct `selector`") from None
    return read_prometheus(api, question, engines=engines)


def with_prometheus_gpus(window: Window, options: Mapping[str, object]) -> Window:
    """The window with the GPU counters of a further source, of which only the server and the selector count.

    SourceError where it holds none.
    """
    api, selector = api_of(options), str(options.get("selector", ""))
    if window.started is None or window.duration_seconds is None:
        raise SourceError(f"{api.endpoint.shown}: the window has no clock to ask for GPU counters by")
    end = window.started + window.duration_seconds
    try:
        chosen = matchers(selector)
    except ConfigError as error:
        raise SourceError(f"{api.endpoint.shown}: selector: {error.problem}", "correct `selector`") from None
    with api:
        hardware = fleet_gpus(api, chosen, window.started, end)
    if hardware is None:
        raise SourceError(
            f"{api.endpoint.shown}: {{{chosen}}} matches no GPU counters of the window's time",
            "check `selector`; the engine's own source stands first, one with DCGM's series after it",
        )
    parts = [hardware, *([window.hardware] if window.hardware is not None else [])]
    names = dict.fromkeys([*window.device_names, *device_names(hardware)])
    said = [note for note in api.said if note not in window.notes]
    return replace(
        window,
        hardware=joined(parts),
        device_names=tuple(names),
        sources=tuple(dict.fromkeys((*window.sources, SourceInfo("prometheus", api.endpoint.shown)))),
        notes=(*window.notes, *said),
    )


def scrape_interval(
    options: Mapping[str, object], end: float, engines: Mapping[str, EngineNames] | None = None
) -> float:
    """How far two scrapes of a source's servers lie apart, in seconds, by the quarter of an hour before ``end``.

    0 where none was scraped twice. SourceError where there are no such servers.
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
