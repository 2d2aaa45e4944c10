"""A real HTTP server that speaks chat completions from a script: what it sends, when, and what it saw.

It runs in a thread of the test, on loopback. Each request takes the next `Reply`; times are
`time.monotonic`, which all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.wire_rules import broken_rules_of_line


@dataclass
class Reply:
    """One response.

    `deltas` are sent `delay` seconds apart. `raw` replaces the whole response after the head.
    `stall` keeps the connection open, silent, after the deltas; `cut` closes it there.
    """

    deltas: list[dict[str, Any]] = field(default_factory=list)
    delay: float = 0.0
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = "text/event-stream"
    raw: bytes | None = None
    finish: str | None = "stop"
    usage: dict[str, int] | None = None
    stall: bool = False
    cut: bool = False


def text(words: str, *, size: int = 4, delay: float = 0.0, **more: Any) -> Reply:
    """Answer with text, in pieces of `size` characters."""
    deltas = [{"content": words[i : i + size]} for i in range(0, len(words), size)]
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": len(deltas),
        "total_tokens": len(deltas) + 10,
    }
    return Reply(deltas, delay, usage=usage, **more)


def call(name: str, arguments: dict[str, Any], *, id: str = "call_1", delay: float = 0.0) -> Reply:
    """Answer with a call of one tool."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    delta = {"tool_calls": [{"index": 0, "id": id, "type": "function", "function": function}]}
    return Reply([delta], delay, finish="tool_calls")


class FakeOpenAi:
    """The server and what it saw."""

    def __init__(self, replies: Iterable[Reply]) -> None:
        self.replies = list(replies)
        self.requests: list[dict[str, Any]] = []
        #: What a strict provider would have refused.
        self.broken: list[str] = []
        self.headers: list[dict[str, str]] = []
        #: When each delta of each request was written.
        self.sent: list[list[float]] = []
        #: When the client's side of each connection was seen closed.
        self.closed: list[float] = []
        #: How many connections are open now.
        self.open = 0
        self.port = 0
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def start(self) -> None:
        threading.Thread(target=self._run, daemon=True, name="fake-openai").start()
        if not self._ready.wait(10):
            raise RuntimeError("the fake server did not start")

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            asyncio.start_server(self._serve, "127.0.0.1", self.port)
        )
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        server.close()
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            self.closed.append(time.monotonic())
        finally:
            self.open -= 1
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin1")
        lines = head.split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        if lines[0].startswith("GET"):
            models = json.dumps({"object": "list", "data": [{"id": "fake-1"}]}).encode()
            writer.write(
                _head(200, {"content-type": "application/json", "content-length": str(len(models))})
                + models
            )
            await writer.drain()
            return True
        self.requests.append(json.loads(body))
        self.broken += broken_rules_of_line(lines[0], body)
        self.headers.append(headers)
        number = len(self.requests)
        reply = (
            self.replies[number - 1] if number <= len(self.replies) else text("(no more replies)")
        )
        await self._reply(reply, reader, writer)
        return False

    async def _reply(
        self, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        times: list[float] = []
        self.sent.append(times)
        headers = {"content-type": reply.content_type, "connection": "close"} | reply.headers
        writer.write(_head(reply.status, headers))
        if reply.raw is not None:
            writer.write(reply.raw)
            await writer.drain()
            return
        watcher = asyncio.create_task(self._watch(reader))
        start = time.monotonic()
        for number, delta in enumerate(reply.deltas, 1):
            writer.write(_event({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}))
            times.append(time.monotonic())
            await writer.drain()
            wait = start + number * reply.delay - time.monotonic()
            if reply.delay and wait > 0:
                await asyncio.sleep(wait)
            if watcher.done():
                raise ConnectionError
        if reply.stall:
            await watcher
            raise ConnectionError
        watcher.cancel()
        if reply.cut:
            writer.transport.abort()
            return
        if reply.finish is not None:
            end = {"choices": [{"index": 0, "delta": {}, "finish_reason": reply.finish}]}
            writer.write(_event(end | ({"usage": reply.usage} if reply.usage else {})))
            writer.write(b"data: [DONE]\n\n")
        await writer.drain()

    @staticmethod
    async def _watch(reader: asyncio.StreamReader) -> None:
        """Return when the client has closed its side."""
        await reader.read(1)


def _head(status: int, headers: dict[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} X\r\n{lines}\r\n".encode()


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


@contextmanager
def serving(*replies: Reply) -> Iterator[FakeOpenAi]:
    """Serve `replies` while the block lasts."""
    server = FakeOpenAi(replies)
    server.start()
    try:
        yield server
    finally:
        server.stop()
    assert not server.broken
