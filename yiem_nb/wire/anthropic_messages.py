"""Anthropic's messages: the answer (pure)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from yiem_nb.messages import StopReason
from yiem_nb.wire import faults
from yiem_nb.wire.builder import StreamError
from yiem_nb.wire.decoder import Decoder
from yiem_nb.wire.usage import anthropic_usage, as_mapping

__all__ = ["AnthropicMessagesDecoder"]


class AnthropicMessagesDecoder(Decoder):
    """Decodes a stream of message events, or one whole message.

    Blocks of tools that run on the server are no content of ours: nobody here can run them.
    """

    family: ClassVar[str] = "anthropic-messages"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._calls: dict[Any, Mapping[str, Any]] = {}
        self._counts: dict[str, Any] = {}

    def _payload(self, event: str, payload: Mapping[str, Any]) -> None:
        kind = payload.get("type") or event
        if kind == "error" or "error" in payload:
            self._fail(faults.in_band(payload.get("error") or payload))
            return
        handler = _HANDLERS.get(kind)
        if handler is not None:
            handler(self, payload)
        elif self._framing == "document":
            self._fail(faults.NO_ANSWER)

    def on_message(self, message: Mapping[str, Any]) -> None:
        """Take a whole message, which came although a stream was asked for."""
        self.on_message_start({"message": message})
        for index, block in enumerate(message.get("content") or ()):
            self.on_content_block_start({"index": index, "content_block": block})
            self.on_content_block_stop({"index": index})
        self._finish(message.get("stop_reason"))

    def on_message_start(self, payload: Mapping[str, Any]) -> None:
        """Take the counts of the prompt."""
        message = as_mapping(payload.get("message"))
        self._builder.model = self._builder.model or str(message.get("model") or "")
        self._count(message.get("usage"))

    def on_content_block_start(self, payload: Mapping[str, Any]) -> None:
        """Begin a block."""
        index, block = payload.get("index"), as_mapping(payload.get("content_block"))
        kind = block.get("type")
        if kind == "text":
            self._builder.text(block.get("text") or "")
        elif kind == "thinking":
            self._builder.end_block()
            self._builder.thinking(block.get("thinking") or "", signature=block.get("signature"))
        elif kind == "redacted_thinking":
            self._builder.end_block()
            self._builder.thinking(redacted=True, signature=block.get("data"))
            self._builder.end_block()
        elif kind == "tool_use":
            self._calls[index] = block
            self._builder.call(key=index, id=block.get("id"), name=block.get("name"))

    def on_content_block_delta(self, payload: Mapping[str, Any]) -> None:
        """Take a piece of a block."""
        delta = as_mapping(payload.get("delta"))
        kind = delta.get("type")
        if kind == "text_delta":
            self._builder.text(delta.get("text") or "")
        elif kind == "thinking_delta":
            self._builder.thinking(delta.get("thinking") or "")
        elif kind == "signature_delta":
            self._builder.thinking(signature=delta.get("signature"))
        elif kind == "input_json_delta" and payload.get("index") in self._calls:
            self._builder.call(key=payload["index"], arguments=delta.get("partial_json"))

    def on_content_block_stop(self, payload: Mapping[str, Any]) -> None:
        """Close a block; arguments may have come whole with its start."""
        started = self._calls.get(payload.get("index"))
        if started is not None and started.get("input"):
            self._builder.complete_arguments(
                payload.get("index"), json.dumps(started["input"], ensure_ascii=False)
            )

    def on_message_delta(self, payload: Mapping[str, Any]) -> None:
        """Take the stop reason and the counts of the answer."""
        self._count(payload.get("usage"))
        stopped = as_mapping(payload.get("delta")).get("stop_reason")
        if stopped:
            self._finish(str(stopped))

    def on_message_stop(self, payload: Mapping[str, Any]) -> None:
        """End the answer."""
        self._finish(None)
        self.done = True

    def _count(self, usage: Any) -> None:
        """Merge the counts: they come in two events, and a proxy may leave some out of the second."""
        for name, value in as_mapping(usage).items():
            if value or name not in self._counts:
                self._counts[name] = value
        self._usage = anthropic_usage(self._counts)

    def _stop_reason(self, raw: str | None) -> StopReason | StreamError:
        if raw == "model_context_window_exceeded":
            return StopReason.LENGTH
        return super()._stop_reason(raw)


_HANDLERS: dict[Any, Callable[[AnthropicMessagesDecoder, Mapping[str, Any]], None]] = {
    "message": AnthropicMessagesDecoder.on_message,
    "message_start": AnthropicMessagesDecoder.on_message_start,
    "message_delta": AnthropicMessagesDecoder.on_message_delta,
    "message_stop": AnthropicMessagesDecoder.on_message_stop,
    "content_block_start": AnthropicMessagesDecoder.on_content_block_start,
    "content_block_delta": AnthropicMessagesDecoder.on_content_block_delta,
    "content_block_stop": AnthropicMessagesDecoder.on_content_block_stop,
}
