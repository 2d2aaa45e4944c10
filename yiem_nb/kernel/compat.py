"""What differs between ipykernels, and every private name of theirs; nowhere else.

Supported are 6.29, 6.30, 7.3, 7.4 and, until they break, newer ones. Each function tests for what it
uses and has an answer for a terminal IPython, which has no kernel at all.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

__all__ = [
    "PausedHistory",
    "cell_id",
    "execution",
    "has_kernel",
    "is_headless",
    "kernel_name",
    "without_tracebacks",
]


def has_kernel(shell: Any) -> bool:
    """Whether `shell` belongs to a kernel (not to a terminal)."""
    return getattr(shell, "kernel", None) is not None


def cell_id(shell: Any) -> str | None:
    """Return the id of the cell that runs, where the front end sent one.

    JupyterLab and VS Code do; nbclient, papermill and consoles do not.
    """
    found = (_request(shell).get("metadata") or {}).get("cellId")
    return found if isinstance(found, str) and found else None


def kernel_name(shell: Any) -> str:
    """Return what names this kernel, also after a restart; empty in a terminal.

    A restarted kernel keeps its connection file.
    """
    config = getattr(getattr(shell, "kernel", None), "config", None) or {}
    found = (config.get("IPKernelApp") or {}).get("connection_file")
    return Path(found).stem if isinstance(found, str) else ""


class PausedHistory:
    """Keeps IPython from writing what is typed to its history file, until `resume`.

    What waits to be written is taken away after each cell; ``In`` and ``%history`` still have it.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._manager = getattr(shell, "history_manager", None)
        self._size = getattr(self._manager, "db_cache_size", 0)
        if self._manager is not None:
            self._manager.writeout_cache()
            # A cache that is never full is never written.
            self._manager.db_cache_size = sys.maxsize
            shell.events.register("post_run_cell", self._forget)

    def _forget(self, result: Any = None) -> None:
        for name in ("db_input_cache", "db_output_cache"):
            cache = getattr(self._manager, name, None)
            if cache is not None:
                cache.clear()

    def resume(self) -> None:
        """Write again what is typed from the next cell on."""
        if self._manager is None:
            return
        self._forget()
        self._manager.db_cache_size = self._size
        with suppress(ValueError):
            self._shell.events.unregister("post_run_cell", self._forget)


def execution(shell: Any) -> str:
    """Return what tells this execution of a cell from all others; empty in a terminal."""
    return str((_request(shell).get("header") or {}).get("msg_id", ""))


def is_headless(shell: Any) -> bool:
    """Whether nobody can be asked: a front end that takes no input, or no terminal.

    nbclient, and with it nbconvert and papermill, sends ``allow_stdin: false`` with every cell.
    """
    if not has_kernel(shell):
        return not sys.stdin.isatty()
    return not (_request(shell).get("content") or {}).get("allow_stdin", False)


@contextmanager
def without_tracebacks(shell: Any) -> Iterator[None]:
    """Let cells fail without a word, and ``exit()`` end the cell alone, not the kernel.

    A nested cell's traceback would be published as an error of the cell around it.
    """

    def keep_nothing(*_: Any, **__: Any) -> None:
        """Leave the traceback to whoever asked for the cell."""

    def refuse_exit() -> None:
        raise SystemExit("exit() was called; the kernel goes on")

    patches: dict[str, Any] = {"_showtraceback": keep_nothing, "ask_exit": refuse_exit}
    # On the object, in front of its class's own; `None` is no patch of anybody's.
    before = {name: vars(shell).get(name) for name in patches}
    vars(shell).update(patches)
    try:
        yield
    finally:
        for name, patch in before.items():
            if patch is None:
                vars(shell).pop(name, None)
            else:
                vars(shell)[name] = patch


def _request(shell: Any) -> dict[str, Any]:
    """Return the execute request of the running cell, as the front end sent it."""
    get_parent = getattr(getattr(shell, "kernel", None), "get_parent", None)
    return (get_parent("shell") or {}) if get_parent is not None else {}
