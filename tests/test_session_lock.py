"""One kernel writes a session, and the others know which."""

import os
import signal
import subprocess
import sys

from yiem_nb.session import SessionLock

HOLDER = """
import sys, time
from pathlib import Path
from yiem_nb.session import SessionLock
lock = SessionLock(Path(sys.argv[1]), Path(sys.argv[2]), "first.ipynb")
print(lock.acquire(), flush=True)
time.sleep(60)
"""


def test_the_second_is_told_who_the_first_is_until_the_first_dies(tmp_path):
    session, folder = tmp_path / "s.yiem.jsonl", tmp_path / "locks"
    command = [sys.executable, "-c", HOLDER, str(session), str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as first:
        assert first.stdout.readline() == b"True\n"
        second = SessionLock(session, folder)

        assert not second.acquire()
        assert not second.is_mine()
        assert second.owner().pid == first.pid
        assert str(second.owner()).startswith(f"first.ipynb (process {first.pid}) on ")

        os.kill(first.pid, signal.SIGKILL)
    assert second.acquire()
    assert second.is_mine()
    assert second.owner().pid == os.getpid()
    assert str(second.owner()).startswith(f"process {os.getpid()} on ")
    second.release()
    assert second.owner() is None


def test_whoever_was_taken_over_finds_out(tmp_path):
    first = SessionLock(tmp_path / "s", tmp_path)
    second = SessionLock(tmp_path / "s", tmp_path)
    assert first.acquire()
    second.take_over()

    assert not first.is_mine()
    assert second.is_mine()
    first.release()
    assert second.is_mine()
    assert second.acquire()
    second.release()
    second.release()


def test_sessions_have_locks_of_their_own_and_links_share_one(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "a")
    first = SessionLock(tmp_path / "a", tmp_path)
    second = SessionLock(tmp_path / "b", tmp_path)

    assert first.acquire()
    assert second.acquire()
    assert not SessionLock(tmp_path / "link", tmp_path).acquire()
    assert first.path.stat().st_mode & 0o777 == 0o600


def test_a_damaged_record_names_nobody(tmp_path):
    lock = SessionLock(tmp_path / "s", tmp_path)
    for content in (b"", b"{", b"[]", b'{"odd": 1}'):
        lock.path.write_bytes(content)
        assert lock.owner() is None
        assert lock.acquire()
        assert lock.is_mine()
