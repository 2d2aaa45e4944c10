"""Messages and tools → a request to Anthropic's messages (pure)."""

from __future__ import annotations

from collections.abc import Iterable
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
from yiem_nb.wire.compat import nearest_level, thinking_budget
from yiem_nb.wire.history import plain_id

__all__ = ["CALL_ID", "body"]

CALL_ID = plain_id(64)
_CACHED = {"type": "ephemeral"}


def body(asked: Asked) -> dict[str, Any]:
    """Build the body of a streaming request."""
    limit = asked.options.max_tokens or asked.model.max_tokens
    body: dict[str, Any] = {
        "model": asked.model.id,
        "max_tokens": limit,
        "messages": _turns(asked.messages),
        "stream": True,
    }
    if asked.system:
        body["system"] = [{"type": "text", "text": asked.system}]
    if asked.tools:
        body["tools"] = [_tool(tool) for tool in asked.tools]
    elif any(isinstance(message, ToolResultMessage) for message in asked.messages):
        # A history with calls is refused where no tools are spoken of at all.
        body["tools"] = []
    if asked.tool_choice is not None:
        body["tool_choice"] = _tool_choice(asked.tool_choice)
    if not _calls_without_thought(body["messages"]):
        body.update(_thinking(asked, limit))
    if asked.output is not None and asked.output[1]:
        form = {"format": {"type": "json_schema", "schema": asked.output[0]}}
        body["output_config"] = body.get("output_config", {}) | form
    if "thinking" not in body and asked.options.temperature is not None:
        body["temperature"] = asked.options.temperature
    if asked.compat.prompt_cache:
        _mark_stable_prefixes(body)
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


def _thinking(asked: Asked, limit: int) -> dict[str, Any]:
    if not asked.level:
        return {}
    if asked.compat.thinking_style == "effort":
        effort = nearest_level(asked.level, asked.compat.efforts)
        return {"thinking": {"type": "adaptive"}, "output_config": {"effort": effort}}
    budget = thinking_budget(asked.level, limit)
    return {"thinking": {"type": "enabled", "budget_tokens": budget}} if budget else {}


def _calls_without_thought(turns: list[dict[str, Any]]) -> bool:
    """Whether results are sent of calls that another model, or this one without thinking, made.

    In the middle of such an exchange a request to think is refused.
    """
    if len(turns) < 2 or turns[-1]["content"][0]["type"] != "tool_result":
        return False
    return not str(turns[-2]["content"][0]["type"]).endswith("thinking")


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
