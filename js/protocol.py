"""Makes ``src/protocol.ts`` from the Python types: ``python js/protocol.py`` (``--check`` only compares)."""

from __future__ import annotations

import dataclasses
import enum
import sys
import types
import typing
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from pydantic.alias_generators import to_camel
from yiem_nb import events, messages
from yiem_nb.widget import protocol

TARGET = Path(__file__).resolve().parent / "src" / "protocol.ts"
HEADER = "// Made by js/protocol.py from the Python types. Do not edit.\n"
BLOCKS = (
    messages.TextContent,
    messages.ImageContent,
    messages.ReasoningContent,
    messages.AgentToolCall,
)
MESSAGES = (messages.UserMessage, messages.AssistantMessage, messages.ToolResultMessage)
SENT = get_args(protocol.KernelMessage)
PLAIN = {str: "string", int: "number", float: "number", bool: "boolean", type(None): "null"}


def ts(kind: Any) -> str:
    """Write a Python type as TypeScript."""
    if kind in PLAIN:
        return PLAIN[kind]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is typing.Annotated:
        return ts(arguments[0])
    if origin is Literal:
        return " | ".join(f'"{value}"' for value in arguments)
    if origin in (typing.Union, types.UnionType):
        names = {BLOCKS: "ContentBlock", MESSAGES: "AgentMessage", SENT: "KernelMessage"}
        bare = tuple(_bare(a) for a in arguments if _bare(a) is not messages.UnknownContent)
        return names.get(bare) or " | ".join(dict.fromkeys(ts(a) for a in arguments))
    if origin in (list, tuple):
        return f"readonly ({ts(arguments[0])})[]"
    if origin is dict:
        return f"Readonly<Record<string, {ts(arguments[1])}>>"
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return " | ".join(f'"{member.value}"' for member in kind)
    if isinstance(kind, type) and (
        issubclass(kind, BaseModel) or dataclasses.is_dataclass(kind) or typing.is_typeddict(kind)
    ):
        return kind.__name__
    return "unknown"


def _bare(kind: Any) -> Any:
    return _bare(get_args(kind)[0]) if get_origin(kind) is typing.Annotated else kind


def _interface(name: str, fields: dict[str, str], extends: str = "") -> str:
    rows = "".join(f"  readonly {field}: {kind};\n" for field, kind in fields.items())
    return f"export interface {name}{extends} {{\n{rows}}}\n"


def model(kind: type[BaseModel]) -> str:
    """Write a message type as it is on the wire: null is left out."""
    hints = get_type_hints(kind, include_extras=True)
    fields = {}
    for name, info in kind.model_fields.items():
        required = info.is_required() or name in ("type", "role", "content")
        written = ts(hints[name]).replace(" | null", "")
        fields[(info.serialization_alias or to_camel(name)) + ("" if required else "?")] = written
    return _interface(kind.__name__, fields)


def event(kind: type) -> str:
    """Write an event; its fields are in camelCase on the wire."""
    hints = get_type_hints(kind)
    fields = {to_camel(f.name): ts(hints[f.name]) for f in dataclasses.fields(kind)}
    return _interface(kind.__name__, fields)


def typed_dict(kind: Any) -> str:
    """Write a message of the protocol."""
    fields = {name: ts(hint) for name, hint in get_type_hints(kind).items()}
    if "e" in fields:
        fields["e"] = "AgentEvent"
    return _interface(kind.__name__, fields)


def render() -> str:
    """Return the text of ``protocol.ts``."""
    parts = [HEADER, f"export const VERSION = {protocol.VERSION};\n"]
    parts += [model(kind) for kind in (messages.UsageCost, messages.Usage, *BLOCKS)]
    parts.append(f"export type ContentBlock = {' | '.join(k.__name__ for k in BLOCKS)};\n")
    parts += [model(kind) for kind in (*MESSAGES, messages.AgentToolResult)]
    parts.append(f"export type AgentMessage = {' | '.join(k.__name__ for k in MESSAGES)};\n")
    parts.append(f"export type DeltaKind = {ts(events.DeltaKind)};\n")
    all_events = get_args(events.AgentEvent)
    parts += [event(kind) for kind in all_events]
    union = "\n  | ".join(k.__name__ for k in all_events)
    parts.append(f"export type AgentEvent =\n  | {union};\n")
    parts.append(f"export type TurnOrigin = {ts(protocol.TurnOrigin)};\n")
    kinds = [
        getattr(protocol, name)
        for name in protocol.__all__
        if typing.is_typeddict(getattr(protocol, name))
    ]
    parts += [typed_dict(kind) for kind in kinds]
    sent = " | ".join(k.__name__ for k in get_args(protocol.KernelMessage))
    parts.append(f"export type KernelMessage = {sent};\n")
    names = " | ".join(f'"{name}"' for name in protocol.OPERATIONS)
    parts.append(f"export type Operation = {names};\n")
    return "\n".join(parts)


def main() -> int:
    """Write the file, or compare it."""
    text = render()
    if "--check" in sys.argv:
        same = TARGET.read_text(encoding="utf-8") == text
        print("protocol.ts is current" if same else "protocol.ts is stale: python js/protocol.py")
        return int(not same)
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
