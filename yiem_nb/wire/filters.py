"""Text that is more than text: thoughts in tags and calls written out, found while it streams (pure).

Both are off unless the model's `compat` turns them on: what merely looks like a call is an answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from yiem_nb.wire.builder import MessageBuilder
from yiem_nb.wire.json_args import parse_arguments

__all__ = ["CallRecovery", "PlainText", "TextFilter", "ThinkTags"]


class TextFilter(Protocol):
    """Takes the text of an answer as it arrives."""

    def feed(self, text: str) -> None:
        """Take a piece."""

    def flush(self) -> None:
        """Let go of what was held back; other content follows, or nothing does."""


class PlainText:
    """Text is text."""

    def __init__(self, builder: MessageBuilder) -> None:
        self.feed = builder.text

    def flush(self) -> None:
        """Do nothing: nothing is ever held back."""


_OPEN, _CLOSE = "<think>", "</think>"


class ThinkTags:
    """Reads ``<think>…</think>`` at the head of the text as a thought.

    Only there: an answer may speak about the tag. Line ends after the closing tag are dropped, and
    so is a thought of blanks, which some models write when told not to think.
    """

    def __init__(self, builder: MessageBuilder, inner: TextFilter) -> None:
        self._builder = builder
        self._inner = inner
        self._read: Callable[[], None] | None = self._read_head
        self._held = ""
        self._blanks = ""
        self._thinks = False

    def feed(self, text: str) -> None:
        """Take a piece."""
        if self._read is None:
            self._inner.feed(text)
            return
        self._held += text
        self._read()

    def flush(self) -> None:
        """Let go of a beginning that did not become a tag."""
        held, self._held = self._held, ""
        if self._read == self._read_thought:
            self._think(held)
        elif held.strip():
            self._inner.feed(held)
        self._inner.flush()

    def _read_head(self) -> None:
        start = self._held.lstrip()
        if start.startswith(_OPEN):
            self._read, self._held = self._read_thought, start[len(_OPEN) :]
            self._read()
        elif not _OPEN.startswith(start):
            self._read = None
            held, self._held = self._held, ""
            self._inner.feed(held)

    def _read_thought(self) -> None:
        thought, closed, rest = self._held.partition(_CLOSE)
        if closed:
            self._think(thought)
            self._blanks, self._thinks = "", False
            self._read, self._held = self._read_line_ends, rest
            self._read()
            return
        split = len(thought) - _overlap(thought, _CLOSE)
        self._held = thought[split:]
        self._think(thought[:split])

    def _read_line_ends(self) -> None:
        self._held = self._held.lstrip("\r\n")
        if self._held:
            # A second thought may follow the first one.
            self._read = self._read_head
            self._read()

    def _think(self, text: str) -> None:
        """Write a thought without the blanks around it."""
        text = self._blanks + text
        ready = text.rstrip() if self._thinks else text.strip()
        self._blanks = text[len(text.rstrip()) :] if ready else ""
        self._thinks = self._thinks or bool(ready)
        self._builder.thinking(ready, field="content")


def _overlap(text: str, tag: str) -> int:
    """Return how many characters at the end of `text` may be the beginning of `tag`."""
    longest = min(len(text), len(tag) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(tag[:n])), 0)


# A call written out as text begins in one of these ways, with the blanks before it.
_MARKS = r"<(?:tool|function)_call>|\[TOOL_CALLS\]|```(?:json|tool_call|tool_code)?\s*(?=[{\[])"
_MARK = re.compile(rf"\s*(?:{_MARKS})")
_MARK_AT_HEAD = re.compile(r"\s*[{\[]")
_MARK_BEGUN = re.compile(r"\s*(?:<[a-z_]{0,13}|\[[A-Z_]{0,10}|`{1,3}[a-z_]{0,9}\s*)?\Z")
_LONGEST_MARK = 64
_OPENER = re.compile(rf"\s*(?:{_MARKS})\s*|\A\s*(?=[{{\[])")
_CLOSER = re.compile(r"\s*(?:</(?:tool|function)_call>|```)?\s*")


class CallRecovery:
    """Reads calls that a model wrote into its text, if their names are known tools.

    Text streams until something looks like such a call; from there on it is held back until it is
    whole, and given out as it was if it is none.
    """

    def __init__(self, builder: MessageBuilder, names: Collection[str]) -> None:
        self._builder = builder
        self._names = names
        self._tail = ""
        self._at_head = True
        self._held: list[str] = []

    def feed(self, text: str) -> None:
        """Take a piece."""
        if self._held:
            self._held.append(text)
            return
        text = self._tail + text
        found = (self._at_head and _MARK_AT_HEAD.match(text)) or _MARK.search(text)
        if found:
            self._write(text[: found.start()])
            self._tail, self._held = "", [text[found.start() :]]
            return
        near = max(0, len(text) - _LONGEST_MARK)
        begun = _MARK_BEGUN.search(text, near)
        split = begun.start() if begun else len(text)
        self._tail = text[split:]
        self._write(text[:split])

    def flush(self) -> None:
        """Read the calls in what was held back."""
        text = "".join(self._held) or self._tail
        self._held, self._tail = [], ""
        position = 0
        while opened := _OPENER.search(text, position):
            calls, end = self._calls_at(text, opened.end())
            if calls:
                self._write(text[position : opened.start()])
                for name, arguments in calls:
                    self._builder.call(key=object(), name=name, arguments=arguments, recovered=True)
                position = end
            else:
                end = max(opened.end(), position + 1)
                self._write(text[position:end])
                position = end
        self._write(text[position:])

    def _write(self, text: str) -> None:
        if text:
            self._at_head = self._at_head and not text.strip()
            self._builder.text(text)

    def _calls_at(self, text: str, position: int) -> tuple[list[tuple[str, dict[str, Any]]], int]:
        """Return the calls in the JSON at `position` and where the text goes on; none unless all fit."""
        try:
            value, end = json.JSONDecoder().raw_decode(text, position)
        except (ValueError, RecursionError):
            return [], position
        items = value if isinstance(value, list) else [value]
        calls = [_as_call(item) for item in items]
        known = [call for call in calls if call is not None and call[0] in self._names]
        closer = _CLOSER.match(text, end)
        return (
            (known, closer.end() if closer else end) if len(known) == len(items) else ([], position)
        )


def _as_call(value: Any) -> tuple[str, dict[str, Any]] | None:
    """Read ``{"name": …, "arguments": …}`` and its variants."""
    if not isinstance(value, Mapping):
        return None
    value = value.get("function") if isinstance(value.get("function"), Mapping) else value
    raw = value.get("arguments", value.get("parameters"))
    arguments = parse_arguments(raw) if isinstance(raw, str) else raw
    name = value.get("name")
    return (name, arguments) if isinstance(name, str) and isinstance(arguments, dict) else None
