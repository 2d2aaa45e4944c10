"""By what right a kernel writes its session: as its owner, in a fork, or not at all.

One kernel owns a session. Another one that opens it has a view, which follows what the owner
appends; with its first prompt it goes on in a fork of its own and says so. So does a kernel that
notices, before an append, that another one took over. A session that is not in the user's ledger
is a view as well, until a person takes it on (issue 4; reliability 3.3).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

from yiem_nb.errors import CommandError, ErrorCode, SessionError, YiemError
from yiem_nb.instructions import SYSTEM_PROMPT_VERSION
from yiem_nb.kernel.notebook import session_path, stray_session_path
from yiem_nb.kernel.opening import find_session
from yiem_nb.kernel.report import Report
from yiem_nb.kernel.rescue import Rescue
from yiem_nb.session import (
    JsonlSessionStorage,
    Ledger,
    LedgerLine,
    Session,
    SessionLock,
    SessionOptions,
    ThinkingLevelChangeEntry,
)
from yiem_nb.session.files import NoFiles
from yiem_nb.session.foreign import mark_foreign
from yiem_nb.session.git import git_notice
from yiem_nb.session.log import free_name

__all__ = ["Tenure"]

#: The header's metadata of a session that is written instead of another: its id, and for whom.
_INSTEAD = "insteadOf"
_MOST_FORKS = 100

#: What a session is to this kernel.
Right = Literal["own", "held", "foreign", "closed"]


class Tenure:
    """The session of a kernel, and the claim on it.

    Parameters
    ----------
    notebook
        The kernel's notebook, or ``None``.
    ledger
        The user's own sessions.
    locks
        The folder of all claims.
    kernel
        What names this kernel also after a restart; empty where nothing does.

    Attributes
    ----------
    storage
        Where the conversation is now.
    news
        What people are to be told before anything else: that this is not the session they expect.
    notices
        What they are told after an answer. Whoever tells them empties both.
    """

    def __init__(
        self,
        notebook: Path | None,
        ledger: Ledger,
        locks: Path,
        kernel: str = "",
        *,
        private: bool = False,
    ) -> None:
        self.notebook = notebook
        self.news: list[str] = []
        self.notices: list[str] = []
        self._ledger, self._locks, self._kernel = ledger, locks, kernel
        self._lock: SessionLock | None = None
        #: The session that this one is written instead of.
        self._original: Path | None = None
        self._file: JsonlSessionStorage | None = None
        self._rescue = Rescue()
        self._report = Report()
        self.right: Right = "own"
        self.storage = self._in_memory(self._look()) if private else self._open()
        self.private = private
        self._heard = (self.storage, 0)

    # --- Opening -----------------------------------------------------------------------

    def _open(self) -> JsonlSessionStorage:
        if self.notebook is None:
            path = stray_session_path()
            storage = self._create(path)
            self.notices.append(f"This kernel belongs to no notebook; the session is {path}")
            return storage
        found = find_session(self.notebook, self._ledger)
        if found.said:
            self.news.append(found.said)
        if found.how == "new":
            return self._create(found.path)
        if found.how == "copy" and found.source is not None:
            with JsonlSessionStorage.open(found.source) as source:
                named = {"notebook": self.notebook.name}
                return self._fork(source, found.path, named, source.get_leaf_id())
        return self._reach(found.path)

    def _reach(self, path: Path) -> JsonlSessionStorage:
        """Open a session that is there, and find out what it is to this kernel."""
        storage = JsonlSessionStorage.open(path)
        if storage.read_only is not None:
            self.right = "closed"
        elif self._is_foreign(storage):
            self.right = "foreign"
        else:
            self.right = "own" if self._claim(path) else "held"
        if self.right == "own":
            self._goes_on_in(storage)
            return storage
        mine = self._instead(storage)
        return mine if mine is not None else storage

    def _is_foreign(self, storage: JsonlSessionStorage) -> bool:
        return len(storage.tree) > 0 and storage.get_metadata().id not in self._ledger

    def _instead(self, storage: JsonlSessionStorage) -> JsonlSessionStorage | None:
        """Find the session that this kernel, or any before it, wrote instead of this one."""
        wanted = self._instead_of(storage)
        path = storage.path
        for number in range(2, _MOST_FORKS):
            beside = path.with_name(f"{path.name.removesuffix('.yiem.jsonl')}.{number}.yiem.jsonl")
            try:
                mine = JsonlSessionStorage.open(beside)
            except YiemError:
                return None
            told = mine.get_metadata()
            if (
                told.metadata.get(_INSTEAD) == wanted
                and told.id in self._ledger
                and mine.read_only is None
                and self._claim(beside)
            ):
                self._say_why(storage, f"going on in {beside.name}")
                self._original, self.right = storage.path, "own"
                self._report.goes_on_in(mine)
                storage.close()
                return mine
            mine.close()
        return None

    def _instead_of(self, storage: JsonlSessionStorage) -> dict[str, str]:
        """Say instead of what a session is written: for all kernels, or for this one alone."""
        told = {"session": storage.get_metadata().id, "right": self.right}
        return told | ({"kernel": self._kernel} if self.right == "held" else {})

    def _create(self, path: Path, instead: dict[str, str] | None = None) -> JsonlSessionStorage:
        metadata: dict[str, Any] = {"program": "yiem_nb", "promptVersion": SYSTEM_PROMPT_VERSION}
        if self.notebook is not None:
            metadata["notebook"] = self.notebook.name
        if instead is not None:
            metadata[_INSTEAD] = instead
        storage = JsonlSessionStorage.create(SessionOptions(path=str(path), metadata=metadata))
        if self.notebook is not None and (said := git_notice(path)):
            self.notices.append(said)
        self._owns(storage)
        return storage

    def _fork(
        self,
        storage: JsonlSessionStorage,
        path: Path,
        metadata: dict[str, Any],
        leaf: str | None,
    ) -> JsonlSessionStorage:
        forked = Session(storage).fork(path, everything=True, metadata=metadata).storage
        forked.set_leaf_id(leaf)
        self._owns(forked)
        return forked

    def _owns(self, storage: JsonlSessionStorage) -> None:
        self.right = "own"
        self._claim(storage.path)
        self._goes_on_in(storage)

    # --- Claims ------------------------------------------------------------------------

    def _claim(self, path: Path) -> bool:
        """Become the owner of a session, unless another one is."""
        lock = self._lock_of(path)
        try:
            mine = lock.acquire()
        except OSError:
            # No record can be kept; the appends are safe all the same.
            return True
        if not mine:
            lock.release()
            return False
        self._let_go()
        self._lock = lock
        return True

    def _lock_of(self, path: Path) -> SessionLock:
        about = self.notebook.name if self.notebook is not None else ""
        return SessionLock(path, self._locks, about)

    def _let_go(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _goes_on_in(self, storage: JsonlSessionStorage) -> None:
        self._note(storage)
        self._report.goes_on_in(storage)

    def _note(self, storage: JsonlSessionStorage, *, leaf: bool = False) -> None:
        """Write down that this session is the user's own and where it is."""
        notebook = str(self.notebook) if self.notebook is not None else ""
        where = storage.get_leaf_id() if leaf else None
        line = LedgerLine(storage.get_metadata().id, str(storage.path), notebook, where)
        if self._ledger.lines().get(line.session) != line:
            self._ledger.add(line)

    # --- Writing -----------------------------------------------------------------------

    def writable(self) -> JsonlSessionStorage:
        """Return where the conversation goes on; asked before each append, on the writer's thread."""
        if self.private:
            return self.storage
        if self.right == "own" and self._lock is not None and not self._lock.is_mine():
            self.right = "held"
        if self.right != "own":
            self.storage = self._leave(self.storage)
        return self.storage

    def _leave(self, storage: JsonlSessionStorage) -> JsonlSessionStorage:
        """Go on beside a session that this kernel may not write."""
        storage.refresh()
        # One that only looked follows the owner; one that wrote stays where it was.
        leaf = storage.get_leaf_id() if self._lock is not None else storage.tree.leaf
        path = free_name(storage.path)
        instead = self._instead_of(storage)
        if self.right == "held":
            self._say_why(storage, f"going on in a copy, {path.name}")
            self.news.append("%yiem session takeover goes on in the original instead.")
            self._let_go()
            mine = self._fork(storage, path, {_INSTEAD: instead}, leaf)
        else:
            self._say_why(storage, f"a new conversation begins in {path.name}")
            mine = self._create(path, instead)
        self._original = storage.path
        storage.close()
        return mine

    def _say_why(self, storage: JsonlSessionStorage, what: str) -> None:
        name = storage.path.name
        if self.right == "held":
            owner = self._lock_of(storage.path).owner()
            why = f"{name} is open in {owner or 'another kernel'}"
        elif self.right == "foreign":
            why = f"{name} was written elsewhere and is left as it is"
        else:
            why = f"{name} is left as it is: {storage.read_only}"
        self.news.append(f"{why}; {what}.")

    def holder(self) -> str:
        """Say who writes the session that is looked at here; empty where this kernel may."""
        match self.right:
            case "held":
                owner = self._lock_of(self.storage.path).owner()
                return f"read-only here: open in {owner or 'another kernel'}"
            case "foreign":
                return (
                    "read-only here: written elsewhere; the next prompt asks whether to go on in it"
                )
            case "closed":
                return f"read-only: {self.storage.read_only}"
            case _:
                return ""

    def happened(self) -> list[str]:
        """Say what became of the file since this was asked last."""
        heard, self._heard = self._heard, (self.storage, len(self.storage.notices))
        return self.storage.notices[heard[1] if heard[0] is self.storage else 0 :]

    def saving(self) -> str:
        """Say after a turn what is not saved, and once that it is again."""
        if self.private:
            return ""
        if self.right == "own":
            self._report.goes_on_in(self.storage)
        return self._rescue.look(self.storage)

    def adopt(self, storage: JsonlSessionStorage) -> None:
        """Write down that a copy somebody made here is the user's own."""
        self._note(storage)

    def close(self) -> None:
        """Write down where the session stood, and let go of it; say what could not be saved."""
        self.end_privacy(closing=True)
        storage = self.storage
        storage.close()
        if self.right == "own" and not self.private:
            if storage.pending:
                self._rescue.give_up(storage)
            else:
                self._rescue.look(storage)
                self._note(storage, leaf=True)
        self._let_go()

    # --- What people decide ------------------------------------------------------------

    @property
    def question(self) -> str:
        """What to ask before a foreign session is continued; empty where nothing is."""
        if self.right != "foreign" or self.private:
            return ""
        messages = self.storage.get_session_stats().message_count
        return (
            f"? {self.storage.path.name} was not written by you here: {messages} messages that the"
            " model would read as data. Go on in it? [y; n begins a session of your own] "
        )

    def admit(self) -> None:
        """Take a foreign session on: a person has said so."""
        storage = self.storage
        self.right = "own" if self._claim(storage.path) else "held"
        if self.right == "own":
            mark_foreign(storage)
            # What a file asks for costs nobody anything.
            storage.append_entry(ThinkingLevelChangeEntry(thinking_level="off"))
            self._goes_on_in(storage)

    def take_over(self) -> str:
        """Own the original, bring what the fork holds alone home, and go on there.

        Raises
        ------
        CommandError
            Nobody else has it.
        SessionError
            The original is gone, or may not be written.
        """
        if self.private or (self._original is None and self.right != "held"):
            raise CommandError("This kernel writes its own session already.", hint="Just ask.")
        path = self._original if self._original is not None else self.storage.path
        with JsonlSessionStorage.open(path) as looked:
            if looked.read_only is not None or self._is_foreign(looked):
                why = looked.read_only or "it was written elsewhere"
                raise SessionError(
                    f"{path.name} cannot be taken over: {why}.", code=ErrorCode.SESSION_READ_ONLY
                )
        lock = self._lock_of(path)
        owner = lock.owner()
        lock.take_over()
        fork = self.storage
        home = JsonlSessionStorage.open(path)
        brought = 0
        if self._original is not None:
            brought = _bring_home(fork, home)
        fork.close()
        self._let_go()
        self._lock, self.storage, self._original, self.right = lock, home, None, "own"
        self._goes_on_in(home)
        said = f"taken over from {owner}" if owner is not None else "taken over"
        rest = f"; {brought} entries of {fork.path.name} are in it now" if brought else ""
        return (
            f"{path.name}: {said}{rest}. The other kernel goes on in a copy with its next prompt."
        )

    # --- Privacy -----------------------------------------------------------------------

    def begin_privacy(self) -> None:
        """Go on in memory, from here; nothing is written until it ends."""
        if not self.private:
            self._file, self.private = self.storage, True
            self.storage = self._in_memory(self.storage if self.right != "foreign" else None)

    def end_privacy(self, *, closing: bool = False) -> None:
        """Go on in the file, from where it was; what was said meanwhile is gone."""
        if not self.private:
            return
        if self._file is not None:
            self.storage.close()
            self.storage, self._file, self.private = self._file, None, False
        elif not closing:
            self.storage.close()
            self.storage, self.private = self._open(), False

    def _in_memory(self, seen: JsonlSessionStorage | None) -> JsonlSessionStorage:
        """Begin a session that no file will ever be made of, with what was said so far."""
        # Beside the session, so that what lies out of line is found.
        folder = self.notebook.parent if self.notebook is not None else Path.cwd()
        path = free_name((seen.path.parent if seen is not None else folder) / "private.yiem.jsonl")
        if seen is None:
            options = SessionOptions(path=str(path))
            storage = JsonlSessionStorage.create(options, files=NoFiles())
        else:
            storage = Session(seen).fork(path, everything=True, files=NoFiles()).storage
            storage.set_leaf_id(seen.get_leaf_id())
        storage.in_memory = True
        return storage

    def _look(self) -> JsonlSessionStorage | None:
        """Open what is there without a trace, for a conversation that leaves none."""
        path = session_path(self.notebook) if self.notebook is not None else None
        if path is None or not os.path.lexists(path):
            return None
        storage = JsonlSessionStorage.open(path)
        return None if self._is_foreign(storage) else storage


def _bring_home(fork: JsonlSessionStorage, home: JsonlSessionStorage) -> int:
    """Append to the original what a fork of it holds alone: a branch there, with the same ids."""
    entries = [fork.tree.whole(entry_id) for entry_id in fork.tree if entry_id not in home.tree]
    home.append_entries(entries)
    home.set_leaf_id(fork.get_leaf_id())
    return len(entries)
