"""From a probe's plan to a recorded window: the load inside a frame of scrapes, and its result beside the pages.

Headers and tokens are only touched in threads of their own, as in ``acquire.py``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from pytest_llmroof.acquire import Framing
from pytest_llmroof.errors import ConfigError, LlmroofError, SourceError
from pytest_llmroof.gates.spec import TelemetrySource, WindowSpec
from pytest_llmroof.probe.asking import Caller, Deadline
from pytest_llmroof.probe.document import probe_document, write_document
from pytest_llmroof.probe.load import drive
from pytest_llmroof.probe.plan import Plan
from pytest_llmroof.probe.target import Target, bodies, find_target
from pytest_llmroof.taken import Taken
from pytest_llmroof.telemetry.endpoint import Endpoint, endpoint_of
from pytest_llmroof.telemetry.threads import secluded
from pytest_llmroof.telemetry.unanswered import NoSuchPage

#: A probe is short: its load begins and ends between samples that are near each other.
INTERVAL_SECONDS: Final = 0.25
#: Engines count a request a moment after its last piece was sent.
_SETTLE_SECONDS: Final = 0.25
_WARMUP_TOKENS: Final = 16
#: The thread in which headers are touched, and what is said where it fails.
_THREAD: Final = ("llmroof-probe", "the probe failed")
_ENDINGS: Final = ("/chat/completions", "/completions", "/models")

_sleep = time.sleep


@dataclass(frozen=True)
class Aim:
    """Where a probe sends its requests: the API's address with its options, and whether anybody named the metrics'."""

    api: TelemetrySource
    metrics_named: bool

    @property
    def server(self) -> str:
        """Host and port."""
        return urlsplit(self.api.shown).netloc


def aimed(spec: WindowSpec, api: TelemetrySource | None) -> tuple[WindowSpec, Aim]:
    """The specification of a probe's window, and where its requests go.

    Of the window's telemetry only servers count, as files are of another load. Without ``api`` the requests go to the
    first one's origin; without servers the metrics are looked for at the API's. ConfigError where neither is named.
    """
    servers = tuple(source for source in spec.telemetry if source.kind == "url")
    named = bool(servers)
    if api is None:
        if not servers:
            raise ConfigError(
                "llmroof_probe: nothing says where to send requests: give url='http://HOST:PORT/v1', or the server's "
                "metrics as telemetry (in the mark, the call, or --llmroof-telemetry=http://HOST:PORT/metrics)"
            )
        api = _moved(servers[0], _at_origin(servers[0], "/v1"))
    else:
        api = _with_credentials(_moved(api, _api_url(api)), servers)
    if not servers:
        servers = (_moved(api, _at_origin(api, "/metrics")),)
    # What fills caches and compiles kernels is asked before the first scrape: there is nothing to cut off.
    interval = spec.interval_seconds or INTERVAL_SECONDS
    return replace(spec, telemetry=servers, warmup_seconds=0.0, interval_seconds=interval), Aim(api, named)


def probe_window(spec: WindowSpec, aim: Aim, plan: Plan, folder: Path, shown: str) -> Taken:
    """Drive the load as often as the window repeats, each inside a recording of its own."""
    try:
        base = secluded(*_THREAD, _endpoint, aim.api)
        target: Target | None = None
        recordings: list[tuple[Path, str]] = []
        for number in range(1, spec.repeat + 1):
            one, name = (folder, shown) if spec.repeat == 1 else (folder / str(number), f"{shown}/{number}")
            one_plan = plan if number == 1 else replace(plan, seed=plan.seed + number - 1)
            target = _one_window(spec, aim, one_plan, base, target, one, name)
            recordings.append((one, name))
    except LlmroofError as error:
        return Taken.failed(error)
    return Taken(tuple(recordings))


def _one_window(
    spec: WindowSpec, aim: Aim, plan: Plan, base: Endpoint, target: Target | None, folder: Path, shown: str
) -> Target:  # fmt: skip
    deadline = Deadline.after(spec.max_wait_seconds)
    known, warmup, requests = secluded(*_THREAD, _prepared, base, plan, spec.served_model_name, target, deadline)
    drive(base, known, warmup, min(plan.output_tokens, _WARMUP_TOKENS), plan.concurrency, deadline)
    framing = Framing(spec, folder, shown)
    framing.open()
    notes: tuple[str, ...] = ()
    if framing.error is not None:
        if aim.metrics_named and not isinstance(framing.error, NoSuchPage):
            raise framing.error
        # The client's own view is left, and says that it is alone.
        notes = (f"only the client's view: {_reason(framing.error)}",)
        folder.mkdir(parents=True, exist_ok=True)
    try:
        load = drive(base, known, requests, plan.output_tokens, plan.concurrency, deadline)
        _sleep(_SETTLE_SECONDS)
    except BaseException:  # an interrupt, too: no scrape goes on
        framing.abandon()
        raise
    write_document(folder, probe_document(plan, known, load, aim.api.shown, notes))
    if framing.error is None:
        taken = framing.close()
        if taken.failure is not None:
            raise SourceError(*taken.failure)
    return known


def _prepared(
    base: Endpoint, plan: Plan, served_model_name: str | None, target: Target | None, deadline: Deadline
) -> tuple[Target, list[bytes], list[bytes]]:
    """The server as it is known, and all requests, of the warm-up and of the load: made before anything is timed."""
    with Caller(base, deadline) as caller:
        known = target or find_target(caller, plan, served_model_name)
        before = range(-1_000, -1_000 - plan.concurrency, -1)
        warmup = bodies(caller, known, plan, before, min(plan.output_tokens, _WARMUP_TOKENS))
        return known, warmup, bodies(caller, known, plan, range(plan.requests), plan.output_tokens)


def _reason(error: LlmroofError) -> str:
    return error.reason if isinstance(error, SourceError) else str(error)


def _endpoint(source: TelemetrySource) -> Endpoint:
    options: dict[str, Any] = dict(source.options)
    verify, cert = options.get("verify", True), options.get("cert")
    return endpoint_of(
        options["url"],
        headers={str(name): str(value) for name, value in options.get("headers", {}).items()},
        token_file=options.get("token_file"),
        verify=str(verify) if isinstance(verify, Path) else verify,
        cert=(str(cert[0]), str(cert[1])) if isinstance(cert, tuple) else str(cert) if cert else None,
        timeout_seconds=options.get("timeout", 10.0),
    )


def _moved(source: TelemetrySource, url: str) -> TelemetrySource:
    """The same server and credentials at another address of it."""
    parts = urlsplit(url)
    shown = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    return replace(source, shown=shown, options={**source.options, "url": url})


def _at_origin(source: TelemetrySource, path: str) -> str:
    parts = urlsplit(str(source.options["url"]))
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


def _api_url(source: TelemetrySource) -> str:
    """The API's base: ``http://host:8000`` is meant as ``http://host:8000/v1``, and so is one of its pages."""
    parts = urlsplit(str(source.options["url"]))
    path = parts.path.rstrip("/")
    for ending in _ENDINGS:
        path = path.removesuffix(ending)
    return parts._replace(path=path or "/v1", fragment="").geturl()


def _with_credentials(api: TelemetrySource, servers: tuple[TelemetrySource, ...]) -> TelemetrySource:
    """The API with the options of the metrics where both are one server, and it has none of its own."""
    if set(api.options) != {"url"}:
        return api
    origin = urlsplit(str(api.options["url"]))
    for source in servers:
        other = urlsplit(str(source.options["url"]))
        same = (origin.scheme, origin.hostname, origin.port) == (other.scheme, other.hostname, other.port)
        if same and not origin.username:
            login = other.netloc.rpartition("@")[0]
            netloc = f"{login}@{origin.netloc}" if login else origin.netloc
            return replace(api, options={**source.options, "url": origin._replace(netloc=netloc).geturl()})
    return api
