"""A whole response, whoever sent it, becomes a message (pure; SP-017, SP-018).

The format is never named: a response is an object that holds a ``message`` (LM Studio, vLLM, Ollama,
OpenAI's envelope), blocks of ``content`` (Anthropic and the specification's second format), Google's
``candidates`` or an ``output`` of items. Nothing raises and nothing is an empty success: what holds
neither answer nor error becomes a message that says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from yiem_nb.messages import AssistantMessage, StopReason, Usage
from yiem_nb.wire import faults
from yiem_nb.wire.builder import MessageBuilder, StreamError
from yiem_nb.wire.decoder import Decoder
from yiem_nb.wire.gemini import GeminiDecoder
from yiem_nb.wire.openai_chat import REASONING_FIELDS
from yiem_nb.wire.openai_responses import OpenAiResponsesDecoder
from yiem_nb.wire.usage import anthropic_usage, as_mapping, count, openai_usage

__all__ = ["decode_response"]


def decode_response(response: Mapping[str, Any]) -> AssistantMessage:
    """Read a response of any known format.

    Parameters
    ----------
    response
        The parsed body. Beside the answer it may carry ``api``, ``provider``, ``model``, ``usage``
        and ``error_message`` (SP-018.4).

    Returns
    -------
    AssistantMessage
        Calls decide that it calls tools, not the finish reason. A call whose arguments are no JSON
        object is kept and marked ``invalid``.
    """
    response = as_mapping(response)
    api, provider, model = (str(response.get(name) or "") for name in ("api", "provider", "model"))
    if "candidates" in response:
        return _by_dialect(GeminiDecoder(api=api, provider=provider, model=model), response)
    if isinstance(response.get("output"), list):
        return _by_dialect(
            OpenAiResponsesDecoder(api=api, provider=provider, model=model), response
        )
    builder = MessageBuilder(api=api, provider=provider, model=model)
    try:
        raw = _read(builder, response)
    except (AttributeError, LookupError, TypeError, ValueError):
        return builder.message(StopReason.ERROR, error=faults.NO_ANSWER)
    return _message(builder, response, raw)


def _by_dialect(decoder: Decoder, response: Mapping[str, Any]) -> AssistantMessage:
    decoder.feed(json.dumps(response).encode())
    return decoder.close()


def _message(
    builder: MessageBuilder, response: Mapping[str, Any], raw: str | None
) -> AssistantMessage:
    stop = faults.stop_of(raw)
    broken = stop if isinstance(stop, StreamError) else None
    error = _error(builder, response, raw) or broken
    usage = _usage(response.get("usage"))
    if error is not None:
        return builder.message(StopReason.ERROR, raw=raw, usage=usage, error=error)
    if stop is StopReason.LENGTH:
        return builder.message(StopReason.LENGTH, raw=raw, usage=usage, cut=True)
    reason = StopReason.TOOL_USE if builder.has_calls else StopReason.STOP
    return builder.message(reason, raw=raw, usage=usage)


def _error(
    builder: MessageBuilder, response: Mapping[str, Any], raw: str | None
) -> StreamError | None:
    if response.get("error"):
        return faults.in_band(response["error"])
    if response.get("error_message"):
        return StreamError("provider_error", str(response["error_message"]))
    if builder.has_nameless_call:
        return faults.NAMELESS_CALL
    if not builder.has_content and raw is None and not _has_answer(response):
        return faults.NO_ANSWER
    return None


def _has_answer(response: Mapping[str, Any]) -> bool:
    given = (response.get("message"), response.get("content"), response.get("choices") or None)
    return any(value is not None for value in given)


def _usage(value: Any) -> Usage | None:
    usage = as_mapping(value)
    if "inputTokens" in usage or "outputTokens" in usage:
        return Usage(count(usage.get("inputTokens")), count(usage.get("outputTokens")))
    if "cache_read_input_tokens" in usage or "cache_creation_input_tokens" in usage:
        return anthropic_usage(usage)
    return openai_usage(usage)


# --- The answer ----------------------------------------------------------------------------


def _read(builder: MessageBuilder, response: Mapping[str, Any]) -> str | None:
    """Put the answer into `builder`; return the provider's word for why it stopped."""
    choices = response.get("choices")
    choice = as_mapping(choices[0]) if choices else response
    message = as_mapping(choice.get("message"))
    for field in REASONING_FIELDS:
        if message.get(field):
            builder.thinking(message[field], field=field)
            break
    _read_content(builder, message.get("content"))
    for call in message.get("tool_calls") or ():
        _read_call(builder, call)
    if not builder.has_content:
        _read_content(builder, choice.get("content"))
    names = ("finish_reason", "stop_reason", "done_reason")
    return next((str(choice[name]) for name in names if choice.get(name)), None)


def _read_content(builder: MessageBuilder, content: Any) -> None:
    """Read text, or blocks in the order they stand in; unknown ones are ignored."""
    if isinstance(content, str):
        builder.text(content)
        return
    for block in content or ():
        if isinstance(block, str):
            builder.text(block)
        else:
            _read_block(builder, as_mapping(block))


def _read_block(builder: MessageBuilder, block: Mapping[str, Any]) -> None:
    kind = block.get("type")
    if kind == "text":
        builder.text(block.get("text") or "")
    elif kind in ("thinking", "reasoning"):
        text = block.get("thinking") or block.get("text") or ""
        builder.thinking(text, signature=block.get("signature"))
        builder.end_block()
    elif kind == "redacted_thinking":
        builder.thinking(redacted=True, signature=block.get("data"))
        builder.end_block()
    else:
        for call in _calls_of(block):
            _read_call(builder, call)


def _calls_of(block: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the calls of a block: one, or a list of them (SP-018.1, SP-018.2)."""
    if block.get("type") == "tool_calls":
        yield from block.get("tool_calls") or ()
    elif block.get("type") in ("tool_call", "toolCall", "tool_use", "function", "function_call"):
        yield block


def _read_call(builder: MessageBuilder, call: Any) -> None:
    call = as_mapping(call)
    function = as_mapping(call.get("function")) or call
    arguments = function.get("arguments", function.get("input"))
    if arguments is not None and not isinstance(arguments, str | dict):
        # Kept as it is, and found to be no object.
        arguments = json.dumps(arguments)
    builder.call(key=object(), id=call.get("id"), name=function.get("name"), arguments=arguments)
