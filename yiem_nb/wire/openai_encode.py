"""Messages and tools → a chat-completions request (pure; SP-011 … SP-016).

The ``encode_*`` functions do literally what the specification says. `encode` builds a request from
them and then bends it to what servers accept: plain strings where there is only text, every call
answered, images where they are allowed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from yiem_nb.messages import (
    AgentMessage,
    AgentToolCall,
    AssistantMessage,
    ImageContent,
    MessageContent,
    ReasoningContent,
    StopReason,
    TextContent,
    ToolResultMessage,
    UserMessage,
)
from yiem_nb.models import Model
from yiem_nb.tools import AgentTool
from yiem_nb.wire.compat import Compat, RequestOptions
from yiem_nb.wire.schema_tools import add_schema, call_as_text, uses_schema

__all__ = [
    "encode",
    "encode_assistant",
    "encode_content",
    "encode_system",
    "encode_tool",
    "encode_tool_result",
    "encode_user",
]

NO_RESULT = "No result: the run was stopped before the tool finished."
NO_IMAGE = "[an image was left out: this model takes text only]"
MAX_CALL_ID = 40


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
                "arguments": json.dumps(call.arguments, ensure_ascii=False),
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
    offered = dict(tools or {}) if compat.tools_mode != "none" else {}
    emulated = compat.tools_mode == "json_schema"
    body: dict[str, Any] = {
        "model": model.id,
        "messages": _Conversation(model, compat, emulated=emulated).encode(system_prompt, messages),
        "stream": True,
    }
    if compat.usage_in_stream:
        body["stream_options"] = {"include_usage": True}
    if options.max_tokens is not None:
        body[compat.max_tokens_field] = options.max_tokens
    if options.temperature is not None:
        body["temperature"] = options.temperature
    if model.reasoning and compat.reasoning_effort and options.thinking_level != "off":
        body["reasoning_effort"] = options.thinking_level
    if uses_schema(messages, offered, compat):
        add_schema(body, offered.values())
    elif offered and not emulated:
        body["tools"] = [encode_tool(tool) for tool in offered.values()]
    body.update(compat.extra_body)
    return body


class _Conversation:
    """Encodes a history: each call answered, nothing empty, nothing a server refuses."""

    def __init__(self, model: Model, compat: Compat, *, emulated: bool) -> None:
        self._model = model
        self._compat = compat
        self._emulated = emulated
        self._takes_images = "image" in model.input
        self._out: list[dict[str, Any]] = []
        # Calls that still want a result, by their id, with the id that was sent.
        self._open: dict[str, str] = {}
        # Images of results, which go into one user message behind the batch.
        self._images: list[dict[str, Any]] = []

    def encode(self, system_prompt: str, messages: Sequence[AgentMessage]) -> list[dict[str, Any]]:
        if system_prompt:
            self._out.append({"role": self._compat.system_role, "content": system_prompt})
        for message in messages:
            if isinstance(message, ToolResultMessage):
                self._result(message)
                continue
            self._close_batch()
            if isinstance(message, AssistantMessage):
                self._answer(message)
            else:
                self._said(message)
        self._close_batch()
        return self._out

    def _said(self, message: UserMessage) -> None:
        content = self._parts(message.content)
        if content:
            self._out.append({"role": "user", "content": content})

    def _answer(self, message: AssistantMessage) -> None:
        """Encode an answer; of one that failed or was stopped its text alone.

        Its calls were not run, or not all, and their arguments may be cut.
        """
        failed = message.stop_reason in (StopReason.ERROR, StopReason.ABORTED)
        calls = () if failed else tuple(call for call in message.tool_calls if call.name)
        text = "".join(b.text for b in message.content if isinstance(b, TextContent))
        if not text and not calls:
            return
        if self._emulated:
            said = [text] if text else []
            said += [call_as_text(call) for call in calls]
            self._out.append({"role": "assistant", "content": "\n".join(said)})
            self._open.update({call.id: call.name for call in calls})
            return
        encoded: dict[str, Any] = {"role": "assistant", "content": text}
        if calls:
            encoded["tool_calls"] = [self._call(call) for call in calls]
            if not text and self._compat.null_content:
                encoded["content"] = None
        self._echo_reasoning(message, encoded)
        self._out.append(encoded)

    def _call(self, call: AgentToolCall) -> dict[str, Any]:
        sent = _call_id(call.id)
        self._open[call.id] = sent
        arguments = json.dumps(call.arguments, ensure_ascii=False)
        function = {"name": call.name, "arguments": arguments}
        return {"id": sent, "type": "function", "function": function}

    def _echo_reasoning(self, message: AssistantMessage, encoded: dict[str, Any]) -> None:
        """Send thoughts back only to the model that had them, in the field they came in."""
        mine = (message.provider, message.model) == (self._model.provider, self._model.id)
        if not (self._compat.echo_reasoning and mine):
            return
        for block in message.content:
            if isinstance(block, ReasoningContent) and block.field not in (None, "content"):
                field = str(block.field)
                encoded[field] = encoded.get(field, "") + block.text

    def _result(self, message: ToolResultMessage) -> None:
        sent = self._open.pop(message.tool_call_id, None)
        if sent is None:
            return  # its call was not sent: a result without a call is refused everywhere
        parts = encode_content(message.content)
        images = [part for part in parts if part["type"] == "image_url"]
        text = "\n".join(part["text"] for part in parts if part["type"] == "text")
        if images and not self._takes_images:
            text = f"{text}\n{NO_IMAGE}".strip()
        elif images:
            self._images.extend(images)
            text = text or "(see the image below)"
        self._answer_call(sent, text or "(no output)", message.is_error)

    def _answer_call(self, sent: str, text: str, is_error: bool) -> None:
        if self._emulated:
            what = "It failed" if is_error else "It returned"
            content = f"{what}: {text}\nAnswer my question with this."
            self._out.append({"role": "user", "content": content})
        else:
            self._out.append({"role": "tool", "tool_call_id": sent, "content": text})

    def _close_batch(self) -> None:
        """Answer the calls that have no result, then add the images of those that have one."""
        for sent in self._open.values():
            self._answer_call(sent, NO_RESULT, is_error=True)
        self._open.clear()
        if self._images:
            note = {"type": "text", "text": "Images returned by the tools above:"}
            self._out.append({"role": "user", "content": [note, *self._images]})
            self._images = []

    def _parts(self, content: Iterable[MessageContent]) -> Any:
        """Encode content as plain text where it is text alone; many servers take nothing else."""
        parts = [part for part in encode_content(content) if part.get("text") != ""]
        if not self._takes_images:
            parts = [
                part if part["type"] == "text" else {"type": "text", "text": NO_IMAGE}
                for part in parts
            ]
        if all(part["type"] == "text" for part in parts):
            return "\n\n".join(part["text"] for part in parts)
        return parts


def _call_id(call_id: str) -> str:
    """Shorten an id that a server would refuse, the same way for call and result."""
    if len(call_id) <= MAX_CALL_ID:
        return call_id
    return f"{call_id[:31]}_{hashlib.sha256(call_id.encode()).hexdigest()[:8]}"
