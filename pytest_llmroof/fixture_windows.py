"""What the fixtures give to a test: the window of its marks, further ones around its blocks, and wider ones."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

import pytest

from pytest_llmroof.asked import frames
from pytest_llmroof.gates.build import window_spec
from pytest_llmroof.gates.spec import WindowSpec
from pytest_llmroof.handle import WindowHandle, or_fail
from pytest_llmroof.markers import marked_keys
from pytest_llmroof.resolve import resolve
from pytest_llmroof.roofline.accelerator import Accelerator
from pytest_llmroof.windows import completed

#: Fields that a window takes from the test's marks where it does not give them itself.
_INHERITED: Final = (
    "gpu", "model", "phase", "flops", "served_model_name", "duration_seconds", "interval_seconds", "warmup_seconds",
    "min_requests", "max_wait_seconds", "title",
)  # fmt: skip

if TYPE_CHECKING:
    from pytest_llmroof.live import Frame
    from pytest_llmroof.probing import Probe


class TestWindow(WindowHandle):
    """The fixture ``llmroof``: the window of the test's marks, and further ones."""

    __test__ = False

    def __init__(self, config: pytest.Config, specify: Callable[[], WindowSpec], node: pytest.Item) -> None:
        super().__init__(config, specify)
        self._node = node
        self._windows = 0

    def window(self, **keys: Any) -> OpenWindow:
        """Another window of the same deployment; keys are those of the mark (``telemetry``, ``phase``, ...)."""
        __tracebackhide__ = True
        self._windows += 1
        spec_id = f"{self._node.nodeid}::window {self._windows}"
        config, folder, own = self._config, self._node.path.parent, self.spec
        name = str(keys.get("phase", "window"))

        def specify() -> WindowSpec:
            return described_by(window_spec(keys, id=spec_id, name=name, base=folder), own, keys, config)

        return OpenWindow(config, specify, lengthened="duration" in {**marked_keys(self._node), **keys})


class OpenWindow(WindowHandle):
    """A window of a ``with`` block: servers are scraped from its beginning to its end, files need neither."""

    def __init__(self, config: pytest.Config, specify: Callable[[], WindowSpec], lengthened: bool = False) -> None:
        super().__init__(config, specify)
        self._lengthened = lengthened
        self._frame: Frame | None = None

    def __enter__(self) -> OpenWindow:
        __tracebackhide__ = True
        if frames(self.spec):
            if self._frame is not None:
                pytest.fail("a window covers one block: open another one with .window()", pytrace=False)
            from pytest_llmroof.live import Frame

            least = self.spec.duration_seconds if self._lengthened else None
            self._frame = Frame(self._config, self.spec, least or 0.0)
            self._frame.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """The last scrape; a block that failed has no window."""
        if self._frame is None:
            return
        if kind is None:
            self._frame.close()
        else:
            self._frame.abandon()


class WindowFactory:
    """The fixture ``llmroof_factory``: windows wider than one test."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._names: Counter[str] = Counter()

    def window(self, **keys: Any) -> OpenWindow:
        """A window; keys are those of the mark. Relative paths are relative to the file that calls this."""
        file = Path(sys._getframe(1).f_code.co_filename)
        config, name = self._config, str(keys.get("phase", "window"))
        spec_id = self._id(file, name)

        def specify() -> WindowSpec:
            spec = window_spec(keys, id=spec_id, name=name, base=file.parent)
            return completed(config, replace(spec, gates=()))

        return OpenWindow(config, specify, lengthened="duration" in keys)

    def probe(self, **keys: Any) -> Probe:
        """What ``llmroof_probe`` is to a test, for fixtures; keys are those of the mark, of all its windows."""
        from pytest_llmroof.probing import Probe

        file = Path(sys._getframe(1).f_code.co_filename)

        def describe(own: dict[str, Any], phase: str, name: str) -> WindowSpec:
            spec = window_spec({**keys, **own}, id=self._id(file, f"{name} probe"), name=phase, base=file.parent)
            return completed(self._config, replace(spec, gates=()))

        return Probe(self._config, describe, [])

    def _id(self, file: Path, name: str) -> str:
        """A window's id by the file that asks for it; the second of a name there is ``#2``."""
        root = self._config.rootpath
        spec_id = f"{file.relative_to(root).as_posix() if file.is_relative_to(root) else file.name}::{name}"
        self._names[spec_id] += 1
        return spec_id if self._names[spec_id] == 1 else f"{spec_id}#{self._names[spec_id]}"


def session_accelerator(config: pytest.Config) -> Accelerator:
    """What ``--llmroof-gpu``, else the ini file, names. The test fails where neither does."""
    spec = WindowSpec(id="llmroof", name="session", base=config.invocation_params.dir)
    accelerator = or_fail(lambda: resolve(completed(config, spec))).accelerator
    if accelerator is None:
        pytest.fail("no accelerator is named: --llmroof-gpu=NAME, or llmroof_gpu in the ini file", pytrace=False)
    return accelerator


def described_by(
    spec: WindowSpec, own: WindowSpec, keys: Mapping[str, object], config: pytest.Config
) -> WindowSpec:
    """What the window does not say itself comes from the test's marks."""
    changes: dict[str, Any] = {
        "gates": (), "deployment": {**own.deployment, **spec.deployment}, "labels": {**own.labels, **spec.labels},
    }  # fmt: skip
    for key in _INHERITED:
        if key.removesuffix("_seconds") not in keys:
            changes[key] = getattr(own, key)
    changes["duration_fallback"] = own.duration_fallback and "duration" not in keys
    if not spec.telemetry and not spec.unset:
        changes |= {"telemetry": own.telemetry, "unset": own.unset}
    return completed(config, replace(spec, **changes))
