"""The page as far as it is known: which cell runs, and in which order the cells stand."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic_core import from_json

__all__ = ["Page", "RunningCell", "cell_order"]


@dataclass(frozen=True, slots=True)
class RunningCell:
    """One execution of a cell.

    Attributes
    ----------
    id
        The cell's id, where the front end sends one.
    execution
        What tells one execution from the next; empty where nothing does.
    """

    id: str | None = None
    execution: str = ""


def cell_order(notebook: bytes) -> tuple[str, ...]:
    """List the ids of a notebook's cells in the order of the page; none where it cannot be read."""
    try:
        document: Any = from_json(notebook)
        ids = [cell.get("id") for cell in document["cells"]]
    except (ValueError, TypeError, LookupError, AttributeError):
        return ()
    return tuple(one for one in ids if isinstance(one, str))


class Page:
    """The order of the cells, as the notebook was last saved.

    It is read again only where the file has changed.
    """

    def __init__(self, notebook: Path | None) -> None:
        self._notebook = notebook
        self._stamp: tuple[int, int] | None = None
        self._order: tuple[str, ...] = ()
        #: What became of the notebook's file, for people; whoever tells them empties it.
        self.news: list[str] = []
        self._inode = _inode(notebook)
        self._gone = False

    def order(self) -> tuple[str, ...]:
        """Return the ids in order; empty where there is no file, or none that can be read."""
        if self._notebook is None:
            return ()
        try:
            found = os.stat(self._notebook)  # noqa: PTH116 - one look at the file, not two
            stamp = found.st_mtime_ns, found.st_size
            if stamp != self._stamp:
                self._take(cell_order(self._notebook.read_bytes()))
                self._stamp, self._inode, self._gone = stamp, (found.st_dev, found.st_ino), False
        except OSError:
            if self._followed(self._notebook):
                return self.order()
            self._order, self._stamp = (), None
        return self._order

    def _take(self, order: tuple[str, ...]) -> None:
        assert self._notebook is not None
        if order and self._order and not set(order) & set(self._order):
            self.news.append(
                f"{self._notebook.name} is another notebook than before; the session keeps what the"
                " old one asked."
            )
        self._order = order

    def _followed(self, notebook: Path) -> bool:
        """Find the notebook under another name in its folder, or say once that it is gone."""
        if self._inode is None or self._gone:
            return False
        for path in sorted(notebook.parent.glob("*.ipynb")):
            if _inode(path) == self._inode:
                self.news.append(f"{notebook.name} is now called {path.name}.")
                self._notebook = path
                return True
        self._gone = True
        self.news.append(
            f"{notebook.name} is no longer in {notebook.parent}; the session stays where it is, and"
            " the cells follow in the order of execution."
        )
        return False


def _inode(path: Path | None) -> tuple[int, int] | None:
    """Name a file whatever it is called."""
    try:
        found = os.stat(path) if path is not None else None  # noqa: PTH116
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if found is not None else None
