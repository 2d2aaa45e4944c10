"""The few calls to the operating system that a session's safety rests on.

They stand behind a protocol so that the tests can let each one of them fail, at any moment.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from yiem_nb.errors import ErrorCode, SessionError, SessionNotFoundError

__all__ = [
    "NO_LOCKS",
    "TEMPORARY",
    "Files",
    "NoFiles",
    "OsFiles",
    "check_regular",
    "locked",
    "reason_of",
    "temporary_of",
    "write_all",
    "write_new",
]

#: How the name of a file ends that is not whole yet.
TEMPORARY = ".tmp"

_READ_WRITE = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_READ_ONLY = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
#: File systems without locks say one of these; there we do without.
NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}


class Files(Protocol):
    """What can fail."""

    def open(self, path: str, *, write: bool, create: bool) -> int:
        """Open a file for appending or only for reading; `create` insists that it is new."""

    def close(self, fd: int) -> None:
        """Close it."""

    def read(self, fd: int, length: int, offset: int) -> bytes:
        """Read at an offset."""

    def write(self, fd: int, data: memoryview) -> int:
        """Append; may write less than was given."""

    def sync(self, fd: int) -> None:
        """Wait until what was written survives a power cut."""

    def sync_folder(self, path: str) -> None:
        """Wait until the names in a folder survive a power cut."""

    def make_folder(self, path: str) -> None:
        """Make a folder that only its owner enters; one that is there already is fine."""

    def replace(self, old: str, new: str) -> None:
        """Give a file another name, at once; what had that name is gone."""

    def remove(self, path: str) -> None:
        """Remove a file."""

    def lock(self, fd: int) -> None:
        """Wait for the exclusive lock on the file."""

    def unlock(self, fd: int) -> None:
        """Give the lock back."""


class OsFiles:
    """The real thing."""

    def open(self, path: str, *, write: bool, create: bool) -> int:
        """Open a file for appending or only for reading; `create` insists that it is new."""
        flags = _READ_WRITE if write else _READ_ONLY
        if create:
            flags |= os.O_CREAT | os.O_EXCL
        return os.open(path, flags, 0o600)

    def close(self, fd: int) -> None:
        """Close it."""
        os.close(fd)

    def read(self, fd: int, length: int, offset: int) -> bytes:
        """Read at an offset."""
        return os.pread(fd, length, offset)

    def write(self, fd: int, data: memoryview) -> int:
        """Append; may write less than was given."""
        return os.write(fd, data)

    def sync(self, fd: int) -> None:
        """Wait until what was written survives a power cut."""
        # macOS has no fdatasync.
        getattr(os, "fdatasync", os.fsync)(fd)

    def sync_folder(self, path: str) -> None:
        """Wait until the names in a folder survive a power cut."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def make_folder(self, path: str) -> None:
        """Make a folder that only its owner enters; one that is there already is fine."""
        with contextlib.suppress(FileExistsError):
            Path(path).mkdir(mode=0o700)

    def replace(self, old: str, new: str) -> None:
        """Give a file another name, at once; what had that name is gone."""
        Path(old).replace(new)

    def remove(self, path: str) -> None:
        """Remove a file."""
        Path(path).unlink()

    def lock(self, fd: int) -> None:
        """Wait for the exclusive lock on the file."""
        fcntl.flock(fd, fcntl.LOCK_EX)

    def unlock(self, fd: int) -> None:
        """Give the lock back."""
        fcntl.flock(fd, fcntl.LOCK_UN)


class NoFiles(OsFiles):
    """Reads what is there and writes nothing: what is appended stays in memory."""

    def open(self, path: str, *, write: bool, create: bool) -> int:
        """Open a file for reading; refuse to write one."""
        if write or create:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        return super().open(path, write=False, create=False)

    def make_folder(self, path: str) -> None:
        """Refuse."""
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    def replace(self, old: str, new: str) -> None:
        """Refuse."""
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    def remove(self, path: str) -> None:
        """Refuse."""
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))


@contextlib.contextmanager
def locked(files: Files, fd: int) -> Iterator[None]:
    """Hold the file's lock, where the file system has locks."""
    held = True
    try:
        files.lock(fd)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        held = False
    try:
        yield
    finally:
        if held:
            # A lock that cannot be given back ends with the descriptor.
            with contextlib.suppress(OSError):
                files.unlock(fd)


def write_all(files: Files, fd: int, data: bytes) -> tuple[int, OSError | None]:
    """Write `data`, going on after a short write; say how much got there and why no more.

    A full disk writes the part that fits and raises nothing: only the count tells.
    """
    view = memoryview(data)
    done = 0
    while done < len(data):
        try:
            count = files.write(fd, view[done:])
        except InterruptedError:
            continue
        except OSError as error:
            return done, error
        if count == 0:
            return done, OSError(errno.EIO, os.strerror(errno.EIO))
        done += count
    return done, None


def temporary_of(path: Path) -> str:
    """Begin the name under which a file is written until it is whole."""
    # Names have a limit of 255 bytes, and this one is longer than the file's own.
    return f".{path.name[:40]}."


def write_new(files: Files, path: Path, data: bytes) -> None:
    """Write a file that survives a power cut under its name, or leave nothing behind.

    Raises
    ------
    OSError
        It cannot be written; what had the name has it still.
    """
    temporary = path.with_name(f"{temporary_of(path)}{secrets.token_hex(8)}{TEMPORARY}")
    fd = files.open(str(temporary), write=True, create=True)
    try:
        try:
            _, error = write_all(files, fd, data)
            if error is not None:
                raise error
            files.sync(fd)
        finally:
            files.close(fd)
        files.replace(str(temporary), str(path))
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    files.sync_folder(str(path.parent))


_REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "your disk quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "writing is not permitted there",
    errno.EPERM: "writing is not permitted there",
    errno.EIO: "the disk reports an error",
}


def reason_of(error: OSError) -> str:
    """Say in a few words why the system refused."""
    words = _REASONS.get(error.errno or 0)
    return words or (error.strerror or type(error).__name__).lower()


def check_regular(path: str) -> None:
    """Refuse what no session can be: nothing, a folder, a pipe, a device, a link.

    Raises
    ------
    SessionNotFoundError
        There is nothing.
    SessionError
        There is something else.
    """
    try:
        mode = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise SessionNotFoundError(
            f"There is no session at {path}.", hint="yiem sessions list shows those there are."
        ) from None
    except (OSError, ValueError) as error:
        why = reason_of(error) if isinstance(error, OSError) else str(error)
        raise SessionError(
            f"The session {path!r} cannot be opened: {why}.", code=ErrorCode.SESSION_UNREADABLE
        ) from None
    if stat.S_ISREG(mode):
        return
    hint = "Give the path of a session file."
    if stat.S_ISLNK(mode):
        hint = f"Open the file it leads to: {os.path.realpath(path)}"
    kinds = {
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a pipe",
        stat.S_IFLNK: "a symbolic link",
        stat.S_IFSOCK: "a socket",
    }
    kind = kinds.get(stat.S_IFMT(mode), "a device")
    raise SessionError(
        f"{path} is {kind}, not a session file.", hint=hint, code=ErrorCode.SESSION_UNREADABLE
    )
