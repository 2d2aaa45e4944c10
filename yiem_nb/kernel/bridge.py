"""Who runs where: the loop thread, the main thread, and the ways between them.

The agent runs on one daemon thread with an event loop of its own. Functions of the notebook run on
the main thread, because that is where their objects live and where prints, plots and `input` land
in the right cell. Where a call to the main thread goes is decided once, when a run is submitted,
and travels with the run in a context variable:

=============================  =====================  ============================================
the run was submitted by       calls are taken by     if the main thread is busy
=============================  =====================  ============================================
`Bridge.run_sync` (a cell      `_BlockedCell`         it serves: it is blocked in this very call
that blocks, a terminal, a
script, a tool that calls the
agent: nested)
`Bridge.run_async` (a cell     `_KernelLoop`          waits until the cell awaits
that awaits)
`Bridge.run_background`        `_KernelLoop`          waits until the running cell ends or awaits
=============================  =====================  ============================================
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from yiem_nb.errors import AgentBusyError, ErrorCode, ToolAbortedError, YiemError
from yiem_nb.kernel.interrupts import CellInterrupted, Insisted, Interrupts
from yiem_nb.kernel.runs import STOP_GRACE_SECONDS, LoopThread, Run

__all__ = ["Bridge", "CellInterrupted", "LoopThread", "Run", "call_main"]

T = TypeVar("T")

# --- Calls to the main thread --------------------------------------------------------------


@dataclass(slots=True)
class _Call:
    """One function on its way to the main thread and back."""

    function: Callable[[], Any]
    context: contextvars.Context
    future: asyncio.Future[Any]

    def run(self, interrupts: Interrupts) -> None:
        """Run it here, on the main thread; whatever it raises goes back to the caller."""
        if self.future.done():
            return  # nobody waits for it any more: the run was stopped
        result: Any = None
        error: BaseException | None = None
        try:
            # Assignments in a try, no context manager: an interrupt between two lines of one
            # would leave the flag up.
            try:
                interrupts.raising = True
                result = self.context.run(self.function)
            finally:
                interrupts.raising = False
        except (KeyboardInterrupt, Insisted):
            error = ToolAbortedError("Interrupted")
        except BaseException as raised:  # noqa: BLE001 - a tool's SystemExit must not end the kernel
            error = _sendable(raised)
        self.future.get_loop().call_soon_threadsafe(self._settle, result, error)

    def refuse(self) -> None:
        """Tell the caller that nobody will run it."""
        error = ToolAbortedError("The cell that this call belongs to has ended.")
        self.future.get_loop().call_soon_threadsafe(self._settle, None, error)

    def _settle(self, result: Any, error: BaseException | None) -> None:
        if self.future.done():
            return
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(result)


def _sendable(error: BaseException) -> BaseException:
    """Wrap StopIteration, which a future refuses: it would end the coroutine that awaits it."""
    return RuntimeError(f"StopIteration: {error}") if isinstance(error, StopIteration) else error


class _BlockedCell:
    """The main thread, blocked in `run_sync`, takes calls from a queue."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._open = True

    def take(self, call: _Call) -> None:
        with self._lock:
            if self._open:
                self._calls.put(call)
                return
        call.refuse()

    def next(self, timeout: float | None) -> _Call | None:
        """Wait for the next call; ``None`` when woken or when the time is over."""
        try:
            return self._calls.get(timeout=timeout)
        except queue.Empty:
            return None

    def wake(self) -> None:
        """Let `next` return; safe in a signal handler (`SimpleQueue.put` is reentrant)."""
        self._calls.put(None)

    def close(self) -> None:
        """Refuse what still waits and all that comes."""
        with self._lock:
            self._open = False
            while not self._calls.empty():
                call = self._calls.get()
                if call is not None:
                    call.refuse()


class _KernelLoop:
    """The main thread's own event loop takes calls between its other work."""

    def __init__(self, loop: asyncio.AbstractEventLoop, interrupts: Interrupts) -> None:
        self._loop = loop
        self._interrupts = interrupts

    def take(self, call: _Call) -> None:
        self._loop.call_soon_threadsafe(call.run, self._interrupts)


_taker: contextvars.ContextVar[_BlockedCell | _KernelLoop | None] = contextvars.ContextVar(
    "yiem_main_thread", default=None
)


async def call_main(function: Callable[[], T]) -> T:
    """Run `function` on the main thread and return what it returns.

    Called from a task on the loop thread; the function sees that task's context variables, so its
    output lands in the cell the run belongs to. Functions run one after the other, in the order
    of the calls.

    Raises
    ------
    ToolAbortedError
        The function was interrupted, or its cell has ended.
    YiemError
        There is no main thread to call: the run was not submitted through a `Bridge`.
    """
    taker = _taker.get()
    if taker is None:
        raise YiemError(
            "This function wants the main thread, but nothing serves it here.",
            hint="Prompt from a cell, or give the tool thread=True.",
            code=ErrorCode.KERNEL_UNAVAILABLE,
        )
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    taker.take(_Call(function, contextvars.copy_context(), future))
    return await future


# --- The bridge ----------------------------------------------------------------------------


class Bridge:
    """The one way from the main thread to the agent's loop and back.

    Parameters
    ----------
    pump
        Called on the main thread every `pump_interval` seconds while a cell blocks; what an old
        kernel needs to hear its front end meanwhile.
    """

    def __init__(
        self, *, pump: Callable[[], None] | None = None, pump_interval: float = 0.05
    ) -> None:
        self.thread = LoopThread()
        self._pump = pump
        self._pump_interval = pump_interval

    def run_sync(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run ``make()`` on the loop thread and serve its calls here until it is over.

        Raises
        ------
        CellInterrupted
            The kernel was interrupted; the run has settled, or is left to settle if it has not
            within `STOP_GRACE_SECONDS` or a second interrupt came.
        AgentBusyError
            Called on the loop thread itself, where waiting would never end.
        """
        if self.thread.is_current():
            raise AgentBusyError(
                "The agent cannot wait for itself on its own thread.", hint="Await it instead."
            )
        cell = _BlockedCell()
        run = self._new_run(make, cell, cell.wake)

        def stop() -> None:
            run.stop()
            cell.wake()

        interrupts = Interrupts(stop)
        with interrupts.installed():
            run.submit()
            self._serve(run, cell, interrupts)
        cell.close()
        return _outcome(run, interrupts)

    async def run_async(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Await ``make()`` from a cell; its calls to the main thread run on the cell's own loop.

        An idle `await` in a kernel is deaf to interrupts (its selector is not woken), so the
        interrupt is handled here while this waits.
        """
        here = asyncio.get_running_loop()
        over = asyncio.Event()

        def stop() -> None:
            run.stop()
            patience = STOP_GRACE_SECONDS if interrupts.count == 1 else 0
            here.call_soon_threadsafe(here.call_later, patience, over.set)

        interrupts = Interrupts(stop)
        taker = _KernelLoop(here, interrupts)
        run = self._new_run(make, taker, lambda: here.call_soon_threadsafe(over.set))
        with interrupts.installed():
            run.submit()
            try:
                await over.wait()
            except asyncio.CancelledError:
                run.stop()
                with suppress(TimeoutError):
                    async with asyncio.timeout(STOP_GRACE_SECONDS):
                        await over.wait()
                raise
        return _outcome(run, interrupts)

    def run_background(
        self,
        make: Callable[[], Coroutine[Any, Any, T]],
        main_loop: asyncio.AbstractEventLoop,
        on_done: Callable[[], object] = lambda: None,
    ) -> Run[T]:
        """Start ``make()`` and return at once; its calls wait for `main_loop` to be free."""
        interrupts = Interrupts(lambda: None)
        run = self._new_run(make, _KernelLoop(main_loop, interrupts), on_done)
        run.submit()
        return run

    def _new_run(
        self,
        make: Callable[[], Coroutine[Any, Any, T]],
        taker: _BlockedCell | _KernelLoop,
        on_done: Callable[[], object],
    ) -> Run[T]:
        context = contextvars.copy_context()
        context.run(_taker.set, taker)
        return Run(make, self.thread.loop, context, on_done)

    def _serve(self, run: Run[T], cell: _BlockedCell, interrupts: Interrupts) -> None:
        """Take calls until the run is over, or until waiting for it after a stop makes no sense."""
        deadline: float | None = None
        while not run.done:
            if interrupts.count and deadline is None:
                deadline = time.monotonic() + STOP_GRACE_SECONDS
            if interrupts.count > 1 or (deadline is not None and time.monotonic() > deadline):
                return
            call = cell.next(self._patience(deadline))
            if call is not None:
                call.run(interrupts)
            elif self._pump is not None:
                self._pump()

    def _patience(self, deadline: float | None) -> float | None:
        if self._pump is not None:
            return self._pump_interval
        return None if deadline is None else max(deadline - time.monotonic(), 0.01)


def _outcome(run: Run[T], interrupts: Interrupts) -> T:
    if interrupts.count:
        state = "stopped" if run.done else "still stopping"
        raise CellInterrupted(f"■ interrupted; the agent is {state}")
    return run.result()
