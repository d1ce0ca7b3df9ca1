"""What engines call their metrics: data/engines.yaml, made fast to look up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, cached_property
from typing import Any, Final, Literal

from pytest_llmroof.advice import as_advice
from pytest_llmroof.data import load
from pytest_llmroof.telemetry.exposition import Page
from pytest_llmroof.telemetry.window import Unavailable

Kind = Literal["counter", "histogram", "gauge", "finished", "facts"]
Part = Literal["value", "bucket", "sum", "count", "created"]

_NOTHING: Final[Mapping[str, Any]] = {}


@dataclass(frozen=True)
class Target:
    """What one exposed name stands for: a quantity, and which part of it.

    ``rank`` orders the names of one quantity, the lowest first. ``where`` are label values that a series must have (a
    pattern with ``*``; ``!`` in front negates it), ``scale`` is the factor to the canonical unit. ``whole`` is the
    label value of a series that repeats its siblings' sum. ``times`` is a counter over which the value is a mean.
    """

    quantity: str
    kind: Kind
    part: Part
    rank: int
    name: str
    where: tuple[tuple[str, str], ...] = ()
    scale: float = 1.0
    combine: Literal["sum", "max"] = "max"
    disabled: float | None = None
    whole: tuple[str, str] | None = None
    times: str | None = None

    def admits(self, labels: Mapping[str, str]) -> bool:
        """Whether a series with these labels counts."""
        for label, pattern in self.where:
            value = labels.get(label, "")
            if pattern.startswith("!"):
                if fnmatchcase(value, pattern[1:]):
                    return False
            elif value != pattern and not ("*" in pattern and fnmatchcase(value, pattern)):
                return False
        return True


@dataclass(frozen=True)
class EngineNames:
    """One engine's names and conventions, as data/engines.yaml describes them."""

    key: str
    entry: Mapping[str, Any]

    @property
    def title(self) -> str:
        """How reports and lists call the engine."""
        return str(self.entry["title"])

    @property
    def prefixes(self) -> tuple[str, ...]:
        """What may stand in front of every name."""
        return tuple(self.entry["prefixes"])

    @cached_property
    def conventions(self) -> frozenset[str]:
        """How this engine counts."""
        return frozenset(self.entry.get("conventions", ()))

    def labels(self, role: str) -> tuple[str, ...]:
        """The labels that play a role: ``model``, ``rank``, ``replica``, ``process``, ``repeats``, ``own``."""
        return tuple(self.entry.get("labels", _NOTHING).get(role, ()))

    @property
    def work(self) -> tuple[str, ...]:
        """The quantities that move when the engine works."""
        return tuple(self.entry.get("work", ()))

    @property
    def zero_means_off(self) -> frozenset[str]:
        """Counters that say nothing where they are 0 although the engine worked."""
        return frozenset(self.entry.get("zero_means_off", ()))

    @property
    def absent_until_fed(self) -> bool:
        """Whether series only appear when they are first counted: one that is absent is 0."""
        return bool(self.entry.get("absent_until_fed", False))

    @property
    def shares_out(self) -> bool:
        """Whether series of the whole server belong to all of its engines in equal parts, else to the first."""
        return self.entry.get("server_wide") == "shared"

    @property
    def beside(self) -> Mapping[str, Any] | None:
        """Where this is no engine but what stands beside one: its quantities that are preferred to the engine's."""
        beside: Mapping[str, Any] | None = self.entry.get("beside")
        return beside

    @property
    def records(self) -> Mapping[str, Any] | None:
        """How records of steps in JSON become totals, where this engine writes such."""
        records: Mapping[str, Any] | None = self.entry.get("records")
        return records

    @property
    def derived(self) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """Rules for counters that follow from others."""
        rules: Mapping[str, Sequence[Mapping[str, Any]]] = self.entry.get("derived", _NOTHING)
        return rules

    @property
    def finished_reasons(self) -> tuple[frozenset[str], frozenset[str]]:
        """The reasons that mean aborted, and those that mean an error."""
        finished = self.entry.get("finished", _NOTHING)
        return frozenset(finished.get("aborted", ())), frozenset(finished.get("errored", ()))

    @property
    def reason_label(self) -> str:
        """The label that holds why a request finished."""
        return str(self.entry.get("finished", _NOTHING).get("label", ""))

    def fact_labels(self, name: str) -> Mapping[str, str]:
        """The labels of an info metric that may be shown: fact -> label."""
        found: dict[str, str] = {}
        for facts in self._facts:
            if facts["name"] == name:
                labels = facts["labels"]
                found |= labels if isinstance(labels, Mapping) else {label: label for label in labels}
        return found

    @property
    def _facts(self) -> Sequence[Mapping[str, Any]]:
        """The info metrics; a single one may stand without a list."""
        facts = self.entry.get("facts", ())
        return [facts] if isinstance(facts, Mapping) else facts

    @cached_property
    def cannot(self) -> Mapping[str, Unavailable]:
        """Metrics that this engine never exports, each with the reason and what does tell it."""
        remedies: Mapping[str, Any] = load("measuring.yaml")["remedies"]
        found = {}
        for entry in self.entry.get("cannot", ()):
            remedy = entry.get("remedy")
            what = Unavailable(entry["reason"], as_advice(remedies.get(remedy, remedy)) if remedy else None)
            found.update(dict.fromkeys(entry["metrics"], what))
        return found

    @cached_property
    def targets(self) -> Mapping[str, tuple[Target, ...]]:
        """Every exposed name, prefix and suffix included -> what it stands for."""
        found: dict[str, list[Target]] = {}
        for prefix in self.prefixes:
            for name, target in self._bare_targets():
                found.setdefault(prefix + name, []).append(target)
        return {name: tuple(targets) for name, targets in found.items()}

    @cached_property
    def families(self) -> Mapping[str, frozenset[str]]:
        """Every name that a TYPE line may declare -> the quantities that its series would feed."""
        found: dict[str, set[str]] = {}
        for prefix in self.prefixes:
            for target in {target for _, target in self._bare_targets()}:
                for suffix in ("", "_total"):
                    found.setdefault(prefix + target.name + suffix, set()).add(target.quantity)
        return {name: frozenset(quantities) for name, quantities in found.items()}

    def knows(self, name: str) -> bool:
        """Whether a metric's name (as a TYPE line has it) is one of this engine's that we know, read or unused."""
        for prefix in self.prefixes:
            bare = name.removeprefix(prefix)
            if bare == name:
                continue
            family = bare.removesuffix("_created")
            unused = self.entry.get("unused", ())
            # OpenMetrics leaves `_info` and `_total` out of a family's name.
            if any(prefix + variant in self.families for variant in (family, f"{family}_info")):
                return True
            if family.removesuffix("_total") in unused or bare.startswith(tuple(self.entry.get("unused_families", ()))):
                return True
        return False

    def _bare_targets(self) -> Iterator[tuple[str, Target]]:
        for quantity, names in self.entry.get("counters", _NOTHING).items():
            for rank, spec in enumerate(map(_spec, names)):
                yield from _counter(quantity, rank, spec)
        for quantity, names in self.entry.get("histograms", _NOTHING).items():
            for rank, spec in enumerate(map(_spec, names)):
                yield from _histogram(quantity, rank, spec)
        for quantity, names in self.entry.get("gauges", _NOTHING).items():
            for rank, spec in enumerate(map(_spec, names)):
                yield spec["name"], Target(
                    quantity, "gauge", "value", rank, spec["name"], _where(spec),
                    scale=spec.get("scale", 1.0), combine=spec.get("combine", "max"), disabled=spec.get("disabled"),
                )  # fmt: skip
        if finished := self.entry.get("finished"):
            for suffix in ("_total", ""):
                name = finished["name"]
                yield name + suffix, Target("requests_finished", "finished", "value", 0, name)
        for name in dict.fromkeys(facts["name"] for facts in self._facts):
            yield name, Target("facts", "facts", "value", 0, name)


def _spec(names: Any) -> Mapping[str, Any]:
    return names if isinstance(names, Mapping) else {"name": names}


def _where(spec: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(spec.get("where", _NOTHING).items())


def _counter(quantity: str, rank: int, spec: Mapping[str, Any]) -> Iterator[tuple[str, Target]]:
    name, where = spec["name"], _where(spec)
    whole = next(iter(spec.get("whole", _NOTHING).items()), None)
    value = Target(
        quantity, "counter", "value", rank, name, where, spec.get("scale", 1.0), whole=whole, times=spec.get("times")
    )
    if part := spec.get("part"):
        yield f"{name}_{part}", value
        return
    yield f"{name}_total", value
    yield name, value
    yield f"{name}_created", Target(quantity, "counter", "created", rank, name, where)


def _histogram(quantity: str, rank: int, spec: Mapping[str, Any]) -> Iterator[tuple[str, Target]]:
    name, scale, where = spec["name"], spec.get("scale", 1.0), _where(spec)
    parts: tuple[Part, ...] = ("bucket", "sum", "count", "created")
    for part in parts:
        yield f"{name}_{part}", Target(quantity, "histogram", part, rank, name, where, scale)


@cache
def known_engines() -> Mapping[str, EngineNames]:
    """Every engine of the catalogue, by its key."""
    return {key: EngineNames(key, entry) for key, entry in load("engines.yaml").items()}


def recognised(page: Page, engines: Mapping[str, EngineNames] | None = None) -> EngineNames | None:
    """The engine of whose names a page holds most; None where it holds no engine's.

    A page without any name that is read is an engine's all the same where it has its prefix: a server without traffic.
    """
    names = {sample.name for sample in page.samples}
    candidates = (engines or known_engines()).values()
    counted = [(engine, len(names & engine.targets.keys())) for engine in candidates]
    best, most = max(counted, key=lambda pair: (bool(pair[1]) and not pair[0].beside, pair[1]))
    if most:
        return best
    for engine in candidates:
        if any(name.startswith(engine.prefixes) and engine.knows(name) for name in names):
            return engine
    return None
