"""A purge takes out what was said, all of it or nothing, and never another entry."""

import base64
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.durability.faults import FaultyFiles
from yiem_nb.errors import CommandError, SessionError, SessionNotFoundError
from yiem_nb.messages import AssistantMessage, ImageContent, ToolResultMessage, UserMessage
from yiem_nb.models import Limits
from yiem_nb.session import (
    CustomEntry,
    JsonlSessionStorage,
    MessageEntry,
    Session,
    SessionLock,
    SessionOptions,
    check_session,
    parse_line,
)
from yiem_nb.session.lock import lock_folder
from yiem_nb.session.purge import TOMBSTONE, carry_out, plan_purge
from yiem_nb.session.traces import matcher

UNLIMITED = Limits(reads_per_second=None, writes_per_second=None)
NAME = "Inês Ørsted"
HEADER = b'{"type":"session","version":3,"id":"s","timestamp":"t","cwd":"/"}\n'


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def new(folder, name="s", **more):
    folder.mkdir(exist_ok=True)
    options = SessionOptions(folder / f"{name}.yiem.jsonl", **more)
    return Session(JsonlSessionStorage.create(options, limits=UNLIMITED))


def ask(session, prompt, answer="yes"):
    said = [
        session.storage.append_entry(MessageEntry(message=one))
        for one in (UserMessage(prompt), AssistantMessage(answer))
    ]
    return [entry.id for entry in said]


def reopened(path):
    return Session(JsonlSessionStorage.open(path, limits=UNLIMITED))


def purge(path, files=None, **what):
    return carry_out(plan_purge(path, **what), locks=path.parent / "locks", files=files)


def shape(session):
    """Who follows whom, and where the conversation goes on."""
    tree = session.tree
    return [(entry_id, tree.parent(entry_id)) for entry_id in tree], tree.leaf


def test_what_says_it_is_gone_and_the_tree_holds(tmp_path):
    session = new(tmp_path / "f", metadata={"about": f"of {NAME}", "kept": "yes"})
    ask(session, "one")
    named, _ = ask(session, f"who is {NAME}?")
    _, answer = ask(session, "three", f"As {NAME} said")
    session.label(answer, f"{NAME}!")
    session.rename(NAME)
    ask(session, "four")
    before = shape(session)
    old = session.storage.path.read_bytes().split(b"\n")
    session.storage.close()

    assert purge(session.storage.path, matches=matcher(NAME)) == []

    content = session.storage.path.read_bytes()
    assert NAME.encode() not in content
    again = reopened(session.storage.path)
    assert shape(again) == before
    assert again.storage.notices == []
    assert again.storage.get_metadata().metadata == {}
    assert again.storage.get_metadata().id == session.storage.get_metadata().id
    assert again.tree.name is None
    assert again.tree.labels() == {}
    assert [message.text for message in again.context().messages] == [
        *("one", "yes", "yes", "three", "four", "yes")
    ]
    left = again.storage.get_entry(named)
    assert (left.custom_type, left.data["was"]) == (TOMBSTONE, "message")
    # Every other line is as it was, byte for byte.
    kept = [line for line in content.split(b"\n") if TOMBSTONE.encode() not in line]
    assert [line for line in old[1:] if NAME.encode() not in line] == kept[1:]
    assert check_session(session.storage.path).findings == ()
    assert session.storage.path.stat().st_mode & 0o777 == 0o600


def test_an_entry_goes_with_its_copies_on_other_branches(tmp_path):
    session = new(tmp_path / "f")
    first, _ = ask(session, "the key is 1234567")
    original = session.storage.get_entry(first)
    session.move_to(None)
    copy = session.storage.append_entry(
        MessageEntry(message=original.message, copy_of=first, parent_id=None)
    )
    again = session.storage.append_entry(MessageEntry(message=original.message, copy_of=copy.id))
    ask(session, "another")
    session.storage.close()

    purge(session.storage.path, entries=[copy.id])

    assert b"1234567" not in session.storage.path.read_bytes()
    tree = reopened(session.storage.path).tree
    assert {tree.type(one) for one in (first, copy.id, again.id)} == {"custom"}


def test_repeated_fused_torn_and_damaged_places_are_taken_out_too(tmp_path):
    path = tmp_path / "f" / "s.yiem.jsonl"
    path.parent.mkdir()

    def line(name, text, parent="null"):
        return f'{{"type":"custom","id":"{name}","parentId":{parent},"data":"{text}"}}'.encode()

    other = line("b", "other", '"a"')
    path.write_bytes(
        HEADER
        + line("a", "SECRET")
        + b"\n"
        + line("a", "SECRET")
        + b"\n"
        + other
        + line("c", "SECR\\u0045T", '"b"')
        + b"\n{damaged SECRET\n\xff\xfe SECRET\n"
        + line("a", "a second SECRET of one id", '"c"')
        + b'\n{"type":"session","version":3,"id":"x","timestamp":"t","cwd":"SECRET"}\n'
        + line("d", "kept", '"a"')
        + b'\n{"type":"custom","data":"SECRET'
    )
    before = shape(reopened(path))

    purge(path, matches=matcher("SECRET"))

    content = path.read_bytes()
    assert b"SECR" not in content
    assert other in content
    assert shape(reopened(path)) == before


def test_files_that_nothing_names_any_more_go_too(tmp_path):
    session = new(tmp_path / "f")
    image = ImageContent(base64.b64encode(b"x" * 300_000).decode(), "image/png")
    shared = ImageContent(base64.b64encode(b"y" * 300_000).decode(), "image/png")
    private = MessageEntry(message=UserMessage([image, shared]))
    private = session.storage.append_entry(private)
    session.storage.append_entry(MessageEntry(message=UserMessage([shared])))
    saved = session.storage.blobs.save_output(f"a table\nof {NAME}\n")
    result = ToolResultMessage("1", "f", "a part", details={"full": saved.reference})
    told = session.storage.append_entry(MessageEntry(message=result))
    loose = session.storage.blobs.save_output(f"nobody names this, {NAME}")
    fork = session.fork(leaf=private.id)
    for one in (session, fork):
        one.storage.close()
    folder = tmp_path / "f" / "s.yiem.files"

    plan = plan_purge(session.storage.path, matches=matcher(NAME))

    assert [one.id for one in plan.entries] == [told.id]
    assert {file.stem for file in plan.files} == {saved.sha256, loose.sha256}
    carry_out(plan, locks=tmp_path / "locks")
    assert len(list(folder.iterdir())) == 2

    purge(session.storage.path, entries=[private.id])
    # The fork names the image still.
    assert len(list(folder.iterdir())) == 2
    purge(fork.storage.path, entries=[private.id])
    assert len(list(folder.iterdir())) == 1
    # What the first session names still is nobody else's to remove.
    assert len(list((tmp_path / "f" / "s.2.yiem.files").iterdir())) == 1
    assert reopened(session.storage.path).context().messages[0].content == (shared,)


def test_a_session_in_use_is_left_alone(tmp_path):
    session = new(tmp_path / "f")
    ask(session, NAME)
    session.storage.close()
    path = session.storage.path
    before = path.read_bytes()
    lock = SessionLock(path, tmp_path / "locks", "notebook s.ipynb")
    assert lock.acquire()

    with pytest.raises(SessionError, match=r"in use by notebook s\.ipynb .* nothing is changed"):
        carry_out(plan_purge(path, matches=matcher(NAME)), locks=tmp_path / "locks")
    lock.release()
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; f = open(sys.argv[1]); print(); sys.stdin.read()",
            path,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    holder.stdout.readline()
    with pytest.raises(SessionError, match=f"in use by process {holder.pid}"):
        carry_out(plan_purge(path, matches=matcher(NAME)), locks=tmp_path / "locks")
    holder.communicate(timeout=60)

    assert path.read_bytes() == before
    assert purge(path, matches=matcher(NAME)) == []


def test_a_session_that_grew_since_is_left_alone(tmp_path):
    session = new(tmp_path / "f")
    ask(session, NAME)
    plan = plan_purge(session.storage.path, matches=matcher(NAME))
    ask(session, f"more of {NAME}")
    session.storage.close()
    before = session.storage.path.read_bytes()

    with pytest.raises(SessionError, match="was written to meanwhile; nothing is changed"):
        carry_out(plan, locks=tmp_path / "locks")

    assert session.storage.path.read_bytes() == before


@pytest.mark.parametrize("fault", ["ENOSPC", "EIO", "EACCES", "EROFS", "EINTR", "short", "zero"])
def test_whatever_call_fails_the_file_is_the_old_one_or_the_new_one(tmp_path, fault):
    quiet = FaultyFiles(fault, 0, 0)
    path, old = _to_purge(tmp_path / "quiet")
    purge(path, quiet, matches=matcher(NAME))
    size = path.stat().st_size
    for first in range(quiet.calls):
        for length in (1, 1_000):
            folder = tmp_path / f"{first}-{length}"
            path, old = _to_purge(folder)
            error = None
            left = []
            try:
                left = purge(path, FaultyFiles(fault, first, length), matches=matcher(NAME))
            except SessionError as raised:
                error = raised

            content = path.read_bytes()
            names = {one.name for one in folder.iterdir()}
            assert names == {"s.yiem.jsonl", "s.yiem.files", "locks"}
            if error is not None:
                assert "nothing is changed" in error.message
                assert content == old
                assert len(list((folder / "s.yiem.files").iterdir())) == 1
            else:
                assert NAME.encode() not in content
                assert len(content) == size
                assert list((folder / "s.yiem.files").iterdir()) == left
            assert purge(path, matches=matcher(NAME)) == []
            assert list((folder / "s.yiem.files").iterdir()) == []


KILLED = """
import os, signal, sys
from pathlib import Path
from yiem_nb.session.files import OsFiles
from yiem_nb.session.purge import carry_out, plan_purge
from yiem_nb.session.traces import matcher

path, name = Path(sys.argv[1]), sys.argv[2]

class Killed(OsFiles):
    "Ends the process before or after one of its calls."
    left = 0

    def __getattribute__(self, call):
        function = super().__getattribute__(call)
        if call.startswith("_") or call == "left":
            return function
        self.left -= 1
        def called(*args, **options):
            if self.left == 0 and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            result = function(*args, **options)
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return result
        return called

old = path.read_bytes()
(kept,) = (path.parent / "s.yiem.files").iterdir()
whole = kept.read_bytes()
for number in range(1, 99):
    for after in (False, True):
        path.write_bytes(old)
        kept.write_bytes(whole)
        child = os.fork()
        if child == 0:
            files = Killed()
            files.left = number
            carry_out(plan_purge(path, matches=matcher(name)), locks=path.parent / "l", files=files)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        new = path.read_bytes()
        print(number, after, status, name.encode() in new, new == old, kept.exists())
        plan = plan_purge(path, matches=matcher(name))
        assert carry_out(plan, locks=path.parent / "l") == []
        assert name.encode() not in path.read_bytes()
        rest = [one.name for folder in (path.parent, kept.parent) for one in folder.iterdir()]
        assert sorted(rest) == ["l", "s.yiem.files", "s.yiem.jsonl"], rest
    if status == 0:
        break
"""


def test_killed_at_any_call_it_leaves_the_old_file_or_the_new_one(tmp_path):
    """Going through it again finishes it, what was left lying about included."""
    path, _ = _to_purge(tmp_path / "f")

    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(path), NAME], capture_output=True, text=True, timeout=120
    )

    assert done.returncode == 0, done.stderr
    outcomes = [line.split()[2:] for line in done.stdout.splitlines()]
    for _, named, as_before, kept in outcomes:
        assert named == as_before
        assert kept == "True" or as_before == "False"
    assert {tuple(outcome[1:]) for outcome in outcomes} == {
        *(("True", "True", "True"), ("False", "False", "True")),
        ("False", "False", "False"),
    }


def _to_purge(folder):
    session = new(folder)
    ask(session, NAME)
    saved = session.storage.blobs.save_output("it stays as long as an entry names it")
    session.storage.append_entry(CustomEntry(data={"of": NAME, "full": saved.reference}))
    session.storage.close()
    return session.storage.path, session.storage.path.read_bytes()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_other_entry_is_ever_lost(tmp_path_factory, data):
    """Any tree, any choice of entries: the others stay as they are, and all keep their places."""
    session = new(tmp_path_factory.mktemp("p") / "f")
    for number in range(data.draw(st.integers(1, 12))):
        ids = [None, *session.tree]
        parent = data.draw(st.sampled_from(ids))
        kind = data.draw(st.sampled_from(["user", "answer", "custom", "leaf", "label"]))
        text = f"text {number} \u2028"
        if kind == "leaf":
            session.move_to(parent)
        elif kind == "label" and parent is not None:
            session.label(parent, text)
        else:
            message = UserMessage(text) if kind == "user" else AssistantMessage(text)
            entry = MessageEntry(message=message, parent_id=parent)
            if kind == "custom":
                entry = CustomEntry(data=text, parent_id=parent)
            session.storage.append_entry(entry)
    chosen = data.draw(st.lists(st.sampled_from(list(session.tree)), min_size=1, unique=True))
    before = shape(session)
    kept = {
        entry_id: session.storage.get_entry(entry_id)
        for entry_id in session.tree
        if entry_id not in chosen
    }
    session.storage.close()

    purge(session.storage.path, entries=chosen)

    again = reopened(session.storage.path)
    assert shape(again)[0] == before[0]
    for entry_id, entry in kept.items():
        assert again.storage.get_entry(entry_id) == entry
    for entry_id in chosen:
        assert again.storage.get_entry(entry_id).custom_type == TOMBSTONE
    again.context()


def test_what_cannot_be_purged_is_refused(tmp_path):
    path = tmp_path / "s.yiem.jsonl"
    with pytest.raises(SessionNotFoundError):
        plan_purge(path, entries=["a"])
    path.write_bytes(HEADER.replace(b"3", b"9") + b'{"type":"x","id":"a","parentId":null}\n')
    with pytest.raises(SessionError, match="newer program"):
        plan_purge(path, entries=["a"])
    path.write_bytes(HEADER)
    with pytest.raises(SessionError, match="There is no entry 'a'"):
        plan_purge(path, entries=["a"])
    with pytest.raises(CommandError, match="no regular expression"):
        matcher("(", regex=True)
    with pytest.raises(CommandError, match="found everywhere"):
        matcher("x*", regex=True)
    with pytest.raises(CommandError, match="nothing to look for"):
        matcher("  ")


def test_the_claims_of_all_processes_lie_in_one_folder(tmp_path):
    assert lock_folder() == tmp_path / "state" / "yiem_nb" / "locks"


def test_a_tombstone_is_an_entry_that_the_model_does_not_see(tmp_path):
    session = new(tmp_path / "f")
    named, _ = ask(session, NAME)
    session.storage.close()

    purge(session.storage.path, entries=[named])

    line = session.storage.path.read_bytes().split(b"\n")[1]
    assert isinstance(parse_line(line), CustomEntry)
