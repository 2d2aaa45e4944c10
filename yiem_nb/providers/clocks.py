"""When to try again, and how long to wait (reliability: retry policy)."""

from __future__ import annotations

import email.utils
import math
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["RetryPolicy", "in_words", "retry_after"]


_COUNTED_SECONDS = 90
_DAY_SECONDS = 86_400
_YEAR_SECONDS = 31_536_000.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often, and for how long, a request is sent again.

    Parameters
    ----------
    attempts
        Requests in all.
    longest
        A server that asks for more seconds than this is not waited for.
    budget
        Seconds of waiting in all.
    """

    attempts: int = 4
    longest: float = 60.0
    budget: float = 120.0
    random: random.Random = field(default_factory=random.Random)

    def delay(self, attempt: int, asked: float | None) -> float:
        """Seconds before attempt number `attempt` (the second is 1): asked for, else full jitter."""
        if asked is not None:
            return asked * (1 + 0.1 * self.random.random())
        return self.random.uniform(0, min(20.0, 0.5 * 2**attempt))


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Read how long the server asks to wait, in seconds: milliseconds, seconds or a date."""
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return _bounded(milliseconds / 1000)
    value = headers.get("retry-after", "")
    seconds = _number(value)
    if seconds is not None:
        return _bounded(seconds)
    try:
        when = email.utils.parsedate_to_datetime(value)
    except (TypeError, ValueError):
        return None
    return _bounded(when.timestamp() - time.time())


def in_words(wait: float | None) -> str:
    """Say when a wait is over: in how many seconds, or at what time today."""
    if wait is None:
        return "in a moment"
    if wait <= _COUNTED_SECONDS:
        return f"in {wait:.0f} s"
    when = time.localtime(time.time() + wait)
    day = "" if wait < _DAY_SECONDS else time.strftime("%d %B ", when)
    return f"after {day}{time.strftime('%H:%M', when)}"


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _bounded(seconds: float) -> float:
    return min(max(seconds, 0.0), _YEAR_SECONDS)
