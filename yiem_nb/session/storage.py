"""The session file: appended to, never rewritten (SPEC-4.2).

What is promised: an entry that was acknowledged is found again, after ``kill -9``, beside other
writers, and on a disk that was full for a while. It rests on four habits. A line is one ``write``
on an ``O_APPEND`` descriptor, under the file's own lock. What was cut off is isolated by a line end
before the next record, not removed. What cannot be written waits in memory, in order, and is tried
again with each append. Nothing in the file is ever truncated, rewritten or deleted.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

from pydantic_core import from_json

from yiem_nb.errors import ErrorCode, SessionError
from yiem_nb.models import Limits
from yiem_nb.session.blobs import BlobStore
from yiem_nb.session.entries import (
    LeafEntry,
    SessionTreeEntry,
    UnknownEntry,
    new_entry_id,
    timestamp_now,
)
from yiem_nb.session.files import Files, OsFiles, check_regular, reason_of
from yiem_nb.session.index import Prepared, SessionIndex
from yiem_nb.session.limits import TokenBucket
from yiem_nb.session.lines import dump_line, parse_line
from yiem_nb.session.log import LineLog
from yiem_nb.session.options import SessionMetadata, SessionOptions, new_header, why_read_only
from yiem_nb.session.recovery import notices_of
from yiem_nb.session.stats import SessionStats
from yiem_nb.session.tree import SessionTree

__all__ = ["Durability", "JsonlSessionStorage", "SessionMetadata", "SessionOptions"]

#: When to wait for the disk: at `sync`, which the agent calls at the ends of turns; at each
#: append; or never, leaving it to the operating system.
Durability: TypeAlias = Literal["turn", "always", "os"]


class JsonlSessionStorage:
    """One session file, read by index and appended to from any thread (SPEC-4.2).

    Made by `open` or `create`. An append returns when the operating system has the line. Where it
    does not take it, `problem` says why and `pending` how many entries wait in memory; nothing is
    raised, because a full disk is no reason to end a conversation.

    Attributes
    ----------
    read_only
        Why nothing may be appended, or ``None``.
    problem
        Why entries are not saved, or ``None``.
    in_memory
        Whether nothing is meant to be saved, so that it is no problem either.
    blobs
        The large things that are kept beside the file; what is read here has them in it.
    """

    def __init__(
        self,
        options: SessionOptions,
        *,
        durability: Durability = "turn",
        limits: Limits | None = None,
        files: Files | None = None,
    ) -> None:
        limits = limits if limits is not None else Limits()
        files = files if files is not None else OsFiles()
        self.read_only: str | None = None
        self.problem: str | None = None
        self.in_memory = False
        self._how: dict[str, Any] = {"durability": durability, "limits": limits, "files": files}
        self._durability = durability
        self._reads = TokenBucket(limits.reads_per_second)
        self._writes = TokenBucket(limits.writes_per_second)
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._log = LineLog(Path(options.path).absolute(), files)
        self.blobs = BlobStore(lambda: self._log.path, files)
        self._index = SessionIndex(self._log, new_header(options), self.blobs.whole)
        self._leaf: str | None = None
        #: Whether this is a writer, that brings back what another program wrote over.
        self._wrote = False

    # --- Opening -----------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        durability: Durability = "turn",
        limits: Limits | None = None,
        files: Files | None = None,
    ) -> JsonlSessionStorage:
        """Open a session file; every sequence of bytes is one.

        Raises
        ------
        SessionNotFoundError
            There is nothing at `path`.
        SessionError
            There is a folder, a pipe, a device or a symbolic link, or it may not be read.
        """
        options = SessionOptions(Path(path).absolute())
        check_regular(str(options.path))
        storage = cls(options, durability=durability, limits=limits, files=files)
        storage._open_existing()
        return storage

    @classmethod
    def create(
        cls,
        options: SessionOptions,
        *,
        durability: Durability = "turn",
        limits: Limits | None = None,
        files: Files | None = None,
    ) -> JsonlSessionStorage:
        """Begin a session; its header is on disk when this returns, or `problem` says why not.

        Raises
        ------
        SessionError
            There is something at the path already.
        """
        storage = cls(options, durability=durability, limits=limits, files=files)
        storage._begin()
        return storage

    def copy(
        self, options: SessionOptions, entry_ids: Iterable[str], *, files: Files | None = None
    ) -> JsonlSessionStorage:
        """Begin a session with some of this one's entries, each line as it is where it is whole.

        Where an id or a parent had to be repaired, the repaired one is written.

        Raises
        ------
        SessionError
            There is something at the path already.
        """
        with self._lock:
            lines = [self._line_for_copy(entry_id) for entry_id in entry_ids]
        storage = type(self)(options, **(self._how | ({"files": files} if files else {})))
        storage.blobs.take_from(self.blobs, [line for _, line in lines])
        storage._begin(lines)  # noqa: SLF001 - its own class
        return storage

    def _begin(self, prepared: Sequence[Prepared] = ()) -> None:
        if os.path.lexists(self.path):
            raise SessionError(
                f"There is a file at {self.path} already.",
                hint="Open it, or choose another name.",
            )
        self._index.scan.header = self._index.header
        self._index.add_header()
        with self._lock:
            self._flush(prepared)

    def _line_for_copy(self, entry_id: str) -> Prepared:
        position = self.tree.position(entry_id)
        parent = self.tree.parent(entry_id)
        line = self._index.line(position).removesuffix(b"\n")
        entry = parse_line(line)
        loaded = self._index.load(position)
        if (entry.id, entry.parent_id) == (entry_id, parent) and loaded == entry:
            return entry, line + b"\n"
        if isinstance(entry, UnknownEntry):
            loaded = UnknownEntry.model_validate(entry.model_dump(by_alias=True))
        repaired = loaded.model_copy(update={"id": entry_id, "parent_id": parent})
        return repaired, dump_line(repaired)

    def _open_existing(self) -> None:
        try:
            self._log.open()
            self._index.read_new()
        except OSError as error:
            self._log.close()
            raise SessionError(
                f"The session {self.path} cannot be read: {reason_of(error)}.",
                code=ErrorCode.SESSION_UNREADABLE,
            ) from None
        self._leaf = self.tree.leaf
        self._judge_header()
        self._log.notices.extend(notices_of(self._index.scan, self.tree))

    def _judge_header(self) -> None:
        """Decide what may be done to a file that begins like this."""
        header = self._index.scan.header
        if header is not None:
            self._index.header = header
            self.read_only = why_read_only(header)
        elif self._log.size == 0:
            self._index.add_header()
        else:
            self.read_only = "its first line is no session header"

    def accept(self) -> None:
        """Go on with a file whose header cannot be read: a person has decided to.

        A file of a newer format, or of pi's first, stays read-only.
        """
        if self._index.scan.header is None:
            self.read_only = None

    def close(self) -> None:
        """Try once more to write what waits, then let go of the file."""
        with self._lock:
            self._retry()
            self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # --- What is there -----------------------------------------------------------------

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self._log.path

    @property
    def tree(self) -> SessionTree:
        """The tree; reading through it is not counted against the limits."""
        return self._index.tree

    @property
    def notices(self) -> list[str]:
        """What had to be recovered, and what became of the file, a sentence each."""
        return self._log.notices

    @property
    def pending(self) -> int:
        """How many entries are not on disk."""
        return self._index.pending

    def get_metadata(self) -> SessionMetadata:
        """Return what the header says."""
        header = self._index.header
        return SessionMetadata(
            id=header.id,
            version=header.version,
            created=header.timestamp,
            cwd=header.cwd,
            path=str(self.path),
            parent_session=header.parent_session,
            metadata=dict(header.metadata),
        )

    def get_entry(self, entry_id: str) -> SessionTreeEntry | None:
        """Return an entry, or ``None`` where there is none of that id."""
        self._reads.take()
        with self._lock:
            return self.tree.whole(entry_id) if entry_id in self.tree else None

    def find_entries(self, kind: str | type[SessionTreeEntry]) -> list[SessionTreeEntry]:
        """List all entries of a type, given by its name or its class, in file order."""
        self._reads.take()
        name = kind if isinstance(kind, str) else kind.model_fields["type"].default
        with self._lock:
            found = [self.tree.whole(entry_id) for entry_id in self.tree.of_type(name)]
        return found if isinstance(kind, str) else [one for one in found if isinstance(one, kind)]

    def get_entries(
        self, after: str | None = None, limit: int | None = None
    ) -> list[SessionTreeEntry]:
        """List entries in file order: those after the one named, at most `limit`.

        Raises
        ------
        SessionError
            There is no entry `after`.
        """
        self._reads.take()
        with self._lock:
            start = 0 if after is None else self._position(after) + 1
            end = len(self.tree) if limit is None else start + max(limit, 0)
            found = range(start, min(end, len(self.tree)))
            return [self.tree.whole(self.tree.id_at(position)) for position in found]

    def get_path(self, leaf: str | None = None) -> list[SessionTreeEntry]:
        """List the entries from the root to `leaf`; to the current leaf where none is given.

        Raises
        ------
        SessionError
            There is no entry of that id.
        """
        self._reads.take()
        with self._lock:
            if leaf is not None:
                self._position(leaf)
            path = self.tree.path(self._leaf if leaf is None else leaf)
            return [self.tree.whole(entry_id) for entry_id in path]

    def get_leaf_id(self) -> str | None:
        """Return the entry the conversation goes on from; ``None`` before the first."""
        return self._leaf

    def get_label(self, entry_id: str) -> str | None:
        """Return an entry's label, if it has one."""
        self._reads.take()
        with self._lock:
            return self.tree.labels().get(entry_id)

    def get_session_stats(self) -> SessionStats:
        """Return messages and tokens of the whole file."""
        self._reads.take()
        with self._lock:
            return self._index.stats()

    def _position(self, entry_id: str) -> int:
        try:
            return self.tree.position(entry_id)
        except KeyError:
            raise SessionError(
                f"There is no entry {entry_id!r} in this session.", code=ErrorCode.SESSION_ENTRY
            ) from None

    # --- Appending ---------------------------------------------------------------------

    def append_entry(self, entry: SessionTreeEntry) -> SessionTreeEntry:
        """Append an entry and return it as it was written, with its id, parent and time.

        Without a ``parent_id`` it follows the current leaf. It is the current leaf afterwards; a
        `LeafEntry` makes its target that.

        Raises
        ------
        SessionError
            The id is taken, the parent is not there, or the session is `read_only`.
        """
        return self.append_entries([entry])[0]

    def append_entries(self, entries: Iterable[SessionTreeEntry]) -> list[SessionTreeEntry]:
        """Append several entries with one write; each follows the one before it.

        Raises
        ------
        SessionError
            As for `append_entry`; nothing is appended then.
        """
        self._writes.take()
        with self._lock:
            self._check_writable()
            prepared = self._prepare(entries)
            self._flush(prepared)
            return [entry for entry, _ in prepared]

    def set_leaf_id(self, entry_id: str | None) -> None:
        """Go on from another entry, or from before the first; a reopened session does so too.

        Raises
        ------
        SessionError
            There is no entry of that id.
        """
        with self._lock:
            if entry_id is not None:
                self._position(entry_id)
            if entry_id != self._leaf or entry_id != self.tree.leaf:
                self.append_entry(LeafEntry(parent_id=entry_id, target_id=entry_id))

    def refresh(self) -> int:
        """Take in what others have appended; return how many entries came.

        The leaf stays: who follows somebody else's conversation looks at the tree's.
        """
        with self._lock:
            before = len(self.tree)
            with contextlib.suppress(OSError):
                self._index.read_new()
            if self._index.overwritten and self._wrote:
                self._flush()
            elif self._index.overwritten:
                self._index.take_as_is()
                self._keep_leaf()
            return len(self.tree) - before

    def sync(self) -> None:
        """Wait until what was appended survives a power cut, unless that is left to the system."""
        with self._lock:
            self._retry()
            if self._durability != "os":
                self._sync()

    def _check_writable(self) -> None:
        if os.getpid() != self._pid:
            raise SessionError(
                "This session belongs to the process this one was forked from.",
                hint="Open it anew.",
                code=ErrorCode.SESSION_READ_ONLY,
            )
        if self.read_only is not None:
            raise SessionError(
                f"The session {self.path.name} is read-only: {self.read_only}.",
                hint="Fork it to a new file to go on.",
                code=ErrorCode.SESSION_READ_ONLY,
            )

    def _prepare(self, entries: Iterable[SessionTreeEntry]) -> list[tuple[SessionTreeEntry, bytes]]:
        """Fill in what was not given, serialise, and prove that it can be read back."""
        prepared: list[Prepared] = []
        new: set[str] = set()
        leaf = self._leaf

        def known(entry_id: str) -> bool:
            return entry_id in new or entry_id in self.tree

        for given in entries:
            entry = self._complete(given, leaf, known)
            line = dump_line(self.blobs.parted(entry))
            if from_json(line)["id"] != entry.id:
                raise SessionError(f"Entry {entry.id!r} does not survive being written.")
            new.add(entry.id)
            leaf = entry.target_id if isinstance(entry, LeafEntry) else entry.id
            prepared.append((entry, line))
        return prepared

    def _complete(self, entry: SessionTreeEntry, leaf: str | None, known: Any) -> SessionTreeEntry:
        update: dict[str, Any] = {}
        if not entry.id:
            update["id"] = new_entry_id(known)
        elif known(entry.id):
            raise SessionError(
                f"There is an entry {entry.id!r} already.", code=ErrorCode.SESSION_ENTRY
            )
        if isinstance(entry, LeafEntry):
            update["parent_id"] = entry.target_id
        elif "parent_id" not in entry.model_fields_set:
            update["parent_id"] = leaf
        parent = update.get("parent_id", entry.parent_id)
        if parent is not None and not known(parent):
            raise SessionError(
                f"There is no entry {parent!r} to append to.", code=ErrorCode.SESSION_ENTRY
            )
        if not entry.timestamp:
            update["timestamp"] = timestamp_now()
        return entry.model_copy(update=update)

    # --- Between memory and disk -------------------------------------------------------

    def _retry(self) -> None:
        if (
            (self._index.waits or self.blobs.pending)
            and self.read_only is None
            and os.getpid() == self._pid
        ):
            self._flush()

    def _flush(self, prepared: Sequence[Prepared] = ()) -> None:
        """Write all that waits and then `prepared`; keep in memory what cannot be written."""
        last = prepared[-1][0] if prepared else None
        error: OSError | None = None
        try:
            with self._log.exclusive():
                self._index.read_new()
                if not self._index.another:
                    error = self._write(prepared)
                    prepared = ()
            if self._index.another:
                self._index.leave()
                with self._log.exclusive():
                    error = self._write(prepared)
                    prepared = ()
        except OSError as caught:
            error = caught
        # Still here only if the file could not be reached at all.
        self._index.add(prepared)
        if last is not None:
            self._leaf = last.target_id if isinstance(last, LeafEntry) else last.id
        self._keep_leaf()
        if self.blobs.pending:
            self.blobs.retry()
        self._say(error)
        if self._durability == "always" and not self._index.waits:
            self._sync()

    def _keep_leaf(self) -> None:
        """Go on where the file does, if another program has removed the leaf."""
        if self._leaf is not None and self._leaf not in self.tree:
            self._leaf = self.tree.leaf

    def _write(self, prepared: Sequence[Prepared]) -> OSError | None:
        self._wrote = True
        if self._index.overwritten:
            above = [entry.parent_id for entry, _ in prepared]
            self._index.recover(one for one in (self._leaf, *above) if one is not None)
        self._index.add(prepared)
        return self._index.write_waiting()

    def _sync(self) -> None:
        try:
            self._log.sync()
        except OSError as error:
            self._say(error)

    def _say(self, error: OSError | None) -> None:
        if self.in_memory:
            self.problem = None
            return
        if error is None:
            files = "file" if self.blobs.pending == 1 else "files"
            waits = f"not saved: {self.blobs.problem} ({self.blobs.pending} {files} pending)"
            self.problem = waits if self.blobs.pending else None
        else:
            entries = "entry" if self.pending == 1 else "entries"
            self.problem = f"not saved: {reason_of(error)} ({self.pending} {entries} pending)"
