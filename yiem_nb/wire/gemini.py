"""Google's ``generateContent``: the answer (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from yiem_nb.messages import StopReason
from yiem_nb.wire import faults
from yiem_nb.wire.builder import StreamError
from yiem_nb.wire.decoder import Decoder
from yiem_nb.wire.usage import as_mapping, gemini_usage

__all__ = ["GeminiDecoder"]

_MALFORMED = {"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"}
_FILTERED = {
    "SAFETY",
    "RECITATION",
    "LANGUAGE",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "IMAGE_SAFETY",
}


class GeminiDecoder(Decoder):
    """Decodes a stream of responses: server-sent, or one JSON array of them.

    A call comes whole, without an id; the finish reason may come without it, in a later chunk.
    """

    family: ClassVar[str] = "gemini"
    _blocked = False

    def _payload(self, event: str, payload: Mapping[str, Any]) -> None:
        self._builder.model = self._builder.model or str(payload.get("modelVersion") or "")
        self._usage = gemini_usage(payload.get("usageMetadata")) or self._usage
        if payload.get("error"):
            self._fail(faults.in_band(payload["error"]))
            return
        for candidate in map(as_mapping, payload.get("candidates") or ()):
            if not candidate.get("index"):
                self._candidate(candidate)
        blocked = as_mapping(payload.get("promptFeedback")).get("blockReason")
        if blocked:
            self._blocked = True
            self._finish(str(blocked))

    def _candidate(self, candidate: Mapping[str, Any]) -> None:
        parts = as_mapping(candidate.get("content")).get("parts") or ()
        for part in map(as_mapping, parts):
            self._part(part)
        finish = candidate.get("finishReason")
        if finish and finish != "FINISH_REASON_UNSPECIFIED":
            self._finish(str(finish))

    def _part(self, part: Mapping[str, Any]) -> None:
        signature = part.get("thoughtSignature")
        call = part.get("functionCall")
        if isinstance(call, Mapping):
            self._builder.call(
                key=object(),
                id=call.get("id"),
                name=call.get("name"),
                arguments=dict(as_mapping(call.get("args"))),
                signature=signature,
            )
        elif part.get("thought"):
            self._builder.thinking(part.get("text") or "", signature=signature)
        else:
            self._builder.text(part.get("text") or "")

    def _stop_reason(self, raw: str | None) -> StopReason | StreamError:
        if raw in _MALFORMED:
            return StreamError("malformed_tool_call", f"The model's call failed: {raw}.", True)
        if raw in _FILTERED or self._blocked:
            return faults.filtered("content_filter")
        if raw == "OTHER":
            return super()._stop_reason("error")
        return super()._stop_reason(raw)
