"""The three messages, usage, and what a tool returns; `yiem_nb.blocks` has what they are made of.

Two doors lead to every type here. ``TextContent("hi")`` is for people: it takes positionals and
enforces SPEC-8.1 (text is not empty, images are Base64 of a real MIME type, timestamps are
positive). ``TextContent.model_validate(...)`` is for files and wires: it takes what is there,
because a strict reader loses answers (an aborted message has no text, another program has its
own fields). Both doors give the same frozen value; unknown fields are kept and written back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from yiem_nb.blocks import (
    AgentToolCall,
    AssistantContent,
    Blocks,
    ImageContent,
    MessageContent,
    ReasoningContent,
    TextContent,
    Timestamp,
    UnknownContent,
    WireModel,
    as_blocks,
    for_people,
    now_ms,
)

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


def _check_created(content: Iterable[MessageContent], timestamp: int) -> None:
    for block in content:
        if isinstance(block, TextContent) and not block.text:
            raise ValueError("TextContent.text must not be empty (SPEC-8.1)")
    if timestamp <= 0:
        raise ValueError("a message's timestamp must be a positive integer (SPEC-8.1)")


# --- Usage ---------------------------------------------------------------------------------


class UsageCost(WireModel):
    """What a request cost, in US dollars."""

    input: float = 0.0
    output: float = 0.0
    cache_read: float = 0.0
    cache_write: float = 0.0
    total: float = 0.0


class Usage(WireModel):
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

    @for_people
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


class _Message(WireModel):
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

    @for_people
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

    @for_people
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
                "content": (*as_blocks(content), *calls),
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

    @for_people
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


class AgentToolResult(WireModel):
    """What `AgentTool.execute` returns (SPEC-3.2): `content` for the model, `details` for people.

    A tool that returns nothing says so to the model: ``(no output)``.
    """

    content: Blocks = ()
    details: Any = None
    usage: Usage | None = None
    added_tool_names: tuple[str, ...] | None = None
    is_error: bool = False

    @for_people
    def __init__(
        self,
        content: _Content = (),
        details: Any = None,
        usage: Usage | None = None,
        added_tool_names: Sequence[str] | None = None,
        is_error: bool = False,
        **extra: Any,
    ) -> None:
        blocks = as_blocks(content) or as_blocks("(no output)")
        given = {"content": blocks, "details": details, "usage": usage, "is_error": is_error}
        self._create(given | {"added_tool_names": added_tool_names}, extra)

    @property
    def text(self) -> str:
        """All text blocks, joined by blank lines."""
        return text_of(self.content)


def text_of(content: Iterable[MessageContent]) -> str:
    """Join the text blocks of `content`, separated by blank lines."""
    return "\n\n".join(block.text for block in content if isinstance(block, TextContent))
