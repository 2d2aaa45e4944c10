"""What a session has used, over all its branches (SPEC-4.3)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from yiem_nb.messages import AssistantMessage, ToolResultMessage, Usage
from yiem_nb.session.entries import (
    BranchSummaryEntry,
    CompactionEntry,
    MessageEntry,
    SessionTreeEntry,
    UsageEntry,
)

__all__ = ["COUNTED_TYPES", "SessionStats"]

#: Types that count for something.
COUNTED_TYPES = frozenset({"message", "compaction", "branch_summary", "usage"})


@dataclass(frozen=True, slots=True)
class SessionStats:
    """Messages and tokens of the whole file, all branches (SPEC-4.3)."""

    message_count: int = 0
    #: Read from a provider's cache.
    cached_tokens: int = 0
    #: Sent anew; what was written to a cache is among them.
    uncached_tokens: int = 0
    total_tokens: int = 0
    #: In US dollars.
    cost_total: float = 0.0

    def plus(self, entry: SessionTreeEntry) -> SessionStats:
        """Return these figures and one entry's more."""
        messages = self.message_count + isinstance(entry, MessageEntry)
        usage = _usage(entry)
        if usage is None:
            return replace(self, message_count=messages)
        uncached = usage.input + usage.cache_write
        return SessionStats(
            message_count=messages,
            cached_tokens=self.cached_tokens + usage.cache_read,
            uncached_tokens=self.uncached_tokens + uncached,
            total_tokens=self.total_tokens + uncached + usage.output + usage.cache_read,
            cost_total=self.cost_total + usage.cost.total,
        )


def _usage(entry: SessionTreeEntry) -> Usage | None:
    """Give the tokens an entry stands for; a copy stands for none, its original does."""
    match entry:
        case MessageEntry(copy_of=str()):
            return None
        case MessageEntry(message=AssistantMessage() | ToolResultMessage() as message):
            return message.usage
        case CompactionEntry() | BranchSummaryEntry() | UsageEntry():
            return entry.usage
        case _:
            return None
