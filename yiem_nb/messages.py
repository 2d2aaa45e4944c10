"""Content blocks, the three messages and what a tool returns.

Two doors lead to every type here. ``TextContent("hi")`` is for people: it takes positionals and
enforces SPEC-8.1 (text is not empty, images are Base64 of a real MIME type, timestamps are
positive). ``TextContent.model_validate(...)`` is for files and wires: it takes what is there,
because a strict reader loses answers (an aborted message has no text, another program has its
own fields). Both doors give the same frozen value; unknown fields are kept and written back.
"""

from __future__ import annotations

import base64
import binascii
import re
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)
from pydantic.alias_generators import to_camel

__all__ = [
    "AgentMessage",
    "AgentToolCall",
    "AgentToolResult",
    "AssistantContent",
    "AssistantMessage",
    "AssistantMessageToolCall",
    "ImageContent",
    "LlmUsage",
    "MessageContent",
    "ReasoningContent",
    "StopReason",
    "TextContent",
    "ToolResultMessage",
    "UnknownContent",
    "Usage",
    "UsageCost",
    "UserMessage",
    "assistant_message_tool_call",
    "now_ms",
    "text_of",
]

_Init = TypeVar("_Init", bound=Callable[..., None])
_MIME_TYPE = re.compile(r"[a-z]+/[a-zA-Z0-9][a-zA-Z0-9!#$&^_.+-]*")


def now_ms() -> int:
    """Milliseconds since the epoch, the unit of every message's timestamp."""
    return time.time_ns() // 1_000_000


def _to_ms(value: Any) -> Any:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(
                "the timestamp has no time zone; use an aware datetime or milliseconds"
            )
        return int(value.timestamp() * 1000)
    return value


Timestamp: TypeAlias = Annotated[int, BeforeValidator(_to_ms)]


class _Wire(BaseModel):
    """Frozen, camelCase on disk, unknown fields kept."""

    model_config = ConfigDict(
        frozen=True, extra="allow", alias_generator=to_camel, populate_by_name=True
    )

    def _create(self, fields: dict[str, Any], extra: dict[str, Any]) -> None:
        """Build from keywords and refuse the ones that are no field."""
        if extra and (unknown := extra.keys() - _aliases(type(self))):
            raise TypeError(f"{type(self).__name__} has no field {min(unknown)!r}")
        super().__init__(**fields, **extra)


def _aliases(model: type[BaseModel]) -> set[str]:
    return {field.alias or name for name, field in model.model_fields.items()} | set(
        model.model_fields
    )


def _for_people(init: _Init) -> _Init:
    """Mark an ``__init__`` as one that validation of files and wires does not go through.

    Pydantic asks for this mark to tell its own ``__init__`` from a custom one, and calls a
    custom one for every nested value; `RootModel` sets it in the same way. A test fails if
    that ever changes.
    """
    init.__pydantic_base_init__ = True  # type: ignore[attr-defined]
    return init


# --- Content blocks ------------------------------------------------------------------------


class TextContent(_Wire):
    """Plain text (SP-006.1, SPEC-1.4)."""

    type: Literal["text"] = "text"
    text: str

    @_for_people
    def __init__(self, text: str, **extra: Any) -> None:
        if isinstance(text, str) and not text:
            raise ValueError("TextContent.text must not be empty (SPEC-8.1)")
        self._create({"text": text}, extra)


class ImageContent(_Wire):
    """A Base64-encoded image and its MIME type (SP-006.2, SPEC-1.4)."""

    type: Literal["image"] = "image"
    data: str
    mime_type: str

    @_for_people
    def __init__(self, data: str, mime_type: str, **extra: Any) -> None:
        _check_base64(data)
        if not _MIME_TYPE.fullmatch(mime_type):
            raise ValueError(f"ImageContent.mime_type {mime_type!r} is no MIME type (SPEC-8.1)")
        self._create({"data": data, "mime_type": mime_type}, extra)


def _check_base64(data: str) -> None:
    try:
        if not base64.b64decode(data, validate=True):
            raise ValueError("it is empty")
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"ImageContent.data is no Base64: {error} (SPEC-8.1)") from None


class ReasoningContent(_Wire):
    """What the model thought before it answered (SP-006.3).

    ``signature``, ``redacted``, ``field`` and ``item_id`` are what a provider wants echoed;
    ``field`` is the wire field the text came in.
    """

    type: Literal["thinking"] = "thinking"
    text: str = Field(alias="thinking", validation_alias=AliasChoices("thinking", "text"))
    signature: str | None = Field(
        default=None,
        serialization_alias="thinkingSignature",
        validation_alias=AliasChoices("thinkingSignature", "signature"),
    )
    redacted: bool = Field(default=False, exclude_if=lambda value: not value)
    field: str | None = None
    item_id: str | None = None

    @_for_people
    def __init__(
        self,
        text: str,
        signature: str | None = None,
        redacted: bool = False,
        field: str | None = None,
        item_id: str | None = None,
        **extra: Any,
    ) -> None:
        given = {"text": text, "signature": signature, "redacted": redacted, "field": field}
        self._create(given | {"item_id": item_id}, extra)


class AgentToolCall(_Wire):
    """A call the model wants made (SP-005).

    Arguments that are cut off (``incomplete``) or no JSON object (``invalid``) are kept as
    ``raw_arguments``; such a call is never run but answered with an error result.
    """

    type: Annotated[
        Literal["toolCall"],
        BeforeValidator(lambda value: "toolCall" if value == "function" else value),
    ] = "toolCall"
    id: str
    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    raw_arguments: str | None = None
    incomplete: bool = Field(default=False, exclude_if=lambda value: not value)
    invalid: bool = Field(default=False, exclude_if=lambda value: not value)
    signature: str | None = Field(
        default=None,
        serialization_alias="thoughtSignature",
        validation_alias=AliasChoices("thoughtSignature", "signature"),
    )
    item_id: str | None = None
    recovered: bool = Field(default=False, exclude_if=lambda value: not value)

    @_for_people
    def __init__(
        self,
        id: str,
        name: str,
        arguments: dict[str, Any] | None = None,
        *,
        type: Literal["toolCall", "function"] = "toolCall",
        raw_arguments: str | None = None,
        incomplete: bool = False,
        invalid: bool = False,
        signature: str | None = None,
        item_id: str | None = None,
        recovered: bool = False,
        **extra: Any,
    ) -> None:
        given = {"type": type, "id": id, "name": name, "arguments": arguments or {}}
        flags = {"incomplete": incomplete, "invalid": invalid, "recovered": recovered}
        kept = {"raw_arguments": raw_arguments, "signature": signature, "item_id": item_id}
        self._create(given | flags | kept, extra)

    @property
    def runnable(self) -> bool:
        """Whether the arguments arrived whole and are a JSON object."""
        return not (self.incomplete or self.invalid)


class UnknownContent(_Wire):
    """A block some other program wrote; kept as it is, shown to nobody."""

    type: str


def _block_tag(value: Any) -> str:
    tag = value.get("type") if isinstance(value, dict) else getattr(value, "type", "")
    if tag == "function":
        return "toolCall"
    return tag if tag in ("text", "image", "thinking", "toolCall") else "unknown"


MessageContent: TypeAlias = Annotated[
    Annotated[TextContent, Tag("text")]
    | Annotated[ImageContent, Tag("image")]
    | Annotated[ReasoningContent, Tag("thinking")]
    | Annotated[AgentToolCall, Tag("toolCall")]
    | Annotated[UnknownContent, Tag("unknown")],
    Discriminator(_block_tag),
]
AssistantContent: TypeAlias = MessageContent


def _as_blocks(value: Any) -> Any:
    """Text where blocks are expected is one text block; null is none."""
    if value is None or value == "":
        return ()
    if isinstance(value, str):
        return ({"type": "text", "text": value},)
    return value


Blocks: TypeAlias = Annotated[tuple[MessageContent, ...], BeforeValidator(_as_blocks)]


def _check_created(content: Iterable[MessageContent], timestamp: int) -> None:
    for block in content:
        if isinstance(block, TextContent) and not block.text:
            raise ValueError("TextContent.text must not be empty (SPEC-8.1)")
    if timestamp <= 0:
        raise ValueError("a message's timestamp must be a positive integer (SPEC-8.1)")


# --- Usage ---------------------------------------------------------------------------------


class UsageCost(_Wire):
    """What a request cost, in US dollars."""

    input: float = 0.0
    output: float = 0.0
    cache_read: float = 0.0
    cache_write: float = 0.0
    total: float = 0.0


class Usage(_Wire):
    """Tokens of one request.

    ``input`` excludes ``cache_read`` and ``cache_write``; ``output`` includes ``reasoning``;
    ``total_tokens`` is the sum of input, output and both caches unless the provider says
    otherwise. ``reported=False`` means the provider said nothing: unknown, not free.
    """

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = Field(default=0, exclude_if=lambda value: not value)
    total_tokens: int = 0
    cost: UsageCost = Field(default_factory=UsageCost)
    reported: bool = Field(default=True, exclude_if=bool)

    @_for_people
    def __init__(
        self,
        input: int = 0,
        output: int = 0,
        cache_read: int = 0,
        cache_write: int = 0,
        reasoning: int = 0,
        total_tokens: int | None = None,
        cost: UsageCost | None = None,
        reported: bool = True,
        **extra: Any,
    ) -> None:
        counts = {"input": input, "output": output, "reasoning": reasoning, "reported": reported}
        caches = {"cache_read": cache_read, "cache_write": cache_write}
        sums = {"total_tokens": total_tokens, "cost": cost or UsageCost()}
        self._create(counts | caches | {k: v for k, v in sums.items() if v is not None}, extra)

    @model_validator(mode="before")
    @classmethod
    def _sum_total(cls, value: Any) -> Any:
        """Fill in the total where it was not given."""
        if not isinstance(value, dict) or _given(value, "total_tokens", "totalTokens") is not None:
            return value
        names = (
            ("input",),
            ("output",),
            ("cache_read", "cacheRead"),
            ("cache_write", "cacheWrite"),
        )
        counts = [_given(value, *name) or 0 for name in names]
        if not all(isinstance(count, int) for count in counts):
            return value
        return value | {"total_tokens": sum(counts)}


def _given(value: dict[str, Any], *names: str) -> Any:
    return next((value[name] for name in names if value.get(name) is not None), None)


LlmUsage = Usage


class StopReason(StrEnum):
    """Why the model stopped. Any spelling of providers and specifications is accepted."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_USE = "toolUse"
    ERROR = "error"
    ABORTED = "aborted"
    # The specifications' own names.
    END_TURN = "stop"
    TOOL_CALLS = "toolUse"

    @classmethod
    def _missing_(cls, value: object) -> StopReason | None:
        return cls(_SPELLINGS[value]) if value in _SPELLINGS else None


_SPELLINGS: dict[object, str] = {
    "end_turn": "stop",
    "end": "stop",
    "eos": "stop",
    "stop_sequence": "stop",
    "completed": "stop",
    "STOP": "stop",
    "pause_turn": "stop",
    "tool_calls": "toolUse",
    "tool_use": "toolUse",
    "tool_call": "toolUse",
    "function_call": "toolUse",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "MAX_TOKENS": "length",
    "model_length": "length",
    "content_filter": "error",
    "refusal": "error",
    "failed": "error",
    "cancelled": "aborted",
}


# --- Messages ------------------------------------------------------------------------------


class _Message(_Wire):
    if TYPE_CHECKING:
        timestamp: int

    @property
    def datetime(self) -> datetime:
        """The timestamp as an aware datetime in UTC."""
        return datetime.fromtimestamp(self.timestamp / 1000, UTC)


_Content: TypeAlias = str | Sequence[Any]


class UserMessage(_Message):
    """What a person, or a queue on their behalf, said (SP-001, SPEC-2.2)."""

    role: Literal["user"] = "user"
    content: Blocks = ()
    timestamp: Timestamp = Field(default_factory=now_ms)

    @_for_people
    def __init__(
        self,
        content: _Content = (),
        timestamp: int | datetime | None = None,
        *,
        role: Literal["user"] = "user",
        **extra: Any,
    ) -> None:
        when = now_ms() if timestamp is None else timestamp
        self._create({"role": role, "content": content, "timestamp": when}, extra)
        _check_created(self.content, self.timestamp)

    @property
    def text(self) -> str:
        """All text blocks, joined by blank lines."""
        return text_of(self.content)


class AssistantMessage(_Message):
    """What the model answered (SP-002, SP-003, SPEC-2.3).

    Tool calls are blocks of `content`, in the order the model produced them;
    ``tool_calls=[...]`` appends them there.
    """

    role: Literal["assistant"] = "assistant"
    content: Blocks = ()
    api: str = ""
    provider: str = ""
    model: Annotated[str, BeforeValidator(lambda value: "" if value is None else value)] = ""
    usage: Usage = Field(default_factory=lambda: Usage(0, 0))
    stop_reason: StopReason = StopReason.STOP
    timestamp: Timestamp = Field(default_factory=now_ms)
    error_message: str | None = None
    error_code: str | None = None
    retryable: bool | None = None
    raw_stop_reason: str | None = None

    @_for_people
    def __init__(
        self,
        content: _Content = (),
        api: str = "",
        provider: str = "",
        model: str | None = "",
        usage: Usage | None = None,
        stop_reason: StopReason | str | None = None,
        error_message: str | None = None,
        timestamp: int | datetime | None = None,
        *,
        role: Literal["assistant"] = "assistant",
        tool_calls: Sequence[AgentToolCall | dict[str, Any]] = (),
        raw_stop_reason: str | None = None,
        error_code: str | None = None,
        retryable: bool | None = None,
        **extra: Any,
    ) -> None:
        calls = [
            call if isinstance(call, AgentToolCall) else {"type": "toolCall", **call}
            for call in tool_calls
        ]
        reason = stop_reason or (StopReason.TOOL_USE if calls else StopReason.STOP)
        self._create(
            {
                "role": role,
                "content": (*_as_blocks(content), *calls),
                "api": api,
                "provider": provider,
                "model": model,
                "usage": usage if usage is not None else Usage(0, 0),
                "stop_reason": StopReason(reason),
                "error_message": error_message,
                "timestamp": now_ms() if timestamp is None else timestamp,
                "raw_stop_reason": raw_stop_reason,
                "error_code": error_code,
                "retryable": retryable,
            },
            extra,
        )
        _check_created((), self.timestamp)

    @property
    def tool_calls(self) -> tuple[AgentToolCall, ...]:
        """The calls among the content, in the model's order."""
        return tuple(block for block in self.content if isinstance(block, AgentToolCall))

    @property
    def text(self) -> str:
        """All text blocks, joined by blank lines."""
        return text_of(self.content)


def assistant_message_tool_call(
    tool_calls: Sequence[AgentToolCall | dict[str, Any]] = (), **fields: Any
) -> AssistantMessage:
    """Build SP-003's message: an `AssistantMessage` that calls tools."""
    return AssistantMessage(tool_calls=tool_calls, **{"stop_reason": StopReason.TOOL_USE} | fields)


AssistantMessageToolCall = assistant_message_tool_call


class ToolResultMessage(_Message):
    """What a tool gave back (SP-004, SPEC-2.4).

    ``aborted`` marks the last message of a run that was stopped while its tools ran.
    """

    role: Annotated[
        Literal["toolResult"],
        BeforeValidator(lambda value: "toolResult" if value == "tool" else value),
    ] = "toolResult"
    tool_call_id: str = ""
    tool_name: str = ""
    content: Blocks = ()
    details: Any = None
    usage: Usage | None = None
    added_tool_names: tuple[str, ...] | None = None
    is_error: bool = False
    timestamp: Timestamp = Field(default_factory=now_ms)
    aborted: bool = Field(default=False, exclude_if=lambda value: not value)

    @_for_people
    def __init__(
        self,
        tool_call_id: str = "",
        tool_name: str = "",
        content: _Content = (),
        details: Any = None,
        usage: Usage | None = None,
        added_tool_names: Sequence[str] | None = None,
        is_error: bool = False,
        timestamp: int | datetime | None = None,
        *,
        role: Literal["toolResult", "tool"] = "toolResult",
        aborted: bool = False,
        **extra: Any,
    ) -> None:
        self._create(
            {
                "role": role,
                "tool_call_id": tool_call_id,
                "tool_name": tool_name,
                "content": content,
                "details": details,
                "usage": usage,
                "added_tool_names": added_tool_names,
                "is_error": is_error,
                "timestamp": now_ms() if timestamp is None else timestamp,
                "aborted": aborted,
            },
            extra,
        )
        _check_created(self.content, self.timestamp)

    @property
    def text(self) -> str:
        """All text blocks, joined by blank lines."""
        return text_of(self.content)


def _role(value: Any) -> str:
    role = value.get("role") if isinstance(value, dict) else getattr(value, "role", "")
    return "toolResult" if role == "tool" else str(role)


AgentMessage: TypeAlias = Annotated[
    Annotated[UserMessage, Tag("user")]
    | Annotated[AssistantMessage, Tag("assistant")]
    | Annotated[ToolResultMessage, Tag("toolResult")],
    Discriminator(_role),
]


class AgentToolResult(_Wire):
    """What `AgentTool.execute` returns (SPEC-3.2): `content` for the model, `details` for people.

    A tool that returns nothing says so to the model: ``(no output)``.
    """

    content: Blocks = ()
    details: Any = None
    usage: Usage | None = None
    added_tool_names: tuple[str, ...] | None = None
    is_error: bool = False

    @_for_people
    def __init__(
        self,
        content: _Content = (),
        details: Any = None,
        usage: Usage | None = None,
        added_tool_names: Sequence[str] | None = None,
        is_error: bool = False,
        **extra: Any,
    ) -> None:
        blocks = _as_blocks(content) or _as_blocks("(no output)")
        given = {"content": blocks, "details": details, "usage": usage, "is_error": is_error}
        self._create(given | {"added_tool_names": added_tool_names}, extra)

    @property
    def text(self) -> str:
        """All text blocks, joined by blank lines."""
        return text_of(self.content)


def text_of(content: Iterable[MessageContent]) -> str:
    """Join the text blocks of `content`, separated by blank lines."""
    return "\n\n".join(block.text for block in content if isinstance(block, TextContent))
