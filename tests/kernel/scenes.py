"""What the kernel tests share: a notebook with a server behind it, and its session."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.fake_openai import FakeOpenAi, Reply, serving
from tests.kernel.envs import python_of
from tests.kernel.harness import Kernel

SLOW_TOOL = """
@yiem.tool
def work(seconds: float) -> dict:
    "Work for a while."
    import time
    print("working", seconds)
    time.sleep(seconds)
    return {"worked": seconds}
"""


@contextmanager
def notebook(
    folder: Path, *replies: Reply, version: str = "newest", **env: str
) -> Iterator[tuple[Kernel, FakeOpenAi]]:
    """A kernel of a notebook in `folder`, with the extension and a server that answers `replies`."""
    variables = {"JPY_SESSION_NAME": str(folder / "n.ipynb")} | env
    with serving(*replies) as server:
        kernel = Kernel(python_of(version), folder, variables)
        try:
            assert kernel.run("%load_ext yiem_nb").status == "ok"
            settings = f"%config YiemMagics.base_url = {server.base_url!r}\n"
            kernel.run(settings + "%config YiemMagics.model = 'fake-1'")
            yield kernel, server
        finally:
            kernel.stop()


def entries(folder: Path, name: str = "n") -> list[dict[str, Any]]:
    lines = (folder / f"{name}.yiem.jsonl").read_bytes().split(b"\n")
    return [json.loads(line) for line in lines if line]


def messages(folder: Path) -> list[dict[str, Any]]:
    return [e["message"] for e in entries(folder) if e["type"] == "message"]
