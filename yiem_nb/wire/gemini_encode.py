"""Messages and tools → a request to Google's ``streamGenerateContent`` (pure).

The model's name is in the address, not in the body.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from yiem_nb.messages import (
    AgentMessage,
    AgentToolCall,
    AssistantMessage,
    ImageContent,
    MessageContent,
    TextContent,
    ToolResultMessage,
)
from yiem_nb.tools import AgentTool
from yiem_nb.wire.asked import Asked
from yiem_nb.wire.compat import nearest_level, thinking_budget
from yiem_nb.wire.history import plain_id

__all__ = ["CALL_ID", "body"]

CALL_ID = plain_id(64)


def body(asked: Asked) -> dict[str, Any]:
    """Build the body of a request."""
    body: dict[str, Any] = {"contents": _turns(asked.messages)}
    if asked.system:
        body["systemInstruction"] = {"parts": [{"text": asked.system}]}
    if asked.tools:
        body["tools"] = [{"functionDeclarations": [_tool(tool) for tool in asked.tools]}]
    if asked.tool_choice is not None:
        body["toolConfig"] = {"functionCallingConfig": _tool_choice(asked.tool_choice)}
    settings = _settings(asked)
    if settings:
        body["generationConfig"] = settings
    return body


def _tool(tool: AgentTool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "parametersJsonSchema": tool.parameters,
    }


def _tool_choice(choice: str) -> dict[str, Any]:
    modes = {"auto": "AUTO", "none": "NONE", "required": "ANY"}
    if choice in modes:
        return {"mode": modes[choice]}
    return {"mode": "ANY", "allowedFunctionNames": [choice]}


def _settings(asked: Asked) -> dict[str, Any]:
    settings = asked.numbers("maxOutputTokens")
    # Beside functions it is refused; the words in the prompt must do.
    if asked.output is not None and not asked.tools:
        settings |= {
            "responseMimeType": "application/json",
            "responseJsonSchema": asked.output[0],
        }
    if asked.level:
        limit = asked.options.max_tokens or asked.model.max_tokens
        settings["thinkingConfig"] = {"includeThoughts": True} | (
            {"thinkingLevel": nearest_level(asked.level, asked.compat.efforts)}
            if asked.compat.thinking_style == "effort"
            else {"thinkingBudget": thinking_budget(asked.level, limit)}
        )
    return settings


def _turns(messages: Iterable[AgentMessage]) -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = []
    for message in messages:
        role = "model" if isinstance(message, AssistantMessage) else "user"
        if not turns or turns[-1]["role"] != role:
            turns.append({"role": role, "parts": []})
        turns[-1]["parts"] += _parts(message)
    return turns


def _parts(message: AgentMessage) -> list[dict[str, Any]]:
    parts = [part for block in message.content if (part := _part(block)) is not None]
    if not isinstance(message, ToolResultMessage):
        return parts
    text = "\n".join(part["text"] for part in parts if "text" in part)
    response = {"name": message.tool_name, "id": message.tool_call_id}
    said = {"error" if message.is_error else "output": text}
    images = [part for part in parts if "inlineData" in part]
    return [{"functionResponse": response | {"response": said}}, *images]


def _part(block: MessageContent) -> dict[str, Any] | None:
    if isinstance(block, TextContent):
        return {"text": block.text}
    if isinstance(block, ImageContent):
        return {"inlineData": {"mimeType": block.mime_type, "data": block.data}}
    if not isinstance(block, AgentToolCall):
        return None
    call = {"functionCall": {"id": block.id, "name": block.name, "args": block.arguments}}
    return call | ({"thoughtSignature": block.signature} if block.signature else {})
