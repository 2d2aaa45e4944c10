"""Messages and tools → a request to Ollama's own chat (pure).

Its compatible endpoint has no field for the length of the context, and a longer conversation is cut
without a word; this one has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from yiem_nb.messages import (
    AgentMessage,
    AssistantMessage,
    ImageContent,
    TextContent,
    ToolResultMessage,
)
from yiem_nb.models import Model, ThinkingLevel
from yiem_nb.tools import AgentTool
from yiem_nb.wire.compat import Compat, RequestOptions
from yiem_nb.wire.history import prepared, sendable, short_id
from yiem_nb.wire.openai_encode import MAX_CALL_ID, encode_tool

__all__ = ["encode"]


def encode(
    system_prompt: str,
    messages: Sequence[AgentMessage],
    tools: Mapping[str, AgentTool] | None,
    model: Model,
    options: RequestOptions | None = None,
) -> dict[str, Any]:
    """Build the body of a streaming request."""
    options = options or RequestOptions()
    compat = Compat.of(model.compat)
    settings: dict[str, Any] = {"num_ctx": model.context_window}
    if options.max_tokens is not None:
        settings["num_predict"] = options.max_tokens
    if options.temperature is not None:
        settings["temperature"] = options.temperature
    body: dict[str, Any] = {
        "model": model.id,
        "messages": _messages(prepared(messages, model, call_id=short_id(MAX_CALL_ID))),
        "stream": True,
        "options": settings,
    }
    if system_prompt:
        body["messages"].insert(0, {"role": "system", "content": sendable(system_prompt)})
    if tools and compat.tools_mode != "none":
        body["tools"] = [encode_tool(tool) for tool in tools.values()]
    if model.reasoning:
        body["think"] = options.thinking_level != ThinkingLevel.OFF
    body.update(compat.extra_body)
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
