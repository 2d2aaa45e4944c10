"""A real kernel, driven as a front end drives it."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager


@dataclass
class Cell:
    """What came of running a cell."""

    id: str
    status: str = ""
    #: Displays by id, in order of first appearance, as a front end shows them now.
    outputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    errors: list[dict[str, Any]] = field(default_factory=list)
    stream: str = ""
    #: (arrival, type, bytes) of every message.
    messages: list[tuple[float, str, int]] = field(default_factory=list)
    started: float = 0.0
    ended: float = 0.0

    @property
    def text(self) -> str:
        """All displays as plain text, one after the other."""
        return "\n".join(str(o.get("text/plain", "")) for o in self.outputs.values())

    @property
    def markdown(self) -> str:
        return "\n".join(str(o.get("text/markdown", "")) for o in self.outputs.values())

    @property
    def error(self) -> str:
        return "\n".join("\n".join(e["traceback"]) for e in self.errors)

    def counts(self) -> Counter[str]:
        return Counter(kind for _, kind, _ in self.messages)


class Kernel:
    """One kernel process and its client."""

    def __init__(
        self,
        python: str,
        cwd: Path,
        env: dict[str, str] | None = None,
        stderr: int | IO[bytes] = subprocess.DEVNULL,
    ) -> None:
        self.manager = KernelManager()
        self.manager._kernel_spec = KernelSpec(
            argv=[
                python,
                "-Xfrozen_modules=off",
                "-m",
                "ipykernel_launcher",
                "-f",
                "{connection_file}",
            ],
            language="python",
            display_name="test",
        )
        clean = {
            k: v for k, v in os.environ.items() if not k.endswith("_API_KEY") and k != "PYTHONPATH"
        }
        base = {
            "HOME": str(cwd),
            "IPYTHONDIR": str(cwd / ".ipython"),
            "XDG_DATA_HOME": str(cwd / ".data"),
            "XDG_CONFIG_HOME": str(cwd / ".config"),
            "PYTHONWARNINGS": "ignore",
        }
        self.manager.start_kernel(env=clean | base | (env or {}), cwd=str(cwd), stderr=stderr)
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)
        self._cells: dict[str, Cell] = {}
        self._buffered: list[dict[str, Any]] = []

    @property
    def pid(self) -> int:
        return int(self.manager.provisioner.process.pid)

    def submit(self, code: str, *, cell_id: str | None = None, allow_stdin: bool = False) -> Cell:
        """Send a cell without waiting for it."""
        content = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": allow_stdin,
            "stop_on_error": True,
        }
        message = self.client.session.msg("execute_request", content)
        if cell_id is not None:
            message["metadata"] = {"cellId": cell_id}
        cell = Cell(message["header"]["msg_id"], started=time.monotonic())
        self._cells[cell.id] = cell
        self.client.shell_channel.send(message)
        return cell

    def wait(self, cell: Cell, timeout: float = 60.0) -> Cell:
        """Read messages until `cell` is idle and replied to."""
        deadline = time.monotonic() + timeout
        while not cell.ended:
            self._read_iopub(deadline)
        while not cell.status:
            reply = self.client.get_shell_msg(timeout=max(deadline - time.monotonic(), 0.01))
            owner = self._cells.get(reply["parent_header"].get("msg_id"))
            if owner is not None and reply["msg_type"] == "execute_reply":
                owner.status = reply["content"]["status"]
        return cell

    def run(
        self,
        code: str,
        *,
        cell_id: str | None = None,
        timeout: float = 60.0,
        allow_stdin: bool = True,
    ) -> Cell:
        return self.wait(self.submit(code, cell_id=cell_id, allow_stdin=allow_stdin), timeout)

    def wait_for(self, cell: Cell, words: str, timeout: float = 30.0) -> None:
        """Read messages until `cell` shows `words`."""
        deadline = time.monotonic() + timeout
        while words not in cell.text + cell.stream + _html(cell):
            if cell.ended:
                raise AssertionError(
                    f"{words!r} never came: {cell.text!r} {cell.stream!r} {cell.error!r}"
                )
            self._read_iopub(deadline)

    def read_until(self, cell: Cell, instant: float) -> None:
        """Read messages until `cell` is idle or the clock reaches `instant`."""
        while not cell.ended and time.monotonic() < instant:
            with suppress(TimeoutError):
                self._read_iopub(instant)

    def interrupt(self) -> None:
        """Interrupt as Jupyter Server does."""
        os.kill(self.pid, signal.SIGINT)

    def cpu_seconds(self) -> float:
        import psutil

        total = 0.0
        process = psutil.Process(self.pid)
        for one in [process, *process.children(recursive=True)]:
            times = one.cpu_times()
            total += times.user + times.system
        return total

    def restart(self) -> None:
        self.manager.restart_kernel(now=False)
        self.client.wait_for_ready(timeout=60)

    def stop(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)

    def _read_iopub(self, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the cell did not end in time")
        try:
            frames = self.client.iopub_channel.socket
            if not frames.poll(min(left, 1.0) * 1000):
                return
            parts = frames.recv_multipart()
        except queue.Empty:
            return
        now = time.monotonic()
        _, body = self.client.session.feed_identities(parts)
        message = self.client.session.deserialize(body)
        owner = self._cells.get(message["parent_header"].get("msg_id", ""))
        if owner is not None:
            _take(owner, message, now, sum(len(part) for part in parts))


def _html(cell: Cell) -> str:
    return "\n".join(str(o.get("text/html", "")) for o in cell.outputs.values())


def _take(cell: Cell, message: dict[str, Any], now: float, size: int) -> None:
    kind, content = message["msg_type"], message["content"]
    cell.messages.append((now, kind, size))
    if kind in ("display_data", "update_display_data"):
        name = (content.get("transient") or {}).get("display_id") or f"display {len(cell.messages)}"
        cell.outputs[name] = content["data"]
    elif kind == "execute_result":
        cell.outputs[f"result {len(cell.messages)}"] = content["data"]
    elif kind == "stream":
        cell.stream += content["text"]
    elif kind == "error":
        cell.errors.append(content)
    elif kind == "status" and content["execution_state"] == "idle":
        cell.ended = now
