"""Addresses of other schemes than HTTP are refused before anything is asked, wherever an address may stand."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_llmroof.errors import ConfigError
from pytest_llmroof.gates.build import window_spec
from pytest_llmroof.telemetry.endpoint import endpoints_of

SCHEMES = (
    "file:///etc/passwd", "FILE:///etc/passwd", "ftp://host/metrics", "gopher://host:70/1", "unix:///var/run/docker.sock",
    "data://text/plain,x", "http+unix://%2Fvar%2Frun/x", "javascript://x", "ssh://host/x",
)  # fmt: skip


@pytest.mark.parametrize("address", SCHEMES)
@pytest.mark.parametrize("key", [None, "url", "prometheus"])
def test_a_source(address: str, key: str | None, tmp_path: Path) -> None:
    source = address if key is None else {key: address}
    with pytest.raises(ConfigError, match="expected a URL that starts with http:// or https://"):
        window_spec({"telemetry": source}, id="w", name="w", base=tmp_path)


@pytest.mark.parametrize("address", SCHEMES)
def test_the_recorder(address: str) -> None:
    with pytest.raises(ConfigError, match="http"):
        endpoints_of([address])


@pytest.mark.parametrize("address", ["file:///etc/passwd", "gopher://host:70/1"])
def test_an_option(address: str, pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess(f"--llmroof-telemetry={address}", "--llmroof-gate=itl.mean <= 1s")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*expected a URL that starts with http:// or https://*"])


def test_without_slashes_it_is_a_path_like_any(tmp_path: Path) -> None:
    """Named relative to the gate file: nothing that ``file:`` means elsewhere."""
    spec = window_spec({"telemetry": "file:/etc/passwd"}, id="w", name="w", base=tmp_path)
    assert spec.telemetry[0].path == tmp_path / "file:" / "etc" / "passwd"
