"""What a notebook function prints belongs to its card; what it displays stays where it is."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["captured_prints"]

#: Prints beyond this are dropped with a note; a tool that prints 100 MB must not fill the memory.
MAX_CHARACTERS = 100_000


class _Tape(io.TextIOBase):
    """A text stream that keeps what is written, up to a limit, and says that something came."""

    def __init__(self, limit: int, on_write: Callable[[str], object]) -> None:
        self._parts: list[str] = []
        self._length = 0
        self._limit = limit
        self._on_write = on_write
        self.dropped = 0

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        room = max(self._limit - self._length, 0)
        kept = text[:room]
        if kept:
            self._parts.append(kept)
            self._length += len(kept)
            self._on_write(kept)
        self.dropped += len(text) - len(kept)
        return len(text)

    def text(self) -> str:
        note = f"\n… {self.dropped:,} more characters were printed" if self.dropped else ""
        return "".join(self._parts) + note


@contextmanager
def captured_prints(
    on_write: Callable[[str], object] = len, limit: int = MAX_CHARACTERS
) -> Iterator[Callable[[], str]]:
    """Keep what is printed in the block, to stdout and stderr in one order.

    Yields
    ------
    Callable
        Returns what was printed so far.

    Notes
    -----
    Process-wide while it lasts, as `contextlib.redirect_stdout` is; it is used on the main thread
    around one function at a time.
    """
    tape = _Tape(limit, on_write)
    outer = sys.stdout, sys.stderr
    sys.stdout = sys.stderr = tape
    try:
        yield tape.text
    finally:
        sys.stdout, sys.stderr = outer
