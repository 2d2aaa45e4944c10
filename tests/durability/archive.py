"""Purge and export damaged files; none may raise, and no other entry may be lost."""

import random
from dataclasses import dataclass

from tests.durability.fuzz import DAMAGES, _sample
from yiem_nb.errors import SessionError
from yiem_nb.session.export import export
from yiem_nb.session.purge import carry_out, plan_purge
from yiem_nb.session.reading import reading
from yiem_nb.session.traces import matcher

WORDS = ["1 é", "ja ja", "yiem", "type", "\u2028 😀"]


@dataclass
class Report:
    """What a run has shown."""

    files: int = 0
    purged: int = 0
    emptied: int = 0
    lost: int = 0
    left: int = 0
    exported: int = 0

    def __str__(self):
        return (
            f"{self.files} damaged files: {self.exported} exports, {self.purged} purged,"
            f" {self.files - self.purged} refused and unchanged; {self.emptied} entries emptied,"
            f" {self.lost} others lost or changed, {self.left} files that hold it still"
        )


def run(folder, count, seed=1):
    """Export and purge `count` damaged files; a raised exception ends the run."""
    chance = random.Random(seed)
    whole = _sample(folder)
    path = folder / "fuzzed.jsonl"
    report = Report()
    for number in range(count):
        path.write_bytes(DAMAGES[number % len(DAMAGES)](whole, chance))
        report.files += 1
        report.exported += _export(path, chance)
        _purge(path, chance.choice(WORDS), folder / "locks", report)
    return report


def _export(path, chance):
    format, branches = chance.choice(["html", "md"]), chance.choice(["path", "all"])
    with reading(path, any_file=True) as session:
        leaf = session.tree.leaf
        return bool(export(session.tree, leaf, format=format, branches=branches))


def _purge(path, word, locks, report):
    before, lines = path.read_bytes(), _lines(path)
    try:
        # What holds nothing of a session, as a file cut off at its beginning, is refused.
        plan = plan_purge(path, matches=matcher(word))
        carry_out(plan, locks=locks)
    except SessionError:
        report.lost += path.read_bytes() != before
        return
    report.purged += 1
    report.emptied += len(plan.entries)
    gone = {entry.id for entry in plan.entries}
    after = _lines(path)
    report.lost += list(after) != list(lines)
    report.lost += sum(
        after.get(entry_id) != line
        for entry_id, line in lines.items()
        if entry_id.partition("~")[0] not in gone
    )
    report.left += bool(plan_purge(path, matches=matcher(word)).edits)


def _lines(path):
    """Map all entries to their bytes."""
    with reading(path, any_file=True) as session:
        index = session.index
        return {one: index.line(index.tree.position(one)) for one in index.tree}
