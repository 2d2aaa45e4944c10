"""Text that is not text: thoughts between tags, and calls that arrive as prose (pure)."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["CallRecovery", "RecoveredCall", "TextSink", "ThinkTags"]


class TextSink(Protocol):
    """What the filters write to."""

    def text(self, text: str) -> None:
        """Take text."""

    def thinking(self, text: str, *, field: str) -> None:
        """Take a thought and the wire field it came in."""


class ThinkTags:
    """Splits ``<think>…</think>`` at the head of an answer from what follows it.

    Only a tag that the answer begins with counts: further on it is something the model talks about.
    """

    _OPEN, _CLOSE = "<think>", "</think>"

    def __init__(self, sink: TextSink) -> None:
        self._sink = sink
        self._held = ""
        self._where = "before"

    def feed(self, text: str) -> None:
        """Take a piece of the answer."""
        self._held += text
        if self._where == "before":
            self._look_for_opening()
        if self._where == "inside":
            self._look_for_closing()
        if self._where == "after":
            self._trim_line_end()
        if self._where == "beyond" and self._held:
            held, self._held = self._held, ""
            self._sink.text(held)

    def close(self) -> None:
        """Let go of what was held back."""
        held, self._held = self._held, ""
        if not held:
            return
        if self._where == "inside":
            self._sink.thinking(held, field="content")
        elif self._where != "after":
            self._sink.text(held)

    def _look_for_opening(self) -> None:
        start = self._held.lstrip()
        if start.startswith(self._OPEN):
            self._held = start.removeprefix(self._OPEN).removeprefix("\n")
            self._where = "inside"
        elif not self._OPEN.startswith(start):
            self._where = "beyond"

    def _look_for_closing(self) -> None:
        thought, tag, rest = self._held.partition(self._CLOSE)
        if tag:
            self._held, self._where = rest, "after"
            if thought := thought.rstrip("\n"):
                self._sink.thinking(thought, field="content")
            return
        # Held back: what may be the beginning of the tag, and the line ends before it.
        keep = next(
            (n for n in range(len(self._CLOSE) - 1, 0, -1) if self._held.endswith(self._CLOSE[:n])),
            0,
        )
        ready = self._held[: len(self._held) - keep].rstrip("\n")
        if ready:
            self._held = self._held[len(ready) :]
            self._sink.thinking(ready, field="content")

    def _trim_line_end(self) -> None:
        trimmed = self._held.lstrip("\n")
        if trimmed:
            self._held, self._where = trimmed, "beyond"


@dataclass(frozen=True, slots=True)
class RecoveredCall:
    """A call found in text."""

    name: str
    arguments: dict[str, Any]


_MARKS = ("<tool_call>", "<function_call>", "```", "{", "[TOOL_CALLS]")
_TAGGED = re.compile(r"<(tool_call|function_call)>\s*(.*?)\s*(?:</\1>|$)", re.DOTALL)
_FENCED = re.compile(r"```(?:json|tool_call|tool_code)?[ \t]*\n(.*?)```", re.DOTALL)


class CallRecovery:
    """Holds text back from where a call may begin, and reads it when the answer is over."""

    def __init__(self, sink: TextSink, names: Collection[str]) -> None:
        self._sink = sink
        self._names = names
        self._shown = False
        self._held = ""

    def feed(self, text: str) -> None:
        """Take a piece of the answer."""
        self._held += text
        found = [at for mark in _MARKS if (at := self._position(mark)) != -1]
        ready = self._held[: min(found, default=len(self._held))].rstrip()
        if ready and len(ready) <= len(self._held):
            self._sink.text(ready)
            self._shown = True
            self._held = self._held[len(ready) :]

    def close(self) -> list[RecoveredCall]:
        """Return the calls that were held back, or let their text go."""
        held, self._held = self._held, ""
        calls = self._calls(held)
        if not calls and held:
            self._sink.text(held)
        return calls

    def _position(self, mark: str) -> int:
        """Where `mark`, or what may become it, begins; a brace counts only at the very start."""
        if mark == "{":
            start = self._held.lstrip()
            return 0 if start.startswith("{") and not self._shown else -1
        whole = self._held.find(mark)
        if whole != -1:
            return whole
        for length in range(len(mark) - 1, 0, -1):
            if self._held.endswith(mark[:length]):
                return len(self._held) - length
        return -1

    def _calls(self, text: str) -> list[RecoveredCall]:
        pieces = [match.group(2) for match in _TAGGED.finditer(text)]
        pieces = pieces or [match.group(1) for match in _FENCED.finditer(text)] or [text]
        found = []
        for piece in pieces:
            try:
                value = json.loads(piece)
            except ValueError:
                return []
            for item in value if isinstance(value, list) else [value]:
                call = self._call(item)
                if call is None:
                    return []
                found.append(call)
        return found

    def _call(self, value: Any) -> RecoveredCall | None:
        if not isinstance(value, dict):
            return None
        if isinstance(value.get("function"), dict):
            value = value["function"]
        name = value.get("name")
        arguments = value.get("arguments", value.get("parameters", {}))
        if name in self._names and isinstance(arguments, dict):
            return RecoveredCall(str(name), arguments)
        return None
