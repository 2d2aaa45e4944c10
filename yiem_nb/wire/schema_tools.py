"""Tools for servers that have none but answer within a JSON schema (pure).

The request gets a schema with one branch for a reply and one for each tool; the answer is unwrapped
while it streams. A small model that cannot be trusted with a free format cannot leave this one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from yiem_nb.messages import AgentToolCall
from yiem_nb.tools import AgentTool

__all__ = ["SchemaAnswer", "add_schema", "call_as_json"]

_KEPT = (
    "type",
    "properties",
    "required",
    "items",
    "enum",
    "const",
    "anyOf",
    "oneOf",
    "minItems",
    "maxItems",
    "minimum",
    "maximum",
)


def add_schema(body: dict[str, Any], tools: Iterable[AgentTool]) -> None:
    """Describe the tools in the system message and constrain the answer."""
    tools = list(tools)
    lines = [f"- {_signature(tool)}: {tool.description.splitlines()[0]}" for tool in tools]
    text = (
        "Answer with JSON only.\n"
        'To answer the user: {"reply": "your answer"}\n'
        'To call a tool first: {"tool": "its name", "arguments": {…}}\n'
        "Tools:\n" + "\n".join(lines) + "\nCall a tool only when its result is needed."
    )
    messages = body["messages"]
    if messages and messages[0]["role"] in ("system", "developer"):
        messages[0] = messages[0] | {"content": f"{messages[0]['content']}\n\n{text}"}
    else:
        messages.insert(0, {"role": "system", "content": text})
    schema = {"anyOf": [*(_branch(tool) for tool in tools), _REPLY]}
    body["response_format"] = {
        "type": "json_schema",
        "json_schema": {"name": "answer", "strict": True, "schema": schema},
    }


_REPLY = {
    "type": "object",
    "properties": {"reply": {"type": "string"}},
    "required": ["reply"],
    "additionalProperties": False,
}


def _signature(tool: AgentTool) -> str:
    properties = tool.parameters.get("properties", {})
    arguments = ", ".join(
        f"{name}: {value.get('type', 'any')}" for name, value in properties.items()
    )
    return f"{tool.name}({arguments})"


def _branch(tool: AgentTool) -> dict[str, Any]:
    definitions = tool.parameters.get("$defs", {})
    arguments = _plain(tool.parameters, definitions, depth=8)
    arguments.setdefault("properties", {})
    return {
        "type": "object",
        "properties": {"tool": {"const": tool.name}, "arguments": arguments},
        "required": ["tool", "arguments"],
        "additionalProperties": False,
    }


def _plain(schema: Any, definitions: dict[str, Any], depth: int) -> Any:
    """Keep what grammars understand: no references, no keywords they stumble over."""
    if not isinstance(schema, dict) or depth == 0:
        return {}
    if "$ref" in schema:
        target = definitions.get(str(schema["$ref"]).rsplit("/", 1)[-1], {})
        return _plain(target, definitions, depth - 1)
    kept = {key: value for key, value in schema.items() if key in _KEPT}
    if "properties" in kept:
        kept["properties"] = {
            name: _plain(value, definitions, depth - 1)
            for name, value in kept["properties"].items()
        }
        kept["additionalProperties"] = False
    if isinstance(kept.get("items"), dict):
        kept["items"] = _plain(kept["items"], definitions, depth - 1)
    for key in ("anyOf", "oneOf"):
        if key in kept:
            kept[key] = [_plain(value, definitions, depth - 1) for value in kept[key]]
    return kept


def call_as_json(call: AgentToolCall) -> str:
    """Write a call as the model itself wrote it."""
    return json.dumps({"tool": call.name, "arguments": call.arguments}, ensure_ascii=False)


class SchemaAnswer:
    """Unwraps ``{"reply": "…"}`` as it streams; anything else is kept until the end."""

    _OPENING = '{"reply":"'

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._seen = ""
        self._reply: _StringDecoder | None = None
        self._is_reply: bool | None = None

    def feed(self, text: str) -> str:
        """Take raw text; return the piece of the reply that it completes."""
        self._parts.append(text)
        if self._reply is not None:
            return self._reply.feed(text)
        if self._is_reply is False:
            return ""
        self._seen += text
        rest = _after(self._seen, self._OPENING)
        if rest is None:
            return ""
        if rest is False:
            self._is_reply = False
            return ""
        self._is_reply = True
        self._reply = _StringDecoder()
        return self._reply.feed(str(rest))

    @property
    def replied(self) -> bool:
        """Whether the answer is a reply."""
        return self._reply is not None

    def call(self) -> tuple[str, dict[str, Any]] | None:
        """Return the tool and arguments that were chosen, if the answer is a whole call."""
        try:
            value = json.loads(self.raw)
        except ValueError:
            return None
        if not isinstance(value, dict) or not isinstance(value.get("tool"), str):
            return None
        arguments = value.get("arguments")
        return value["tool"], arguments if isinstance(arguments, dict) else {}

    @property
    def raw(self) -> str:
        """The answer as it came."""
        return "".join(self._parts)


def _after(text: str, opening: str) -> str | bool | None:
    """What follows `opening` in `text`, blanks between its tokens ignored.

    ``None`` while that cannot be said yet, ``False`` when something else is there.
    """
    wanted = 0
    for position, character in enumerate(text):
        if wanted == len(opening):
            return text[position:]
        if character == opening[wanted]:
            wanted += 1
        elif not (character.isspace() and opening[wanted - 1 : wanted] in ("", "{", ":", '"')):
            return False
    return "" if wanted == len(opening) else None


class _StringDecoder:
    """Decodes the inside of a JSON string, piece by piece, until its closing quote."""

    _SHORT = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}  # noqa: RUF012

    def __init__(self) -> None:
        self._held = ""
        self._closed = False

    def feed(self, text: str) -> str:
        if self._closed:
            return ""
        text, self._held = self._held + text, ""
        out: list[str] = []
        position = 0
        while position < len(text):
            character = text[position]
            if character == '"':
                self._closed = True
                break
            if character != "\\":
                end = min(
                    (found for mark in '"\\' if (found := text.find(mark, position)) != -1),
                    default=len(text),
                )
                out.append(text[position:end])
                position = end
                continue
            length = self._escape_length(text, position)
            if position + length > len(text):
                self._held = text[position:]
                break
            out.append(self._unescape(text[position : position + length]))
            position += length
        return "".join(out)

    @staticmethod
    def _escape_length(text: str, position: int) -> int:
        """How long the escape at `position` is; a pair of surrogates is one."""
        if text[position + 1 : position + 2] != "u":
            return 2
        code = text[position + 2 : position + 6].lower()
        high = code[:1] == "d" and code[1:2] in ("8", "9", "a", "b")
        followed = text[position + 6 : position + 8]
        if high and "\\u".startswith(followed):
            return 12
        return 6

    def _unescape(self, escape: str) -> str:
        if escape[1] != "u":
            return self._SHORT.get(escape[1], escape[1])
        try:
            return (
                str(json.loads(f'"{escape}"'))
                .encode("utf-16", "surrogatepass")
                .decode("utf-16", "replace")
            )
        except ValueError:
            return "\ufffd"
