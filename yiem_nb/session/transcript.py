"""What was said, piece by piece, for whoever writes it down (pure).

Keys that are known or that have the shape of one are replaced here, once for every format.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

from pydantic import ValidationError

from yiem_nb.errors import redact
from yiem_nb.messages import (
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
from yiem_nb.render.view import CallView, footer_line
from yiem_nb.session.blobs import Blob
from yiem_nb.session.context import message_of
from yiem_nb.session.entries import (
    BranchSummaryEntry,
    CompactionEntry,
    MessageEntry,
    SessionTreeEntry,
)
from yiem_nb.session.tree import SessionTree

__all__ = [
    "Answer",
    "Call",
    "Line",
    "Piece",
    "Prompt",
    "Read",
    "Summary",
    "Thought",
    "image_url",
    "moment",
    "pieces_of",
]

_IMAGE_TYPES = {"image/png", "image/jpeg", "image/gif", "image/webp"}
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")

#: Returns a file beside the session, or ``None`` where it is missing.
Read: TypeAlias = Callable[[Blob], bytes | None]


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a person said; the exchange begins with it."""

    entry_id: str
    text: str
    images: tuple[ImageContent, ...] = ()
    label: str = ""
    time: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """Words of the model, in Markdown."""

    text: str
    images: tuple[ImageContent, ...] = ()


@dataclass(frozen=True, slots=True)
class Thought:
    """What the model thought."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A call and its result."""

    view: CallView
    images: tuple[ImageContent, ...] = ()


@dataclass(frozen=True, slots=True)
class Summary:
    """Words that stand for many."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Line:
    """One quiet line: which model answered, how it ended."""

    text: str


Piece: TypeAlias = Prompt | Answer | Thought | Call | Summary | Line


def pieces_of(
    tree: SessionTree, ids: Iterable[str], labels: Mapping[str, str], read: Read | None = None
) -> Iterator[Piece]:
    """Give what the entries `ids` say, in their order; a result stands with its call.

    Parameters
    ----------
    tree
        The session.
    ids
        Entries that follow each other.
    labels
        Labels of entries.
    read
        Gives what is kept beside the session; without it, whole outputs are left out.
    """
    entries = [tree.whole(entry_id) for entry_id in ids]
    messages = [_message(entry) for entry in entries]
    told: set[int] = set()
    for position, (entry, message) in enumerate(zip(entries, messages, strict=True)):
        match entry:
            case CompactionEntry(summary=summary):
                yield Summary("what was said before, in short", redact(summary))
                continue
            case BranchSummaryEntry(summary=summary):
                yield Summary("a branch that was left, in short", redact(summary))
                continue
        match message:
            case UserMessage(content=content):
                label = redact(labels.get(entry.id, ""))
                time = moment(entry.timestamp)
                yield Prompt(entry.id, _words(content), _images(content), label, time)
            case AssistantMessage():
                results = _results(messages, position, told)
                yield from _answer(message, results, read)
            case ToolResultMessage() if position not in told:
                # Its call stands above a fork, or was lost.
                yield _call(AgentToolCall(message.tool_call_id, message.tool_name), message, read)


def _results(
    messages: Sequence[Any], position: int, told: set[int]
) -> dict[str, ToolResultMessage]:
    """Find the results of an answer's calls; another answer may use the same ids again."""
    calls = {call.id for call in messages[position].tool_calls}
    results: dict[str, ToolResultMessage] = {}
    for number in range(position + 1, len(messages)):
        message = messages[number]
        if isinstance(message, AssistantMessage):
            break
        if isinstance(message, ToolResultMessage) and message.tool_call_id in calls:
            results.setdefault(message.tool_call_id, message)
            told.add(number)
    return results


def moment(timestamp: str) -> str:
    """Write a time of a file for people, in UTC; what is no time is left out."""
    try:
        return f"{datetime.fromisoformat(timestamp).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    except (ValueError, OverflowError):
        return ""


def image_url(image: ImageContent) -> str | None:
    """Return an image as its own address; ``None`` for what is no picture that a page may show."""
    if image.mime_type not in _IMAGE_TYPES or not _BASE64.fullmatch(image.data):
        return None
    return f"data:{image.mime_type};base64,{image.data}"


def _message(entry: SessionTreeEntry) -> Any:
    """Return what an entry says, in a shape that is ours."""
    if isinstance(entry, MessageEntry) and entry.spoken is not None:
        return entry.spoken
    try:
        return message_of(entry)
    except ValidationError:
        # A message of another program, in a shape that nobody knows.
        return None


def _answer(
    message: AssistantMessage, results: Mapping[str, ToolResultMessage], read: Read | None
) -> Iterator[Piece]:
    for block in message.content:
        match block:
            case TextContent(text=text) if text.strip():
                yield Answer(redact(text))
            case ImageContent():
                yield Answer("", (block,))
            case ReasoningContent(text=text) if text.strip():
                yield Thought(redact(text))
            case AgentToolCall():
                yield _call(block, results.get(block.id), read)
            case _:
                pass
    if message.stop_reason is StopReason.ABORTED:
        yield Line("■ stopped · the partial answer is kept")
    elif message.stop_reason is StopReason.ERROR:
        yield Line(f"✕ {redact(message.error_message or 'the answer failed')}")
    if message.model and message.stop_reason is not StopReason.TOOL_USE:
        yield Line(footer_line(message.model, message.usage))


def _call(call: AgentToolCall, result: ToolResultMessage | None, read: Read | None) -> Call:
    arguments = _arguments(call)
    if result is None:
        return Call(CallView(call.name, arguments, "aborted"))
    details = result.details if isinstance(result.details, dict) else {}
    view = CallView(
        call.name,
        arguments,
        "error" if result.is_error else "ok",
        summary=_text(details.get("summary")),
        output=_text(details.get("output")),
        result=_words(result.content),
        whole=redact(_whole(details, read)),
    )
    return Call(view, _images(result.content))


def _whole(details: Mapping[str, Any], read: Read | None) -> str:
    """Return the whole of an output that the model read a part of, or say that it is missing."""
    blobs = [Blob.of(value) for value in (details, *details.values())]
    texts = [blob for blob in blobs if blob is not None and not blob.mime_type.startswith("image/")]
    if not texts or read is None:
        return ""
    data = read(texts[0])
    return f"missing: {texts[0].file}" if data is None else data.decode("utf-8", "replace")


def _text(value: Any) -> str:
    return redact(value) if isinstance(value, str) else ""


def _arguments(call: AgentToolCall) -> dict[str, Any]:
    if call.raw_arguments and not call.arguments:
        return {"(cut off)": redact(call.raw_arguments)}
    try:
        json.dumps(shown := _redacted(call.arguments), default=repr)
    except (RecursionError, ValueError):
        return {"(all)": "nested too deep to be shown"}
    return dict(shown)


def _redacted(value: Any) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {redact(str(name)): _redacted(item) for name, item in value.items()}
    return [_redacted(item) for item in value] if isinstance(value, list) else value


def _words(content: Iterable[MessageContent]) -> str:
    return redact("\n\n".join(block.text for block in content if isinstance(block, TextContent)))


def _images(content: Iterable[MessageContent]) -> tuple[ImageContent, ...]:
    return tuple(block for block in content if isinstance(block, ImageContent))
