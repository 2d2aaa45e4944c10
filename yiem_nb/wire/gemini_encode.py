"""Messages and tools → a request to Google's ``streamGenerateContent`` (pure).

The model's name is in the address, not in the body.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
from yiem_nb.models import Model, ThinkingLevel
from yiem_nb.tools import AgentTool
from yiem_nb.wire.compat import Compat, RequestOptions, nearest_level, thinking_budget
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
    """Build the body of a request."""
    options = options or RequestOptions()
    compat = Compat.of(model.compat)
    body: dict[str, Any] = {
        "contents": _turns(prepared(messages, model, call_id=plain_id(_MAX_CALL_ID)))
    }
    if system_prompt:
        body["systemInstruction"] = {"parts": [{"text": sendable(system_prompt)}]}
    if tools and compat.tools_mode != "none":
        body["tools"] = [{"functionDeclarations": [_tool(tool) for tool in tools.values()]}]
        if options.tool_choice is not None:
            config = {"functionCallingConfig": _tool_choice(options.tool_choice)}
            body["toolConfig"] = config
    settings = _settings(model, compat, options)
    if settings:
        body["generationConfig"] = settings
    body.update(compat.extra_body)
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


def _settings(model: Model, compat: Compat, options: RequestOptions) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    if options.max_tokens is not None:
        settings["maxOutputTokens"] = options.max_tokens
    if options.temperature is not None:
        settings["temperature"] = options.temperature
    level = options.thinking_level
    if model.reasoning and level != ThinkingLevel.OFF:
        limit = options.max_tokens or model.max_tokens
        settings["thinkingConfig"] = {"includeThoughts": True} | (
            {"thinkingLevel": nearest_level(level, compat.efforts)}
            if compat.thinking_style == "effort"
            else {"thinkingBudget": thinking_budget(level, limit)}
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
