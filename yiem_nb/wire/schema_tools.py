"""Tool calls for servers that have none: a constrained answer, wrapped and unwrapped (pure).

A server that takes ``response_format: json_schema`` (llama.cpp, Ollama, LM Studio, vLLM) can be held
to ``{"reply": "…"}`` or ``{"tool": "…", "arguments": {…}}``. Even a model of 135 M parameters then
calls tools. The reply streams as text while it arrives.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from yiem_nb.messages import (
    AgentMessage,
    AgentToolCall,
    AssistantMessage,
    TextContent,
    ToolResultMessage,
    UserMessage,
)
from yiem_nb.tools import AgentTool
from yiem_nb.wire.builder import MessageBuilder
from yiem_nb.wire.compat import Compat
from yiem_nb.wire.json_args import loads, parse_arguments

__all__ = ["SchemaReply", "add_schema", "in_words", "plain_schema", "uses_schema"]

# --- The request ---------------------------------------------------------------------------


def uses_schema(messages: Sequence[AgentMessage], tools: Collection[str], compat: Compat) -> bool:
    """Whether the next answer is constrained.

    Not without tools, and not after a result where the model cannot chain calls.
    """
    if compat.tools_mode != "json_schema" or not tools:
        return False
    return compat.chain_calls or not (messages and isinstance(messages[-1], ToolResultMessage))


def add_schema(body: dict[str, Any], tools: Iterable[AgentTool]) -> None:
    """Describe the tools in the system message and constrain the answer."""
    tools = list(tools)
    lines = "\n".join(f"- {_signature(tool)}: {tool.description.splitlines()[0]}" for tool in tools)
    # The words were measured on a model of 135 M parameters: others make it reply where it should call.
    text = (
        f"You have these tools:\n{lines}\n"
        "Answer with one JSON object. If a tool can answer, use it: "
        '{"tool": name, "arguments": {...}}. Otherwise: {"reply": text}.'
    )
    messages = body["messages"]
    if messages and messages[0]["role"] in ("system", "developer"):
        messages[0] = messages[0] | {"content": f"{messages[0]['content']}\n\n{text}"}
    else:
        messages.insert(0, {"role": "system", "content": text})
    schema = {"anyOf": [*(_branch(tool) for tool in tools), _object({"reply": {"type": "string"}})]}
    body["response_format"] = {
        "type": "json_schema",
        "json_schema": {"name": "answer", "strict": True, "schema": schema},
    }


def in_words(messages: Sequence[AgentMessage]) -> list[AgentMessage]:
    """Return the history without calls: what they returned stands below the question they serve.

    Measured on a model of 135 M parameters: with the result in the question it answers from it; with
    calls and results as turns of their own it thanks for them.
    """
    out: list[AgentMessage] = []
    calls: dict[str, str] = {}
    for message in messages:
        if isinstance(message, AssistantMessage):
            calls |= {call.id: _in_words(call) for call in message.tool_calls}
            content = tuple(b for b in message.content if not isinstance(b, AgentToolCall))
            out.append(message.model_copy(update={"content": content}))
        elif isinstance(message, ToolResultMessage):
            called = calls.get(message.tool_call_id, f"{message.tool_name}()")
            what = "failed" if message.is_error else "returned"
            _below_question(out, f"{called} {what}: {message.text}")
        else:
            out.append(message)
    if messages and isinstance(messages[-1], ToolResultMessage):
        _below_question(out, "Answer the question with this result, in one sentence.")
        while out and isinstance(out[-1], AssistantMessage):
            del out[-1]
    return out


def _in_words(call: AgentToolCall) -> str:
    arguments = ", ".join(
        f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in call.arguments.items()
    )
    return f"{call.name}({arguments})"


def _below_question(messages: list[AgentMessage], text: str) -> None:
    """Add `text` to the newest message of the user."""
    for position in range(len(messages) - 1, -1, -1):
        message = messages[position]
        if isinstance(message, UserMessage):
            content = (*message.content, TextContent(text))
            messages[position] = message.model_copy(update={"content": content})
            return


def _branch(tool: AgentTool) -> dict[str, Any]:
    return _object({"tool": {"const": tool.name}, "arguments": plain_schema(tool.parameters)})


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _signature(tool: AgentTool) -> str:
    return f"{tool.name}({', '.join(tool.parameters.get('properties', {}))})"


_ANY: dict[str, Any] = {"type": ["string", "number", "boolean", "null", "array", "object"]}
_DEEPEST = 12
# What grammars are made of. The rest (titles, patterns, formats, tuples …) is left to the check that
# the arguments pass anyway before the tool runs.
_KEPT = {"type", "enum", "const", "required", "minItems", "maxItems", "minimum", "maximum"}


def plain_schema(schema: Any) -> dict[str, Any]:
    """Reduce a JSON schema to what llama.cpp turns into a grammar: no references, no rare keywords.

    What is dropped only widens the schema.
    """
    root = schema if isinstance(schema, Mapping) else {}
    plain = _plain(root, root, 0)
    return plain if plain.get("type") == "object" else {"type": "object"}


def _plain(schema: Any, root: Mapping[str, Any], depth: int) -> dict[str, Any]:
    schema = _resolved(schema, root)
    if schema is None or depth > _DEEPEST:
        return _ANY
    for union in ("anyOf", "oneOf"):
        if isinstance(schema.get(union), list):
            return {"anyOf": [_plain(choice, root, depth + 1) for choice in schema[union]]}
    plain = {name: value for name, value in schema.items() if name in _KEPT}
    if isinstance(schema.get("properties"), Mapping):
        plain["properties"] = {
            name: _plain(inner, root, depth + 1) for name, inner in schema["properties"].items()
        }
        plain.setdefault("type", "object")
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), Mapping):
            plain[name] = _plain(schema[name], root, depth + 1)
    if schema.get("additionalProperties") is False:
        plain["additionalProperties"] = False
    return plain if plain.keys() & {"type", "enum", "const"} else _ANY


def _resolved(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Follow references (at most a few: they may go round) and unwrap an ``allOf`` of one."""
    for _ in range(_DEEPEST):
        if not isinstance(schema, Mapping):
            return None
        wrapped = schema.get("allOf")
        if isinstance(wrapped, list) and len(wrapped) == 1:
            schema = wrapped[0]
        elif isinstance(schema.get("$ref"), str):
            schema = _at(root, schema["$ref"])
        else:
            return schema
    return None


def _at(root: Mapping[str, Any], reference: str) -> Any:
    node: Any = root
    for step in reference.removeprefix("#").strip("/").split("/"):
        node = node.get(step) if isinstance(node, Mapping) else None
    return node


# --- The answer ----------------------------------------------------------------------------

_REPLY_HEAD = '{"reply":"'
_STRING_PART = re.compile(r'(?:[^"\\]+|\\u[0-9a-fA-F]{4}|\\[^u])*')
_LONGEST_ESCAPE = len(r"\uffff")
_TOOL = re.compile(r'"tool"\s*:\s*"(\w+)"\s*(?:,\s*"arguments"\s*:\s*)?')


class SchemaReply:
    """Unwraps the constrained answer while it streams.

    Parameters
    ----------
    builder
        Where text and calls go.
    on_broken
        Called when the answer is not the JSON that was asked for; its text is kept as it is.
    """

    def __init__(self, builder: MessageBuilder, on_broken: Callable[[], None]) -> None:
        self._builder = builder
        self._on_broken = on_broken
        self._read: Callable[[str], None] = self._read_head
        self._held: list[str] = []

    def feed(self, text: str) -> None:
        """Take a piece."""
        self._read(text)

    def flush(self) -> None:
        """Read what was held back: a call, or a reply in an unusual form."""
        text, self._held = "".join(self._held), []
        if self._read in (self._read_head, self._hold) and text.strip():
            self._whole(text)

    def _read_head(self, text: str) -> None:
        self._held.append(text)
        head = "".join(self._held)
        squeezed = "".join(head.split())
        if _REPLY_HEAD.startswith(squeezed[: len(_REPLY_HEAD)]):
            if len(squeezed) < len(_REPLY_HEAD):
                return
            start = head.index('"', head.index(":")) + 1
            self._held, self._read = [], self._read_reply
            self._read_reply(head[start:])
        elif squeezed.startswith("{"):
            self._read = self._hold
        else:
            # The server did not constrain the answer: it is plain text.
            self._held, self._read = [], self._builder.text
            self._builder.text(head)

    def _hold(self, text: str) -> None:
        self._held.append(text)

    def _read_reply(self, text: str) -> None:
        text = "".join(self._held) + text
        self._held = []
        part = _STRING_PART.match(text)
        end = part.end() if part else 0
        self._builder.text(json.loads(f'"{text[:end]}"', strict=False))
        rest = text[end:]
        if rest.startswith('"'):
            self._read = self._ignore
        elif len(rest) < _LONGEST_ESCAPE:
            self._held = [rest]
        else:
            self._on_broken()
            self._read = self._builder.text
            self._builder.text(rest)

    def _ignore(self, text: str) -> None:
        """What follows the reply is a closing brace."""

    def _whole(self, text: str) -> None:
        try:
            value = loads(text)
        except ValueError:
            value = None
        if isinstance(value, dict) and isinstance(value.get("tool"), str):
            raw = value.get("arguments")
            arguments = parse_arguments(raw) if isinstance(raw, str) else raw
            if isinstance(arguments, dict | None):
                self._builder.call(name=value["tool"], arguments=arguments or {})
                return
        elif isinstance(value, dict) and isinstance(value.get("reply"), str):
            self._builder.text(value["reply"])
            return
        self._broken(text)

    def _broken(self, text: str) -> None:
        """Keep a call that was cut off as such, anything else as text."""
        begun = _TOOL.search(text)
        if begun:
            self._builder.call(name=begun[1], arguments=text[begun.end() :])
        else:
            self._on_broken()
            self._builder.text(text)
