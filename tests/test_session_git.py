"""Two branches of one session merge by union, with git itself; nothing is lost, nothing counts twice."""

import base64
import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from yiem_nb.messages import AssistantMessage, ImageContent, UserMessage
from yiem_nb.models import Limits
from yiem_nb.session import JsonlSessionStorage, MessageEntry, Session, SessionOptions
from yiem_nb.session.git import git_notice

UNLIMITED = Limits(reads_per_second=None, writes_per_second=None)
README = Path(__file__).parent.parent / "README.md"

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


class Repository:
    """A git repository with the attributes that the README gives."""

    def __init__(self, folder):
        self.folder = folder
        self.path = folder / "s.yiem.jsonl"
        self.git("init", "-q", "-b", "main")
        attributes = re.search(r"```gitattributes\n(.*?)```", README.read_text(), re.DOTALL)
        (folder / ".gitattributes").write_text(attributes.group(1))
        self.commit()

    def git(self, *command):
        who = {
            f"GIT_{one}_{what}": "x"
            for one in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        }
        place = {"HOME": str(self.folder), "PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1"}
        done = subprocess.run(
            ["git", *command], cwd=self.folder, env=who | place, capture_output=True, timeout=60
        )
        assert done.returncode == 0, (done.stdout + done.stderr).decode()

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "work")

    def open(self):
        return Session(JsonlSessionStorage.open(self.path, limits=UNLIMITED))

    def create(self):
        return Session(JsonlSessionStorage.create(SessionOptions(self.path), limits=UNLIMITED))

    def work(self, branch, what):
        """Do something to the session on a branch; return the texts on its path."""
        self.git("checkout", "-q", branch)
        session = self.open() if self.path.exists() else self.create()
        what(session)
        leaf, texts = session.leaf, said(session)
        session.storage.close()
        self.commit()
        return leaf, texts


def ask(session, prompt):
    for message in (UserMessage(prompt), AssistantMessage(f"on {prompt}")):
        session.storage.append_entry(MessageEntry(message=message))


def said(session, leaf=None):
    return [message.text for message in session.context(leaf).messages]


def test_both_branches_are_in_the_merged_file(tmp_path):
    repository = Repository(tmp_path)
    repository.work("main", lambda session: ask(session, "together"))
    repository.git("branch", "theirs")
    image = ImageContent(base64.b64encode(b"x" * 300_000).decode(), "image/png")

    def mine(session):
        ask(session, "mine")
        session.label(session.leaf, "kept")

    def theirs(session):
        session.storage.append_entry(MessageEntry(message=UserMessage([image])))
        ask(session, "theirs")

    my_leaf, my_texts = repository.work("main", mine)
    their_leaf, their_texts = repository.work("theirs", theirs)
    repository.git("checkout", "-q", "main")

    repository.git("merge", "-q", "-m", "both", "theirs")

    session = repository.open()
    assert session.storage.notices == []
    assert len(session.tree) == 2 + 3 + 3
    assert said(session, my_leaf) == my_texts
    assert said(session, their_leaf) == their_texts
    assert session.context(their_leaf).messages[2].content == (image,)
    assert list(session.tree.labels().values()) == ["kept"]
    ask(session, "and on")
    assert said(repository.open())[-2:] == ["and on", "on and on"]


def test_two_sessions_of_one_name_are_two_roots_of_one_file(tmp_path):
    repository = Repository(tmp_path)
    repository.git("branch", "theirs")
    my_leaf, my_texts = repository.work("main", lambda session: ask(session, "mine"))
    their_leaf, their_texts = repository.work("theirs", lambda session: ask(session, "theirs"))
    repository.git("checkout", "-q", "main")

    repository.git("merge", "-q", "-m", "both", "theirs")

    session = repository.open()
    assert session.storage.read_only is None
    assert said(session, my_leaf) == my_texts
    assert said(session, their_leaf) == their_texts
    assert len(session.tree.children(None)) == 2


@pytest.mark.parametrize("seed", range(3))
def test_whatever_was_done_on_either_side_nothing_is_lost_or_counts_twice(tmp_path, seed):
    """Rounds of work, moved leaves, cut-off ends, cherry-picks and merges in both directions."""
    chance = random.Random(seed)
    repository = Repository(tmp_path)
    repository.work("main", lambda session: ask(session, "0"))
    repository.git("branch", "theirs")
    ends = {}

    def work(session):
        ids = list(session.tree)
        for number in range(chance.randint(1, 4)):
            if chance.random() < 0.3:
                session.move_to(chance.choice(ids))
            ask(session, f"{chance.random()} {number}")
            ends[session.leaf] = said(session)

    for _ in range(5):
        for branch in ("main", "theirs"):
            repository.work(branch, work)
            if chance.random() < 0.3:
                with repository.path.open("ab") as file:
                    file.write(b'{"type":"message","id":"cut')
                repository.commit()
        one, other = chance.sample(["main", "theirs"], 2)
        repository.git("checkout", "-q", one)
        repository.git("merge", "-q", "-m", "both", other)
        session = repository.open()
        assert {leaf: said(session, leaf) for leaf in ends} == ends
        ids = [entry_id.partition("~")[0] for entry_id in session.tree]
        assert len(set(ids)) == len(ids)
        session.storage.close()


def test_a_line_that_came_both_ways_counts_once(tmp_path):
    repository = Repository(tmp_path)
    repository.work("main", lambda session: ask(session, "together"))
    repository.git("branch", "theirs")
    repository.work("main", lambda session: ask(session, "picked"))
    repository.git("checkout", "-q", "theirs")
    repository.git("cherry-pick", "main")
    repository.work("theirs", lambda session: ask(session, "theirs"))
    repository.work("main", lambda session: ask(session, "mine"))

    repository.git("merge", "-q", "-m", "both", "theirs")

    session = repository.open()
    texts = [entry.message.text for entry in session.storage.get_entries()]
    assert sorted(texts) == sorted(
        f"{on}{word}" for word in ("together", "picked", "theirs", "mine") for on in ("", "on ")
    )


@pytest.mark.parametrize(
    ("file", "rule", "decided"),
    [
        (".gitignore", "*.yiem.*", True),
        (".gitignore", "# a comment\n\n*.jsonl", True),
        (".gitignore", "/notes/s.yiem.jsonl", True),
        (".gitignore", "notes/", True),
        (".gitignore", "*", True),
        ("notes/.gitignore", "s.*", True),
        (".git/info/exclude", "*.yiem.jsonl", True),
        (".gitattributes", "*.yiem.jsonl merge=union -text", True),
        (".gitattributes", "* text=auto", False),
        (".gitignore", "*.csv", False),
        (".gitignore", "!*.yiem.jsonl", False),
    ],
)
def test_a_new_session_in_a_repository_is_told_of_unless_that_is_decided(
    tmp_path, file, rule, decided
):
    repository = Repository(tmp_path)
    (tmp_path / ".gitattributes").unlink()
    (tmp_path / "notes").mkdir()
    (tmp_path / file).write_text(f"{rule}\n")
    session = tmp_path / "notes" / "s.yiem.jsonl"
    session.write_text("")

    notice = git_notice(session)

    assert (notice is None) == decided
    if file != ".gitattributes":
        # git itself agrees on what is ignored.
        repository.git("add", "-A")
        listed = subprocess.run(
            ["git", "ls-files", "notes/s.yiem.jsonl"], cwd=tmp_path, capture_output=True
        ).stdout
        assert (listed == b"") == decided


def test_the_sentence_holds_the_command_that_ends_it(tmp_path):
    Repository(tmp_path)
    (tmp_path / ".gitattributes").unlink()
    session = tmp_path / "n.yiem.jsonl"

    notice = git_notice(session)

    assert notice.startswith("n.yiem.jsonl lies in a git repository and holds all that is said")
    subprocess.run(notice.partition(": ")[2], shell=True, check=True, cwd=tmp_path)
    assert git_notice(session) is None


def test_outside_of_a_repository_nothing_is_said(tmp_path):
    assert git_notice(tmp_path / "s.yiem.jsonl") is None
