"""What a run writes down, and when: before anybody hears of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from yiem_nb.events import (
    AgentEvent,
    CompactionEndEvent,
    MessageEndEvent,
    MessageUpdateEvent,
    TurnEndEvent,
)
from yiem_nb.messages import AgentMessage, AssistantMessage, ToolResultMessage
from yiem_nb.models import Model, ThinkingLevel
from yiem_nb.tools import APPROVAL_ENTRY, ApprovalRequest, Decision

__all__ = ["Journal", "Scribe"]


class Journal(Protocol):
    """Where a conversation is kept. Each call returns when the entry is safe from a crash."""

    async def message(
        self, message: AgentMessage, *, cell_id: str | None = None, request_hash: str | None = None
    ) -> None:
        """Append a message; `cell_id` names a prompt's cell, `request_hash` what was answered."""

    async def delta(self, event: MessageUpdateEvent) -> None:
        """Keep, now and then, what has arrived of an answer; the answer supersedes it."""

    async def compaction(self, event: CompactionEndEvent) -> None:
        """Append the summary that stands for the beginning of the conversation."""

    async def model(self, model: Model) -> None:
        """Append a change of the model."""

    async def thinking_level(self, level: ThinkingLevel) -> None:
        """Append a change of the thinking level."""

    async def tools(self, names: Sequence[str]) -> None:
        """Append a change of the active tools."""

    async def custom(self, kind: str, data: Any) -> None:
        """Append data that no model sees."""

    async def new_root(self) -> None:
        """Let the next message start a tree of its own."""

    async def settle(self) -> None:
        """Make what was appended durable."""


class Scribe:
    """Brings a run to a journal, in the order that survives a crash.

    Parameters
    ----------
    journal
        Where it is kept; ``None`` keeps nothing.
    """

    def __init__(self, journal: Journal | None) -> None:
        self.journal = journal
        #: Of the request whose answer comes next.
        self.request_hash: str | None = None
        self._settings: list[Callable[[Journal], Awaitable[None]]] = []
        self._early: _EarlyResults | None = None

    async def event(self, event: AgentEvent, cell_id: str | None) -> None:
        """Write down what the event settles."""
        journal = self.journal
        if journal is None:
            return
        if isinstance(event, MessageUpdateEvent):
            await journal.delta(event)
        elif isinstance(event, MessageEndEvent):
            await self._message(journal, event.message, cell_id)
        elif isinstance(event, CompactionEndEvent):
            if event.message is not None:
                await journal.compaction(event)
        elif isinstance(event, TurnEndEvent):
            await self.settings()
            await journal.settle()

    async def _message(self, journal: Journal, message: AgentMessage, cell_id: str | None) -> None:
        if isinstance(message, AssistantMessage):
            self._early = _EarlyResults(message)
            digest, self.request_hash = self.request_hash, None
            await journal.message(message, request_hash=digest)
        elif isinstance(message, ToolResultMessage):
            if self._early is None or not self._early.written(message):
                await journal.message(message)
        else:
            await journal.message(message, cell_id=cell_id)

    async def result(self, message: ToolResultMessage) -> None:
        """Write a result as soon as it and all before it are there, not when the batch ends.

        The last one is left to its own event, which follows at once and may mark it as aborted.
        """
        if self.journal is None or self._early is None:
            return
        for ready in self._early.ready(message):
            await self.journal.message(ready)

    async def approval(self, request: ApprovalRequest, decision: Decision) -> None:
        """Write a decision down before anything acts on it.

        It stands between the call and its result, where readers that do not know it see nothing.
        """
        if self.journal is not None:
            await self.journal.custom(APPROVAL_ENTRY, decision.record(request))

    def later(self, change: Callable[[Journal], Awaitable[None]]) -> None:
        """Remember a setting for the end of the turn.

        Between a call and its result it would tear the two apart in the tree.
        """
        self._settings.append(change)

    async def settings(self) -> None:
        """Write down the settings that wait."""
        changes, self._settings = self._settings, []
        if self.journal is not None:
            for write in changes:
                await write(self.journal)

    def end(self) -> None:
        """Forget the run."""
        self._early = None


class _EarlyResults:
    """Which results of a batch were written before their own events, in source order."""

    def __init__(self, answer: AssistantMessage) -> None:
        self._order = [call.id for call in answer.tool_calls][:-1]
        self._finished: dict[str, ToolResultMessage] = {}
        self._written: set[str] = set()

    def ready(self, message: ToolResultMessage) -> list[ToolResultMessage]:
        """Take a finished result; return those that can be written now."""
        self._finished[message.tool_call_id] = message
        ready = []
        for call_id in self._order:
            if call_id not in self._finished:
                break
            if call_id not in self._written:
                self._written.add(call_id)
                ready.append(self._finished[call_id])
        return ready

    def written(self, message: ToolResultMessage) -> bool:
        return message.tool_call_id in self._written
