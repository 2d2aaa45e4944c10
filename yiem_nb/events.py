"""What moves: the events of a run, the signal that stops it, and who listens.

Events are transient and small; a delta carries only what is new. They are plain frozen
dataclasses because a run makes thousands of them. The eight of SPEC-5.1 come first, then
streaming and our own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, TypeAlias

from yiem_nb.messages import (
    AgentMessage,
    AgentToolResult,
    AssistantMessage,
    ToolResultMessage,
    Usage,
    UserMessage,
)

__all__ = [
    "CALLEE_RAISES",
    "AbortSignal",
    "Aborted",
    "AgentEndEvent",
    "AgentEvent",
    "AgentStartEvent",
    "CompactionEndEvent",
    "CompactionStartEvent",
    "DeltaKind",
    "Listener",
    "MessageEndEvent",
    "MessageStartEvent",
    "MessageUpdateEvent",
    "QueueUpdateEvent",
    "RetryEvent",
    "SessionEvent",
    "ToolApprovalEndEvent",
    "ToolApprovalRequestEvent",
    "ToolExecutionEndEvent",
    "ToolExecutionStartEvent",
    "ToolExecutionUpdateEvent",
    "TurnEndEvent",
    "TurnStartEvent",
    "is_own_cancellation",
]


@dataclass(frozen=True, slots=True)
class AgentStartEvent:
    """A run begins."""

    type: Literal["agent_start"] = field(default="agent_start", init=False)


@dataclass(frozen=True, slots=True)
class AgentEndEvent:
    """A run is over; `messages` are those it added, prompts included."""

    messages: tuple[AgentMessage, ...]
    type: Literal["agent_end"] = field(default="agent_end", init=False)


@dataclass(frozen=True, slots=True)
class TurnStartEvent:
    """One request and its tools begin."""

    type: Literal["turn_start"] = field(default="turn_start", init=False)


@dataclass(frozen=True, slots=True)
class TurnEndEvent:
    """The turn is over; results are in the order of the calls."""

    message: AssistantMessage
    tool_results: tuple[ToolResultMessage, ...]
    type: Literal["turn_end"] = field(default="turn_end", init=False)


@dataclass(frozen=True, slots=True)
class MessageStartEvent:
    """A message begins; a streaming one is empty yet."""

    message: AgentMessage
    type: Literal["message_start"] = field(default="message_start", init=False)


@dataclass(frozen=True, slots=True)
class MessageEndEvent:
    """The message is complete and will not change."""

    message: AgentMessage
    type: Literal["message_end"] = field(default="message_end", init=False)


@dataclass(frozen=True, slots=True)
class ToolExecutionStartEvent:
    """A call is about to be prepared; `args` are the model's own, before validation."""

    tool_call_id: str
    tool_name: str
    args: dict[str, Any]
    type: Literal["tool_execution_start"] = field(default="tool_execution_start", init=False)


@dataclass(frozen=True, slots=True)
class ToolExecutionEndEvent:
    """The call has its result."""

    tool_call_id: str
    tool_name: str
    result: AgentToolResult
    is_error: bool
    type: Literal["tool_execution_end"] = field(default="tool_execution_end", init=False)


DeltaKind: TypeAlias = Literal["text", "thinking", "toolCall"]


@dataclass(frozen=True, slots=True)
class MessageUpdateEvent:
    """One delta of the streaming message.

    `index` is the block's place in the content. For a tool call `text` is argument JSON as it
    arrives, and `id` and `name` say whose it is as soon as they are known.
    """

    index: int
    kind: DeltaKind
    text: str
    id: str = ""
    name: str = ""
    type: Literal["message_update"] = field(default="message_update", init=False)


@dataclass(frozen=True, slots=True)
class ToolExecutionUpdateEvent:
    """Progress of a running call."""

    tool_call_id: str
    tool_name: str
    partial_result: AgentToolResult
    type: Literal["tool_execution_update"] = field(default="tool_execution_update", init=False)


@dataclass(frozen=True, slots=True)
class ToolApprovalRequestEvent:
    """A call waits for a person's leave; an answer must name the `nonce`."""

    tool_call_id: str
    tool_name: str
    args: dict[str, Any]
    nonce: str = ""
    reason: str = ""
    offers_session: bool = True
    problem: str = ""
    type: Literal["tool_approval_request"] = field(default="tool_approval_request", init=False)


@dataclass(frozen=True, slots=True)
class ToolApprovalEndEvent:
    """The person has decided; `args` are those the person put in place of the model's."""

    tool_call_id: str
    tool_name: str
    approved: bool
    reason: str = ""
    args: dict[str, Any] | None = None
    type: Literal["tool_approval_end"] = field(default="tool_approval_end", init=False)


@dataclass(frozen=True, slots=True)
class RetryEvent:
    """A request failed and is sent again after `delay` seconds."""

    attempt: int
    delay: float
    reason: str
    type: Literal["retry"] = field(default="retry", init=False)


@dataclass(frozen=True, slots=True)
class CompactionStartEvent:
    """Older messages are being summarised."""

    reason: str = ""
    type: Literal["compaction_start"] = field(default="compaction_start", init=False)


@dataclass(frozen=True, slots=True)
class CompactionEndEvent:
    """The summary is in place, or could not be made.

    The conversation is `message` and the last `kept` messages from now on; where `message` is
    ``None`` it is as it was, and `error_message` says why. Tokens are estimates.
    """

    message: UserMessage | None = None
    kept: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
    usage: Usage | None = None
    error_message: str | None = None
    type: Literal["compaction_end"] = field(default="compaction_end", init=False)


@dataclass(frozen=True, slots=True)
class QueueUpdateEvent:
    """What waits to be said."""

    steering: tuple[AgentMessage, ...]
    follow_up: tuple[AgentMessage, ...]
    type: Literal["queue_update"] = field(default="queue_update", init=False)


@dataclass(frozen=True, slots=True)
class SessionEvent:
    """The tree changed: the leaf moved, a label or the name was set."""

    change: Literal["leaf", "label", "name", "storage"]
    entry_id: str | None = None
    value: str | None = None
    type: Literal["session"] = field(default="session", init=False)


AgentEvent: TypeAlias = (
    AgentStartEvent
    | AgentEndEvent
    | TurnStartEvent
    | TurnEndEvent
    | MessageStartEvent
    | MessageEndEvent
    | ToolExecutionStartEvent
    | ToolExecutionEndEvent
    | MessageUpdateEvent
    | ToolExecutionUpdateEvent
    | ToolApprovalRequestEvent
    | ToolApprovalEndEvent
    | RetryEvent
    | CompactionStartEvent
    | CompactionEndEvent
    | QueueUpdateEvent
    | SessionEvent
)


class Aborted(Exception):
    """Raised inside a guarded wait once its signal has fired."""


class AbortSignal:
    """Says whether, and why, a run was stopped (SP-022).

    May be fired from any thread, once. Coroutines wait with ``await signal`` or protect one of
    their waits with ``with signal.guard(): await …``, which ends at once with `Aborted`;
    threads use `wait`; anyone may call `raise_if_aborted` between two steps.
    """

    __slots__ = ("_event", "_guards", "_reason")

    def __init__(self, aborted: bool = False, reason: str | None = None) -> None:
        self._event = threading.Event()
        # Guards of one task are nested; only the innermost is interrupted.
        self._guards: dict[asyncio.Task[Any], list[_Guard]] = {}
        self._reason: str | None = None
        if aborted:
            self.abort(reason)

    @property
    def aborted(self) -> bool:
        """Whether it has fired."""
        return self._event.is_set()

    @property
    def reason(self) -> str | None:
        """Why, in a few words."""
        return self._reason

    def abort(self, reason: str | None = None) -> None:
        """Fire the signal; a second time changes nothing."""
        if self._event.is_set():
            return
        self._reason = reason
        self._event.set()
        for task, guards in tuple(self._guards.items()):
            # The guard may be left before its loop comes to this: it looks again then.
            task.get_loop().call_soon_threadsafe(_fire_innermost, guards)

    def guard(self) -> _Guard:
        """Protect the waits in a ``with`` block of the running task."""
        return _Guard(self)

    def raise_if_aborted(self) -> None:
        """Raise `Aborted` if the signal has fired."""
        if self._event.is_set():
            raise Aborted(self._reason or "stopped")

    def wait(self, timeout: float | None = None) -> bool:
        """Block this thread until the signal fires, at most `timeout` seconds."""
        return self._event.wait(timeout)

    def __await__(self) -> Generator[Any, None, None]:
        return self._wait().__await__()

    async def _wait(self) -> None:
        try:
            with self.guard():
                await asyncio.get_running_loop().create_future()
        except Aborted:
            return

    def __repr__(self) -> str:
        return f"AbortSignal(aborted={self.aborted}, reason={self._reason!r})"


def _fire_innermost(guards: list[_Guard]) -> None:
    if guards:
        guards[-1].fire()


class _Guard:
    """Turns a fired signal into `Aborted` for the task inside, as `asyncio.timeout` does."""

    __slots__ = ("_fired", "_signal", "_task")

    def __init__(self, signal: AbortSignal) -> None:
        self._signal = signal
        self._fired = False

    def __enter__(self) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("AbortSignal.guard() needs a running task")
        self._task = task
        guards = self._signal._guards
        guards.setdefault(task, []).append(self)
        # Registered first, checked second: a signal fired in between is seen by one of the two.
        if self._signal.aborted:
            self._leave()
            self._signal.raise_if_aborted()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._leave()
        if not self._fired:
            return
        others = self._task.uncancel()
        if not others and kind is not None and issubclass(kind, asyncio.CancelledError):
            raise Aborted(self._signal.reason or "stopped") from None

    def _leave(self) -> None:
        nested = self._signal._guards[self._task]
        nested.remove(self)
        if not nested:
            del self._signal._guards[self._task]

    def fire(self) -> None:
        """Interrupt the wait, once: two threads may fire the signal at the same time."""
        if not self._fired:
            self._fired = True
            self._task.cancel()


#: What code that is not ours may raise and the run must survive. In a task, SystemExit and
#: KeyboardInterrupt would end the whole loop, and a CancelledError would pass for our own.
CALLEE_RAISES = (Exception, SystemExit, KeyboardInterrupt, asyncio.CancelledError)


def is_own_cancellation(error: BaseException) -> bool:
    """Whether `error` is the running task being cancelled, not something its callee raised."""
    task = asyncio.current_task()
    cancelling = task is not None and task.cancelling() > 0
    return cancelling and isinstance(error, asyncio.CancelledError)


Listener: TypeAlias = Callable[[AgentEvent, AbortSignal], Awaitable[None] | None]
