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
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from yiem_nb.session.entries import timestamp_now
from yiem_nb.session.files import NO_LOCKS

__all__ = ["LEASE_SECONDS", "Owner", "SessionLock", "lock_folder"]

#: How long the record of an owner on another host counts where the file system has no locks.
LEASE_SECONDS = 60.0


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
    #: Whether it had the system's lock when it wrote this.
    locked: bool = False

    def __str__(self) -> str:
        who = f"{self.about} (process {self.pid})" if self.about else f"process {self.pid}"
        return f"{who} on {self.host} since {self.since}"


class SessionLock:
    """The claim of this process on a session.

    The system's lock ends with its process. Where the file system has none, and for an owner that
    took over from a living process, the record counts: while that process lives, or, on another
    host, for `LEASE_SECONDS` after it last looked (reliability 3.3).

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
        self._locked = False

    def acquire(self) -> bool:
        """Become the owner, if nobody is; say whether that went well.

        Raises
        ------
        OSError
            The record cannot be kept at all.
        """
        self._open()
        refused = self._refused()
        if self.is_mine():
            return True
        if refused is None or refused.errno in NO_LOCKS:
            # The lock alone does not tell of one who took over and holds the record only.
            if self._is_alive(self.owner(), taken_over=refused is None):
                return False
        elif self._is_alive(self.owner(), taken_over=False):
            return False
        elif self.owner() is None:
            return False  # somebody has the lock and is about to write the record
        self._write()
        return True

    def take_over(self) -> None:
        """Become the owner although another one is alive; it will find out with `is_mine`."""
        self._open()
        self._refused()
        self._write()

    def is_mine(self) -> bool:
        """Tell whether this process is the owner still."""
        owner = self.owner()
        if owner is None or owner.token != self.me.token:
            return False
        if self._fd is not None and not self._locked and self._refused() is None:
            self._write()  # the one it was taken from has let go
        with contextlib.suppress(OSError):
            os.utime(self.path)
        return True

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
        self._fd, self._locked = None, False

    def _open(self) -> None:
        if self._fd is None:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._fd = os.open(self.path, flags, 0o600)

    def _refused(self) -> OSError | None:
        """Try for the system's lock; say why it is not ours."""
        assert self._fd is not None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return error
        self._locked = True
        return None

    def _is_alive(self, owner: Owner | None, *, taken_over: bool) -> bool:
        """Tell whether the one the record names is there still.

        One who holds the system's lock needs no record, so where that was free (`taken_over`) only
        a record that was written without it counts.
        """
        if owner is None or owner.token == self.me.token or (taken_over and owner.locked):
            return False
        if owner.host == self.me.host:
            return _is_running(owner.pid)
        with contextlib.suppress(OSError):
            return time.time() - self.path.stat().st_mtime < LEASE_SECONDS
        return False

    def _write(self) -> None:
        assert self._fd is not None
        record = json.dumps(asdict(self.me) | {"locked": self._locked}).encode()
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, record, 0)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
