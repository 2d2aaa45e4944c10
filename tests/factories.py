"""Small things for tests about runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from yiem_nb.events import (
    AbortSignal,
    AgentEndEvent,
    AgentEvent,
    AgentStartEvent,
    MessageEndEvent,
    MessageStartEvent,
    MessageUpdateEvent,
    RetryEvent,
    ToolExecutionEndEvent,
    ToolExecutionStartEvent,
    ToolExecutionUpdateEvent,
    TurnEndEvent,
    TurnStartEvent,
)
from yiem_nb.loop import AgentLoopConfig, agent_loop
from yiem_nb.messages import (
    AgentMessage,
    AgentToolCall,
    AgentToolResult,
    AssistantMessage,
    UserMessage,
)
from yiem_nb.models import Model
from yiem_nb.providers import ScriptedProvider
from yiem_nb.state import AgentContext, StreamFn
from yiem_nb.tools import AgentTool

MODEL = Model(id="test-model", provider="test")


def call(id: str, name: str = "work", **arguments: Any) -> AgentToolCall:
    return AgentToolCall(id, name, arguments)


def tool(
    name: str = "work",
    execute: Callable[..., Any] | None = None,
    **more: Any,
) -> AgentTool:
    """A tool that answers ``ok``, or does what `execute` does."""

    async def ok(id: str, arguments: dict[str, Any], signal: AbortSignal, on_update: Any) -> Any:
        return AgentToolResult("ok")

    return AgentTool(name=name, description="Does work.", execute=execute or ok, **more)


async def run(
    turns: Sequence[Any],
    *,
    prompts: Sequence[AgentMessage] = (UserMessage("hi", 1),),
    tools: Sequence[AgentTool] = (),
    signal: AbortSignal | None = None,
    stream_fn: StreamFn | None = None,
    messages: Sequence[AgentMessage] = (),
    model: Model = MODEL,
    **config: Any,
) -> list[AgentEvent]:
    """Run the loop on a script and collect its events."""
    context = AgentContext("", tuple(messages), {tool.name: tool for tool in tools})
    return [
        event
        async for event in agent_loop(
            prompts,
            context,
            AgentLoopConfig(model, **config),
            signal or AbortSignal(),
            stream_fn or ScriptedProvider(turns, size=1000),
        )
    ]


def trace(events: Sequence[AgentEvent]) -> str:
    """The order of events in the notation of the reference: ``A{ T[ ms(user) … ]T(0) }A``."""
    return " ".join(_short(event) for event in events)


def _short(event: AgentEvent) -> str:
    match event:
        case AgentStartEvent():
            return "A{"
        case AgentEndEvent():
            return "}A"
        case TurnStartEvent():
            return "T["
        case TurnEndEvent():
            return f"]T({len(event.tool_results)})"
        case MessageStartEvent():
            return f"ms({_role(event.message)})"
        case MessageEndEvent():
            end = f":{event.message.stop_reason}" if _role(event.message) == "asst" else ""
            return f"me({_role(event.message)}{end})"
        case MessageUpdateEvent():
            return "u"
        case ToolExecutionStartEvent():
            return f"ts({event.tool_call_id})"
        case ToolExecutionUpdateEvent():
            return f"tu({event.tool_call_id})"
        case ToolExecutionEndEvent():
            return f"te({event.tool_call_id}{'!' if event.is_error else ''})"
        case RetryEvent():
            return "retry"
        case _:
            return type(event).__name__


def _role(message: AgentMessage) -> str:
    if message.role == "toolResult":
        return f"tr {message.tool_call_id}"
    return {"user": "user", "assistant": "asst"}[message.role]


def results(events: Sequence[AgentEvent]) -> dict[str, AgentToolResult]:
    """The result of each call."""
    return {e.tool_call_id: e.result for e in events if isinstance(e, ToolExecutionEndEvent)}


def answer(events: Sequence[AgentEvent]) -> AssistantMessage:
    """The last answer."""
    return [e.message for e in events if isinstance(e, TurnEndEvent)][-1]


def stream(*items: Any) -> StreamFn:
    """A stream function that yields `items`, raises those that are exceptions, waits at ``None``."""

    async def answer_with(*_: Any) -> AsyncIterator[Any]:
        for item in items:
            if item is None:
                await asyncio.get_running_loop().create_future()
            if isinstance(item, BaseException):
                raise item
            yield item

    return answer_with
