"""One append-only file of lines, wherever it goes while it is open."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from yiem_nb.session.files import Files, locked, write_all

__all__ = ["LineLog", "free_name"]

_DENIED = {errno.EACCES, errno.EROFS, errno.EPERM}
_CHUNK = 1024 * 1024
#: By so many of its last bytes a file is recognised.
_END = 512
_SUFFIX = ".yiem.jsonl"


class LineLog:
    """A file that only grows, by whole lines.

    Attributes
    ----------
    path
        Where the file is now; it is followed when it is renamed.
    size
        How much of the file is known; what lies beyond was written by others.
    ended
        Whether the last byte ends a line. Where it does not, the next append begins with a line
        end, so that a record that was cut off stays alone.
    gap
        The bytes that others wrote just before the last append; empty but for a race.
    """

    def __init__(self, path: Path, files: Files) -> None:
        self.path = path
        self.size = 0
        self.ended = True
        self.gap = range(0)
        self.notices: list[str] = []
        self._files = files
        self._fd: int | None = None
        self._denied: OSError | None = None
        #: The last bytes that are known, at `size`.
        self._end = b""

    def open(self, *, write: bool = True) -> None:
        """Open the file; where writing is not asked for or not permitted, for reading."""
        if not write:
            self._fd = self._files.open(str(self.path), write=False, create=False)
            return
        try:
            self._fd = self._files.open(str(self.path), write=True, create=False)
        except OSError as error:
            if error.errno not in _DENIED:
                raise
            self._denied = error
            self._fd = self._files.open(str(self.path), write=False, create=False)

    def close(self) -> None:
        """Let go of the file."""
        if self._fd is not None:
            with contextlib.suppress(OSError):
                self._files.close(self._fd)
        self._fd = None

    def __del__(self) -> None:
        # A session that nobody closed must not hold on to its descriptor.
        self.close()

    def read(self, length: int, offset: int) -> bytes:
        """Read exactly `length` bytes, or what there is of them."""
        if self._fd is None:
            raise OSError(errno.EBADF, "the session file is closed")
        data = self._files.read(self._fd, length, offset)
        while len(data) < length and (more := self._more(data, length, offset)):
            data += more
        return data

    def _more(self, data: bytes, length: int, offset: int) -> bytes:
        assert self._fd is not None
        return self._files.read(self._fd, length - len(data), offset + len(data))

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Be the only writer for a while; the file is made where it is not there yet."""
        fd = self._writable()
        with locked(self._files, fd):
            followed = self._follow(fd)
            if followed == fd:
                yield
                return
        with locked(self._files, followed):
            yield

    def grown(self) -> int:
        """Say by how much the file differs from what is known of it."""
        if self._fd is None:
            return 0
        return os.fstat(self._fd).st_size - self.size

    def overwritten(self) -> bool:
        """Tell whether what is known of the file is no longer in it, where it was."""
        if self.grown() < 0:
            return True
        length = len(self._end)
        return length > 0 and self.read(length, self.size - length) != self._end

    def remember_end(self) -> None:
        """Remember how what is known of the file ends; another program may write over it."""
        length = min(_END, self.size) if self._fd is not None else 0
        self._end = b""
        self._end = self.read(length, self.size - length) if length else b""

    def forget(self) -> None:
        """Know nothing of the file any more."""
        self.size, self.ended, self._end = 0, True, b""

    def leave(self) -> None:
        """Go on in a new file beside this one; the next append makes it."""
        self.close()
        self.forget()
        self.path = free_name(self.path)

    def append(self, lines: Sequence[bytes]) -> tuple[list[int], OSError | None]:
        """Write `lines`, each with its end, at once; say where those that got there begin."""
        assert self._fd is not None
        lead = b"" if self.ended else b"\n"
        data = lead + b"".join(lines)
        count, error = write_all(self._files, self._fd, data)
        if count:
            # The descriptor stands where its own last write ended, also when a program that
            # takes no lock (pi takes none) has written in between.
            end = os.lseek(self._fd, 0, os.SEEK_CUR)
            self.gap = range(self.size, end - count)
            self.size = end
            self.ended = data[count - 1 : count] == b"\n"
        start = self.size - count + len(lead)
        offsets: list[int] = []
        for line in lines:
            if start + len(line) > self.size:
                break
            offsets.append(start)
            start += len(line)
        return offsets, error

    def sync(self) -> None:
        """Wait until the lines survive a power cut."""
        if self._fd is not None:
            self._files.sync(self._fd)

    def _writable(self) -> int:
        if self._fd is None:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                self._fd = self._files.open(str(self.path), write=True, create=True)
            except FileExistsError:
                # Somebody else was faster; their file is as good as ours.
                self._fd = self._files.open(str(self.path), write=True, create=False)
            self._files.sync_folder(str(self.path.parent))
        elif self._denied is not None:
            fd = self._files.open(str(self.path), write=True, create=False)
            self._files.close(self._fd)
            self._fd, self._denied = fd, None
        return self._fd

    # --- Following ---------------------------------------------------------------------

    def _follow(self, fd: int) -> int:
        """Find out what became of the file's name; return the descriptor to write to.

        A renamed file is followed. One that was deleted is written anew from the open descriptor;
        where another file has its name, beside that.
        """
        here = os.fstat(fd)
        try:
            there = os.lstat(self.path)
        except OSError:
            there = None
        if there is not None and (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino):
            return fd
        if here.st_nlink:
            self._follow_name(fd)
            return fd
        return self._restore(fd, here.st_size, taken=there is not None)

    def _follow_name(self, fd: int) -> None:
        # Only Linux tells the name of an open file; elsewhere the old one is kept.
        with contextlib.suppress(OSError):
            name = Path(f"/proc/self/fd/{fd}").readlink()
            if name != self.path:
                self.notices.append(f"the session file was renamed; going on in {name}")
                self.path = name

    def _restore(self, fd: int, size: int, *, taken: bool) -> int:
        path = free_name(self.path) if taken else self.path
        new = self._files.open(str(path), write=True, create=True)
        offset = 0
        while offset < size:
            data = self._files.read(fd, min(_CHUNK, size - offset), offset)
            count, error = write_all(self._files, new, data)
            offset += count
            if error is not None or not data:
                # A half copy is of no use; it is ours, and the descriptor still has everything.
                self._files.close(new)
                path.unlink(missing_ok=True)
                raise error or OSError(errno.EIO, os.strerror(errno.EIO))
        self._files.sync(new)
        self._files.sync_folder(str(path.parent))
        what = "replaced" if path != self.path else "deleted"
        self.notices.append(f"the session file was {what}; its {size:,} bytes are in {path.name}")
        self._files.close(fd)
        self._fd, self.path = new, path
        return new


def beside(path: Path, number: int) -> Path:
    """Name a file beside another: ``NAME.2.yiem.jsonl`` beside ``NAME.yiem.jsonl``."""
    suffix = _SUFFIX if path.name.endswith(_SUFFIX) else path.suffix
    return path.with_name(f"{path.name.removesuffix(suffix)}.{number}{suffix}")


def free_name(path: Path) -> Path:
    """Name the first file beside another that is not there yet."""
    number = 2
    while os.path.lexists(beside(path, number)):
        number += 1
    return beside(path, number)
