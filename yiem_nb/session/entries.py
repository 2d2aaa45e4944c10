"""What a session file is made of: one header, then entries that know their parent (SPEC-4.1).

The format is pi's v3 (one JSON object a line), so that either program opens the other's files.
Fields we add, such as ``cellId`` on a prompt or ``requestHash`` on an answer, are plain extra
fields, which pi ignores; fields we do not know are kept. An entry of a type nobody here knows
is an `UnknownEntry`, which holds its line byte for byte.

An entry is appended with or without `id`, `parent_id` and `timestamp`: the storage fills in what
was not given.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, PrivateAttr, Tag
from pydantic.alias_generators import to_camel

from yiem_nb.blocks import Blocks, now_ms
from yiem_nb.messages import (
    AgentMessage,
    AssistantMessage,
    ToolResultMessage,
    Usage,
    UserMessage,
)

__all__ = [
    "ENTRY_TYPES",
    "FORMAT_VERSION",
    "ActiveToolsChangeEntry",
    "BranchSummaryEntry",
    "CompactionEntry",
    "ContextEditEntry",
    "CustomEntry",
    "CustomMessageEntry",
    "LabelEntry",
    "LeafEntry",
    "MessageEntry",
    "ModelChangeEntry",
    "OtherMessage",
    "Replacement",
    "SessionEntry",
    "SessionHeader",
    "SessionInfoEntry",
    "SessionTreeEntry",
    "ThinkingLevelChangeEntry",
    "UnknownEntry",
    "UsageEntry",
    "new_entry_id",
    "new_session_id",
    "timestamp_now",
]

#: The version we write and the newest we understand.
FORMAT_VERSION = 3


class _Record(BaseModel):
    """Frozen, camelCase on disk, unknown fields kept."""

    model_config = ConfigDict(
        frozen=True, extra="allow", alias_generator=to_camel, populate_by_name=True
    )


class SessionHeader(_Record):
    """The first line of the file."""

    type: Literal["session"] = "session"
    version: int = FORMAT_VERSION
    id: str
    timestamp: str
    cwd: str = ""
    parent_session: str | None = None
    metadata: dict[str, Any] = Field(default_factory=dict, exclude_if=lambda value: not value)


class SessionEntry(_Record):
    """What all entries have: the fields of pi's order come first on every line."""

    type: str
    id: str = ""
    #: ``None`` is a root. Not given means: below the current leaf.
    parent_id: str | None = None
    timestamp: str = ""


class OtherMessage(_Record):
    """A message in a role of another program (pi's ``bashExecution``, ``custom`` and so on)."""

    role: str


def _role(value: Any) -> str:
    role = value.get("role") if isinstance(value, dict) else getattr(value, "role", "")
    if role in ("user", "assistant"):
        return str(role)
    return "toolResult" if role in ("toolResult", "tool") else "other"


SessionMessage: TypeAlias = Annotated[
    Annotated[UserMessage, Tag("user")]
    | Annotated[AssistantMessage, Tag("assistant")]
    | Annotated[ToolResultMessage, Tag("toolResult")]
    | Annotated[OtherMessage, Tag("other")],
    Discriminator(_role),
]


#: A field of ours or of pi's; where another program put something else there, it is not set.
_Text: TypeAlias = Annotated[
    str | None, BeforeValidator(lambda value: value if isinstance(value, str) else None)
]


class MessageEntry(SessionEntry):
    """A message of the conversation.

    Ours carries `cell_id` on the prompts of a cell, `request_hash` on an answer, and `copy_of` on
    what was carried to another branch.
    """

    type: Literal["message"] = "message"
    message: SessionMessage
    cell_id: _Text = None
    request_hash: _Text = None
    copy_of: _Text = None

    @property
    def spoken(self) -> AgentMessage | None:
        """The message, if its role is one of ours."""
        return None if isinstance(self.message, OtherMessage) else self.message


class ThinkingLevelChangeEntry(SessionEntry):
    """From here on the model thinks this hard."""

    type: Literal["thinking_level_change"] = "thinking_level_change"
    thinking_level: str


class ModelChangeEntry(SessionEntry):
    """From here on this model answers."""

    type: Literal["model_change"] = "model_change"
    provider: str = ""
    model_id: str = ""


class ActiveToolsChangeEntry(SessionEntry):
    """From here on these tools are offered."""

    type: Literal["active_tools_change"] = "active_tools_change"
    active_tool_names: tuple[str, ...] = ()


class CompactionEntry(SessionEntry):
    """A summary that stands for all before `first_kept_entry_id`.

    Where that is the entry's own id, or no entry of the path, nothing before it is kept.
    """

    type: Literal["compaction"] = "compaction"
    summary: str = ""
    first_kept_entry_id: _Text = None
    tokens_before: float | int = 0
    details: Any = None
    usage: Usage | None = None
    from_hook: bool | None = None


class BranchSummaryEntry(SessionEntry):
    """What happened on the branch that ended in `from_id`, told on another one."""

    type: Literal["branch_summary"] = "branch_summary"
    from_id: str = "root"
    summary: str = ""
    details: Any = None
    usage: Usage | None = None
    from_hook: bool | None = None


class CustomEntry(SessionEntry):
    """Data of an extension; the model never sees it."""

    type: Literal["custom"] = "custom"
    custom_type: str = ""
    data: Any = None


class CustomMessageEntry(SessionEntry):
    """A message of an extension; the model sees it as a user's."""

    type: Literal["custom_message"] = "custom_message"
    custom_type: str = ""
    content: Blocks = ()
    display: bool = True
    details: Any = None


class LabelEntry(SessionEntry):
    """A name for an entry; without one, the label is taken off."""

    type: Literal["label"] = "label"
    target_id: str
    label: str | None = None


class SessionInfoEntry(SessionEntry):
    """The session's name; the empty name takes it off."""

    type: Literal["session_info"] = "session_info"
    name: str | None = None


class LeafEntry(SessionEntry):
    """The conversation goes on at `target_id`.

    Its parent is its target, because pi goes on at the last line of a file: so its readers and
    ours land on the same branch.
    """

    type: Literal["leaf"] = "leaf"
    target_id: str | None = None


class Replacement(_Record):
    """What the model sees in an entry's place."""

    content: Blocks = ()


class ContextEditEntry(SessionEntry):
    """Hide an entry from the model, or replace what it sees of it; history stays as it was."""

    type: Literal["context_edit"] = "context_edit"
    target_id: str
    #: ``None`` hides the target.
    replacement: Replacement | None = None


class UsageEntry(SessionEntry):
    """Tokens that belong to no message."""

    type: Literal["usage"] = "usage"
    kind: str = ""
    provider: str = ""
    model: str = ""
    usage: Usage = Field(default_factory=Usage)
    note: str | None = None


class UnknownEntry(SessionEntry):
    """An entry of a type, or in a shape, that is not known here."""

    #: The line it was read from, without its end; written back as it is.
    _line: bytes | None = PrivateAttr(default=None)

    @property
    def line(self) -> bytes | None:
        """The bytes it was read from."""
        return self._line

    @classmethod
    def read(cls, value: dict[str, Any], line: bytes) -> UnknownEntry:
        """Make one of a parsed line, whatever its core fields hold."""
        given = {name: value.get(name) for name in ("id", "parentId", "timestamp")}
        core = {name: text for name, text in given.items() if isinstance(text, str)}
        bare: dict[str, Any] = {"id": "", "parentId": None, "timestamp": ""}
        entry = cls.model_validate(value | bare | core)
        entry._line = line  # noqa: SLF001 - its own class
        return entry


SessionTreeEntry: TypeAlias = (
    MessageEntry
    | ThinkingLevelChangeEntry
    | ModelChangeEntry
    | ActiveToolsChangeEntry
    | CompactionEntry
    | BranchSummaryEntry
    | CustomEntry
    | CustomMessageEntry
    | LabelEntry
    | SessionInfoEntry
    | LeafEntry
    | ContextEditEntry
    | UsageEntry
    | UnknownEntry
)

_KNOWN: tuple[type[SessionTreeEntry], ...] = (
    MessageEntry,
    ThinkingLevelChangeEntry,
    ModelChangeEntry,
    ActiveToolsChangeEntry,
    CompactionEntry,
    BranchSummaryEntry,
    CustomEntry,
    CustomMessageEntry,
    LabelEntry,
    SessionInfoEntry,
    LeafEntry,
    ContextEditEntry,
    UsageEntry,
)
#: The class for each ``type`` on disk.
ENTRY_TYPES: dict[str, type[SessionTreeEntry]] = {
    entry.model_fields["type"].default: entry for entry in _KNOWN
}


def new_entry_id(taken: Callable[[str], bool]) -> str:
    """Draw eight hex digits that nobody has yet; after a hundred collisions, thirty-two."""
    for _ in range(100):
        candidate = secrets.token_hex(4)
        if not taken(candidate):
            return candidate
    return secrets.token_hex(16)


def new_session_id() -> str:
    """Draw a UUID of version 7: its beginning is the time, so files sort by age."""
    value = (time.time_ns() // 1_000_000 & (1 << 48) - 1) << 80 | secrets.randbits(80)
    value = value & ~(0xF << 76) | 7 << 76
    value = value & ~(0x3 << 62) | 2 << 62
    digits = f"{value:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def timestamp_now() -> str:
    """Say the time as ISO-8601 in UTC with milliseconds and a ``Z``, as pi does."""
    return timestamp_of(now_ms())


def timestamp_of(milliseconds: int) -> str:
    """Say a time, given in milliseconds since the epoch, in the same way."""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
