"""When to try again, and how long to wait (reliability: retry policy)."""

from __future__ import annotations

import email.utils
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["RetryPolicy", "retry_after"]


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
    milliseconds = headers.get("retry-after-ms", "")
    if _is_number(milliseconds):
        return max(float(milliseconds) / 1000, 0.0)
    value = headers.get("retry-after", "")
    if _is_number(value):
        return max(float(value), 0.0)
    try:
        when = email.utils.parsedate_to_datetime(value)
    except (TypeError, ValueError):
        return None
    return max(when.timestamp() - time.time(), 0.0)


def _is_number(text: str) -> bool:
    try:
        return float(text) == float(text)  # not NaN
    except ValueError:
        return False
