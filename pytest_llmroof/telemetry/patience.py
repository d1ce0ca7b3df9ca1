"""Which failed requests are worth asking again, how long to wait before, and when to give up.

Nothing is asked again once the time-out of the first try has passed, and nothing that the same request cannot change:
refused credentials, a page that is not there, an answer that is no telemetry.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from pytest_llmroof.advice import AnyAdvice
from pytest_llmroof.errors import SourceError
from pytest_llmroof.units import whole_of

#: Answers of gateways and of servers that are busy or still start, which mostly pass within seconds.
PASSING: Final = frozenset({429, 502, 503, 504})
#: Seconds before each further try: all of them for what passes, the first two for any other failure that may.
_PAUSES: Final = (0.2, 0.5, 1.0, 2.0)
_FEW: Final = 2


class Unavailable(SourceError):
    """A request that failed, where the same one may succeed a moment later.

    ``passing``: a gateway or a busy server said so. ``after_seconds`` is how long it asked to wait. ``timed_out``: the
    request took up its whole time-out.
    """

    def __init__(
        self,
        reason: str,
        remedy: AnyAdvice | None = None,
        *,
        passing: bool = False,
        after_seconds: float | None = None,
        timed_out: bool = False,
    ) -> None:
        super().__init__(reason, remedy)
        self.passing = passing
        self.after_seconds = after_seconds
        self.timed_out = timed_out


def pause_before(error: SourceError, tries: int, elapsed_seconds: float, timeout_seconds: float) -> float | None:
    """Seconds to wait before a request is asked again that was tried so often; None to give up."""
    if not isinstance(error, Unavailable) or error.timed_out:
        return None
    pauses = _PAUSES if error.passing else _PAUSES[:_FEW]
    if tries > len(pauses):
        return None
    pause = max(pauses[tries - 1], error.after_seconds or 0.0)
    return pause if elapsed_seconds + pause < timeout_seconds else None


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """The seconds that a server's Retry-After asks to wait, given as a number or as a date; None without one."""
    text = headers.get("Retry-After", "").strip()
    seconds = whole_of(text)
    if seconds is not None:
        return float(seconds)
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - (now or datetime.now(UTC))).total_seconds())
