"""What a notebook function prints belongs to its card; what it displays stays where it is.

Whose print it is says a context variable, so that functions that run at the same time, in threads of
their own, each have their prints, and a thread of an earlier cell keeps its cell.
"""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

__all__ = ["Tape", "captured_prints"]

#: How much is kept of what is printed: the beginning, and the end of the rest. 100 MB must not fill
#: the memory.
MAX_CHARACTERS = 2_000_000
_TAIL = 100_000


class Tape:
    """Keeps what is written, up to a limit; read it from any thread."""

    def __init__(self, limit: int = MAX_CHARACTERS) -> None:
        self._head: list[str] = []
        self._tail = ""
        self._room = limit
        self._most_tail = min(_TAIL, limit)
        #: Characters written so far.
        self.length = 0

    def write(self, text: str) -> int:
        """Keep `text`, or count what of it there is no room for."""
        self.length += len(text)
        kept = text[: self._room]
        if kept:
            self._head.append(kept)
            self._room -= len(kept)
        if len(kept) < len(text):
            self._tail = (self._tail + text[len(kept) :])[-self._most_tail :]
        return len(text)

    def text(self) -> str:
        """Return what was kept, with a note where something is missing."""
        head, tail = "".join(tuple(self._head)), self._tail
        missing = self.length - len(head) - len(tail)
        note = f"\n… {missing:,} more characters were printed …\n" if missing > 0 else ""
        return f"{head}{note}{tail}"


_tape: ContextVar[Tape | None] = ContextVar("yiem_tape", default=None)


class _Router(io.TextIOBase):
    """Stands in place of a standard stream: what a captured function prints goes to its tape."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        tape = _tape.get()
        if tape is not None:
            return tape.write(text)
        written: int = self.stream.write(text)
        return written

    def flush(self) -> None:
        if _tape.get() is None:
            self.stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class _Streams:
    """Puts routers in place while anything is captured."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._routers: dict[str, _Router] = {}

    @contextmanager
    def routed(self) -> Iterator[None]:
        with self._lock:
            self._users += 1
            if self._users == 1:
                for name in ("stdout", "stderr"):
                    self._routers[name] = _Router(getattr(sys, name))
            for name, router in self._routers.items():
                # Someone else's redirection may have come between; prints of ours go to us.
                if getattr(sys, name) is not router:
                    router.stream = getattr(sys, name)
                    setattr(sys, name, router)
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    for name, router in self._routers.items():
                        setattr(sys, name, router.stream)


_streams = _Streams()


@contextmanager
def captured_prints(tape: Tape) -> Iterator[None]:
    """Keep on `tape` what this context prints in the block, to stdout and stderr in one order.

    Threads see a copy of the context they were started with by us; those that a function starts
    itself print into the cell.
    """
    with _streams.routed():
        token = _tape.set(tape)
        try:
            yield
        finally:
            _tape.reset(token)
