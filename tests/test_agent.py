"""The agent: persist, then fold, then notify; queues, busy errors, limits."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest
from tests.factories import MODEL, call, stream, tool
from yiem_nb.agent import Agent, AgentOptions
from yiem_nb.errors import (
    AgentBusyError,
    ErrorCode,
    InvalidMessageRoleError,
    ProviderError,
    RateLimitedError,
)
from yiem_nb.events import (
    AgentEndEvent,
    AgentEvent,
    MessageEndEvent,
    MessageUpdateEvent,
    QueueUpdateEvent,
    ToolExecutionEndEvent,
)
from yiem_nb.hashing import RequestHasher
from yiem_nb.messages import (
    AgentToolResult,
    AssistantMessage,
    StopReason,
    ToolResultMessage,
    UserMessage,
)
from yiem_nb.models import Limits, Model, QueueMode, ThinkingLevel
from yiem_nb.providers import ScriptedProvider
from yiem_nb.state import AgentContext


class Notes:
    """A journal in memory that notes the order of what is written."""

    def __init__(self) -> None:
        self.lines: list[Any] = []

    async def message(
        self, message: Any, *, cell_id: str | None = None, request_hash: str | None = None
    ) -> None:
        self.lines.append((message, cell_id, request_hash))

    async def model(self, model: Model) -> None:
        self.lines.append(("model", model.id))

    async def thinking_level(self, level: ThinkingLevel) -> None:
        self.lines.append(("thinking", str(level)))

    async def tools(self, names: Any) -> None:
        self.lines.append(("tools", names))

    async def custom(self, kind: str, data: Any) -> None:
        self.lines.append((kind, data))

    async def delta(self, event: Any) -> None:
        """What is kept of an answer on its way is tested with the session."""

    async def new_root(self) -> None:
        self.lines.append("root")

    async def settle(self) -> None:
        self.lines.append("settled")


def agent(turns: Any, journal: Notes | None = None, **options: Any) -> Agent:
    fn = turns if callable(turns) else ScriptedProvider(turns)
    return Agent(AgentOptions(**({"model": MODEL} | options)), fn, journal)


# --- Prompting -----------------------------------------------------------------------------


@pytest.mark.requirement("SPEC-6.1")
@pytest.mark.parametrize("prompt", ["hi", UserMessage("hi"), [UserMessage("a"), UserMessage("hi")]])
async def test_a_prompt_is_text_a_message_or_several(prompt: Any) -> None:
    made = agent(["hello"])
    answer = await made.prompt(prompt)
    assert answer.text == "hello"
    assert made.state.messages[-2].text == "hi"
    assert made.get_state() is made.state


@pytest.mark.requirement("SPEC-7.1")
@pytest.mark.parametrize("prompt", [[], [AssistantMessage("an answer")]])
async def test_a_prompt_must_want_an_answer(prompt: Any) -> None:
    with pytest.raises(InvalidMessageRoleError):
        await agent([]).prompt(prompt)


async def test_without_a_model_nothing_is_sent_and_the_remedy_is_said() -> None:
    with pytest.raises(ProviderError) as caught:
        await agent([], model=None).prompt("hi")
    assert caught.value.code is ErrorCode.PROVIDER_NOT_CHOSEN
    assert "%yiem model" in caught.value.hint


@pytest.mark.requirement("SPEC-7.1")
async def test_a_busy_agent_refuses_and_nothing_changes() -> None:
    made = agent(stream(MessageUpdateEvent(0, "text", "x"), None))
    running = asyncio.create_task(made.prompt("first"))
    await asyncio.sleep(0)
    before = made.state
    for refused in (made.prompt("second"), made.continue_(), made.reset()):
        with pytest.raises(AgentBusyError) as caught:
            await refused
        assert caught.value.code is ErrorCode.AGENT_BUSY
    assert made.state.messages == before.messages
    made.abort("done")
    assert (await running).stop_reason is StopReason.ABORTED
    assert not made.is_busy


async def test_a_failed_request_is_an_answer_and_the_next_prompt_works() -> None:
    made = agent([RuntimeError("down"), "up again"])
    assert (await made.prompt("hi")).stop_reason is StopReason.ERROR
    assert made.state.error_message == "RuntimeError: down"
    assert (await made.prompt("hi")).text == "up again"
    assert made.state.error_message is None


async def test_cancelling_the_caller_stops_the_run_in_order() -> None:
    notes = Notes()
    made = agent(stream(MessageUpdateEvent(0, "text", "so far"), None), notes)
    task = asyncio.create_task(made.prompt("hi"))
    while not made.state.deltas or not len(made.state.deltas):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not made.is_busy
    message = notes.lines[-2][0]
    assert (message.text, message.stop_reason) == ("so far", StopReason.ABORTED)


# --- Continuing, queues, reset -------------------------------------------------------------


@pytest.mark.requirement("SPEC-6.1")
async def test_continuing_answers_a_question_or_what_is_queued() -> None:
    made = agent(["answer", "to the queue"], messages=[UserMessage("asked before")])
    assert (await made.continue_()).text == "answer"
    with pytest.raises(InvalidMessageRoleError):
        await made.continue_()
    made.follow_up("queued")
    assert (await made.continue_()).text == "to the queue"


@pytest.mark.requirement("SPEC-10.1")
@pytest.mark.parametrize(("mode", "turns"), [(QueueMode.ONE_AT_A_TIME, 3), (QueueMode.ALL, 2)])
async def test_queued_messages_come_one_at_a_time_or_all(mode: QueueMode, turns: int) -> None:
    provider = ScriptedProvider([call("c1"), "two", "three"])
    made = agent(provider, tools=[tool()], steering_mode=mode)
    heard: list[AgentEvent] = []

    async def steer_twice(*_: Any) -> AgentToolResult:
        made.steer("one")
        made.steer(UserMessage("two"))
        return AgentToolResult("ok")

    await made.set_tools([tool(execute=steer_twice)])
    made.subscribe(lambda event, signal: heard.append(event))
    await made.prompt("go")
    assert len(provider.requests) == turns


async def test_an_abort_gives_back_what_was_queued() -> None:
    made = agent([])
    made.steer("a")
    made.follow_up("b")
    assert [m.text for m in made.abort()] == ["a", "b"]
    assert made.abort() == []


async def test_a_reset_keeps_model_and_tools_and_starts_a_new_root() -> None:
    notes = Notes()
    made = agent(["x"], notes, tools=[tool()], system_prompt="be kind")
    await made.prompt("hi")
    made.follow_up("queued")
    await made.reset()
    assert made.state.messages == ()
    assert (made.state.system_prompt, list(made.state.tools)) == ("be kind", ["work"])
    assert notes.lines[-1] == "root"
    assert made.abort() == []


# --- Persist, then fold, then notify -------------------------------------------------------


@pytest.mark.requirement("SPEC-6.1")
async def test_everything_is_written_before_anyone_acts_on_it() -> None:
    notes = Notes()
    seen: list[int] = []

    async def look(*_: Any) -> AgentToolResult:
        seen.append(len(notes.lines))
        return AgentToolResult("ok")

    def answer(context: AgentContext) -> Any:
        seen.append(len(notes.lines))
        return call("c1") if len(seen) == 1 else "done"

    made = agent([answer, answer], notes, tools=[tool(execute=look)])
    await made.prompt("hi", cell_id="cell-1")
    # The prompt before the request, the call before the tool, the result before the next request.
    assert seen == [1, 2, 4]
    (prompt, cell, _), (asked, _, digest), (result, *_), settled, (last, *_), _ = notes.lines
    assert (prompt.text, cell) == ("hi", "cell-1")
    assert len(digest) == 64
    assert isinstance(result, ToolResultMessage)
    assert settled == "settled"
    assert (asked.role, last.text) == ("assistant", "done")


async def test_a_result_is_written_when_it_finishes_and_not_when_the_batch_ends() -> None:
    notes, written = Notes(), []
    first_is_there = asyncio.Event()

    async def quick(*_: Any) -> AgentToolResult:
        return AgentToolResult("quick")

    async def slow(*_: Any) -> AgentToolResult:
        await first_is_there.wait()
        written.extend(m.tool_call_id for m, *_ in notes.lines if isinstance(m, ToolResultMessage))
        return AgentToolResult("slow")

    made = agent(
        [[call("c1", "quick"), call("c2", "slow")], "done"],
        notes,
        tools=[tool("quick", quick), tool("slow", slow)],
    )

    async def hear(event: AgentEvent, signal: Any) -> None:
        if isinstance(event, ToolExecutionEndEvent):
            first_is_there.set()

    made.subscribe(hear)
    await made.prompt("go")
    assert written == ["c1"]
    kept = [
        m.tool_call_id
        for m, *_ in (n for n in notes.lines if isinstance(n, tuple))
        if isinstance(m, ToolResultMessage)
    ]
    assert kept == ["c1", "c2"]


async def test_settings_made_during_a_run_are_written_after_its_turn() -> None:
    notes = Notes()

    async def change(*_: Any) -> AgentToolResult:
        await made.set_thinking_level(ThinkingLevel.HIGH)
        await made.set_model(Model(id="other"))
        return AgentToolResult("ok")

    made = agent([call("c1"), "done"], notes, tools=[tool(execute=change)])
    await made.prompt("hi")
    kinds = [n[0] if isinstance(n[0], str) else n[0].role for n in notes.lines if n != "settled"]
    assert kinds == ["user", "assistant", "toolResult", "thinking", "model", "assistant"]
    await made.set_model(Model(id="quiet"), record=False)
    assert notes.lines[-1] == "settled"


async def test_the_messages_in_memory_are_those_in_the_journal() -> None:
    notes = Notes()
    made = agent([[call("c1"), call("c2")], "done"], notes, tools=[tool()])
    await made.prompt("hi")
    assert [n[0] for n in notes.lines if isinstance(n, tuple)] == list(made.state.messages)


# --- Listeners -----------------------------------------------------------------------------


@pytest.mark.requirement("SPEC-5.2")
async def test_listeners_of_both_kinds_hear_everything_in_order() -> None:
    made = agent(["hello"])
    plain: list[AgentEvent] = []
    awaited: list[AgentEvent] = []
    over = threading.Event()

    def listen(event: AgentEvent, signal: Any) -> None:
        plain.append(event)
        if isinstance(event, AgentEndEvent):
            over.set()

    heard = asyncio.Event()

    async def listen_async(event: AgentEvent, signal: Any) -> None:
        awaited.append(event)
        if isinstance(event, AgentEndEvent):
            heard.set()

    made.subscribe(listen)
    unsubscribe = made.subscribe(listen_async)
    await made.prompt("hi")
    await asyncio.wait_for(heard.wait(), 5)
    assert await asyncio.to_thread(over.wait, 5)
    assert [type(e) for e in plain] == [type(e) for e in awaited]
    assert "".join(e.text for e in awaited if isinstance(e, MessageUpdateEvent)) == "hello"
    unsubscribe()
    unsubscribe()


class Reports(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.there = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        self.there.set()


@pytest.mark.requirement("SPEC-5.2")
async def test_a_listener_that_fails_or_dawdles_holds_up_nobody() -> None:
    reports = Reports()
    logging.getLogger("yiem_nb").addHandler(reports)
    made = agent(["abcdefghijklmnop"])
    release, joined = threading.Event(), []
    done = threading.Event()

    def broken(event: AgentEvent, signal: Any) -> None:
        raise ValueError("mine")

    def slow(event: AgentEvent, signal: Any) -> None:
        release.wait(5)
        joined.append(event)
        if isinstance(event, AgentEndEvent):
            done.set()

    made.subscribe(broken)
    made.subscribe(slow)
    assert (await made.prompt("hi")).text == "abcdefghijklmnop"
    release.set()
    assert await asyncio.to_thread(done.wait, 5)
    deltas = [e for e in joined if isinstance(e, MessageUpdateEvent)]
    assert [e.text for e in deltas] == ["abcdefghijklmnop"]
    assert sum(isinstance(e, MessageEndEvent) for e in joined) == 2
    assert await asyncio.to_thread(reports.there.wait, 5)
    logging.getLogger("yiem_nb").removeHandler(reports)
    assert [line.partition("broken ")[2] for line in reports.lines] == [
        "failed: ValueError('mine')"
    ]


async def test_queues_are_announced() -> None:
    made, heard = agent([]), []
    there = threading.Event()

    def listen(event: AgentEvent, signal: Any) -> None:
        heard.append(event)
        there.set()

    made.subscribe(listen)
    made.steer("later")
    assert await asyncio.to_thread(there.wait, 5)
    assert isinstance(heard[0], QueueUpdateEvent)
    assert heard[0].steering[0].text == "later"


# --- Limits --------------------------------------------------------------------------------


@pytest.mark.requirement("SPEC-9.1")
async def test_a_conversation_holds_a_thousand_messages_and_not_one_more() -> None:
    made = agent(["x"] * 3, messages=[UserMessage("m", 1)] * 999)
    await made.prompt("number 1000")
    with pytest.raises(RateLimitedError) as caught:
        await made.prompt("one more")
    assert "messages_per_session" in caught.value.hint
    free = agent(
        ["x"], messages=[UserMessage("m", 1)] * 2000, limits=Limits(messages_per_session=None)
    )
    assert (await free.prompt("hi")).text == "x"


@pytest.mark.requirement("SPEC-9.1")
async def test_a_hundred_requests_a_minute_and_not_one_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    monkeypatch.setattr("yiem_nb.agent.time.monotonic", lambda: now)
    made = agent(["x"] * 102, limits=Limits(messages_per_session=None))
    for _ in range(100):
        await made.prompt("hi")
    with pytest.raises(RateLimitedError, match="100 requests"):
        await made.prompt("hi")
    now += 60
    assert (await made.prompt("hi")).text == "x"


async def test_the_minute_is_counted_within_a_run_too() -> None:
    made = agent([call("c1"), "never"], tools=[tool()], limits=Limits(messages_per_minute=1))
    answer = await made.prompt("hi")
    assert answer.error_code == "RATE_LIMITED"


# --- The request's hash --------------------------------------------------------------------


def test_a_request_that_looks_the_same_has_the_same_hash() -> None:
    def of(*messages: Any, prompt: str = "p", model: Model = MODEL) -> str:
        return hasher.hash(model, ThinkingLevel.OFF, AgentContext(prompt, messages, {}))

    hasher = RequestHasher()

    result = ToolResultMessage("c1", "work", "ok", details={"seconds": 1.0}, timestamp=1)
    again = ToolResultMessage("c1", "work", "ok", details={"seconds": 2.0}, timestamp=9)
    assert of(UserMessage("a", 1), result) == of(UserMessage("a", 2), again)
    assert of(UserMessage("a", 1)) != of(UserMessage("b", 1))
    assert of(prompt="q") != of()
    assert of(model=Model(id="other")) != of()
    assert hasher.hash(None, ThinkingLevel.OFF, AgentContext()) != of()


def test_a_growing_conversation_hashes_as_it_would_from_the_start() -> None:
    grown, said = RequestHasher(), []
    for number in range(5):
        said.append(UserMessage(f"m{number}", 1))
        context = AgentContext("", tuple(said), {"work": tool()})
        whole = RequestHasher().hash(MODEL, ThinkingLevel.OFF, context)
        assert grown.hash(MODEL, ThinkingLevel.OFF, context) == whole
    branch = AgentContext("", (*said[:2], UserMessage("other", 1)), {"work": tool()})
    whole = RequestHasher().hash(MODEL, ThinkingLevel.OFF, branch)
    assert grown.hash(MODEL, ThinkingLevel.OFF, branch) == whole


def test_the_options_have_the_specified_defaults() -> None:
    options = AgentOptions(model=MODEL)
    assert (options.system_prompt, options.thinking_level) == ("", ThinkingLevel.OFF)
    assert options.steering_mode is options.follow_up_mode is QueueMode.ONE_AT_A_TIME
    assert options.limits == Limits()


async def test_another_point_of_the_tree_can_be_taken_up() -> None:
    made = agent(["x"])
    made.set_messages([UserMessage("elsewhere")])
    made.set_system_prompt("told")
    await made.continue_()
    assert made.state.messages[0].text == "elsewhere"
