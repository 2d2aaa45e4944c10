"""Telling listeners what happens, without ever waiting for one (SPEC-5.2).

Each listener gets the events in order through a queue of its own, so listeners run concurrently
with each other and a slow or failing one delays nobody. For it alone, waiting deltas of one block
are joined; everything else is kept.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from yiem_nb.errors import redact
from yiem_nb.events import (
    CALLEE_RAISES,
    AbortSignal,
    AgentEvent,
    Listener,
    MessageUpdateEvent,
    is_own_cancellation,
)

__all__ = ["Subscription", "subscribe"]

_log = logging.getLogger("yiem_nb")


@dataclass(slots=True)
class _Joined:
    """Deltas of one block that wait together."""

    first: MessageUpdateEvent
    texts: list[str] = field(default_factory=list)

    def takes(self, event: MessageUpdateEvent) -> bool:
        return (event.index, event.kind) == (self.first.index, self.first.kind) and (
            not event.id or event.id == self.first.id
        )

    def event(self) -> MessageUpdateEvent:
        first = self.first
        if len(self.texts) == 1:
            return first
        text = "".join(self.texts)
        return MessageUpdateEvent(first.index, first.kind, text, first.id, first.name)


class Subscription:
    """One listener and what waits for it."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._waiting: deque[tuple[AgentEvent | _Joined, AbortSignal]] = deque()
        self._lock = threading.Lock()
        self._open = True
        self._reported = False

    def put(self, event: AgentEvent, signal: AbortSignal) -> None:
        """Queue an event, joining it to a waiting delta of the same block."""
        if not self._open:
            return
        with self._lock:
            if isinstance(event, MessageUpdateEvent):
                last = self._waiting[-1][0] if self._waiting else None
                if isinstance(last, _Joined) and last.takes(event):
                    last.texts.append(event.text)
                    return
                self._waiting.append((_Joined(event, [event.text]), signal))
            else:
                self._waiting.append((event, signal))
        self._wake()

    def close(self) -> None:
        """Deliver nothing more."""
        self._open = False
        self._wake()

    def _take(self) -> tuple[AgentEvent, AbortSignal] | None:
        with self._lock:
            if not self._waiting:
                return None
            item, signal = self._waiting.popleft()
        return (item.event() if isinstance(item, _Joined) else item), signal

    def _report(self, error: BaseException) -> None:
        """Say once that this listener fails; the run goes on."""
        if not self._reported:
            self._reported = True
            name = getattr(self._listener, "__qualname__", repr(self._listener))
            _log.error("The listener %s failed: %s", name, redact(repr(error)))

    def _wake(self) -> None:
        raise NotImplementedError


class _AsyncSubscription(Subscription):
    """An async listener: a task on the loop it was subscribed on."""

    def __init__(self, listener: Listener) -> None:
        super().__init__(listener)
        self._ready = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._deliver())

    def _wake(self) -> None:
        try:
            on_loop = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            on_loop = False
        if on_loop:
            self._ready.set()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._ready.set)

    async def _deliver(self) -> None:
        while self._open:
            await self._ready.wait()
            self._ready.clear()
            while self._open and (item := self._take()) is not None:
                try:
                    result = self._listener(*item)
                    if inspect.isawaitable(result):
                        await result
                except CALLEE_RAISES as error:
                    if is_own_cancellation(error):
                        raise
                    self._report(error)


class _ThreadSubscription(Subscription):
    """A plain function: a daemon thread of its own, in the context it was subscribed in."""

    def __init__(self, listener: Listener) -> None:
        super().__init__(listener)
        self._ready = threading.Semaphore(0)
        context = contextvars.copy_context()
        target: Any = context.run
        threading.Thread(
            target=target, args=(self._deliver,), daemon=True, name="yiem-listener"
        ).start()

    def _wake(self) -> None:
        self._ready.release()

    def _deliver(self) -> None:
        while self._open:
            self._ready.acquire()
            while self._open and (item := self._take()) is not None:
                try:
                    self._listener(*item)
                except BaseException as error:  # noqa: BLE001 - its failure is its own
                    self._report(error)


def subscribe(listener: Listener) -> Subscription:
    """Start delivering to `listener`; an async one needs a running loop."""
    call = getattr(listener, "__call__", None)  # noqa: B004 - an object with an async __call__
    if inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(call):
        return _AsyncSubscription(listener)
    return _ThreadSubscription(listener)
