"""What differs between ipykernels, and every private name of theirs; nowhere else.

Supported are 6.29, 6.30, 7.3, 7.4 and, until they break, newer ones. Each function tests for what it
uses and has an answer for a terminal IPython, which has no kernel at all.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["cell_id", "execution", "has_kernel", "is_headless", "without_tracebacks"]


def has_kernel(shell: Any) -> bool:
    """Whether `shell` belongs to a kernel (not to a terminal)."""
    return getattr(shell, "kernel", None) is not None


def cell_id(shell: Any) -> str | None:
    """Return the id of the cell that runs, where the front end sent one.

    JupyterLab and VS Code do; nbclient, papermill and consoles do not.
    """
    found = (_request(shell).get("metadata") or {}).get("cellId")
    return found if isinstance(found, str) and found else None


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
