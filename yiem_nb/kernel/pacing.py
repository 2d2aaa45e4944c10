"""How often a growing display may be sent again.

Each update of a display carries all of its text, so a fixed rate costs the square of the answer.
The pacer spends a budget instead: so many bytes of updates for each byte of the answer, which makes
updates rarer as the text grows, and never more than one in `interval`.
"""

from __future__ import annotations

__all__ = ["Pacer"]

#: What a message costs beside its content: headers, signature, metadata.
MESSAGE_BYTES = 1_000


class Pacer:
    """Decides when an update is due.

    Parameters
    ----------
    interval
        Shortest time between two updates, in seconds.
    ratio
        Bytes of updates allowed for each byte of text.
    credit
        Bytes allowed before there is any text, so that a short answer moves too.
    """

    def __init__(
        self, *, interval: float = 0.04, ratio: float = 16.0, credit: float = 20_000
    ) -> None:
        self._interval = interval
        self._ratio = ratio
        self._budget = credit
        self._next = 0.0

    def received(self, count: int) -> None:
        """Take note of `count` new bytes of text."""
        self._budget += count * self._ratio

    def due(self, now: float, size: int) -> bool:
        """Whether an update of `size` bytes may be sent at `now`."""
        return now >= self._next and self._budget >= size + MESSAGE_BYTES

    def sent(self, now: float, size: int) -> None:
        """Take note of an update of `size` bytes sent at `now`."""
        self._next = now + self._interval
        self._budget -= size + MESSAGE_BYTES

    def delay(self, now: float) -> float:
        """Seconds after which it is worth asking again."""
        return max(self._next - now, self._interval)
