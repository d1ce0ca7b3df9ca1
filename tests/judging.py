"""One gate file with one window and its inputs, judged by pytest inside the test's process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from reportschema import valid
from runs import strictly
from vllm_pages import write_pages


@dataclass(frozen=True)
class Judged:
    """What came of it: exit code, everything printed on one line, and the report of the window ({} if none)."""

    rc: int
    text: str
    window: dict[str, Any]

    @property
    def verdicts(self) -> list[str]:
        return [gate["verdict"] for gate in self.window["gates"]]

    @property
    def approximate(self) -> list[bool]:
        return [gate["approximate"] for gate in self.window["gates"]]

    @property
    def measured(self) -> set[str]:
        """The metrics that were measured."""
        return set(self.window["measurements"])

    def value(self, metric: str) -> float:
        """The value of a measurement, in its base unit."""
        value = self.window["measurements"][metric]["value"]
        assert isinstance(value, float | int)
        return value

    def method(self, metric: str) -> str:
        """The sentence that says how a metric was measured."""
        return str(self.window["measurements"][metric]["method"])


class Judge:
    """Writes inputs and a gate file into a test's folder, and runs pytest there."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self._pytester = pytester

    def __call__(
        self,
        *gates: str,
        head: str = "",
        window: str = "",
        files: Mapping[str, str | bytes] | None = None,
        load: Mapping[str, Any] | None = None,
        options: tuple[str, ...] = (),
    ) -> Judged:
        """``head`` stands above ``windows:``, ``window`` are further keys of the only one, ``files`` inputs by name.

        ``load``, of the figures of vllm_pages.Load, adds two pages of a vLLM server. Every input is telemetry but a
        ``config.json``.
        """
        folder = self._pytester.path
        telemetry = []
        if load:
            telemetry += [path.name for path in write_pages(folder, **{"model": "m", **load})]
        for name, content in (files or {}).items():
            (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
            telemetry += [name] if name != "config.json" else []
        lines = [head.strip(), "windows:", "  load:", f"    telemetry: [{', '.join(telemetry)}]"]
        lines += [f"    {line}" for line in window.splitlines()]
        lines += ["    gates:", *(f"      - {gate}" for gate in gates)]
        (folder / "llmroof.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")
        rc, text, report = strictly(self._pytester, *options, apart=False)
        (found,) = valid(report)["windows"] if report["windows"] else ({},)
        return Judged(rc, " ".join(text.split()), found)
