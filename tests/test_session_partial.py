"""What had arrived of an answer survives the end of its kernel."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yiem_nb.agent import Agent, AgentOptions
from yiem_nb.events import MessageUpdateEvent
from yiem_nb.messages import AssistantMessage, ReasoningContent, TextContent, UserMessage
from yiem_nb.models import Model
from yiem_nb.session import (
    CustomEntry,
    JsonlSessionStorage,
    MessageEntry,
    SessionOptions,
    SessionTree,
    build_context,
)
from yiem_nb.session.journal import SessionJournal
from yiem_nb.session.partial import CHARACTERS, SECONDS, PartialAnswer, partial_answer
from yiem_nb.session.place import plan_place


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def delta(text: str, index: int = 0, kind: str = "text") -> MessageUpdateEvent:
    return MessageUpdateEvent(index, kind, text)


def test_nothing_is_kept_of_an_answer_that_is_short_and_quick() -> None:
    collected = PartialAnswer(Clock())
    assert all(collected.feed(delta("word ")) is None for _ in range(100))


def test_some_seconds_after_the_first_word_it_is_kept_and_then_only_what_is_new() -> None:
    clock = Clock()
    collected = PartialAnswer(clock)
    assert collected.feed(delta("a")) is None
    clock.now = SECONDS
    first = collected.feed(delta("b"))
    assert collected.feed(delta("c")) is None
    clock.now = 2 * SECONDS
    second = collected.feed(delta("d"))
    assert first is not None
    assert second is not None
    assert (first.data, second.data) == (
        {"deltas": [[0, "text", "ab"]]},
        {"deltas": [[0, "text", "cd"]]},
    )
    assert (
        partial_answer([first, second])
        == AssistantMessage(
            "abcd", stop_reason="aborted", timestamp=partial_answer([first]).timestamp
        )
        or partial_answer([first, second]).text == "abcd"
    )


def test_a_long_answer_is_kept_at_once() -> None:
    entry = PartialAnswer(Clock()).feed(delta("x" * CHARACTERS))
    assert entry is not None


def test_half_a_call_is_of_no_use() -> None:
    collected = PartialAnswer(Clock())
    assert collected.feed(delta("x" * CHARACTERS, kind="toolCall")) is None


@given(
    st.lists(st.tuples(st.integers(0, 3), st.text(min_size=1)), min_size=1),
    st.integers(1, 30),
)
def test_whatever_the_pieces_the_answer_is_put_together(
    pieces: list[tuple[int, str]], step: int
) -> None:
    clock = Clock()
    collected = PartialAnswer(clock)
    kinds = ["thinking", "text", "thinking", "text"]
    entries = []
    for index, text in pieces:
        clock.now += step
        entry = collected.feed(delta(text, index, kinds[index]))
        if entry is not None:
            entries.append(CustomEntry.model_validate_json(entry.model_dump_json(by_alias=True)))
            answer = partial_answer(entries)
            assert answer is not None
            arrived = (
                pieces[: pieces.index((index, text)) + 1]
                if pieces.count((index, text)) == 1
                else None
            )
            if arrived is not None:
                expected = {
                    at: "".join(words for where, words in arrived if where == at)
                    for at in sorted({where for where, _ in arrived})
                }
                assert [_words(block) for block in answer.content] == list(expected.values())


def _words(block: object) -> str:
    assert isinstance(block, TextContent | ReasoningContent)
    return block.text


@pytest.mark.parametrize("data", [None, {}, {"deltas": 1}, {"deltas": [1, [0], [0, "call", "x"]]}])
def test_what_somebody_else_put_there_is_passed_over(data: object) -> None:
    assert partial_answer([CustomEntry(custom_type="yiem.partial", data=data)]) is None


def tree_of(*entries: MessageEntry | CustomEntry) -> SessionTree:
    linked = []
    for number, entry in enumerate(entries):
        update = {"id": f"e{number}", "parent_id": f"e{number - 1}" if number else None}
        linked.append(entry.model_copy(update=update))
    return SessionTree.of(linked)


KEPT = CustomEntry(custom_type="yiem.partial", data={"deltas": [[0, "text", "half an an"]]})


def texts(tree: SessionTree, leaf: str) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in build_context(tree, leaf).messages]


def test_an_answer_that_never_came_is_an_aborted_one() -> None:
    tree = tree_of(MessageEntry(message=UserMessage("go"), cell_id="A"), KEPT)
    assert texts(tree, "e1") == [("user", "go"), ("assistant", "half an an")]
    assert build_context(tree, "e1").messages[-1].stop_reason == "aborted"
    assert plan_place(tree, "e1", ["A", "B"], "B").parent == "e1"


def test_what_follows_finds_it_where_it_was() -> None:
    tree = tree_of(
        MessageEntry(message=UserMessage("go")), KEPT, MessageEntry(message=UserMessage("go on"))
    )
    assert texts(tree, "e2") == [
        *(("user", "go"), ("assistant", "half an an")),
        ("user", "go on"),
    ]


def test_the_answer_itself_supersedes_what_was_kept() -> None:
    tree = tree_of(
        MessageEntry(message=UserMessage("go")),
        KEPT,
        MessageEntry(message=AssistantMessage("whole")),
    )
    assert texts(tree, "e2") == [("user", "go"), ("assistant", "whole")]


async def test_an_agent_keeps_what_arrives_of_a_long_answer(tmp_path) -> None:
    path = tmp_path / "s.yiem.jsonl"
    journal = SessionJournal(JsonlSessionStorage.create(SessionOptions(path=path)))
    found = []

    async def stream(*_):
        for _number in range(3):
            yield delta("x" * CHARACTERS)
            again = JsonlSessionStorage.open(path)
            found.append(build_context(again.tree, again.get_leaf_id()).messages[-1].text)
            again.close()
        yield AssistantMessage("x" * 3 * CHARACTERS)

    agent = Agent(AgentOptions(model=Model(id="m")), stream, journal)
    await agent.prompt("go")
    journal.close()

    # Each is in the file before the next is asked for.
    assert [len(text) for text in found] == [CHARACTERS, 2 * CHARACTERS, 3 * CHARACTERS]
    again = JsonlSessionStorage.open(path)
    assert build_context(again.tree, again.get_leaf_id()).messages == agent.state.messages
