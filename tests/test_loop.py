"""The loop: the order of events, and that whatever fails, what was opened is closed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.factories import MODEL, answer, call, results, run, stream, tool, trace
from yiem_nb.errors import ErrorCode, InvalidMessageRoleError, ProviderError
from yiem_nb.events import (
    AbortSignal,
    AgentEndEvent,
    MessageEndEvent,
    MessageUpdateEvent,
    RetryEvent,
)
from yiem_nb.loop import (
    AgentLoopConfig,
    ToolBlock,
    agent_loop_continue,
    stream_assistant_response,
)
from yiem_nb.messages import (
    AgentToolCall,
    AgentToolResult,
    AssistantMessage,
    StopReason,
    TextContent,
    ToolResultMessage,
    UserMessage,
)
from yiem_nb.providers import ScriptedProvider
from yiem_nb.state import AgentContext, AgentState, reduce
from yiem_nb.tools import AgentTool, ToolExecutionMode


def delta(text: str) -> MessageUpdateEvent:
    return MessageUpdateEvent(0, "text", text)


# --- Order ---------------------------------------------------------------------------------


@pytest.mark.requirement("SPEC-6.2", "SPEC-5.1")
async def test_a_text_turn_has_the_reference_order() -> None:
    events = await run(["hello"])
    assert trace(events) == "A{ T[ ms(user) me(user) ms(asst) u me(asst:stop) ]T(0) }A"


@pytest.mark.requirement("SPEC-6.2")
async def test_a_tool_turn_is_followed_by_a_turn_that_reads_its_result() -> None:
    events = await run([call("c1"), "done"], tools=[tool()])
    assert trace(events) == (
        "A{ T[ ms(user) me(user) ms(asst) u me(asst:toolUse) ts(c1) te(c1) ms(tr c1) me(tr c1) ]T(1)"
        " T[ ms(asst) u me(asst:stop) ]T(0) }A"
    )


async def test_the_end_carries_the_messages_of_this_run_alone() -> None:
    before = [UserMessage("old", 1), AssistantMessage("older", timestamp=1)]
    events = await run([call("c1"), "done"], tools=[tool()], messages=before)
    end = events[-1]
    assert isinstance(end, AgentEndEvent)
    assert [m.role for m in end.messages] == ["user", "assistant", "toolResult", "assistant"]


@pytest.mark.requirement("SPEC-1.3", "SP-021")
async def test_parallel_calls_end_as_they_finish_and_are_answered_in_order() -> None:
    first_may_end = asyncio.Event()

    async def slow(*_: Any) -> AgentToolResult:
        await first_may_end.wait()
        return AgentToolResult("slow")

    async def fast(*_: Any) -> AgentToolResult:
        first_may_end.set()
        return AgentToolResult("fast")

    events = await run(
        [[call("c1", "slow"), call("c2", "fast")], "done"],
        tools=[tool("slow", slow), tool("fast", fast)],
    )
    assert "ts(c1) ts(c2) te(c2) te(c1) ms(tr c1) me(tr c1) ms(tr c2) me(tr c2) ]T(2)" in trace(
        events
    )


@pytest.mark.requirement("SPEC-1.3")
@pytest.mark.parametrize(
    ("mode", "config"),
    [(ToolExecutionMode.SEQUENTIAL, {}), (None, {"tool_execution": ToolExecutionMode.SEQUENTIAL})],
)
async def test_sequential_calls_run_and_are_answered_one_by_one(mode: Any, config: Any) -> None:
    tools = [tool("one", execution_mode=mode), tool("two")]
    events = await run([[call("c1", "two"), call("c2", "one")], "done"], tools=tools, **config)
    assert "ts(c1) te(c1) ms(tr c1) me(tr c1) ts(c2) te(c2) ms(tr c2) me(tr c2) ]T(2)" in trace(
        events
    )


@pytest.mark.requirement("SPEC-9.1")
async def test_no_more_calls_run_at_once_than_the_limit_says() -> None:
    running, most = 0, 0

    async def count(*_: Any) -> AgentToolResult:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        running -= 1
        return AgentToolResult("ok")

    calls = [call(f"c{n}") for n in range(25)]
    events = await run([calls, "done"], tools=[tool(execute=count)])
    assert most == 10
    assert len(results(events)) == 25


async def test_progress_comes_before_the_end_and_not_after_it() -> None:
    late: list[Any] = []

    async def talk(id: str, arguments: Any, signal: Any, on_update: Any) -> AgentToolResult:
        on_update(AgentToolResult("half"))
        late.append(on_update)
        return AgentToolResult("whole")

    def plain(id: str, arguments: Any, signal: Any, on_update: Any) -> AgentToolResult:
        on_update(AgentToolResult("from a thread"))
        late[0](AgentToolResult("too late"))
        return AgentToolResult("ok")

    events = await run(
        [call("c1"), call("c2", "plain"), "done"],
        tools=[tool(execute=talk), tool("plain", plain)],
    )
    assert "ts(c1) tu(c1) te(c1)" in trace(events)
    assert "ts(c2) tu(c2) te(c2)" in trace(events)


async def test_steering_comes_after_the_turn_and_before_a_follow_up() -> None:
    steering = [[], [UserMessage("steer", 1)], [], []]
    follow_up = [[UserMessage("later", 1)], []]
    events = await run(
        [call("c1"), "two", "three"],
        tools=[tool()],
        steering=lambda: steering.pop(0),
        follow_up=lambda: follow_up.pop(0),
    )
    said = [
        m.text for e in events if isinstance(e, MessageEndEvent) and (m := e.message).role == "user"
    ]
    assert said == ["hi", "steer", "later"]
    assert trace(events).count("T[") == 3


# --- Calls that do not run -----------------------------------------------------------------


@pytest.mark.requirement("SPEC-7.1")
async def test_an_unknown_tool_is_an_error_the_model_can_read() -> None:
    events = await run([[call("c1", "zzz"), call("c2")], "done"], tools=[tool()])
    assert results(events)["c1"].text == "Tool zzz not found. Available: work"
    assert results(events)["c1"].details["code"] == "TOOL_NOT_FOUND"
    assert trace(events).count("te(c2)") == 1


@pytest.mark.requirement("SP-023", "SP-024")
async def test_missing_arguments_are_named_and_nothing_runs() -> None:
    ran = []
    schema = {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a", "b"]}
    made = tool(execute=lambda *a: ran.append(a), parameters=schema)
    events = await run([call("c1"), "done"], tools=[made])
    assert results(events)["c1"].text == "Missing required arguments: a, b"
    assert results(events)["c1"].details["code"] == ErrorCode.INVALID_PARAMETERS
    assert not ran


async def test_arguments_that_were_cut_off_never_run() -> None:
    cut = AgentToolCall("c1", "work", raw_arguments='{"a": "half', incomplete=True)
    wrong = AgentToolCall("c2", "work", raw_arguments="[1", invalid=True)
    events = await run([[cut, wrong], "done"], tools=[tool()])
    assert "were cut off" in results(events)["c1"].text
    assert '{"a": "half' in results(events)["c1"].text
    assert "not a JSON object" in results(events)["c2"].text


async def test_no_call_of_an_answer_at_its_length_limit_runs() -> None:
    long = AssistantMessage(tool_calls=[call("c1")], stop_reason=StopReason.LENGTH)
    events = await run([long, "done"], tools=[tool()])
    assert results(events)["c1"].is_error
    assert answer(events).text == "done"


async def test_an_answer_that_only_hits_its_length_limit_ends_the_run() -> None:
    events = await run([AssistantMessage("half", stop_reason=StopReason.LENGTH)])
    assert trace(events).endswith("me(asst:length) ]T(0) }A")


async def test_calls_decide_not_the_stop_reason() -> None:
    said_stop = AssistantMessage(tool_calls=[call("c1")], stop_reason=StopReason.STOP)
    assert "te(c1)" in trace(await run([said_stop, "done"], tools=[tool()]))
    said_tools = AssistantMessage("no calls", stop_reason=StopReason.TOOL_USE)
    assert trace(await run([said_tools])).count("T[") == 1


async def test_a_second_call_of_one_id_gets_an_id_and_a_result_of_its_own() -> None:
    three = AssistantMessage("text", tool_calls=[call("c"), call("c"), call("c")])
    events = await run([three, "done"], tools=[tool()])
    assert list(results(events)) == ["c", "c~2", "c~3"]


async def test_arguments_are_mended_before_they_are_checked() -> None:
    got = []

    async def keep(id: str, arguments: Any, *_: Any) -> AgentToolResult:
        got.append(arguments)
        return AgentToolResult("ok")

    schema = {"type": "object", "required": ["new"]}
    made = tool(execute=keep, parameters=schema, prepare_arguments=lambda a: {"new": a["old"]})
    await run([call("c1", old=1), "done"], tools=[made])
    assert got == [{"new": 1}]


# --- Hooks ---------------------------------------------------------------------------------


@pytest.mark.requirement("SP-021")
async def test_a_before_hook_may_refuse_and_one_that_raises_refuses_too() -> None:
    def refuse(made: AgentToolCall, *_: Any) -> ToolBlock | None:
        if made.id == "c1":
            return ToolBlock("not today")
        if made.id == "c2":
            raise RuntimeError("broken hook")
        return None

    calls = [call("c1"), call("c2"), call("c3")]
    found = results(await run([calls, "done"], tools=[tool()], before_tool_call=refuse))
    assert found["c1"].text == "not today"
    assert found["c1"].details["code"] == ErrorCode.EXECUTION_DENIED
    assert "broken hook" in found["c2"].text
    assert not found["c3"].is_error


@pytest.mark.requirement("SP-021")
async def test_an_after_hook_may_replace_a_result_and_one_that_raises_makes_an_error() -> None:
    async def change(made: AgentToolCall, *_: Any) -> AgentToolResult | None:
        if made.id == "c1":
            return AgentToolResult("changed")
        if made.id == "c2":
            raise RuntimeError("broken hook")
        return None

    calls = [call("c1"), call("c2"), call("c3")]
    found = results(await run([calls, "done"], tools=[tool()], after_tool_call=change))
    assert found["c1"].text == "changed"
    assert found["c2"].is_error
    assert found["c3"].text == "ok"


async def test_each_request_may_be_prepared_and_failing_to_is_an_answer() -> None:
    provider = ScriptedProvider(["one"])
    await run([], stream_fn=provider, prepare_context=lambda c: AgentContext("told", c.messages))
    assert provider.requests[0].system_prompt == "told"

    def broken(context: AgentContext) -> AgentContext:
        raise ProviderError("No room.", code=ErrorCode.PROVIDER_OVERFLOW)

    failed = answer(await run(["never"], prepare_context=broken))
    assert (failed.stop_reason, failed.error_code) == (StopReason.ERROR, "PROVIDER_OVERFLOW")


async def test_results_are_handed_over_as_they_finish() -> None:
    kept: list[ToolResultMessage] = []
    await run([[call("c1"), call("c2")], "done"], tools=[tool()], on_tool_result=kept.append)
    assert [m.tool_call_id for m in kept] == ["c1", "c2"]


# --- Tools that misbehave ------------------------------------------------------------------


@pytest.mark.parametrize(
    "raised",
    [
        ValueError("bad value"),
        SystemExit(3),
        KeyboardInterrupt(),
        GeneratorExit(),
        asyncio.CancelledError(),
        StopIteration(1),
        BaseExceptionGroup("several", [ValueError(1)]),
    ],
    ids=lambda e: type(e).__name__,
)
@pytest.mark.parametrize("plain", [True, False])
async def test_whatever_a_tool_raises_is_its_result(raised: BaseException, plain: bool) -> None:
    def explode(*_: Any) -> AgentToolResult:
        raise raised

    async def explode_async(*_: Any) -> AgentToolResult:
        if isinstance(raised, StopIteration):
            raise ValueError("a coroutine cannot raise it")
        raise raised

    made = tool(execute=explode if plain else explode_async)
    events = await run([call("c1"), "still here"], tools=[made])
    assert results(events)["c1"].is_error
    assert answer(events).text == "still here"


@pytest.mark.requirement("SPEC-3.2", "SPEC-8.2")
async def test_a_tool_must_return_a_result() -> None:
    events = await run([call("c1"), "done"], tools=[tool(execute=lambda *_: 42)])
    assert results(events)["c1"].text == "The tool 'work' returned int, not an AgentToolResult."


async def test_a_callable_object_is_a_tool() -> None:
    class Execute:
        async def __call__(self, *_: Any) -> AgentToolResult:
            return AgentToolResult("from an object")

    events = await run([call("c1"), "done"], tools=[tool(execute=Execute())])
    assert results(events)["c1"].text == "from an object"


# --- Streams that misbehave ----------------------------------------------------------------


async def test_a_stream_that_raises_closes_message_turn_and_run() -> None:
    events = await run([], stream_fn=stream(RuntimeError("no network")))
    assert trace(events) == "A{ T[ ms(user) me(user) ms(asst) me(asst:error) ]T(0) }A"
    assert answer(events).error_message == "RuntimeError: no network"


async def test_a_stream_that_raises_later_keeps_what_had_arrived() -> None:
    events = await run([], stream_fn=stream(delta("par"), delta("tial"), RuntimeError("cut")))
    assert answer(events).text == "partial"
    assert answer(events).stop_reason is StopReason.ERROR


async def test_a_stream_without_an_end_is_an_error() -> None:
    events = await run([], stream_fn=stream(delta("half")))
    assert answer(events).error_code == "PROVIDER_INCOMPLETE"
    assert answer(events).text == "half"


async def test_a_retry_is_passed_on_before_the_message_begins() -> None:
    items = (RetryEvent(1, 0.5, "busy"), delta("x"), AssistantMessage("x", timestamp=1))
    events = await run([], stream_fn=stream(*items))
    assert trace(events) == "A{ T[ ms(user) me(user) retry ms(asst) u me(asst:stop) ]T(0) }A"


async def test_any_async_iterator_is_a_stream() -> None:
    class Once:
        def __init__(self, *_: Any) -> None:
            self.left = [AssistantMessage("done", timestamp=1)]

        def __aiter__(self) -> Any:
            return self

        async def __anext__(self) -> Any:
            return self.left.pop()

    assert answer(await run([], stream_fn=Once)).text == "done"


async def test_after_a_failed_answer_no_queue_is_asked() -> None:
    asked = []
    await run([], stream_fn=stream(RuntimeError()), follow_up=lambda: asked.append(1) or ())
    assert not asked


async def test_a_partial_call_of_a_failed_answer_is_kept_as_incomplete() -> None:
    pieces = (
        MessageUpdateEvent(0, "thinking", "hm"),
        MessageUpdateEvent(1, "toolCall", '{"a"', "c1", "work"),
        MessageUpdateEvent(2, "toolCall", '{"b": 1}', "c2", "work"),
    )
    events = await run([], stream_fn=stream(*pieces, RuntimeError()), tools=[tool()])
    first, second = answer(events).tool_calls
    assert (first.incomplete, first.raw_arguments) == (True, '{"a"')
    assert second.arguments == {"b": 1}
    assert "ts(" not in trace(events)


# --- Aborts --------------------------------------------------------------------------------


@pytest.mark.requirement("SP-022")
async def test_an_abort_while_streaming_keeps_the_partial_answer() -> None:
    signal = AbortSignal()
    asyncio.get_running_loop().call_later(0.01, signal.abort, "enough")
    events = await run([], stream_fn=stream(delta("so far"), None), signal=signal)
    assert trace(events).endswith("u me(asst:aborted) ]T(0) }A")
    assert answer(events).text == "so far"
    assert answer(events).error_message == "enough"


async def test_an_abort_before_the_request_sends_none() -> None:
    provider = ScriptedProvider(["never"])
    events = await run([], stream_fn=provider, signal=AbortSignal(True, "early"))
    assert not provider.requests
    assert trace(events) == "A{ T[ ms(user) me(user) ms(asst) me(asst:aborted) ]T(0) }A"


async def test_an_abort_while_tools_run_answers_every_call_and_starts_nothing_more() -> None:
    signal = AbortSignal()
    provider = ScriptedProvider([[call("c1", "wait"), call("c2"), call("c3", "wait")], "never"])

    async def wait(*_: Any) -> AgentToolResult:
        asyncio.get_running_loop().call_soon(signal.abort)
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    events = await run([], stream_fn=provider, tools=[tool(), tool("wait", wait)], signal=signal)
    found = results(events)
    assert {id: r.is_error for id, r in found.items()} == {"c1": True, "c2": False, "c3": True}
    assert found["c1"].details["code"] == ErrorCode.EXECUTION_ABORTED
    assert len(provider.requests) == 1
    last = events[-1].messages[-1]
    assert isinstance(last, ToolResultMessage)
    assert last.aborted


async def test_a_tool_that_will_not_stop_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yiem_nb.calls.ABORT_GRACE_SECONDS", 0.05)
    signal, release = AbortSignal(), asyncio.Event()

    async def stubborn(*_: Any) -> AgentToolResult:
        asyncio.get_running_loop().call_soon(signal.abort)
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            await release.wait()
        return AgentToolResult("late")

    events = await run([call("c1"), "never"], tools=[tool(execute=stubborn)], signal=signal)
    release.set()
    assert results(events)["c1"].details["code"] == ErrorCode.EXECUTION_ABORTED
    assert trace(events).endswith("]T(1) }A")


async def test_a_hook_that_waits_is_interrupted() -> None:
    signal = AbortSignal()

    async def hang(*_: Any) -> None:
        asyncio.get_running_loop().call_soon(signal.abort)
        await asyncio.get_running_loop().create_future()

    events = await run(
        [[call("c1"), call("c2")], "never"], tools=[tool()], signal=signal, before_tool_call=hang
    )
    assert [r.details["code"] for r in results(events).values()] == ["EXECUTION_ABORTED"] * 2


@settings(max_examples=60, deadline=None)
@given(at=st.integers(0, 30), plain=st.booleans())
def test_wherever_a_run_is_aborted_everything_is_closed(at: int, plain: bool) -> None:
    async def scene() -> None:
        signal = AbortSignal()
        steps = 0

        async def execute(*_: Any) -> AgentToolResult:
            for _step in range(3):
                step()
                await asyncio.sleep(0)
            return AgentToolResult("ok")

        def step() -> None:
            nonlocal steps
            steps += 1
            if steps == at:
                signal.abort("at random")

        async def talk(*_: Any) -> Any:
            for piece in "abcd":
                step()
                await asyncio.sleep(0)
                yield delta(piece)
            if len(sent) < 2:
                sent.append(1)
                yield AssistantMessage(tool_calls=[call("c1"), call("c2")])
            else:
                yield AssistantMessage("abcd")

        sent: list[int] = []
        made = tool(execute=(lambda *_: AgentToolResult("plain")) if plain else execute)
        events = await run([], stream_fn=talk, tools=[made], signal=signal)
        text = trace(events)
        assert text.startswith("A{")
        assert text.endswith("}A")
        assert text.count("T[") == text.count("]T(")
        assert text.count("ms(") == text.count("me(")
        starts = text.count("ts(")
        assert starts == text.count("te(") == text.count("me(tr")
        state = AgentState()
        for event in events:
            state = reduce(state, event)
        assert not state.is_streaming
        assert not state.pending_tool_calls
        assert state.messages == events[-1].messages

    asyncio.run(scene())


# --- The other two functions ---------------------------------------------------------------


@pytest.mark.requirement("SPEC-6.2", "SPEC-7.1")
@pytest.mark.parametrize("messages", [(), (AssistantMessage("done", timestamp=1),)])
def test_there_must_be_something_to_continue(messages: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidMessageRoleError) as caught:
        agent_loop_continue(
            AgentContext("", messages), AgentLoopConfig(MODEL), AbortSignal(), stream()
        )
    assert caught.value.code is ErrorCode.INVALID_MESSAGE_ROLE


@pytest.mark.requirement("SPEC-6.2")
async def test_continuing_says_no_user_message_again() -> None:
    context = AgentContext("", (UserMessage("hi", 1),))
    events = [
        e
        async for e in agent_loop_continue(
            context, AgentLoopConfig(MODEL), AbortSignal(), ScriptedProvider(["ok"])
        )
    ]
    assert trace(events) == "A{ T[ ms(asst) u me(asst:stop) ]T(0) }A"
    assert len(events[-1].messages) == 1


@pytest.mark.requirement("SPEC-6.2")
async def test_one_response_is_emitted_and_returned() -> None:
    heard = []
    message = await stream_assistant_response(
        AgentContext("", (UserMessage("hi", 1),)),
        AgentLoopConfig(MODEL),
        AbortSignal(),
        heard.append,
        ScriptedProvider(["four"], size=2),
    )
    assert trace(heard) == "ms(asst) u u me(asst:stop)"
    assert message.content == (TextContent("four"),)


@pytest.mark.requirement("SPEC-3.1")
def test_a_tool_reads_as_the_specification_lists_it() -> None:
    made = AgentTool(name="f", description="d", execute=lambda *_: AgentToolResult("x"))
    assert (made.label, made.execution_mode, made.prepare_arguments) == ("f", None, None)
    assert made.parameters == {"type": "object", "properties": {}}
