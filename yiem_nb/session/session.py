"""What people do with a session: go back, branch, name, hide, compare, fork.

Each of these appends entries, so all of it survives a restart, and none of it removes anything.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from yiem_nb.compaction import summary_of
from yiem_nb.errors import ErrorCode, SessionError
from yiem_nb.events import CompactionEndEvent
from yiem_nb.messages import AgentMessage, AgentToolCall, MessageContent, UserMessage
from yiem_nb.session.context import SessionContext, build_context, context_entries, message_of
from yiem_nb.session.entries import (
    BranchSummaryEntry,
    CompactionEntry,
    ContextEditEntry,
    CustomMessageEntry,
    LabelEntry,
    MessageEntry,
    Replacement,
    SessionInfoEntry,
    SessionTreeEntry,
    timestamp_of,
)
from yiem_nb.session.files import Files
from yiem_nb.session.foreign import keep_marks
from yiem_nb.session.log import free_name
from yiem_nb.session.place import How, Places, Plan, plan_place, plan_reset, stale_cells
from yiem_nb.session.storage import JsonlSessionStorage, SessionOptions
from yiem_nb.session.tree import SessionTree

__all__ = ["Comparison", "Session"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two branches: what they share, and what each has alone, oldest first."""

    ancestor: str | None
    left: tuple[SessionTreeEntry, ...]
    right: tuple[SessionTreeEntry, ...]


class Session:
    """One conversation tree and the file it is kept in.

    Parameters
    ----------
    storage
        The file, open.
    """

    def __init__(self, storage: JsonlSessionStorage) -> None:
        self.storage = storage
        #: Made when it is asked for: it reads every message.
        self._places: Places | None = None

    # --- What is so --------------------------------------------------------------------

    @property
    def tree(self) -> SessionTree:
        """All entries."""
        return self.storage.tree

    @property
    def leaf(self) -> str | None:
        """Where the conversation goes on."""
        return self.storage.get_leaf_id()

    @property
    def places(self) -> Places:
        """Which cell asked what, up to date."""
        if self._places is None or self._places.tree is not self.storage.tree:
            self._places = Places(self.storage.tree)
        self._places.update()
        return self._places

    def context(self, leaf: str | None = None) -> SessionContext:
        """Return what a model sees at the leaf, or at another entry."""
        return build_context(self.tree, self.leaf if leaf is None else leaf)

    def exchange(self, entry_id: str) -> list[str]:
        """List the messages of the turn an entry belongs to, on the path to the leaf or to it."""
        path = self.tree.path(self.leaf)
        if self._known(entry_id) not in path:
            path = self.tree.path(self.tree.newest_leaf(entry_id))
        at = path.index(entry_id)
        while at > 0 and not self._is_prompt(path[at]):
            at -= 1
        turn = [path[at]]
        for follower in path[at + 1 :]:
            if self._is_prompt(follower):
                break
            turn.append(follower)
        return [one for one in turn if self.tree.type(one) in {"message", "custom_message"}]

    def find(self, name: str) -> str:
        """Find the entry that a person names by its id, the beginning of that, or its label.

        Raises
        ------
        SessionError
            There is none, or several begin like this.
        """
        found = self.tree.find(name)
        if found is None:
            raise SessionError(
                f"There is no entry and no label {name!r} in this session.",
                hint="%yiem session tree shows them.",
                code=ErrorCode.SESSION_ENTRY,
            )
        return found

    def compare(self, left: str, right: str) -> Comparison:
        """Say in what two branches differ."""
        ancestor = self.tree.common_ancestor(self._known(left), self._known(right))
        shared = len(self.tree.path(ancestor))
        sides = [
            tuple(self.tree.entry(entry_id) for entry_id in self.tree.path(leaf)[shared:])
            for leaf in (left, right)
        ]
        return Comparison(ancestor, *sides)

    # --- Going elsewhere ---------------------------------------------------------------

    def left_behind(self, entry_id: str | None) -> list[AgentMessage]:
        """List what was said on this branch since it parted from the one that `entry_id` is on."""
        ancestor = self.tree.common_ancestor(self.leaf, entry_id)
        branch = self.tree.path(self.leaf)[len(self.tree.path(ancestor)) :]
        told = (message_of(self.tree.whole(one)) for one in branch)
        return [message for message in told if message is not None]

    def move_to(self, entry_id: str | None, *, summary: str | None = None) -> None:
        """Go on from another entry; `summary` tells the new branch what happened on the old one."""
        before = self.leaf
        self.storage.set_leaf_id(entry_id)
        if summary:
            self.storage.append_entry(BranchSummaryEntry(from_id=before or "root", summary=summary))

    def rewind(self, prompt_id: str) -> UserMessage:
        """Go back to before a prompt and return it, so that it can be said differently."""
        entry = self.tree.entry(self._known(prompt_id))
        message = entry.message if isinstance(entry, MessageEntry) else None
        if not isinstance(message, UserMessage):
            raise SessionError(
                f"Entry {prompt_id!r} is no prompt.",
                hint="Branch from it with move_to().",
                code=ErrorCode.SESSION_ENTRY,
            )
        self.move_to(self.tree.parent(prompt_id))
        return message

    def choose(self, version: str) -> None:
        """Make another version of a cell's exchange the current one."""
        if version not in self.places:
            raise SessionError(
                f"There is no exchange {version!r} in this session.", code=ErrorCode.SESSION_ENTRY
            )
        self.move_to(self.places.newest_leaf(version))

    def plan(self, order: Sequence[str], cell_id: str | None, *, how: How = "place") -> Plan:
        """Decide where a cell's prompt goes; nothing changes yet."""
        return plan_place(self.tree, self.leaf, order, cell_id, how=how, places=self.places)

    def apply(self, plan: Plan) -> None:
        """Go where a plan says and append what it carries; the prompt comes next."""
        self.storage.set_leaf_id(plan.parent)
        if plan.entries:
            self.storage.append_entries(plan.entries)

    def reset(self) -> None:
        """Start over: what was said stays in the file, and no cell sees it any more."""
        self.apply(plan_reset(self.tree, self.leaf))

    def stale(self, order: Sequence[str]) -> list[str]:
        """List the cells that were answered on another version of what is above them."""
        return stale_cells(self.tree, self.leaf, order, places=self.places)

    # --- Names and edits ---------------------------------------------------------------

    def label(self, entry_id: str, text: str | None) -> None:
        """Label an entry, or take its label off."""
        self.storage.append_entry(LabelEntry(target_id=self._known(entry_id), label=text or None))

    def record_compaction(self, event: CompactionEndEvent) -> None:
        """Append a compaction: from now on the model sees its summary, and what it keeps."""
        assert event.message is not None
        kept = context_entries(self.tree, self.leaf)[-event.kept :] if event.kept else []
        self.storage.append_entry(
            CompactionEntry(
                summary=summary_of(event.message) or event.message.text,
                first_kept_entry_id=kept[0] if kept else None,
                tokens_before=event.tokens_before,
                usage=event.usage,
                timestamp=timestamp_of(event.message.timestamp),
            )
        )

    def rename(self, name: str | None) -> None:
        """Name the session; a name is one line."""
        flat = " ".join((name or "").split())
        self.storage.append_entry(SessionInfoEntry(name=flat))

    def hide(self, entry_id: str) -> list[str]:
        """Hide the whole turn of an entry from the model; return what was hidden.

        A call and its result are hidden together: providers refuse one without the other.
        """
        turn = self.exchange(entry_id)
        self.storage.append_entries(ContextEditEntry(target_id=one) for one in turn)
        return turn

    def show(self, entry_id: str) -> list[str]:
        """Take back every edit of an entry's turn; return what is as it was."""
        turn = self.exchange(entry_id)
        edits = [
            ContextEditEntry(target_id=one, replacement=Replacement(content=content))
            for one in turn
            if (content := _content(self.tree.entry(one))) is not None
        ]
        self.storage.append_entries(edits)
        return turn

    def edit(self, entry_id: str, text: str) -> None:
        """Let the model see other words in a message; its tool calls stay."""
        entry = self.tree.entry(self._known(entry_id))
        content = _content(entry)
        if content is None:
            raise SessionError(f"Entry {entry_id!r} is no message.", code=ErrorCode.SESSION_ENTRY)
        calls = [block for block in content if isinstance(block, AgentToolCall)]
        words = [{"type": "text", "text": text}] if text else []
        replacement = Replacement.model_validate({"content": [*words, *calls]})
        self.storage.append_entry(ContextEditEntry(target_id=entry_id, replacement=replacement))

    # --- For people --------------------------------------------------------------------

    def export(
        self,
        *,
        format: Literal["html", "md"] = "html",
        branches: Literal["path", "all"] = "path",
        leaf: str | None = None,
    ) -> str:
        """Write the session down as one document that needs nothing else.

        Parameters
        ----------
        format
            A page or Markdown.
        branches
            The path to the leaf, or to another entry; or all branches, that one first.
        leaf
            Where the branch ends.

        Raises
        ------
        SessionError
            There is no entry `leaf`.
        """
        from yiem_nb.session.export import export, facts_of

        return export(
            self.tree,
            self.leaf if leaf is None else self._known(leaf),
            format=format,
            branches=branches,
            title=self.storage.path.name,
            facts=facts_of(self.storage.get_metadata().created, self.storage.get_session_stats()),
            read=self.storage.blobs.read,
        )

    # --- Another file ------------------------------------------------------------------

    def fork(
        self,
        path: str | os.PathLike[str] | None = None,
        leaf: str | None = None,
        *,
        everything: bool = False,
        metadata: dict[str, Any] | None = None,
        files: Files | None = None,
    ) -> Session:
        """Write the path to the leaf, or to another entry, as a session of its own.

        Lines are copied byte for byte, those of pi's earlier formats in today's; the old file stays
        as it is. The new one names it as its parent; without a `path` it lies beside it. With
        `everything` all branches are copied; `metadata` is added to the old one's, and `files` says
        how the new one is written.

        Raises
        ------
        SessionError
            There is a file at `path`, or it cannot be written.
        """
        end = self.leaf if leaf is None else self._known(leaf)
        ids = list(self.tree) if everything else self.tree.path(end)
        where = Path(path) if path is not None else free_name(self.storage.path)
        options = SessionOptions(
            where,
            cwd=self.storage.get_metadata().cwd,
            metadata=self.storage.get_metadata().metadata | (metadata or {}),
            parent_session=str(self.storage.path),
        )
        forked = Session(self.storage.copy(options, ids, files=files))
        keep_marks(self.tree, ids, forked.storage)
        # Labels and the name may lie on other branches and still speak of this one.
        labels, known = self.tree.labels(), forked.tree.labels()
        for entry_id in ids:
            if labels.get(entry_id) != known.get(entry_id):
                forked.label(entry_id, labels.get(entry_id))
        if self.tree.name != forked.tree.name:
            forked.rename(self.tree.name)
        return forked

    def _known(self, entry_id: str) -> str:
        if entry_id not in self.tree:
            raise SessionError(
                f"There is no entry {entry_id!r} in this session.", code=ErrorCode.SESSION_ENTRY
            )
        return entry_id

    def _is_prompt(self, entry_id: str) -> bool:
        if self.tree.type(entry_id) != "message":
            return False
        entry = self.tree.entry(entry_id)
        return isinstance(entry, MessageEntry) and entry.message.role == "user"


def _content(entry: SessionTreeEntry) -> tuple[MessageContent, ...] | None:
    if isinstance(entry, CustomMessageEntry):
        return entry.content
    spoken = entry.spoken if isinstance(entry, MessageEntry) else None
    return None if spoken is None else spoken.content
