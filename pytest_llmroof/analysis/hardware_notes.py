"""What the GPUs' own counters make worth saying with every verdict: who serves, throttling, contradictions."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_llmroof.analysis.clocks import clock_notes
from pytest_llmroof.analysis.constants import counter_constant
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.hardware_evidence import figures
from pytest_llmroof.analysis.hardware_serving import serving
from pytest_llmroof.analysis.observing import differ, idle_note


def hardware_notes(facts: WindowFacts) -> tuple[str, ...]:
    """One sentence each; nothing without counters."""
    return tuple(_notes(facts)) if facts.window.hardware is not None else ()


def moved_less(facts: WindowFacts) -> bool:
    """Whether memory was active for much less than the decode step's bytes need: then the inputs are not what ran."""
    both = _bytes_of_both(facts) if facts.window.hardware is not None else None
    return both is not None and differ(*both) and both[0] > (1 + counter_constant("contradicts")) * both[1]


def _notes(facts: WindowFacts) -> Iterator[str]:
    hardware = facts.window.hardware
    assert hardware is not None
    yield from hardware.notes
    found = serving(facts)
    if (said := found.note or found.problem) is not None:
        yield f"GPU counters: {said}"
    yield from clock_notes(facts)
    if (note := _memory_note(facts)) is not None:
        yield note
    if (note := idle_note(facts)) is not None:
        yield note


def _bytes_of_both(facts: WindowFacts) -> tuple[float, float] | None:
    """A decode window's MBU by the model, and the activity of the memory interface; shares of what memory moves."""
    decode, bandwidth = facts.decode, facts.deployment.bandwidth_bytes_per_second
    if facts.phase != "decode" or decode is None or decode.cost is None or not bandwidth:
        return None
    known = figures(facts)
    if known is None or known.over != "load" or "dram" not in known.values:
        return None
    mbu = decode.cost.bytes / (bandwidth * decode.cost.gpus * decode.step_seconds.value)
    return mbu, known.values["dram"]


def _memory_note(facts: WindowFacts) -> str | None:
    both = _bytes_of_both(facts)
    if both is None or not differ(*both):
        return None
    mbu, active = (f"{share * 100:.0f} %" for share in both)
    seen = (
        f"decode MBU is {mbu} by the model's bytes, the memory interface was active {active} of the time by the GPUs' "
        "counters"
    )
    if not moved_less(facts) and both[0] > both[1]:
        return f"{seen}: the two do not quite agree"
    if both[1] >= both[0]:
        return f"{seen}: more is moved than a step needs (activations, wider weights, other work on these GPUs)"
    deployment = facts.deployment
    said = [
        f"{name} ({value}, {deployment.provenance.get(name, 'given')})"
        for name, value in (
            ("model", deployment.model.name if deployment.model else ""),
            ("weights", deployment.weights),
            ("tensor_parallel", deployment.tensor_parallel),
        )
    ]
    return f"{seen}: memory moves nothing while it rests, so {', '.join(said)} may not be what the server runs"
