"""A real HTTP server that does what a script says, byte by byte, wrong things above all.

It runs on the test's own loop, on loopback. Each request takes the next script; a script is a list
of what to do: bytes are sent, and the functions below wait, stall or cut.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tests.wire_rules import broken_rules_of_line

#: Does something to a connection instead of sending.
Act: TypeAlias = Callable[["Request"], Awaitable[None]]
Script: TypeAlias = list[bytes | Act]


@dataclass
class Request:
    """One request, and the connection it came on."""

    line: str
    headers: dict[str, str]
    body: bytes
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    #: Set when the client has closed its side.
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class FaultServer:
    """The server: what it is to do, and what it saw."""

    scripts: list[Script]
    requests: list[Request] = field(default_factory=list)
    listing: list[str] | None = None
    #: What a strict provider would have refused.
    broken: list[str] = field(default_factory=list)
    port: int = 0

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await _read(reader, writer)
            if request.line.startswith("GET"):
                await self._list_models(request)
            else:
                await self._play(request)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _play(self, request: Request) -> None:
        self.requests.append(request)
        self.broken += broken_rules_of_line(request.line, request.body)
        number = len(self.requests)
        script = self.scripts[number - 1] if number <= len(self.scripts) else [head(599)]
        watcher = asyncio.create_task(_watch(request))
        try:
            for step in script:
                if isinstance(step, bytes):
                    request.writer.write(step)
                    await request.writer.drain()
                else:
                    await step(request)
        finally:
            watcher.cancel()

    async def _list_models(self, request: Request) -> None:
        listed = json.dumps({"data": [{"id": name} for name in self.listing or ()]}).encode()
        known = self.listing is not None
        request.writer.write(head(200 if known else 404, "application/json") + listed)
        await request.writer.drain()


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Request:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin1").split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
    # The case of a key matters.
    for line in lines:
        if line.lower().startswith("authorization: "):
            headers["authorization"] = line.partition(": ")[2]
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Request(lines[0], headers, body, reader, writer)


async def _watch(request: Request) -> None:
    with suppress(ConnectionError):
        await request.reader.read(1)
    request.closed.set()


@asynccontextmanager
async def fault_server(
    *scripts: Script, listing: list[str] | None = None
) -> AsyncIterator[FaultServer]:
    """Serve `scripts` while the block lasts; `listing` is what GET /models says."""
    faulty = FaultServer(list(scripts), listing=listing)
    server = await asyncio.start_server(faulty.serve, "127.0.0.1", 0)
    faulty.port = server.sockets[0].getsockname()[1]
    try:
        yield faulty
    finally:
        server.close()
        for request in faulty.requests:
            request.writer.close()
        await asyncio.sleep(0)
    assert not faulty.broken


# --- What to send --------------------------------------------------------------------------


def head(status: int = 200, content_type: str = "text/event-stream", **headers: str) -> bytes:
    """The head of a response whose end is the end of the connection."""
    named = {"content-type": content_type, "connection": "close"}
    named |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    return f"HTTP/1.1 {status} X\r\n{lines}\r\n".encode()


def refusal(status: int, message: str = "", **headers: str) -> Script:
    """An error as OpenAI words it."""
    body = json.dumps({"error": {"message": message}}).encode() if message else b""
    return [head(status, "application/json", **headers), body]


def event(**payload: Any) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(payload).encode() + b"\n\n"


def delta(finish: str | None = None, **fields: Any) -> bytes:
    """One chunk of a chat completion."""
    return event(choices=[{"index": 0, "delta": fields, "finish_reason": finish}])


DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": still here\n\n"


def answer(text: str, **usage: int) -> Script:
    """A good answer, a word at a time."""
    words = [delta(content=word) for word in text.split(" ")]
    last = [event(choices=[], usage=usage)] if usage else []
    return [head(), *words, delta("stop"), *last, DONE]


# --- What to do ----------------------------------------------------------------------------


async def stall(request: Request) -> None:
    """Say nothing until the client goes."""
    await request.closed.wait()


async def keep_alive(request: Request) -> None:
    """Send comments, and nothing else, until the client goes."""
    while not request.closed.is_set():
        request.writer.write(KEEP_ALIVE)
        await asyncio.sleep(0.01)


async def reset(request: Request) -> None:
    """Cut the connection with a RST."""
    sock = request.writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    request.writer.transport.abort()


def when(gate: asyncio.Event) -> Act:
    """Go on once `gate` is open."""

    async def wait(request: Request) -> None:
        await gate.wait()

    return wait


def do(action: Callable[[], object]) -> Act:
    """Call `action` at this point."""

    async def act(request: Request) -> None:
        action()

    return act
