"""Provider dialects: messages to requests, bytes to messages; no input or output happens here.

``decoder_class(api)`` is a dialect's `Decoder`: feed it bytes as they come, close it for the message.
`fold_stream` does that for a body that is already there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from yiem_nb.messages import AgentMessage, AssistantMessage
from yiem_nb.models import Model
from yiem_nb.tools import AgentTool
from yiem_nb.wire.asked import read_request
from yiem_nb.wire.builder import MessageBuilder, StreamError
from yiem_nb.wire.compat import Compat, RequestOptions
from yiem_nb.wire.decoder import Decoder, DecoderOptions
from yiem_nb.wire.dialects import FAMILIES, Dialect, dialect
from yiem_nb.wire.response import decode_response
from yiem_nb.wire.schema_tools import uses_schema

__all__ = [
    "FAMILIES",
    "Compat",
    "Decoder",
    "DecoderOptions",
    "Dialect",
    "MessageBuilder",
    "RequestOptions",
    "StreamError",
    "decode_response",
    "decoder_class",
    "dialect",
    "encode",
    "fold_stream",
    "uses_schema",
]


def decoder_class(family: str) -> type[Decoder]:
    """Return the decoder of a family, the value of `Model.api`.

    Raises
    ------
    CommandError
        There is no such family; the hint lists them.
    """
    return dialect(family).decoder_class


def encode(
    system_prompt: str,
    messages: Sequence[AgentMessage],
    tools: Mapping[str, AgentTool] | None,
    model: Model,
    options: RequestOptions | None = None,
) -> dict[str, Any]:
    """Build the body of a streaming request in the dialect of `model`.

    Raises
    ------
    CommandError
        There is no such dialect; the hint lists them.
    ProviderError
        A `compat` flag of the model that there is not.
    """
    spoken = dialect(model.api)
    asked = read_request(system_prompt, messages, tools, model, options, call_id=spoken.call_id)
    return {**spoken.body(asked), **asked.compat.extra_body}


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
