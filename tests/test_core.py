"""Errors and secrets, the abort signal, the fold, the tool contract, and small pure things."""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.factories import call, run, tool
from yiem_nb import errors
from yiem_nb.errors import ErrorCode, InvalidParametersError, ProviderError, YiemError, redact
from yiem_nb.events import (
    Aborted,
    AbortSignal,
    AgentStartEvent,
    MessageStartEvent,
    MessageUpdateEvent,
    QueueUpdateEvent,
    ToolExecutionStartEvent,
)
from yiem_nb.instructions import SMALL_WINDOW, system_prompt
from yiem_nb.kernel.capture import Tape, captured_prints
from yiem_nb.kernel.notebook import find_notebook, session_path, stray_session_path
from yiem_nb.kernel.pacing import Pacer
from yiem_nb.messages import AgentToolCall, AgentToolResult, AssistantMessage, UserMessage
from yiem_nb.models import ThinkingLevel
from yiem_nb.state import AgentContext, AgentState, Deltas, reduce, tools_by_name
from yiem_nb.tools import (
    EXECUTION_PARALLEL,
    AgentTool,
    ToolExecutionMode,
    call_in_thread,
    validate_required_args,
    validate_tool_arguments,
)

# --- Errors and secrets --------------------------------------------------------------------


@pytest.mark.requirement("SPEC-7.1", "SPEC-7.2")
@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.AgentBusyError, "AGENT_BUSY"),
        (errors.InvalidMessageRoleError, "INVALID_MESSAGE_ROLE"),
        (errors.SessionNotFoundError, "AGENT_NOT_FOUND"),
        (errors.ToolNotFoundError, "TOOL_NOT_FOUND"),
        (errors.ToolTimeoutError, "EXECUTION_TIMEOUT"),
        (errors.ToolAbortedError, "EXECUTION_ABORTED"),
        (errors.ToolNotSupportedError, "TOOL_NOT_SUPPORTED"),
        (errors.InvalidParametersError, "INVALID_PARAMETERS"),
        (errors.RateLimitedError, "RATE_LIMITED"),
    ],
)
def test_every_error_has_the_specified_code(kind: type[YiemError], code: str) -> None:
    assert kind("x").code == code


def test_an_error_is_two_lines_and_no_traceback() -> None:
    error = ProviderError("It broke.", hint="Mend it.", code=ErrorCode.PROVIDER_AUTH)
    assert str(error) == "It broke. → Mend it."
    assert error._render_traceback_() == ["✕ It broke. → Mend it.", "  [PROVIDER_AUTH]"]
    assert str(YiemError("Alone.")) == "Alone."


def test_no_error_carries_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "planted-canary-1")
    errors.keep_secret("planted-canary-2", "the vault")
    errors.keep_secret("short", "too short to replace everywhere")
    error = YiemError("with planted-canary-1", hint="and planted-canary-2")
    assert str(error) == "with [redacted:MY_API_KEY] → and [redacted:the vault]"
    assert redact("sk-abcdefghijklmnopqrstu and short") == "[redacted] and short"


# --- The abort signal ----------------------------------------------------------------------


@pytest.mark.requirement("SP-022")
async def test_a_signal_can_be_awaited_and_fires_once() -> None:
    signal = AbortSignal()
    waiting = asyncio.create_task(signal._wait())
    await asyncio.sleep(0)
    threading.Thread(target=signal.abort, args=("from a thread",)).start()
    await asyncio.wait_for(waiting, 5)
    signal.abort("again")
    assert (signal.aborted, signal.reason) == (True, "from a thread")
    await signal
    assert signal.wait(0)
    with pytest.raises(Aborted, match="from a thread"):
        signal.raise_if_aborted()
    assert repr(signal) == "AbortSignal(aborted=True, reason='from a thread')"


async def test_only_the_innermost_of_nested_waits_is_interrupted() -> None:
    signal = AbortSignal()
    steps: list[str] = []
    asyncio.get_running_loop().call_soon(signal.abort)
    with signal.guard():
        try:
            with signal.guard():
                await asyncio.get_running_loop().create_future()
        except Aborted:
            steps.append("inner")
        steps.append("outer goes on")
    assert steps == ["inner", "outer goes on"]
    assert not signal._guards


async def test_a_real_cancellation_is_not_taken_for_an_abort() -> None:
    signal = AbortSignal()

    async def wait() -> None:
        with signal.guard():
            await asyncio.get_running_loop().create_future()

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    signal.abort()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_wait_that_ends_before_the_signal_reaches_it_is_not_torn() -> None:
    signal = AbortSignal()
    with signal.guard():
        signal.abort()
    await asyncio.sleep(0)
    with pytest.raises(Aborted), signal.guard():
        pass


async def test_a_swallowed_interruption_leaves_no_trace() -> None:
    signal = AbortSignal()
    asyncio.get_running_loop().call_soon(signal.abort)
    with signal.guard():
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            pass
    assert asyncio.current_task().cancelling() == 0


async def test_a_guard_needs_a_task() -> None:
    told: list[str] = []

    def enter() -> None:
        try:
            AbortSignal().guard().__enter__()
        except RuntimeError as error:
            told.append(str(error))

    asyncio.get_running_loop().call_soon(enter)
    await asyncio.sleep(0)
    assert told == ["AbortSignal.guard() needs a running task"]


# --- The fold ------------------------------------------------------------------------------


@pytest.mark.requirement("SPEC-1.1", "SP-020", "SP-019")
async def test_the_state_after_a_run_is_the_fold_of_its_events() -> None:
    events = await run([[call("c1"), call("c2")], "done"], tools=[tool()])
    state, pending = AgentState(), []
    for event in events:
        state = reduce(state, event)
        pending.append(state.pending_tool_calls)
    assert ("c1", "c2") in pending
    assert state.messages == events[-1].messages
    assert (state.is_streaming, state.streaming_message, state.pending_tool_calls) == (
        False,
        None,
        (),
    )
    assert state.thinking_level is ThinkingLevel.OFF
    assert AgentContext().tools is None


def test_the_streaming_message_is_there_while_it_arrives() -> None:
    state = reduce(AgentState(), AgentStartEvent())
    state = reduce(state, MessageStartEvent(UserMessage("hi", 1)))
    assert reduce(state, MessageUpdateEvent(0, "text", "lost")).streaming_message is None
    state = reduce(state, MessageStartEvent(AssistantMessage(timestamp=1)))
    older = state = reduce(state, MessageUpdateEvent(0, "text", "a"))
    state = reduce(state, MessageUpdateEvent(0, "text", "b"))
    other = reduce(older, MessageUpdateEvent(0, "text", "c"))
    assert [s.streaming_message.text for s in (older, state, other)] == ["a", "ab", "ac"]
    assert len(state.deltas) == 2


def test_an_event_that_changes_nothing_changes_nothing() -> None:
    state = AgentState()
    assert reduce(state, QueueUpdateEvent((), ())) is state
    twice = reduce(state, ToolExecutionStartEvent("c1", "f", {}))
    assert reduce(twice, ToolExecutionStartEvent("c1", "f", {})) is twice


@given(st.lists(st.tuples(st.integers(0, 3), st.text(max_size=4)), max_size=30))
def test_deltas_join_block_by_block(pieces: list[tuple[int, str]]) -> None:
    deltas = Deltas(AssistantMessage(timestamp=1))
    for index, text in pieces:
        deltas = deltas.append(MessageUpdateEvent(index, "text", text))
    joined = ["".join(t for i, t in pieces if i == n) for n in sorted({i for i, _ in pieces})]
    assert [block.text for block in deltas.message().content] == joined


def test_tools_are_kept_by_name_in_order_and_the_last_of_a_name_wins() -> None:
    first, second, third = tool("a"), tool("b"), tool("a", label="newer")
    with pytest.warns(UserWarning, match="Two tools are named 'a'"):
        kept = tools_by_name([first, second, third])
    assert list(kept) == ["a", "b"]
    assert kept["a"].label == "newer"
    assert tools_by_name({"a": first}) == {"a": first}
    assert tools_by_name(None) == {}


# --- The tool contract ---------------------------------------------------------------------


@pytest.mark.requirement("SPEC-8.2", "SPEC-3.1")
@pytest.mark.parametrize("name", ["", "1a", "a-b", "größe", "a b", "<lambda>", "a" * 65, "a\n"])
def test_a_name_that_providers_refuse_is_refused_first(name: str) -> None:
    with pytest.raises(InvalidParametersError):
        AgentTool(name=name, description="d", execute=lambda *_: AgentToolResult("x"))


@pytest.mark.requirement("SPEC-8.2")
def test_a_tool_must_say_what_it_does() -> None:
    with pytest.raises(InvalidParametersError, match="no description"):
        AgentTool(name="f", description=" ", execute=lambda *_: AgentToolResult("x"))
    made = AgentTool(name="f", description="d", label="F", execute=lambda *_: AgentToolResult("x"))
    assert made.label == "F"
    assert EXECUTION_PARALLEL is ToolExecutionMode.PARALLEL


@pytest.mark.requirement("SP-023")
def test_missing_arguments_are_listed() -> None:
    schema = {"required": ["a", "b", "c"]}
    assert validate_required_args({"b": 1}, schema) == "Missing required arguments: a, c"
    assert validate_required_args({}, {}) is None


@pytest.mark.requirement("SP-024")
def test_a_tool_may_check_its_arguments_itself() -> None:
    picky = tool(validate_required_args=lambda args: "odd" if args.get("n", 0) % 2 else None)
    assert validate_tool_arguments(picky, AgentToolCall("c", "work", {"n": 2})) == {"n": 2}
    with pytest.raises(ValueError, match="odd"):
        validate_tool_arguments(picky, AgentToolCall("c", "work", {"n": 1}))


async def test_a_blocking_function_runs_in_a_thread_that_holds_nothing() -> None:
    assert await call_in_thread(lambda: threading.current_thread().daemon)
    release = threading.Event()
    task = asyncio.create_task(call_in_thread(release.wait, 5))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    release.set()
    await asyncio.sleep(0.01)


def test_a_thread_whose_loop_is_gone_ends_quietly() -> None:
    release, ended = threading.Event(), threading.Event()

    def work() -> None:
        release.wait(5)
        threading.Timer(0.05, ended.set).start()

    async def leave() -> None:
        task = asyncio.create_task(call_in_thread(work))
        await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(leave())
    release.set()
    assert ended.wait(5)


# --- Small things --------------------------------------------------------------------------


def test_a_small_model_gets_a_short_prompt_and_everyone_the_users_rules() -> None:
    assert len(system_prompt(context_window=SMALL_WINDOW - 1)) < 80
    long = system_prompt(context_window=SMALL_WINDOW, notebook="wine.ipynb", rules=" Be brief. ")
    assert "(wine.ipynb)" in long
    assert long.endswith("\n\nBe brief.")
    assert "(" not in system_prompt(context_window=SMALL_WINDOW).split("kernel")[1][:3]


def test_updates_get_rarer_as_the_text_grows_and_stay_within_the_budget() -> None:
    pacer, now, spent, sent, received = Pacer(), 0.0, 0, 0, 0
    for _ in range(2000):
        now += 0.002
        received += 4
        pacer.received(4)
        size = int(received * 1.4)
        if pacer.due(now, size):
            pacer.sent(now, size)
            spent, sent = spent + size, sent + 1
    assert spent + 1000 * sent <= 16 * received + 20_000
    assert 20 <= sent <= 100
    assert pacer.delay(now) >= 0.04


@pytest.mark.parametrize(
    ("variables", "environ", "name"),
    [
        ({}, {"JPY_SESSION_NAME": "{}/a.ipynb"}, "a.ipynb"),
        ({"__vsc_ipynb_file__": "{}/b.ipynb"}, {"JPY_SESSION_NAME": "{}/a.ipynb"}, "b.ipynb"),
        ({}, {"YIEM_NOTEBOOK": "{}/c.ipynb", "JPY_SESSION_NAME": "{}/a.ipynb"}, "c.ipynb"),
        ({}, {"JPY_SESSION_NAME": "8d7c1c1e-uuid"}, None),
        ({}, {"JPY_SESSION_NAME": "/gone/away/a.ipynb"}, None),
        ({"__vsc_ipynb_file__": 3}, {}, None),
    ],
)
def test_the_notebook_is_found_where_somebody_says_it(
    variables: Any, environ: Any, name: str | None, tmp_path: Path
) -> None:
    def fill(values: dict[str, Any]) -> dict[str, Any]:
        return {k: v.format(tmp_path) if isinstance(v, str) else v for k, v in values.items()}

    found = find_notebook(fill(variables), fill(environ))
    assert (found.name if found else None) == name


def test_a_relative_notebook_is_below_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = find_notebook({}, {"YIEM_NOTEBOOK": "n.ipynb"})
    assert found == tmp_path / "n.ipynb"
    assert session_path(found).name == "n.yiem.jsonl"
    assert stray_session_path().name.endswith(".yiem.jsonl")


def test_what_is_printed_is_kept_up_to_a_limit(capsys: pytest.CaptureFixture[str]) -> None:
    tape = Tape(limit=10)
    with captured_prints(tape):
        print("12345678")
        print("abcdef" * 5, file=sys.stderr)
        assert sys.stdout.writable()
        assert sys.stdout.encoding == "utf-8"
        sys.stdout.flush()
    assert tape.text() == "12345678\na\n… 20 more characters were printed …\ndefabcdef\n"
    print("outside")
    assert capsys.readouterr().out == "outside\n"


def test_each_context_has_its_own_prints_and_a_thread_of_the_users_prints_outside(
    capsys: pytest.CaptureFixture[str],
) -> None:
    one, two = Tape(), Tape()
    inside, done = threading.Event(), threading.Event()

    def other() -> None:
        with captured_prints(two):
            inside.set()
            done.wait(5)
            print("two")

    thread = threading.Thread(target=other)
    thread.start()
    inside.wait(5)
    with captured_prints(one):
        print("one")
        bystander = threading.Thread(target=print, args=("bystander",))
        bystander.start()
        bystander.join(5)
    print("between")
    done.set()
    thread.join(5)
    assert (one.text(), two.text()) == ("one\n", "two\n")
    assert capsys.readouterr().out == "bystander\nbetween\n"
    assert not hasattr(sys.stdout, "stream")
