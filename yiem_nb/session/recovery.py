"""From the bytes of a file to rows of an index; every byte string has them.

Lines end at ``\\n`` and nowhere else. A line that is no record is left where it is and told of; a
line that holds several records, as two fused writes leave behind, gives each of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NotRequired

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict  # pydantic asks for this one before Python 3.12

from yiem_nb.session.entries import FORMAT_VERSION, SessionHeader
from yiem_nb.session.lines import load_json
from yiem_nb.session.tree import Link, SessionTree

__all__ = ["LARGE", "Line", "Row", "Scan", "findings", "notices_of", "read_lines"]

#: Longer lines are indexed by their beginning and not parsed.
LARGE = 64 * 1024 * 1024
_CHUNK = 1024 * 1024
_HEAD_LENGTH = 4096
_BOM = b"\xef\xbb\xbf"


class Line(NamedTuple):
    """A line of the file, without its end; `data` is not all of a large one."""

    number: int
    offset: int
    length: int
    data: bytes
    ended: bool


def read_lines(read: Callable[[int, int], bytes], offset: int, number: int) -> Iterator[Line]:
    """Split what ``read(length, offset)`` gives, from `offset` to the end of the file."""
    start, at = offset, offset
    parts: list[bytes] = []
    length = 0
    while chunk := read(_CHUNK, at):
        at += len(chunk)
        *complete, rest = chunk.split(b"\n")
        for piece in complete:
            length += len(piece)
            data = b"".join((*parts, piece)) if parts else piece
            yield Line(number, start, length, data, ended=True)
            start += length + 1
            number += 1
            parts, length = [], 0
        # Of a line beyond all measure only the beginning stays in memory.
        if length <= LARGE:
            parts.append(rest)
        length += len(rest)
    if length:
        yield Line(number, start, length, b"".join(parts), ended=False)


class Row(NamedTuple):
    """An entry and where its bytes are."""

    link: Link
    offset: int
    length: int


class _Head(TypedDict):
    """The fields every entry begins with; parsing for these alone checks the whole line too."""

    type: str
    id: str
    parentId: str | None
    targetId: NotRequired[Any]


_head = TypeAdapter(_Head)
_RECORD_START = re.compile(rb'\{\s*"type"\s*:')
_PREFIX = re.compile(
    rb'\{"type":"(?P<type>\w+)","id":"(?P<id>[^"\\]+)","parentId":(?:null|"(?P<parent>[^"\\]+)")'
)


@dataclass(slots=True)
class Scan:
    """Reads lines into rows and remembers what was wrong with them."""

    header: SessionHeader | None = None
    #: The number of the next line.
    number: int = 1
    rows: int = 0
    damaged: list[int] = field(default_factory=list)
    fused: list[tuple[int, int]] = field(default_factory=list)
    large: list[int] = field(default_factory=list)
    torn: tuple[int, int] | None = None
    _last_id: str | None = None

    def read(self, lines: Iterator[Line]) -> Iterator[Row]:
        """Give the rows of `lines`, which follow those read before."""
        for line in lines:
            self.number = line.number + 1
            for row in self._rows(line):
                self.rows += 1
                self._last_id = row.link.id
                yield row

    def _rows(self, line: Line) -> Iterator[Row]:
        if line.length > LARGE:
            yield from self._large(line)
            return
        try:
            head = _head.validate_json(line.data)
        except ValidationError:
            yield from self._unusual(line)
            return
        if head["type"] == "session":
            self._take_header(line)
            return
        target = head.get("targetId")
        link = Link(
            head["type"],
            head["id"],
            head["parentId"],
            target if isinstance(target, str) else None,
        )
        yield Row(link, line.offset, line.length)

    def _unusual(self, line: Line) -> Iterator[Row]:
        """Make what can be made of a line that does not begin as ours do."""
        data = line.data.removeprefix(_BOM) if line.number == 1 else line.data
        if not data.strip():
            return
        try:
            value = load_json(data)
        except ValueError:
            yield from self._broken(line)
            return
        if not isinstance(value, dict) or not isinstance(value.get("type"), str):
            self.damaged.append(line.number)
        elif value["type"] == "session":
            self._take_header(line)
        else:
            shift = len(line.data) - len(data)
            yield Row(self._link(value, line.number), line.offset + shift, line.length - shift)

    def _link(self, value: dict[str, Any], number: int) -> Link:
        """Link an entry that lacks an id or a parent, as those of pi's first version do."""
        entry_id, parent = value.get("id"), value.get("parentId", 0)
        if not isinstance(entry_id, str) or not entry_id:
            entry_id = f"{number:08x}"
        if parent is not None and not isinstance(parent, str):
            parent = self._last_id
        target = value.get("targetId")
        return Link(value["type"], entry_id, parent, target if isinstance(target, str) else None)

    def _take_header(self, line: Line) -> None:
        """Read the header; a second one, which a merge by union leaves behind, says nothing."""
        if line.number > 1 or self.header is not None:
            return
        value = load_json(line.data.removeprefix(_BOM))
        given = {"version": 1, "id": "", "timestamp": ""} | value
        try:
            self.header = SessionHeader.model_validate(given)
        except ValidationError:
            version = given["version"] if isinstance(given["version"], int) else FORMAT_VERSION
            core = {name: given[name] for name in ("id", "timestamp") if _is_text(given[name])}
            self.header = SessionHeader.model_validate(
                {"id": "", "timestamp": "", "version": version} | core
            )

    def _large(self, line: Line) -> Iterator[Row]:
        match = _PREFIX.match(line.data[:_HEAD_LENGTH])
        if match is None or not line.ended:
            self._bad(line)
            return
        self.large.append(line.number)
        kind, entry_id, parent = (
            text.decode("utf-8", "replace") if text is not None else None
            for text in match.group("type", "id", "parent")
        )
        yield Row(Link(kind or "", entry_id or "", parent), line.offset, line.length)

    def _broken(self, line: Line) -> Iterator[Row]:
        """Look for whole records within a line that is none."""
        found = 0
        for start, end, value in _records(line.data):
            found += 1
            yield Row(self._link(value, line.number), line.offset + start, end - start)
        if found > 1:
            self.fused.append((line.number, found))
        if found < 2:
            self._bad(line)

    def _bad(self, line: Line) -> None:
        if line.ended:
            self.damaged.append(line.number)
        else:
            self.torn = (line.length, line.offset)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _records(data: bytes) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Find the entries written one after the other, or after the torn beginning of another."""
    # In Latin-1 each byte is one character, so positions are offsets; JSON's own signs are ASCII.
    text = data.decode("latin-1")
    decoder = json.JSONDecoder()
    at = 0
    budget = 4 * len(data) + _CHUNK
    while budget > 0 and (match := _RECORD_START.search(data, at)):
        start = at = match.start()
        at += 1
        try:
            value, end = decoder.raw_decode(text, start)
        except json.JSONDecodeError as error:
            budget -= error.pos - start
            continue
        except (RecursionError, ValueError):
            budget -= len(data)
            continue
        budget -= end - start
        if not _is_entry(value):
            continue
        try:
            yield start, end, load_json(data[start:end])
        except ValueError:
            continue
        at = end


def _is_entry(value: Any) -> bool:
    """Tell an entry from a block within one, which has a type too."""
    return isinstance(value, dict) and "parentId" in value and isinstance(value.get("id"), str)


# --- What is said of it --------------------------------------------------------------------

_MOST = 5


def notices_of(scan: Scan, tree: SessionTree) -> list[str]:
    """Say what was wrong with a file, a sentence each, at most five and how many more."""
    said = list(findings(scan, tree))
    if len(said) > _MOST:
        said[_MOST:] = [f"… {len(said) - _MOST} more, see yiem sessions check"]
    return said


def findings(scan: Scan, tree: SessionTree) -> Iterator[str]:
    """Say all that was wrong with a file."""
    records = _count(scan.rows, "record")
    if scan.header is None and (scan.rows or scan.damaged or scan.torn):
        yield f"header unreadable; {records} loaded"
    if scan.torn is not None:
        length, offset = scan.torn
        yield (
            f"recovered: last record was cut ({length:,} bytes at byte {offset:,});"
            f" {scan.rows} of {scan.rows} complete records loaded"
        )
    if scan.damaged:
        where = f"line {scan.damaged[0]}" if len(scan.damaged) == 1 else _lines(scan.damaged)
        yield f"{_count(len(scan.damaged), 'damaged record')} at {where} (kept in file)"
    for line, found in scan.fused:
        yield f"line {line} held {found} records; {'both' if found == 2 else 'all'} loaded"
    for line in scan.large:
        yield f"line {line} is a large record; it is read when it is looked at"
    repairs = tree.repairs
    if repairs.orphans:
        yield f"{_count(repairs.orphans, 'record')} had a missing parent; joined to the record before"
    if repairs.cycles:
        yield f"{_count(repairs.cycles, 'ring')} of parents opened at the earliest record"
    if repairs.duplicates:
        yield f"{_count(repairs.duplicates, 'record')} had the id of another; renamed in memory"


def _lines(numbers: list[int]) -> str:
    shown = ", ".join(str(number) for number in numbers[:_MOST])
    return f"lines {shown}" + (" …" if len(numbers) > _MOST else "")


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"
