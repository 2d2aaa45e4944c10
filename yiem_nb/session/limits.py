"""How often the outside may read and write (SPEC-9.2)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

__all__ = ["BURST_SECONDS", "TokenBucket"]

#: A bucket holds this many seconds' worth of tokens.
BURST_SECONDS = 10


class TokenBucket:
    """Lets `rate` calls a second pass on average; the others wait, none is dropped.

    Parameters
    ----------
    rate
        Calls a second; ``None`` is no limit.
    clock, sleep
        Where the time comes from, and how it passes.
    """

    def __init__(
        self,
        rate: float | None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = rate
        self._clock = clock
        self._sleep = sleep
        self._tokens = rate * BURST_SECONDS if rate is not None else 0.0
        self._filled = clock()
        self._lock = threading.Lock()

    def take(self) -> None:
        """Take a token; wait for it where there is none."""
        if self._rate is None:
            return
        with self._lock:
            now = self._clock()
            grown = self._tokens + (now - self._filled) * self._rate
            # Tokens may be owed: whoever comes later then waits longer, in order.
            self._tokens = min(grown, self._rate * BURST_SECONDS) - 1
            self._filled = now
            owed = -self._tokens / self._rate
        if owed > 0:
            self._sleep(owed)
