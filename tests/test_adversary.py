"""Code that is not ours raises anything, returns anything and dawdles; no run is left open."""

from __future__ import annotations

import asyncio
import signal as os_signal
import threading
from typing import Any

import pytest
from tests.factories import answer, call, results, run, stream, tool, trace
from tests.test_agent import Notes, agent
from yiem_nb.errors import ProviderError, RateLimitedError, redact
from yiem_nb.events import AbortSignal, AgentEndEvent, MessageUpdateEvent
from yiem_nb.kernel.bridge import Bridge
from yiem_nb.messages import AgentToolResult, AssistantMessage, StopReason, UserMessage
from yiem_nb.models import Limits
from yiem_nb.state import Deltas

LIMIT = 3


async def within(awaitable: Any) -> Any:
    return await asyncio.wait_for(awaitable, LIMIT)


def closed(events: Any) -> None:
    text = trace(events)
    assert text.endswith("}A")
    assert text.count("T[") == text.count("]T(")
    assert text.count("ms(") == text.count("me(")
    assert text.count("ts(") == text.count("te(") == text.count("me(tr")


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


# --- hooks -------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [False, True, "no"])
async def test_before_hook_returning_garbage_denies(bad: Any) -> None:
    events = await within(
        run([call("c1"), "done"], tools=[tool()], before_tool_call=lambda *_: bad)
    )
    closed(events)
    assert results(events)["c1"].is_error


async def test_after_hook_returning_garbage_is_an_error_result() -> None:
    events = await within(
        run([call("c1"), "done"], tools=[tool()], after_tool_call=lambda *_: "text")
    )
    closed(events)
    assert results(events)["c1"].is_error


@pytest.mark.parametrize("where", ["before_tool_call", "after_tool_call"])
@pytest.mark.parametrize(
    "raised",
    [SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError(), Unspeakable()],
    ids=lambda e: type(e).__name__,
)
async def test_a_hook_may_raise_anything(where: str, raised: BaseException) -> None:
    async def hook(*_: Any) -> None:
        raise raised

    events = await within(run([call("c1"), "done"], tools=[tool()], **{where: hook}))
    closed(events)
    assert results(events)["c1"].is_error


async def test_a_tool_may_raise_what_cannot_be_said() -> None:
    async def bad(*_: Any) -> Any:
        raise Unspeakable

    events = await within(run([call("c1"), "done"], tools=[tool(execute=bad)]))
    closed(events)


@pytest.mark.parametrize(
    "raised",
    [asyncio.CancelledError(), SystemExit(2), KeyboardInterrupt(), Unspeakable()],
    ids=lambda e: type(e).__name__,
)
@pytest.mark.parametrize("first", [True, False])
async def test_a_stream_may_raise_anything(raised: BaseException, first: bool) -> None:
    items = [raised] if first else [MessageUpdateEvent(0, "text", "x"), raised]
    events = await within(run([], stream_fn=stream(*items)))
    closed(events)
    assert answer(events).stop_reason is StopReason.ERROR


async def test_prepare_context_may_raise_cancelled() -> None:
    def bad(context: Any) -> Any:
        raise asyncio.CancelledError

    events = await within(run(["x"], prepare_context=bad))
    closed(events)


async def test_a_result_that_cannot_be_kept_does_not_hang_the_run() -> None:
    def broken(message: Any) -> None:
        raise LookupError("disk")

    with pytest.raises(LookupError):
        await within(run([[call("c1"), call("c2")], "done"], tools=[tool()], on_tool_result=broken))


async def test_details_that_are_no_json_do_not_hang_a_real_session(tmp_path: Any) -> None:
    from yiem_nb.session import JsonlSessionStorage, SessionOptions
    from yiem_nb.session.journal import SessionJournal

    journal = SessionJournal(
        JsonlSessionStorage.create(SessionOptions(path=str(tmp_path / "s.jsonl")))
    )

    async def odd(*_: Any) -> Any:
        return AgentToolResult("x", details={"o": object()})

    made = agent([[call("c1"), call("c2")], "done"], journal, tools=[tool(execute=odd)])
    try:
        said = await within(made.prompt("hi"))
        assert said.text == "done"
        assert not made.state.is_streaming
    finally:
        journal.close()


async def test_surrogates_and_nan_go_through_a_real_session(tmp_path: Any) -> None:
    from yiem_nb.session import JsonlSessionStorage, SessionOptions
    from yiem_nb.session.journal import SessionJournal

    journal = SessionJournal(
        JsonlSessionStorage.create(SessionOptions(path=str(tmp_path / "s.jsonl")))
    )

    async def odd(*_: Any) -> Any:
        return AgentToolResult("a\ud800b", details={"n": float("nan"), 3: {1, 2}})

    made = agent([[call("c1"), call("c2")], "do\udfffne"], journal, tools=[tool(execute=odd)])
    try:
        await within(made.prompt("hi \ud83d"))
        assert not made.state.is_streaming
    finally:
        journal.close()


# --- agent -------------------------------------------------------------------------------


async def test_a_failing_journal_leaves_no_open_run() -> None:
    class Broken(Notes):
        async def message(self, message: Any, **_: Any) -> None:
            if message.role == "assistant":
                raise OSError("disk")
            await super().message(message)

    made = agent(["x", "y"], Broken())
    heard: list[Any] = []

    async def hear(e: Any, s: Any) -> None:
        heard.append(e)

    made.subscribe(hear)
    try:
        await within(made.prompt("hi"))
    except OSError:
        pass
    await asyncio.sleep(0)
    assert not made.is_busy
    assert not made.state.is_streaming
    assert isinstance(heard[-1], AgentEndEvent)


async def test_refused_continue_loses_no_queued_message() -> None:
    made = agent([], model=None, messages=[UserMessage("a"), AssistantMessage("b")])
    made.follow_up("precious")
    with pytest.raises(ProviderError):
        await made.continue_()
    assert [m.text for m in made.abort()] == ["precious"]


async def test_refused_continue_by_limit_loses_no_queued_message() -> None:
    made = agent(
        [],
        messages=[UserMessage("a"), AssistantMessage("b")],
        limits=Limits(messages_per_session=2),
    )
    made.steer("precious")
    with pytest.raises(RateLimitedError):
        await made.continue_()
    assert [m.text for m in made.abort()] == ["precious"]


async def test_an_unsent_request_has_no_hash() -> None:
    notes = Notes()
    made = agent(["one", "two"], notes)
    await made.prompt("a")
    first = [n for n in notes.lines if isinstance(n, tuple)][-1][2]

    async def stop_at_once(e: Any, s: AbortSignal) -> None:
        s.abort("now")

    made.subscribe(stop_at_once)

    orig = notes.message

    async def message(m: Any, **k: Any) -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await orig(m, **k)

    notes.message = message  # type: ignore[method-assign]
    await made.prompt("b")
    last = [n for n in notes.lines if isinstance(n, tuple)][-1]
    assert last[0].stop_reason is StopReason.ABORTED
    assert last[2] in (None, "")
    assert last[2] != first


async def test_cancelling_the_driver_itself_closes_the_run() -> None:
    """What LoopThread.stop does: cancel every task."""
    notes = Notes()
    made = agent(stream(MessageUpdateEvent(0, "text", "so far"), None), notes)
    running = asyncio.ensure_future(made.prompt("hi"))
    for _ in range(10):
        await asyncio.sleep(0)
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for t in others:
        t.cancel()
    await asyncio.wait(others, timeout=2)
    assert running.cancelled()
    assert not made.is_busy
    assert not made.state.is_streaming


async def test_a_second_cancellation_of_the_caller() -> None:
    made = agent(stream(MessageUpdateEvent(0, "text", "so far"), None))
    task = asyncio.ensure_future(made.prompt("hi"))
    for _ in range(10):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for _ in range(10):
        await asyncio.sleep(0)
    assert not made.is_busy
    assert not made.state.is_streaming


async def test_a_stream_whose_cleanup_hangs_does_not_hold_the_answer() -> None:
    async def talk(*_: Any) -> Any:
        try:
            yield AssistantMessage("whole")
        finally:
            await asyncio.get_running_loop().create_future()

    events = await within(run([], stream_fn=talk))
    closed(events)
    assert answer(events).text == "whole"


async def test_a_whole_answer_survives_a_stream_that_fails_while_closing() -> None:
    async def talk(*_: Any) -> Any:
        try:
            yield AssistantMessage("whole")
        finally:
            raise OSError("closing")

    said = answer(await within(run([], stream_fn=talk)))
    assert (said.text, said.stop_reason) == ("whole", StopReason.STOP)


# --- signals, listeners --------------------------------------------------------------------


async def test_a_guard_fired_twice_is_still_an_abort() -> None:
    signal = AbortSignal()

    async def wait() -> None:
        with signal.guard():
            guards = next(iter(signal._guards.values()))
            guards[0].fire()
            guards[0].fire()
            await asyncio.get_running_loop().create_future()

    with pytest.raises(Exception, match="stopped"):
        await asyncio.create_task(wait())


async def test_an_async_listener_may_raise_anything() -> None:
    heard: list[Any] = []

    async def bad(e: Any, s: Any) -> None:
        heard.append(e)
        raise asyncio.CancelledError

    made = agent(["x"])
    made.subscribe(bad)
    await made.prompt("a")
    for _ in range(10):
        await asyncio.sleep(0)
    assert isinstance(heard[-1], AgentEndEvent)


async def test_unsubscribing_in_another_thread_loses_nobody_an_event() -> None:
    made = agent(["x"])

    class Sub:
        def __init__(self) -> None:
            self.got = 0

        def put(self, e: Any, s: Any) -> None:
            self.got += 1
            hook(self)

        def close(self) -> None: ...

    subs = [Sub(), Sub(), Sub()]

    def hook(s: Any) -> None:
        if s is subs[0] and subs[0] in made._subscriptions:
            made._subscriptions.remove(subs[0])  # what another thread's unsubscribe does

    made._subscriptions.extend(subs)
    made._notify(AgentEndEvent(()), AbortSignal())
    assert [s.got for s in subs] == [1, 1, 1]


def test_a_longer_secret_is_redacted_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "abcdefgh")
    monkeypatch.setenv("B_KEY", "abcdefgh-and-the-private-rest")
    assert "private" not in redact("x abcdefgh-and-the-private-rest y")


def test_a_call_without_arguments_yet_is_incomplete() -> None:
    d = Deltas(AssistantMessage(timestamp=1)).append(
        MessageUpdateEvent(0, "toolCall", "", "c1", "f")
    )
    assert d.message().tool_calls[0].incomplete


# --- bridge --------------------------------------------------------------------------------


def test_overlapping_awaits_leave_the_interrupt_handler_as_it_was() -> None:
    bridge = Bridge()
    before = os_signal.getsignal(os_signal.SIGINT)

    async def scene() -> None:
        inside = os_signal.getsignal(os_signal.SIGINT)
        a_go, b_go = threading.Event(), threading.Event()

        async def a() -> None:
            await asyncio.to_thread(a_go.wait, 5)

        async def b() -> None:
            await asyncio.to_thread(b_go.wait, 5)

        ta = asyncio.create_task(bridge.run_async(a))
        await asyncio.sleep(0.01)
        tb = asyncio.create_task(bridge.run_async(b))
        await asyncio.sleep(0.01)
        a_go.set()
        await ta
        assert os_signal.getsignal(os_signal.SIGINT) is not inside, "b lost its handler"
        b_go.set()
        await tb
        assert os_signal.getsignal(os_signal.SIGINT) is inside

    asyncio.run(scene())
    assert os_signal.getsignal(os_signal.SIGINT) is before
    bridge.thread.stop()


def test_a_stubborn_run_does_not_hold_an_awaiting_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    import os
    import time

    monkeypatch.setattr("yiem_nb.kernel.bridge.STOP_GRACE_SECONDS", 0.1)
    bridge = Bridge()
    release, started = threading.Event(), threading.Event()

    async def stubborn() -> None:
        started.set()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            await asyncio.to_thread(release.wait, 4)

    def kill() -> None:
        started.wait()
        time.sleep(0.05)
        os.kill(os.getpid(), os_signal.SIGINT)

    threading.Thread(target=kill).start()
    t = time.monotonic()

    async def cell() -> None:
        try:
            await bridge.run_async(stubborn)
        except KeyboardInterrupt:
            pass

    try:
        asyncio.run(cell())
        took = time.monotonic() - t
    finally:
        release.set()
        bridge.thread.stop()
    assert took < 2


def test_a_hook_that_exits_does_not_kill_the_loop_thread() -> None:
    bridge = Bridge()
    made = agent(
        [call("c1"), "done"],
        tools=[tool()],
        before_tool_call=lambda *_: (_ for _ in ()).throw(SystemExit(3)),
    )
    out: list[Any] = []

    def go() -> None:
        out.append(bridge.run_sync(lambda: made.prompt("x")))

    t = threading.Thread(target=go, daemon=True)
    t.start()
    t.join(3)
    assert not t.is_alive()
    assert out[0].text == "done"
    bridge.thread.stop()


@pytest.mark.parametrize("where", ["before_tool_call", "after_tool_call"])
async def test_a_cancelled_run_is_not_held_by_a_hook_that_waits(where: str) -> None:
    reached = asyncio.Event()

    async def hang(*_: Any) -> None:
        reached.set()
        await asyncio.get_running_loop().create_future()

    task = asyncio.create_task(run([call("c1"), "never"], tools=[tool()], **{where: hang}))
    await within(reached.wait())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await within(task)
