"""What happened in a window, before any metric: tokens, steps, batch, context, step time, phase, busy time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from pytest_llmroof.bounded import Bounded
from pytest_llmroof.profiles.profile import Profile
from pytest_llmroof.roofline.deployment import Deployment
from pytest_llmroof.roofline.step import Floor, Step, StepCost
from pytest_llmroof.telemetry.window import Window

Phase = Literal["decode", "prefill", "mixed"]


@dataclass(frozen=True)
class Busy:
    """How long the engine was at work: ``seconds`` and what that rests on (one phrase)."""

    seconds: Bounded
    basis: str


@dataclass(frozen=True)
class DecodeFacts:
    """The mean decode step of one replica (mean over replicas weighted by their steps).

    ``step_seconds`` is T; ``batch`` is B in sequences; ``context`` c in tokens; ``tokens_per_step`` is m, tokens that a
    sequence emits per step (of ``draft_tokens`` + 1 verified); ``steps`` counts decode steps over all replicas.
    ``cost``/``floor`` are of the decode step alone, ``interleaved_seconds`` is what prefill adds to the joint floor of
    a mean step, ``joint_floor`` that floor. They are None without a model and an accelerator.
    """

    step_seconds: Bounded
    batch: Bounded
    context: Bounded | None
    steps: float
    tokens_per_step: float
    cost: StepCost | None = None
    floor: Floor | None = None
    joint_floor_seconds: float | None = None
    interleaved_seconds: float = 0.0
    interleaved_ends: tuple[float, float] | None = None
    """The least and the most of it, where nothing counts the steps with prompts: few long ones or many short ones."""
    draft_tokens: float = 0.0
    basis: str = ""
    """How batch and step time were found, one phrase for methods."""
    quantities: tuple[str, ...] = ("itl",)
    """What the step time came from, canonical names."""
    apart: bool = False
    """Whether the step time was taken while no prompt was computed."""
    only_longest: str | None = None
    """Set where no context is measurable, and ``context`` lies between nothing and the longest sequence ever: why."""

    @property
    def interleaved(self) -> Bounded:
        """What prefill adds to the joint floor of a mean step, as far as it is known."""
        return Bounded.spanning(self.interleaved_seconds, *(self.interleaved_ends or ()))


@dataclass(frozen=True)
class PrefillFacts:
    """The prompt work of a window, over all replicas.

    ``tokens`` are prompt tokens actually computed; prompts in flight at the window's edges widen their interval.
    ``steps`` is how many steps held prompt tokens (from the step histogram, else estimated from a token budget: then
    ``estimated``), ``step`` the mean one of them without its decodes, ``cost`` and ``floor`` what that needs.
    ``hit_rate`` is the share of the prompts' tokens that were cached.
    """

    tokens: Bounded
    requests: float
    steps: Bounded
    estimated: bool
    step: Step
    cost: StepCost | None = None
    floor: Floor | None = None
    hit_rate: float = 0.0
    hits_told: bool = True
    """Whether anything tells which of the prompts' tokens were cached: else ``tokens`` are whole prompts."""
    hits_counted: bool = True
    """Whether they are counted, and not by an engine's default none."""


@dataclass(frozen=True)
class WindowFacts:
    """Everything that measuring, attribution and diagnosis need to know of a window, derived once.

    Token counts are sums over all replicas. ``None`` means that the sources do not tell. ``phase`` is the written one,
    else the one found from the traffic; ``phase_given`` tells which, ``contradiction`` says how the traffic belies a
    written one. ``prefill_share`` is the prefill's share of the window's joint floor (of its tokens, where the physics
    is not known): what prefill adds to the decodes' own floor, or, in a prefill window, its own floor. The floors are
    seconds of one replica (their mean): each kind's alone, and the joint one in which both share passes over weights.
    ``notes`` say what speaks against the deployment without settling anything. ``profile`` is what profilers recorded
    of it.
    """

    window: Window
    deployment: Deployment
    phase: Phase
    phase_given: bool
    prefill_share: float | None
    duration_seconds: float | None
    busy: Busy | None
    prompt_tokens: float | None
    computed_prompt_tokens: float | None
    generated_tokens: float | None
    finished_requests: float | None
    prefix_hit_rate: float | None
    mean_prompt_tokens: float | None
    mean_output_tokens: float | None
    decode: DecodeFacts | None
    prefill_floor_seconds: float | None = None
    decode_floor_seconds: float | None = None
    joint_floor_seconds: float | None = None
    prefill: PrefillFacts | None = None
    contradiction: str | None = None
    notes: tuple[str, ...] = ()
    profile: Profile | None = None

    @cached_property
    def memory(self) -> dict[object, object]:
        """What was worked out of the GPUs' counters already, by whatever worked it out."""
        return {}

    @cached_property
    def loaded(self) -> tuple[tuple[float, float], ...] | None:
        """Stretches (seconds of the window's clock) in which some replica had requests all the time; None: unknown."""
        from pytest_llmroof.analysis.hardware_load import stretches

        return stretches(self.window)

    @cached_property
    def loaded_everywhere(self) -> tuple[tuple[float, float], ...] | None:
        """Stretches in which every replica had requests all the time; None where nothing tells of any."""
        from pytest_llmroof.analysis.hardware_load import stretches

        return stretches(self.window, of_every_replica=True)

    @property
    def idle(self) -> bool:
        """Whether the sources count tokens, and none was computed or generated: then no load was measured."""
        counts = (self.generated_tokens, self.computed_prompt_tokens, self.prompt_tokens)
        return any(count is not None for count in counts) and not any(counts)
