"""Provider dialects, sans-IO: messages to requests, bytes to messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from yiem_nb.errors import CommandError
from yiem_nb.messages import AssistantMessage
from yiem_nb.wire.compat import Compat, RequestOptions
from yiem_nb.wire.openai_chat import DecoderOptions, OpenAiChatDecoder
from yiem_nb.wire.openai_encode import encode

__all__ = [
    "Compat",
    "DecoderOptions",
    "OpenAiChatDecoder",
    "RequestOptions",
    "encode",
    "fold_stream",
]

_DECODERS = {"openai-chat": OpenAiChatDecoder}


def fold_stream(
    family: str,
    chunks: Iterable[bytes],
    *,
    content_type: str = "text/event-stream",
    options: Mapping[str, Any] | None = None,
) -> AssistantMessage:
    """Fold a response body into its message.

    Parameters
    ----------
    family
        The dialect, e.g. ``"openai-chat"``.
    chunks
        The body, cut anywhere.
    content_type
        What the response said it is.
    options
        ``think_tags``, ``recover_text_tool_calls``, ``tools`` (the known names).
    """
    decoder_class = _DECODERS.get(family)
    if decoder_class is None:
        raise CommandError(
            f"There is no dialect {family!r}.", hint=f"Known: {', '.join(_DECODERS)}."
        )
    decoder = decoder_class(content_type=content_type, options=DecoderOptions(**(options or {})))
    for chunk in chunks:
        decoder.feed(chunk)
    return decoder.close()
