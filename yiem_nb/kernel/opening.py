"""Which session a notebook goes on with: looked for by path, then by what it and its cells are.

A notebook has no id of its own, but its cells have, and a session records which cell asked. So a
session belongs to a notebook that holds cells of its prompts (reliability 3.3). The ledger knows
where the user's own sessions were and whose they were; nothing here writes or renames a file.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from yiem_nb.errors import YiemError
from yiem_nb.kernel.notebook import SUFFIX, session_path
from yiem_nb.kernel.page import cell_order
from yiem_nb.session import JsonlSessionStorage, Ledger, LedgerLine, Places, SessionTree

__all__ = ["Found", "cells_of", "find_session"]

#: Of sessions whose notebook is gone, as many of the newest are looked into.
_MOST_LOOKED_AT = 20
#: Ids that were drawn at random have at least eight characters.
_TELLING = 8


@dataclass(frozen=True, slots=True)
class Found:
    """The session of a notebook.

    Attributes
    ----------
    path
        Where it is, or where a new one goes.
    how
        ``open`` it, begin a ``new`` one there, or ``copy`` the one at `source` there.
    said
        What is not as it was, in one sentence; empty where all is.
    """

    path: Path
    how: Literal["open", "new", "copy"]
    said: str = ""
    source: Path | None = None


def find_session(notebook: Path, ledger: Ledger) -> Found:
    """Find the session of a notebook."""
    beside = session_path(notebook)
    known = list(ledger.lines().values())
    last = next((line for line in reversed(known) if line.notebook == str(notebook)), None)
    if os.path.lexists(beside):
        return Found(beside, "open", _changed(notebook, beside, last))
    if last is not None and (found := _renamed(beside, last)) is not None:
        said = f"{Path(last.path).name} is now called {found.name}; going on there."
        return Found(found, "open", said)
    found_elsewhere = _by_cells(notebook, known)
    if found_elsewhere is not None:
        return found_elsewhere
    if last is not None:
        said = (
            f"{Path(last.path).name} is no longer there, so a new session begins;"
            " put it back, and the next kernel goes on in it."
        )
        return Found(beside, "new", said)
    return Found(beside, "new")


def cells_of(tree: SessionTree) -> set[str]:
    """Name the cells that asked something in a session."""
    return set(Places(tree).cells())


def _changed(notebook: Path, path: Path, last: LedgerLine | None) -> str:
    """Say what is not as it was with the session beside its notebook."""
    if last is None:
        return ""
    looked = _look(path)
    if looked is None:
        return ""
    session, tree = looked
    cells, page = cells_of(tree), _page(notebook)
    if session != last.session:
        return f"{path.name} is another session than last time; going on in it."
    if last.leaf is not None and last.leaf not in tree:
        return (
            f"{path.name} is an older state than the one this notebook had last;"
            " going on from there."
        )
    if cells and page and not cells & page:
        return (
            f"{notebook.name} is another notebook than before; its prompts begin a branch of their"
            f" own in {path.name}, which keeps the old ones."
        )
    return ""


def _renamed(beside: Path, last: LedgerLine) -> Path | None:
    """Find a session that was renamed, by its id, in the folder where it was."""
    folders = {beside.parent, Path(last.path).parent}
    paths = [path for folder in sorted(folders) for path in _sessions_in(folder)]
    for path in islice(paths, _MOST_LOOKED_AT):
        looked = _look(path)
        if looked is not None and looked[0] == last.session:
            return path
    return None


def _by_cells(notebook: Path, known: list[LedgerLine]) -> Found | None:
    """Find the session whose prompts stand in this notebook, which had another name or place."""
    page = _page(notebook)
    others = [line for line in reversed(known) if line.notebook not in ("", str(notebook))]
    for line in islice(others, _MOST_LOOKED_AT):
        path, before = Path(line.path), Path(line.notebook)
        looked = _look(path)
        if looked is None or looked[0] != line.session:
            continue
        cells = cells_of(looked[1])
        same = _share(cells, page) if cells else before.name == notebook.name
        if not same:
            continue
        if not before.exists():
            what = "was renamed from" if before.parent == notebook.parent else "was moved from"
            was = before.name if before.parent == notebook.parent else str(before)
            said = f"{notebook.name} {what} {was}; going on in its session {path}."
            return Found(path, "open", said)
        if cells and _share(cells, _page(before)):
            said = (
                f"{notebook.name} is a copy of {before}; it goes on in a copy of that session,"
                f" {session_path(notebook).name}."
            )
            return Found(session_path(notebook), "copy", said, path)
    return None


def _share(cells: set[str], page: set[str]) -> bool:
    """Tell whether a page holds cells of a session; ids of a few letters are no proof of it."""
    return sum(len(cell) for cell in cells & page) >= _TELLING


def _page(notebook: Path) -> set[str]:
    try:
        return set(cell_order(notebook.read_bytes()))
    except OSError:
        return set()


def _sessions_in(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.name.endswith(SUFFIX))
    except OSError:
        return []


def _look(path: Path) -> tuple[str, SessionTree] | None:
    """Open a session for a look; return its id and tree, which stays readable while it is held."""
    try:
        storage = JsonlSessionStorage.open(path)
    except YiemError:
        return None
    return storage.get_metadata().id, storage.tree
