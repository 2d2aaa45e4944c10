"""The loop thread, and a run on its way through it."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

__all__ = ["STOP_GRACE_SECONDS", "LoopThread", "Run"]

T = TypeVar("T")

#: How long a cell waits for a stopped run before it ends without it.
STOP_GRACE_SECONDS = 2.0


class LoopThread:
    """The daemon thread that agents run on; started on first use, restarted in a forked child."""

    def __init__(self, name: str = "yiem-loop") -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The running loop."""
        with self._lock:
            if self._loop is None or self._thread is None or not self._thread.is_alive():
                self._start()
            assert self._loop is not None
            return self._loop

    def is_current(self) -> bool:
        """Whether the caller is on this thread."""
        return threading.current_thread() is self._thread

    def _start(self) -> None:
        loop = asyncio.new_event_loop()
        ready = threading.Event()

        def run() -> None:
            asyncio.set_event_loop(loop)
            loop.call_soon(ready.set)
            loop.run_forever()
            loop.close()

        self._loop = loop
        self._thread = threading.Thread(target=run, name=self._name, daemon=True)
        self._thread.start()
        ready.wait()

    def stop(self, timeout: float = STOP_GRACE_SECONDS) -> None:
        """Cancel what runs, then end the thread; bounded, for the end of the process."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None or not thread.is_alive():
            return
        asyncio.run_coroutine_threadsafe(_cancel_all(timeout / 2), loop)
        thread.join(timeout)
        if thread.is_alive():
            loop.call_soon_threadsafe(loop.stop)


async def _cancel_all(patience: float) -> None:
    """Cancel every other task, wait `patience` seconds for them, and stop the loop."""
    loop = asyncio.get_running_loop()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=patience)
    loop.stop()


class Run(Generic[T]):
    """A coroutine on its way through the loop thread.

    It waits, runs, and is done. Asked to stop while it still waits, it never begins: the
    coroutine is made by its first step, so that there is nothing to clean up before it.
    """

    def __init__(
        self,
        make: Callable[[], Coroutine[Any, Any, T]],
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context,
        on_done: Callable[[], object],
    ) -> None:
        self._make = make
        self._loop = loop
        self._context = context
        self._on_done = on_done
        self._task: asyncio.Task[T] | None = None
        self._stopped = False
        self._done = threading.Event()
        self._result: T | None = None
        self._error: BaseException | None = None

    @property
    def done(self) -> bool:
        """Whether it is over."""
        return self._done.is_set()

    def submit(self) -> None:
        """Start it on its loop, from any thread."""
        self._loop.call_soon_threadsafe(self._start)

    def stop(self) -> None:
        """Ask it to stop, from any thread and from a signal handler, any number of times."""
        self._stopped = True
        if not self.done:
            self._loop.call_soon_threadsafe(self._cancel)

    def wait(self, timeout: float | None = None) -> bool:
        """Block until it is over; say whether it is."""
        return self._done.wait(timeout)

    def result(self) -> T:
        """Return what it returned, or raise what it raised."""
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]

    def _start(self) -> None:
        if self._stopped:
            self._finish(None, asyncio.CancelledError("stopped before it began"))
            return
        self._task = self._loop.create_task(self._make(), context=self._context)
        self._task.add_done_callback(self._settle)

    def _cancel(self) -> None:
        # Once: a second cancellation would tear the settling that the first one began.
        if self._task is not None and not self._task.done() and not self._task.cancelling():
            self._task.cancel()

    def _settle(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self._finish(None, asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            self._finish(None, error)
        else:
            self._finish(task.result(), None)

    def _finish(self, result: T | None, error: BaseException | None) -> None:
        self._result, self._error = result, error
        self._done.set()
        self._on_done()
