"""Which session a kernel goes on with, and opening it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from yiem_nb.errors import CommandError
from yiem_nb.instructions import SYSTEM_PROMPT_VERSION
from yiem_nb.kernel.notebook import SUFFIX, session_path, stray_session_path
from yiem_nb.session import JsonlSessionStorage, SessionOptions
from yiem_nb.session.git import git_notice

__all__ = ["open_session"]

_MAX_FORKS = 100


def open_session(notebook: Path | None) -> tuple[JsonlSessionStorage, list[str]]:
    """Open or begin the session beside `notebook`; one that may not be written is left alone."""
    if notebook is None:
        path = stray_session_path()
        with suppress(OSError):  # creating the file says why it cannot be saved
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        storage = _create(path, None)
        return storage, [f"This kernel belongs to no notebook; the session is {path}"]
    first = session_path(notebook)
    notices: list[str] = []
    for number in range(1, _MAX_FORKS):
        path = first if number == 1 else first.with_name(f"{notebook.stem}.{number}{SUFFIX}")
        if not os.path.lexists(path):
            return _create(path, notebook), [*notices, *filter(None, [git_notice(path)])]
        storage = JsonlSessionStorage.open(path)
        if storage.read_only is None:
            return storage, [*notices, *storage.notices]
        notices.append(f"{path.name} is left as it is: {storage.read_only}.")
        storage.close()
    raise CommandError(
        f"There are {_MAX_FORKS} sessions beside {notebook.name} that cannot be written.",
        hint="Move some of them away.",
    )


def _create(path: Path, notebook: Path | None) -> JsonlSessionStorage:
    metadata: dict[str, Any] = {"program": "yiem_nb", "promptVersion": SYSTEM_PROMPT_VERSION}
    if notebook is not None:
        metadata["notebook"] = notebook.name
    return JsonlSessionStorage.create(SessionOptions(path=str(path), metadata=metadata))
