"""How a session begins, and what its file then says of it (SPEC-4.2, SPEC-10.2)."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from yiem_nb.session.entries import SessionHeader, new_session_id, timestamp_now

__all__ = ["SessionMetadata", "SessionOptions", "new_header"]


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
