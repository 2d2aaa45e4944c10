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

    def order(self) -> tuple[str, ...]:
        """Return the ids in order; empty where there is no file, or none that can be read."""
        if self._notebook is None:
            return ()
        try:
            found = os.stat(self._notebook)  # noqa: PTH116 - one look at the file, not two
            stamp = found.st_mtime_ns, found.st_size
            if stamp != self._stamp:
                self._order, self._stamp = cell_order(self._notebook.read_bytes()), stamp
        except OSError:
            self._order, self._stamp = (), None
        return self._order
