"""What a message is made of: content blocks, and how values of the wire are built.

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
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
)
from pydantic.alias_generators import to_camel

__all__ = [
    "AgentToolCall",
    "AssistantContent",
    "Blocks",
    "ImageContent",
    "MessageContent",
    "ReasoningContent",
    "TextContent",
    "Timestamp",
    "UnknownContent",
    "WireModel",
    "as_blocks",
    "for_people",
    "now_ms",
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


class WireModel(BaseModel):
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


def for_people(init: _Init) -> _Init:
    """Mark an ``__init__`` as one that validation of files and wires does not go through.

    Pydantic asks for this mark to tell its own ``__init__`` from a custom one, and calls a
    custom one for every nested value; `RootModel` sets it in the same way. A test fails if
    that ever changes.
    """
    init.__pydantic_base_init__ = True  # type: ignore[attr-defined]
    return init


class TextContent(WireModel):
    """Plain text (SP-006.1, SPEC-1.4)."""

    type: Literal["text"] = "text"
    text: str

    @for_people
    def __init__(self, text: str, **extra: Any) -> None:
        if isinstance(text, str) and not text:
            raise ValueError("TextContent.text must not be empty (SPEC-8.1)")
        self._create({"text": text}, extra)


class ImageContent(WireModel):
    """A Base64-encoded image and its MIME type (SP-006.2, SPEC-1.4)."""

    type: Literal["image"] = "image"
    data: str
    mime_type: str

    @for_people
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


class ReasoningContent(WireModel):
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

    @for_people
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


class AgentToolCall(WireModel):
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

    @for_people
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


class UnknownContent(WireModel):
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


def as_blocks(value: Any) -> Any:
    """Text where blocks are expected is one text block; null is none."""
    if value is None or value == "":
        return ()
    if isinstance(value, str):
        return ({"type": "text", "text": value},)
    return value


Blocks: TypeAlias = Annotated[tuple[MessageContent, ...], BeforeValidator(as_blocks)]
