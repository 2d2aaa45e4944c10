"""A body is cut into frames: server-sent events, lines of JSON, or one document (pure).

What a body is, its first byte says better than its content type: servers send JSON errors as event
streams, proxies send pages of HTML with status 200, and both are measured facts.
"""

from __future__ import annotations

from typing import Literal, Protocol

from yiem_nb.errors import ErrorCode, ProviderError
from yiem_nb.wire.sse import MAX_EVENT_BYTES, LineSplitter, SseEvent, SseSplitter

__all__ = ["Frames", "Framing", "Sniffer"]

Framing = Literal["sse", "lines", "document", "page"]
_BOM = b"\xef\xbb\xbf"


class Frames(Protocol):
    """Whole frames from chunks."""

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Take a chunk; return the frames it completes."""

    def close(self) -> list[SseEvent]:
        """Return the frame that the end of the body completes."""


class Sniffer:
    """Holds the first bytes back until they say what the body is."""

    def __init__(self, content_type: str, *, lines: bool) -> None:
        self._page = "html" in content_type
        self._lines = lines
        self._held = b""

    def feed(self, chunk: bytes) -> tuple[Framing, Frames, bytes] | None:
        """Take a chunk; return what the body is, its splitter and the bytes so far, once known."""
        self._held += chunk
        if _BOM.startswith(self._held):
            return None
        start = self._held.removeprefix(_BOM).lstrip()[:1]
        if not start:
            # Blank lines keep a connection open; they are not collected.
            self._held = b""
            return None
        framing = self._framing(start)
        splitters: dict[Framing, type[Frames]] = {"sse": SseSplitter, "lines": _Lines}
        return framing, splitters.get(framing, _Document)(), self._held

    def _framing(self, start: bytes) -> Framing:
        if self._page or start == b"<":
            return "page"
        if start == b"{":
            return "lines" if self._lines else "document"
        return "document" if start == b"[" else "sse"


class _Lines:
    """One frame a line: NDJSON."""

    def __init__(self) -> None:
        self._splitter = LineSplitter()

    def feed(self, chunk: bytes) -> list[SseEvent]:
        return [("", line) for line in self._splitter.feed(chunk)]

    def close(self) -> list[SseEvent]:
        return [("", line) for line in self._splitter.close()]


class _Document:
    """The whole body is one frame."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[SseEvent]:
        self._size += len(chunk)
        if self._size > MAX_EVENT_BYTES:
            raise ProviderError(
                f"The server sent a body of more than {MAX_EVENT_BYTES >> 20} MB.",
                hint="Check the address; this is no model's answer.",
                code=ErrorCode.PROVIDER_RESPONSE,
            )
        self._parts.append(chunk)
        return []

    def close(self) -> list[SseEvent]:
        return [("", b"".join(self._parts).removeprefix(_BOM))]
