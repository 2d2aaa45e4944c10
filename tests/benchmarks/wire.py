"""How fast bytes become messages; prints, asserts nothing. Run: python -m tests.benchmarks.wire.

Beside others in the same run, where they are installed:
``uv run --with httpx-sse --with openai python -m tests.benchmarks.wire peers``.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from yiem_nb.wire import decoder_class
from yiem_nb.wire.sse import SseSplitter

EVENTS = 40_000
CHUNK = 16_384


def event(delta: dict[str, object]) -> bytes:
    """Return one chat completion chunk as it is on the wire."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_790_000_000}
    body = {**head, "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def arguments(text: str, name: str | None = None) -> bytes:
    """Return a fragment of a call."""
    return event({"tool_calls": [{"index": 0, "function": {"name": name, "arguments": text}}]})


def fold(chunks: list[bytes]) -> None:
    """Fold a body through the decoder."""
    decoder = decoder_class("openai-chat")()
    for chunk in chunks:
        decoder.feed(chunk)
    decoder.close()


def split(chunks: list[bytes]) -> None:
    """Split a body and parse each event."""
    splitter = SseSplitter()
    for chunk in chunks:
        for _, data in splitter.feed(chunk):
            json.loads(data)


def fold_many(chunks: list[bytes]) -> None:
    """Fold a body and take each delta, as a view does."""
    decoder = decoder_class("openai-chat")()
    for chunk in chunks:
        for delta in decoder.feed(chunk):
            delta.text  # noqa: B018 - what a view reads
    decoder.close()


def peers(chunks: list[bytes]) -> None:
    """Print what others need for the same body."""
    with suppress(ImportError):
        from httpx_sse._decoders import SSEDecoder, SSELineDecoder

        def by_httpx_sse() -> None:
            lines, decoder = SSELineDecoder(), SSEDecoder()
            for chunk in chunks:
                for line in lines.decode(chunk.decode()):
                    found = decoder.decode(line)
                    if found is not None:
                        json.loads(found.data)

        report("httpx-sse: split and parsed", EVENTS, by_httpx_sse)
    with suppress(ImportError):
        from openai._models import construct_type
        from openai._streaming import SSEDecoder as OpenAiDecoder
        from openai.lib.streaming.chat import ChatCompletionStreamState
        from openai.types.chat import ChatCompletionChunk

        def by_openai() -> None:
            for found in OpenAiDecoder().iter_bytes(iter(chunks)):
                construct_type(type_=ChatCompletionChunk, value=json.loads(found.data))

        def folded_by_openai() -> None:
            state: Any = ChatCompletionStreamState()
            for found in OpenAiDecoder().iter_bytes(iter(chunks)):
                value = json.loads(found.data)
                state.handle_chunk(construct_type(type_=ChatCompletionChunk, value=value))

        report("openai SDK: split, parsed, typed", EVENTS, by_openai)
        report("openai SDK: folded", EVENTS, folded_by_openai)


def report(name: str, count: int, run: Callable[[], None]) -> None:
    """Print the best of three runs, in CPU time."""
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        run()
        best = min(best, time.process_time() - start)
    print(f"{name:42} {count / best:>10,.0f} events/s {best * 1e6 / count:>7.2f} µs")


def main() -> None:
    """Print the table."""
    events = [event({"content": f" word{number}"}) for number in range(EVENTS)]
    body = b"".join(events)
    chunks = [body[start : start + CHUNK] for start in range(0, len(body), CHUNK)]
    payloads = [data[6:] for data in events]
    report("json.loads alone", EVENTS, lambda: [json.loads(data) for data in payloads] and None)
    report("split and parsed, 16 KB chunks", EVENTS, lambda: split(chunks))
    report("folded, 16 KB chunks", EVENTS, lambda: fold(chunks))
    report("folded, one event a chunk", EVENTS, lambda: fold(events))
    for count in (10_000, 100_000):
        text = [event({"content": " word"})] * count
        report(f"text of {count:,} deltas, each taken", count, lambda text=text: fold_many(text))
    for count in (10_000, 100_000):
        call = [arguments('{"x":"', "f"), *[arguments("abcd")] * count, arguments('"}')]
        report(f"one call of {count:,} fragments", count, lambda call=call: fold(call))
    for size in (100_000, 1_000_000):
        pieces = [arguments("x" * 20) for _ in range(size // 20)]
        call = [arguments('{"x":"', "f"), *pieces, arguments('"}')]
        name = f"one argument of {size:,} bytes, each taken"
        report(name, len(call), lambda call=call: fold_many(call))
    if "peers" in sys.argv[1:]:
        peers(chunks)


if __name__ == "__main__":
    main()
