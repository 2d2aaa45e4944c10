"""The bridge: what runs on which thread, and what an interrupt does at any instant."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from yiem_nb.errors import AgentBusyError, ErrorCode, ToolAbortedError, YiemError
from yiem_nb.kernel.bridge import Bridge, CellInterrupted, call_main


@pytest.fixture
def bridge() -> Iterator[Bridge]:
    made = Bridge()
    yield made
    made.thread.stop()


def interrupt_soon(started: threading.Event) -> None:
    """Interrupt this process once `started` is set."""

    def kill() -> None:
        if started.wait(5):
            os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=kill, daemon=True).start()


def block(started: threading.Event) -> None:
    """Hold the thread until it is interrupted."""
    started.set()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        pass
    raise AssertionError("the interrupt never came")


def test_the_run_is_on_its_own_thread_and_functions_are_on_the_main_one(bridge: Bridge) -> None:
    async def look() -> tuple[bool, bool]:
        here = threading.current_thread() is threading.main_thread()
        there = await call_main(lambda: threading.current_thread() is threading.main_thread())
        return here, there

    assert bridge.run_sync(look) == (False, True)


def test_what_the_run_raises_comes_out(bridge: Bridge) -> None:
    async def fail() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        bridge.run_sync(fail)


@pytest.mark.parametrize(
    "raised", [ValueError("x"), SystemExit(2), StopIteration(), GeneratorExit()], ids=repr
)
def test_what_a_function_raises_goes_back_to_the_run(bridge: Bridge, raised: Any) -> None:
    def fail() -> None:
        raise raised

    async def ask() -> str:
        try:
            await call_main(fail)
        except BaseException as error:
            return type(error).__name__
        return "nothing"

    expected = "RuntimeError" if isinstance(raised, StopIteration) else type(raised).__name__
    assert bridge.run_sync(ask) == expected


def test_functions_run_in_the_order_of_the_calls(bridge: Bridge) -> None:
    order: list[int] = []

    async def many() -> None:
        await asyncio.gather(*(call_main(lambda n=n: order.append(n)) for n in range(50)))

    bridge.run_sync(many)
    assert order == list(range(50))


def test_a_function_may_run_the_bridge_again(bridge: Bridge) -> None:
    async def deep(level: int) -> int:
        if level == 0:
            return 0
        return 1 + await call_main(lambda: bridge.run_sync(lambda: deep(level - 1)))

    assert bridge.run_sync(lambda: deep(4)) == 4


def test_the_bridge_does_not_wait_for_itself(bridge: Bridge) -> None:
    async def wait() -> None:
        bridge.run_sync(wait)

    with pytest.raises(AgentBusyError):
        bridge.run_sync(wait)


def test_without_a_bridge_there_is_no_main_thread_to_call() -> None:
    with pytest.raises(YiemError) as caught:
        asyncio.run(call_main(lambda: None))
    assert caught.value.code is ErrorCode.KERNEL_UNAVAILABLE


def test_an_interrupt_stops_a_run_that_waits(bridge: Bridge) -> None:
    started, ended = threading.Event(), []

    async def wait() -> None:
        started.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append(True)

    before = signal.getsignal(signal.SIGINT)
    interrupt_soon(started)
    with pytest.raises(CellInterrupted, match="the agent is stopped"):
        bridge.run_sync(wait)
    assert ended
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_breaks_the_function_that_runs(bridge: Bridge) -> None:
    started, told = threading.Event(), []

    async def ask() -> None:
        try:
            await call_main(lambda: block(started))
        except ToolAbortedError as error:
            told.append(error)
            raise

    interrupt_soon(started)
    with pytest.raises(CellInterrupted):
        bridge.run_sync(ask)
    # The task was cancelled and the function interrupted; which of the two it hears first is open.
    assert len(told) <= 1


def test_a_function_that_swallows_the_interrupt_does_not_save_the_run(bridge: Bridge) -> None:
    started = threading.Event()

    def swallow() -> str:
        try:
            block(started)
        except KeyboardInterrupt:
            return "swallowed"
        return "never"

    async def ask() -> None:
        await call_main(swallow)
        await asyncio.get_running_loop().create_future()

    interrupt_soon(started)
    with pytest.raises(CellInterrupted):
        bridge.run_sync(ask)


def test_a_function_that_swallows_every_interrupt_ends_with_the_second(bridge: Bridge) -> None:
    first, second = threading.Event(), threading.Event()

    def swallow_all() -> None:
        first.set()
        while True:
            try:
                time.sleep(0.01)
            except KeyboardInterrupt:
                second.set()

    async def ask() -> None:
        await call_main(swallow_all)

    interrupt_soon(first)
    interrupt_soon(second)
    with pytest.raises(CellInterrupted):
        bridge.run_sync(ask)


def test_an_interrupt_in_a_nested_run_stops_the_outer_one_too(bridge: Bridge) -> None:
    started = threading.Event()

    async def wait() -> None:
        started.set()
        await asyncio.get_running_loop().create_future()

    async def outer() -> None:
        try:
            await call_main(lambda: bridge.run_sync(wait))
        except ToolAbortedError:
            await asyncio.get_running_loop().create_future()

    interrupt_soon(started)
    with pytest.raises(CellInterrupted):
        bridge.run_sync(outer)


def test_a_run_that_will_not_stop_is_left_after_a_while(
    bridge: Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yiem_nb.kernel.bridge.STOP_GRACE_SECONDS", 0.05)
    started, release = threading.Event(), threading.Event()

    async def stubborn() -> None:
        started.set()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            await asyncio.to_thread(release.wait, 5)

    interrupt_soon(started)
    with pytest.raises(CellInterrupted, match="still stopping"):
        bridge.run_sync(stubborn)
    release.set()


def test_a_stop_before_the_first_step_ends_the_run_there(bridge: Bridge) -> None:
    ran = []

    async def never() -> None:
        ran.append(True)

    loop = asyncio.new_event_loop()
    run = bridge.run_background(never, loop)
    bridge.thread.loop.call_soon_threadsafe(lambda: None)
    assert run.wait(5)
    blocked = threading.Event()
    bridge.thread.loop.call_soon_threadsafe(blocked.wait, 5)
    late = bridge.run_background(never, loop)
    late.stop()
    blocked.set()
    assert late.wait(5)
    with pytest.raises(asyncio.CancelledError):
        late.result()
    assert ran == [True]
    loop.close()


def test_a_cell_that_awaits_serves_functions_on_its_own_loop(bridge: Bridge) -> None:
    async def look() -> bool:
        return await call_main(lambda: threading.current_thread() is threading.main_thread())

    assert asyncio.run(bridge.run_async(look)) is True


def test_a_cell_that_awaits_can_be_interrupted_at_once(bridge: Bridge) -> None:
    started = threading.Event()

    async def wait() -> None:
        started.set()
        await asyncio.get_running_loop().create_future()

    async def cell() -> str:
        try:
            await bridge.run_async(wait)
        except CellInterrupted as stopped:
            return str(stopped)
        return "never"

    interrupt_soon(started)
    assert asyncio.run(cell()) == "■ interrupted; the agent is stopped"


def test_cancelling_a_cell_that_awaits_stops_its_run(bridge: Bridge) -> None:
    started, ended = threading.Event(), threading.Event()

    async def wait() -> None:
        started.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.set()

    async def cell() -> None:
        task = asyncio.create_task(bridge.run_async(wait))
        await asyncio.to_thread(started.wait, 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cell())
    assert ended.is_set()


def test_a_call_after_the_cell_has_ended_is_refused(
    bridge: Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yiem_nb.kernel.bridge.STOP_GRACE_SECONDS", 0.05)
    started, told, heard = threading.Event(), [], threading.Event()

    async def late() -> None:
        started.set()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            await asyncio.sleep(0.2)
            try:
                await call_main(lambda: None)
            except ToolAbortedError as error:
                told.append(error)
                heard.set()

    interrupt_soon(started)
    with pytest.raises(CellInterrupted):
        bridge.run_sync(late)
    assert heard.wait(5)
    assert told


def test_the_thread_starts_again_after_it_was_stopped(bridge: Bridge) -> None:
    async def one() -> int:
        return 1

    assert bridge.run_sync(one) == 1
    bridge.thread.stop()
    bridge.thread.stop()
    assert bridge.run_sync(one) == 1


def test_a_run_from_another_thread_is_served_there(bridge: Bridge) -> None:
    async def look() -> str:
        return await call_main(lambda: threading.current_thread().name)

    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(bridge.run_sync(look)), name="mine")
    thread.start()
    thread.join(5)
    assert found == ["mine"]


def test_the_pump_is_called_while_a_cell_blocks() -> None:
    pumped = threading.Event()
    bridge = Bridge(pump=pumped.set, pump_interval=0.001)

    async def wait() -> bool:
        return await asyncio.to_thread(pumped.wait, 5)

    assert bridge.run_sync(wait) is True
    bridge.thread.stop()


class Cells(RuleBasedStateMachine):
    """Cells in any order, interrupted anywhere: none is lost and nothing stays behind."""

    def __init__(self) -> None:
        super().__init__()
        self.bridge = Bridge()
        self.before = signal.getsignal(signal.SIGINT)

    @rule(calls=st.integers(0, 4), nested=st.booleans())
    def a_cell(self, calls: int, nested: bool) -> None:
        async def inner() -> int:
            return await call_main(lambda: 1)

        def work() -> int:
            return self.bridge.run_sync(inner) if nested else 1

        async def cell() -> int:
            return sum([await call_main(work) for _ in range(calls)])

        assert self.bridge.run_sync(cell) == calls

    @rule(at=st.integers(0, 6), on_main=st.booleans())
    def an_interrupted_cell(self, at: int, on_main: bool) -> None:
        reached = threading.Event()

        async def cell() -> None:
            for step in range(at):
                await call_main(lambda: None)
                assert step < at
            if on_main:
                await call_main(lambda: block(reached))
            reached.set()
            await asyncio.get_running_loop().create_future()

        interrupt_soon(reached)
        with pytest.raises(CellInterrupted):
            self.bridge.run_sync(cell)

    @rule()
    def an_awaiting_cell(self) -> None:
        async def cell() -> int:
            return await call_main(lambda: 7)

        assert asyncio.run(self.bridge.run_async(cell)) == 7

    @rule()
    def a_failing_cell(self) -> None:
        async def cell() -> None:
            await call_main(lambda: 1 / 0)

        with pytest.raises(ZeroDivisionError):
            self.bridge.run_sync(cell)

    @rule()
    def a_shutdown(self) -> None:
        self.bridge.thread.stop()

    @invariant()
    def nothing_stays_behind(self) -> None:
        assert signal.getsignal(signal.SIGINT) is self.before
        tasks: list[int] = []
        done = threading.Event()

        def count() -> None:
            tasks.append(len(asyncio.all_tasks(self.bridge.thread.loop)))
            done.set()

        self.bridge.thread.loop.call_soon_threadsafe(count)
        assert done.wait(5)
        assert tasks == [0]

    def teardown(self) -> None:
        self.bridge.thread.stop()


TestCells = Cells.TestCase
TestCells.settings = settings(max_examples=25, stateful_step_count=8, deadline=None)
