"""Let each system call fail in turn; memory and disk must agree, or the session says what waits."""

import errno
from collections import Counter
from dataclasses import dataclass, field

from yiem_nb.messages import UserMessage
from yiem_nb.models import Limits
from yiem_nb.session import JsonlSessionStorage, MessageEntry, SessionOptions
from yiem_nb.session.files import OsFiles

UNLIMITED = Limits(reads_per_second=None, writes_per_second=None)
ERRORS = ["ENOSPC", "EIO", "EDQUOT", "EACCES", "EROFS", "EINTR", "short", "zero"]


class FaultyFiles(OsFiles):
    """The real files, of which the calls from number `first` on, `length` of them, fail."""

    def __init__(self, fault, first, length):
        self.fault = fault
        self.failing = range(first, first + length)
        self.calls = 0
        self.failed = Counter()

    def _fails(self, name):
        number = self.calls
        self.calls += 1
        if number in self.failing:
            self.failed[name] += 1
            return True
        return False

    def _call(self, name, *args, **options):
        if self._fails(name) and self.fault not in {"short", "zero"}:
            code = getattr(errno, self.fault)
            raise OSError(code, errno.errorcode[code])
        return getattr(super(), name)(*args, **options)

    def open(self, path, *, write, create):
        return self._call("open", path, write=write, create=create)

    def sync(self, fd):
        return self._call("sync", fd)

    def sync_folder(self, path):
        return self._call("sync_folder", path)

    def make_folder(self, path):
        return self._call("make_folder", path)

    def replace(self, old, new):
        return self._call("replace", old, new)

    def remove(self, path):
        return self._call("remove", path)

    def lock(self, fd):
        return self._call("lock", fd)

    def unlock(self, fd):
        return self._call("unlock", fd)

    def write(self, fd, data):
        if self._fails("write"):
            if self.fault == "zero":
                return 0
            if self.fault == "short":
                return super().write(fd, data[: len(data) // 2 or 1])
            # A disk that is full takes what fits, then nothing.
            if self.fault == "ENOSPC" and len(data) > 1 and self.calls % 2:
                return super().write(fd, data[: len(data) // 3 or 1])
            code = getattr(errno, self.fault)
            raise OSError(code, errno.errorcode[code])
        return super().write(fd, data)


@dataclass
class Report:
    """What a run has shown."""

    scenarios: int = 0
    problems: int = 0
    failed: Counter = field(default_factory=Counter)

    def __str__(self):
        calls = ", ".join(f"{name} {count}" for name, count in sorted(self.failed.items()))
        return (
            f"{self.scenarios} scenarios, {self.problems} of them with a problem shown;"
            f" calls that failed: {calls}"
        )


def run(folder, count, lengths=(1, 2, 7, 10_000)):
    """Run a scenario of `count` entries once per fault, call and length of the trouble."""
    quiet = FaultyFiles("EIO", 0, 0)
    _scenario(folder / "quiet.jsonl", quiet, count)
    report = Report()
    for fault in ERRORS:
        for first in range(quiet.calls):
            length = lengths[first % len(lengths)]
            path = folder / f"{fault}-{first}.jsonl"
            files = FaultyFiles(fault, first, length)
            report.scenarios += 1
            report.problems += _scenario(path, files, count)
            report.failed.update(files.failed)
            path.unlink()
    return report


def _scenario(path, files, count):
    """Append while calls fail, then let them succeed; return whether trouble was shown."""
    storage = JsonlSessionStorage.create(
        SessionOptions(path), limits=UNLIMITED, durability="turn", files=files
    )
    troubled = False
    entries = []
    for number in range(count):
        entries.append(storage.append_entry(MessageEntry(message=UserMessage(f"{number}" * 20))))
        if number % 5 == 4:
            storage.sync()
        troubled = troubled or storage.problem is not None
        _agree(storage, path, entries)
    files.failing = range(0)
    entries.append(storage.append_entry(MessageEntry(message=UserMessage("space returned"))))
    assert storage.pending == 0
    assert storage.problem is None
    storage.close()
    again = JsonlSessionStorage.open(path, limits=UNLIMITED)
    assert again.get_path() == entries
    assert again.get_metadata() == storage.get_metadata()
    again.close()
    return troubled


def _agree(storage, path, entries):
    """Memory has all; the disk has all but what is said to wait."""
    assert storage.get_path() == entries
    if storage.pending:
        assert storage.problem is not None
        assert f"({storage.pending} entr" in storage.problem
    saved = len(entries) - storage.pending
    on_disk = path.read_bytes() if path.exists() else b""
    assert [entry.id.encode() + b'","parentId"' in on_disk for entry in entries[:saved]] == [
        True
    ] * saved
