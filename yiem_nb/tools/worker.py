"""Calling a blocking function from a coroutine, in a thread that cannot hold the process."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["call_in_thread"]

_T = TypeVar("_T")


async def call_in_thread(function: Callable[..., _T], *args: Any) -> _T:
    """Run ``function(*args)`` in a daemon thread with this task's context variables.

    A thread cannot be killed. When the waiting task is cancelled the thread runs on and its
    outcome is dropped; being a daemon it does not keep the process alive (`asyncio.to_thread`'s
    workers do).
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_T] = loop.create_future()
    context = contextvars.copy_context()

    def settle(outcome: _T | None, error: BaseException | None) -> None:
        if future.cancelled():
            return
        if error is None:
            future.set_result(outcome)  # type: ignore[arg-type]
        elif isinstance(error, StopIteration | GeneratorExit):
            # Either would end the coroutine that awaits, as if it had returned or been closed.
            future.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))
        else:
            future.set_exception(error)

    def work() -> None:
        try:
            outcome, error = context.run(function, *args), None
        except BaseException as raised:  # noqa: BLE001 - delivered to the waiting task
            outcome, error = None, raised
        try:
            loop.call_soon_threadsafe(settle, outcome, error)
        except RuntimeError:
            return  # the loop is closed: nobody waits any more

    threading.Thread(target=work, daemon=True, name=f"yiem-{_name(function)}").start()
    return await future


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)
