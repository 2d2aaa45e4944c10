"""From a point of the tree to what the model sees there.

The rules are pi's, with one correction: model, thinking level and tools are read off the whole
path, so they survive a compaction (pi's storage layer of 0.81 cuts the path first and loses them).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar

from yiem_nb.compaction import summary_message
from yiem_nb.messages import AgentMessage, AssistantMessage, UserMessage
from yiem_nb.models import ThinkingLevel
from yiem_nb.session.entries import (
    ActiveToolsChangeEntry,
    BranchSummaryEntry,
    CompactionEntry,
    ContextEditEntry,
    CustomEntry,
    CustomMessageEntry,
    MessageEntry,
    ModelChangeEntry,
    OtherMessage,
    SessionEntry,
    SessionTreeEntry,
    ThinkingLevelChangeEntry,
)
from yiem_nb.session.partial import PARTIAL, partial_answer
from yiem_nb.session.tree import TRANSPARENT, SessionTree

__all__ = ["SessionContext", "build_context", "context_entries", "message_of", "settings_of"]

#: Of several compactions only the last one is told.
_NOT_SEEN = TRANSPARENT - {"custom"} | {"compaction"}
_Entry = TypeVar("_Entry", bound=SessionEntry)

_BRANCH = (
    "The following is a summary of a branch that this conversation came back from:"
    "\n\n<summary>\n{}</summary>"
)


@dataclass(frozen=True, slots=True)
class SessionContext:
    """The conversation up to a leaf and the settings in force there."""

    messages: tuple[AgentMessage, ...] = ()
    #: Provider and id; ``None`` where the path names none.
    model: tuple[str, str] | None = None
    thinking_level: ThinkingLevel = ThinkingLevel.OFF
    #: ``None`` where the path never changed them.
    active_tools: tuple[str, ...] | None = None


def build_context(tree: SessionTree, leaf: str | None) -> SessionContext:
    """Fold the path to `leaf` into messages and settings.

    Only what the result depends on is loaded: of what a compaction has replaced, nothing.
    """
    path = tree.path(leaf)
    messages = tuple(message for _, message in _told(tree, path))
    return replace(settings_of(tree, path), messages=messages)


def context_entries(tree: SessionTree, leaf: str | None) -> list[str]:
    """List the entries that the messages of `build_context` come from, one for each."""
    return [entry_id for entry_id, _ in _told(tree, tree.path(leaf))]


def _told(tree: SessionTree, path: list[str]) -> Iterator[tuple[str, AgentMessage]]:
    """Give each message that the model sees, and the entry it comes from."""
    edits = _edits(tree, path)
    #: What follows the last message: maybe the beginning of an answer that never came.
    customs: list[str] = []
    for entry_id in _seen(tree, path):
        if tree.type(entry_id) == "custom":
            customs.append(entry_id)
            continue
        edit = edits.get(entry_id)
        replacement = edit.replacement if edit else None
        if edit is not None and replacement is None:
            continue
        entry = tree.whole(entry_id)
        message = message_of(entry)
        if message is None:
            continue
        if message.role != "assistant":
            yield from _cut_off(tree, customs)
        customs.clear()
        if replacement is not None and isinstance(entry, MessageEntry | CustomMessageEntry):
            message = message.model_copy(update={"content": replacement.content})
        yield entry_id, message
    yield from _cut_off(tree, customs)


def _cut_off(tree: SessionTree, customs: list[str]) -> Iterator[tuple[str, AgentMessage]]:
    """Give the answer that was cut off by the end of its kernel, if these entries hold one."""
    entries = (tree.entry(entry_id) for entry_id in customs)
    kept = [e for e in entries if isinstance(e, CustomEntry) and e.custom_type == PARTIAL]
    answer = partial_answer(kept)
    if answer is not None:
        timestamp = _milliseconds(kept[-1].timestamp)
        yield kept[0].id, answer.model_copy(update={"timestamp": timestamp})


def settings_of(tree: SessionTree, path: list[str]) -> SessionContext:
    """Read the settings in force at the end of a path; the messages are left out."""
    thinking = _last(tree, path, ThinkingLevelChangeEntry, "thinking_level_change")
    tools = _last(tree, path, ActiveToolsChangeEntry, "active_tools_change")
    return SessionContext(
        model=_model(tree, path),
        thinking_level=_level(thinking.thinking_level) if thinking else ThinkingLevel.OFF,
        active_tools=tools.active_tool_names if tools else None,
    )


def _seen(tree: SessionTree, path: list[str]) -> Iterator[str]:
    """Give the entries the model sees, oldest first: the last compaction stands for what it cut."""
    compaction = _last(tree, path, CompactionEntry, "compaction")
    cut = path.index(compaction.id) if compaction is not None else 0
    start = 0
    if compaction is not None:
        yield compaction.id
        kept = compaction.first_kept_entry_id
        start = path.index(kept) if kept in path[:cut] else cut
    for entry_id in path[start:]:
        if tree.type(entry_id) not in _NOT_SEEN:
            yield entry_id


def _edits(tree: SessionTree, path: list[str]) -> dict[str, ContextEditEntry]:
    """Find the newest edit of each target on the path."""
    edits: dict[str, ContextEditEntry] = {}
    for entry_id in path:
        if tree.type(entry_id) == "context_edit":
            entry = tree.whole(entry_id)
            if isinstance(entry, ContextEditEntry):
                edits[entry.target_id] = entry
    return edits


def _last(tree: SessionTree, path: list[str], kind: type[_Entry], name: str) -> _Entry | None:
    for entry_id in reversed(path):
        if tree.type(entry_id) == name:
            entry = tree.entry(entry_id)
            if isinstance(entry, kind):
                return entry
    return None


def _model(tree: SessionTree, path: list[str]) -> tuple[str, str] | None:
    """Name the model that was chosen or that answered last on the path."""
    for entry_id in reversed(path):
        if tree.type(entry_id) not in {"model_change", "message"}:
            continue
        entry = tree.entry(entry_id)
        if isinstance(entry, ModelChangeEntry):
            return entry.provider, entry.model_id
        message = entry.message if isinstance(entry, MessageEntry) else None
        if isinstance(message, AssistantMessage) and message.model:
            return message.provider, message.model
    return None


def _level(name: str) -> ThinkingLevel:
    """Read a level; one that is not known here is off."""
    return ThinkingLevel(name) if name in set(ThinkingLevel) else ThinkingLevel.OFF


# --- One entry -----------------------------------------------------------------------------


def message_of(entry: SessionTreeEntry) -> AgentMessage | None:
    """Say what the model sees of an entry, or ``None``."""
    match entry:
        case MessageEntry(message=OtherMessage() as other):
            return _other(other, _milliseconds(entry.timestamp))
        case MessageEntry():
            return entry.spoken
        case CustomMessageEntry():
            return _user(entry.content, _milliseconds(entry.timestamp))
        case BranchSummaryEntry(summary=summary) if summary:
            return _user(_BRANCH.format(summary), _milliseconds(entry.timestamp))
        case CompactionEntry(summary=summary):
            return summary_message(summary, _milliseconds(entry.timestamp))
        case _:
            return None


def _user(content: Any, timestamp: int) -> UserMessage:
    return UserMessage.model_validate({"content": content, "timestamp": timestamp})


def _other(message: OtherMessage, timestamp: int) -> UserMessage | None:
    """Say in a user's role what pi's own roles say; a system message is nobody's."""
    fields = message.model_extra or {}
    match message.role:
        case "bashExecution":
            hidden = fields.get("excludeFromContext")
            return None if hidden else _user(_bash(fields), timestamp)
        case "custom" | "hookMessage":
            content = fields.get("content")
            return _user(content if isinstance(content, str | list) else None, timestamp)
        case "branchSummary":
            return _user(_BRANCH.format(fields.get("summary", "")), timestamp)
        case "compactionSummary":
            return summary_message(str(fields.get("summary", "")), timestamp)
        case _:
            return None


def _bash(fields: dict[str, Any]) -> str:
    output = fields.get("output")
    text = f"Ran `{fields.get('command', '')}`\n"
    text += f"```\n{output}\n```" if output else "(no output)"
    if fields.get("cancelled"):
        text += "\n\n(command cancelled)"
    elif fields.get("exitCode"):
        text += f"\n\nCommand exited with code {fields['exitCode']}"
    if fields.get("truncated") and fields.get("fullOutputPath"):
        text += f"\n\n[Output truncated. Full output: {fields['fullOutputPath']}]"
    return text


def _milliseconds(timestamp: str) -> int:
    try:
        return int(datetime.fromisoformat(timestamp).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        return 0
