"""2,000 deltas over 4 s into a cell of a real kernel, beside a raw httpx read and chatlas.

uv run --group test --with chatlas python -m tests.benchmarks.stream
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
import time
from pathlib import Path

import httpx
from tests.fake_openai import FakeOpenAi, Reply, serving, text
from tests.kernel.harness import Cell, Kernel

WORDS = (
    "# Title\n\nSome **bold** text and `code`, a list:\n\n- one\n- two\n\n```python\n"
    "for i in range(3):\n    print(i)\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n$x^2$ fine.\n\n"
)
COUNT, DELAY = 2_000, 0.002
TEXT = (WORDS * 60)[: COUNT * 4]

CHATLAS = """
from chatlas import ChatOpenAICompletions
chat = ChatOpenAICompletions(base_url={url!r}, api_key="k", model="m")
"""


def reply() -> Reply:
    return text(TEXT, delay=DELAY)


def raw() -> None:
    """The floor: one process that reads the same stream."""
    with serving(reply(), reply()) as server:
        for _ in range(2):
            cpu, start = time.process_time(), time.monotonic()
            body = {"model": "m", "stream": True, "messages": []}
            with httpx.stream(
                "POST", f"{server.base_url}/chat/completions", json=body, timeout=60
            ) as r:
                count = sum(line.startswith("data: ") for line in r.iter_lines())
            wall = time.monotonic() - start
            # The server runs in this process too; its share is in the figure.
            used = time.process_time() - cpu
    print(
        f"raw httpx    {count} events in {wall:.2f} s, {used:.2f} s CPU (with the server's share)"
    )


def _first_shown(cell: Cell, server: FakeOpenAi, request: int) -> float:
    sent = server.sent[request][0]
    shown = [
        t
        for t, kind, _ in cell.messages
        if kind in ("display_data", "update_display_data", "stream")
    ]
    return min(t for t in shown if t >= sent) - sent


def _measure(name: str, kernel: Kernel, server: FakeOpenAi, code: str, rounds: int = 3) -> None:
    for number in range(rounds):
        before, cpu = len(server.sent), kernel.cpu_seconds()
        cell = kernel.run(code, timeout=120)
        used = kernel.cpu_seconds() - cpu
        assert cell.status == "ok", cell.error
        size = sum(size for _, _, size in cell.messages)
        print(
            f"{name:<12} first delta {_first_shown(cell, server, before) * 1000:5.0f} ms, "
            f"{used:.2f} s CPU, {len(cell.messages)} messages, {size / 1024:.0f} KB "
            f"= {size / len(TEXT):.1f} x the text{' (first cell)' if number == 0 else ''}"
        )


def main() -> None:
    """Print the figures."""
    raw()
    with tempfile.TemporaryDirectory() as folder, serving(*[reply() for _ in range(8)]) as server:
        kernel = Kernel(sys.executable, Path(folder), {"JPY_SESSION_NAME": f"{folder}/n.ipynb"})
        kernel.run("%load_ext yiem_nb")
        kernel.run(f"%config YiemMagics.base_url={server.base_url!r}\n%config YiemMagics.model='m'")
        _measure("yiem_nb", kernel, server, "%%yiem\nwrite")
        kernel.stop()
        print("goals        first delta 60 ms, 0.50 s CPU, 110 messages, 25 x the text")
        if importlib.util.find_spec("chatlas") is None:
            print("chatlas      not installed: uv run --with chatlas …")
        else:
            kernel = Kernel(sys.executable, Path(folder))
            kernel.run(CHATLAS.format(url=server.base_url))
            _measure("chatlas", kernel, server, "_ = chat.chat('write')")
            kernel.stop()
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
