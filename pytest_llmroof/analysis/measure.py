"""Measurements by name: each worked out when it is first asked for, and kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Final

from pytest_llmroof.analysis.beyond import within_reach
from pytest_llmroof.analysis.clientfacts import belongs
from pytest_llmroof.analysis.clientlatency import all_failed, belied, client_metric
from pytest_llmroof.analysis.clientwords import source_of
from pytest_llmroof.analysis.consistency import contradictions
from pytest_llmroof.analysis.contradicted_facts import all_gpus_told
from pytest_llmroof.analysis.contradiction import Contradiction
from pytest_llmroof.analysis.decodemetrics import decode_metric
from pytest_llmroof.analysis.devices import degree_confirmed
from pytest_llmroof.analysis.estimated import estimator_checks
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.fronts import at_servers
from pytest_llmroof.analysis.gather import gather
from pytest_llmroof.analysis.gaugestats import GAUGES, gauge_statistic
from pytest_llmroof.analysis.hardwaremetrics import HARDWARE, hardware_metric
from pytest_llmroof.analysis.latency import LATENCIES, latency_statistic
from pytest_llmroof.analysis.measurement import Alternative, Impossible, Measurement, NoData, Outcome, View
from pytest_llmroof.analysis.metrics import Metric, find_metric, metric_names, metric_of
from pytest_llmroof.analysis.prefillmetrics import prefill_metric
from pytest_llmroof.analysis.rates import RATES
from pytest_llmroof.analysis.sources import lacks
from pytest_llmroof.analysis.thresholds import remedy
from pytest_llmroof.analysis.vendors import elsewhere_for, remedy_for, vendor_of
from pytest_llmroof.analysis.windowmetrics import window_metric
from pytest_llmroof.data import load
from pytest_llmroof.errors import ConfigError
from pytest_llmroof.profiles.profile import Profile
from pytest_llmroof.roofline.deployment import Deployment, element_bytes


class Measurements(Mapping[str, Outcome]):
    """Every metric of one window. ``m["ttft.p99"]`` works for each valid name; iteration names what could be measured.

    A name that is none raises ConfigError with the nearest one.
    """

    def __init__(self, facts: WindowFacts, alternatives: bool = True) -> None:
        self.facts = facts
        self._alternatives = alternatives
        self._known: dict[str, Outcome] = {}

    def __getitem__(self, name: str) -> Outcome:
        if name not in self._known:
            self._known[name] = self._outcome(name)
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._measured)

    def __len__(self) -> int:
        return len(self._measured)

    def __contains__(self, name: object) -> bool:
        try:
            metric_of(str(name))
        except ConfigError:
            return False
        return True

    @cached_property
    def contradictions(self) -> tuple[Contradiction, ...]:
        """What contradicts what among the inputs; empty for a sound window."""
        return contradictions(self.facts)

    @cached_property
    def _measured(self) -> tuple[str, ...]:
        names = [name for name in metric_names() if "(" not in name]
        found = [(name, self[name]) for name in names]
        return tuple(name for name, one in found if isinstance(one, Measurement) and one.samples != 0)

    @cached_property
    def _others(self) -> dict[str, Measurements]:
        """The same window under other assumptions, where nothing confirms the ones that were made."""
        facts = self.facts
        phase = facts.phase if facts.phase_given else None
        return {
            assumption: Measurements(gather(facts.window, other, phase), alternatives=False)
            for assumption, other in _other_deployments(facts)
        }

    def _outcome(self, name: str) -> Outcome:
        metric = metric_of(name)
        if _family(name) in ("kernels", "hfu") and (profiled := self._profiled(name)) is not None:
            return profiled
        for need in metric.needs:
            if (lacking := lacks(name, self.facts.deployment, need)) is not None:
                # Where no source here tells it, naming a GPU would not help.
                blind = name in HARDWARE and self.facts.window.hardware is None
                return hardware_metric(self.facts, name) if blind else _elsewhere(self.facts, name) or lacking
        measured = self._sound(name, metric, self._taken(name, metric))
        physics = metric.needs == ("gpu", "model")
        if not isinstance(measured, Measurement) or not self._alternatives or not (physics or _per_gpu(name)):
            return measured
        measured = replace(measured, alternatives=self._with_other_assumptions(measured))
        return within_reach(self.facts, measured) if physics else measured

    def _taken(self, name: str, metric: Metric) -> Outcome:
        """The metric by whoever measures it, of inputs that are taken to be sound."""
        if metric.measure is not None:
            # Here, so that sessions without such metrics do not pay for them.
            from pytest_llmroof.analysis.added import added_outcome

            return added_outcome(self.facts, metric, self.__getitem__)
        return hardware_metric(self.facts, name) if name in HARDWARE else _of_both(self.facts, name)

    def _profiled(self, name: str) -> Outcome | None:
        """What kernels that were profiled one by one tell of a metric; None where there are none.

        Of HFU the counters of the whole window go first, which profiled kernels are a part of.
        """
        profile = self.facts.profile
        if profile is None or profile.kernels is None:
            return _summed(name, profile) or _refused_kernels(self.facts, name) if name != "hfu" else None
        from pytest_llmroof.analysis.kernelmetrics import kernel_outcome

        outcome = kernel_outcome(profile.kernels, self.facts.deployment.accelerator, name)
        if name != "hfu" or self.facts.window.hardware is None:
            return outcome
        whole = self._sound(name, metric_of(name), hardware_metric(self.facts, name))
        if isinstance(whole, Measurement):
            return replace(whole, other=outcome) if isinstance(outcome, Measurement) else whole
        return outcome

    def _sound(self, name: str, metric: Metric, measured: Outcome) -> Outcome:
        """The measurement, unless the inputs that it rests on contradict each other."""
        if isinstance(measured, NoData) and self.facts.idle:
            return measured
        physics = metric.needs == ("gpu", "model")
        if not physics and not name.startswith(_SPOILT) and not _per_gpu(name):
            return measured
        for found in self.contradictions:
            if found.spoils(name, physics):
                return Impossible(name, found.reason, found.check, found.implied)
        return measured

    def _with_other_assumptions(self, measured: Measurement) -> tuple[Alternative, ...]:
        found = []
        for assumption, other in self._others.items():
            outcome = other[measured.metric]
            if isinstance(outcome, Measurement) and outcome.value != measured.value:
                found.append(Alternative(assumption, outcome.value))
        return tuple(found)


#: Metrics without a model that contradictions may spoil, too.
_SPOILT: Final = (
    "output.", "input.", "requests_per_second", "running.", "waiting.", "kv_cache.", "preemptions", "hfu", "hardware.",
    "timeline.",
)  # fmt: skip


def _per_gpu(name: str) -> bool:
    """Whether a metric is shared out over the GPUs: it rests on how many there are."""
    return name.endswith(".per_gpu")


def measure(facts: WindowFacts) -> Measurements:
    """Every metric of a window, lazily."""
    return Measurements(facts)


#: What a client sees itself, so that its view is judged; of other metrics it shows another view.
_CLIENTS: Final = ("ttft", "tpot", "e2e", "goodput", "errors")
#: What only a server knows: how much of a prompt was cached (or a client whose prompts no cache can hold).
_SERVERS: Final = ("prefill", "window", "roofline")


#: What client and server each see in their own way: a baseline of one is none for the other.
_OF_EITHER: Final = (*_CLIENTS, "itl", "decode", "prefill", "output", "input", "requests_per_second", "speculative")


def _seen_by(outcome: Outcome, view: View, name: str) -> Outcome:
    """An outcome that says whose view it is, where there may be another one."""
    if not isinstance(outcome, Measurement) or _family(name) not in _OF_EITHER:
        return outcome
    return replace(outcome, view=view)


def _of_both(facts: WindowFacts, name: str) -> Outcome:
    """A metric as the one of server and client has it who is judged, with the other's view beside it."""
    client = facts.window.client
    if client is None:
        return _seen_by(at_servers(facts, name, _measure), "server", name)
    told = client_metric(facts, client, name)
    seen = None if told is None else _seen_by(told, "client", name)
    family = name.partition("(")[0].partition(".")[0]
    if not facts.window.engines:
        if seen is not None:
            return seen
        fresh = family == "prefill" and client.computed_tokens is not None and client.completed
        if (family in _SERVERS and not fresh) or (family == "decode" and facts.decode is None):
            reason = f"{source_of(client)} does not see the engine's steps, nor how much of the prompts was cached"
            return all_failed(client, name) or NoData(name, reason, remedy("server"))
        return _seen_by(_measure(facts, name), "client", name)
    served = _seen_by(at_servers(facts, name, _measure), "server", name)
    if seen is None or (family in ("output", "input", "requests_per_second") and belongs(facts.window) is False):
        return served
    if family in _CLIENTS and (nothing := all_failed(client, name)) is not None and name != "errors.rate":
        return seen if family == "goodput" else nothing
    if not isinstance(seen, Measurement) and not isinstance(served, Measurement):
        return seen if family == "goodput" else served
    lacking = family in _CLIENTS and not isinstance(seen, Measurement)
    if lacking and isinstance(served, Measurement) and belied(client, name, served):
        return seen
    first, second = (seen, served) if family != "itl" and family != "speculative" else (served, seen)
    if not isinstance(first, Measurement):
        return second
    return replace(first, other=second) if isinstance(second, Measurement) else first


def _measure(facts: WindowFacts, name: str) -> Outcome:
    """One metric of a window whose inputs are taken to be sound."""
    if facts.profile is not None and _family(name) == "timeline":
        # Here, so that windows without a profile do not pay for what reads one.
        from pytest_llmroof.analysis.timelinemetrics import timeline_metric

        return timeline_metric(facts, name)
    if (elsewhere := _elsewhere(facts, name)) is not None:
        return elsewhere
    if facts.idle and name != "errors.rate":
        if steps := facts.window.counter("steps"):
            reason = f"no request ended in this window, and the engine counts tokens only then ({steps:.0f} steps)"
            return NoData(name, reason, "widen the window to several times what a request lasts")
        return NoData(name, "the engine was idle: no token was computed or generated in this window", remedy("load"))
    if name in RATES:
        return RATES[name](facts, name)
    family = _family(name)
    if family == "decode":
        return decode_metric(facts, name)
    if family == "prefill":
        return prefill_metric(facts, name)
    if family in ("window", "roofline"):
        return window_metric(facts, name)
    metric, statistic = find_metric(name)
    if metric.name in LATENCIES and statistic is not None:
        return latency_statistic(facts, metric.name, statistic)
    if metric.name in GAUGES and statistic is not None:
        return gauge_statistic(facts, metric.name, statistic)
    raise AssertionError(f"no measurement is written for {name}")


def _family(name: str) -> str:
    return name.partition("(")[0].partition(".")[0]


def _elsewhere(facts: WindowFacts, name: str) -> NoData | None:
    """No data for what no engine exports: which source would tell."""
    sources: Mapping[str, tuple[str, str]] = load("measuring.yaml")["elsewhere"]
    if _family(name) not in sources or name in HARDWARE:
        return None
    key, reason = sources[_family(name)]
    vendor = vendor_of(facts)
    return NoData(name, elsewhere_for(_family(name), reason, vendor), remedy_for(key, vendor))


def _summed(name: str, profile: Profile | None) -> Outcome | None:
    """What sums of kernels tell of a metric; None where there are none, or they do not tell it."""
    if profile is None or not profile.summaries:
        return None
    from pytest_llmroof.analysis.kernelsums import summed_share

    found = (summed_share(summary, name) for summary in profile.summaries)
    return next((outcome for outcome in found if outcome is not None), None)


def _refused_kernels(facts: WindowFacts, name: str) -> NoData | None:
    """Why a report of kernels that was named is not read."""
    for refused in facts.profile.refused if facts.profile is not None else ():
        if refused.file.kind in ("ncu report", "ncu csv"):
            return NoData(name, refused.reason, refused.remedy or remedy_for("ncu", vendor_of(facts)))
    return None


def _other_deployments(facts: WindowFacts) -> Iterator[tuple[str, Deployment]]:
    """Deployments that differ in one assumption which nothing confirms and which would halve the utilisation.

    The server's own estimator confirms what its counters agree with: FLOPs per GPU the split, bytes the weights. GPU
    counters confirm the split where as many GPUs worked as it says. Of replicas a load generator alone sees nothing.
    """
    deployment, provenance = facts.deployment, facts.deployment.provenance
    confirmed = {check.of for check in estimator_checks(facts) if check.confirms}
    degree = "FLOPs" in confirmed or degree_confirmed(facts)
    if provenance.get("tensor_parallel") == "assumed" and deployment.tensor_parallel == 1 and not degree:
        yield "tensor_parallel = 2 (assumed 1)", replace(deployment, tensor_parallel=2)
    if provenance.get("data_parallel") == "assumed" and not facts.window.engines and not all_gpus_told(facts):
        yield "data_parallel = 2 (assumed 1)", replace(deployment, data_parallel=2)
    wide = provenance.get("weights") == "assumed" and element_bytes(deployment.weights) >= 2.0
    if wide and "bytes read" not in confirmed:
        yield f"weights = fp8 (assumed {deployment.weights})", replace(deployment, weights="fp8")
