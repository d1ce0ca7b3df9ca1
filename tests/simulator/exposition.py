"""Lines of a page of metrics, as Prometheus clients print them."""

from __future__ import annotations

import math
from collections.abc import Mapping

from simulator.counted import Distribution


class Lines:
    """A page that is being written, at one moment of the run."""

    def __init__(self, prefix: str, labels: Mapping[str, str], moment: float) -> None:
        self.prefix, self.labels, self.moment = prefix, dict(labels), moment
        self.lines: list[str] = []

    def gauge(self, name: str, value: float, **labels: str) -> None:
        self.lines.append(f"# TYPE {self.prefix}{name} gauge")
        self._sample(name, value, labels)

    def counter(self, name: str, *values: tuple[Mapping[str, str], float]) -> None:
        """A counter of one series or several, each with labels of its own beside those of the page."""
        self.lines.append(f"# TYPE {self.prefix}{name} counter")
        for labels, value in values:
            self._sample(f"{name}_total", value, labels)

    def histogram(self, name: str, observed: Distribution, bounds: tuple[float, ...]) -> None:
        self.lines.append(f"# TYPE {self.prefix}{name} histogram")
        count = observed.count(self.moment)
        filled = [*observed.buckets(bounds, self.moment), count]
        for bound, value in zip((*bounds, math.inf), filled, strict=True):
            self._sample(f"{name}_bucket", value, {"le": "+Inf" if math.isinf(bound) else f"{float(bound)}"})
        self._sample(f"{name}_sum", observed.sum(self.moment), {})
        self._sample(f"{name}_count", count, {})

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def _sample(self, name: str, value: float, labels: Mapping[str, str]) -> None:
        every = {**self.labels, **labels}
        inside = ",".join(f'{key}="{text}"' for key, text in sorted(every.items()))
        self.lines.append(f"{self.prefix}{name}{{{inside}}} {float(value)!r}")
