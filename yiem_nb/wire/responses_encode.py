"""Messages and tools → a request to OpenAI's responses (pure)."""

from __future__ import annotations

import json
from collections.abc import Sequence
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
from yiem_nb.tools import AgentTool
from yiem_nb.wire.asked import Asked
from yiem_nb.wire.compat import nearest_level
from yiem_nb.wire.history import plain_id, sendable

__all__ = ["CALL_ID", "body"]

CALL_ID = plain_id(64)


def body(asked: Asked) -> dict[str, Any]:
    """Build the body of a streaming request; nothing is stored on the provider's side."""
    body: dict[str, Any] = {
        "model": asked.model.id,
        "input": [item for message in asked.messages for item in _items(message)],
        "stream": True,
        "store": False,
    }
    if asked.system:
        body["instructions"] = asked.system
    if asked.tools:
        body["tools"] = [_tool(tool) for tool in asked.tools]
    if asked.tool_choice is not None:
        body["tool_choice"] = _tool_choice(asked.tool_choice)
    if asked.output is not None:
        schema, strict = asked.output
        named = {"type": "json_schema", "name": "answer", "strict": strict, "schema": schema}
        body["text"] = {"format": named}
    body.update(asked.numbers("max_output_tokens"))
    if asked.model.reasoning:
        body["include"] = ["reasoning.encrypted_content"]
    if asked.level:
        effort = nearest_level(asked.level, asked.compat.efforts)
        body["reasoning"] = {"effort": effort, "summary": "auto"}
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
