"""Where a probe's requests go, and with whose credentials."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from completions import Server

from pytest_llmroof.errors import ConfigError
from pytest_llmroof.gates.build import window_spec
from pytest_llmroof.gates.spec import TelemetrySource, WindowSpec
from pytest_llmroof.probe.asking import Caller, Deadline
from pytest_llmroof.probed import aimed
from pytest_llmroof.telemetry.endpoint import endpoint_of

KEY = {"Authorization": "Bearer sk-secret"}


def spec(*telemetry: object, **keys: object) -> WindowSpec:
    given = {"telemetry": list(telemetry)} if telemetry else {}
    return window_spec({**given, **keys}, id="t", name="t", base=Path("/nowhere"))


def source(url: object) -> TelemetrySource:
    return spec(url).telemetry[0]


@pytest.mark.parametrize(
    ("telemetry", "url", "api", "metrics"),
    [
        ("http://h:8000/metrics", None, "http://h:8000/v1", "http://h:8000/metrics"),
        ("http://h:8000/deep/metrics?x=sk-1", None, "http://h:8000/v1", "http://h:8000/deep/metrics"),
        (None, "http://h:8000", "http://h:8000/v1", "http://h:8000/metrics"),
        (None, "http://h:8000/v1/", "http://h:8000/v1", "http://h:8000/metrics"),
        (None, "http://h:8000/v1/chat/completions", "http://h:8000/v1", "http://h:8000/metrics"),
        (None, "http://h:8000/v1/completions", "http://h:8000/v1", "http://h:8000/metrics"),
        (None, "https://h/openai/v1/models", "https://h/openai/v1", "https://h/metrics"),
        ("http://h:9400/metrics", "http://h:8000/v1", "http://h:8000/v1", "http://h:9400/metrics"),
    ],
)
def test_addresses(telemetry: str | None, url: str | None, api: str, metrics: str) -> None:
    window, aim = aimed(spec(*([telemetry] if telemetry else [])), source(url) if url else None)
    assert aim.api.shown == api
    assert [each.shown for each in window.telemetry] == [metrics]
    assert aim.metrics_named == (telemetry is not None)
    assert aim.server == api.split("/")[2]


def test_a_key_serves_its_own_server_only() -> None:
    metrics = {"url": "http://h:8000/metrics", "headers": KEY, "timeout": "3s"}
    _, from_metrics = aimed(spec(metrics), None)
    _, same = aimed(spec(metrics), source("http://h:8000/v1"))
    _, other_port = aimed(spec(metrics), source("http://h:8001/v1"))
    _, other_host = aimed(spec(metrics), source("http://g:8000/v1"))
    assert from_metrics.api.options["headers"] == same.api.options["headers"] == KEY
    assert same.api.options["timeout"] == 3.0
    assert "headers" not in other_port.api.options
    assert "headers" not in other_host.api.options
    _, own = aimed(spec(metrics), source({"url": "http://h:8000/v1", "headers": {"Authorization": "Bearer sk-own"}}))
    assert own.api.options["headers"] == {"Authorization": "Bearer sk-own"}
    window, _ = aimed(spec(), source({"url": "http://h:8000/v1", "headers": KEY}))
    assert window.telemetry[0].options["headers"] == KEY
    assert "sk-" not in repr((window, same, own))


def test_a_login_in_a_url_is_kept_and_not_shown() -> None:
    _, aim = aimed(spec("http://me:sk-1@h:8000/metrics"), None)
    _, same = aimed(spec("http://me:sk-1@h:8000/metrics"), source("http://h:8000/v1"))
    for each in (aim, same):
        assert each.api.options["url"] == "http://me:sk-1@h:8000/v1"
        assert each.api.shown == "http://h:8000/v1"


def test_only_servers_are_a_probes_telemetry() -> None:
    window, _ = aimed(spec("before.prom", "http://h:8000/metrics", warmup="5s"), None)
    assert [each.kind for each in window.telemetry] == ["url"]
    assert (window.warmup_seconds, window.interval_seconds) == (0.0, 0.25)
    assert aimed(spec("http://h:8000/metrics", interval="1s"), None)[0].interval_seconds == 1.0
    with pytest.raises(ConfigError, match="nothing says where to send requests"):
        aimed(spec("before.prom"), None)


def sent(server: Server, **options: Any) -> str | None:
    with Caller(endpoint_of(server.url, **options), Deadline.after(30)) as caller:
        caller.json("models")
    return server.seen[-1][1].get("Authorization")


def test_keys_come_from_where_those_of_metrics_do(
    serve: Callable[[Server], Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(Server())
    assert sent(server) is None
    token = tmp_path / "token"
    token.write_text("sk-file\n")
    assert sent(server, token_file=token) == "Bearer sk-file"
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password sk-1\n")
    monkeypatch.setenv("NETRC", str(netrc))
    assert sent(server) == "Basic bWU6c2stMQ=="  # me:sk-1
    assert sent(server, headers=KEY) == "Bearer sk-secret"
