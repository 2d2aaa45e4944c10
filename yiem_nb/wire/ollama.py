"""Ollama's own chat: the answer, one JSON object a line (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from yiem_nb.wire import faults
from yiem_nb.wire.decoder import Decoder
from yiem_nb.wire.usage import as_mapping, ollama_usage

__all__ = ["OllamaDecoder"]


class OllamaDecoder(Decoder):
    """Decodes lines of JSON; calls come whole, mostly without ids."""

    family: ClassVar[str] = "ollama"
    json_lines: ClassVar[bool] = True

    def _payload(self, event: str, payload: Mapping[str, Any]) -> None:
        if payload.get("error"):
            self._fail(faults.in_band(payload["error"]))
            return
        self._builder.model = self._builder.model or str(payload.get("model") or "")
        message = as_mapping(payload.get("message"))
        self._builder.thinking(message.get("thinking") or "", field="thinking")
        if message.get("content"):
            self._text.feed(message["content"])
        for call in map(as_mapping, message.get("tool_calls") or ()):
            self._call(call)
        if payload.get("done"):
            self._usage = ollama_usage(payload)
            self._finish(payload.get("done_reason"))
            self.done = True

    def _call(self, call: Mapping[str, Any]) -> None:
        function = as_mapping(call.get("function"))
        arguments = function.get("arguments")
        self._text.flush()
        self._builder.call(
            key=object(),
            id=call.get("id"),
            name=function.get("name"),
            arguments=arguments if isinstance(arguments, str | dict) else None,
        )
