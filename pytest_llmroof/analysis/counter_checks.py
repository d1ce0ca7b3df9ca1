"""GPU counters against the physics of the steps: engines that rested while memory must have moved a step's bytes."""

from __future__ import annotations

from typing import Final

from pytest_llmroof.analysis.constants import counter_constant
from pytest_llmroof.analysis.devices import Mismatch
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.analysis.floors import decode_costs
from pytest_llmroof.analysis.hardware_evidence import figures
from pytest_llmroof.analysis.measurement import NoData
from pytest_llmroof.analysis.sources import fits_cache, roofs
from pytest_llmroof.units import format_quantity

#: Steps that fill so much of the busy time follow each other: then no pause explains engines that rest.
_FILLED: Final = 0.9


def rested(facts: WindowFacts) -> Mismatch | None:
    """Engines that were active for much less of the load than a decode step's bytes keep memory busy.

    No byte moves while no engine runs, so these counters are of other GPUs, or the model is not what ran.
    """
    decode, against = facts.decode, roofs("decode.mbu", facts.deployment)
    if facts.window.hardware is None or decode is None or isinstance(against, NoData):
        return None
    seen, step = figures(facts), decode.step_seconds
    if seen is None or seen.over != "load" or facts.busy is None or not decode.steps:
        return None
    if decode.steps * step.value < _FILLED * facts.busy.seconds.low * facts.deployment.replicas:
        return None
    cost = decode_costs(facts.deployment, decode)["low"]
    if fits_cache(against, cost):
        return None
    active, needed = seen.values["engine"], cost.bytes_low / (against.bandwidth * cost.gpus * step.high)
    if needed <= (1 + counter_constant("contradicts")) * active:
        return None
    return Mismatch(
        f"the GPUs' engines were active {active * 100:.0f} % of the time under load ({seen.source}), and the bytes of "
        f"a decode step of {format_quantity(step.high, 'seconds')} keep memory busy for {needed * 100:.0f} % of it",
        "that the counters are of the GPUs that serve this engine: the exporter's host, first of all",
    )
