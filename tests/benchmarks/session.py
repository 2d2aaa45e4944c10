"""Opening, reading and appending; prints, asserts nothing. Run: python -m tests.benchmarks.session.

Limits (SPEC-9.2) are off. pi's `SessionManager` opens the same files where the interop tests have
installed it.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import platformdirs
from yiem_nb.messages import AssistantMessage, UserMessage
from yiem_nb.models import Limits
from yiem_nb.session import JsonlSessionStorage, MessageEntry, Places, SessionOptions, build_context

UNLIMITED = Limits(reads_per_second=None, writes_per_second=None)
#: Makes 100,000 entries about 175 MB.
TEXT = 1_560
PI_OPEN = Path(__file__).parents[1] / "interop" / "pi_open.mjs"


def write(path: Path, count: int) -> None:
    """Write a conversation of `count` messages."""
    words = [
        "alpha",
        "beta",
        "gamma",
        "delta",
        "epsilon",
        "zeta",
        "the",
        "of",
        "and",
        "model",
        "residual",
        "frame",
        "été",
    ]
    chance = random.Random(1)
    with JsonlSessionStorage.create(SessionOptions(path), limits=UNLIMITED) as storage:
        for start in range(0, count, 1000):
            batch = []
            for number in range(start, min(count, start + 1000)):
                text = " ".join(chance.choices(words, k=TEXT // 6))
                message = (
                    UserMessage(text) if number % 2 == 0 else AssistantMessage(text, model="m")
                )
                batch.append(MessageEntry(message=message))
            storage.append_entries(batch)


def resident() -> int:
    """Return the memory of this process in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def opening(path: Path) -> dict[str, float]:
    """Open a session in this process and say what that cost."""
    before, started = resident(), time.process_time()
    storage = JsonlSessionStorage.open(path, limits=UNLIMITED)
    figures = {"cpu": time.process_time() - started, "rss": resident() - before}
    started = time.process_time()
    build_context(storage.tree, storage.get_leaf_id())
    figures["context"] = time.process_time() - started
    started = time.process_time()
    Places(storage.tree)
    return figures | {"places": time.process_time() - started, "entries": len(storage.tree)}


def in_process(path: Path) -> dict[str, float]:
    """Open a session in a fresh process, so that memory is its own."""
    command = [sys.executable, "-m", "tests.benchmarks.session", str(path)]
    result: dict[str, float] = json.loads(subprocess.check_output(command))
    return result


def with_pi(path: Path) -> dict[str, float] | None:
    """Let pi open the same file, where it is installed."""
    packages = Path(platformdirs.user_cache_dir("yiem_nb")) / "tests" / "pi-0.73.1" / "node_modules"
    entry = packages / "@mariozechner" / "pi-coding-agent" / "dist" / "index.js"
    node = shutil.which("node")
    if node is None or not entry.exists():
        return None
    result: dict[str, float] = json.loads(
        subprocess.check_output([node, str(PI_OPEN), str(entry), str(path)])
    )
    return result


def percentiles(seconds: list[float]) -> str:
    """Say p50, p95, p99 and the worst in microseconds."""
    ordered = sorted(seconds)
    points = [ordered[int(len(ordered) * share)] for share in (0.5, 0.95, 0.99)]
    named = zip(("p50", "p95", "p99", "max"), [*points, ordered[-1]], strict=True)
    return "  ".join(f"{name} {value * 1e6:,.0f} µs" for name, value in named)


def appending(folder: Path, durability: str, count: int) -> None:
    """Append one entry after the other and print how long each took."""
    options = SessionOptions(folder / f"{durability}.jsonl")
    how = "always" if durability == "always" else "os"
    seconds = []
    with JsonlSessionStorage.create(options, limits=UNLIMITED, durability=how) as storage:
        for _ in range(count):
            entry = MessageEntry(message=UserMessage("x" * 600))
            started = time.perf_counter()
            storage.append_entry(entry)
            seconds.append(time.perf_counter() - started)
    rate = count / sum(seconds)
    where = "to the disk" if durability == "always" else "to the OS"
    print(f"append {where:12} {rate:>9,.0f}/s  {percentiles(seconds)}")


def reading(path: Path) -> None:
    """Read entries at random and print how long each took."""
    storage = JsonlSessionStorage.open(path, limits=UNLIMITED)
    ids = random.Random(2).choices(list(storage.tree), k=20_000)
    seconds = []
    for entry_id in ids:
        started = time.perf_counter()
        storage.get_entry(entry_id)
        seconds.append(time.perf_counter() - started)
    print(f"get_entry           {len(ids) / sum(seconds):>9,.0f}/s  {percentiles(seconds)}")


def main() -> None:
    """Print the table."""
    if len(sys.argv) > 1:
        print(json.dumps(opening(Path(sys.argv[1]))))
        return
    print(f"load average {os.getloadavg()[0]:.1f}, Python {sys.version.split()[0]}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for count in (1_000, 10_000, 100_000):
            path = folder / f"{count}.jsonl"
            write(path, count)
            ours, theirs = in_process(path), with_pi(path)
            pi = (
                f"pi {theirs['cpu']:.3f} s, +{theirs['rss'] / 1e6:,.0f} MB"
                if theirs
                else "pi is not installed"
            )
            print(
                f"open {count:>7,} ({path.stat().st_size / 1e6:>5.1f} MB)"
                f"  {ours['cpu']:.3f} s CPU, +{ours['rss'] / 1e6:.0f} MB   {pi}"
                f"   context {ours['context']:.3f} s  places {ours['places']:.3f} s"
            )
        reading(folder / "10000.jsonl")
        appending(folder, "os", 20_000)
        appending(folder, "always", 1_000)


if __name__ == "__main__":
    main()
