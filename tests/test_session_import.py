"""Files of pi's three versions are read and copied; not one byte of them changes."""

import os

import pytest
from tests.pi_files import pi_file
from yiem_nb.cli import main
from yiem_nb.errors import SessionError
from yiem_nb.kernel.tenure import Tenure
from yiem_nb.messages import UserMessage
from yiem_nb.models import Limits
from yiem_nb.session import (
    JsonlSessionStorage,
    Ledger,
    MessageEntry,
    Session,
    build_context,
    ledger_path,
)
from yiem_nb.session.foreign import foreign_messages

UNLIMITED = Limits(reads_per_second=None, writes_per_second=None)
VERSIONS = [1, 2, 3]
SEEN = ["two", "a hook", "four", "five \u2028 é"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)


def written(folder, version):
    path = folder / "of-pi.jsonl"
    path.write_bytes(pi_file(version))
    return path


def opened(path):
    return Session(JsonlSessionStorage.open(path, limits=UNLIMITED))


def texts(session):
    summary, *others = (message.text for message in session.context().messages)
    assert "so far" in summary
    return ["a hook" if text == "three" else text for text in others]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_file_of_pi_is_read_as_it_stands(tmp_path, version):
    path = written(tmp_path, version)
    session = opened(path)

    assert texts(session) == SEEN
    context = session.context()
    assert context.model == ("pi", "pi-1")
    assert context.thinking_level == "high"
    assert session.storage.get_metadata().version == version
    assert session.storage.get_session_stats().total_tokens == 6
    assert session.storage.notices == []
    session.storage.close()
    assert path.read_bytes() == pi_file(version)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_import_has_all_branches_in_todays_format(tmp_path, capsys, version):
    path = written(tmp_path, version)
    os.utime(path, (1_000_000, 1_000_000))

    assert main(["sessions", "import", "of-pi.jsonl"]) == 0

    assert path.read_bytes() == pi_file(version)
    assert path.stat().st_mtime == 1_000_000
    session = opened(tmp_path / "of-pi.yiem.jsonl")
    # The mark of what was written elsewhere comes on top.
    assert capsys.readouterr().out == f"of-pi.yiem.jsonl · {len(session.tree) - 1} entries\n"
    assert texts(session) == SEEN
    metadata = session.storage.get_metadata()
    assert (metadata.version, metadata.cwd) == (3, "/w")
    assert metadata.parent_session == str(path)
    assert b"hookMessage" not in session.storage.path.read_bytes()
    assert ("b0000001" in session.tree) == (version > 1)
    session.storage.append_entry(MessageEntry(message=UserMessage("and on")))
    assert texts(opened(session.storage.path)) == [*SEEN, "and on"]


def test_a_file_whose_entries_have_no_ids_is_not_written_to(tmp_path):
    """pi would give all entries new ids, and our branches would be gone."""
    session = opened(written(tmp_path, 1))

    with pytest.raises(SessionError, match="first format of pi, whose entries have no ids"):
        session.storage.append_entry(MessageEntry(message=UserMessage("and on")))
    session.storage.accept()
    assert session.storage.read_only is not None

    fork = session.fork()
    fork.storage.append_entry(MessageEntry(message=UserMessage("and on")))
    assert texts(opened(fork.storage.path)) == [*SEEN, "and on"]


@pytest.mark.parametrize("version", [2, 3])
def test_a_file_whose_entries_have_ids_goes_on_in_its_own_way(tmp_path, version):
    path = written(tmp_path, version)
    session = opened(path)

    session.storage.append_entry(MessageEntry(message=UserMessage("and on")))

    assert path.read_bytes().startswith(pi_file(version))
    again = opened(path)
    assert texts(again) == [*SEEN, "and on"]
    assert again.storage.get_metadata().version == version


def test_an_import_goes_over_no_file_and_takes_no_other_programs(tmp_path, capsys):
    written(tmp_path, 3)
    (tmp_path / "of-pi.yiem.jsonl").write_text("mine")
    (tmp_path / "other.jsonl").write_text('{"a": 1}\n')

    assert main(["sessions", "import", "of-pi.jsonl"]) == 1
    assert "There is a file at" in capsys.readouterr().err
    assert main(["sessions", "import", "other.jsonl"]) == 1
    assert "is no session file" in capsys.readouterr().err
    assert (tmp_path / "of-pi.yiem.jsonl").read_text() == "mine"
    assert not (tmp_path / "other.yiem.jsonl").exists()


def test_an_import_says_what_was_damaged(tmp_path, capsys):
    path = tmp_path / "torn.jsonl"
    path.write_bytes(pi_file(3)[:-9])

    assert main(["sessions", "import", "torn.jsonl", "-o", "new.yiem.jsonl"]) == 0

    assert capsys.readouterr().out.startswith("! recovered: last record was cut")
    assert path.read_bytes() == pi_file(3)[:-9]
    assert opened(tmp_path / "new.yiem.jsonl").storage.notices == []


def test_an_import_is_ones_own_and_what_it_holds_was_written_elsewhere(tmp_path):
    written(tmp_path, 3)
    assert main(["sessions", "import", "of-pi.jsonl", "-o", "n.yiem.jsonl"]) == 0

    tenure = Tenure(tmp_path / "n.ipynb", Ledger(ledger_path()), tmp_path / "locks")
    storage = tenure.storage
    assert (tenure.right, tenure.question) == ("own", "")
    assert storage.path == tmp_path / "n.yiem.jsonl"
    told = build_context(storage.tree, storage.get_leaf_id()).messages
    assert foreign_messages(storage.tree, storage.get_leaf_id()) == len(told)
    tenure.close()

    # What was said here since is not marked by a second import, whatever the first one was.
    assert main(["sessions", "import", "n.yiem.jsonl", "-o", "m.yiem.jsonl"]) == 0
    with JsonlSessionStorage.open("m.yiem.jsonl") as again:
        assert foreign_messages(again.tree, again.get_leaf_id()) == len(told)
        again.append_entry(MessageEntry(message=UserMessage("mine")))
        assert foreign_messages(again.tree, again.get_leaf_id()) == len(told)


def test_an_import_that_cannot_be_written_down_says_so(tmp_path, monkeypatch, capsys):
    written(tmp_path, 3)
    (tmp_path / "data").write_text("no folder")

    assert main(["sessions", "import", "of-pi.jsonl"]) == 0

    assert "a kernel asks before it goes on in this session" in capsys.readouterr().out
