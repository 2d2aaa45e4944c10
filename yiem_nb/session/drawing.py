"""A session's tree and what two branches differ in, as lines of text (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from yiem_nb.messages import AssistantMessage, ToolResultMessage, UserMessage, text_of
from yiem_nb.render.text import one_line
from yiem_nb.session.entries import (
    BranchSummaryEntry,
    CompactionEntry,
    CustomMessageEntry,
    MessageEntry,
    OtherMessage,
)
from yiem_nb.session.outline import outline
from yiem_nb.session.tree import SessionTree

__all__ = ["tree_rows"]


def tree_rows(tree: SessionTree, leaf: str | None) -> Iterator[tuple[str, str, str]]:
    """Draw the tree: chains stay flat, forks indent, the path to `leaf` is filled and first.

    Yields
    ------
    tuple
        What the row says, its notes, and the entry it stands for.
    """
    labels = tree.labels()
    stretches = outline(tree, leaf)
    # What stands before the first row of a stretch, and before all further ones.
    lead: dict[str, tuple[str, str]] = {}
    for stretch in stretches:
        first, further = lead.pop(stretch.first, ("", ""))
        rows = [entry_id for entry_id in stretch.ids if _is_row(tree, entry_id)]
        rows = rows or [stretch.first]
        for number, entry_id in enumerate(rows):
            guide = first if number == 0 else further
            mark = "●" if stretch.current else "○"
            label = f"★ {one_line(labels[entry_id], 40)}" if entry_id in labels else ""
            here = stretch.current and not stretch.forks and entry_id == rows[-1]
            notes = "   ".join(filter(None, (label, "← you are here" if here else "")))
            yield f"{guide}{mark} {one_line(_row_text(tree, entry_id), 70)}", notes, entry_id
        for fork in stretch.forks:
            last = fork == stretch.forks[-1]
            lead[fork] = (further + ("└─" if last else "├─"), further + ("  " if last else "│ "))


def _is_row(tree: SessionTree, entry_id: str) -> bool:
    """Whether an entry opens an exchange, or stands for many."""
    entry = tree.entry(entry_id)
    if isinstance(entry, MessageEntry):
        return isinstance(entry.message, UserMessage)
    return tree.type(entry_id) in {"compaction", "branch_summary", "custom_message"}


def _row_text(tree: SessionTree, entry_id: str) -> str:
    match tree.entry(entry_id):
        case CompactionEntry(summary=summary) | BranchSummaryEntry(summary=summary):
            return f"summary: {summary}"
        case CustomMessageEntry(custom_type=kind, content=content):
            return f"{kind or 'note'}: {text_of(content)}"
        case MessageEntry(message=UserMessage() as message):
            return message.text or "(no words)"
        case MessageEntry(message=OtherMessage(role=role)):
            return role
        case MessageEntry(message=AssistantMessage() | ToolResultMessage() as message):
            return f"{message.role}: {message.text}"
        case entry:
            return entry.type
