"""A probe through a proxy that the environment names, which alone can resolve the server's name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from completions import Server
from proxies import Proxy, proxying

Serve = Callable[[Server], Server]
LOAD = """
    def test_it(llmroof_probe):
        load = llmroof_probe.decode(batch=2, prompt_tokens=64, output_tokens=8, url={url!r}, seed=1)
        assert load["errors.rate"].value == 0
        load.check("ttft.mean <= 5s", "output.tokens_per_second >= 1")
"""


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    with proxying(Proxy(hosts={"engine.invalid": "127.0.0.1"})) as running:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
            monkeypatch.setenv(name, running.url)
        yield running


def test_requests_and_scrapes_go_through_the_proxy(project: Any, serve: Serve, proxy: Proxy) -> None:
    server = serve(Server(warm=2))
    address = f"http://engine.invalid:{server.port}"
    project.test(LOAD.format(url=f"{address}/v1"), server, telemetry=f"{address}/metrics")
    run = project.run()
    assert run.rc == 0, run.text
    pages = {("GET", "/v1/models"), ("POST", "/v1/completions"), ("GET", "/metrics")}
    assert set(proxy.asked) == {(method, address + path) for method, path in pages}
    assert len(server.load) == 4  # two of the warm-up, two of the load


def test_pieces_keep_their_times_behind_a_proxy(project: Any, serve: Serve, proxy: Proxy) -> None:
    """8 pieces at 20 ms each: a proxy that held them back would show all of them at once."""
    server = serve(Server(step_seconds=0.02))
    address = f"http://engine.invalid:{server.port}"
    project.test(LOAD.format(url=f"{address}/v1"), server, telemetry=f"{address}/metrics")
    run = project.run()
    assert run.rc == 0, run.text
    (measured,) = run.windows.values()
    assert measured["measurements"]["tpot.mean"]["value"] >= 0.015


def test_no_proxy_is_heeded(project: Any, serve: Serve, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = serve(Server())
    project.test(LOAD.format(url=server.url), server)
    assert project.run().rc == 0
    assert proxy.asked == []


def test_a_proxy_that_wants_a_login_gets_it(
    project: Any, serve: Serve, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = proxy.url
    proxy.login = "ci:s3cret-word"
    server = serve(Server())
    address = f"http://engine.invalid:{server.port}"
    project.test(LOAD.format(url=f"{address}/v1"), server, telemetry=f"{address}/metrics")
    run = project.run()
    assert run.rc == 1
    assert "is behind a proxy that asks for credentials (407)" in run.one_line
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, proxy.url)
    run = project.run("--llmroof-record=kept")
    assert run.rc == 0, run.text
    kept = "".join(path.read_text() for path in (project.path / "kept").rglob("*") if path.is_file())
    assert "s3cret-word" not in run.text + kept
    assert without != proxy.url


def test_a_proxy_that_is_gone_is_named(project: Any, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    with proxying(Proxy()) as gone:
        pass
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, gone.url)
    project.test(LOAD.format(url="http://engine.invalid:8000/v1"), serve(Server()))
    run = project.run()
    assert run.rc == 1
    assert "the proxy to http://engine.invalid:8000/v1 failed" in run.one_line


def test_tls_is_tunnelled(project: Any, serve: Serve, proxy: Proxy) -> None:
    certificate = Path(__file__).parents[1] / "data" / "tls" / "engine.invalid.pem"
    server = serve(Server(certificate=certificate))
    address = f"https://engine.invalid:{server.port}"
    url = {"url": f"{address}/v1", "verify": os.fspath(certificate)}
    body = LOAD.format(url="PLACE").replace("'PLACE'", repr(url))
    project.test(body, server, telemetry=[{**url, "url": f"{address}/metrics"}])
    run = project.run()
    assert run.rc == 0, run.text
    assert {method for method, _ in proxy.asked} == {"CONNECT"}
    assert len(server.load) >= 2
