"""SIGKILL a writer at random instants; every acknowledged entry must be there."""

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

from yiem_nb.models import Limits
from yiem_nb.session import JsonlSessionStorage

UNLIMITED = Limits(reads_per_second=None, writes_per_second=None)

# Appends until it is killed and acknowledges each entry on its standard output, which is a pipe:
# what was written there before the signal can still be read after it.
WRITER = """
import os, random, sys
from yiem_nb.messages import UserMessage
from yiem_nb.models import Limits
from yiem_nb.session import JsonlSessionStorage, MessageEntry
limits = Limits(reads_per_second=None, writes_per_second=None)
storage = JsonlSessionStorage.open(sys.argv[1], limits=limits)
random.seed(int(sys.argv[2]))
os.write(1, b"ready\\n")
while True:
    text = "x" * random.choice([10, 1_000, 100_000])
    entry = storage.append_entry(MessageEntry(message=UserMessage(text)))
    os.write(1, entry.id.encode() + b"\\n")
"""


@dataclass
class Report:
    """What a run has shown."""

    kills: int = 0
    acknowledged: int = 0
    lost: int = 0
    torn: int = 0

    def __str__(self):
        return (
            f"{self.kills} kills, {self.acknowledged} acknowledged entries, {self.lost} lost,"
            f" {self.torn} records cut"
        )


def run(folder, count, seed=1):
    """Kill `count` writers, some hundred of them on one file after the other."""
    chance = random.Random(seed)
    report = Report()
    for number in range(count):
        path = folder / f"s{number // 100}.yiem.jsonl"
        if not path.exists():
            path.write_text('{"type":"session","version":3,"id":"s","timestamp":"t","cwd":"/"}\n')
        acknowledged = _one(path, number, chance.uniform(0, 0.03))
        storage = JsonlSessionStorage.open(path, limits=UNLIMITED)
        report.kills += 1
        report.acknowledged += len(acknowledged)
        report.lost += sum(entry_id not in storage.tree for entry_id in acknowledged)
        report.torn += any("was cut" in notice for notice in storage.notices)
        storage.close()
        if number % 100 == 99:
            path.unlink()
    return report


def _one(path, seed, delay):
    """Start a writer, kill it, and return the ids it acknowledged."""
    command = [sys.executable, "-c", WRITER, str(path), str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        assert writer.stdout.readline() == b"ready\n"
        time.sleep(delay)
        os.kill(writer.pid, signal.SIGKILL)
        output = writer.stdout.read()
    # An id without its line end was not acknowledged.
    return output.decode().split("\n")[:-1]
