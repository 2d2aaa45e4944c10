"""Checking, exporting, purging, and images beside the session; prints, asserts nothing.

Run: python -m tests.benchmarks.archive [ENTRIES]
"""

from __future__ import annotations

import base64
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.benchmarks.session import UNLIMITED, write
from yiem_nb.messages import ImageContent, UserMessage
from yiem_nb.session import (
    JsonlSessionStorage,
    MessageEntry,
    SessionOptions,
    build_context,
    check_session,
)
from yiem_nb.session import blobs as blobs_module
from yiem_nb.session.export import export
from yiem_nb.session.purge import carry_out, plan_purge
from yiem_nb.session.reading import reading
from yiem_nb.session.traces import matcher

IMAGES = 20
IMAGE_BYTES = 1_000_000


def timed(what: str, work: Callable[[], Any]) -> Any:
    """Print what some work takes of the processor."""
    started, wall = time.process_time(), time.perf_counter()
    result = work()
    cpu = time.process_time() - started
    print(f"{what:<44}{cpu:8.3f} s CPU{time.perf_counter() - wall:8.3f} s")
    return result


def exported(path: Path, format: Any, branches: Any) -> int:
    """Export a file; return the length of the document."""
    with reading(path) as session:
        return len(export(session.tree, session.tree.leaf, format=format, branches=branches))


def long_session(folder: Path, count: int) -> None:
    """Check, export and purge a long session."""
    path = folder / "long.yiem.jsonl"
    write(path, count)
    print(f"{count:,} entries, {path.stat().st_size / 1e6:.1f} MB")
    timed("check", lambda: check_session(path))
    for format in ("html", "md"):
        timed(f"export {format}, all branches", lambda form=format: exported(path, form, "all"))
    plan = timed("purge: find a word", lambda: plan_purge(path, matches=matcher("no such word")))
    entry = next(iter(_ids(path)))
    plan = timed("purge: find an entry", lambda: plan_purge(path, entries=[entry]))
    timed("purge: write, prove, sync, replace", lambda: carry_out(plan, locks=folder / "locks"))
    print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:.0f} MB at most")


def _ids(path: Path) -> list[str]:
    with reading(path) as session:
        return list(session.tree)


def images(folder: Path, limit: int, name: str) -> None:
    """Write a session with large images, and read it."""
    blobs_module.INLINE_LIMIT = limit
    path = folder / f"{name}.yiem.jsonl"
    with JsonlSessionStorage.create(SessionOptions(path), limits=UNLIMITED) as storage:
        entries = [
            MessageEntry(message=UserMessage([ImageContent(_image(), "image/png")]))
            for _ in range(IMAGES)
        ]
        timed(f"{name}: append", lambda: [storage.append_entry(entry) for entry in entries])
    print(f"{name}: {path.stat().st_size / 1e6:.1f} MB in the session file")
    with timed(
        f"{name}: open", lambda: JsonlSessionStorage.open(path, limits=UNLIMITED)
    ) as storage:
        timed(
            f"{name}: all entries as the tree has them",
            lambda: list(map(storage.tree.entry, storage.tree)),
        )
        timed(f"{name}: context", lambda: build_context(storage.tree, storage.get_leaf_id()))


def _image() -> str:
    return base64.b64encode(os.urandom(IMAGE_BYTES)).decode()


def main() -> None:
    """Print all figures."""
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as folder:
        long_session(Path(folder), int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
        images(Path(folder), 256 * 1024, "beside")
        images(Path(folder), 1 << 60, "inline")


if __name__ == "__main__":
    main()
