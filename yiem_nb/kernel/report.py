"""What a kernel tells whoever runs its notebook: which sessions it wrote, and where they began.

A session may be a copy, a new one beside another, or renamed meanwhile, so its path cannot be known
from outside. The one who runs the notebook names a file in the environment; the kernel adds a line
to it for each session that it goes on in.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from yiem_nb.errors import YiemError
from yiem_nb.kernel.notebook import REPORT_VARIABLE
from yiem_nb.session import JsonlSessionStorage

__all__ = ["Report", "read_report"]


class Report:
    """The kernel's side; does nothing where nobody has asked."""

    def __init__(self) -> None:
        self._file = os.environ.get(REPORT_VARIABLE, "")
        self._tokens: dict[str, int] = {}
        self._last = ("", "")

    def goes_on_in(self, storage: JsonlSessionStorage) -> None:
        """Write down where the conversation is now, if that is news."""
        session = storage.get_metadata().id
        here = (session, str(storage.path))
        if not self._file or here == self._last:
            return
        self._last = here
        if session not in self._tokens:
            self._tokens[session] = storage.get_session_stats().total_tokens
        told = {"session": session, "path": here[1], "tokens": self._tokens[session]}
        with suppress(OSError), Path(self._file).open("a", encoding="utf-8") as file:
            file.write(json.dumps(told) + "\n")


def read_report(file: Path) -> tuple[Path | None, int]:
    """Say in which session a kernel ended, and how many tokens it used in all of them."""
    sessions: dict[str, tuple[Path, int]] = {}
    for line in file.read_text("utf-8").splitlines():
        told = json.loads(line)
        sessions.pop(told["session"], None)
        sessions[told["session"]] = (Path(told["path"]), told["tokens"])
    used, last = 0, None
    for path, before in sessions.values():
        with suppress(YiemError), JsonlSessionStorage.open(path) as storage:
            used += max(storage.get_session_stats().total_tokens - before, 0)
            last = path
    return last, used
