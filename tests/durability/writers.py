"""Several processes append to one session; nothing may be lost or fused."""

import subprocess
import sys
import time
from dataclasses import dataclass

from yiem_nb.models import Limits
from yiem_nb.session import JsonlSessionStorage, SessionOptions

UNLIMITED = Limits(reads_per_second=None, writes_per_second=None)
PROCESSES = 4

WRITER = """
import random, sys
from yiem_nb.messages import UserMessage
from yiem_nb.models import Limits
from yiem_nb.session import JsonlSessionStorage, MessageEntry
path, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
limits = Limits(reads_per_second=None, writes_per_second=None)
storage = JsonlSessionStorage.open(path, limits=limits)
chance = random.Random(seed)
for number in range(count):
    # From 100 bytes to 200 kB, small ones more often.
    text = "x" * int(100 * 2000 ** (chance.random() ** 3))
    parent = f"{seed}-{number - 1}" if number else None
    entry = MessageEntry(id=f"{seed}-{number}", parent_id=parent, message=UserMessage(text))
    storage.append_entry(entry)
assert storage.pending == 0, storage.problem
"""


@dataclass
class Report:
    """What a run has shown."""

    appended: int
    lost: int
    notices: list
    bytes: int
    seconds: float

    def __str__(self):
        return (
            f"{PROCESSES} processes, {self.appended} entries, {self.bytes / 1e6:.0f} MB in"
            f" {self.seconds:.1f} s: {self.lost} lost, notices: {self.notices or 'none'}"
        )


def run(folder, count):
    """Let each process append `count` entries."""
    path = folder / "s.yiem.jsonl"
    JsonlSessionStorage.create(SessionOptions(path)).close()
    started = time.perf_counter()
    processes = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(count), str(seed)])
        for seed in range(PROCESSES)
    ]
    for process in processes:
        assert process.wait() == 0
    seconds = time.perf_counter() - started
    storage = JsonlSessionStorage.open(path, limits=UNLIMITED)
    expected = {f"{seed}-{number}" for seed in range(PROCESSES) for number in range(count)}
    # Each writer's entries are one chain: nobody followed somebody else's.
    for seed in range(PROCESSES):
        chain = storage.tree.path(f"{seed}-{count - 1}")
        assert chain == [f"{seed}-{number}" for number in range(count)]
    lost = len(expected - set(storage.tree))
    return Report(len(expected), lost, storage.notices, path.stat().st_size, seconds)
