"""What differs between ipykernels, and every private name of theirs; nowhere else.

Supported are 6.29, 6.30, 7.3, 7.4 and, until they break, newer ones. Each function tests for what it
uses and has an answer for a terminal IPython, which has no kernel at all.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

__all__ = [
    "CommTap",
    "PausedHistory",
    "cell_id",
    "count_displays",
    "execution",
    "has_kernel",
    "is_headless",
    "kernel_name",
    "main_loop",
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


def main_loop(shell: Any) -> asyncio.AbstractEventLoop | None:
    """Return the event loop of the kernel's main thread; ``None`` where there is no kernel."""
    io_loop = getattr(getattr(shell, "kernel", None), "io_loop", None)
    found = getattr(io_loop, "asyncio_loop", None)
    return found if isinstance(found, asyncio.AbstractEventLoop) else None


def count_displays(shell: Any) -> Callable[[], int]:
    """Count from now on what is displayed on this thread; call what is returned for the number."""
    seen = [0]

    def count(message: Any) -> Any:
        seen[0] += 1
        return message

    with suppress(AttributeError):  # a terminal displays nothing between our lines
        shell.display_pub.register_hook(count)
    return lambda: seen[0]


class CommTap:
    """Hears a comm's messages while a cell runs, which kernels by themselves deliver after it.

    =====================  =====================================================================
    ipykernel              how
    =====================  =====================================================================
    7.0 and newer          a thread of its own reads the shell channel; there messages of our
                           comms are taken out before they queue behind the cell, whatever
                           subshell they name
    6.29, 6.30             the main thread is all there is: `pump`, which a blocked cell calls,
                           looks through what waits
    others, and no kernel  nothing: messages come through the comm, after the cell
    =====================  =====================================================================

    A handler runs on a foreign thread and must do no more than hand over.
    """

    def __init__(self, shell: Any) -> None:
        self._kernel: Any = getattr(shell, "kernel", None)
        self._handlers: dict[str, Callable[[Any], None]] = {}
        self._tapped = False

    def open(self, comm_id: str, handler: Callable[[Any], None]) -> None:
        """Call ``handler(data)`` with the data of each message of this comm, from now on."""
        self._handlers[comm_id] = handler
        thread = getattr(self._kernel, "shell_channel_thread", None)
        if thread is None or self._tapped:
            return
        self._tapped = True
        with suppress(AttributeError):  # a kernel that is built otherwise: the comm delivers
            thread.io_loop.add_callback(self._listen)

    def close(self, comm_id: str) -> None:
        """Leave this comm's messages to the comm."""
        self._handlers.pop(comm_id, None)

    def _listen(self) -> None:
        """Read the shell channel before the kernel does; on that channel's own thread."""
        kernel = self._kernel
        stream, usual = kernel.shell_stream, kernel.shell_channel_thread_main

        async def receive(frames: list[Any]) -> None:
            if not self._take(frames):
                await usual(frames)

        stream.on_recv(receive, copy=False)

    def pump(self) -> None:
        """Take messages of our comms from the queue of a kernel that has one; on its main thread.

        What is not ours stays in its order.
        """
        waiting = getattr(self._kernel, "msg_queue", None)
        if waiting is None or not self._handlers:
            return
        import zmq

        self._kernel.shell_stream.flush(zmq.POLLIN)
        others = []
        while waiting.qsize():
            item = waiting.get_nowait()
            arguments = item[2]
            ours = len(arguments) == 1 and isinstance(arguments[0], list)
            if not (ours and self._take(arguments[0])):
                others.append(item)
        for item in others:
            waiting.put_nowait(item)

    @property
    def needs_pump(self) -> bool:
        """Whether `pump` does anything here."""
        return hasattr(self._kernel, "msg_queue")

    def _take(self, frames: list[Any]) -> bool:
        """Hand over a message if it is one of ours; else leave no trace of having read it."""
        session = self._kernel.session
        try:
            _, parts = session.feed_identities(frames, copy=False)
            message = session.deserialize(parts, content=False, copy=False)
            # Reading it again must not look like a replay.
            session.digest_history.discard(bytes(parts[0]))
            if message["header"]["msg_type"] != "comm_msg":
                return False
            content = session.unpack(message["content"])
            handler = self._handlers.get(content.get("comm_id"))
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            return False
        if handler is None:
            return False
        # The page waits for its message to be answered so, and forgets it then.
        status = {"execution_state": "idle"}
        session.send(
            self._kernel.iopub_socket, "status", status, parent=message, ident=b"kernel.status"
        )
        handler(content.get("data"))
        return True
