"""Server-sent events from bytes, incrementally (pure).

Lines end with LF, CRLF or CR and nothing else: a splitter that knows Unicode's line ends tears JSON
that holds U+2028 (httpx's ``aiter_lines`` does). Bytes are decoded only when an event is whole, so a
character cut between two chunks is no case at all.
"""

from __future__ import annotations

from yiem_nb.errors import ErrorCode, ProviderError

__all__ = ["MAX_EVENT_BYTES", "LineSplitter", "SseEvent", "SseSplitter"]

MAX_EVENT_BYTES = 16 * 1024 * 1024

#: ``(event name, data)``; the name is empty where the stream gives none.
SseEvent = tuple[str, bytes]


class LineSplitter:
    """Complete lines from chunks, for SSE and for JSON lines."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._after_cr = False
        self._first = True

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take a chunk; return the lines it completes, without their ends."""
        if self._first and chunk:
            chunk = self._without_bom(chunk)
        if self._after_cr and chunk:
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")
        if not chunk:
            return []
        if b"\r" in chunk:
            self._after_cr = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        head, *rest = chunk.split(b"\n")
        self._keep(head)
        if not rest:
            return []
        lines = [b"".join(self._parts), *rest[:-1]]
        self._parts, self._size = [], 0
        self._keep(rest[-1])
        return lines

    def close(self) -> list[bytes]:
        """Return the last line, if the body did not end with a line end."""
        last = b"".join(self._parts)
        self._parts, self._size = [], 0
        return [last] if last else []

    def _without_bom(self, chunk: bytes) -> bytes:
        """Drop a byte order mark, which may itself be cut."""
        self._parts, held = [], b"".join(self._parts) + chunk
        bom = b"\xef\xbb\xbf"
        if len(held) < len(bom) and bom.startswith(held):
            self._parts = [held]
            return b""
        self._first = False
        self._size = 0
        return held.removeprefix(bom)

    def _keep(self, part: bytes) -> None:
        if part:
            self._parts.append(part)
            self._size += len(part)
            if self._size > MAX_EVENT_BYTES:
                raise ProviderError(
                    f"The server sent a single event of more than {MAX_EVENT_BYTES >> 20} MB.",
                    hint="Check the address; this is no model's answer.",
                    code=ErrorCode.PROVIDER_RESPONSE,
                )


class SseSplitter:
    """Whole events from chunks; comments, ids and retry times are skipped."""

    def __init__(self) -> None:
        self._lines = LineSplitter()
        self._name = ""
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Take a chunk; return the events it completes."""
        return self._take(self._lines.feed(chunk))

    def close(self) -> list[SseEvent]:
        """Return an event that the end of the body completes.

        The standard drops it; servers that forget the last blank line are common.
        """
        return self._take([*self._lines.close(), b""])

    def _take(self, lines: list[bytes]) -> list[SseEvent]:
        events: list[SseEvent] = []
        for line in lines:
            if not line:
                if self._data:
                    events.append((self._name, b"\n".join(self._data)))
                    self._data, self._size = [], 0
                self._name = ""
            elif line.startswith(b"data:"):
                value = line[5:]
                self._data.append(value[1:] if value.startswith(b" ") else value)
                self._size += len(value)
                if self._size > MAX_EVENT_BYTES:
                    raise ProviderError(
                        "The server sent a single event that is too large.",
                        hint="Check the address; this is no model's answer.",
                        code=ErrorCode.PROVIDER_RESPONSE,
                    )
            elif line.startswith(b"event:"):
                self._name = line[6:].strip().decode("utf-8", "replace")
        return events
