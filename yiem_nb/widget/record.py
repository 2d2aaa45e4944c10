"""A turn as it happened: its events, numbered, and the text that is arriving (pure)."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from yiem_nb.events import (
    AgentEndEvent,
    AgentEvent,
    AgentStartEvent,
    MessageEndEvent,
    MessageStartEvent,
    MessageUpdateEvent,
    ToolExecutionEndEvent,
    ToolExecutionStartEvent,
    ToolExecutionUpdateEvent,
)
from yiem_nb.messages import (
    AgentMessage,
    AgentToolResult,
    AssistantMessage,
    ToolResultMessage,
    UserMessage,
)
from yiem_nb.widget.encode import encoded, is_shown, sendable
from yiem_nb.widget.protocol import (
    BlockMessage,
    DeltaMessage,
    EventMessage,
    OpenBlockSnapshot,
    StampedEvent,
    TurnHeight,
    TurnOrigin,
    TurnSnapshot,
)

__all__ = ["TurnRecord", "past_turns"]

_HIGH = ("\ud800", "\udbff")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class _OpenText:
    """One block of the streaming message."""

    kind: Any
    id: str = ""
    name: str = ""
    parts: list[str] = field(default_factory=list)
    #: Code points that were sent, and what was not yet.
    sent: int = 0
    waiting: list[str] = field(default_factory=list)

    def take(self, event: MessageUpdateEvent) -> None:
        self.id = self.id or event.id
        self.name = self.name or event.name
        self.waiting.append(event.text)

    def fresh(self) -> str:
        """Return what may be sent now; half a surrogate pair waits for the other half."""
        text = "".join(self.waiting)
        self.waiting.clear()
        if text and _HIGH[0] <= text[-1] <= _HIGH[1]:
            self.waiting.append(text[-1])
            text = text[:-1]
        fit: str = sendable(text)
        self.parts.append(fit)
        return fit

    @property
    def text(self) -> str:
        if len(self.parts) > 1:
            self.parts = ["".join(self.parts)]
        return self.parts[0] if self.parts else ""


class TurnRecord:
    """What a browser is told of one turn, and can be told again.

    Parameters
    ----------
    origin, cell, label, waiting
        Where the prompt came from, which model answers, and what is said until it does.
    clock
        Milliseconds since 1970.
    """

    def __init__(
        self,
        origin: TurnOrigin,
        cell: str | None,
        label: str,
        waiting: str = "",
        clock: Callable[[], int] = _now_ms,
    ) -> None:
        self.id = uuid.uuid4().hex[:12]
        self.origin = origin
        self.cell = cell
        self.label = label
        self.waiting = waiting
        self.done = False
        self.ended_at = 0.0
        self._clock = clock
        self._events: list[StampedEvent] = []
        self._message = 0
        self._open: dict[int, _OpenText] = {}

    @property
    def count(self) -> int:
        """How many events there are."""
        return len(self._events)

    def take(self, event: AgentEvent) -> list[EventMessage | DeltaMessage | BlockMessage]:
        """Keep an event; return what must be said at once. Text waits for `deltas`."""
        if isinstance(event, MessageUpdateEvent):
            return self._delta(event)
        if not is_shown(event):
            return []
        said: list[EventMessage | DeltaMessage | BlockMessage] = []
        if isinstance(event, MessageEndEvent):
            if isinstance(event.message, ToolResultMessage) and not event.message.aborted:
                return []  # its execution's end has said it
            if isinstance(event.message, AssistantMessage):
                self._message, self._open = 0, {}
        elif isinstance(event, AgentEndEvent):
            self.done, self.ended_at = True, time.monotonic()
            self._message, self._open = 0, {}
        if isinstance(event, ToolExecutionUpdateEvent | ToolExecutionEndEvent):
            self._forget_progress(event.tool_call_id)
        stamped = StampedEvent(n=self.count + 1, t=self._clock(), e=sendable(encoded(event)))
        self._events.append(stamped)
        if isinstance(event, MessageStartEvent):
            self._message, self._open = stamped["n"], {}
        said.append(
            EventMessage(
                kind="ev",
                turn=self.id,
                origin=self.origin,
                cell=self.cell,
                label=self.label,
                waiting=self.waiting,
                n=stamped["n"],
                t=stamped["t"],
                e=stamped["e"],
            )
        )
        return said

    def _forget_progress(self, call_id: str) -> None:
        """Empty what a call said before of what it had printed: what comes says it again."""
        for stamped in reversed(self._events):
            e = stamped["e"]
            if e.get("toolCallId") == call_id:
                if e["type"] == "tool_execution_update":
                    stamped["e"] = e | {"partialResult": {"content": [], "isError": False}}
                return

    def _delta(self, event: MessageUpdateEvent) -> list[EventMessage | DeltaMessage | BlockMessage]:
        if not self._message:
            return []
        block = self._open.get(event.index)
        said: list[EventMessage | DeltaMessage | BlockMessage] = []
        if block is None:
            if self._open:
                # Another block begins, so the newest one is whole.
                index = max(self._open)
                said += [*self._pieces(index), self._whole(index)]
            block = self._open[event.index] = _OpenText(event.kind)
        block.take(event)
        return said

    def deltas(self) -> list[DeltaMessage]:
        """Return the text that was not sent yet."""
        return [piece for index in self._open for piece in self._pieces(index)]

    def _pieces(self, index: int) -> Iterator[DeltaMessage]:
        block = self._open[index]
        text = block.fresh() if block.waiting else ""
        if not text:
            return
        offset, block.sent = block.sent, block.sent + len(text)
        yield DeltaMessage(
            kind="d",
            turn=self.id,
            message=self._message,
            block=index,
            what=block.kind,
            off=offset,
            txt=text,
            id=block.id,
            name=block.name,
        )

    def _whole(self, index: int) -> BlockMessage:
        block = self._open[index]
        return BlockMessage(
            kind="blk",
            turn=self.id,
            message=self._message,
            block=index,
            what=block.kind,
            text=block.text,
            id=block.id,
            name=block.name,
        )

    def height(self) -> TurnHeight:
        """Say how much there is."""
        sizes = {str(index): block.sent for index, block in self._open.items()}
        return TurnHeight(turn=self.id, n=self.count, message=self._message, open=sizes)

    def snapshot(self) -> TurnSnapshot:
        """Return all of it, but for text that is yet to be sent."""
        return TurnSnapshot(
            turn=self.id,
            origin=self.origin,
            cell=self.cell,
            label=self.label,
            waiting=self.waiting,
            events=list(self._events),
            message=self._message,
            open=[
                OpenBlockSnapshot(
                    block=index, kind=block.kind, text=block.text, id=block.id, name=block.name
                )
                for index, block in self._open.items()
            ],
            done=self.done,
        )


def past_turns(messages: Iterable[AgentMessage]) -> list[TurnRecord]:
    """Make records of a conversation that was kept: one for each prompt."""
    records: list[TurnRecord] = []
    for message in messages:
        if isinstance(message, UserMessage) or not records:
            if records:
                records[-1].take(AgentEndEvent(()))
            # Its own times: what was said long ago did not take until now.
            record = TurnRecord("chat", None, "", clock=_Stopped(message.timestamp))
            record.take(AgentStartEvent())
            records.append(record)
        record = records[-1]
        record._clock = _Stopped(message.timestamp)  # noqa: SLF001 - a record is built here
        for event in _events_of(message):
            record.take(event)
        if isinstance(message, AssistantMessage):
            record.label = message.model or record.label
    if records:
        records[-1].take(AgentEndEvent(()))
    return records


@dataclass(frozen=True, slots=True)
class _Stopped:
    """A clock that stands."""

    at: int

    def __call__(self) -> int:
        return self.at


def _events_of(message: AgentMessage) -> Iterator[AgentEvent]:
    if isinstance(message, ToolResultMessage):
        result = AgentToolResult.model_validate(
            {"content": message.content, "details": message.details, "is_error": message.is_error}
        )
        yield ToolExecutionEndEvent(
            message.tool_call_id, message.tool_name, result, message.is_error
        )
        if message.aborted:
            yield MessageEndEvent(message)
        return
    yield MessageEndEvent(message)
    if isinstance(message, AssistantMessage):
        for call in message.tool_calls:
            yield ToolExecutionStartEvent(call.id, call.name, call.arguments)
