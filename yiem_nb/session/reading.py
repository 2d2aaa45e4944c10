"""A session file that is looked at and never touched."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from yiem_nb.errors import ErrorCode, SessionError
from yiem_nb.session.blobs import BlobStore
from yiem_nb.session.entries import FORMAT_VERSION, SessionHeader
from yiem_nb.session.files import OsFiles, check_regular, reason_of
from yiem_nb.session.index import SessionIndex
from yiem_nb.session.log import LineLog
from yiem_nb.session.options import SessionOptions, new_header
from yiem_nb.session.recovery import notices_of
from yiem_nb.session.tree import SessionTree

__all__ = ["Reading", "reading"]


@dataclass(frozen=True, slots=True)
class Reading:
    """A session that was opened for reading only."""

    path: Path
    #: In bytes.
    size: int
    index: SessionIndex
    blobs: BlobStore

    @property
    def tree(self) -> SessionTree:
        """All entries."""
        return self.index.tree

    @property
    def header(self) -> SessionHeader | None:
        """What the first line says; ``None`` where it is no header."""
        return self.index.scan.header

    @property
    def notices(self) -> list[str]:
        """What had to be recovered, and what a person should know of the file."""
        said = notices_of(self.index.scan, self.tree)
        header = self.header
        if header is not None and header.version > FORMAT_VERSION:
            newer = f"written by a newer program (format {header.version}, this one knows {FORMAT_VERSION})"
            said.insert(0, newer)
        return said


@contextlib.contextmanager
def reading(path: str | os.PathLike[str], *, any_file: bool = False) -> Iterator[Reading]:
    """Open a session file for reading only.

    Parameters
    ----------
    path
        The file.
    any_file
        Take a file too that holds nothing of a session.

    Raises
    ------
    SessionNotFoundError
        There is nothing at `path`.
    SessionError
        There is no file, it may not be read, or it is another program's.
    """
    where = Path(path).absolute()
    check_regular(str(where))
    log = LineLog(where, OsFiles())
    blobs = BlobStore(lambda: where)
    index = SessionIndex(log, new_header(SessionOptions(where)), blobs.whole)
    try:
        log.open(write=False)
        index.read_new()
    except OSError as error:
        log.close()
        raise SessionError(
            f"The session {where} cannot be read: {reason_of(error)}.",
            code=ErrorCode.SESSION_UNREADABLE,
        ) from None
    try:
        if not any_file and index.scan.header is None and not len(index.tree):
            holds = "it holds nothing of one" if log.size else "it is empty"
            raise SessionError(
                f"{where} is no session file: {holds}.",
                hint="yiem sessions list shows those there are.",
                code=ErrorCode.SESSION_UNREADABLE,
            )
        yield Reading(where, log.size, index, blobs)
    finally:
        log.close()
