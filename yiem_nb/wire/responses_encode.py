"""Messages and tools → a request to OpenAI's responses (pure)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from yiem_nb.messages import (
    AgentMessage,
    AgentToolCall,
    AssistantMessage,
    ImageContent,
    MessageContent,
    ReasoningContent,
    TextContent,
    ToolResultMessage,
)
from yiem_nb.models import Model, ThinkingLevel
from yiem_nb.tools import AgentTool
from yiem_nb.wire.compat import Compat, RequestOptions, nearest_level
from yiem_nb.wire.history import plain_id, prepared, sendable

__all__ = ["encode"]

_MAX_CALL_ID = 64


def encode(
    system_prompt: str,
    messages: Sequence[AgentMessage],
    tools: Mapping[str, AgentTool] | None,
    model: Model,
    options: RequestOptions | None = None,
) -> dict[str, Any]:
    """Build the body of a streaming request; nothing is stored on the provider's side."""
    options = options or RequestOptions()
    compat = Compat.of(model.compat)
    body: dict[str, Any] = {
        "model": model.id,
        "input": [
            item
            for message in prepared(messages, model, call_id=plain_id(_MAX_CALL_ID))
            for item in _items(message)
        ],
        "stream": True,
        "store": False,
    }
    if system_prompt:
        body["instructions"] = sendable(system_prompt)
    if tools and compat.tools_mode != "none":
        body["tools"] = [_tool(tool) for tool in tools.values()]
        if options.tool_choice is not None:
            body["tool_choice"] = _tool_choice(options.tool_choice)
    if options.max_tokens is not None:
        body["max_output_tokens"] = options.max_tokens
    if options.temperature is not None:
        body["temperature"] = options.temperature
    if model.reasoning:
        body["include"] = ["reasoning.encrypted_content"]
        if options.thinking_level != ThinkingLevel.OFF:
            effort = nearest_level(options.thinking_level, compat.efforts)
            body["reasoning"] = {"effort": effort, "summary": "auto"}
    body.update(compat.extra_body)
    return body


def _tool(tool: AgentTool) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": False,
    }


def _tool_choice(choice: str) -> Any:
    if choice in ("auto", "none", "required"):
        return choice
    return {"type": "function", "name": choice}


def _items(message: AgentMessage) -> list[dict[str, Any]]:
    if isinstance(message, ToolResultMessage):
        return [
            {
                "type": "function_call_output",
                "call_id": message.tool_call_id,
                "output": _output(message.content),
            }
        ]
    if isinstance(message, AssistantMessage):
        return [item for block in message.content if (item := _item(block)) is not None]
    return [{"type": "message", "role": "user", "content": _parts(message.content)}]


def _output(content: Sequence[MessageContent]) -> Any:
    """Encode a result: as plain text where it is text alone, which is all that some servers take."""
    if all(isinstance(block, TextContent) for block in content):
        return "\n".join(block.text for block in content if isinstance(block, TextContent))
    return _parts(content)


def _parts(content: Sequence[MessageContent]) -> list[dict[str, Any]]:
    return [_part(block) for block in content]


def _part(block: MessageContent) -> dict[str, Any]:
    if isinstance(block, ImageContent):
        url = f"data:{block.mime_type};base64,{block.data}"
        return {"type": "input_image", "image_url": url}
    # A prepared history holds nothing else here.
    assert isinstance(block, TextContent)
    return {"type": "input_text", "text": block.text}


def _item(block: MessageContent) -> dict[str, Any] | None:
    if isinstance(block, TextContent):
        part = {"type": "output_text", "text": block.text}
        return {"type": "message", "role": "assistant", "content": [part]}
    if isinstance(block, AgentToolCall):
        return {
            "type": "function_call",
            "call_id": block.id,
            "name": block.name,
            "arguments": sendable(json.dumps(block.arguments, ensure_ascii=False)),
        }
    if not isinstance(block, ReasoningContent) or not (block.signature and block.item_id):
        # Without its encrypted content a thought would be looked for on the server, in vain.
        return None
    summary = [{"type": "summary_text", "text": block.text}] if block.text else []
    return {
        "type": "reasoning",
        "id": block.item_id,
        "summary": summary,
        "encrypted_content": block.signature,
    }
