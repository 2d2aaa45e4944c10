"""Where words are found: in an entry, in a file beside it, in the notebooks and sessions around."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

from yiem_nb.errors import CommandError
from yiem_nb.session.files import OsFiles
from yiem_nb.session.lines import load_json

__all__ = ["Matcher", "in_line", "in_notebooks", "in_sessions", "matcher", "strings_in"]

#: Tells whether a text holds what is looked for.
Matcher: TypeAlias = Callable[[str], bool]

#: Fields by which the tree holds together; they name entries and say nothing.
_STRUCTURE = frozenset(
    {"type", "id", "parentId", "timestamp", "targetId", "fromId", "firstKeptEntryId", "copyOf"}
)
#: A notebook that is larger is named, not searched.
_MAX_NOTEBOOK = 200_000_000


def matcher(text: str, *, regex: bool = False) -> Matcher:
    """Look for a text, or for what a regular expression describes.

    Raises
    ------
    CommandError
        It would be found everywhere, or it is no regular expression.
    """
    if not text.strip():
        raise CommandError("There is nothing to look for.", hint="--matching TEXT")
    if not regex:
        return lambda words: text in words
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise CommandError(
            f"{text!r} is no regular expression: {error}.", hint="Without --regex it is plain text."
        ) from None
    if pattern.search(""):
        raise CommandError(f"{text!r} is found everywhere.", hint="Say more of what it is.")
    return lambda words: pattern.search(words) is not None


def strings_in(value: Any) -> Iterator[str]:
    """List the texts of a JSON value; lines that are listed one by one are one text."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            yield from one
            waiting += one.values()
        elif isinstance(one, list):
            if one and all(isinstance(item, str) for item in one):
                yield "".join(one)
            waiting += one


def in_line(line: bytes, matches: Matcher) -> bool:
    """Tell whether an entry's line says it; ids and times are not looked at."""
    try:
        value = load_json(line)
    except ValueError:
        value = line.decode("utf-8", "replace")
    if isinstance(value, dict):
        value = {name: one for name, one in value.items() if name not in _STRUCTURE}
    return any(matches(text) for text in strings_in(value))


def in_blob(path: Path, matches: Matcher) -> bool:
    """Tell whether a file beside a session says it; images say nothing."""
    if path.suffix in {".png", ".jpg", ".gif", ".webp"}:
        return False
    data = _read(path)
    return data is not None and matches(data.decode("utf-8", "replace"))


def in_sessions(session: Path, matches: Matcher) -> list[Path]:
    """List the other session files in the folder that say it."""
    found = []
    for path in sorted(session.parent.glob("*.jsonl")):
        data = None if path == session or path.is_symlink() else _read(path)
        if data and any(in_line(line, matches) for line in data.split(b"\n") if line.strip()):
            found.append(path)
    return found


def in_notebooks(folder: Path, matches: Matcher) -> Iterator[str]:
    """Say which notebooks of a folder hold it, and in which of their cells."""
    paths = [*folder.glob("*.ipynb"), *folder.glob(".ipynb_checkpoints/*.ipynb")]
    for path in sorted(paths):
        data = None if path.is_symlink() else _read(path, _MAX_NOTEBOOK)
        places = list(_cells(data, matches)) if data else []
        if places:
            name = path.relative_to(folder)
            yield f"{name}: {', '.join(places[:9])}" + (" …" if len(places) > 9 else "")


def _cells(data: bytes, matches: Matcher) -> Iterator[str]:
    try:
        notebook = json.loads(data)
        cells = notebook["cells"]
    except (ValueError, RecursionError, KeyError, TypeError):
        if matches(data.decode("utf-8", "replace")):
            yield "somewhere in it"
        return
    for number, cell in enumerate(cells if isinstance(cells, list) else (), 1):
        if not isinstance(cell, dict):
            continue
        for field, word in (("source", "source"), ("outputs", "output")):
            if any(matches(text) for text in strings_in(cell.get(field))):
                yield f"cell {number} ({word})"
    if any(matches(text) for text in strings_in(notebook.get("metadata"))):
        yield "its metadata"


def _read(path: Path, limit: int = 1 << 40) -> bytes | None:
    """Read a plain file."""
    files = OsFiles()
    try:
        fd = files.open(str(path), write=False, create=False)
    except OSError:
        return None
    try:
        size = os.fstat(fd).st_size
        return files.read(fd, size, 0) if size <= limit else None
    except OSError:
        return None
    finally:
        files.close(fd)
