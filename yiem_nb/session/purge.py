"""Taking something out of a session for good: a patient's name, a pasted key (issue 4, item 5).

The one thing that rewrites a session file, and only when a person says so. An entry that is taken out
leaves a tombstone with its id and parent, so that the tree holds; every other byte stays. The new file
is written beside the old one, checked and synced, and takes its name at once: at no moment is there
half of either.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yiem_nb.errors import ErrorCode, SessionError
from yiem_nb.session.entries import FORMAT_VERSION, timestamp_now
from yiem_nb.session.files import (
    TEMPORARY,
    Files,
    OsFiles,
    locked,
    reason_of,
    temporary_of,
    write_new,
)
from yiem_nb.session.lines import load_json
from yiem_nb.session.lock import SessionLock
from yiem_nb.session.reading import Reading, reading
from yiem_nb.session.recovery import Line, Row, Scan, read_lines
from yiem_nb.session.traces import Matcher, in_blob, in_line, strings_in
from yiem_nb.session.tree import Link

__all__ = ["TOMBSTONE", "Purge", "Purged", "carry_out", "plan_purge"]

#: The `custom_type` of what is left of an entry.
TOMBSTONE = "yiem.purged"
_HASH = re.compile(rb"[0-9a-f]{64}")
#: A shorter text is found everywhere.
_LEAST = 12
_NAMES = {
    *(
        "type",
        "id",
        "parentId",
        "timestamp",
        "role",
        "api",
        "provider",
        "model",
        "name",
        "customType",
    ),
    *("toolName", "toolCallId", "mimeType", "stopReason", "rawStopReason", "thinkingSignature"),
    *(
        "thoughtSignature",
        "signature",
        "itemId",
        "cellId",
        "requestHash",
        "copyOf",
        "targetId",
        "blob",
    ),
}
#: Of the header, these stay whatever they hold.
_HEADER_CORE = {"type", "version", "id", "timestamp"}


@dataclass(frozen=True, slots=True)
class Purged:
    """An entry that is taken out."""

    id: str
    type: str
    timestamp: str
    size: int


@dataclass(frozen=True, slots=True)
class _Edit:
    """Bytes of the file and what comes in their place."""

    offset: int
    length: int
    replacement: bytes


@dataclass(frozen=True, slots=True)
class Purge:
    """What a purge takes out of a file.

    Parameters
    ----------
    path
        The session.
    entries
        What is emptied.
    elsewhere
        How many further places of the file are: damaged lines, fields of the header.
    files
        What lies beside the session and nothing names any more, or was never finished.
    words
        Finds what was taken out where else it is.
    """

    path: Path
    entries: tuple[Purged, ...]
    elsewhere: int
    files: tuple[Path, ...]
    words: Matcher
    digest: str
    edits: tuple[_Edit, ...]
    matches: Matcher | None = None

    def __bool__(self) -> bool:
        return bool(self.edits or self.files)


# --- Planning ------------------------------------------------------------------------------


def plan_purge(
    path: str | os.PathLike[str], *, entries: Sequence[str] = (), matches: Matcher | None = None
) -> Purge:
    """Find what is to be taken out; nothing changes yet.

    Parameters
    ----------
    path
        The session.
    entries
        Ids; copies of an entry that were carried to other branches go with it.
    matches
        Takes out every entry that says this, itself or in a file that it names.

    Raises
    ------
    SessionNotFoundError, SessionError
        There is no such session or entry, or its format is newer than this program.
    """
    with reading(path) as session:
        header = session.header
        if header is not None and header.version > FORMAT_VERSION:
            raise SessionError(
                f"{session.path.name} was written by a newer program (format {header.version}).",
                hint="Purge it with that one.",
                code=ErrorCode.SESSION_VERSION,
            )
        data = session.index.log.read(session.size, 0)
        rows = list(_rows(data))
        chosen = _chosen(session, rows, entries) if entries else set()
        files = list(session.blobs.files())
        if matches is not None:
            telling = {file.stem for file in files if in_blob(file, matches)}
            chosen |= {
                row.offset
                for row in rows
                if in_line(line := _bytes(data, row), matches) or telling & set(_hashes(line))
            }
        gone = [row for row in rows if row.offset in chosen]
        # A repeated line is one entry, so it leaves one tombstone.
        numbers = {
            line: number
            for number, line in enumerate(dict.fromkeys(_bytes(data, row) for row in gone), 1)
        }
        now = timestamp_now()
        edits = [_tombstone(data, row, now, numbers[_bytes(data, row)]) for row in gone]
        others = list(_other_edits(data, rows, matches)) if matches is not None else []
        edits = sorted([*edits, *others], key=lambda edit: edit.offset)
        new = _edited(data, edits)
        words = matches or _words_of([_bytes(data, row) for row in gone])
        return Purge(
            session.path,
            tuple(_purged(data, row) for row in gone),
            len(others),
            (*_unnamed(session, files, new), *_left_over(session)),
            words,
            hashlib.sha256(data).hexdigest(),
            tuple(edits),
            matches,
        )


def _rows(data: bytes) -> Iterator[Row]:
    return Scan().read(_lines(data))


def _lines(data: bytes) -> Iterator[Line]:
    return read_lines(lambda length, at: data[at : at + length], 0, 1)


def _bytes(data: bytes, row: Row) -> bytes:
    return data[row.offset : row.offset + row.length]


def _chosen(session: Reading, rows: Sequence[Row], entries: Iterable[str]) -> set[int]:
    """Find the rows of entries, of their repeats and of their copies."""
    index = session.index
    wanted: set[str] = set()
    lines: set[bytes] = set()
    for entry_id in entries:
        if entry_id not in session.tree:
            raise SessionError(
                f"There is no entry {entry_id!r} in {session.path.name}.",
                hint=f"yiem sessions show {session.path.name}",
                code=ErrorCode.SESSION_ENTRY,
            )
        lines.add(index.line(session.tree.position(entry_id)).strip())
        wanted.add(entry_id)
    copies = {
        entry_id: original
        for entry_id in session.tree.of_type("message")
        if isinstance(original := getattr(session.tree.entry(entry_id), "copy_of", None), str)
    }
    wanted |= {copies[entry_id] for entry_id in wanted if entry_id in copies}
    grown = True
    while grown:
        more = {one for one, original in copies.items() if original in wanted} - wanted
        wanted |= more
        grown = bool(more)
    for entry_id in wanted & set(session.tree):
        lines.add(index.line(session.tree.position(entry_id)).strip())
    log = index.log
    return {row.offset for row in rows if log.read(row.length, row.offset).strip() in lines}


def _tombstone(data: bytes, row: Row, now: str, number: int) -> _Edit:
    """Leave of an entry what the tree needs; the number keeps two of them apart."""
    link: Link = row.link
    left = {
        "type": "custom",
        "id": link.id,
        "parentId": link.parent_id,
        "timestamp": _timestamp(_bytes(data, row)),
        "customType": TOMBSTONE,
        "data": {"was": link.type, "purged": now, "number": number},
    }
    line = json.dumps(left, ensure_ascii=False, separators=(",", ":"))
    return _Edit(row.offset, row.length, line.encode("utf-8", "replace"))


def _timestamp(line: bytes) -> str:
    with contextlib.suppress(ValueError):
        value = load_json(line)
        timestamp = value.get("timestamp") if isinstance(value, dict) else None
        return timestamp[:40] if isinstance(timestamp, str) else ""
    return ""


def _purged(data: bytes, row: Row) -> Purged:
    return Purged(row.link.id, row.link.type, _timestamp(_bytes(data, row)), row.length)


def _other_edits(data: bytes, rows: Sequence[Row], matches: Matcher) -> Iterator[_Edit]:
    """Blank what is no entry and says it: damaged lines, torn ends, fields of the header."""
    by_line: dict[int, list[Row]] = {}
    for row in rows:
        by_line.setdefault(data.rfind(b"\n", 0, row.offset) + 1, []).append(row)
    for line in _lines(data):
        at = line.offset
        for row in by_line.get(line.offset, []):
            yield from _blanked(data, at, row.offset, matches)
            at = row.offset + row.length
        end = line.offset + line.length
        header = _scrubbed_header(data[at:end], matches) if line.number == 1 else None
        if header is not None:
            yield _Edit(at, end - at, header)
        else:
            yield from _blanked(data, at, end, matches)


def _blanked(data: bytes, start: int, end: int, matches: Matcher) -> Iterator[_Edit]:
    piece = data[start:end]
    if piece.strip() and (in_line(piece, matches) or matches(piece.decode("utf-8", "replace"))):
        yield _Edit(start, end - start, b"")


def _scrubbed_header(line: bytes, matches: Matcher) -> bytes | None:
    """Empty the texts of a header that say it; ``None`` where none does."""
    try:
        header = load_json(line.removeprefix(b"\xef\xbb\xbf"))
    except ValueError:
        return None
    if not isinstance(header, dict) or header.get("type") != "session":
        return None
    left = {
        name: value
        for name, value in header.items()
        if name in _HEADER_CORE or not any(matches(text) for text in [name, *strings_in(value)])
    }
    if len(left) == len(header):
        return None
    left.setdefault("cwd", "")
    return json.dumps(left, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _words_of(lines: Iterable[bytes]) -> Matcher:
    """Find again what entries said: the longest line of each of their texts."""
    told: set[str] = set()
    for line in lines:
        with contextlib.suppress(ValueError):
            for text in _said(load_json(line)):
                longest = max((one.strip() for one in text.split("\n")), key=len)
                if len(longest) >= _LEAST:
                    told.add(longest)
    return lambda words: any(text in words for text in told)


def _said(value: Any) -> Iterator[str]:
    """List the texts of an entry that somebody said; names and kinds are nobody's words."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            waiting += [item for name, item in one.items() if name not in _NAMES]
        elif isinstance(one, list):
            waiting += one


def _hashes(line: bytes) -> list[str]:
    return [digest.decode() for digest in _HASH.findall(line)]


def _unnamed(session: Reading, files: Iterable[Path], new: bytes) -> Iterator[Path]:
    """List the files beside the session that no session of the folder will name."""
    before = set(_hashes(session.index.log.read(session.size, 0)))
    named = set(_hashes(new))
    for other in session.path.parent.glob("*.jsonl"):
        if other != session.path and other.is_file():
            named |= set(_hashes(other.read_bytes()))
    for file in files:
        # What lies in another session's folder and was never named here is that one's business.
        ours = file.parent == session.blobs.folder or file.stem in before
        if ours and file.stem not in named:
            yield file


def _left_over(session: Reading) -> Iterator[Path]:
    """List what a process that was killed had begun to write."""
    yield from session.path.parent.glob(f"{temporary_of(session.path)}*{TEMPORARY}")
    yield from session.blobs.folder.glob(f".*{TEMPORARY}")


def _edited(data: bytes, edits: Iterable[_Edit]) -> bytes:
    parts: list[bytes] = []
    at = 0
    for edit in edits:
        parts += (data[at : edit.offset], edit.replacement)
        at = edit.offset + edit.length
    return b"".join((*parts, data[at:]))


# --- Carrying out --------------------------------------------------------------------------


def carry_out(plan: Purge, *, locks: Path, files: Files | None = None) -> list[Path]:
    """Take out what was planned, all of it or nothing.

    Parameters
    ----------
    plan
        What `plan_purge` found.
    locks
        The folder of claims (`lock.lock_folder`).
    files
        The operating system.

    Returns
    -------
    list of Path
        Files beside the session that could not be removed.

    Raises
    ------
    SessionError
        Another process holds the session, it has changed since, or the disk refuses; nothing is
        changed then.
    """
    files = files if files is not None else OsFiles()
    lock = SessionLock(plan.path, locks, "yiem sessions purge")
    if not lock.acquire():
        raise _busy(plan.path, str(lock.owner() or "another process"))
    try:
        if holders := _holders(plan.path):
            raise _busy(plan.path, ", ".join(f"process {pid}" for pid in holders))
        if plan.edits:
            _replace(plan, files)
    except OSError as error:
        raise SessionError(
            f"{plan.path.name} cannot be purged: {reason_of(error)}; nothing is changed."
        ) from None
    finally:
        lock.release()
    left = []
    for path in plan.files:
        try:
            files.remove(str(path))
        except FileNotFoundError:
            continue
        except OSError:
            left.append(path)
    return left


def _busy(path: Path, who: str) -> SessionError:
    return SessionError(
        f"{path.name} is in use by {who}; nothing is changed.",
        hint="Stop that kernel, then purge again.",
        code=ErrorCode.SESSION_BUSY,
    )


def _holders(path: Path) -> list[int]:
    """List other processes that have the file open, where the system tells (Linux).

    One that goes on writing to the old file would bring back what was taken out.
    """
    here = path.stat()
    found: set[int] = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            there = link.stat()
            if (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino):
                found.add(int(link.parts[2]))
    return sorted(found - {os.getpid()})


def _replace(plan: Purge, files: Files) -> None:
    fd = files.open(str(plan.path), write=True, create=False)
    try:
        with locked(files, fd):
            size = os.fstat(fd).st_size
            data = b""
            while len(data) < size and (more := files.read(fd, size - len(data), len(data))):
                data += more
            if hashlib.sha256(data).hexdigest() != plan.digest:
                raise SessionError(
                    f"{plan.path.name} was written to meanwhile; nothing is changed.",
                    hint="Purge again.",
                    code=ErrorCode.SESSION_BUSY,
                )
            new = _edited(data, plan.edits)
            _prove(data, new, plan)
            inode = os.fstat(fd).st_ino
            try:
                write_new(files, plan.path, new)
            except OSError:
                # With the new file in place, only the folder was not synced: that is no failure.
                if plan.path.stat().st_ino == inode:
                    raise
    finally:
        files.close(fd)


def _prove(old: bytes, new: bytes, plan: Purge) -> None:
    """Read the new file before it takes the old one's place."""
    before = [(row.link.id, row.link.parent_id) for row in _rows(old)]
    rows = list(_rows(new))
    found = plan.matches is not None and any(
        in_line(_bytes(new, row), plan.matches) for row in rows
    )
    if [(row.link.id, row.link.parent_id) for row in rows] != before or found:
        raise SessionError(
            f"{plan.path.name} cannot be purged without damage to its tree; nothing is changed.",
            hint="yiem sessions check says what is wrong with it.",
            code=ErrorCode.SESSION_ENTRY,
        )
