"""A page's messages reach Python while a cell runs, on every kernel that is supported."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.fake_openai import Reply, text
from tests.kernel.envs import wanted
from tests.kernel.harness import Cell, Kernel
from tests.kernel.scenes import notebook

pytestmark = pytest.mark.kernel


class Page:
    """A browser as the kernel sees it: comm messages in, comm messages out."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        engine = "get_ipython().magics_manager.registry['YiemMagics'].workspace.front.engine"
        self._comm = kernel.run(f"print({engine}.comm.comm_id)").stream.strip()
        self._count = 0

    def say(self, **content: Any) -> None:
        client = self._kernel.client
        data = {"method": "custom", "content": content}
        message = client.session.msg("comm_msg", {"comm_id": self._comm, "data": data})
        client.shell_channel.send(message)

    def ask(self, op: str, **args: Any) -> None:
        self._count += 1
        self.say(kind="req", v=1, id=f"r{self._count}", op=op, args=args)


@pytest.mark.parametrize("version", wanted())
def test_a_click_on_stop_ends_the_running_cell(version: str, tmp_path: Path) -> None:
    stalled = Reply([{"content": "so far"}], stall=True)
    with notebook(tmp_path, stalled, text("after"), version=version) as (kernel, server):
        page = Page(kernel)
        page.say(kind="hello", v=1)
        cell = kernel.submit("%%yiem\ngo", allow_stdin=True)
        _wait_for_widget(kernel, cell)
        _wait_until(lambda: bool(server.sent and server.sent[0]))
        queued = kernel.submit("print('the next cell')")
        clicked = time.monotonic()
        page.ask("stop")
        kernel.wait(cell, timeout=10)
        assert cell.status == "ok"
        assert "stopped" in cell.text
        assert "application/vnd.jupyter.widget-view+json" not in str(cell.outputs)
        assert "the next cell" in kernel.wait(queued).stream
        assert server.closed
        print(f"ipykernel {version}: click to end of cell {(cell.ended - clicked) * 1000:.0f} ms")
        assert "after" in kernel.run("%%yiem\nagain").text


def _wait_until(ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _wait_for_widget(kernel: Kernel, cell: Cell) -> None:
    deadline = time.monotonic() + 20
    while "vnd.jupyter.widget-view" not in str(cell.outputs):
        assert time.monotonic() < deadline, cell.outputs
        kernel._read_iopub(deadline)


@pytest.mark.parametrize("version", wanted())
def test_a_prompt_of_the_panel_runs_while_no_cell_does(version: str, tmp_path: Path) -> None:
    with notebook(tmp_path, text("to the panel"), version=version) as (kernel, server):
        page = Page(kernel)
        page.say(kind="hello", v=1)
        page.ask("prompt", text="from the panel", images=[])
        session = tmp_path / "n.yiem.jsonl"
        _wait_until(lambda: session.exists() and "to the panel" in session.read_text())
        assert server.requests[0]["messages"][-1]["content"].endswith("from the panel")


def test_a_headless_run_has_no_widget_and_sends_no_bundle(tmp_path: Path) -> None:
    with notebook(tmp_path, text("plain")) as (kernel, _):
        cell = kernel.run("%%yiem\ngo", allow_stdin=False)
        assert "plain" in cell.text
        assert cell.counts()["comm_open"] == 0
