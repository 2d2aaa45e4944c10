"""Where each entry is: on disk at an offset, or in memory until the disk takes it."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from yiem_nb.errors import SessionError
from yiem_nb.session.entries import (
    FORMAT_VERSION,
    CompactionEntry,
    MessageEntry,
    OtherMessage,
    SessionHeader,
    SessionTreeEntry,
    UnknownEntry,
)
from yiem_nb.session.lines import dump_line, parse_line
from yiem_nb.session.log import LineLog
from yiem_nb.session.recovery import Line, Row, Scan, read_lines
from yiem_nb.session.stats import COUNTED_TYPES, SessionStats
from yiem_nb.session.tree import Link, SessionTree, link_of

__all__ = ["Prepared", "SessionIndex"]

#: An entry and the line that was made of it.
Prepared: TypeAlias = tuple[SessionTreeEntry, bytes]


@dataclass(slots=True)
class _Waiting:
    """A line that is not on disk yet; the header has no position."""

    position: int | None
    line: bytes


class SessionIndex:
    """The tree of a file, and the bytes of each entry on demand.

    Attributes
    ----------
    tree
        All entries, written or waiting.
    scan
        What reading the file has shown.
    header
        Written again where another program has emptied the file.
    """

    def __init__(
        self,
        log: LineLog,
        header: SessionHeader,
        whole: Callable[[SessionTreeEntry], SessionTreeEntry] | None = None,
    ) -> None:
        self.log = log
        self.header = header
        self._whole = whole
        self._start()
        self._waiting: list[_Waiting] = []

    def _start(self) -> None:
        self.scan = Scan()
        self.tree = SessionTree(self.load, self._whole)
        self._offsets = array("q")
        self._lengths = array("q")
        self._held: dict[int, bytes] = {}
        self._stats = SessionStats()
        self._counted = 0

    # --- Reading -----------------------------------------------------------------------

    def line(self, position: int) -> bytes:
        """Return an entry's bytes."""
        held = self._held.get(position)
        if held is not None:
            return held
        return self.log.read(self._lengths[position], self._offsets[position])

    def load(self, position: int) -> SessionTreeEntry:
        """Read an entry; what cannot be read is unknown, not an error."""
        entry_id = self.tree.id_at(position)
        line = b""
        try:
            line = self.line(position)
            entry = parse_line(line)
        except (SessionError, OSError):
            return UnknownEntry.read({"type": self.tree.type(entry_id), "id": entry_id}, line)
        entry = self._today(entry)
        return entry if entry.id == entry_id else entry.model_copy(update={"id": entry_id})

    def _today(self, entry: SessionTreeEntry) -> SessionTreeEntry:
        """Say in today's format what pi's earlier versions said; the file stays as it is."""
        if isinstance(entry, CompactionEntry):
            return _of_version_1(entry)
        header = self.scan.header
        if header is not None and header.version < FORMAT_VERSION:
            return _of_version_2(entry)
        return entry

    def stats(self) -> SessionStats:
        """Count what came since it was asked last."""
        while self._counted < len(self.tree):
            if self.tree.type(self.tree.id_at(self._counted)) in COUNTED_TYPES:
                self._stats = self._stats.plus(self.load(self._counted))
            self._counted += 1
        return self._stats

    def read_new(self) -> None:
        """Take in what the file holds beyond what is known: all of it, or what others wrote.

        A file that is shorter than it was is read from its beginning.
        """
        grown = self.log.grown()
        if not grown:
            return
        unsaved = self._forget() if grown < 0 else []
        self.tree.extend(self._indexed(self.scan.read(self._new_lines())))
        self.add([(parse_line(line), line) for line in unsaved])

    def _new_lines(self) -> Iterator[Line]:
        opening = self.log.size == 0
        for line in read_lines(self.log.read, self.log.size, self.scan.number):
            self.log.ended = line.ended
            if not line.ended and not opening:
                # Somebody may be writing it this very moment; it is read when there is more.
                return
            self.log.size = line.offset + line.length + line.ended
            yield line

    def _forget(self) -> list[bytes]:
        """Start over; return what is not saved."""
        self.log.notices.append("the session file was shortened by another program; read again")
        unsaved = [waiting.line for waiting in self._waiting if waiting.position is not None]
        self._waiting.clear()
        self._start()
        self.log.size, self.log.ended = 0, True
        if self.log.grown() == 0:
            self.add_header()
        return unsaved

    def _indexed(self, rows: Iterator[Row]) -> Iterator[Link]:
        for row in rows:
            if row.link.id not in self.tree or not self._repeated(row):
                self._offsets.append(row.offset)
                self._lengths.append(row.length)
                yield row.link

    def _repeated(self, row: Row) -> bool:
        """Tell whether an entry is there already, byte for byte, as a merge by union leaves it."""
        line = self.log.read(row.length, row.offset)
        return any(
            self._lengths[position] == row.length and self.line(position) == line
            for position in self.tree.bearers(row.link.id)
        )

    # --- Writing -----------------------------------------------------------------------

    @property
    def waits(self) -> bool:
        """Whether anything, the header included, is not on disk."""
        return bool(self._waiting)

    @property
    def pending(self) -> int:
        """How many entries are not on disk."""
        return len(self._held)

    def add_header(self) -> None:
        """Let the header be written before anything else."""
        self._waiting.insert(0, _Waiting(None, dump_line(self.header)))

    def add(self, prepared: Sequence[Prepared]) -> None:
        """Take entries into the tree; their lines wait to be written."""
        for entry, line in prepared:
            position = len(self.tree)
            self._held[position] = line
            self._waiting.append(_Waiting(position, line))
            self._offsets.append(0)
            self._lengths.append(len(line) - 1)
            self.tree.extend([link_of(entry)])

    def write_waiting(self) -> OSError | None:
        """Write all that waits, in order; return why not all of it got there."""
        offsets, error = self.log.append([waiting.line for waiting in self._waiting])
        for waiting, offset in zip(self._waiting, offsets, strict=False):
            if waiting.position is not None:
                self._offsets[waiting.position] = offset
                del self._held[waiting.position]
        del self._waiting[: len(offsets)]
        self.scan.number += len(offsets)
        if self.log.gap:
            self._read_gap(self.log.gap)
        return error

    def _read_gap(self, gap: range) -> None:
        """Take in what others wrote between our look at the file and our append."""
        lines = read_lines(
            lambda length, at: self.log.read(min(length, gap.stop - at), at),
            gap.start,
            self.scan.number,
        )
        self.tree.extend(self._indexed(self.scan.read(lines)))


def _of_version_1(entry: CompactionEntry) -> CompactionEntry:
    """Name the first kept entry of pi's first version, which counted lines, by its line."""
    index = (entry.model_extra or {}).get("firstKeptEntryIndex")
    if entry.first_kept_entry_id or not isinstance(index, int):
        return entry
    return entry.model_copy(update={"first_kept_entry_id": f"{index + 1:08x}"})


def _of_version_2(entry: SessionTreeEntry) -> SessionTreeEntry:
    """Rename the role that pi's third version calls ``custom``."""
    message = entry.message if isinstance(entry, MessageEntry) else None
    if not isinstance(message, OtherMessage) or message.role != "hookMessage":
        return entry
    return entry.model_copy(update={"message": message.model_copy(update={"role": "custom"})})
