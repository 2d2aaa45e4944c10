"""Another program writes over the session file while it is open: what memory has is written again."""

import os
import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from yiem_nb.messages import AssistantMessage, UserMessage
from yiem_nb.models import Limits
from yiem_nb.session import (
    CustomEntry,
    JsonlSessionStorage,
    MessageEntry,
    ModelChangeEntry,
    SessionOptions,
    build_context,
)
from yiem_nb.session.files import OsFiles

UNLIMITED = Limits(reads_per_second=None, writes_per_second=None)


def create(folder, name="s.yiem.jsonl", **options):
    return JsonlSessionStorage.create(
        SessionOptions(folder / name), **{"limits": UNLIMITED} | options
    )


def reopen(path):
    return JsonlSessionStorage.open(path, limits=UNLIMITED)


def said(text, **fields):
    return MessageEntry(message=UserMessage(text, timestamp=1), **fields)


def told(storage):
    return [message.text for message in build_context(storage.tree, storage.get_leaf_id()).messages]


def overwrite(path, content):
    """Write another content into the same file, as `cp` does and many editors."""
    inode = path.stat().st_ino
    with path.open("wb") as file:
        file.write(content)
    assert path.stat().st_ino == inode


def lines(path):
    return path.read_bytes().splitlines(keepends=True)


def test_an_older_state_copied_over_it_gets_back_what_came_since(tmp_path):
    storage = create(tmp_path)
    a = storage.append_entry(said("a"))
    backup = storage.path.read_bytes()
    b = storage.append_entry(said("b"))
    overwrite(storage.path, backup)

    c = storage.append_entry(said("c"))

    assert list(storage.tree) == [a.id, b.id, c.id]
    assert storage.notices == [
        "the session file was overwritten by another program; 1 entry written again"
    ]
    again = reopen(storage.path)
    assert told(again) == told(storage) == ["a", "b", "c"]
    assert again.notices == []


@pytest.mark.parametrize("restarted", [False, True])
def test_an_emptied_file_gets_back_all_that_was_read_or_written_here(tmp_path, restarted):
    storage = create(tmp_path)
    storage.append_entries([said("a"), ModelChangeEntry(provider="p", model_id="m"), said("b")])
    if restarted:
        storage.close()
        storage = reopen(storage.path)
        assert told(storage) == ["a", "b"]
    os.truncate(storage.path, 0)

    storage.append_entry(said("c"))

    again = reopen(storage.path)
    assert told(again) == ["a", "b", "c"]
    assert again.get_metadata().id == storage.get_metadata().id
    assert again.notices == []


def test_where_something_is_gone_the_tree_keeps_its_shape(tmp_path):
    storage = create(tmp_path)
    storage.append_entries([said("a"), CustomEntry(custom_type="x", id="unread"), said("b")])
    storage.append_entry(said("elsewhere", parent_id=None))
    storage.set_leaf_id("unread")
    storage.close()
    storage = reopen(storage.path)
    storage.get_entry(storage.tree.of_type("message")[0])
    overwrite(storage.path, lines(storage.path)[0])

    storage.append_entry(said("c"))

    (notice,) = storage.notices
    assert notice.endswith("; 1 entry written again, 4 no longer in memory")
    again = reopen(storage.path)
    assert told(again) == ["a", "c"]
    assert again.notices == []
    mark = again.get_entry("unread")
    assert (mark.custom_type, mark.data) == ("yiem.lost", {"type": "custom"})


def test_a_file_of_the_same_length_is_noticed_too(tmp_path):
    storage = create(tmp_path)
    storage.append_entry(said("a"))
    before = storage.path.read_bytes()
    b = storage.append_entry(said("b"))
    tail = storage.path.read_bytes()[len(before) :]
    overwrite(storage.path, before + tail.replace(b.id.encode(), b"0" * len(b.id)))

    storage.append_entry(said("c"))

    assert told(reopen(storage.path)) == ["a", "b", "c"]
    assert "0" * len(b.id) in storage.tree


def test_a_line_that_was_edited_by_hand_stays_as_it_was_edited(tmp_path):
    storage = create(tmp_path)
    storage.append_entry(said("a secret"))
    storage.append_entry(said("b"))
    overwrite(storage.path, storage.path.read_bytes().replace(b"a secret", b"something else"))

    storage.append_entry(said("c"))

    assert told(storage) == told(reopen(storage.path)) == ["something else", "b", "c"]
    assert storage.notices == []


@pytest.mark.parametrize("content", [b"", b"not a session\n", b"{}"], ids=["", "text", "json"])
def test_another_session_in_its_place_is_left_alone(tmp_path, content):
    storage = create(tmp_path)
    storage.append_entry(said("a"))
    with create(tmp_path, "other.jsonl") as other:
        other.append_entry(said("what somebody else said, at length, so that it is no shorter"))
    theirs = content or other.path.read_bytes()
    overwrite(storage.path, theirs)

    storage.append_entry(said("b"))

    assert (tmp_path / "s.yiem.jsonl").read_bytes() == theirs
    assert storage.path == tmp_path / "s.2.yiem.jsonl"
    assert told(reopen(storage.path)) == ["a", "b"]
    assert storage.notices[0] == (
        "s.yiem.jsonl was overwritten with something else; going on in s.2.yiem.jsonl"
    )


def test_whoever_only_looks_writes_nothing(tmp_path):
    storage = create(tmp_path)
    storage.append_entries([said("a"), said("b")])
    view = reopen(storage.path)
    assert told(view) == ["a", "b"]
    fewer = b"".join(lines(storage.path)[:2])
    overwrite(storage.path, fewer)

    view.refresh()

    assert told(view) == ["a"]
    view.close()
    assert view.path.read_bytes() == fewer
    assert view.notices == ["the session file was overwritten by another program; read again"]


def test_a_look_at_it_brings_it_back_too(tmp_path):
    storage = create(tmp_path)
    storage.append_entries([said("a"), said("b")])
    overwrite(storage.path, b"".join(lines(storage.path)[:2]))

    storage.refresh()

    assert told(reopen(storage.path)) == ["a", "b"]


def test_what_was_not_saved_yet_is_still_saved_in_order(tmp_path):
    class Full(OsFiles):
        full = False

        def write(self, fd, data):
            return 0 if self.full else super().write(fd, data)

    files = Full()
    storage = create(tmp_path, files=files)
    storage.append_entry(said("a"))
    storage.append_entry(said("b"))
    files.full = True
    storage.append_entry(said("c"))
    overwrite(storage.path, lines(storage.path)[0])
    storage.append_entry(said("d"))
    assert storage.pending == 4
    files.full = False
    storage.sync()

    assert (storage.pending, storage.problem) == (0, None)
    assert told(reopen(storage.path)) == told(storage) == ["a", "b", "c", "d"]


def test_memory_has_a_bound_and_what_is_gone_is_counted(tmp_path, monkeypatch):
    monkeypatch.setattr("yiem_nb.session.index._REMEMBERED", 2000)
    storage = create(tmp_path)
    for number in range(10):
        storage.append_entry(MessageEntry(message=AssistantMessage(f"{number}" * 500, timestamp=1)))
    overwrite(storage.path, lines(storage.path)[0])

    storage.append_entry(said("on"))

    (notice,) = storage.notices
    assert notice.endswith("2 entries written again, 8 no longer in memory")
    assert [text[:1] for text in told(reopen(storage.path))] == ["8", "9", "o"]


@given(
    cut=st.integers(0, 4000), junk=st.binary(max_size=60), size=st.integers(1, 12), data=st.data()
)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_whatever_is_written_over_it_nothing_that_was_said_here_is_lost(
    tmp_path, cut, junk, size, data
):
    path = tmp_path / "s.yiem.jsonl"
    for old in tmp_path.glob("s*"):
        old.unlink()
    storage = create(tmp_path)
    for number in range(size):
        parent = data.draw(st.sampled_from([None, *storage.tree]))
        storage.append_entry(said(f"p{number}", parent_id=parent))
    before = {one: storage.tree.parent(one) for one in storage.tree}
    overwrite(path, path.read_bytes()[:cut] + junk)

    storage.append_entry(said("on"))
    storage.close()

    again = reopen(storage.path)
    assert {one: again.tree.parent(one) for one in before} == before
    assert told(again)[-1] == "on"
    shutil.rmtree(tmp_path / "s.yiem.files", ignore_errors=True)
