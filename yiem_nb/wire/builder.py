"""One builder for every dialect: deltas in, events and a message out (pure).

Blocks stand in the order the model began them, and a block keeps its index. Fragments of a call find
it by id, else by index, else they belong to the latest one: servers omit, repeat and reuse each of
the three (`_Calls` is where that is settled).
"""

from __future__ import annotations

import json
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
from yiem_nb.wire.calls import Call, Calls
from yiem_nb.wire.json_args import parse_arguments

__all__ = ["MessageBuilder", "StreamError"]


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
    call: Call | None = None
    # The first half of a character that was cut between two deltas.
    half: str = ""

    @property
    def text(self) -> str:
        return "".join(self.parts)


class MessageBuilder:
    """Folds the deltas of one answer.

    Every delta becomes at most one `MessageUpdateEvent`, and the events of a block joined are the
    text of that block in the message.
    """

    def __init__(self, *, api: str = "", provider: str = "", model: str = "") -> None:
        self.api, self.provider, self.model = api, provider, model
        self._blocks: list[_Block] = []
        self._open: _Block | None = None
        self._calls = Calls()
        self._call_blocks: dict[int, _Block] = {}
        self._events: list[MessageUpdateEvent] = []

    # --- Deltas ------------------------------------------------------------------------

    def text(self, text: str) -> None:
        """Append to the text that is being written."""
        if _checked(text):
            self._emit(self._current("text"), text)

    def thinking(self, text: str = "", **extra: Any) -> None:
        """Append to the thought that is being written.

        `extra` are fields of its block: ``field``, ``signature``, ``redacted``, ``item_id``. A
        thought may have no text but a signature.
        """
        kept = {name: value for name, value in extra.items() if value and _is_plain(value)}
        if not _checked(text) and not kept.keys() - {"field"}:
            return
        block = self._current("thinking")
        block.extra.update(kept)
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
        extra
            Further fields of the block: ``signature``, ``item_id``, ``recovered``.
        """
        if isinstance(arguments, dict):
            arguments = json.dumps(arguments, ensure_ascii=False)
        self._open = None
        call = self._calls.find(key, _as_text(id), _as_text(name), arguments or "")
        if call is None:
            return
        call.extra.update({name: value for name, value in extra.items() if _is_plain(value)})
        if arguments:
            call.parts.append(arguments)
        self._announce(call, arguments or "")

    def complete_arguments(self, key: Any, arguments: str) -> None:
        """Take the whole arguments of the call at `key`, of which fragments may have come before.

        Only what is missing is emitted; fragments that say something else win.
        """
        had = self._calls.at(key)
        missing = arguments.removeprefix(had)
        if missing and (not had or missing != arguments):
            self.call(key=key, arguments=missing)

    def end_block(self) -> None:
        """Let the next text or thought begin a block of its own."""
        self._open = None

    # --- The message -------------------------------------------------------------------

    @property
    def has_calls(self) -> bool:
        """Whether any call was begun."""
        return bool(self._call_blocks)

    @property
    def has_content(self) -> bool:
        """Whether anything was begun."""
        return bool(self._blocks)

    @property
    def has_nameless_call(self) -> bool:
        """Whether a call never got its name: nobody can be asked to run it."""
        return any(not call.name for call in self._calls)

    def take_events(self) -> list[MessageUpdateEvent]:
        """Return the events since the last time."""
        events, self._events = self._events, []
        return events

    def flush(self) -> None:
        """Emit what waited for its other half."""
        for block in self._blocks:
            if block.half:
                self._emit(block, "")

    def message(
        self,
        stop: StopReason,
        *,
        raw: str | None = None,
        usage: Usage | None = None,
        error: StreamError | None = None,
        cut: bool = False,
    ) -> AssistantMessage:
        """Build the message; with `cut`, a call whose arguments do not parse is incomplete."""
        self.flush()
        content = [
            _content(block, cut=cut, last=block is self._blocks[-1]) for block in self._blocks
        ]
        return AssistantMessage.model_validate(
            {
                "api": self.api,
                "provider": self.provider,
                "model": self.model,
                "content": content,
                "usage": usage if usage is not None else Usage(reported=False),
                "stop_reason": stop,
                "raw_stop_reason": raw,
                "error_code": error.code if error else None,
                "error_message": (error.message or error.code) if error else None,
                "retryable": error.retryable if error else None,
            }
        )

    # --- Inside ------------------------------------------------------------------------

    def _current(self, kind: DeltaKind) -> _Block:
        if self._open is None or self._open.kind != kind:
            self._open = self._begin(kind)
        return self._open

    def _begin(self, kind: DeltaKind) -> _Block:
        block = _Block(len(self._blocks), kind)
        self._blocks.append(block)
        return block

    def _emit(self, block: _Block, text: str) -> None:
        if block.half or not text.isascii():
            text = _whole_characters(block, text)
            if not text:
                return
        block.parts.append(text)
        self._events.append(MessageUpdateEvent(block.index, block.kind, text))

    def _announce(self, call: Call, text: str) -> None:
        """Emit a fragment of a call; nothing is shown of a call before its name is known."""
        if not call.name:
            return
        block = self._call_blocks.get(call.number)
        if block is None:
            block = self._begin("toolCall")
            block.call, block.parts, block.extra = call, call.parts, call.extra
            self._call_blocks[call.number] = block
            text = block.text
        elif not text:
            return
        self._events.append(MessageUpdateEvent(block.index, "toolCall", text, call.id, call.name))


def _checked(text: str) -> str:
    """Refuse what a server sent in place of text, before a block is begun for it."""
    if not isinstance(text, str):
        raise TypeError(f"text is expected, not {type(text).__name__}")
    return text


def _as_text(value: Any) -> str:
    """Return an id or name as text; some servers number their calls."""
    return "" if value is None or isinstance(value, dict | list) else str(value)


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | bool)


def _whole_characters(block: _Block, text: str) -> str:
    """Join the halves of a character that JSON escapes cut in two; replace a half without partner.

    ``"\\ud83d"`` may end one delta and ``"\\ude80"`` begin the next: a rocket, cut in the middle.
    """
    final = not text
    text, block.half = block.half + text, ""
    if not final and "\ud800" <= text[-1] <= "\udbff":
        text, block.half = text[:-1], text[-1]
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _content(block: _Block, *, cut: bool, last: bool) -> MessageContent:
    if block.kind == "text":
        return TextContent(block.text)
    if block.kind == "thinking":
        return ReasoningContent(block.text, **block.extra)
    assert block.call is not None
    raw, call = block.text, block.call
    # Arguments that had not begun when the stream was cut are not the same as none.
    arguments = None if cut and last and not raw else parse_arguments(raw)
    if arguments is not None:
        return AgentToolCall(call.id, call.name, arguments, **block.extra)
    return AgentToolCall(
        call.id, call.name, raw_arguments=raw, incomplete=cut, invalid=not cut, **block.extra
    )
