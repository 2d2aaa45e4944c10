"""A server's quirks, as data (pure). Chosen by the user or the catalogue, never guessed from URLs."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from yiem_nb.errors import ErrorCode, ProviderError
from yiem_nb.models import ThinkingLevel

__all__ = ["Compat", "RequestOptions"]


Effort = Literal["minimal", "low", "medium", "high", "xhigh", "max"]


@dataclass(frozen=True, slots=True)
class Compat:
    """What a server wants, beyond the specification of its dialect.

    Parameters
    ----------
    system_role
        ``"system"``, or ``"developer"`` for OpenAI's reasoning models.
    max_tokens_field
        The name of the limit on the answer: ``"max_completion_tokens"`` or ``"max_tokens"``.
    usage_in_stream
        Whether ``stream_options.include_usage`` may be sent.
    reasoning_effort
        Whether ``reasoning_effort`` may be sent for a model that reasons.
    efforts
        The efforts the server knows; a thinking level between two of them is the lower one.
    echo_reasoning
        Send the model's own thoughts back in the field they came in (DeepSeek, llama.cpp).
    required_reasoning_field
        A field that every answer in the history must have, empty or not (DeepSeek).
    null_content
        Whether an answer that only calls tools has null content; ``""`` otherwise.
    tools_mode
        ``"native"``; ``"json_schema"`` lets a server without tools answer within a schema that
        is one of the tools or a reply; ``"none"`` offers no tools.
    chain_calls
        With ``"json_schema"``: whether a tool's result may be followed by another call.
    think_tags
        Thoughts arrive as ``<think>…</think>`` in the text.
    recover_text_tool_calls
        A call that arrives as text is a call, if its name is known.
    thinking_style
        Anthropic and Gemini: whether a thinking level is sent as a budget of tokens or an effort.
    prompt_cache
        Anthropic: whether stable prefixes are marked for its cache.
    structured
        Whether a JSON schema for the answer may be sent in the dialect's own field; it is said in
        words in any case.
    key_header
        The header that carries the key, where it is not the dialect's own (Azure: ``"api-key"``).
    query
        What is added to each address (Azure: ``api-version``).
    extra_body
        Fields added to each request as they are.
    """

    system_role: Literal["system", "developer"] = "system"
    max_tokens_field: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    usage_in_stream: bool = True
    reasoning_effort: bool = True
    efforts: tuple[Effort, ...] = ("low", "medium", "high")
    echo_reasoning: bool = False
    required_reasoning_field: str = ""
    null_content: bool = True
    tools_mode: Literal["native", "json_schema", "none"] = "native"
    chain_calls: bool = True
    think_tags: bool = False
    recover_text_tool_calls: bool = False
    thinking_style: Literal["budget", "effort"] = "budget"
    prompt_cache: bool = True
    structured: bool = True
    key_header: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    extra_body: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, flags: Mapping[str, Any]) -> Compat:
        """Read the flags of a `Model`.

        Raises
        ------
        ProviderError
            A flag nobody knows, the nearest one is named; or a value it cannot have.
        """
        unknown = [name for name in flags if name not in _flag_names()]
        if unknown:
            close = difflib.get_close_matches(unknown[0], _flag_names(), n=1)
            known = f"Did you mean {close[0]}?" if close else f"Known: {', '.join(_flag_names())}."
            raise ProviderError(
                f"There is no compat flag {unknown[0]!r}.",
                hint=known,
                code=ErrorCode.PROVIDER_CONFIG,
            )
        try:
            return _validator().validate_python(dict(flags))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            name = first["loc"][0]
            raise ProviderError(
                f"The compat flag {name!r} cannot be {flags[str(name)]!r}.",
                hint=f"{first['msg']}.",
                code=ErrorCode.PROVIDER_CONFIG,
            ) from None


@lru_cache(maxsize=1)
def _flag_names() -> tuple[str, ...]:
    return tuple(item.name for item in fields(Compat))


@lru_cache(maxsize=1)
def _validator() -> TypeAdapter[Compat]:
    return TypeAdapter(Compat)


def nearest_level(level: str, known: Sequence[str]) -> str:
    """Return the highest of the `known` levels that is not above `level`, else the lowest."""
    order = [str(item) for item in ThinkingLevel]
    ranked = sorted(known, key=order.index)
    below = [name for name in ranked if order.index(name) <= order.index(level)]
    return (below or ranked)[-1 if below else 0]


_BUDGETS = {
    "minimal": 1024,
    "low": 2048,
    "medium": 8192,
    "high": 16_384,
    "xhigh": 32_768,
    "max": 65_536,
}
_SMALLEST_BUDGET = 1024


def thinking_budget(level: str, max_tokens: int) -> int:
    """Return the tokens a model may think for at `level`; 0 where `max_tokens` leaves no room.

    The budget is part of the answer's limit, and half of that is left for the answer.
    """
    budget = min(_BUDGETS[level], max_tokens // 2)
    return budget if budget >= _SMALLEST_BUDGET else 0


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """What one request asks for, beside the conversation.

    Parameters
    ----------
    thinking_level
        How hard the model may think; a server that knows fewer levels gets the nearest.
    max_tokens
        Longest answer; ``None`` leaves it to the server.
    temperature
        ``None`` leaves it to the server.
    tool_choice
        ``"auto"``, ``"none"``, ``"required"`` or the name of a tool.
    output_schema
        The JSON schema that the answer must fit.
    """

    thinking_level: str = "off"
    max_tokens: int | None = None
    temperature: float | None = None
    tool_choice: str | None = None
    output_schema: Mapping[str, Any] | None = None
