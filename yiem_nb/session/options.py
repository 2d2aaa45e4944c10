"""How a session begins, and what its file then says of it (SPEC-4.2, SPEC-10.2)."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from yiem_nb.session.entries import (
    FORMAT_VERSION,
    SessionHeader,
    new_session_id,
    timestamp_now,
)

__all__ = ["SessionMetadata", "SessionOptions", "new_header", "why_read_only"]

#: The first version whose entries have ids. In a file of pi's first one, pi gives all entries new ids
#: in a row, so a branch of ours would not be one any more.
_FIRST_WITH_IDS = 2


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """How a new session begins (SPEC-10.2)."""

    path: str | os.PathLike[str]
    cwd: str = field(default_factory=os.getcwd)
    metadata: dict[str, Any] = field(default_factory=dict)
    parent_session: str | None = None


@dataclass(frozen=True, slots=True)
class SessionMetadata:
    """What the header says, and where the file is."""

    id: str
    version: int
    created: str
    cwd: str
    path: str
    parent_session: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


def new_header(options: SessionOptions) -> SessionHeader:
    """Make the first line of a new file."""
    return SessionHeader(
        id=new_session_id(),
        timestamp=timestamp_now(),
        cwd=options.cwd,
        parent_session=options.parent_session,
        metadata=options.metadata,
    )


def why_read_only(header: SessionHeader) -> str | None:
    """Say why nothing is appended to a file with this header; ``None`` where we may."""
    if header.version > FORMAT_VERSION:
        return (
            f"it was written by a newer program (format {header.version},"
            f" this one knows {FORMAT_VERSION})"
        )
    if header.version < _FIRST_WITH_IDS:
        return "it is in the first format of pi, whose entries have no ids"
    return None
