"""A headless Chromium for tests, driven over its DevTools pipe: no driver, no port, and nothing that it may fetch."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

MISSING: Final = "Chromium is not installed: .ci/get_chromium brings it (Debian's package chromium)"
#: Root may not use the sandbox; the rest keeps the browser from asking the network for anything of its own.
_FLAGS: Final = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-extensions",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--force-color-profile=srgb", "--remote-debugging-pipe",
)  # fmt: skip
#: Nobody waits that long for a page; a browser that hangs is killed by it.
_PATIENCE: Final = 120
#: Read at once: tests run without the variables of the CI system that they may run in.
IN_CI: Final = bool(os.environ.get("CI"))


def executable() -> str:
    """The browser of this machine. Where it is missing: a failure in CI, elsewhere a skip that says how to get it."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    if IN_CI:
        pytest.fail(MISSING)
    pytest.skip(MISSING)


@dataclass
class Browser:
    """One browser process. Its commands are JSON objects between zero bytes, on two pipes."""

    process: subprocess.Popen[bytes]
    commands: int
    answers: int
    events: list[dict[str, Any]] = field(default_factory=list)
    _number: int = 0
    _buffer: bytes = b""

    def send(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """A command's result; events that come meanwhile are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.commands, data) :]
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def wait_for(self, method: str, session: str) -> None:
        """Until an event of that name came."""
        while not any(event.get("method") == method and event.get("sessionId") == session for event in self.events):
            self.events.append(self._read())

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self.answers], [], [], _PATIENCE)
            chunk = os.read(self.answers, 1 << 16) if ready else b""
            assert chunk, "the browser ended" if ready else f"the browser was silent for {_PATIENCE} s"
            self._buffer += chunk
        message, _, self._buffer = self._buffer.partition(b"\0")
        parsed: dict[str, Any] = json.loads(message)
        return parsed


@dataclass
class Tab:
    """One page as a reader has it: a width, a colour scheme, with or without script."""

    browser: Browser
    session: str

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command for this page."""
        return self.browser.send(method, self.session, **parameters)

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, run beside the page."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def screenshot(self) -> bytes:
        """The whole page as PNG."""
        return base64.b64decode(self.send("Page.captureScreenshot", captureBeyondViewport=True)["data"])

    def pdf(self) -> bytes:
        """The page as it is printed."""
        return base64.b64decode(self.send("Page.printToPDF", printBackground=True)["data"])

    def accessibility(self) -> list[dict[str, Any]]:
        """The nodes that a screen reader is given."""
        nodes: list[dict[str, Any]] = self.send("Accessibility.getFullAXTree")["nodes"]
        return [node for node in nodes if not node.get("ignored")]

    def said(self) -> list[str]:
        """Whatever the browser complained of: console messages, violations of the policy, exceptions."""
        return [
            json.dumps(event["params"])
            for event in self._events()
            if event["method"] in ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
        ]

    def requests(self) -> list[str]:
        """The addresses that were asked for."""
        return [
            event["params"]["request"]["url"]
            for event in self._events()
            if event["method"] == "Network.requestWillBeSent"
        ]

    def _events(self) -> Iterator[dict[str, Any]]:
        yield from (event for event in self.browser.events if event.get("sessionId") == self.session)


@contextmanager
def started() -> Iterator[Browser]:
    """A browser with a profile of its own, that ends with the block."""
    program = executable()
    commands_out, commands = os.pipe()
    answers, answers_in = os.pipe()
    # Out of the way of 3 and 4, where the browser reads its commands and answers.
    theirs = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 10) for descriptor in (commands_out, answers_in)]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            ["bash", "-c", f'exec "$0" "$@" 3<&{theirs[0]} 4>&{theirs[1]}', program, *_FLAGS,
             f"--user-data-dir={profile}", "about:blank"],
            pass_fds=theirs, env={**os.environ, "HOME": profile},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for descriptor in (commands_out, answers_in, *theirs):
            os.close(descriptor)
        try:
            yield Browser(process, commands, answers)
        finally:
            os.close(commands)  # it ends when nobody can command it any more
            try:
                process.wait(timeout=_PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            os.close(answers)


@contextmanager
def opened(
    browser: Browser, page: Path, *, width: int = 1280, height: int = 900, dark: bool = False, script: bool = True
) -> Iterator[Tab]:
    """A page of this machine, loaded; closed with the block."""
    context = browser.send("Target.createBrowserContext")["browserContextId"]
    target = browser.send("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
    session = browser.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    tab = Tab(browser, session)
    for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
        tab.send(f"{domain}.enable")
    tab.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 640)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    tab.send("Emulation.setEmulatedMedia", features=[scheme])
    tab.send("Emulation.setScriptExecutionDisabled", value=not script)
    tab.send("Page.navigate", url=page.absolute().as_uri())
    browser.wait_for("Page.loadEventFired", session)
    try:
        yield tab
    finally:
        browser.send("Target.disposeBrowserContext", browserContextId=context)
