"""A session file as an agent's journal: every entry is with the operating system before anyone acts on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from yiem_nb.events import MessageUpdateEvent
from yiem_nb.messages import AgentMessage
from yiem_nb.models import Model, ThinkingLevel
from yiem_nb.session.entries import (
    ActiveToolsChangeEntry,
    CustomEntry,
    MessageEntry,
    ModelChangeEntry,
    SessionTreeEntry,
    ThinkingLevelChangeEntry,
)
from yiem_nb.session.partial import PartialAnswer
from yiem_nb.session.session import Session
from yiem_nb.session.storage import JsonlSessionStorage

__all__ = ["SessionJournal"]

T = TypeVar("T")


class SessionJournal:
    """Appends to a session from a coroutine.

    One writer thread does the work, so that a slow disk holds up this conversation and nothing else.
    The interpreter waits for it when it ends.
    """

    def __init__(self, storage: JsonlSessionStorage) -> None:
        self.storage = storage
        self.session = Session(storage)
        self._partial = PartialAnswer()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="yiem-writer")

    async def message(
        self, message: AgentMessage, *, cell_id: str | None = None, request_hash: str | None = None
    ) -> None:
        """Append a message; `cell_id` names a prompt's cell, `request_hash` what was answered."""
        self._partial.clear()
        await self._append(
            MessageEntry(message=message, cell_id=cell_id, request_hash=request_hash)
        )

    async def delta(self, event: MessageUpdateEvent) -> None:
        """Keep, now and then, what has arrived of an answer; the answer supersedes it."""
        entry = self._partial.feed(event)
        if entry is not None:
            await self._append(entry)

    async def model(self, model: Model) -> None:
        """Append a change of the model."""
        await self._append(ModelChangeEntry(provider=model.provider, model_id=model.id))

    async def thinking_level(self, level: ThinkingLevel) -> None:
        """Append a change of the thinking level."""
        await self._append(ThinkingLevelChangeEntry(thinking_level=level))

    async def tools(self, names: Sequence[str]) -> None:
        """Append a change of the active tools."""
        await self._append(ActiveToolsChangeEntry(active_tool_names=tuple(names)))

    async def custom(self, kind: str, data: Any) -> None:
        """Append data that no model sees."""
        await self._append(CustomEntry(custom_type=kind, data=data))

    async def new_root(self) -> None:
        """Let the next message start a tree of its own."""
        await self.run(self.session.reset)

    async def settle(self) -> None:
        """Make what was appended survive a power cut."""
        await self.run(self.storage.sync)

    def close(self) -> None:
        """Finish writing and let go of the file."""
        self._writer.shutdown()
        self.storage.close()

    async def _append(self, entry: SessionTreeEntry) -> None:
        await self.run(lambda: self.storage.append_entry(entry))

    async def run(self, work: Callable[[], T]) -> T:
        """Do some other work with the session on the writer's thread."""
        return await asyncio.get_running_loop().run_in_executor(self._writer, work)
