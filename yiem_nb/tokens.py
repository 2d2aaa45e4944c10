"""How many tokens a text takes, estimated without a tokenizer (pure).

Tokenizers are downloads, so this counts characters by class. Measured on two vocabularies: source code
about 5 characters a token, prose 3 to 4, JSON 2.5 to 3, tables of numbers 1, base64 1.3, Thai and
Japanese 0.6 to 2.3. The estimate errs on the high side. The last usage that a provider has reported
stands for all before it, so that only what came since is estimated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic_core import to_json

from yiem_nb.messages import (
    AgentMessage,
    AgentToolCall,
    AssistantMessage,
    ImageContent,
    MessageContent,
    ReasoningContent,
    StopReason,
    TextContent,
)

__all__ = ["IMAGE_TOKENS", "ContextMeter", "message_tokens", "text_tokens"]

IMAGE_TOKENS = 1_200
#: What frames a message on the wire.
MESSAGE_TOKENS = 4

_BASE64 = re.compile(r"[A-Za-z0-9+/=_-]{120,}")
_LETTERS = re.compile(r"[A-Za-z\s]")
_DIGITS = re.compile(r"[0-9]")
#: Longer texts are judged by samples of this length.
_SAMPLE = 16_384


def text_tokens(text: str) -> int:
    """Estimate the tokens of a text."""
    if len(text) <= 3 * _SAMPLE:
        return _counted(text)
    middle = len(text) // 2
    sample = text[:_SAMPLE] + text[middle : middle + _SAMPLE] + text[-_SAMPLE:]
    return round(_counted(sample) * len(text) / len(sample))


def _counted(text: str) -> int:
    packed = sum(len(run) for run in _BASE64.findall(text))
    rest = _BASE64.sub("", text) if packed else text
    ascii_only = rest if rest.isascii() else rest.encode("ascii", "ignore").decode()
    foreign = len(rest) - len(ascii_only)
    digits = len(_DIGITS.findall(ascii_only))
    if digits * 3 >= len(ascii_only):  # a table of numbers: each character is one
        plain = float(len(ascii_only))
    else:
        letters = len(_LETTERS.findall(ascii_only))
        plain = letters / 4.5 + digits + (len(ascii_only) - letters - digits) / 2
    return round(packed / 1.3 + foreign + plain + 0.5)


def message_tokens(message: AgentMessage) -> int:
    """Estimate the tokens of a message."""
    return MESSAGE_TOKENS + sum(_block_tokens(block) for block in message.content)


def _block_tokens(block: MessageContent) -> int:
    if isinstance(block, TextContent | ReasoningContent):
        return text_tokens(block.text)
    if isinstance(block, ImageContent):
        return IMAGE_TOKENS
    if isinstance(block, AgentToolCall):
        arguments = block.raw_arguments
        said = text_tokens(arguments) if arguments else _json_tokens(block.arguments)
        return text_tokens(block.name) + said
    return text_tokens(block.model_dump_json())


class ContextMeter:
    """Estimates what a request holds, as the conversation grows; each message is counted once.

    Parameters
    ----------
    messages, system_prompt, schemas
        What is sent; `schemas` describe the tools.
    since
        Usage reported before this time, in milliseconds, is not believed: it speaks of a
        conversation that has been compacted since.

    Attributes
    ----------
    tokens
        The estimate.
    """

    def __init__(
        self,
        messages: Iterable[AgentMessage] = (),
        system_prompt: str = "",
        schemas: Iterable[Mapping[str, Any]] = (),
        *,
        since: int = 0,
    ) -> None:
        self._since = since
        self.tokens = text_tokens(system_prompt) + sum(_json_tokens(schema) for schema in schemas)
        for message in messages:
            self.add(message)

    def add(self, message: AgentMessage) -> None:
        """Count one more message; an answer's reported usage stands for all up to it."""
        known = _reported(message, self._since)
        self.tokens = self.tokens + message_tokens(message) if known is None else known


def _json_tokens(value: Any) -> int:
    return text_tokens(to_json(value, inf_nan_mode="null", fallback=repr).decode())


def _reported(message: AgentMessage, since: int) -> int | None:
    """Return what an answer says was in its context, itself included."""
    if not isinstance(message, AssistantMessage) or message.timestamp <= since:
        return None
    if message.stop_reason in (StopReason.ERROR, StopReason.ABORTED):
        return None
    usage = message.usage
    if not usage.reported:
        return None
    return (usage.input + usage.output + usage.cache_read + usage.cache_write) or None
