"""A real exporter in a process of its own that dies, stands, restarts or slows down, and a network that is cut.

What happens is the body of a test whose window covers it, and each step waits for what it needs: pages that were kept,
or requests that came.
"""

from __future__ import annotations

import re
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cuts import Cut, Network, network
from engine_process import EngineProcess, engine, until
from exporters import ITL
from reportschema import valid

MODULE = """
import pytest

@pytest.mark.llmroof(
    gpu="h100", model="llama-3.1-70b", deployment={{"tensor_parallel": 4, "weights": "bf16"}}, phase="decode",
    telemetry={{"url": "{url}", "timeout": "1s"}}, interval="0.05s",
)
@pytest.mark.llmroof_gate("decode.mbu >= 30%", "itl.mean <= 26.3ms")
def test_it(happening):
    happening()
"""


@pytest.fixture
def server() -> Iterator[EngineProcess]:
    with engine() as running:
        yield running


@pytest.fixture
def between(server: EngineProcess) -> Iterator[Network]:
    with network(server.port) as running:
        yield running


class Happening:
    """Hands what happens in the window to the test in the run."""

    def __init__(self, happens: Callable[[], None]) -> None:
        self._happens = happens

    @pytest.fixture
    def happening(self) -> Callable[[], None]:
        return self._happens


def run(project: Any, url: str, happens: Callable[[], None]) -> Any:
    (project.path / "test_it.py").write_text(MODULE.format(url=url), encoding="utf-8")
    found = project.run("--llmroof-unmeasured-exit=75", plugins=[Happening(happens)])
    valid(found.report)
    assert "Traceback" not in found.text
    return found


def kept() -> int:
    """Pages of the window so far."""
    return sum(1 for _ in Path(tempfile.gettempdir()).glob("pytest-llmroof-*/*/*.prom"))


def more_pages(count: int) -> None:
    wanted = kept() + count
    until(lambda: kept() >= wanted, f"{count} more pages were kept")


def as_long_again(since: float) -> None:
    """What follows takes as long as what was: the server is away for half of the window, however fast the machine."""
    end = 2 * time.monotonic() - since
    until(lambda: time.monotonic() >= end, "so long")


def assert_no_data(found: Any, url: str, *reasons: str) -> None:
    assert found.rc == 75
    assert found.verdicts == ["no data", "no data"], found.text
    (window,) = found.report["windows"]
    reason = window["gates"][0]["reason"]
    assert reason.startswith(f"{url} did not answer to the window's end: its last answer came "), reason
    assert any(each in reason for each in reasons), reason


def test_killed_before_the_end(project: Any, server: EngineProcess) -> None:
    def happens() -> None:
        began = time.monotonic()
        more_pages(3)
        server.kill()
        as_long_again(began)

    assert_no_data(run(project, server.url, happens), server.url, f"(connection refused at {server.url})")


def test_killed_and_started_again(project: Any, server: EngineProcess) -> None:
    """One life counts, the longer one; what the two counted is never put together."""

    def happens() -> None:
        more_pages(10)
        server.kill()
        server.start()
        more_pages(10)

    found = run(project, server.url, happens)
    assert found.verdicts == ["pass", "pass"], found.text
    assert any("the server restarted once inside the window" in note for note in found.window["notes"])


def test_stopped_to_the_end(project: Any, server: EngineProcess) -> None:
    """The system still takes the connections of a process that stands: nothing comes back on them."""

    def happens() -> None:
        began = time.monotonic()
        more_pages(3)
        server.stop()
        as_long_again(began)

    assert_no_data(run(project, server.url, happens), server.url, "(no answer within 1 s at", "did not finish its")


def test_stopped_for_a_while(project: Any, server: EngineProcess, between: Network) -> None:
    def happens() -> None:
        more_pages(5)
        server.stop()
        between.wait_for(2)  # the second of these came after the first was given up
        server.resume()
        more_pages(5)

    found = run(project, between.url, happens)
    assert found.verdicts == ["pass", "pass"], found.text
    assert any(" failed (" in note for note in found.window["notes"])
    # Nobody decoded meanwhile: the time counts, and no zero is made up for it.
    tokens = found.window["measurements"]["output.tokens_per_second"]["value"]
    assert 0 < tokens < 12.5 / ITL


CUTS = [Cut(kind, share) for kind in ("close", "reset", "blackhole") for share in (0, 0.5)]


@pytest.mark.parametrize("cut", CUTS, ids=lambda cut: f"{cut.kind}-{cut.share}")
def test_a_network_that_is_cut_to_the_end(project: Any, between: Network, cut: Cut) -> None:
    def happens() -> None:
        began = time.monotonic()
        more_pages(3)
        between.cut = cut
        as_long_again(began)

    reasons = {
        "close": ("the connection broke", "the server hung up", "connection closed"),
        "reset": ("the connection broke", "connection reset", "the server hung up"),
        "blackhole": ("no answer within", "did not finish its answer within"),
    }
    assert_no_data(run(project, between.url, happens), between.url, *reasons[cut.kind])


def test_a_network_that_heals(project: Any, between: Network) -> None:
    """Whatever it was: the window is whole, and says what failed."""

    def happens() -> None:
        for cut in CUTS:
            more_pages(3)
            between.cut = cut
            between.wait_for(2)
            between.cut = None
        more_pages(3)

    found = run(project, between.url, happens)
    assert found.verdicts == ["pass", "pass"], found.text
    failed = [int(note.split()[0]) for note in found.window["notes"] if " failed (" in note]
    assert sum(failed) >= len(CUTS)


def test_a_slow_network(project: Any, between: Network) -> None:
    """Scrapes that take longer than the interval do not pile up."""

    def happens() -> None:
        more_pages(3)
        between.delay_seconds = 0.3
        more_pages(4)

    found = run(project, between.url, happens)
    assert found.verdicts == ["pass", "pass"], found.text
    assert between.most_at_once == 1


def test_a_server_that_slows_down(project: Any, server: EngineProcess) -> None:
    """Steps of 52.4 ms in a part of the window: the mean is above 26.2 ms, and the gate says so."""

    def happens() -> None:
        more_pages(3)
        server.slow()
        more_pages(10)

    found = run(project, server.url, happens)
    assert found.verdicts[1] == "fail", found.text
    mean = found.window["measurements"]["itl.mean"]["value"]
    assert ITL < mean < 2 * ITL


@pytest.mark.parametrize("fate", [signal.SIGKILL, signal.SIGSTOP])
def test_a_window_of_a_duration_whose_server_dies_in_its_second_answer(project: Any, fate: signal.Signals) -> None:
    with engine(at=(2, fate)) as server:
        project.gates(
            f"decode:\n  phase: decode\n  telemetry: {{url: '{server.url}', timeout: 1s}}\n  duration: 0.5s\n"
            "  interval: 0.1s\n  gates: [decode.mbu >= 30%, ttft.p99 <= 2s]"
        )
        found = project.run("--llmroof-unmeasured-exit=75")
    assert_no_data(found, server.url, "(connection refused at", "(no answer within 1 s at", "the connection broke")
    valid(found.report)
    said = re.search(r"its last answer came (\d+\.\d) s into (\d+\.\d) s", found.one_line)
    assert said is not None, found.text
    assert float(said[1]) < float(said[2])
    assert float(said[2]) >= 0.5
