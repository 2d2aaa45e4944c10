"""OpenAI's responses: the answer (pure)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from yiem_nb.messages import StopReason
from yiem_nb.wire import faults
from yiem_nb.wire.builder import StreamError
from yiem_nb.wire.decoder import Decoder
from yiem_nb.wire.usage import as_mapping, openai_usage

__all__ = ["OpenAiResponsesDecoder"]


class OpenAiResponsesDecoder(Decoder):
    """Decodes a stream of response events, or one whole response.

    Items are known by their place in the output: their ids change between events on some servers.
    """

    family: ClassVar[str] = "openai-responses"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        #: Places in the output whose text came in deltas.
        self._streamed: set[Any] = set()
        self._refused = False

    def _payload(self, event: str, payload: Mapping[str, Any]) -> None:
        kind = payload.get("type") or event
        handler = _HANDLERS.get(kind)
        if handler is not None:
            handler(self, payload)
        elif payload.get("object") == "response":
            self.on_end({"response": payload})
        elif payload.get("error"):
            self.on_error(payload)
        elif self._framing == "document":
            self._fail(faults.NO_ANSWER)

    def on_error(self, payload: Mapping[str, Any]) -> None:
        """Take an error that ends the stream."""
        self._fail(faults.in_band(payload.get("error") or payload))

    def on_text(self, payload: Mapping[str, Any]) -> None:
        """Take a piece of text."""
        self._streamed.add(payload.get("output_index"))
        self._builder.text(payload.get("delta") or "")

    def on_refusal(self, payload: Mapping[str, Any]) -> None:
        """Take a piece of a refusal."""
        self._refused = True
        self.on_text(payload)

    def on_thought(self, payload: Mapping[str, Any]) -> None:
        """Take a piece of a thought or of its summary."""
        self._streamed.add(payload.get("output_index"))
        self._builder.thinking(payload.get("delta") or "")

    def on_summary_part(self, payload: Mapping[str, Any]) -> None:
        """Set the parts of a summary apart."""
        if payload.get("summary_index"):
            self._builder.thinking("\n\n")

    def on_arguments(self, payload: Mapping[str, Any]) -> None:
        """Take a piece of a call's arguments."""
        self._builder.call(key=payload.get("output_index"), arguments=payload.get("delta"))

    def on_arguments_done(self, payload: Mapping[str, Any]) -> None:
        """Take the whole arguments, which on some servers come only here."""
        self._builder.complete_arguments(
            payload.get("output_index"), payload.get("arguments") or ""
        )

    def on_item(self, payload: Mapping[str, Any]) -> None:
        """Begin an item."""
        item = as_mapping(payload.get("item"))
        if item.get("type") == "function_call":
            self._call(payload.get("output_index"), item)
        else:
            self._builder.end_block()

    def on_item_done(self, payload: Mapping[str, Any]) -> None:
        """Take what an item has to say only when it is whole."""
        index, item = payload.get("output_index"), as_mapping(payload.get("item"))
        kind = item.get("type")
        if kind == "function_call":
            self._call(index, item)
        elif kind == "reasoning":
            self._reasoning(index, item)
        elif kind == "message" and index not in self._streamed:
            for part in map(as_mapping, item.get("content") or ()):
                self._refused = self._refused or part.get("type") == "refusal"
                self._builder.text(part.get("text") or part.get("refusal") or "")

    def on_end(self, payload: Mapping[str, Any]) -> None:
        """Take the whole response: how it ended, and what was not streamed."""
        response = as_mapping(payload.get("response"))
        self._builder.model = self._builder.model or str(response.get("model") or "")
        self._usage = openai_usage(response.get("usage"))
        if not self._builder.has_content:
            for index, item in enumerate(response.get("output") or ()):
                self.on_item_done({"output_index": index, "item": item})
        reason = as_mapping(response.get("incomplete_details")).get("reason")
        self._finish(str(reason or response.get("status") or "completed"))
        if response.get("error"):
            self._fail(faults.in_band(response["error"]))
        self.done = True

    def _call(self, index: Any, item: Mapping[str, Any]) -> None:
        self._builder.call(
            key=index, id=item.get("call_id"), name=item.get("name"), item_id=item.get("id")
        )
        self._builder.complete_arguments(index, item.get("arguments") or "")

    def _reasoning(self, index: Any, item: Mapping[str, Any]) -> None:
        if index not in self._streamed:
            parts = map(as_mapping, item.get("summary") or item.get("content") or ())
            self._builder.thinking("\n\n".join(str(part.get("text") or "") for part in parts))
        signature = item.get("encrypted_content")
        if signature or index in self._streamed:
            self._builder.thinking(signature=signature, item_id=item.get("id"))

    def _stop_reason(self, raw: str | None) -> StopReason | StreamError:
        return faults.filtered("refusal") if self._refused else super()._stop_reason(raw)


_D = OpenAiResponsesDecoder
_HANDLERS: dict[Any, Callable[[OpenAiResponsesDecoder, Mapping[str, Any]], None]] = {
    "response.output_text.delta": _D.on_text,
    "response.refusal.delta": _D.on_refusal,
    "response.reasoning_summary_text.delta": _D.on_thought,
    "response.reasoning_text.delta": _D.on_thought,
    "response.reasoning_summary_part.added": _D.on_summary_part,
    "response.function_call_arguments.delta": _D.on_arguments,
    "response.function_call_arguments.done": _D.on_arguments_done,
    "response.output_item.added": _D.on_item,
    "response.output_item.done": _D.on_item_done,
    "response.completed": _D.on_end,
    "response.incomplete": _D.on_end,
    "response.failed": _D.on_end,
    "response.cancelled": _D.on_end,
    "error": _D.on_error,
}
