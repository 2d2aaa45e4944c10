"""Who writes a session: one kernel at a time, and the others know which.

Two writers lose nothing, because every append locks the file and merges; but two kernels on one
notebook would each grow a branch that the other's reader does not expect. So the first one owns
the session, and the second asks before it writes. The record lies in a folder of the user's, not
beside the notebook, and the system's own lock on it ends with the process, however that ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from yiem_nb.session.entries import timestamp_now

__all__ = ["Owner", "SessionLock", "lock_folder"]


def lock_folder() -> Path:
    """Name the folder of the user's in which all claims lie.

    It must be the same for every process. The runtime folder is not: a server that was started
    without a login session has none, or another one.
    """
    import platformdirs

    return Path(platformdirs.user_state_dir("yiem_nb", appauthor=False)) / "locks"


@dataclass(frozen=True, slots=True)
class Owner:
    """Who holds a session, for a sentence to a person."""

    host: str
    pid: int
    since: str
    #: What the owner says of itself, e.g. its notebook.
    about: str = ""
    token: str = ""

    def __str__(self) -> str:
        who = self.about or f"process {self.pid}"
        return f"{who} on {self.host} since {self.since}"


class SessionLock:
    """The claim of this process on a session.

    Parameters
    ----------
    session
        The session file; it need not exist.
    folder
        Where the record lies; made where it is not there.
    about
        What others are told of this process.
    """

    def __init__(self, session: Path, folder: Path, about: str = "") -> None:
        name = hashlib.sha256(os.fsencode(os.path.realpath(session))).hexdigest()[:32]
        self.path = folder / f"{name}.lock"
        self.me = Owner(
            socket.gethostname(), os.getpid(), timestamp_now(), about, secrets.token_hex(8)
        )
        self._fd: int | None = None

    def acquire(self) -> bool:
        """Become the owner, if nobody is; say whether that went well."""
        if self._fd is None:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._fd = os.open(self.path, flags, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        self._write()
        return True

    def take_over(self) -> None:
        """Become the owner although another one is alive; it will find out with `is_mine`."""
        if not self.acquire():
            self._write()

    def is_mine(self) -> bool:
        """Tell whether this process is the owner still."""
        owner = self.owner()
        return owner is not None and owner.token == self.me.token

    def owner(self) -> Owner | None:
        """Return who is the owner; a record that cannot be read names nobody."""
        try:
            record: Any = json.loads(self.path.read_bytes())
            return Owner(**record)
        except (OSError, ValueError, TypeError):
            return None

    def release(self) -> None:
        """Let go; the record stays, but says nobody where it said this process."""
        if self._fd is None:
            return
        if self.is_mine():
            os.ftruncate(self._fd, 0)
        with contextlib.suppress(OSError):
            os.close(self._fd)
        self._fd = None

    def _write(self) -> None:
        assert self._fd is not None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, json.dumps(asdict(self.me)).encode(), 0)
