"""Which sessions are this user's own: those that were begun, or taken on, here.

A session file comes with a repository, a mail, a shared folder. What it holds was then said to
somebody else, maybe in order to be read by a model here; so it is a view until a person takes it
on. The ledger decides that, not the file: it lies with the user's data and only grows. Where it is
missing or damaged, sessions are foreign; none is unreadable for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from yiem_nb.session.files import OsFiles, write_all

__all__ = ["Ledger", "LedgerLine", "ledger_path"]


def ledger_path() -> Path:
    """Name the file in the user's data folder."""
    import platformdirs

    return Path(platformdirs.user_data_dir("yiem_nb", appauthor=False)) / "sessions.ledger.jsonl"


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """What is known of a session of one's own; of several lines the last one counts.

    Attributes
    ----------
    session
        The id in its header.
    path
        Where it was.
    notebook
        Whose it is; empty where it belongs to none.
    leaf
        Where it stood when it was last let go of.
    """

    session: str
    path: str = ""
    notebook: str = ""
    leaf: str | None = None


class Ledger:
    """The user's own sessions, in an append-only file that only its owner reads."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __contains__(self, session: str) -> bool:
        return session in self.lines()

    def lines(self) -> dict[str, LedgerLine]:
        """Return what is known, by session, the one that was seen last at the end."""
        known: dict[str, LedgerLine] = {}
        for line in self._read():
            known.pop(line.session, None)
            known[line.session] = line
        return known

    def of_notebook(self, notebook: Path) -> LedgerLine | None:
        """Return the session that a notebook at this path had last."""
        found = [line for line in self.lines().values() if line.notebook == str(notebook)]
        return found[-1] if found else None

    def add(self, line: LedgerLine) -> bool:
        """Write a line; where that is not possible the session is foreign the next time."""
        files = OsFiles()
        data = json.dumps(asdict(line)).encode() + b"\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with contextlib.suppress(FileExistsError):
                os.close(files.open(str(self.path), write=True, create=True))
            fd = files.open(str(self.path), write=True, create=False)
            try:
                # A line before that was cut off must not swallow this one.
                size = os.fstat(fd).st_size
                ended = not size or files.read(fd, 1, size - 1) == b"\n"
                return write_all(files, fd, data if ended else b"\n" + data)[1] is None
            finally:
                os.close(fd)
        except OSError:
            return False

    def _read(self) -> Iterator[LedgerLine]:
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return
        with os.fdopen(fd, "rb") as file:
            if not _is_ours(os.fstat(file.fileno())):
                return
            content = file.read()
        for line in content.split(b"\n"):
            with contextlib.suppress(ValueError, TypeError, RecursionError):
                given: Any = json.loads(line)
                found = LedgerLine(**given)
                told = (found.session, found.path, found.notebook, found.leaf or "")
                if found.session and all(isinstance(value, str) for value in told):
                    yield found


def _is_ours(status: os.stat_result) -> bool:
    """Tell whether nobody else can have written the file."""
    others = stat.S_IWGRP | stat.S_IWOTH
    return (
        stat.S_ISREG(status.st_mode)
        and status.st_uid == os.getuid()
        and not status.st_mode & others
    )
