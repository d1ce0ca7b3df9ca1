"""The fixture ``llmroof_probe``: a load of one phase, driven by the test itself, and the window that it gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

from pytest_llmroof.analysis.measurement import NoData
from pytest_llmroof.errors import ConfigError
from pytest_llmroof.fixture_windows import described_by
from pytest_llmroof.gates.assessment import Assessment
from pytest_llmroof.gates.build import window_spec
from pytest_llmroof.gates.judge import judge
from pytest_llmroof.gates.spec import TelemetrySource, WindowSpec
from pytest_llmroof.handle import WindowHandle, or_fail
from pytest_llmroof.live import probed
from pytest_llmroof.markers import marked_spec
from pytest_llmroof.options import settings
from pytest_llmroof.probe.plan import Plan, decode_plan, prefill_plan
from pytest_llmroof.probed import aimed, probe_window
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.windows import Assessed

#: What makes the specification of a window from its keys, phase and name.
Describe = Callable[[dict[str, Any], str, str], WindowSpec]

_PROBES: Final = pytest.StashKey[list["ProbeWindow"]]()


class ProbeWindow(WindowHandle):
    """The window of a probe that has run: measurements, ``check()``, ``diagnosis``, like any other window."""

    def __init__(self, config: pytest.Config, spec: WindowSpec) -> None:
        super().__init__(config, lambda: spec)

    def judged(self, spec: WindowSpec) -> Assessed:
        """The window with the gates of a test's marks."""
        return self._judged(spec.gates)


class Probe:
    """Makes loads against an OpenAI-compatible endpoint, one phase each. Every call sends requests at once.

    Keywords beside those named are the keys of the mark ``llmroof`` (``telemetry``, ``model``, ``served_model_name``,
    ``repeat``, ``max_wait``, ...). ``url`` is the API's address, or a mapping with ``headers``, ``token_file`` and the
    other options of a URL; without it the requests go to ``/v1`` beside the metrics. ``seed`` makes the same prompts
    again, which the server's prefix cache may still hold.
    """

    def __init__(self, config: pytest.Config, describe: Describe, made: list[ProbeWindow]) -> None:
        self._config = config
        self._describe = describe
        self._made = made
        self._names: Counter[str] = Counter()

    def prefill(
        self,
        prompt_tokens: int = 8192,
        requests: int = 16,
        *,
        concurrency: int = 1,
        url: str | Mapping[str, object] | None = None,
        seed: int | None = None,
        **keys: Any,
    ) -> ProbeWindow:
        """Prompts of so many tokens with one output token each, ``concurrency`` at a time."""
        __tracebackhide__ = True
        return self._window(or_fail(lambda: prefill_plan(prompt_tokens, requests, concurrency, seed)), url, keys)

    def decode(
        self,
        batch: int = 1,
        prompt_tokens: int = 128,
        output_tokens: int = 256,
        *,
        rounds: int = 1,
        url: str | Mapping[str, object] | None = None,
        seed: int | None = None,
        **keys: Any,
    ) -> ProbeWindow:
        """``batch`` requests at a time that decode ``output_tokens`` each, ``rounds`` times over."""
        __tracebackhide__ = True
        plan = or_fail(lambda: decode_plan(batch, prompt_tokens, output_tokens, rounds, seed))
        return self._window(plan, url, keys)

    def _window(self, plan: Plan, url: str | Mapping[str, object] | None, keys: dict[str, Any]) -> ProbeWindow:
        __tracebackhide__ = True
        self._names[plan.phase] += 1
        count = self._names[plan.phase]
        name = plan.phase if count == 1 else f"{plan.phase} {count}"
        spec, aim = or_fail(lambda: aimed(self._spec(keys, plan, name), self._api(url)))
        probed(self._config, spec, aim.server, lambda folder, shown: probe_window(spec, aim, plan, folder, shown))
        window = ProbeWindow(self._config, spec)
        self._made.append(window)
        return window

    def _spec(self, keys: dict[str, Any], plan: Plan, name: str) -> WindowSpec:
        for key, instead in _NOT_KEYS.items():
            if key in keys:
                raise ConfigError(f"llmroof_probe.{plan.phase} takes no {key}=: {instead}")
        return self._describe({**keys, "phase": plan.phase}, plan.phase, name)

    def _api(self, url: str | Mapping[str, object] | None) -> TelemetrySource | None:
        """The API's address, checked like a source of telemetry."""
        if url is None:
            return None
        try:
            spec = window_spec({"telemetry": [url]}, id="", name="", base=self._config.invocation_params.dir)
        except ConfigError as error:
            raise ConfigError(str(error).replace("telemetry[0]", "llmroof_probe: url")) from None
        if spec.unset:
            raise ConfigError(f"llmroof_probe: url: environment variable {', '.join(spec.unset)} is not set")
        (source,) = spec.telemetry
        if source.kind != "url":
            expected = "url= is the API's address, like http://HOST:PORT/v1"
            raise ConfigError(f"llmroof_probe: {expected}, not {source.shown!r}")
        return source


_NOT_KEYS: Final = {
    "duration": "it lasts until its requests are through; send more of them (requests, rounds, output_tokens)",
    "warmup": "it warms up with requests of its own, which count nowhere",
    "phase": "its name says it",
    "gates": "judge them with .check(...), or with @pytest.mark.llmroof_gate on the test",
}


def probe_of(node: pytest.Item) -> Probe:
    """The probe of a test: what its marks say is true of every window."""
    config = node.config

    def describe(keys: dict[str, Any], phase: str, name: str) -> WindowSpec:
        spec = window_spec(keys, id=f"{node.nodeid}::{name}", name=phase, base=node.path.parent)
        return described_by(spec, marked_spec(node), keys, config)

    made = node.stash[_PROBES] = []
    return Probe(config, describe, made)


def judged_probe(item: pytest.Item, spec: WindowSpec) -> Assessed:
    """The gates of a test's marks on the one probe of its body; no data where it made none, or several."""
    made = item.stash.get(_PROBES, [])
    if len(made) == 1:
        return made[0].judged(spec)
    if made:
        reason = f"the test made {len(made)} probes, and nothing tells which of them its gates are about"
        remedy = "judge each: llmroof_probe.decode(...).check('decode.mbu >= 75%')"
    else:
        reason = "the test asked for llmroof_probe, and made no load with it"
        remedy = "call llmroof_probe.decode(...) or llmroof_probe.prefill(...) in its body"
    strict = settings(item.config).strict
    verdicts = tuple(judge(gate, NoData(gate.metric, reason, remedy), strict=strict) for gate in spec.gates)
    return Assessed(Assessment(spec, Deployment(), None, {}, verdicts, failure=f"{reason}; {remedy}"))
