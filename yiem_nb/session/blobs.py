"""Large things beside the session, each under the hash of its bytes (issue 4, item 8).

A large image would be parsed with every look at its line. So it goes to ``NAME.yiem.files/``, and in
the line stands a text that says so, with a reference::

    {"type":"text","text":"[image/png, 1.2 MB, …]","blob":{"blob":"3fa9…","mimeType":"image/png",…}}

A reader that knows nothing of this, pi for one, has a session with a sentence in the image's place. A
file that is missing or was altered leaves a sentence too. The name of a file is made of a hash that
was checked and of a fixed list of endings, so no session leads anywhere else; what is read must have
the hash it is called by.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
import stat
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yiem_nb.errors import redact
from yiem_nb.messages import ImageContent, MessageContent, TextContent
from yiem_nb.session.entries import (
    ContextEditEntry,
    CustomMessageEntry,
    MessageEntry,
    OtherMessage,
    SessionTreeEntry,
)
from yiem_nb.session.files import Files, OsFiles, reason_of, write_new
from yiem_nb.session.lines import load_json
from yiem_nb.tools.context import SavedOutput

__all__ = [
    "INLINE_LIMIT",
    "Blob",
    "BlobStore",
    "blobs_folder",
    "blobs_in",
    "mentioned",
    "size_words",
]

#: From this many characters of Base64 on, an image is kept out of its line.
INLINE_LIMIT = 256 * 1024
#: What is larger is not read back: a session of another may claim anything.
MAX_BLOB_BYTES = 64 * 1024 * 1024
#: How much may wait in memory for a disk that is full.
MAX_HELD_BYTES = 64 * 1024 * 1024

_SUFFIX = ".yiem.jsonl"
_FOLDER_SUFFIX = ".yiem.files"
_HASH = re.compile(r"[0-9a-f]{64}")
_HASHES = re.compile(rb'"blob"\s*:\s*"([0-9a-f]{64})"')
_MIME_TYPE = re.compile(r"[a-z]+/[a-z0-9.+-]{1,60}")
_ENDINGS = {
    "image/png": "png",
    "image/jpeg": "jpg",
    "image/gif": "gif",
    "image/webp": "webp",
    "text/plain": "txt",
    "text/csv": "csv",
    "application/json": "json",
}
_TYPES = {ending: mime_type for mime_type, ending in _ENDINGS.items()}


@dataclass(frozen=True, slots=True)
class Blob:
    """A file beside the session, as an entry names it.

    Parameters
    ----------
    sha256
        64 hex digits; nothing else gets past `Blob.of`.
    mime_type
        What it is.
    size
        In bytes.
    """

    sha256: str
    mime_type: str
    size: int

    @classmethod
    def of(cls, reference: Any) -> Blob | None:
        """Read a reference; what is none gives ``None``."""
        if not isinstance(reference, dict):
            return None
        digest, size = reference.get("blob"), reference.get("bytes")
        mime_type = reference.get("mimeType")
        if not isinstance(digest, str) or not _HASH.fullmatch(digest):
            return None
        if not isinstance(mime_type, str) or not _MIME_TYPE.fullmatch(mime_type):
            return None
        if not isinstance(size, int) or not 0 <= size <= MAX_BLOB_BYTES:
            return None
        return cls(digest, mime_type, size)

    @classmethod
    def made_of(cls, data: bytes, mime_type: str) -> Blob:
        """Name what is to be kept."""
        return cls(hashlib.sha256(data).hexdigest(), mime_type, len(data))

    @property
    def file(self) -> str:
        """The name of its file."""
        return f"{self.sha256}.{_ENDINGS.get(self.mime_type, 'bin')}"

    @property
    def reference(self) -> dict[str, Any]:
        """What an entry says of it."""
        return {"blob": self.sha256, "mimeType": self.mime_type, "bytes": self.size}

    def __str__(self) -> str:
        return f"{self.mime_type}, {size_words(self.size)}"


class BlobStore:
    """The folder of a session's large things.

    Everything here may be called from any thread.

    Parameters
    ----------
    session
        Says where the session file is now; it may be renamed while it is open.
    files
        The operating system.

    Attributes
    ----------
    problem
        Why something waits in memory, or ``None``.
    """

    def __init__(self, session: Callable[[], Path], files: Files | None = None) -> None:
        self._session = session
        self._files: Files = files if files is not None else OsFiles()
        self._held: dict[str, bytes] = {}
        self._lock = threading.Lock()
        self.problem: str | None = None

    @property
    def folder(self) -> Path:
        """Where the files lie; made with the first one."""
        return blobs_folder(self._session())

    @property
    def pending(self) -> int:
        """How many files are not on disk."""
        return len(self._held)

    # --- Whole entries -----------------------------------------------------------------

    def parted(self, entry: SessionTreeEntry) -> SessionTreeEntry:
        """Keep an entry's large images in files of their own; return what its line holds.

        An image that the disk does not take stays where it is.
        """
        return _with_blocks(entry, self._parted)

    def whole(self, entry: SessionTreeEntry) -> SessionTreeEntry:
        """Put back what was kept out of line, or a sentence where it is missing."""
        return _with_blocks(entry, self._whole)

    def _parted(self, block: MessageContent) -> MessageContent:
        if not isinstance(block, ImageContent) or len(block.data) < INLINE_LIMIT:
            return block
        data = _decoded(block.data)
        if data is None:
            return block
        blob = Blob.made_of(data, block.mime_type)
        if Blob.of(blob.reference) is None:
            return block
        try:
            with self._lock:
                self._put(blob.file, data)
        except OSError:
            return block
        text = f"[{blob}: kept beside this session as {blob.file}]"
        fields = {"text": text, "blob": blob.reference}
        return TextContent.model_validate({**(block.model_extra or {}), "type": "text", **fields})

    def _whole(self, block: MessageContent) -> MessageContent:
        extra = block.model_extra if isinstance(block, TextContent) else None
        blob = Blob.of(extra.get("blob")) if extra else None
        if blob is None or not blob.mime_type.startswith("image/"):
            return block
        data = self.read(blob)
        if data is None:
            return block.model_copy(update={"text": self.missing(blob)})
        others = {name: value for name, value in (extra or {}).items() if name != "blob"}
        image = {"data": base64.b64encode(data).decode(), "mimeType": blob.mime_type}
        return ImageContent.model_validate({**others, "type": "image", **image})

    def missing(self, blob: Blob) -> str:
        """Say what is not there."""
        return f"[{blob}: missing; {self.folder.name}/{blob.file} is not there or was altered]"

    # --- Single files ------------------------------------------------------------------

    def save_output(self, output: str | bytes, name: str = "") -> SavedOutput | None:
        """Keep a whole output, but for keys (`tools.context.OutputStore`).

        Returns
        -------
        SavedOutput or None
            ``None`` for more than 64 MB, and where the disk refuses and as much waits in memory
            as may.
        """
        is_text = isinstance(output, str)
        data = redact(output).encode("utf-8", "replace") if isinstance(output, str) else output
        ending = Path(name).suffix[1:].lower()
        usual = "text/plain" if is_text else "application/octet-stream"
        blob = Blob.made_of(data, _TYPES.get(ending, usual))
        if blob.size > MAX_BLOB_BYTES:
            return None
        try:
            with self._lock:
                self._put(blob.file, data)
        except OSError as error:
            if not self._hold(blob.file, data, error):
                return None
        path = f"{self.folder.name}/{blob.file}"
        return SavedOutput(blob.sha256, blob.size, blob.mime_type, name, path)

    def read(self, blob: Blob) -> bytes | None:
        """Return a file's bytes; ``None`` where they are missing or not those that were kept.

        A session that was renamed without its folder finds its files in the folders beside it.
        """
        held = self._held.get(blob.file)
        if held is not None:
            return held
        for folder in self._folders():
            data = self._read(folder / blob.file, blob.size)
            if data is not None and hashlib.sha256(data).hexdigest() == blob.sha256:
                return data
        return None

    def take_from(self, other: BlobStore, lines: Iterable[bytes]) -> None:
        """Copy the files that `lines` name; what is missing there is missing here."""
        wanted = {digest for line in lines for digest in mentioned(line)}
        if not wanted or other.folder == self.folder:
            return
        for path in other.files():
            data = other._read(path, None) if path.stem in wanted else None
            if data is None or hashlib.sha256(data).hexdigest() != path.stem:
                continue
            try:
                with self._lock:
                    self._put(path.name, data)
            except OSError as error:
                self._hold(path.name, data, error)

    def files(self) -> Iterator[Path]:
        """List the files of all folders that belong to this session or lie beside it."""
        for folder in self._folders():
            yield from sorted(path for path in folder.iterdir() if _HASH.fullmatch(path.stem))

    def retry(self) -> None:
        """Try once more to write what waits."""
        for name, data in list(self._held.items()):
            try:
                with self._lock:
                    self._put(name, data)
            except OSError as error:
                self.problem = reason_of(error)
                return
            self._held.pop(name, None)
        self.problem = None

    def _hold(self, name: str, data: bytes, error: OSError) -> bool:
        with self._lock:
            if sum(map(len, self._held.values())) + len(data) > MAX_HELD_BYTES:
                return False
            self._held[name] = data
            self.problem = reason_of(error)
            return True

    def _put(self, name: str, data: bytes) -> None:
        path = self.folder / name
        if _is_folder(self.folder) and self._read(path, len(data)) == data:
            return
        self.folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._files.make_folder(str(self.folder))
        if not _is_folder(self.folder):
            raise NotADirectoryError(20, f"{self.folder.name} is no folder")
        write_new(self._files, path, data)

    def _folders(self) -> Iterator[Path]:
        if _is_folder(self.folder):
            yield self.folder
        beside = sorted(self.folder.parent.glob(f"*{_FOLDER_SUFFIX}"))
        yield from (path for path in beside if path != self.folder and _is_folder(path))

    def _read(self, path: Path, size: int | None) -> bytes | None:
        try:
            fd = self._files.open(str(path), write=False, create=False)
        except OSError:
            return None
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_BLOB_BYTES:
                return None
            if size is not None and found.st_size != size:
                return None
            data = b""
            while len(data) < found.st_size:
                more = self._files.read(fd, found.st_size - len(data), len(data))
                if not more:
                    return None
                data += more
            return data
        except OSError:
            return None
        finally:
            self._files.close(fd)


def blobs_folder(session: Path) -> Path:
    """Name the folder of a session's large things: ``NAME.yiem.files`` beside it."""
    stem = session.name.removesuffix(_SUFFIX) if session.name.endswith(_SUFFIX) else session.stem
    return session.with_name(f"{stem}{_FOLDER_SUFFIX}")


def blobs_in(line: bytes) -> Iterator[Blob]:
    """List the files that an entry's line names, wherever in it."""
    if not mentioned(line):
        return
    try:
        waiting: list[Any] = [load_json(line)]
    except ValueError:
        return
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            blob = Blob.of(value)
            if blob is not None:
                yield blob
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def mentioned(line: bytes) -> list[str]:
    """List the files that a line names, by their hashes."""
    return [digest.decode() for digest in _HASHES.findall(line)]


def size_words(size: int) -> str:
    """``812 bytes``, ``12 kB``, ``1.2 MB``."""
    if size < 1_000:
        return f"{size} bytes"
    return f"{size / 1_000:.0f} kB" if size < 999_500 else f"{size / 1_000_000:.1f} MB"


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def _decoded(data: str) -> bytes | None:
    """Decode Base64 that will be the same when it is encoded again."""
    try:
        decoded = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None
    return decoded if base64.b64encode(decoded).decode() == data else None


def _with_blocks(
    entry: SessionTreeEntry, change: Callable[[MessageContent], MessageContent]
) -> SessionTreeEntry:
    """Change an entry's blocks, wherever it has them; an entry that stays the same is itself."""
    match entry:
        case MessageEntry(message=message) if not isinstance(message, OtherMessage):
            content = tuple(map(change, message.content))
            if any(new is not old for new, old in zip(content, message.content, strict=True)):
                message = message.model_copy(update={"content": content})
                return entry.model_copy(update={"message": message})
        case CustomMessageEntry(content=content):
            return entry.model_copy(update={"content": tuple(map(change, content))})
        case ContextEditEntry(replacement=replacement) if replacement is not None:
            content = tuple(map(change, replacement.content))
            replacement = replacement.model_copy(update={"content": content})
            return entry.model_copy(update={"replacement": replacement})
        case _:
            pass
    return entry
