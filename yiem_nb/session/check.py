"""Look at every byte of a session file and say what there is to say; change nothing."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from yiem_nb.errors import ErrorCode, SessionError
from yiem_nb.messages import AssistantMessage, ToolResultMessage
from yiem_nb.session.entries import ENTRY_TYPES, MessageEntry, SessionTreeEntry, UnknownEntry
from yiem_nb.session.files import OsFiles, check_regular, reason_of
from yiem_nb.session.index import SessionIndex
from yiem_nb.session.log import LineLog
from yiem_nb.session.options import SessionOptions, new_header
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
    where = Path(path).absolute()
    check_regular(str(where))
    log = LineLog(where, OsFiles())
    index = SessionIndex(log, new_header(SessionOptions(where)))
    try:
        log.open(write=False)
        index.read_new()
    except OSError as error:
        raise SessionError(
            f"The session {where} cannot be read: {reason_of(error)}.",
            code=ErrorCode.SESSION_UNREADABLE,
        ) from None
    found = [*findings(index.scan, index.tree), *_of_entries(index)]
    log.close()
    types = Counter(index.tree.type(entry_id) for entry_id in index.tree)
    return SessionCheck(where, log.size, types, tuple(found))


def _of_entries(index: SessionIndex) -> Iterator[str]:
    """Say what only shows in the entries themselves."""
    odd: Counter[str] = Counter()
    called: set[str] = set()
    answered: set[str] = set()
    for position in range(len(index.tree)):
        entry = index.load(position)
        if isinstance(entry, UnknownEntry) and entry.type in ENTRY_TYPES:
            odd[entry.type] += 1
        called.update(_calls(entry))
        answered.update(_answers(entry))
    for kind, count in odd.items():
        yield f"{kind}: {count} in a shape that is not known here (kept as it is)"
    if interrupted := len(called - answered):
        calls = "1 tool call was" if interrupted == 1 else f"{interrupted} tool calls were"
        yield f"{calls} interrupted; the model is told so"


def _calls(entry: SessionTreeEntry) -> Iterator[str]:
    if isinstance(entry, MessageEntry) and isinstance(entry.message, AssistantMessage):
        yield from (call.id for call in entry.message.tool_calls)


def _answers(entry: SessionTreeEntry) -> Iterator[str]:
    if isinstance(entry, MessageEntry) and isinstance(entry.message, ToolResultMessage):
        yield entry.message.tool_call_id
