"""Messages and tools → a request to Ollama's own chat (pure).

Its compatible endpoint has no field for the length of the context, and a longer conversation is cut
without a word; this one has.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from yiem_nb.messages import (
    AgentMessage,
    AssistantMessage,
    ImageContent,
    TextContent,
    ToolResultMessage,
)
from yiem_nb.wire.asked import Asked
from yiem_nb.wire.openai_encode import CALL_ID, encode_tool

__all__ = ["CALL_ID", "body"]


def body(asked: Asked) -> dict[str, Any]:
    """Build the body of a streaming request."""
    settings = {"num_ctx": asked.model.context_window} | asked.numbers("num_predict")
    body: dict[str, Any] = {
        "model": asked.model.id,
        "messages": _messages(asked.messages),
        "stream": True,
        "options": settings,
    }
    if asked.system:
        body["messages"].insert(0, {"role": "system", "content": asked.system})
    if asked.tools:
        body["tools"] = [encode_tool(tool) for tool in asked.tools]
    if asked.output is not None and not asked.tools:
        body["format"] = asked.output[0]
    if asked.model.reasoning:
        body["think"] = bool(asked.level)
    return body


def _messages(messages: Iterable[AgentMessage]) -> list[dict[str, Any]]:
    """Encode the conversation; images of results follow their batch as the user's."""
    out: list[dict[str, Any]] = []
    images: list[str] = []
    for message in messages:
        encoded = _message(message)
        if isinstance(message, ToolResultMessage):
            images += encoded.pop("images", [])
        elif images:
            out.append(_shown(images))
            images = []
        out.append(encoded)
    return [*out, _shown(images)] if images else out


def _shown(images: list[str]) -> dict[str, Any]:
    return {"role": "user", "content": "Images returned by the tools above:", "images": images}


def _message(message: AgentMessage) -> dict[str, Any]:
    texts = [block.text for block in message.content if isinstance(block, TextContent)]
    images = [block.data for block in message.content if isinstance(block, ImageContent)]
    role = "tool" if isinstance(message, ToolResultMessage) else message.role
    encoded: dict[str, Any] = {"role": role, "content": "\n\n".join(texts)}
    if images:
        encoded["images"] = images
    if isinstance(message, ToolResultMessage):
        encoded["tool_name"] = message.tool_name
    elif isinstance(message, AssistantMessage) and message.tool_calls:
        encoded["tool_calls"] = [
            {"function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    return encoded
