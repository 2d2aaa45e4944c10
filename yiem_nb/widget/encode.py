"""Events as a browser is sent them (pure).

Only what shows something new is sent, and nothing is larger than a page can bear: a text of a tool is
clipped at `MAX_TEXT`, and the session file keeps the whole.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from yiem_nb.events import (
    AgentEndEvent,
    AgentEvent,
    MessageStartEvent,
    MessageUpdateEvent,
    QueueUpdateEvent,
    SessionEvent,
    ToolExecutionUpdateEvent,
    TurnEndEvent,
    TurnStartEvent,
)
from yiem_nb.messages import AssistantMessage
from yiem_nb.render.text import clipped

__all__ = ["MAX_TEXT", "encoded", "is_shown", "sendable"]

#: Longer texts of tools and prompts are clipped.
MAX_TEXT = 200_000
#: So much of what a running call has printed is sent.
MAX_PROGRESS = 2_000
#: 2 MB of picture, as Base64.
MAX_IMAGE = 2_800_000
_KEPT_DETAILS = ("code", "summary", "output")
_SURROGATES = re.compile(r"[\ud800-\udfff]")


def is_shown(event: AgentEvent) -> bool:
    """Whether a page needs to hear of it; deltas have a way of their own."""
    if isinstance(event, MessageStartEvent):
        return isinstance(event.message, AssistantMessage)
    return not isinstance(
        event, TurnStartEvent | TurnEndEvent | MessageUpdateEvent | QueueUpdateEvent | SessionEvent
    )


def encoded(event: AgentEvent) -> dict[str, Any]:
    """Return an event as JSON: camelCase names, absent instead of null."""
    if isinstance(event, AgentEndEvent):
        return {"type": "agent_end", "messages": []}
    if isinstance(event, ToolExecutionUpdateEvent):
        # Each says all that was printed so far: its end is what is new, and the call's end brings it all.
        text = event.partial_result.text[-MAX_PROGRESS:]
        return {
            "type": event.type,
            "toolCallId": event.tool_call_id,
            "toolName": event.tool_name,
            "partialResult": {"content": [{"type": "text", "text": text}], "isError": False},
        }
    whole: dict[str, Any] = {
        to_camel(field.name): _plain(getattr(event, field.name))
        for field in dataclasses.fields(event)
    }
    return whole


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        written = value.model_dump(mode="json", by_alias=True, exclude_none=True)
        return written if isinstance(value, AssistantMessage) else _bounded(written)
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool | type(None)) else repr(value)


def _bounded(message: dict[str, Any]) -> dict[str, Any]:
    """Clip what is too long for a page; of a result's details keep what is shown."""
    details = message.get("details")
    if details is not None:
        kept = details if isinstance(details, dict) else {}
        message["details"] = {
            name: clipped(str(kept[name]), MAX_TEXT) for name in _KEPT_DETAILS if kept.get(name)
        }
    message["content"] = [_bounded_block(block) for block in message.get("content", ())]
    return message


def _bounded_block(block: dict[str, Any]) -> dict[str, Any]:
    if block.get("type") == "image" and len(str(block.get("data", ""))) > MAX_IMAGE:
        return {"type": "text", "text": "(a picture too large to show here)"}
    if isinstance(block.get("text"), str):
        return block | {"text": clipped(block["text"], MAX_TEXT)}
    return block


def sendable(value: Any) -> Any:
    """Join halves of surrogate pairs, and replace those that stand alone: UTF-8 has none."""
    if isinstance(value, str):
        if not _SURROGATES.search(value):
            return value
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, dict):
        return {sendable(key): sendable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [sendable(item) for item in value]
    return value
