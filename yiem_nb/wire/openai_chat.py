"""Chat completions, streamed: bytes in, deltas and a message out (pure).

Nothing a server says about itself is trusted further than it holds: calls decide whether the answer
calls tools, not the finish reason; a stream that just ends is an error that keeps what had come.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from yiem_nb.events import MessageUpdateEvent
from yiem_nb.messages import AssistantMessage, StopReason, Usage
from yiem_nb.wire.builder import MessageBuilder, StreamError
from yiem_nb.wire.filters import CallRecovery, ThinkTags
from yiem_nb.wire.schema_tools import SchemaAnswer
from yiem_nb.wire.sse import SseSplitter
from yiem_nb.wire.usage import openai_usage

__all__ = ["DecoderOptions", "OpenAiChatDecoder", "stream_error"]

_REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_text")
_RETRYABLE_WORDS = (
    "overload",
    "rate_limit",
    "rate limit",
    "timeout",
    "server_error",
    "unavailable",
    "internal",
    "stream_error",
    "error",
)


@dataclass(frozen=True, slots=True)
class DecoderOptions:
    """What the model's `compat` and the request tell the decoder."""

    think_tags: bool = False
    recover_text_tool_calls: bool = False
    schema_tools: bool = False
    tools: Collection[str] = ()


class OpenAiChatDecoder:
    """Decodes one response body.

    Feed it chunks as they arrive, and close it when the body is over or was cut.
    """

    def __init__(
        self,
        *,
        api: str = "openai-chat",
        provider: str = "",
        model: str = "",
        content_type: str = "text/event-stream",
        options: DecoderOptions | None = None,
    ) -> None:
        options = options or DecoderOptions()
        self.done = False
        #: How many events came; comments that keep the connection open are none.
        self.events = 0
        self._builder = MessageBuilder(api=api, provider=provider, model=model)
        self._splitter = SseSplitter()
        self._whole: list[bytes] | None = None if "event-stream" in content_type else []
        self._head = b""
        self._usage: Usage | None = None
        self._finish: str | None = None
        self._error: StreamError | None = None
        self._refused = False
        self._think = ThinkTags(self._builder) if options.think_tags else None
        self._recovery: CallRecovery | None = None
        if options.recover_text_tool_calls:
            self._recovery = CallRecovery(self._builder, frozenset(options.tools))
        self._schema = SchemaAnswer() if options.schema_tools else None

    def feed(self, chunk: bytes) -> list[MessageUpdateEvent]:
        """Take a chunk of the body; return the deltas it completes."""
        if self._whole is not None:
            self._whole.append(chunk)
            return []
        if not self.events and len(self._head) < _HEAD_BYTES:
            self._head += chunk[:_HEAD_BYTES]
        for name, data in self._splitter.feed(chunk):
            self._event(name, data)
        return self._builder.take_events()

    def close(self, *, stopped: bool = False) -> AssistantMessage:
        """End the body and build the message.

        Parameters
        ----------
        stopped
            The request was stopped by us: what arrived is kept and the message is aborted.
        """
        if not stopped:
            self._end_of_body()
        self._release_text()
        if stopped:
            return self._builder.message(StopReason.ABORTED, usage=self._usage, cut=True)
        if self._error is None and not (self.done or self._finish is not None):
            self._error = StreamError(
                "incomplete_stream", "The answer ended before it was complete.", retryable=True
            )
        return self._message()

    def tail_events(self) -> list[MessageUpdateEvent]:
        """Return the deltas that only the end of the body let go."""
        return self._builder.take_events()

    # --- The body ----------------------------------------------------------------------

    def _end_of_body(self) -> None:
        if self._whole is not None:
            self._whole_body(b"".join(self._whole))
            return
        for name, data in self._splitter.close():
            self._event(name, data)
        if not self.events and self._head.lstrip()[:1] in (b"{", b"<", b"["):
            self._whole_body(self._head)

    def _whole_body(self, body: bytes) -> None:
        """Read a response that is no stream: a complete answer, an error, or no JSON at all."""
        try:
            value = json.loads(body)
        except ValueError:
            text = body[:200].decode("utf-8", "replace").strip()
            self._error = StreamError("not_json", f"The server did not answer with JSON: {text}")
            return
        if not isinstance(value, Mapping):
            self._error = StreamError("not_json", "The server's answer is no JSON object.")
            return
        if value.get("error"):
            self._error = stream_error(value["error"])
            return
        self.done = True
        self._chunk(value)

    def _event(self, name: str, data: bytes) -> None:
        if self.done or self._error is not None:
            return
        self.events += 1
        if data.strip() == b"[DONE]":
            self.done = True
            return
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            text = data[:200].decode("utf-8", "replace")
            if name == "error":
                self._error = stream_error({"code": "stream_error", "message": text})
            else:
                said = f"The server sent an event that is not JSON: {text}"
                self._error = StreamError("malformed_event", said, retryable=True)
            return
        if not isinstance(value, Mapping):
            return
        if name == "error" or value.get("error"):
            self._finish = _finish_of(value) or self._finish
            self._error = stream_error(value.get("error") or value)
            return
        self._chunk(value)

    def _chunk(self, value: Mapping[str, Any]) -> None:
        self._usage = openai_usage(value.get("usage")) or self._usage
        choice = _first_choice(value)
        if choice is None:
            return
        self._usage = openai_usage(choice.get("usage")) or self._usage
        delta = choice.get("delta") or choice.get("message")
        if isinstance(delta, Mapping):
            self._delta(delta)
        if isinstance(choice.get("finish_reason"), str):
            self._finish = choice["finish_reason"]

    # --- One delta ---------------------------------------------------------------------

    def _delta(self, delta: Mapping[str, Any]) -> None:
        for field in _REASONING_FIELDS:
            thought = delta.get(field)
            if isinstance(thought, str) and thought:
                self._builder.thinking(thought, field=field)
                break
        self._content(delta.get("content"))
        refusal = delta.get("refusal")
        if isinstance(refusal, str) and refusal:
            self._refused = True
            self._builder.text(refusal)
        calls = delta.get("tool_calls")
        if isinstance(calls, list) and calls:
            for call in calls:
                if isinstance(call, Mapping):
                    self._call(call)
        elif isinstance(delta.get("function_call"), Mapping):
            legacy = delta["function_call"]
            self._call({"index": "function_call", "function": legacy})

    def _content(self, content: Any) -> None:
        if isinstance(content, str):
            self._text(content)
        elif isinstance(content, list):
            for part in content:
                if isinstance(part, Mapping):
                    self._part(part)

    def _part(self, part: Mapping[str, Any]) -> None:
        if part.get("type") == "thinking":
            inner = part.get("thinking")
            texts = inner if isinstance(inner, list) else [{"text": inner}]
            thought = "".join(str(t.get("text") or "") for t in texts if isinstance(t, Mapping))
            self._builder.thinking(thought, field="content")
        elif isinstance(part.get("text"), str):
            self._text(part["text"])

    def _text(self, text: str) -> None:
        if not text:
            return
        if self._schema is not None:
            self._builder.text(self._schema.feed(text))
        elif self._think is not None:
            self._think.feed(text)
        elif self._recovery is not None:
            self._recovery.feed(text)
        else:
            self._builder.text(text)

    def _call(self, call: Mapping[str, Any]) -> None:
        function = call.get("function")
        function = function if isinstance(function, Mapping) else {}
        arguments = function.get("arguments")
        google = (call.get("extra_content") or {}).get("google") or {}
        self._builder.call(
            key=call.get("index"),
            id=call.get("id") or None,
            name=function.get("name") or None,
            arguments=arguments if isinstance(arguments, str | dict) else None,
            signature=google.get("thought_signature"),
        )

    # --- The end -----------------------------------------------------------------------

    def _release_text(self) -> None:
        if self._think is not None:
            self._think.close()
        if self._recovery is not None:
            for call in self._recovery.close():
                self._builder.call(name=call.name, arguments=call.arguments, recovered=True)
        if self._schema is not None and not self._schema.replied and self._schema.raw:
            chosen = self._schema.call()
            if chosen is not None:
                self._builder.call(name=chosen[0], arguments=chosen[1])
            else:
                self._builder.text(self._schema.raw)

    def _message(self) -> AssistantMessage:
        error = self._error or self._finish_error()
        stop = _stop_reason(self._finish)
        if self._builder.has_calls and stop is not StopReason.LENGTH:
            stop = StopReason.TOOL_USE
        elif stop is StopReason.TOOL_USE and not self._builder.has_calls:
            stop = StopReason.STOP
        cut = stop is StopReason.LENGTH or error is not None
        return self._builder.message(
            stop, raw=self._finish, usage=self._usage, error=error, cut=cut
        )

    def _finish_error(self) -> StreamError | None:
        if self._finish == "content_filter":
            return StreamError("content_filter", "The provider's filter cut this answer off.")
        if self._refused:
            return StreamError("refusal", "The model refused to answer.")
        if self._finish in ("error", "network_error"):
            return StreamError("stream_error", "The provider reported an error.", retryable=True)
        return None


_HEAD_BYTES = 65_536


def _first_choice(value: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The choice with index 0; a request asks for one, some servers send more."""
    choices = value.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, Mapping) and choice.get("index") in (0, None):
            return choice
    return None


def _finish_of(value: Mapping[str, Any]) -> str | None:
    reason = (_first_choice(value) or {}).get("finish_reason")
    return reason if isinstance(reason, str) else None


def _stop_reason(finish: str | None) -> StopReason:
    """An unknown reason is a plain stop; the server's word is kept beside it."""
    try:
        return StopReason(finish) if finish is not None else StopReason.STOP
    except ValueError:
        return StopReason.STOP


def stream_error(error: Any) -> StreamError:
    """Read an error object; ``code``, else ``type``, names it."""
    if not isinstance(error, Mapping):
        return StreamError("stream_error", str(error), retryable=True)
    code = error.get("code")
    if code is None or code == "":
        code = error.get("type") or error.get("status") or "stream_error"
    message = error.get("message") or error.get("detail") or ""
    return StreamError(str(code), str(message), retryable=_is_retryable(str(code)))


def _is_retryable(code: str) -> bool:
    if code.isdigit():
        return int(code) in (408, 409, 425, 429) or int(code) >= 500
    lowered = code.lower()
    if "invalid" in lowered or "quota" in lowered or "not_found" in lowered:
        return False
    return any(word in lowered for word in _RETRYABLE_WORDS)
