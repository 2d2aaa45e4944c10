"""One builder for every dialect: deltas in, events and a message out (pure).

Blocks stand in the order the model began them. Fragments of a call find it by id, else by index, else
they belong to the latest: servers omit, repeat and reuse each of the three.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from typing import Any

from yiem_nb.events import DeltaKind, MessageUpdateEvent
from yiem_nb.messages import (
    AgentToolCall,
    AssistantMessage,
    MessageContent,
    ReasoningContent,
    StopReason,
    TextContent,
    Usage,
)

__all__ = ["MessageBuilder", "StreamError", "parse_arguments"]


@dataclass(frozen=True, slots=True)
class StreamError:
    """What went wrong in a stream, in the provider's own words where it had some."""

    code: str
    message: str = ""
    retryable: bool = False


@dataclass(slots=True)
class _Block:
    index: int
    kind: DeltaKind
    parts: list[str] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)
    # Of a call: its id and name as far as they are known, and arguments that came as an object.
    id: str = ""
    name: str = ""
    value: dict[str, Any] | None = None
    has_own_id: bool = False

    @property
    def text(self) -> str:
        return "".join(self.parts)


class MessageBuilder:
    """Folds the deltas of one answer."""

    def __init__(self, *, api: str = "", provider: str = "", model: str = "") -> None:
        self._names = {"api": api, "provider": provider, "model": model}
        self._blocks: list[_Block] = []
        self._by_id: dict[str, _Block] = {}
        self._by_index: dict[Any, _Block] = {}
        self.events: list[MessageUpdateEvent] = []

    # --- Deltas ------------------------------------------------------------------------

    def text(self, text: str) -> None:
        """Append to the text that is being written."""
        self._append("text", text)

    def thinking(self, text: str, **extra: Any) -> None:
        """Append to the thought that is being written; `extra` are fields of its block."""
        if text:
            self._append("thinking", text)
        block = self._last("thinking")
        if block is not None:
            block.extra.update({k: v for k, v in extra.items() if v is not None})

    def add_thinking(self, text: str, **extra: Any) -> None:
        """Add a thought of its own, which may be empty (redacted)."""
        block = self._begin("thinking")
        block.extra.update({k: v for k, v in extra.items() if v is not None})
        if text:
            self._emit(block, text)

    def call(
        self,
        *,
        key: Any = None,
        id: str | None = None,
        name: str | None = None,
        arguments: str | dict[str, Any] | None = None,
        **extra: Any,
    ) -> None:
        """Take a fragment of a call.

        Parameters
        ----------
        key
            The server's index, where it gives one.
        id, name
            The first that are not empty stay.
        arguments
            A piece of JSON text, or the whole as an object.
        """
        block = self._find(key, id, name)
        known = block.name
        block.name = block.name or (name or "")
        block.extra.update({k: v for k, v in extra.items() if v is not None})
        if isinstance(arguments, dict):
            block.value = arguments
            self._emit(block, json.dumps(arguments, ensure_ascii=False))
        elif arguments or block.name != known:
            self._emit(block, arguments or "")

    def end_block(self) -> None:
        """Let the next text or thought begin a block of its own."""
        self._by_index.pop("open", None)

    # --- The message -------------------------------------------------------------------

    @property
    def has_calls(self) -> bool:
        """Whether any call was begun."""
        return any(block.kind == "toolCall" for block in self._blocks)

    @property
    def has_content(self) -> bool:
        """Whether anything was begun."""
        return bool(self._blocks)

    def take_events(self) -> list[MessageUpdateEvent]:
        """Return the events since the last time."""
        events, self.events = self.events, []
        return events

    def message(
        self,
        stop: StopReason,
        *,
        raw: str | None = None,
        usage: Usage | None = None,
        error: StreamError | None = None,
        cut: bool = False,
    ) -> AssistantMessage:
        """Build the message; with `cut`, calls whose arguments do not parse are incomplete."""
        content = _with_unique_ids([self._content(block, cut=cut) for block in self._blocks])
        return AssistantMessage.model_validate(
            {
                **self._names,
                "content": [block for block in content if not _is_empty(block)],
                "usage": usage if usage is not None else Usage(reported=False),
                "stop_reason": StopReason.ERROR if error else stop,
                "raw_stop_reason": raw,
                "error_code": error.code if error else None,
                "error_message": (error.message or error.code) if error else None,
                "retryable": error.retryable if error else None,
            }
        )

    # --- Inside ------------------------------------------------------------------------

    def _append(self, kind: DeltaKind, text: str) -> None:
        if not text:
            return
        block = self._by_index.get("open")
        if block is None or block.kind != kind:
            block = self._begin(kind)
            self._by_index["open"] = block
        self._emit(block, text)

    def _last(self, kind: DeltaKind) -> _Block | None:
        block = self._by_index.get("open")
        return block if block is not None and block.kind == kind else None

    def _begin(self, kind: DeltaKind) -> _Block:
        block = _Block(len(self._blocks), kind)
        self._blocks.append(block)
        return block

    def _emit(self, block: _Block, text: str) -> None:
        block.parts.append(text)
        self.events.append(MessageUpdateEvent(block.index, block.kind, text, block.id, block.name))

    def _find(self, key: Any, id: str | None, name: str | None) -> _Block:
        """Find the call of a fragment: by id, else by index, else the latest; else begin one."""
        at_key = self._by_index.get(("call", key)) if key is not None else None
        known = self._by_id.get(id) if id else None
        if known is not None and at_key in (None, known) and not _begins_anew(known, name, key):
            return known
        if id and at_key is not None and not at_key.has_own_id:
            return self._name_late(at_key, id)
        if not id:
            latest = at_key if key is not None else self._latest_call()
            if latest is not None and not _begins_anew(latest, name, None):
                return latest
        return self._begin_call(key, id)

    def _name_late(self, block: _Block, id: str) -> _Block:
        block.id, block.has_own_id = id, True
        self._by_id[id] = block
        return block

    def _begin_call(self, key: Any, id: str | None) -> _Block:
        block = self._begin("toolCall")
        self._by_index.pop("open", None)
        block.id, block.has_own_id = id or f"call_{uuid.uuid4().hex[:12]}", bool(id)
        self._by_id[block.id] = block
        if key is not None:
            self._by_index["call", key] = block
        return block

    def _latest_call(self) -> _Block | None:
        return next((b for b in reversed(self._blocks) if b.kind == "toolCall"), None)

    def _content(self, block: _Block, *, cut: bool) -> MessageContent:
        if block.kind == "text":
            return TextContent.model_validate({"type": "text", "text": block.text})
        if block.kind == "thinking":
            return ReasoningContent(block.text, **block.extra)
        arguments = block.value if block.value is not None else parse_arguments(block.text)
        if arguments is not None:
            return AgentToolCall(block.id, block.name, arguments, **block.extra)
        raw = block.text
        return AgentToolCall(
            block.id, block.name, raw_arguments=raw, incomplete=cut, invalid=not cut, **block.extra
        )


def _begins_anew(block: _Block, name: str | None, key: Any) -> bool:
    """Whether a named fragment starts another call, because this one is complete already.

    An index that fits settles it: servers that repeat id and name in every fragment give one.
    """
    if not name or key is not None:
        return False
    if block.value is not None:
        return True
    return block.text.rstrip().endswith("}") and parse_arguments(block.text) is not None


def _with_unique_ids(content: list[MessageContent]) -> list[MessageContent]:
    """Rename a call whose id an earlier one has."""
    seen: set[str] = set()
    out: list[MessageContent] = []
    for block in content:
        if isinstance(block, AgentToolCall):
            number, unique = 1, block.id
            while unique in seen:
                number += 1
                unique = f"{block.id}~{number}"
            seen.add(unique)
            out.append(block if unique == block.id else block.model_copy(update={"id": unique}))
        else:
            out.append(block)
    return out


def _is_empty(block: MessageContent) -> bool:
    return isinstance(block, TextContent) and not block.text


def parse_arguments(text: str) -> dict[str, Any] | None:
    """Parse the arguments of a call; ``None`` where they are no JSON object.

    Empty text is an empty object: a tool without parameters. JSON inside a JSON string is
    unpacked once; a parseable prefix is never salvaged, because half a call is another call.
    """
    if not text.strip():
        return {}
    try:
        value = json.loads(text)
        if isinstance(value, str):
            value = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
