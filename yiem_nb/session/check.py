"""Look at every byte of a session file and say what there is to say; change nothing."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from yiem_nb.messages import AssistantMessage, ToolResultMessage
from yiem_nb.session.blobs import blobs_in
from yiem_nb.session.entries import (
    ENTRY_TYPES,
    FORMAT_VERSION,
    MessageEntry,
    SessionTreeEntry,
    UnknownEntry,
)
from yiem_nb.session.reading import Reading, reading
from yiem_nb.session.recovery import findings

__all__ = ["SessionCheck", "check_session"]


@dataclass(frozen=True, slots=True)
class SessionCheck:
    """What a file holds and what is wrong with it."""

    path: Path
    size: int
    #: How many entries there are of each type.
    types: Counter[str] = field(default_factory=Counter)
    #: A sentence each; none for a file without damage.
    findings: tuple[str, ...] = ()


def check_session(path: str | os.PathLike[str]) -> SessionCheck:
    """Read a whole session file, which is opened for reading only.

    Raises
    ------
    SessionNotFoundError
        There is nothing at `path`.
    SessionError
        There is no file, or it may not be read.
    """
    with reading(path, any_file=True) as session:
        found = [
            *findings(session.index.scan, session.tree),
            *_of_entries(session),
        ]
        types = Counter(session.tree.type(entry_id) for entry_id in session.tree)
        return SessionCheck(session.path, session.size, types, tuple(found))


def _of_entries(session: Reading) -> Iterator[str]:
    """Say what only shows in the entries themselves, and in the files that they name."""
    index = session.index
    odd: Counter[str] = Counter()
    called: Counter[str] = Counter()
    answered: Counter[str] = Counter()
    missing: set[str] = set()
    for position in range(len(index.tree)):
        entry = index.load(position)
        if isinstance(entry, UnknownEntry) and entry.type in ENTRY_TYPES:
            odd[entry.type] += 1
        called.update(_calls(entry))
        answered.update(_answers(entry))
        named = blobs_in(index.line(position))
        missing.update(blob.file for blob in named if session.blobs.read(blob) is None)
    for kind, count in odd.items():
        yield f"{kind}: {count} in a shape that is not known here (kept as it is)"
    # Local models use an id again with each answer.
    if interrupted := (called - answered).total():
        calls = "1 tool call was" if interrupted == 1 else f"{interrupted} tool calls were"
        yield f"{calls} interrupted; the model is told so"
    if missing:
        files = "1 file is" if len(missing) == 1 else f"{len(missing)} files are"
        yield f"{files} missing from {session.blobs.folder.name}, or altered"
    if not session.size:
        yield "the file is empty; a session begins in it when something is said"
    header = session.header
    if header is not None and header.version > FORMAT_VERSION:
        yield (
            f"written by a newer program (format {header.version}, this one knows"
            f" {FORMAT_VERSION}); nothing is appended to it here"
        )


def _calls(entry: SessionTreeEntry) -> Iterator[str]:
    if isinstance(entry, MessageEntry) and isinstance(entry.message, AssistantMessage):
        yield from (call.id for call in entry.message.tool_calls)


def _answers(entry: SessionTreeEntry) -> Iterator[str]:
    if isinstance(entry, MessageEntry) and isinstance(entry.message, ToolResultMessage):
        yield entry.message.tool_call_id
