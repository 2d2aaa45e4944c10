"""What people do with a session survives a restart and removes nothing."""

import json
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from yiem_nb.errors import SessionError
from yiem_nb.messages import AssistantMessage, ToolResultMessage, UserMessage
from yiem_nb.models import Limits
from yiem_nb.session import (
    CustomEntry,
    CustomMessageEntry,
    JsonlSessionStorage,
    MessageEntry,
    ModelChangeEntry,
    Session,
    SessionOptions,
)

UNLIMITED = Limits(reads_per_second=None, writes_per_second=None)


def new(folder, name="s.yiem.jsonl"):
    return Session(JsonlSessionStorage.create(SessionOptions(folder / name), limits=UNLIMITED))


def reopen(session):
    return Session(JsonlSessionStorage.open(session.storage.path, limits=UNLIMITED))


def ask(session, prompt, answer="yes", **fields):
    """Append a prompt and its answer; return the prompt's id."""
    entry = session.storage.append_entry(MessageEntry(message=UserMessage(prompt), **fields))
    session.storage.append_entry(MessageEntry(message=AssistantMessage(answer)))
    return entry.id


def seen(session):
    return [message.text for message in session.context().messages]


def test_a_branch_starts_at_any_earlier_point_and_is_there_after_a_restart(tmp_path):
    session = new(tmp_path)
    ask(session, "a")
    end = session.leaf
    ask(session, "b")

    session.move_to(end)

    assert seen(reopen(session)) == ["a", "yes"]
    session.move_to(None)
    assert seen(reopen(session)) == []


def test_an_abandoned_branch_can_be_told_to_the_new_one(tmp_path):
    session = new(tmp_path)
    ask(session, "a")
    end = session.leaf
    ask(session, "b")
    old = session.leaf

    session.move_to(end, summary="b led nowhere")

    assert "b led nowhere" in seen(reopen(session))[-1]
    (summary,) = session.storage.find_entries("branch_summary")
    assert (summary.parent_id, summary.from_id) == (end, old)
    session.move_to(None, summary="all of it")
    session.move_to(None, summary="again")
    session.storage.set_leaf_id(None)
    session.move_to(None, summary="from nowhere")
    assert session.storage.find_entries("branch_summary")[-1].from_id == "root"


def test_a_prompt_can_be_taken_back_and_said_differently(tmp_path):
    session = new(tmp_path)
    ask(session, "a")
    prompt = ask(session, "b")

    assert session.rewind(prompt).text == "b"
    assert seen(session) == ["a", "yes"]
    with pytest.raises(SessionError, match="no prompt"):
        session.rewind(session.leaf)
    with pytest.raises(SessionError, match="no entry"):
        session.rewind("nobody")


def test_labels_and_the_name_are_kept(tmp_path):
    session = new(tmp_path)
    prompt = ask(session, "a")
    session.label(prompt, "start")
    session.rename("a\nname")

    again = reopen(session)
    assert again.tree.labels() == {prompt: "start"}
    assert again.tree.name == "a name"
    again.label(prompt, None)
    again.rename(None)
    assert again.tree.labels() == {}
    assert reopen(again).tree.name is None
    with pytest.raises(SessionError):
        again.label("nobody", "x")


def test_a_turn_is_hidden_as_a_whole_and_shown_again(tmp_path):
    session = new(tmp_path)
    ask(session, "a")
    prompt = session.storage.append_entry(MessageEntry(message=UserMessage("b"))).id
    call = AssistantMessage(tool_calls=[{"id": "1", "name": "f"}])
    session.storage.append_entry(MessageEntry(message=call))
    session.storage.append_entry(CustomEntry(data="not seen anyway"))
    result = session.storage.append_entry(MessageEntry(message=ToolResultMessage("1", "f", "r")))
    ask(session, "c")

    hidden = session.hide(result.id)

    assert hidden[0] == prompt
    assert len(hidden) == 3
    assert seen(reopen(session)) == ["a", "yes", "c", "yes"]
    session.show(prompt)
    assert seen(reopen(session)) == ["a", "yes", "b", "", "r", "c", "yes"]


def test_a_turn_on_another_branch_can_be_hidden(tmp_path):
    session = new(tmp_path)
    first = ask(session, "a")
    session.move_to(None)
    ask(session, "b")

    assert len(session.hide(first)) == 2


def test_the_model_sees_other_words_and_the_calls_stay(tmp_path):
    session = new(tmp_path)
    prompt = ask(session, "the key is 1234")
    call = AssistantMessage("hm", tool_calls=[{"id": "1", "name": "f"}])
    entry = session.storage.append_entry(MessageEntry(message=call))
    note = session.storage.append_entry(CustomMessageEntry(content="note"))

    session.edit(prompt, "the key is set")
    session.edit(entry.id, "")
    session.edit(note.id, "other note")

    messages = session.context().messages
    assert [message.text for message in messages] == ["the key is set", "yes", "", "other note"]
    assert messages[2].tool_calls == call.tool_calls
    assert session.tree.entry(prompt).message.text == "the key is 1234"
    with pytest.raises(SessionError, match="no message"):
        session.edit(session.leaf, "x")


def test_showing_what_has_no_content_of_its_own_does_no_harm(tmp_path):
    session = new(tmp_path)
    pi = {"message": {"role": "bashExecution", "command": "ls"}}
    entry = session.storage.append_entry(MessageEntry.model_validate(pi))

    assert session.show(entry.id) == [entry.id]


def test_two_branches_are_compared_from_where_they_part(tmp_path):
    session = new(tmp_path)
    ask(session, "a")
    shared = session.leaf
    ask(session, "b")
    left = session.leaf
    session.move_to(shared)
    ask(session, "c")

    comparison = session.compare(left, session.leaf)

    assert comparison.ancestor == shared
    assert [entry.message.text for entry in comparison.left] == ["b", "yes"]
    assert [entry.message.text for entry in comparison.right] == ["c", "yes"]


def test_a_fork_holds_the_path_byte_for_byte_and_what_it_is_called(tmp_path):
    session = new(tmp_path)
    session.storage.append_entry(ModelChangeEntry(provider="p", model_id="m"))
    prompt = ask(session, "a \u2028 😀", cell_id="A")
    end = session.leaf
    ask(session, "b")
    session.label(prompt, "start")
    session.rename("work")
    before = session.storage.path.read_bytes()

    fork = session.fork(leaf=end)

    assert session.storage.path.read_bytes() == before
    assert fork.storage.path.name == "s.2.yiem.jsonl"
    assert fork.storage.get_metadata().parent_session == str(session.storage.path)
    assert fork.storage.get_metadata().id != session.storage.get_metadata().id
    lines = fork.storage.path.read_bytes().splitlines(keepends=True)
    assert all(line in before for line in lines[1:4])
    again = reopen(fork)
    assert seen(again) == ["a \u2028 😀", "yes"]
    assert again.context().model == ("p", "m")
    assert again.tree.labels() == {prompt: "start"}
    assert again.tree.name == "work"
    assert session.fork().storage.path.name == "s.3.yiem.jsonl"


def test_a_fork_of_a_damaged_session_is_whole(tmp_path):
    path = tmp_path / "s.jsonl"
    records = [
        {"type": "session", "version": 3, "id": "s", "timestamp": "t", "cwd": "/"},
        {"type": "custom", "id": "a", "parentId": None, "timestamp": "t"},
        {"type": "custom", "id": "b", "parentId": "lost", "timestamp": "t"},
        {"type": "custom", "id": "a", "parentId": "b", "timestamp": "t"},
        {"type": "odd", "id": "c", "parentId": "a", "timestamp": "t", "x": 1e-07},
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    session = Session(JsonlSessionStorage.open(path, limits=UNLIMITED))

    fork = reopen(session.fork(tmp_path / "fork.jsonl"))

    assert fork.storage.notices == []
    assert fork.tree.path(fork.leaf) == ["a", "b", "a~2", "c"]
    last = json.loads(fork.storage.path.read_bytes().splitlines()[-1])
    assert last == records[-1] | {"parentId": "a~2"}


def test_a_fork_does_not_go_over_a_file(tmp_path):
    session = new(tmp_path)
    ask(session, "a")

    with pytest.raises(SessionError, match="There is a file"):
        session.fork(session.storage.path)


def test_a_label_that_was_taken_off_elsewhere_is_not_on_the_fork(tmp_path):
    session = new(tmp_path)
    prompt = ask(session, "a")
    session.label(prompt, "start")
    end = session.leaf
    session.label(prompt, None)

    assert session.fork(leaf=end).tree.labels() == {}


def test_a_version_is_chosen_and_a_plan_is_carried_out(tmp_path):
    session = new(tmp_path)
    for cell, text in [("A", "a1"), ("B", "b1"), ("A", "a2")]:
        session.apply(session.plan("ABC", cell))
        ask(session, text, cell_id=cell)

    plan = session.plan("ABC", "C")
    session.apply(plan)
    ask(session, "c1", cell_id="C")

    assert seen(reopen(session)) == ["a2", "yes", "b1", "yes", "c1", "yes"]
    assert reopen(session).stale("ABC") == ["B"]
    first = session.places.versions("A")[0]
    session.choose(first)
    assert seen(reopen(session)) == ["a1", "yes", "b1", "yes"]
    with pytest.raises(SessionError, match="no exchange"):
        session.choose("nobody")


def test_a_fork_that_holds_only_a_copy_has_the_version_all_the_same(tmp_path):
    session = new(tmp_path)
    for cell, text in [("A", "a1"), ("B", "b1"), ("A", "a2"), ("C", "c1")]:
        session.apply(session.plan("ABC", cell))
        ask(session, text, cell_id=cell)

    fork = session.fork()

    (version,) = fork.places.versions("B")
    assert version not in fork.tree
    assert fork.tree.entry(fork.places.prompt(version)).message.text == "b1"
    before = fork.leaf
    fork.choose(version)
    assert fork.leaf == before
    assert fork.stale("ABC") == []


def test_places_are_read_again_when_the_file_was_shortened(tmp_path):
    session = new(tmp_path)
    ask(session, "a", cell_id="A")
    size = session.storage.path.stat().st_size
    ask(session, "b", cell_id="B")
    assert session.places.cells() == ["A", "B"]
    before = session.places
    os.truncate(session.storage.path, size)
    session.storage.append_entry(CustomEntry(parent_id=None))

    assert session.places is not before
    assert session.places.cells() == ["A", "B"]


OPERATIONS = {
    "ask": lambda session, target, number: ask(session, f"p{number}", cell_id="ABC"[number % 3]),
    "move": lambda session, target, number: session.move_to(target),
    "root": lambda session, target, number: session.move_to(None),
    "label": lambda session, target, number: session.label(target, f"l{number}"),
    "rename": lambda session, target, number: session.rename(f"n{number}"),
    "hide": lambda session, target, number: session.hide(target),
    "show": lambda session, target, number: session.show(target),
    "edit": lambda session, target, number: session.edit(target, f"e{number}"),
    "plan": lambda session, target, number: session.apply(session.plan("ABC", "ABC"[number % 3])),
}


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.tuples(st.sampled_from(sorted(OPERATIONS)), st.integers(0, 50)), max_size=15))
def test_no_operation_loses_an_entry_and_a_reopened_session_is_the_live_one(tmp_path, operations):
    session = new(tmp_path, f"{os.urandom(8).hex()}.jsonl")
    prompts = [ask(session, "first", cell_id="A")]
    content = session.storage.path.read_bytes()
    for operation, number in operations:
        result = OPERATIONS[operation](session, prompts[number % len(prompts)], number)
        if operation == "ask":
            prompts.append(result)
        now = session.storage.path.read_bytes()
        assert now.startswith(content)
        content = now

    again = reopen(session)
    assert again.storage.notices == []
    assert list(again.tree) == list(session.tree)
    assert again.leaf == session.leaf
    assert again.context() == session.context()
    assert again.tree.labels() == session.tree.labels()
    assert again.stale("ABC") == session.stale("ABC")
