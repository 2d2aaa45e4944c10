"""Damage files in every way that comes to mind; each must open, soon, and stay as it is."""

import random
import time
from dataclasses import dataclass

from yiem_nb.messages import AssistantMessage, UserMessage
from yiem_nb.models import Limits
from yiem_nb.session import (
    CustomEntry,
    JsonlSessionStorage,
    LabelEntry,
    MessageEntry,
    SessionOptions,
    build_context,
)

UNLIMITED = Limits(reads_per_second=None, writes_per_second=None)


@dataclass
class Report:
    """What a run has shown."""

    files: int = 0
    intact: int = 0
    recovered: int = 0
    cut_intact: int = 0
    cut_recovered: int = 0
    changed: int = 0
    slowest: float = 0.0

    def __str__(self):
        return (
            f"{self.files} files, {self.changed} changed, slowest {self.slowest * 1000:.0f} ms,"
            f" intact lines recovered: {self.cut_recovered} of {self.cut_intact} after truncation,"
            f" {self.recovered} of {self.intact} otherwise"
        )


def run(folder, count, seed=1):
    """Open `count` damaged files; a raised exception ends the run."""
    chance = random.Random(seed)
    whole = _sample(folder)
    lines = set(whole.split(b"\n"))
    path = folder / "fuzzed.jsonl"
    report = Report()
    for number in range(count):
        damage = DAMAGES[number % len(DAMAGES)]
        content = damage(whole, chance)
        path.write_bytes(content)
        started = time.perf_counter()
        found = _read_all(path)
        report.slowest = max(report.slowest, time.perf_counter() - started)
        report.files += 1
        report.changed += path.read_bytes() != content
        # A line that is in the file as it was written is intact.
        intact = {_id(line) for line in content.split(b"\n") if line in lines and b'"id"' in line}
        recovered = len(intact & found)
        if damage is _cut:
            report.cut_intact += len(intact)
            report.cut_recovered += recovered
        else:
            report.intact += len(intact)
            report.recovered += recovered
    return report


def _sample(folder):
    """Write a session of two hundred entries and return its bytes."""
    with JsonlSessionStorage.create(
        SessionOptions(folder / "s.jsonl"), limits=UNLIMITED
    ) as storage:
        for number in range(50):
            prompt = storage.append_entry(
                MessageEntry(message=UserMessage(f"{number} é \u2028 😀"), cell_id=f"c{number % 7}")
            )
            storage.append_entry(MessageEntry(message=AssistantMessage("ja " * number)))
            storage.append_entry(CustomEntry(data={"type": "x", "id": "y", "list": [[number]]}))
            storage.append_entry(LabelEntry(target_id=prompt.id, label="l"))
            if number % 9 == 8:
                storage.set_leaf_id(prompt.id)
    return storage.path.read_bytes()


def _read_all(path):
    """Open a file and look at everything in it; return the ids that are there."""
    with JsonlSessionStorage.open(path, limits=UNLIMITED) as storage:
        entries = storage.get_entries()
        build_context(storage.tree, storage.get_leaf_id())
        storage.tree.labels()
        storage.get_session_stats()
        # The header is an intact line too, and is no entry.
        return {entry.id for entry in entries} | {storage.get_metadata().id}


def _id(line):
    return line.partition(b'"id":"')[2].partition(b'"')[0].decode()


def _cut(whole, chance):
    return whole[: chance.randrange(len(whole) + 1)]


def _flip(whole, chance):
    data = bytearray(whole)
    for _ in range(chance.randint(1, 8)):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(data)


def _splice(whole, chance):
    start, end = sorted(chance.randrange(len(whole)) for _ in range(2))
    at = chance.randrange(len(whole))
    return whole[:at] + whole[start:end] + whole[at:]


def _drop(whole, chance):
    start = chance.randrange(len(whole))
    return whole[:start] + whole[start + chance.randint(1, 2_000) :]


def _fuse(whole, chance):
    lines = whole.split(b"\n")
    at = chance.randrange(len(lines) - 1)
    lines[at : at + 2] = [lines[at] + lines[at + 1]]
    return b"\n".join(lines)


def _zeros(whole, chance):
    return _cut(whole, chance) + b"\0" * chance.randint(1, 5_000)


def _shuffle(whole, chance):
    lines = whole.split(b"\n")
    chance.shuffle(lines)
    return b"\n".join(lines)


def _noise(whole, chance):
    at = chance.randrange(len(whole))
    return whole[:at] + chance.randbytes(chance.randint(1, 200)) + whole[at:]


def _rewire(whole, chance):
    """Let many entries have the parents, or the ids, of others."""
    ids = [_id(line).encode() for line in whole.split(b"\n") if b'"parentId"' in line]
    data = whole
    for _ in range(chance.randint(1, 5)):
        name = chance.choice([b'"parentId":"', b'"id":"'])
        data = data.replace(name + chance.choice(ids), name + chance.choice(ids), 1)
    return data


DAMAGES = [_cut, _flip, _splice, _drop, _fuse, _zeros, _shuffle, _noise, _rewire]
