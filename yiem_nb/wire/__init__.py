"""Provider dialects: messages to requests, bytes to messages; no input or output happens here.

``decoder_class(api)`` is a dialect's `Decoder`: feed it bytes as they come, close it for the message.
`fold_stream` does that for a body that is already there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, TypeAlias

from yiem_nb.errors import CommandError
from yiem_nb.messages import AssistantMessage
from yiem_nb.wire.builder import MessageBuilder, StreamError
from yiem_nb.wire.compat import Compat, RequestOptions
from yiem_nb.wire.decoder import Decoder, DecoderOptions
from yiem_nb.wire.openai_chat import OpenAiChatDecoder
from yiem_nb.wire.openai_encode import encode
from yiem_nb.wire.response import decode_response
from yiem_nb.wire.schema_tools import uses_schema

__all__ = [
    "FAMILIES",
    "Compat",
    "Decoder",
    "DecoderOptions",
    "Encode",
    "MessageBuilder",
    "OpenAiChatDecoder",
    "RequestOptions",
    "StreamError",
    "decode_response",
    "decoder_class",
    "encode",
    "encoder",
    "fold_stream",
    "uses_schema",
]

#: Family name → the module and class of its decoder, and the module of its `encode`.
FAMILIES = {
    "openai-chat": ("openai_chat", "OpenAiChatDecoder", "openai_encode"),
    "openai-responses": ("openai_responses", "OpenAiResponsesDecoder", "responses_encode"),
    "anthropic-messages": ("anthropic_messages", "AnthropicMessagesDecoder", "anthropic_encode"),
    "gemini": ("gemini", "GeminiDecoder", "gemini_encode"),
    "ollama": ("ollama", "OllamaDecoder", "ollama_encode"),
}

#: ``encode(system_prompt, messages, tools, model, options=None)`` builds a request's body.
Encode: TypeAlias = Callable[..., dict[str, Any]]


def decoder_class(family: str) -> type[Decoder]:
    """Return the decoder of a family, the value of `Model.api`.

    Raises
    ------
    CommandError
        There is no such family; the hint lists them.
    """
    module, name, _ = _names(family)
    found: type[Decoder] = getattr(import_module(f"yiem_nb.wire.{module}"), name)
    return found


def encoder(family: str) -> Encode:
    """Return the `encode` of a family, which builds the body of a request.

    Raises
    ------
    CommandError
        There is no such family; the hint lists them.
    """
    module = _names(family)[2]
    found: Encode = import_module(f"yiem_nb.wire.{module}").encode
    return found


def _names(family: str) -> tuple[str, str, str]:
    if family not in FAMILIES:
        raise CommandError(
            f"There is no dialect {family!r}.", hint=f"Known: {', '.join(FAMILIES)}."
        )
    return FAMILIES[family]


def fold_stream(
    family: str,
    chunks: Iterable[bytes],
    *,
    content_type: str = "text/event-stream",
    options: Mapping[str, Any] | None = None,
) -> AssistantMessage:
    """Fold the whole body of a response into its message.

    Parameters
    ----------
    family
        The dialect, e.g. ``"openai-chat"``.
    chunks
        The body, cut anywhere.
    content_type
        The response's header.
    options
        What a model's `compat` and the request would tell the decoder: fields of `DecoderOptions`.
    """
    decoder = decoder_class(family)(
        api=family, content_type=content_type, options=DecoderOptions(**(options or {}))
    )
    for chunk in chunks:
        decoder.feed(chunk)
    return decoder.close()
