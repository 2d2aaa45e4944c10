"""Messages and tools → a chat-completions request (pure; SP-011 … SP-016).

The ``encode_*`` functions do literally what the specification says. `body` builds a request from
them and then bends it to what servers accept, as the model's `Compat` says.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from yiem_nb.messages import (
    AgentMessage,
    AssistantMessage,
    ImageContent,
    MessageContent,
    ReasoningContent,
    TextContent,
    ToolResultMessage,
    UserMessage,
)
from yiem_nb.tools import AgentTool
from yiem_nb.wire.asked import Asked
from yiem_nb.wire.compat import Compat, nearest_level
from yiem_nb.wire.history import sendable, short_id
from yiem_nb.wire.schema_tools import add_schema

__all__ = [
    "CALL_ID",
    "body",
    "encode_assistant",
    "encode_content",
    "encode_system",
    "encode_tool",
    "encode_tool_result",
    "encode_user",
]

CALL_ID = short_id(40)


# --- The specification's rows --------------------------------------------------------------


def encode_system(prompt: str) -> dict[str, Any]:
    """Encode the system prompt (SP-011)."""
    return {"role": "system", "content": [{"type": "text", "text": prompt}]}


def encode_content(content: Iterable[MessageContent]) -> list[dict[str, Any]]:
    """Encode text and images (SP-012); other blocks have no form here."""
    blocks: list[dict[str, Any]] = []
    for block in content:
        if isinstance(block, TextContent):
            blocks.append({"type": "text", "text": block.text})
        elif isinstance(block, ImageContent):
            url = f"data:{block.mime_type};base64,{block.data}"
            blocks.append({"type": "image_url", "image_url": {"url": url}})
    return blocks


def encode_user(message: UserMessage) -> dict[str, Any]:
    """Encode what a person said (SP-012)."""
    return {"role": "user", "content": encode_content(message.content)}


def encode_assistant(message: AssistantMessage) -> dict[str, Any]:
    """Encode an answer (SP-014), or one that calls tools (SP-013).

    With calls, the content is null exactly when there is no text.
    """
    blocks = encode_content(message.content)
    if not message.tool_calls:
        return {"role": "assistant", "content": blocks}
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {
                "name": call.name,
                "arguments": sendable(json.dumps(call.arguments, ensure_ascii=False)),
            },
        }
        for call in message.tool_calls
    ]
    return {"role": "assistant", "content": blocks or None, "tool_calls": calls}


def encode_tool_result(message: ToolResultMessage) -> dict[str, Any]:
    """Encode a tool's result (SP-015)."""
    return {
        "role": "tool",
        "tool_call_id": message.tool_call_id,
        "content": encode_content(message.content),
    }


def encode_tool(tool: AgentTool) -> dict[str, Any]:
    """Encode a tool's definition (SP-016)."""
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
        },
    }


# --- A request that servers accept ---------------------------------------------------------


def body(asked: Asked) -> dict[str, Any]:
    """Build the body of a streaming request."""
    compat = asked.compat
    body: dict[str, Any] = {
        "model": asked.model.id,
        "messages": _Conversation(compat).encode(asked.system, asked.messages),
        "stream": True,
    }
    if compat.usage_in_stream:
        body["stream_options"] = {"include_usage": True}
    body.update(asked.numbers(compat.max_tokens_field))
    if asked.level and compat.reasoning_effort:
        body["reasoning_effort"] = nearest_level(asked.level, compat.efforts)
    if asked.output is not None:
        schema, strict = asked.output
        named = {"name": "answer", "strict": strict, "schema": schema}
        body["response_format"] = {"type": "json_schema", "json_schema": named}
    if asked.constrained:
        add_schema(body, asked.tools)
    elif asked.tools and compat.tools_mode == "native":
        body["tools"] = [encode_tool(tool) for tool in asked.tools]
        if asked.tool_choice is not None:
            body["tool_choice"] = _tool_choice(asked.tool_choice)
    return body


def _tool_choice(choice: str) -> Any:
    if choice in ("auto", "none", "required"):
        return choice
    return {"type": "function", "function": {"name": choice}}


class _Conversation:
    """Encodes a history: plain strings where there is only text, images where they are allowed."""

    def __init__(self, compat: Compat) -> None:
        self._compat = compat
        self._out: list[dict[str, Any]] = []
        # Images of results, which go into one user message behind the batch.
        self._images: list[dict[str, Any]] = []

    def encode(self, system: str, messages: Iterable[AgentMessage]) -> list[dict[str, Any]]:
        if system:
            self._out.append({"role": self._compat.system_role, "content": system})
        for message in messages:
            if isinstance(message, ToolResultMessage):
                self._result(message)
                continue
            self._show_images()
            if isinstance(message, AssistantMessage):
                self._out.append(self._answer(message))
            else:
                self._out.append({"role": "user", "content": _parts(message.content)})
        self._show_images()
        return self._out

    def _answer(self, message: AssistantMessage) -> dict[str, Any]:
        text = "".join(block.text for block in message.content if isinstance(block, TextContent))
        encoded = encode_assistant(message) | {"content": text}
        if message.tool_calls and not text and self._compat.null_content:
            encoded["content"] = None
        self._echo_reasoning(message, encoded)
        return encoded

    def _echo_reasoning(self, message: AssistantMessage, encoded: dict[str, Any]) -> None:
        """Send thoughts back in the field they came in; those of other models are gone by now."""
        required = self._compat.required_reasoning_field
        if required:
            encoded[required] = ""
        for block in message.content if self._compat.echo_reasoning else ():
            if isinstance(block, ReasoningContent) and block.field not in (None, "content"):
                field = str(block.field)
                encoded[field] = encoded.get(field, "") + block.text

    def _result(self, message: ToolResultMessage) -> None:
        parts = encode_content(message.content)
        images = [part for part in parts if part["type"] == "image_url"]
        self._images += images
        text = "\n".join(part["text"] for part in parts if part["type"] == "text")
        text = text or "(see the image below)"
        self._out.append(encode_tool_result(message) | {"content": text})

    def _show_images(self) -> None:
        if self._images:
            note = {"type": "text", "text": "Images returned by the tools above:"}
            self._out.append({"role": "user", "content": [note, *self._images]})
            self._images = []


def _parts(content: Iterable[MessageContent]) -> Any:
    """Encode content as plain text where it is text alone; many servers take nothing else."""
    parts = encode_content(content)
    if all(part["type"] == "text" for part in parts):
        return "\n\n".join(part["text"] for part in parts)
    return parts
