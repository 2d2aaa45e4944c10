"""`yiem sessions purge` asks, does it, and says where else it is."""

import json
import sys

import pytest
from yiem_nb.cli import main
from yiem_nb.messages import AssistantMessage, UserMessage
from yiem_nb.models import Limits
from yiem_nb.session import JsonlSessionStorage, MessageEntry, Session, SessionOptions
from yiem_nb.session.files import OsFiles

UNLIMITED = Limits(reads_per_second=None, writes_per_second=None)
NAME = "Inês Ørsted"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def new(folder, **more):
    folder.mkdir()
    options = SessionOptions(folder / "s.yiem.jsonl", **more)
    return Session(JsonlSessionStorage.create(options, limits=UNLIMITED))


def ask(session, prompt):
    said = [
        session.storage.append_entry(MessageEntry(message=one))
        for one in (UserMessage(prompt), AssistantMessage("yes"))
    ]
    return [entry.id for entry in said]


class Terminal:
    """Somebody who answers, or nobody."""

    def __init__(self, answer=None):
        self.answer = answer

    def isatty(self):
        return self.answer is not None

    def readline(self):
        return self.answer


def test_the_command_asks_and_says_where_else_it_is(tmp_path, monkeypatch, capsys):
    session = new(tmp_path / "f")
    named, _ = ask(session, f"who is {NAME}?")
    fork = session.fork()
    for one in (session, fork):
        one.storage.close()
    path = session.storage.path
    before = path.read_bytes()
    output = {"output_type": "stream", "text": ["It is Inês", " Ørsted\n"]}
    cells = [{"source": "1"}, {"source": [f"%%yiem\n{NAME}"], "outputs": [output]}]
    (path.parent / "s.ipynb").write_text(json.dumps({"cells": cells, "metadata": {}}))
    (path.parent / "other.ipynb").write_text('{"cells": []}')
    (path.parent / "torn.ipynb").write_text(f"{{ {NAME}")
    (path.parent / ".git").mkdir()
    command = ["sessions", "purge", str(path), "--matching", NAME]

    monkeypatch.setattr(sys, "stdin", Terminal("no\n"))
    assert main(command) == 1
    out = capsys.readouterr().out
    assert named in out
    assert "It cannot be brought back. Go on? [y/N]" in out
    assert out.endswith("Nothing is changed.\n")
    assert path.read_bytes() == before

    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    assert main(command) == 0
    assert NAME.encode() not in path.read_bytes()
    assert capsys.readouterr().out.splitlines()[-5:] == [
        "It is taken out.",
        "! it is still in s.ipynb: cell 2 (source), cell 2 (output)",
        "! it is still in torn.ipynb: somewhere in it",
        "! it is still in s.2.yiem.jsonl → yiem sessions purge s.2.yiem.jsonl",
        "! this folder is in git, whose history keeps what was committed",
    ]

    assert main(command) == 0
    assert capsys.readouterr().out.startswith("There is nothing of it in s.yiem.jsonl.\n")


def test_of_an_entry_too_the_command_says_where_else_its_words_are(tmp_path, capsys):
    session = new(tmp_path / "f")
    named, _ = ask(session, "hello\nthe patient is called Inês\n")
    session.storage.close()
    cell = {"source": "x", "outputs": [{"data": {"text/plain": "the patient is called Inês"}}]}
    (tmp_path / "f" / "s.ipynb").write_text(json.dumps({"cells": [cell]}))

    assert main(["sessions", "purge", str(session.storage.path), "--entry", named, "--yes"]) == 0

    assert "! it is still in s.ipynb: cell 1 (output)\n" in capsys.readouterr().out


def test_the_command_names_places_outside_of_entries_and_files_that_stay(
    tmp_path, monkeypatch, capsys
):
    session = new(tmp_path / "f", metadata={"of": NAME})
    session.storage.blobs.save_output(f"of {NAME}")
    session.storage.close()
    with session.storage.path.open("ab") as file:
        file.write(f"{{damaged {NAME}\n".encode())
    command = ["sessions", "purge", str(session.storage.path), "--matching", NAME, "--yes"]

    def refuse(self, path):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(OsFiles, "remove", refuse)
        assert main(command) == 1
    out, err = capsys.readouterr()
    (path,) = (tmp_path / "f" / "s.yiem.files").iterdir()
    assert "2 places outside of entries: damaged lines, the header\n" in out
    assert f"s.yiem.files/{path.name}\n" in out
    assert f"The session is purged, but {path} cannot be removed. → Purge it again." in err

    assert main(command) == 0
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--matching", "yes"], "there is nobody to answer"),
        (["--matching", "(", "--regex", "--yes"], "no regular expression"),
        (["--entry", "none", "--yes"], "There is no entry 'none'"),
        (["--entry", "none", "--regex"], "--regex says how --matching is meant"),
    ],
)
def test_a_command_that_cannot_be_carried_out_changes_nothing(
    tmp_path, monkeypatch, capsys, options, sentence
):
    session = new(tmp_path / "f")
    ask(session, "a")
    session.storage.close()
    before = session.storage.path.read_bytes()
    monkeypatch.setattr(sys, "stdin", Terminal())

    assert main(["sessions", "purge", str(session.storage.path), *options]) == 1

    assert sentence in capsys.readouterr().err
    assert session.storage.path.read_bytes() == before
