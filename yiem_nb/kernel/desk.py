"""What people do with their session from a cell: look at it, go elsewhere in it, take it along."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from yiem_nb.errors import CommandError
from yiem_nb.kernel.notebook import SUFFIX
from yiem_nb.kernel.spending import spending_table
from yiem_nb.messages import AgentMessage, AssistantMessage, UserMessage
from yiem_nb.render.text import one_line
from yiem_nb.session import MessageEntry, Session, SessionTreeEntry

if TYPE_CHECKING:
    from yiem_nb.kernel.conversation import Conversation

__all__ = ["SessionDesk"]

_NOTHING = ("Nothing has been said yet.", "Ask first.")


class SessionDesk:
    """The commands of ``%yiem session``; each returns what it says.

    Parameters
    ----------
    conversation
        Opens the kernel's conversation.
    summarise
        Asks the model for a summary of messages, with instructions.
    """

    def __init__(
        self,
        conversation: Callable[[], Conversation],
        summarise: Callable[[Sequence[AgentMessage], str], str],
    ) -> None:
        self._conversation = conversation
        self._summarise = summarise

    def where(self) -> str:
        """Say where this conversation is kept and what it holds."""
        conversation = self._conversation()
        storage = conversation.storage
        storage.refresh()
        stats = storage.get_session_stats()
        shown = len(conversation.agent.state.messages)
        lines = [
            "in memory only" if conversation.tenure.private else str(storage.path),
            f"messages: {shown} in this conversation, {stats.message_count} in the file",
            f"tokens: {stats.total_tokens:,}",
        ]
        if holder := conversation.tenure.holder():
            lines.append(holder)
        if storage.problem:
            lines.append(storage.problem)
        return "\n".join([*lines, *storage.notices])

    def usage(self) -> str:
        """Say what the session has used, by day and model, and what may be spent."""
        conversation = self._conversation()
        conversation.storage.refresh()
        return spending_table(conversation.storage.get_entries(), conversation.purse.budget)

    def tree(self) -> str:
        """Draw the tree."""
        from yiem_nb.session.drawing import tree_rows

        session = self._conversation().journal.session
        rows = list(tree_rows(session.tree, session.leaf))
        if not rows:
            return "Nothing has been said yet."
        width = max(len(row) for row, _, _ in rows)
        return "\n".join(f"{row:<{width}}  {entry}  {notes}".rstrip() for row, notes, entry in rows)

    # --- Names -------------------------------------------------------------------------

    def name(self, name: str) -> str:
        """Name the session and return the name as it is kept."""
        session = self._idle()
        session.rename(name)
        return f"session: {session.tree.name}"

    def label(self, label: str) -> str:
        """Label the point that the conversation has reached."""
        session = self._idle()
        session.label(self._leaf(session), label)
        return f"labelled: {label}"

    # --- Going elsewhere ---------------------------------------------------------------

    def goto(self, name: str) -> str:
        """Go to another point of the tree; the next prompt, whichever its cell, follows it.

        With ``--summary [INSTRUCTIONS]`` the model is told what happened on the branch that is left.
        """
        name, summary, instructions = name.partition(" --summary")
        session = self._idle()
        target = session.find(name.strip())
        told = session.left_behind(target) if summary else []
        session.move_to(
            target, summary=self._summarise(told, instructions.strip()) if told else None
        )
        self._conversation().go_on_here()
        return f"the next prompt goes on after: {_last_words(session)}"

    def hide(self, name: str) -> str:
        """Hide an exchange from the model; it stays in the file."""
        session = self._idle()
        hidden = session.hide(self._found(session, name))
        self._conversation().take_context()
        return f"hidden from the model: {_messages(len(hidden))}"

    def unhide(self, name: str) -> str:
        """Let the model see an exchange again."""
        session = self._idle()
        shown = session.show(self._found(session, name))
        self._conversation().take_context()
        return f"the model sees it again: {_messages(len(shown))}"

    # --- Taking it along ---------------------------------------------------------------

    def compare(self, names: str) -> str:
        """Show what two branches have alone, given by two labels or entries."""
        session = self._conversation().journal.session
        given = names.split()
        if len(given) != 2:
            raise CommandError(
                "Two branches are compared.", hint="%yiem session compare LABEL LABEL"
            )
        left, right = (session.find(name) for name in given)
        comparison = session.compare(left, right)
        sides = ((given[0], comparison.left), (given[1], comparison.right))
        blocks = [
            "\n".join([f"only in {name}:", *(_lines(entries) or ["  nothing"])])
            for name, entries in sides
        ]
        return "\n\n".join(blocks)

    def fork(self, file: str) -> str:
        """Write this branch as a session file of its own; the conversation stays here."""
        session = self._idle()
        self._leaf(session)
        path = session.storage.path.with_name(file) if file else None
        self._check_not_private()
        forked = session.fork(path)
        self._conversation().tenure.adopt(forked.storage)
        forked.storage.close()
        return f"forked to {forked.storage.path}"

    def takeover(self) -> str:
        """Own the session that another kernel writes, and go on in it."""
        conversation = self._conversation()
        conversation.agent.check_idle("take a session over")
        said = conversation.tenure.take_over()
        conversation.journal.settle_right()
        conversation.take_context()
        return said

    def export(self, file: str) -> str:
        """Write this branch as one HTML page, or, where the name ends in ``.md``, as Markdown."""
        from yiem_nb.session.export import export, facts_of
        from yiem_nb.session.files import OsFiles, reason_of, write_new

        session = self._conversation().journal.session
        self._leaf(session)
        self._check_not_private()
        storage = session.storage
        stem = storage.path.name.removesuffix(SUFFIX)
        # Only what nobody but this command writes is written over, so that a cell may run again.
        out = storage.path.with_name(file or f"{stem}.session.html")
        if file and os.path.lexists(out):
            raise CommandError(f"There is something at {out} already.", hint="Choose another name.")
        text = export(
            session.tree,
            session.leaf,
            format="md" if out.suffix == ".md" else "html",
            title=storage.path.name,
            facts=facts_of(storage.get_metadata().created, storage.get_session_stats()),
            read=storage.blobs.read,
        )
        try:
            write_new(OsFiles(), out, text.encode("utf-8", "replace"))
        except OSError as error:
            raise CommandError(
                f"{out} cannot be written: {reason_of(error)}.", hint="Choose another name."
            ) from None
        return f"exported to {out}"

    # --- Inside ------------------------------------------------------------------------

    def _idle(self) -> Session:
        """Return the session while no run writes to it."""
        conversation = self._conversation()
        conversation.agent.check_idle("change the session")
        if conversation.tenure.question:
            raise CommandError(
                f"{conversation.storage.path.name} was written elsewhere; it is only looked at.",
                hint="Ask something first: you are asked whether to go on in it.",
            )
        conversation.journal.settle_right()
        return conversation.journal.session

    def _check_not_private(self) -> None:
        if self._conversation().tenure.private:
            raise CommandError(
                "Nothing is written while the conversation is private.",
                hint="%yiem private off ends that.",
            )

    def _found(self, session: Session, name: str) -> str:
        return session.find(name) if name else self._leaf(session)

    @staticmethod
    def _leaf(session: Session) -> str:
        if session.leaf is None:
            raise CommandError(_NOTHING[0], hint=_NOTHING[1])
        return session.leaf


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count} messages"


def _last_words(session: Session) -> str:
    messages = session.context().messages
    return one_line(messages[-1].text) if messages else "the beginning"


def _lines(entries: tuple[SessionTreeEntry, ...]) -> list[str]:
    return list(_said(entries))


def _said(entries: tuple[SessionTreeEntry, ...]) -> Iterator[str]:
    for entry in entries:
        message = entry.message if isinstance(entry, MessageEntry) else None
        if isinstance(message, UserMessage):
            yield f"  ● {one_line(message.text, 72)}"
        elif isinstance(message, AssistantMessage) and message.text:
            yield f"    {one_line(message.text, 60)}  ({message.model})"
