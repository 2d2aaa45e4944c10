"""While a session cannot be saved where it belongs (reliability 3.3)."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from yiem_nb.errors import YiemError
from yiem_nb.session import JsonlSessionStorage, Session
from yiem_nb.session.files import OsFiles
from yiem_nb.session.log import free_name

__all__ = ["Rescue"]


class Rescue:
    """Keeps a copy elsewhere while a session cannot be saved where it belongs."""

    def __init__(self) -> None:
        self._troubled = False
        self._copy: JsonlSessionStorage | None = None

    def look(self, storage: JsonlSessionStorage) -> str:
        """Say what is not saved, or, once, that it is again."""
        if storage.problem is not None:
            first, self._troubled = not self._troubled, True
            if first:
                self._begin(storage)
            elif self._copy is not None:
                self._add(self._copy, storage)
            where = f"; a copy is kept in {self._copy.path}" if first and self._copy else ""
            return f"{storage.problem}{where}"
        if not self._troubled:
            return ""
        self._troubled = False
        if self._copy is not None:
            # It is ours, and a second copy would outlive a purge.
            self._copy.close()
            self._copy.path.unlink(missing_ok=True)
            self._copy = None
        return f"saved again: all of it is in {storage.path.name}"

    def give_up(self, storage: JsonlSessionStorage) -> None:
        """Say at the end of the kernel what is not saved, where somebody may still read it."""
        self.look(storage)
        entries = "1 entry" if storage.pending == 1 else f"{storage.pending} entries"
        where = "nowhere" if self._copy is None else f"kept in {self._copy.path}"
        said = f"yiem: {entries} of {storage.path} could not be saved; {where}.\n"
        if sys.__stderr__ is not None:
            sys.__stderr__.write(said)
            sys.__stderr__.flush()
        if self._copy is not None:
            self._copy.close()

    def _begin(self, storage: JsonlSessionStorage) -> None:
        import platformdirs

        folder = Path(platformdirs.user_state_dir("yiem_nb", appauthor=False)) / "unsaved"
        path = folder / storage.path.name
        if os.path.lexists(path):
            path = free_name(path)
        try:
            copy = Session(storage).fork(path, everything=True, files=OsFiles())
        except (OSError, YiemError):
            return
        if copy.storage.problem is None:
            self._copy = copy.storage

    def _add(self, copy: JsonlSessionStorage, storage: JsonlSessionStorage) -> None:
        # What the old file no longer gives is not worth a turn.
        with suppress(OSError, YiemError):
            copy.append_entries(
                storage.tree.whole(one) for one in storage.tree if one not in copy.tree
            )
