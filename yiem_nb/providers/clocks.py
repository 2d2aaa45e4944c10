"""How long to wait for an answer, and when to try again (reliability: retry policy)."""

from __future__ import annotations

import email.utils
import math
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from yiem_nb.models import Model
from yiem_nb.providers.hosts import is_loopback

__all__ = ["Clocks", "RetryPolicy", "in_words", "retry_after"]


@dataclass(frozen=True, slots=True)
class Clocks:
    """How long what may last, in seconds (F17, F18).

    Parameters
    ----------
    connect
        Until the connection stands.
    first_byte
        From the request to the first byte of the answer.
    byte_idle
        Between two bytes; keep-alives count.
    content_idle
        Between two pieces of the answer; keep-alives do not count.
    total
        For the whole answer.
    """

    connect: float = 10.0
    first_byte: float = 120.0
    byte_idle: float = 60.0
    content_idle: float = 120.0
    total: float = 3600.0

    @classmethod
    def of(cls, model: Model, base_url: str) -> Clocks:
        """Return the clocks for a model: one that thinks, or a processor that reads, is silent long."""
        if model.reasoning or is_loopback(base_url):
            return cls(first_byte=300.0, byte_idle=300.0, content_idle=300.0)
        return cls()


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
