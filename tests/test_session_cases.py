"""What becomes of a conversation when its notebook or its session file goes elsewhere: 24 cases.

Each row: what happens to which file, whether the kernel runs meanwhile, what one sentence says, and
what of the three exchanges ("one" and "two" before, "three" after) is where.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from yiem_nb.kernel.page import Page
from yiem_nb.kernel.tenure import Tenure
from yiem_nb.messages import UserMessage
from yiem_nb.session import JsonlSessionStorage, Ledger, LedgerLine, MessageEntry

pytestmark = pytest.mark.requirement("SPEC-4.2")

CELLS = ("0badcafe", "1badcafe")
OTHERS = ("2feedbee", "3feedbee")


def page(path: Path, cells: tuple[str, ...] = CELLS) -> None:
    """Save a notebook, as something that is not Jupyter does: a new file of the same name."""
    told = {"cells": [{"cell_type": "code", "id": cell, "source": ""} for cell in cells]}
    path.parent.mkdir(exist_ok=True)
    fresh = path.with_suffix(".fresh")
    fresh.write_text(json.dumps(told | {"nbformat": 4}))
    fresh.replace(path)


def move(source: Path, target: Path) -> None:
    target.parent.mkdir(exist_ok=True)
    source.replace(target)


def copy(source: Path, target: Path) -> None:
    target.parent.mkdir(exist_ok=True)
    shutil.copyfile(source, target)


def put_back(folder: Path, name: str) -> None:
    (folder / f"{name}.new").write_bytes((folder / "backup" / name).read_bytes())
    (folder / f"{name}.new").replace(folder / name)


def other_session(folder: Path) -> None:
    """Put another session of the same user where this one was."""
    ledger = Ledger(folder / "ledger")
    page(folder / "other.ipynb", OTHERS)
    tenure = Tenure(folder / "other.ipynb", ledger, folder / "locks")
    say(tenure, "other", OTHERS[0])
    tenure.close()
    (folder / "other.yiem.jsonl").replace(folder / "n.yiem.jsonl")


NOTEBOOK: dict[str, Callable[[Path], Path]] = {
    "deleted": lambda at: ((at / "n.ipynb").unlink(), at / "n.ipynb")[1],
    "replaced": lambda at: (page(at / "n.ipynb", OTHERS), at / "n.ipynb")[1],
    "renamed": lambda at: (move(at / "n.ipynb", at / "m.ipynb"), at / "m.ipynb")[1],
    "moved": lambda at: (move(at / "n.ipynb", at / "sub" / "n.ipynb"), at / "sub/n.ipynb")[1],
    "copied": lambda at: (copy(at / "n.ipynb", at / "m.ipynb"), at / "m.ipynb")[1],
    "restored": lambda at: (put_back(at, "n.ipynb"), at / "n.ipynb")[1],
}
SESSION: dict[str, Callable[[Path], Any]] = {
    "deleted": lambda at: (at / "n.yiem.jsonl").unlink(),
    "replaced": other_session,
    "renamed": lambda at: move(at / "n.yiem.jsonl", at / "m.yiem.jsonl"),
    "moved": lambda at: move(at / "n.yiem.jsonl", at / "sub" / "n.yiem.jsonl"),
    "copied": lambda at: copy(at / "n.yiem.jsonl", at / "sub" / "n.yiem.jsonl"),
    "restored": lambda at: put_back(at, "n.yiem.jsonl"),
}

# what, how, said (nothing differs where it is empty), where all is afterwards
RUNNING = [
    ("notebook", "deleted", "n.ipynb is no longer in", {"n": "one two three"}),
    ("notebook", "replaced", "n.ipynb is another notebook than before", {"n": "one two three"}),
    ("notebook", "renamed", "n.ipynb is now called m.ipynb", {"n": "one two three"}),
    ("notebook", "moved", "n.ipynb is no longer in", {"n": "one two three"}),
    ("notebook", "copied", "", {"n": "one two three"}),
    ("notebook", "restored", "", {"n": "one two three"}),
    ("session", "deleted", "the session file was deleted; its", {"n": "one two three"}),
    (
        "session", "replaced", "the session file was replaced; its",
        {"n": "other", "n.2": "one two three"},
    ),
    ("session", "renamed", "the session file was renamed; going on in", {"m": "one two three"}),
    ("session", "moved", "the session file was renamed; going on in", {"sub/n": "one two three"}),
    ("session", "copied", "", {"n": "one two three", "sub/n": "one two"}),
    (
        "session", "restored", "the session file was replaced; its",
        {"n": "one", "n.2": "one two three"},
    ),
]  # fmt: skip
STOPPED = [
    # Whoever has a notebook of that name later goes on in the session that lies there.
    ("notebook", "deleted", "", {"n": "one two three"}),
    ("notebook", "replaced", "n.ipynb is another notebook than before", {"n": "one two three"}),
    ("notebook", "renamed", "m.ipynb was renamed from n.ipynb; going on", {"n": "one two three"}),
    ("notebook", "moved", "n.ipynb was moved from", {"n": "one two three"}),
    (
        "notebook", "copied", "m.ipynb is a copy of",
        {"n": "one two", "m": "one two three"},
    ),
    ("notebook", "restored", "", {"n": "one two three"}),
    ("session", "deleted", "n.yiem.jsonl is no longer there, so a new session", {"n": "three"}),
    ("session", "replaced", "n.yiem.jsonl is another session than last", {"n": "other three"}),
    ("session", "renamed", "n.yiem.jsonl is now called m.yiem.jsonl", {"m": "one two three"}),
    (
        "session", "moved", "n.yiem.jsonl is no longer there, so a new session",
        {"n": "three", "sub/n": "one two"},
    ),
    ("session", "copied", "", {"n": "one two three", "sub/n": "one two"}),
    ("session", "restored", "n.yiem.jsonl is an older state than", {"n": "one three"}),
]  # fmt: skip


def say(tenure: Tenure, words: str, cell: str) -> None:
    tenure.writable().append_entry(MessageEntry(message=UserMessage(words), cell_id=cell))


def begin(at: Path) -> Tenure:
    """Two exchanges in a session; a backup was made after the first."""
    page(at / "n.ipynb")
    tenure = Tenure(at / "n.ipynb", Ledger(at / "ledger"), at / "locks")
    say(tenure, "one", CELLS[0])
    (at / "backup").mkdir()
    for name in ("n.ipynb", "n.yiem.jsonl"):
        copy(at / name, at / "backup" / name)
    say(tenure, "two", CELLS[1])
    return tenure


def kept(at: Path) -> dict[str, str]:
    """What each session file says."""
    found = {}
    for path in sorted(at.rglob("*.yiem.jsonl")):
        name = str(path.relative_to(at)).removesuffix(".yiem.jsonl")
        with JsonlSessionStorage.open(path) as storage:
            entries = [storage.tree.entry(one) for one in storage.tree]
        said = [one.message.text for one in entries if isinstance(one, MessageEntry)]
        found[name] = " ".join(said)
    found.pop("backup/n")
    return found


@pytest.mark.parametrize(
    ("what", "how", "said", "where"), RUNNING, ids=[f"{row[0]} {row[1]}" for row in RUNNING]
)
def test_while_the_kernel_runs(
    what: str, how: str, said: str, where: dict[str, str], tmp_path: Path
) -> None:
    tenure = begin(tmp_path)
    seen = Page(tmp_path / "n.ipynb")
    seen.order()
    (NOTEBOOK if what == "notebook" else SESSION)[how](tmp_path)

    say(tenure, "three", CELLS[1])
    seen.order()
    told = [*tenure.news, *seen.news, *tenure.happened()]

    assert len(told) == bool(said), told
    assert all(line.startswith(said) for line in told), told
    tenure.close()
    assert kept(tmp_path) == where


@pytest.mark.parametrize(
    ("what", "how", "said", "where"), STOPPED, ids=[f"{row[0]} {row[1]}" for row in STOPPED]
)
def test_while_no_kernel_runs(
    what: str, how: str, said: str, where: dict[str, str], tmp_path: Path
) -> None:
    begin(tmp_path).close()
    notebook = tmp_path / "n.ipynb"
    if what == "notebook":
        notebook = NOTEBOOK[how](tmp_path)
    else:
        SESSION[how](tmp_path)

    tenure = Tenure(notebook, Ledger(tmp_path / "ledger"), tmp_path / "locks")
    say(tenure, "three", CELLS[1])
    told = [*tenure.news, *tenure.happened()]

    assert len(told) == bool(said), told
    assert all(line.startswith(said) for line in told), told
    tenure.close()
    assert kept(tmp_path) == where
    # A kernel that opens it now finds what this one left.
    again = Tenure(notebook, Ledger(tmp_path / "ledger"), tmp_path / "locks")
    assert again.storage.path == tenure.storage.path
    again.close()


def test_a_session_that_was_put_back_is_found_again(tmp_path: Path) -> None:
    begin(tmp_path).close()
    move(tmp_path / "n.yiem.jsonl", tmp_path / "elsewhere.yiem.jsonl")
    tenure = Tenure(tmp_path / "n.ipynb", Ledger(tmp_path / "ledger"), tmp_path / "locks")
    assert tenure.storage.path.name == "elsewhere.yiem.jsonl"
    tenure.close()


def test_a_ledger_with_damage_knows_what_is_whole(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "new" / "ledger")
    assert "s" not in ledger
    assert ledger.add(LedgerLine("s", "/a/n.yiem.jsonl", "/a/n.ipynb"))
    with ledger.path.open("ab") as file:
        file.write(
            b'\xff\x00\n[1]\n{"session": 3}\n{"session": "s", "path": 3}\n{"odd": 1}\n{"session": "cut'
        )
    assert ledger.add(LedgerLine("t"))
    assert list(ledger.lines()) == ["s", "t"]
    assert ledger.path.stat().st_mode & 0o777 == 0o600
    ledger.path.chmod(0o666)
    assert "s" not in ledger
    ledger.path.unlink()
    ledger.path.symlink_to(tmp_path / "elsewhere")
    assert not ledger.add(LedgerLine("u"))
    assert "u" not in ledger


def test_a_new_session_in_a_git_repository_is_told_of_once(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    tenure = begin(tmp_path)
    (told,) = tenure.notices
    assert told.startswith("n.yiem.jsonl lies in a git repository and holds all that is said here")
    tenure.close()

    again = Tenure(tmp_path / "n.ipynb", Ledger(tmp_path / "ledger"), tmp_path / "locks")
    assert again.notices == []
    again.close()
    page(tmp_path / "m.ipynb", OTHERS)
    (tmp_path / ".gitignore").write_text("*.yiem.*\n")
    other = Tenure(tmp_path / "m.ipynb", Ledger(tmp_path / "ledger"), tmp_path / "locks")
    assert (other.storage.path.name, other.notices) == ("m.yiem.jsonl", [])
    other.close()


def test_a_process_without_a_notebook_says_nothing_of_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    tenure = Tenure(None, Ledger(tmp_path / "ledger"), tmp_path / "locks")
    assert not any("git" in line for line in tenure.notices if str(tmp_path) not in line)
    assert len(tenure.notices) == 1
    tenure.close()
