"""OpenAI's chat completions, and the many servers that speak them: the answer (pure).

The request is in `openai_encode`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from yiem_nb.messages import StopReason
from yiem_nb.wire import faults
from yiem_nb.wire.builder import StreamError
from yiem_nb.wire.decoder import Decoder
from yiem_nb.wire.usage import as_mapping, openai_usage

__all__ = ["REASONING_FIELDS", "OpenAiChatDecoder"]

#: Where servers put the thoughts of a model; some fill two of them with the same text (chutes).
REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_text")


class OpenAiChatDecoder(Decoder):
    """Decodes a stream of ``chat.completion.chunk``, or one whole ``chat.completion``."""

    family = "openai-chat"
    _refused = False
    _has_tool_calls = False

    def _payload(self, event: str, payload: Mapping[str, Any]) -> None:
        self._builder.model = self._builder.model or str(payload.get("model") or "")
        choices = payload.get("choices") or ()
        usage = payload.get("usage") or as_mapping(payload.get("x_groq")).get("usage")
        for choice in choices:
            # Other choices were not asked for.
            if isinstance(choice, dict) and choice.get("index") in (0, None):
                self._choice(choice)
                usage = usage or choice.get("usage")
        if usage:
            self._usage = openai_usage(usage) or self._usage
        error = payload.get("error")
        if error or event == "error":
            self._fail(faults.in_band(error or payload))
        elif self._framing == "document":
            self._end_document(bool(choices))

    def _end_document(self, has_choices: bool) -> None:
        if has_choices:
            self._complete = True
        else:
            self._fail(faults.NO_ANSWER)

    def _choice(self, choice: Mapping[str, Any]) -> None:
        delta = choice.get("delta") or choice.get("message")
        if delta:
            self._delta(delta)
        finish = choice.get("finish_reason")
        if finish:
            self._finish(str(finish))

    def _delta(self, delta: Mapping[str, Any]) -> None:
        for field in REASONING_FIELDS:
            thought = delta.get(field)
            if thought and isinstance(thought, str):
                self._builder.thinking(thought, field=field)
                break
        content = delta.get("content")
        if content:
            self._content(content)
        refusal = delta.get("refusal")
        if refusal:
            self._refused = True
            self._text.feed(str(refusal))
        calls = delta.get("tool_calls")
        if calls:
            self._has_tool_calls = True
            self._text.flush()
            for call in calls:
                self._call(call)
        elif delta.get("function_call") and not self._has_tool_calls:
            # What `tool_calls` was before 2023; llama-cpp-python sends both.
            self._text.flush()
            self._call({"index": "function_call", "function": delta["function_call"]})

    def _content(self, content: Any) -> None:
        if isinstance(content, str):
            self._text.feed(content)
            return
        # Mistral's reasoning models send parts.
        for part in map(as_mapping, content if isinstance(content, list) else ()):
            if part.get("type") == "thinking":
                self._builder.thinking(_joined(part.get("thinking")), field="content")
            else:
                self._text.feed(_joined(part.get("text")))

    def _call(self, fragment: Mapping[str, Any]) -> None:
        function = as_mapping(fragment.get("function"))
        arguments = function.get("arguments")
        extra = as_mapping(fragment.get("extra_content"))
        signed = as_mapping(extra.get("google") or extra.get("vertex"))
        self._builder.call(
            key=fragment.get("index"),
            id=fragment.get("id"),
            name=function.get("name"),
            arguments=arguments if isinstance(arguments, str | dict) else None,
            signature=signed.get("thought_signature"),
        )

    def _stop_reason(self, raw: str | None) -> StopReason | StreamError:
        return faults.filtered("refusal") if self._refused else super()._stop_reason(raw)


def _joined(value: Any) -> str:
    """Return a text that may have come as a list of parts."""
    if isinstance(value, list):
        return "".join(_joined(as_mapping(part).get("text")) for part in value)
    return value if isinstance(value, str) else ""
