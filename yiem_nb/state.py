"""State is a fold: ``reduce(state, event)``, and nothing else changes it (SPEC-1.1, SP-019, SP-020)."""

from __future__ import annotations

import json
import warnings
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from yiem_nb.events import (
    AbortSignal,
    AgentEndEvent,
    AgentEvent,
    AgentStartEvent,
    CompactionEndEvent,
    MessageEndEvent,
    MessageStartEvent,
    MessageUpdateEvent,
    RetryEvent,
    ToolExecutionEndEvent,
    ToolExecutionStartEvent,
)
from yiem_nb.messages import (
    AgentMessage,
    AgentToolCall,
    AssistantMessage,
    MessageContent,
    ReasoningContent,
    TextContent,
)
from yiem_nb.models import Model, ThinkingLevel
from yiem_nb.tools import AgentTool

__all__ = [
    "AgentContext",
    "AgentState",
    "Deltas",
    "StreamEvent",
    "StreamFn",
    "compacted",
    "reduce",
    "tools_by_name",
]


@dataclass(frozen=True, slots=True)
class AgentContext:
    """What one request is made of (SP-019)."""

    system_prompt: str = ""
    messages: tuple[AgentMessage, ...] = ()
    tools: dict[str, AgentTool] | None = None
    #: The JSON schema that the last answer must fit; ``None`` where it may be anything.
    output_schema: Mapping[str, Any] | None = None


StreamEvent: TypeAlias = MessageUpdateEvent | RetryEvent | AssistantMessage
#: ``stream_fn(model, context, thinking_level, signal)`` yields deltas (and retries), then exactly one
#: `AssistantMessage`. A request that fails ends in a message with ``stop_reason`` ERROR or
#: ABORTED that keeps what had arrived; it does not raise. If it raises all the same, the loop
#: makes that message itself.
StreamFn: TypeAlias = Callable[
    [Model, AgentContext, ThinkingLevel, AbortSignal], AsyncIterator[StreamEvent]
]


class Deltas:
    """The deltas of a streaming message: append-only, shared by successive states.

    Appending returns a new value in constant time. Older values stay valid, because each knows
    its own length and the shared list only grows at its end.
    """

    __slots__ = ("_items", "_length", "start")

    def __init__(
        self,
        start: AssistantMessage,
        items: list[MessageUpdateEvent] | None = None,
        length: int = 0,
    ) -> None:
        self.start = start
        self._items = items if items is not None else []
        self._length = length

    def append(self, delta: MessageUpdateEvent) -> Deltas:
        """Return these deltas and one more."""
        owned = len(self._items) == self._length
        items = self._items if owned else self._items[: self._length]
        items.append(delta)
        return Deltas(self.start, items, self._length + 1)

    def message(self) -> AssistantMessage:
        """Build the message as far as it has arrived; a call without whole arguments is incomplete."""
        blocks: dict[int, list[MessageUpdateEvent]] = {}
        for delta in self._items[: self._length]:
            blocks.setdefault(delta.index, []).append(delta)
        content = tuple(_block(blocks[index]) for index in sorted(blocks))
        return self.start.model_copy(update={"content": content})

    def __len__(self) -> int:
        return self._length


def _block(deltas: list[MessageUpdateEvent]) -> MessageContent:
    text = "".join(delta.text for delta in deltas)
    kind = deltas[0].kind
    if kind == "text":
        return TextContent.model_validate({"type": "text", "text": text})
    if kind == "thinking":
        return ReasoningContent(text)
    call_id = next((delta.id for delta in deltas if delta.id), "")
    name = next((delta.name for delta in deltas if delta.name), "")
    try:
        arguments = json.loads(text)
    except ValueError:
        arguments = None
    if isinstance(arguments, dict):
        return AgentToolCall(call_id, name, arguments)
    return AgentToolCall(call_id, name, raw_arguments=text, incomplete=True)


@dataclass(frozen=True, slots=True)
class AgentState:
    """All that is true of an agent now (SPEC-1.1, SP-020)."""

    system_prompt: str = ""
    model: Model | None = None
    thinking_level: ThinkingLevel = ThinkingLevel.OFF
    tools: dict[str, AgentTool] = field(default_factory=dict)
    messages: tuple[AgentMessage, ...] = ()
    is_streaming: bool = False
    deltas: Deltas | None = None
    pending_tool_calls: tuple[str, ...] = ()
    error_message: str | None = None

    @property
    def streaming_message(self) -> AssistantMessage | None:
        """The message that is arriving, as far as it has."""
        return self.deltas.message() if self.deltas is not None else None


def tools_by_name(
    tools: Iterable[AgentTool] | Mapping[str, AgentTool] | None,
) -> dict[str, AgentTool]:
    """Tools by name in order of insertion; the second of a name replaces the first, and that is said."""
    if tools is None:
        return {}
    if isinstance(tools, Mapping):
        return dict(tools)
    found: dict[str, AgentTool] = {}
    for tool in tools:
        if tool.name in found and found[tool.name] is not tool:
            text = f"Two tools are named {tool.name!r}; the model is offered the second."
            warnings.warn(text, stacklevel=3)
        found[tool.name] = tool
    return found


def reduce(state: AgentState, event: AgentEvent) -> AgentState:
    """Return the state after `event`."""
    # The order is that of frequency: a run is mostly deltas.
    if isinstance(event, MessageUpdateEvent):
        if state.deltas is None:
            return state
        return replace(state, deltas=state.deltas.append(event))
    handler = _HANDLERS.get(type(event))
    return handler(state, event) if handler is not None else state


def _message_start(state: AgentState, event: MessageStartEvent) -> AgentState:
    if isinstance(event.message, AssistantMessage):
        return replace(state, deltas=Deltas(event.message))
    return state


def _message_end(state: AgentState, event: MessageEndEvent) -> AgentState:
    messages = (*state.messages, event.message)
    if not isinstance(event.message, AssistantMessage):
        return replace(state, messages=messages)
    error = event.message.error_message or state.error_message
    return replace(state, messages=messages, deltas=None, error_message=error)


def _tool_start(state: AgentState, event: ToolExecutionStartEvent) -> AgentState:
    if event.tool_call_id in state.pending_tool_calls:
        return state
    return replace(state, pending_tool_calls=(*state.pending_tool_calls, event.tool_call_id))


def _tool_end(state: AgentState, event: ToolExecutionEndEvent) -> AgentState:
    pending = tuple(call for call in state.pending_tool_calls if call != event.tool_call_id)
    return replace(state, pending_tool_calls=pending)


def _agent_start(state: AgentState, event: AgentStartEvent) -> AgentState:
    return replace(state, is_streaming=True, error_message=None)


def _agent_end(state: AgentState, event: AgentEndEvent) -> AgentState:
    return replace(state, is_streaming=False, deltas=None, pending_tool_calls=())


def compacted(
    messages: Sequence[AgentMessage], event: CompactionEndEvent
) -> tuple[AgentMessage, ...]:
    """Return the conversation as it is after a compaction."""
    if event.message is None:
        return tuple(messages)
    return (event.message, *messages[len(messages) - event.kept :])


def _compaction_end(state: AgentState, event: CompactionEndEvent) -> AgentState:
    return replace(state, messages=compacted(state.messages, event))


_HANDLERS: dict[type, Callable[[AgentState, Any], AgentState]] = {
    AgentStartEvent: _agent_start,
    AgentEndEvent: _agent_end,
    CompactionEndEvent: _compaction_end,
    MessageStartEvent: _message_start,
    MessageEndEvent: _message_end,
    ToolExecutionStartEvent: _tool_start,
    ToolExecutionEndEvent: _tool_end,
}
