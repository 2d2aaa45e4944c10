"""Where each entry is: on disk at an offset, or in memory until the disk takes it."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from yiem_nb.errors import SessionError
from yiem_nb.session.entries import (
    FORMAT_VERSION,
    CompactionEntry,
    CustomEntry,
    MessageEntry,
    OtherMessage,
    SessionHeader,
    SessionTreeEntry,
    UnknownEntry,
    timestamp_now,
)
from yiem_nb.session.lines import dump_line, parse_line
from yiem_nb.session.log import LineLog
from yiem_nb.session.recovery import Line, Row, Scan, read_lines
from yiem_nb.session.stats import COUNTED_TYPES, SessionStats
from yiem_nb.session.tree import Link, SessionTree, link_of

__all__ = ["Prepared", "SessionIndex"]

#: The `CustomEntry.custom_type` of the mark for an entry that another program has removed.
LOST = "yiem.lost"
#: How many bytes of lines that were read or written last stay in memory.
_REMEMBERED = 8 * 1024 * 1024

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
        self._memory = _Memory()
        #: What was known before another program wrote over the file, and what was not saved then.
        self._before: SessionTree | None = None
        self._unsaved: list[bytes] = []

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
        line = self.log.read(self._lengths[position], self._offsets[position])
        self._memory.keep(self.tree.id_at(position), line)
        return line

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

        A file that another program has written over is read from its beginning; `recover` brings
        back what it no longer holds.
        """
        if self.log.overwritten():
            self._before = self._before or self.tree
            self._forget()
            if self.log.grown() == 0:
                self.add_header()
        if self.log.grown():
            self.tree.extend(self._indexed(self.scan.read(self._new_lines())))
            self.log.remember_end()

    def _new_lines(self) -> Iterator[Line]:
        opening = self.log.size == 0
        for line in read_lines(self.log.read, self.log.size, self.scan.number):
            self.log.ended = line.ended
            if not line.ended and not opening:
                # Somebody may be writing it this very moment; it is read when there is more.
                return
            self.log.size = line.offset + line.length + line.ended
            yield line

    def _forget(self) -> None:
        """Start over."""
        self._unsaved += [one.line for one in self._waiting if one.position is not None]
        self._waiting.clear()
        self._start()
        self.log.forget()

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

    # --- What another program wrote over ------------------------------------------------

    @property
    def overwritten(self) -> bool:
        """Whether another program wrote over the file and nothing was brought back yet."""
        return self._before is not None

    @property
    def another(self) -> bool:
        """Whether what lies there now is another session, or none."""
        found = self.scan.header
        ours = found is not None and found.id == self.header.id
        return self.overwritten and self.log.size > 0 and not ours

    def take_as_is(self) -> None:
        """Look at what there is now; for those who only look."""
        self._before = None
        self.log.notices.append("the session file was overwritten by another program; read again")

    def leave(self) -> None:
        """Go on in a file beside the one that holds something else now."""
        name = self.log.path.name
        self._forget()
        self.log.leave()
        self.add_header()
        said = f"{name} was overwritten with something else; going on in {self.log.path.name}"
        self.log.notices.append(said)

    def recover(self, wanted: Iterable[str]) -> None:
        """Let what the file has lost and memory still has be written again.

        Where an entry that is gone has children, or is among the `wanted`, a mark with its id stands
        for it, so that the tree keeps its shape.
        """
        before, self._before = self._before, None
        unsaved = [(parse_line(line), line) for line in self._unsaved]
        self._unsaved = []
        assert before is not None
        waiting = {entry.id for entry, _ in unsaved}
        lost = [one for one in before if one not in self.tree and one not in waiting]
        lines = {one: line for one in lost if (line := self._memory.get(one)) is not None}
        needed: set[str] = set()
        for entry_id in [*lines, *waiting, *wanted]:
            above: str | None = entry_id
            while above is not None and above not in needed and above in before:
                needed.add(above)
                above = before.parent(above)
        for entry_id in lost:
            if line := lines.get(entry_id):
                self.add([(parse_line(line), line)])
            elif entry_id in needed:
                mark = CustomEntry(
                    id=entry_id,
                    parent_id=before.parent(entry_id),
                    timestamp=timestamp_now(),
                    custom_type=LOST,
                    data={"type": before.type(entry_id)},
                )
                self.add([(mark, dump_line(mark))])
        self.add(unsaved)
        if lost:
            self.log.notices.append(_said_of_loss(len(lines), len(lost) - len(lines)))

    # --- Writing -----------------------------------------------------------------------

    @property
    def waits(self) -> bool:
        """Whether anything, the header included, is not on disk."""
        return bool(self._waiting or self._unsaved)

    @property
    def pending(self) -> int:
        """How many entries are not on disk."""
        return len(self._held) + len(self._unsaved)

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
                self._memory.keep(self.tree.id_at(waiting.position), waiting.line)
        del self._waiting[: len(offsets)]
        self.scan.number += len(offsets)
        if self.log.gap:
            self._read_gap(self.log.gap)
        self.log.remember_end()
        return error

    def _read_gap(self, gap: range) -> None:
        """Take in what others wrote between our look at the file and our append."""
        lines = read_lines(
            lambda length, at: self.log.read(min(length, gap.stop - at), at),
            gap.start,
            self.scan.number,
        )
        self.tree.extend(self._indexed(self.scan.read(lines)))


class _Memory:
    """The lines that were read or written last, within a bound."""

    def __init__(self) -> None:
        self._lines: dict[str, bytes] = {}
        self._size = 0

    def get(self, entry_id: str) -> bytes | None:
        """Return a line with its end, if it is still known."""
        line = self._lines.get(entry_id)
        return None if line is None else line.removesuffix(b"\n") + b"\n"

    def keep(self, entry_id: str, line: bytes) -> None:
        """Keep a line instead of the oldest ones; the newest stays, whatever its length."""
        lines = self._lines
        self._size += len(line) - len(lines.pop(entry_id, b""))
        lines[entry_id] = line
        while self._size > _REMEMBERED and len(lines) > 1:
            self._size -= len(lines.pop(next(iter(lines))))


def _said_of_loss(again: int, gone: int) -> str:
    entries = "entry" if again == 1 else "entries"
    said = f"the session file was overwritten by another program; {again:,} {entries} written again"
    return f"{said}, {gone:,} no longer in memory" if gone else said


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
