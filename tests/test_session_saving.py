"""A disk that takes nothing: the conversation goes on, says so, and is saved when that is over."""

from __future__ import annotations

import errno
import fcntl
from pathlib import Path

import pytest
from tests.durability.faults import FaultyFiles
from yiem_nb.agent import Agent, AgentOptions
from yiem_nb.kernel.rescue import Rescue
from yiem_nb.kernel.tenure import Tenure
from yiem_nb.messages import AssistantMessage, UserMessage
from yiem_nb.models import Limits, Model
from yiem_nb.session import (
    JsonlSessionStorage,
    Ledger,
    MessageEntry,
    SessionLock,
    SessionOptions,
    build_context,
)
from yiem_nb.session.journal import SessionJournal

UNLIMITED = Limits(reads_per_second=None, writes_per_second=None)


def say(storage: JsonlSessionStorage, words: str) -> None:
    storage.append_entry(MessageEntry(message=UserMessage(words)))


def texts(storage: JsonlSessionStorage) -> list[str]:
    context = build_context(storage.tree, storage.get_leaf_id())
    return [message.text for message in context.messages]


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("ENOSPC", "the disk is full"),
        ("EROFS", "the file system is read-only"),
        ("EACCES", "writing is not permitted there"),
        ("EIO", "the disk reports an error"),
    ],
)
def test_what_cannot_be_saved_is_told_kept_elsewhere_and_saved_at_last(
    fault: str, why: str, tmp_path: Path
) -> None:
    files = FaultyFiles(fault, 0, 0)
    options = SessionOptions(tmp_path / "n.yiem.jsonl")
    storage = JsonlSessionStorage.create(options, limits=UNLIMITED, files=files)
    rescue = Rescue()
    say(storage, "one")
    assert rescue.look(storage) == ""

    files.failing = range(files.calls, 1_000_000)
    say(storage, "two")
    said = rescue.look(storage)
    elsewhere = tmp_path / "state" / "yiem_nb" / "unsaved" / "n.yiem.jsonl"
    assert said == f"not saved: {why} (1 entry pending); a copy is kept in {elsewhere}"
    say(storage, "three")
    assert rescue.look(storage) == f"not saved: {why} (2 entries pending)"
    with JsonlSessionStorage.open(elsewhere) as copy:
        assert texts(copy) == ["one", "two", "three"]
        assert copy.notices == []

    files.failing = range(0)
    say(storage, "four")
    assert rescue.look(storage) == "saved again: all of it is in n.yiem.jsonl"
    assert rescue.look(storage) == ""
    assert not elsewhere.exists()
    storage.close()
    with JsonlSessionStorage.open(options.path) as again:
        assert texts(again) == ["one", "two", "three", "four"]


def test_at_the_end_it_is_said_what_is_not_saved(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tenure = Tenure(tmp_path / "n.ipynb", Ledger(tmp_path / "ledger"), tmp_path / "locks")
    say(tenure.writable(), "one")

    def full(fd: int, data: memoryview) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr("yiem_nb.session.files.os.write", full)
    say(tenure.writable(), "two")
    say(tenure.writable(), "three")
    # Not even the folder for copies has room.
    assert tenure.saving() == "not saved: the disk is full (2 entries pending)"
    tenure.close()

    said = capfd.readouterr().err
    assert said == f"yiem: 2 entries of {tmp_path / 'n.yiem.jsonl'} could not be saved; nowhere.\n"


# --- Others --------------------------------------------------------------------------------


async def test_what_others_append_is_merged_and_the_agent_stays_on_its_branch(
    tmp_path: Path,
) -> None:
    path = tmp_path / "n.yiem.jsonl"
    storage = JsonlSessionStorage.create(SessionOptions(path), limits=UNLIMITED)
    journal = SessionJournal(storage)
    asked = []

    async def stream(model, context, thinking_level, signal):  # type: ignore[no-untyped-def]
        asked.append([message.text for message in context.messages])
        with JsonlSessionStorage.open(path, limits=UNLIMITED) as other:
            say(other, f"from elsewhere {len(asked)}")
        yield AssistantMessage(f"answer {len(asked)}")

    agent = Agent(AgentOptions(model=Model(id="m")), stream, journal)
    await agent.prompt("first")
    await agent.prompt("second")
    journal.close()

    assert asked == [["first"], ["first", "answer 1", "second"]]
    with JsonlSessionStorage.open(path, limits=UNLIMITED) as again:
        assert texts(again) == ["first", "answer 1", "second", "answer 2"]
        assert [m.text for m in agent.state.messages] == texts(again)
        everything = [e.message.text for e in again.find_entries("message")]
        assert {"from elsewhere 1", "from elsewhere 2"} <= set(everything)
        assert again.notices == []


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_where_the_file_system_has_no_locks_the_record_is_a_lease(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    def no_locks(fd: int, operation: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    first = SessionLock(tmp_path / "s", tmp_path, "n.ipynb")
    second = SessionLock(tmp_path / "s", tmp_path, "m.ipynb")
    assert first.acquire()
    assert first.acquire()
    assert not second.acquire()
    assert first.is_mine()
    second.take_over()
    assert not first.is_mine()
    assert not first.acquire()
    second.release()
    assert first.acquire()
    # On another host nobody can look for the process; there the record ages.
    monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
    third = SessionLock(tmp_path / "s", tmp_path)
    assert not third.acquire()
    os.utime(first.path, (0, 0))
    assert third.acquire()


def test_a_third_kernel_does_not_get_what_the_second_has_taken_over(tmp_path: Path) -> None:
    first, second, third = (SessionLock(tmp_path / "s", tmp_path) for _ in range(3))
    assert first.acquire()
    second.take_over()
    first.release()
    assert not third.acquire()
    assert second.is_mine()
    second.release()
    assert third.acquire()
    third.release()


def test_without_a_folder_for_claims_a_kernel_writes_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "locks").write_text("in the way")
    ledger = Ledger(tmp_path / "locks" / "ledger")
    tenure = Tenure(tmp_path / "n.ipynb", ledger, tmp_path / "locks")
    say(tenure.writable(), "one")
    assert texts(tenure.storage) == ["one"]
    tenure.close()
