"""A session file as an agent's journal: every entry is with the operating system before anyone acts on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from yiem_nb.events import CompactionEndEvent, MessageUpdateEvent
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
from yiem_nb.tools import SavedOutput

__all__ = ["SessionJournal"]

T = TypeVar("T")


class SessionJournal:
    """Appends to a session from a coroutine.

    One writer thread does the work, so that a slow disk holds up this conversation and nothing else.
    The interpreter waits for it when it ends.

    Parameters
    ----------
    storage
        The file, open.
    right
        Asked before each work: returns where it is to be done, which is another session once
        this one belongs to somebody else.
    """

    def __init__(
        self,
        storage: JsonlSessionStorage,
        right: Callable[[], JsonlSessionStorage] | None = None,
    ) -> None:
        self.storage = storage
        self._right = right
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

    async def compaction(self, event: CompactionEndEvent) -> None:
        """Append the summary that stands for the beginning of the conversation."""
        await self.run(lambda: self.session.record_compaction(event))

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

        def reset() -> None:
            self.session.reset()  # which one that is, is known by now

        await self.run(reset)

    async def settle(self) -> None:
        """Make what was appended survive a power cut."""

        def sync() -> None:
            self.storage.sync()

        await self.run(sync)

    def close(self) -> None:
        """Finish writing and let go of the file."""
        self._writer.shutdown()
        self.storage.close()

    def save_output(self, output: str | bytes, name: str = "") -> SavedOutput | None:
        """Keep the whole of an output beside the session (`yiem_nb.tools.OutputStore`)."""
        return self.storage.blobs.save_output(output, name)

    def settle_right(self) -> None:
        """Go on where this process may write."""
        storage = self._right() if self._right is not None else self.storage
        if storage is not self.storage:
            self.storage, self.session = storage, Session(storage)

    async def _append(self, entry: SessionTreeEntry) -> None:
        await self.run(lambda: self.storage.append_entry(entry))

    async def run(self, work: Callable[[], T]) -> T:
        """Do some other work with the session on the writer's thread."""

        def settled() -> T:
            self.settle_right()
            return work()

        return await asyncio.get_running_loop().run_in_executor(self._writer, settled)
