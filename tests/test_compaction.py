"""A summary stands for the beginning of a conversation that grows too long."""

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.factories import answer, run, tool, trace
from yiem_nb.agent import Agent, AgentOptions
from yiem_nb.compaction import (
    Room,
    plan_compaction,
    request_text,
    room_of,
    summary_message,
    summary_of,
)
from yiem_nb.errors import AgentBusyError, CompactionError, ErrorCode
from yiem_nb.events import CompactionEndEvent, CompactionStartEvent, MessageUpdateEvent
from yiem_nb.messages import (
    AgentToolCall,
    AgentToolResult,
    AssistantMessage,
    ImageContent,
    ReasoningContent,
    TextContent,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from yiem_nb.models import Limits, Model
from yiem_nb.providers import ScriptedProvider
from yiem_nb.session import JsonlSessionStorage, SessionOptions, build_context
from yiem_nb.session.journal import SessionJournal
from yiem_nb.tokens import message_tokens

SMALL = Model(id="small", context_window=2_000)
LONG = "word " * 1_000


def result(id, text="ok"):
    return ToolResultMessage(id, "work", text)


def calls(*ids):
    return AssistantMessage(tool_calls=[AgentToolCall(id, "work") for id in ids])


# --- Room ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("window", "room"),
    [(200_000, Room(183_616, 20_000)), (8_000, Room(6_000, 2_666)), (0, None)],
)
def test_the_room_of_a_window(window, room):
    assert room_of(Model(id="m", context_window=window)) == room


# --- Where to cut --------------------------------------------------------------------------


def test_the_end_stays_and_the_beginning_is_summarised():
    messages = [UserMessage(LONG), AssistantMessage("a"), UserMessage("b"), AssistantMessage("c")]
    plan = plan_compaction(messages, 100)
    assert (plan.cut, plan.kept, plan.splits_turn) == (tuple(messages[:1]), 3, True)


def test_a_result_stays_with_its_call():
    messages = [UserMessage("a " * 500), calls("1", "2"), result("1", LONG), result("2", "ok")]
    assert plan_compaction(messages, 100).kept == 3
    messages += [AssistantMessage("c"), UserMessage("d")]
    assert plan_compaction(messages, 500).kept == 2


def test_there_may_be_nothing_to_summarise():
    assert plan_compaction([], 100) is None
    assert plan_compaction([UserMessage("a")], 100) is None
    assert plan_compaction([UserMessage(LONG)], 100) is None
    assert plan_compaction([summary_message("s", 1), UserMessage(LONG)], 100) is None
    assert plan_compaction([calls("1"), result("1", LONG)], 100) is None
    assert plan_compaction([UserMessage("a"), AssistantMessage(LONG)], 100) is None


def test_an_earlier_summary_is_carried_on():
    messages = [summary_message("so far", 1), UserMessage(LONG), AssistantMessage("a")]
    plan = plan_compaction(messages, 50)
    assert (plan.earlier, plan.cut, plan.kept) == ("so far", tuple(messages[1:2]), 1)


def test_a_summary_is_told_apart_from_what_a_user_says():
    assert summary_of(summary_message("so far", 1)) == "so far"
    assert summary_of(UserMessage("so far")) is None
    assert summary_of(AssistantMessage("so far")) is None


def _conversation(turns):
    messages, number = [], 0
    for size, batch in turns:
        messages.append(UserMessage("u " * size + "."))
        for _ in range(batch):
            ids = [f"{number}", f"{number}b"]
            number += 1
            messages += [calls(*ids), *(result(id, "r " * size + ".") for id in ids)]
        messages.append(AssistantMessage("a " * size + "."))
    return messages


@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 3)), max_size=6),
    st.integers(0, 2_000),
    st.integers(0, 3),
)
def test_a_cut_never_parts_a_call_from_its_result(turns, keep, drop):
    messages = _conversation(turns)
    messages = messages[: len(messages) - drop]
    plan = plan_compaction(messages, keep)
    if plan is None:
        return
    assert 0 < plan.kept < len(messages)
    assert plan.cut == tuple(messages[: -plan.kept])
    kept = messages[-plan.kept :]
    known = {call.id for m in kept if isinstance(m, AssistantMessage) for call in m.tool_calls}
    assert all(m.tool_call_id in known for m in kept if isinstance(m, ToolResultMessage))
    # All but the first of what stays, or its batch, is within what was to be kept.
    tail = sum(message_tokens(m) for m in kept)
    first = next(
        (at for at, m in enumerate(kept) if at and not isinstance(m, ToolResultMessage)), plan.kept
    )
    assert tail - sum(message_tokens(m) for m in kept[:first]) <= keep


# --- What the summariser reads -------------------------------------------------------------


def test_the_summariser_reads_words_and_little_of_outputs():
    messages = [
        UserMessage([TextContent("look"), ImageContent("aGk=", "image/png")]),
        AssistantMessage("I call", tool_calls=[AgentToolCall("1", "load", {"path": "wine.csv"})]),
        ToolResultMessage("1", "load", "x" * 5_000),
    ]
    text = request_text(messages, budget=10_000, earlier="before", instructions="the path")
    assert "[User]: look\n[an image]" in text
    assert "[Assistant]: I call\n[calls load(path='wine.csv')]" in text
    assert f"[Result of load]: {'x' * 2_000}… [3,000 more characters]" in text
    assert "<previous-summary>\nbefore\n</previous-summary>" in text
    assert "Above all: the path" in text


def test_of_a_conversation_that_does_not_fit_the_end_is_read():
    messages = [UserMessage(f"{number} " + "word " * 200) for number in range(20)]
    text = request_text(messages, budget=1_000)
    assert "[what came before this is left out]" in text
    assert "[User]: 19 " in text
    assert "[User]: 0 " not in text


# --- In a run ------------------------------------------------------------------------------


def kinds(events):
    return [type(event).__name__ for event in events]


async def test_a_conversation_that_nears_the_limit_is_compacted_before_the_request():
    provider = ScriptedProvider(["## Goal\nwine", "done"])
    history = [UserMessage(LONG), AssistantMessage(LONG), UserMessage("b"), AssistantMessage("c")]
    events = await run([], stream_fn=provider, messages=history, model=SMALL)
    assert trace(events).startswith(
        "A{ T[ ms(user) me(user) CompactionStartEvent CompactionEndEvent ms(asst)"
    )
    end = next(event for event in events if isinstance(event, CompactionEndEvent))
    assert summary_of(end.message) == "## Goal\nwine"
    assert end.tokens_after < end.tokens_before
    assert [m.text for m in provider.requests[1].messages][1:] == ["b", "c", "hi"]
    assert provider.requests[0].tools == {}
    assert answer(events).text == "done"


async def test_a_run_with_tools_is_compacted_between_its_turns():
    async def long(*_):
        return AgentToolResult("word " * 1_500)

    turns = [calls("1"), "the summary", "done"]
    provider = ScriptedProvider(turns)
    history = [UserMessage("word " * 300), AssistantMessage("yes")]
    events = await run(
        [], stream_fn=provider, messages=history, tools=[tool(execute=long)], model=SMALL
    )
    assert kinds(events).count("CompactionEndEvent") == 1
    sent = provider.requests[-1].messages
    assert [m.role for m in sent] == ["user", "assistant", "toolResult"]
    assert answer(events).text == "done"


def overflow(*_):
    return AssistantMessage(
        stop_reason="error", error_message="too long", error_code=ErrorCode.PROVIDER_OVERFLOW
    )


async def test_a_request_that_did_not_fit_is_compacted_and_sent_once_more():
    provider = ScriptedProvider([overflow(), "the summary", "done"])
    history = [
        UserMessage("a"),
        AssistantMessage("b"),
        UserMessage("c " * 14_000),
        AssistantMessage("d"),
    ]
    model = Model(id="m", context_window=16_000)
    events = await run([], stream_fn=provider, messages=history, model=model)
    assert trace(events) == (
        "A{ T[ ms(user) me(user) ms(asst) me(asst:error) CompactionStartEvent CompactionEndEvent ]T(0)"
        " T[ ms(asst) u me(asst:stop) ]T(0) }A"
    )
    assert answer(events).text == "done"


async def test_a_second_overflow_is_the_answer():
    provider = ScriptedProvider([overflow(), "the summary", overflow(), "never"])
    history = [
        UserMessage("a"),
        AssistantMessage("b"),
        UserMessage("c " * 14_000),
        AssistantMessage("d"),
    ]
    events = await run(
        [], stream_fn=provider, messages=history, model=Model(id="m", context_window=16_000)
    )
    assert len(provider.requests) == 3
    assert answer(events).error_code == ErrorCode.PROVIDER_OVERFLOW


async def test_a_prompt_that_no_compaction_can_fit_ends_with_the_providers_word():
    provider = ScriptedProvider([overflow(), "never"])
    events = await run([], stream_fn=provider, prompts=[UserMessage(LONG)], model=SMALL)
    assert len(provider.requests) == 1
    end = next(event for event in events if isinstance(event, CompactionEndEvent))
    assert end.error_message == "There is nothing to summarise yet."
    assert answer(events).error_code == ErrorCode.PROVIDER_OVERFLOW


@pytest.mark.parametrize(
    ("turn", "said"),
    [
        (
            AssistantMessage(stop_reason="error", error_message="The key was refused."),
            "The key was refused.",
        ),
        (AssistantMessage(stop_reason="error"), "The summary could not be made."),
        (AssistantMessage(), "The model was asked for a summary and gave none."),
        (calls("1"), "The model was asked for a summary and gave none."),
        (
            AssistantMessage("cut", stop_reason="length"),
            "The summary was cut off by the model's limit.",
        ),
    ],
)
async def test_a_summary_that_cannot_be_made_leaves_the_conversation_as_it_was(turn, said):
    provider = ScriptedProvider([turn, "done", "done"])
    history = [UserMessage(LONG), AssistantMessage(LONG), UserMessage("b"), AssistantMessage("c")]
    events = await run([], stream_fn=provider, messages=history, model=SMALL)
    end = next(event for event in events if isinstance(event, CompactionEndEvent))
    assert (end.message, end.error_message) == (None, said)
    assert [m.text for m in provider.requests[1].messages] == [LONG, LONG, "b", "c", "hi"]


async def test_a_summary_that_was_cut_off_late_is_better_than_none():
    words = "line\n" * 100
    provider = ScriptedProvider(
        [AssistantMessage(words + "half a li", stop_reason="length"), "done"]
    )
    history = [UserMessage(LONG), AssistantMessage(LONG), UserMessage("b"), AssistantMessage("c")]
    await run([], stream_fn=provider, messages=history, model=SMALL)
    told = summary_of(provider.requests[1].messages[0])
    assert told.endswith("line\n[the summary was cut off here]")


async def test_without_leave_nothing_is_compacted():
    provider = ScriptedProvider(["done"])
    events = await run(
        [], stream_fn=provider, prompts=[UserMessage(LONG * 3)], model=SMALL, compaction=False
    )
    assert CompactionStartEvent not in map(type, events)


# --- An agent and its session --------------------------------------------------------------


def opened(path):
    return (
        JsonlSessionStorage.open(path)
        if path.exists()
        else JsonlSessionStorage.create(SessionOptions(path))
    )


def agent_of(path, provider, model=SMALL):
    storage = opened(path)
    context = build_context(storage.tree, storage.get_leaf_id())
    options = AgentOptions(model=model, messages=context.messages)
    return Agent(options, provider, SessionJournal(storage))


async def test_what_is_live_and_what_is_read_back_are_the_same_after_a_compaction(tmp_path):
    path = tmp_path / "s.yiem.jsonl"
    turns = ["first " * 600, "second " * 600, "## Goal\nwine", "third", "fourth"]
    agent = agent_of(path, ScriptedProvider(turns))
    for prompt in ("a", "b", "c", "d"):
        await agent.prompt(prompt)
    storage = opened(path)
    assert build_context(storage.tree, storage.get_leaf_id()).messages == agent.state.messages
    assert summary_of(agent.state.messages[0]) == "## Goal\nwine"
    (entry,) = storage.find_entries("compaction")
    assert entry.first_kept_entry_id in storage.tree
    assert entry.tokens_before > 0
    # The file keeps all of it.
    assert storage.get_session_stats().message_count == 8


async def test_an_overflow_is_the_same_live_and_read_back(tmp_path):
    path = tmp_path / "s.yiem.jsonl"
    provider = ScriptedProvider(["b", "c " * 14_000, overflow(), "the summary", "done"])
    agent = agent_of(path, provider, Model(id="m", context_window=16_000))
    for prompt in ("one", "two", "three"):
        await agent.prompt(prompt)
    storage = opened(path)
    assert build_context(storage.tree, storage.get_leaf_id()).messages == agent.state.messages
    assert agent.state.messages[-1].text == "done"


async def test_compacting_by_hand(tmp_path):
    path = tmp_path / "s.yiem.jsonl"
    provider = ScriptedProvider(["first " * 1_200, "second " * 1_200, "the summary", "third"])
    agent = agent_of(path, provider, replace_window(6_000))
    await agent.prompt("a")
    await agent.prompt("b")
    heard = []
    agent.subscribe(lambda event, signal: heard.append(type(event)))
    end = await agent.compact("the altitude")
    assert "Above all: the altitude" in provider.requests[2].messages[0].text
    assert end.tokens_after < end.tokens_before
    assert not agent.is_busy
    await agent.prompt("c")
    assert summary_of(provider.requests[3].messages[0]) == "the summary"
    storage = opened(path)
    assert build_context(storage.tree, storage.get_leaf_id()).messages == agent.state.messages


def replace_window(window):
    return SMALL.model_copy(update={"context_window": window})


async def test_compacting_by_hand_says_why_it_could_not(tmp_path):
    agent = agent_of(tmp_path / "s.yiem.jsonl", ScriptedProvider([]))
    with pytest.raises(CompactionError) as caught:
        await agent.compact()
    assert str(caught.value).startswith(
        "The conversation was not compacted. There is nothing to summarise yet."
    )
    assert caught.value.code is ErrorCode.COMPACTION_FAILED


async def test_a_stopped_compaction_changes_nothing(tmp_path):
    path = tmp_path / "s.yiem.jsonl"
    waits = asyncio.Event()

    class Slow(ScriptedProvider):
        async def _summary(self):
            waits.set()
            await asyncio.get_running_loop().create_future()
            yield

        def __call__(self, *request):
            if len(self.requests) == 2:
                return self._summary()
            return super().__call__(*request)

    agent = agent_of(path, Slow(["first " * 1_200, "second " * 1_200]), replace_window(6_000))
    await agent.prompt("a")
    await agent.prompt("b")
    before = agent.state.messages
    compacting = asyncio.ensure_future(agent.compact())
    await asyncio.wait_for(waits.wait(), 10)
    with pytest.raises(AgentBusyError):
        await agent.prompt("c")
    agent.abort()
    with pytest.raises(CompactionError, match="It was stopped"):
        await compacting
    assert agent.state.messages == before
    assert opened(path).find_entries("compaction") == []


async def test_compaction_makes_room_for_the_limit_of_messages(tmp_path):
    provider = ScriptedProvider(["x " * 4_000, "y " * 4_000, "the summary", "z"])
    storage = opened(tmp_path / "s.yiem.jsonl")
    options = AgentOptions(model=replace_window(6_000), limits=Limits(messages_per_session=4))
    agent = Agent(options, provider, SessionJournal(storage))
    await agent.prompt("a")
    await agent.prompt("b")
    with pytest.raises(Exception, match="%yiem compact"):
        await agent.prompt("c")
    await agent.compact()
    assert (await agent.prompt("c")).text == "z"


def test_a_usage_from_before_is_not_counted_after():
    message = AssistantMessage("a", usage=Usage(5_000, 5), timestamp=10)
    from yiem_nb.compaction import meter_of
    from yiem_nb.state import AgentContext

    context = AgentContext("", (summary_message("s", 20), message), {})
    assert meter_of(context).tokens < 200
    assert meter_of(replace(context, messages=(message,))).tokens == 5_005


def test_thoughts_are_not_read_by_the_summariser():
    message = AssistantMessage([ReasoningContent("hm"), TextContent("said")])
    assert "[Assistant]: said" in request_text([message], budget=1_000)


async def test_a_summary_stream_that_ends_without_an_answer_or_is_no_generator(tmp_path):
    class Items:
        """A stream that cannot be closed."""

        def __init__(self, *items):
            self.items = iter(items)

        def __aiter__(self):
            return self

        async def __anext__(self):
            for item in self.items:
                return item
            raise StopAsyncIteration

    history = [UserMessage(LONG), AssistantMessage(LONG), UserMessage("b"), AssistantMessage("c")]
    streams = [Items(MessageUpdateEvent(0, "text", "half")), Items(AssistantMessage("done"))]
    events = await run([], stream_fn=lambda *_: streams.pop(0), messages=history, model=SMALL)
    end = next(event for event in events if isinstance(event, CompactionEndEvent))
    assert end.error_message == "The summary did not arrive."
    assert answer(events).text == "done"


async def test_a_run_that_is_cancelled_while_it_summarises_ends_at_once():
    begun = asyncio.Event()

    async def stream(*_):
        begun.set()
        await asyncio.get_running_loop().create_future()
        yield

    history = [UserMessage(LONG), AssistantMessage(LONG), UserMessage("b"), AssistantMessage("c")]
    running = asyncio.ensure_future(run([], stream_fn=stream, messages=history, model=SMALL))
    await asyncio.wait_for(begun.wait(), 10)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
