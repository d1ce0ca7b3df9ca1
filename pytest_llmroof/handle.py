"""A window that a test reads: its measurements, its diagnosis, and gates on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, TypeVar

import pytest

from pytest_llmroof.additions import install
from pytest_llmroof.analysis.attribution import Attribution
from pytest_llmroof.analysis.diagnosis import Diagnosis
from pytest_llmroof.analysis.measurement import Impossible, Measurement, NoData, Outcome
from pytest_llmroof.analysis.metrics import find_metric
from pytest_llmroof.analysis.sources import with_remedy
from pytest_llmroof.assess.judging import judged_again
from pytest_llmroof.bugs import watch
from pytest_llmroof.errors import ConfigError, Deliberate, UnknownFigureError
from pytest_llmroof.gates.gate import Gate
from pytest_llmroof.gates.spec import WindowSpec
from pytest_llmroof.markers import parsed
from pytest_llmroof.options import settings
from pytest_llmroof.outcomes import breach_of, outbox, publish
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.roofline.roof import attainable
from pytest_llmroof.taken import Taken
from pytest_llmroof.windows import Assessed, assessed, baselines

T = TypeVar("T")


class NotMeasured(Deliberate, KeyError):
    """The metric that a test asked for has no value: what is missing, and how to get it."""

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True)
class Roofline:
    """The roof of one GPU at the deployment's compute precision. None where the catalogue does not know a figure."""

    peak_flops_per_second: float | None
    memory_bandwidth_bytes_per_second: float | None
    ridge_flops_per_byte: float | None
    _attainable: Callable[[float], float] | None = field(repr=False)

    def attainable(self, intensity: float) -> float:
        """FLOP/s that a GPU can reach at an arithmetic intensity in FLOP/byte. ValueError where a roof is unknown."""
        __tracebackhide__ = True
        if self._attainable is None:
            raise UnknownFigureError("the accelerator's peak or memory bandwidth is not known")
        return self._attainable(intensity)


class WindowHandle(Mapping[str, Measurement]):
    """A window that a test reads, gates and explains. It is measured when it is first asked for something.

    As a mapping it holds what was measured: ``llmroof["decode.mbu"].value``, ``.bounded``, ``.source``, ``.method``.
    """

    def __init__(self, config: pytest.Config, specify: Callable[[], WindowSpec]) -> None:
        watch(config)
        self._config = config
        self._specify = specify

    @cached_property
    def spec(self) -> WindowSpec:
        """What was asked for, with the options applied."""
        __tracebackhide__ = True
        return or_fail(self._specify)

    def __getitem__(self, metric: str) -> Measurement:
        __tracebackhide__ = True
        outcome = self._outcome(metric)
        if isinstance(outcome, Measurement):
            return outcome
        raise NotMeasured(_why_not(outcome))

    def __iter__(self) -> Iterator[str]:
        __tracebackhide__ = True
        outcomes = self._assessed.assessment.outcomes
        return (metric for metric in outcomes if isinstance(outcomes[metric], Measurement))

    def __len__(self) -> int:
        __tracebackhide__ = True
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        # A failing assertion prints this: it must not start a measurement.
        return f"<window {self.spec.id}>" if "spec" in self.__dict__ else "<window, not measured yet>"

    def check(self, *expressions: str, **keywords: Any) -> None:
        """Judge gates on the window, all of them: ``check("decode.mbu >= 75%", "ttft.p99 <= 2s")``.

        ``severity="warn"`` shows a breach without failing; ``id=`` and ``why=`` with exactly one expression. Raises
        GateBreach, an AssertionError that lists every breach.
        """
        __tracebackhide__ = True
        or_fail(lambda: install(self._config))
        gates = tuple(or_fail(lambda: parsed(expressions, "check()", **keywords)))
        window = self._judged(gates)
        key = f"{self.spec.id}#{_process(self._config)}{len(outbox(self._config).sent)}"
        breach = publish(self._config, key, window, range(len(gates)))
        if breach:
            raise breach_of(self._config, window, breach)

    @property
    def diagnosis(self) -> Diagnosis | None:
        """Why the window is as it is; None where nothing was measured."""
        __tracebackhide__ = True
        return self._assessed.assessment.diagnosis

    @property
    def attribution(self) -> Attribution | None:
        """Where the time went; None where the sources do not tell."""
        __tracebackhide__ = True
        return self._assessed.assessment.attribution

    @property
    def deployment(self) -> Deployment:
        """What was served, on what, and where each fact comes from."""
        __tracebackhide__ = True
        return self._assessed.assessment.deployment

    @property
    def roofline(self) -> Roofline:
        """The roof of one GPU of the deployment. ValueError where no accelerator is known."""
        __tracebackhide__ = True
        deployment = self.deployment
        accelerator = deployment.accelerator
        if accelerator is None:
            raise UnknownFigureError(str(with_remedy("gpu", deployment.missing.get("gpu", "no accelerator is known"))))
        known = accelerator.ridge(deployment.compute) is not None
        return Roofline(
            deployment.peak_flops_per_second,
            deployment.bandwidth_bytes_per_second,
            accelerator.ridge(deployment.compute),
            (lambda intensity: attainable(accelerator, deployment.compute, intensity)) if known else None,
        )

    @property
    def _assessed(self) -> Assessed:
        __tracebackhide__ = True
        return assessed(self._config, self.spec, self._taken())

    def _taken(self) -> Taken | None:
        """What was recorded around the load; None where files are read."""
        __tracebackhide__ = True
        if not self.spec.live:
            return None
        from pytest_llmroof.live import framed

        found = framed(self._config, self.spec)
        if found is None and self.spec.sampled:
            pytest.fail(_NEVER_OPENED, pytrace=False)
        return found

    def _outcome(self, metric: str) -> Outcome:
        __tracebackhide__ = True
        or_fail(lambda: install(self._config))
        if "(" not in metric:
            # A wrong name is a mistake in the test, with the nearest right one; never "not measured".
            _without_traceback(lambda: find_metric(metric))
        assessment = self._assessed.assessment
        if assessment.failure is not None and assessment.facts is None:
            return NoData(metric, assessment.failure)
        return _without_traceback(lambda: assessment.outcomes[metric])

    def _judged(self, gates: tuple[Gate, ...]) -> Assessed:
        """The measured window with other gates; nothing is read again."""
        __tracebackhide__ = True
        assessment = self._assessed.assessment
        strict = settings(self._config).strict
        earlier = baselines(self._config)
        verdicts = tuple(
            judged_again(assessment, gate, self._outcome(gate.metric), strict, earlier) for gate in gates
        )  # fmt: skip
        return Assessed(replace(assessment, spec=replace(assessment.spec, gates=gates), verdicts=verdicts), earlier)


def or_fail(function: Callable[[], T]) -> T:
    """The result; a mistake in what the test says fails the test with one sentence."""
    __tracebackhide__ = True
    try:
        return function()
    except ConfigError as error:
        problem = str(error)
    pytest.fail(problem, pytrace=False)  # not while the error is handled: pytest would show both


def _without_traceback(function: Callable[[], T]) -> T:
    """The result; a wrong name is shown at the line of the test that wrote it."""
    __tracebackhide__ = True
    try:
        return function()
    except ConfigError as error:
        raise error.with_traceback(None) from None


_NEVER_OPENED: Final = (
    "telemetry is a server, and nothing was measured: drive the load in `with llmroof.window() as window:` and read "
    "the window after it, or gate the test's body with @pytest.mark.llmroof_gate"
)


def _why_not(outcome: NoData | Impossible) -> str:
    if isinstance(outcome, Impossible):
        return f"{outcome.metric} is impossible: {outcome.reason}; check {outcome.check}"
    return f"{outcome.metric} is not measured: {outcome.reason}" + (f"; {outcome.remedy}" if outcome.remedy else "")


def _process(config: pytest.Config) -> str:
    worker = getattr(config, "workerinput", None)
    return f"{worker['workerid']}-" if worker else ""
