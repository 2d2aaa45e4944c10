"""Messages and tools → a request to Anthropic's messages (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
from yiem_nb.wire.compat import Compat, RequestOptions, nearest_level, thinking_budget
from yiem_nb.wire.history import plain_id, prepared, sendable

__all__ = ["encode"]

_MAX_CALL_ID = 64
_CACHED = {"type": "ephemeral"}


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
    body: dict[str, Any] = {
        "model": model.id,
        "max_tokens": options.max_tokens or model.max_tokens,
        "messages": _turns(prepared(messages, model, call_id=plain_id(_MAX_CALL_ID))),
        "stream": True,
    }
    if system_prompt:
        body["system"] = [{"type": "text", "text": sendable(system_prompt)}]
    if tools and compat.tools_mode != "none":
        body["tools"] = [_tool(tool) for tool in tools.values()]
        if options.tool_choice is not None:
            body["tool_choice"] = _tool_choice(options.tool_choice)
    body.update(_thinking(model, compat, options, body["max_tokens"]))
    if "thinking" not in body and options.temperature is not None:
        body["temperature"] = options.temperature
    if compat.prompt_cache:
        _mark_stable_prefixes(body)
    body.update(compat.extra_body)
    return body


def _tool(tool: AgentTool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "input_schema": tool.parameters,
    }


def _tool_choice(choice: str) -> dict[str, Any]:
    if choice in ("auto", "none"):
        return {"type": choice}
    return {"type": "any"} if choice == "required" else {"type": "tool", "name": choice}


def _thinking(model: Model, compat: Compat, options: RequestOptions, limit: int) -> dict[str, Any]:
    level = options.thinking_level
    if not model.reasoning or level == ThinkingLevel.OFF:
        return {}
    if compat.thinking_style == "effort":
        effort = nearest_level(level, compat.efforts)
        return {"thinking": {"type": "adaptive"}, "output_config": {"effort": effort}}
    budget = thinking_budget(level, limit)
    return {"thinking": {"type": "enabled", "budget_tokens": budget}} if budget else {}


def _mark_stable_prefixes(body: dict[str, Any]) -> None:
    """Have the provider cache up to the system prompt, the tools and the newest message."""
    ends = [body.get("system"), body.get("tools")]
    ends += [message["content"] for message in body["messages"][-1:]]
    for blocks in ends:
        if blocks:
            blocks[-1] = blocks[-1] | {"cache_control": _CACHED}


# --- The conversation ----------------------------------------------------------------------


def _turns(messages: Iterable[AgentMessage]) -> list[dict[str, Any]]:
    """Encode the conversation as turns that alternate and begin with the user's."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        role = "assistant" if isinstance(message, AssistantMessage) else "user"
        if not turns and role == "assistant":
            turns.append({"role": "user", "content": [{"type": "text", "text": "(continued)"}]})
        if not turns or turns[-1]["role"] != role:
            turns.append({"role": role, "content": []})
        turns[-1]["content"] += _blocks(message)
    for turn in turns:
        # All results first: that is where they are looked for.
        turn["content"].sort(key=lambda block: block["type"] != "tool_result")
    return turns


def _blocks(message: AgentMessage) -> list[dict[str, Any]]:
    if isinstance(message, ToolResultMessage):
        return _result(message)
    return [encoded for block in message.content if (encoded := _block(block)) is not None]


def _result(message: ToolResultMessage) -> list[dict[str, Any]]:
    """Encode a result; images of one that failed are refused inside it and stand beside it."""
    content = [encoded for block in message.content if (encoded := _block(block)) is not None]
    result = {"type": "tool_result", "tool_use_id": message.tool_call_id, "content": content}
    if not message.is_error:
        return [result]
    result["content"] = [block for block in content if block["type"] == "text"]
    images = [block for block in content if block["type"] == "image"]
    return [result | {"is_error": True}, *images]


def _block(block: MessageContent) -> dict[str, Any] | None:
    if isinstance(block, TextContent):
        return {"type": "text", "text": block.text}
    if isinstance(block, ImageContent):
        source = {"type": "base64", "media_type": block.mime_type, "data": block.data}
        return {"type": "image", "source": source}
    if isinstance(block, AgentToolCall):
        return {"type": "tool_use", "id": block.id, "name": block.name, "input": block.arguments}
    if not isinstance(block, ReasoningContent) or not block.signature:
        # A thought that is not signed is refused.
        return None
    if block.redacted:
        return {"type": "redacted_thinking", "data": block.signature}
    return {"type": "thinking", "thinking": block.text, "signature": block.signature}
