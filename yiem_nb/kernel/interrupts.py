"""SIGINT while a run holds the main thread: it asks, it does not raise.

While a run holds the main thread, SIGINT does not raise wherever the interpreter happens to be. It
asks the run to stop, and raises `KeyboardInterrupt` only inside a notebook function that is
running. So no line of the bridge can be torn by an interrupt: neither before the task exists nor
while its end is awaited, the two races of a handler that always raises.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["CellInterrupted", "Insisted", "Interrupts"]


class CellInterrupted(KeyboardInterrupt):
    """The kernel was interrupted while a run held the cell; shown as one line.

    A `KeyboardInterrupt`, so that the cells queued behind this one do not run, as with any
    interrupted cell.
    """

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


class Insisted(BaseException):
    """Raised by a second interrupt inside a function that swallowed the first.

    No `KeyboardInterrupt`, which such a function would swallow again.
    """


class Interrupts:
    """SIGINT while a run holds, or uses, the main thread.

    Runs nest (a tool may call the agent); an interrupt stops the inner and the outer ones.
    """

    #: The innermost one that is installed; only the main thread reads and writes it.
    _installed: Interrupts | None = None

    def __init__(self, on_interrupt: Callable[[], None]) -> None:
        self.on_interrupt = on_interrupt
        self.outer: Interrupts | None = None
        #: The handler it replaced.
        self._previous: Any = None
        #: Whether a notebook function runs, which an interrupt is to break.
        self.raising = False
        #: How often it happened.
        self.count = 0

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle SIGINT here; only the main thread can, elsewhere nothing changes."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self.outer = Interrupts._installed
        self._previous = signal.signal(signal.SIGINT, self._handle)
        Interrupts._installed = self
        try:
            yield
        finally:
            self._remove()

    def _remove(self) -> None:
        inner = Interrupts._installed
        if inner is self:
            Interrupts._installed = self.outer
            signal.signal(signal.SIGINT, self._previous)
            return
        # Runs that await may end in any order: the one above restores what this one would have.
        while inner is not None and inner.outer is not self:
            inner = inner.outer
        if inner is not None:
            inner.outer, inner._previous = self.outer, self._previous  # noqa: SLF001

    def _handle(self, number: int, frame: FrameType | None) -> None:
        level: Interrupts | None = self
        while level is not None:
            level.count += 1
            level.on_interrupt()
            level = level.outer
        if self.raising:
            raise KeyboardInterrupt if self.count == 1 else Insisted
