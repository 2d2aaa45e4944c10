"""What all decoders share: bytes to frames, frames to payloads, and how an answer ends (pure).

A decoder is fed bytes and never raises: whatever is wrong with a body becomes the error of a message
that keeps what had arrived. A dialect adds what one payload means.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from yiem_nb.errors import ProviderError
from yiem_nb.events import MessageUpdateEvent
from yiem_nb.messages import AssistantMessage, StopReason, Usage
from yiem_nb.wire import faults
from yiem_nb.wire.builder import MessageBuilder, StreamError
from yiem_nb.wire.filters import CallRecovery, PlainText, TextFilter, ThinkTags
from yiem_nb.wire.frames import Frames, Framing, Sniffer
from yiem_nb.wire.schema_tools import SchemaReply

__all__ = ["Decoder", "DecoderOptions"]


@dataclass(frozen=True, slots=True)
class DecoderOptions:
    """What a model's `compat` and the request tell the decoder.

    Parameters
    ----------
    think_tags
        The text begins with ``<think>…</think>``.
    recover_text_tool_calls
        Calls of known tools that the model writes into its text are calls.
    tools
        The known names.
    schema_tools
        The answer is the JSON that `schema_tools` asked for.
    """

    think_tags: bool = False
    recover_text_tool_calls: bool = False
    tools: Collection[str] = ()
    schema_tools: bool = False


class Decoder(ABC):
    """Folds one body into events and a message.

    Feed it chunks while they come (`feed` returns the deltas each completes), stop when `done`, and
    `close` it for the message; `tail_events` are the deltas that only the end let go.

    Attributes
    ----------
    done
        Whether the answer is over; more bytes would be ignored.
    events
        How many events came; comments that keep the connection open are none.
    """

    family: ClassVar[str]
    #: Whether a body that begins with ``{`` is one document a line.
    json_lines: ClassVar[bool] = False

    def __init__(
        self,
        *,
        api: str = "",
        provider: str = "",
        model: str = "",
        content_type: str = "text/event-stream",
        options: DecoderOptions | None = None,
    ) -> None:
        self.done = False
        self.events = 0
        self._builder = MessageBuilder(api=api, provider=provider, model=model)
        self._text = self._text_filter(options or DecoderOptions())
        self._sniffer = Sniffer(content_type.lower(), lines=self.json_lines)
        self._frames: Frames | None = None
        self._framing: Framing = "sse"
        self._reply_is_broken = False
        # How the answer ended, as far as the body has said.
        self._complete = False
        self._raw_stop: str | None = None
        self._usage: Usage | None = None
        self._error: StreamError | None = None

    # --- In and out --------------------------------------------------------------------

    def feed(self, chunk: bytes) -> list[MessageUpdateEvent]:
        """Take a chunk of the body; return the deltas it completes."""
        if self.done:
            return []
        try:
            if self._frames is None:
                begun = self._sniffer.feed(chunk)
                if begun is None:
                    return []
                self._framing, self._frames, chunk = begun
            frames = self._frames.feed(chunk)
        except ProviderError as error:
            self._fail(StreamError("event_too_large", error.message))
            return self._builder.take_events()
        self._take(frames)
        return self._builder.take_events()

    def close(self, error: StreamError | None = None, *, stopped: bool = False) -> AssistantMessage:
        """End the body; return the message, complete or as far as it came.

        Parameters
        ----------
        error
            What broke the connection, if something did. It does not matter if the answer was
            complete before.
        stopped
            The request was stopped by us: what arrived is kept and the message is aborted.
        """
        if error is not None or stopped:
            # Half an event, cut by the connection, is nothing.
            self._frames = None
        self._end()
        broken = self._error
        if broken is None and not self._complete:
            if stopped:
                return self._message(StopReason.ABORTED, cut=True)
            broken = error or faults.INCOMPLETE
        if broken is not None:
            return self._message(StopReason.ERROR, error=broken, cut=True)
        return self._finished()

    def tail_events(self) -> list[MessageUpdateEvent]:
        """Return the deltas that only the end of the body let go."""
        return self._builder.take_events()

    # --- For dialects ------------------------------------------------------------------

    @abstractmethod
    def _payload(self, event: str, payload: Mapping[str, Any]) -> None:
        """Take one payload; `event` is its SSE name, where it has one."""

    def _fail(self, error: StreamError) -> None:
        """End the answer with an error; the first one counts."""
        self._error = self._error or error
        self.done = True

    def _finish(self, raw: object) -> None:
        """Note that the answer is complete, and why it stopped if the body says so."""
        self._complete = True
        self._raw_stop = str(raw) if raw else self._raw_stop

    def _stop_reason(self, raw: str | None) -> StopReason | StreamError:
        """Translate the provider's word for why it stopped."""
        return faults.stop_of(raw)

    # --- Inside ------------------------------------------------------------------------

    def _end(self) -> None:
        if self._frames is not None and not self.done:
            rest = self._frames.close()
            if self._framing in ("sse", "lines"):
                # A server may forget the last line end; half an event, though, is nothing (F15).
                rest = [frame for frame in rest if frame[0] == "error" or _is_whole(frame[1])]
            self._take(rest)
        self._frames = None
        self._text.flush()
        self._builder.flush()

    def _take(self, frames: list[tuple[str, bytes]]) -> None:
        for event, data in frames:
            self._frame(event, data)
            if self.done:
                return

    def _frame(self, event: str, data: bytes) -> None:
        if self._framing == "page":
            self._fail(faults.page(data))
            return
        data = data.strip()
        if data == b"[DONE]":
            self._complete = self.done = True
        elif data:
            # Anthropic keeps its connections open with events.
            self.events += event != "ping"
            self._parse(event, data)

    def _parse(self, event: str, data: bytes) -> None:
        try:
            payload = json.loads(data.decode())
        except (ValueError, RecursionError):
            self._fail(
                faults.in_band(data.decode("utf-8", "replace"))
                if event == "error"
                else faults.malformed(data)
            )
            return
        payloads = (
            payload if isinstance(payload, list) and self._framing == "document" else [payload]
        )
        try:
            for item in payloads:
                self._payload(event, item)
        except (AttributeError, LookupError, TypeError, ValueError):
            # JSON of another shape than the dialect's is as broken as no JSON at all.
            self._fail(faults.malformed(data))

    def _finished(self) -> AssistantMessage:
        stop = self._stop_reason(self._raw_stop)
        if isinstance(stop, StreamError):
            return self._message(StopReason.ERROR, error=stop)
        if stop is StopReason.LENGTH:
            return self._message(stop, cut=True)
        if self._builder.has_nameless_call:
            return self._message(StopReason.ERROR, error=faults.NAMELESS_CALL)
        if self._reply_is_broken:
            return self._message(StopReason.ERROR, error=faults.BROKEN_REPLY)
        return self._message(StopReason.TOOL_USE if self._builder.has_calls else StopReason.STOP)

    def _message(
        self, stop: StopReason, *, error: StreamError | None = None, cut: bool = False
    ) -> AssistantMessage:
        return self._builder.message(
            stop, raw=self._raw_stop, usage=self._usage, error=error, cut=cut
        )

    def _text_filter(self, options: DecoderOptions) -> TextFilter:
        text: TextFilter = PlainText(self._builder)
        if options.schema_tools:
            text = SchemaReply(self._builder, self._note_broken_reply)
        elif options.recover_text_tool_calls and options.tools:
            text = CallRecovery(self._builder, options.tools)
        return ThinkTags(self._builder, text) if options.think_tags else text

    def _note_broken_reply(self) -> None:
        self._reply_is_broken = True


def _is_whole(data: bytes) -> bool:
    if data.strip() == b"[DONE]":
        return True
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True
