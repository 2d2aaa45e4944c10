"""What tools do wrong, F31 to F50 of the fault table and more: the run goes on and the model is told.

Functions go the whole way: registry, loop thread, main thread, results. `tests/kernel/test_tool_faults.py`
does the same to real kernels.
"""

from __future__ import annotations

import asyncio
import os
import signal as os_signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.factories import MODEL, call, results, run, tool
from yiem_nb.agent import Agent, AgentOptions
from yiem_nb.calls import _Updates
from yiem_nb.events import AbortSignal, MessageEndEvent, ToolExecutionEndEvent
from yiem_nb.kernel.bridge import Bridge
from yiem_nb.kernel.functions import FunctionRunner
from yiem_nb.kernel.private_loop import PrivateLoop
from yiem_nb.messages import AgentToolResult, AssistantMessage, ToolResultMessage
from yiem_nb.models import Limits
from yiem_nb.providers import ScriptedProvider
from yiem_nb.tools import ToolExecutionMode, ToolRegistry
from yiem_nb.tools.governor import MAX_RESULT, MAX_TURN, MIN_RESULT, Governor


class Kernel:
    """The way of a call in a kernel, without one: this thread is the main thread."""

    def __init__(self) -> None:
        self.bridge = Bridge()
        self.namespace: dict[str, Any] = {"__name__": "__main__"}
        self.registry = ToolRegistry(namespace=lambda: self.namespace)
        functions = FunctionRunner(self.registry, PrivateLoop())
        self.registry.runner, self.registry.thread_runner = functions.on_main, functions.in_thread
        self.messages: tuple[Any, ...] = ()
        #: More options of the agent.
        self.options: dict[str, Any] = {}

    def results(self, *calls: Any) -> list[ToolResultMessage]:
        """What the model is told of calls it makes in one answer."""
        agent = Agent(
            AgentOptions(
                model=MODEL,
                tools=self.registry.active(),
                limits=Limits(messages_per_session=None),
                **self.options,
            ),
            ScriptedProvider([list(calls), "done"], size=1000),
        )
        last = self.bridge.run_sync(lambda: agent.prompt("go"))
        assert last.text == "done", "the loop goes on"
        self.messages = agent.state.messages
        return [m for m in self.messages if isinstance(m, ToolResultMessage)]

    def told(self, function: Callable[..., Any], **options: Any) -> ToolResultMessage:
        """What the model is told of a call of `function`."""
        self.registry.add(function, name="f", **options)
        (result,) = self.results(call("c1", "f"))
        return result


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    made = Kernel()
    yield made
    made.bridge.thread.stop()


class Odd(BaseException):
    """None of the usual kinds."""


WHERE = pytest.mark.parametrize("thread", [False, True], ids=["main", "thread"])


# --- What it raises ------------------------------------------------------------------------


@WHERE
def test_f31_an_exception_is_an_error_result_with_its_own_frames(
    kernel: Kernel, thread: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_TOKEN", "hunter2hunter2")

    def deep(n: int) -> None:
        if n == 0:
            raise ValueError("bad hunter2hunter2")
        deep(n - 1)

    def f():
        """F."""
        deep(50)

    result = kernel.told(f, thread=thread)
    assert result.is_error
    assert "ValueError: bad [redacted:SOME_TOKEN]" in result.text
    assert len(result.text) <= 4_000
    assert "yiem_nb" not in result.text.replace(__file__, "")


@WHERE
@pytest.mark.parametrize(
    "raised",
    [
        SystemExit(3),
        GeneratorExit("x"),
        asyncio.CancelledError("x"),
        StopIteration("x"),
        Odd("x"),
        MemoryError(),
        RecursionError("deep"),
        ExceptionGroup("two", [ValueError("one"), TypeError("two")]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_f32_f34_whatever_it_raises_is_contained(
    kernel: Kernel, thread: bool, raised: BaseException
) -> None:
    def f():
        """F."""
        raise raised

    result = kernel.told(f, thread=thread)
    assert result.is_error
    assert type(raised).__name__ in result.text


def test_no_key_that_a_tool_prints_or_returns_goes_on(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "hunter2hunter2")

    def f():
        """F."""
        print(os.environ["SOME_API_KEY"])
        return {"env": dict(os.environ)}

    result = kernel.told(f)
    assert "[redacted:SOME_API_KEY]" in result.text
    assert "hunter2" not in result.text + repr(result.details)


def test_f34_in_a_thread_of_its_own_a_keyboard_interrupt_is_the_functions(kernel: Kernel) -> None:
    def f():
        """F."""
        raise KeyboardInterrupt

    assert "KeyboardInterrupt" in kernel.told(f, thread=True).text


# --- It does not end -----------------------------------------------------------------------


def test_f36_a_thread_that_blocks_forever_is_given_up_and_listed(kernel: Kernel) -> None:
    go = threading.Event()

    def f():
        """F."""
        print("begun")
        go.wait(20)

    result = kernel.told(f, thread=True, timeout=0.1)
    try:
        assert result.is_error
        assert result.details["code"] == "EXECUTION_TIMEOUT"
        assert result.text.startswith("begun\n")
        assert [each.tool_name for each in kernel.registry.calls.left] == ["f"]
        (again,) = kernel.results(call("c1", "f"))
        assert "is still running" in again.text
        assert "was not started again" in again.text
        assert all(thread.daemon for thread in threading.enumerate() if "yiem" in thread.name)
    finally:
        go.set()


def test_f38_f46_of_ten_calls_one_hangs_and_nine_results_are_kept(kernel: Kernel) -> None:
    async def f(n: int):
        """F."""
        await (asyncio.Event().wait() if n == 4 else asyncio.sleep(0))
        return n

    kernel.registry.add(f, name="f", thread=True, timeout=0.1)
    told = kernel.results(*(call(f"c{n}", "f", n=n) for n in range(10)))
    assert [m.tool_call_id for m in told] == [f"c{n}" for n in range(10)]
    assert [m.text for m in told if not m.is_error] == [str(n) for n in range(10) if n != 4]
    assert told[4].text == "f has run for 0.1 s, longer than it may. It was stopped."


async def test_f46_nine_end_before_the_one_that_hangs() -> None:
    async def work(id: str, *_: Any) -> AgentToolResult:
        if id == "c3":
            await asyncio.sleep(0.05)
        return AgentToolResult(id)

    events = await run(
        [[call(f"c{n}", n=n) for n in range(10)], "done"], tools=[tool(execute=work)]
    )
    ended = [e.tool_call_id for e in events if isinstance(e, ToolExecutionEndEvent)]
    kept = [
        e.message.tool_call_id
        for e in events
        if isinstance(e, MessageEndEvent) and e.message.role == "toolResult"
    ]
    assert ended[-1] == "c3"
    assert kept == [f"c{n}" for n in range(10)]


# --- What it returns -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", ["lambda: 1", "iter([1])", "object()", "threading.Lock()", "type", "..."]
)
def test_f39_what_no_json_can_hold_is_described(kernel: Kernel, value: str) -> None:
    def f():
        """F."""
        return eval(value)

    result = kernel.told(f)
    assert not result.is_error
    assert 0 < len(result.text) <= 8_000


def test_f41_recursion_and_results_that_hold_themselves(kernel: Kernel) -> None:
    def f():
        """F."""
        return f()

    result = kernel.told(f)
    assert result.is_error
    assert "RecursionError" in result.text

    def g():
        """G."""
        nested: list[Any] = []
        nested.append({"self": nested})
        return nested

    kernel.registry.add(g, name="g")
    (result,) = kernel.results(call("c1", "g"))
    assert not result.is_error
    assert len(result.text) < 500


def test_f42_arguments_that_are_changed_are_copies(kernel: Kernel) -> None:
    def f(values: list[int]):
        """F."""
        values.clear()
        return "ok"

    kernel.registry.add(f, name="f")
    kernel.results(call("c1", "f", values=[1, 2]))
    (answer,) = [m for m in kernel.messages if isinstance(m, AssistantMessage) and m.tool_calls]
    assert answer.tool_calls[0].arguments == {"values": [1, 2]}


@WHERE
def test_f48_two_hundred_megabytes_of_text_and_of_prints_are_cut(
    kernel: Kernel, thread: bool
) -> None:
    def f():
        """F."""
        for _ in range(100):
            print("p" * 1_000_000)
        return "x" * 200_000_000

    result = kernel.told(f, thread=thread)
    assert len(result.text) <= MAX_RESULT
    assert result.text.startswith("ppp")
    assert result.text.endswith("xxx")
    assert "199,99" in result.text


def test_f48_an_endless_generator_stops_when_the_run_does(kernel: Kernel) -> None:
    stopped: list[str] = []

    def f(signal: AbortSignal):
        """F."""
        number = 0
        try:
            while True:
                number += 1
                if number == 1_000:
                    signal.abort("enough")
                yield number
        finally:
            stopped.append("closed")

    kernel.registry.add(f, name="f")
    agent = Agent(
        AgentOptions(model=MODEL, tools=kernel.registry.active()),
        ScriptedProvider([call("c1", "f")]),
    )
    kernel.bridge.run_sync(lambda: agent.prompt("go"))
    assert stopped == ["closed"]


async def test_a_tool_that_talks_faster_than_anybody_listens_fills_no_memory() -> None:
    events: asyncio.Queue[Any] = asyncio.Queue()
    updates = _Updates(call("c1"), events)
    for number in range(10_000):
        updates.send(AgentToolResult(str(number)))
    assert events.qsize() == 1
    assert events.get_nowait().take().partial_result.text == "9999"


# --- What it does to the run ---------------------------------------------------------------


def test_f44_a_tool_that_deletes_or_defines_tools_changes_the_next_request(kernel: Kernel) -> None:
    def f():
        """F."""
        kernel.registry.remove("f")
        kernel.registry.add(lambda: "new", name="g", description="G.")
        return "changed"

    kernel.registry.add(f, name="f")
    first, second = kernel.results(call("c1", "f"), call("c2", "f"))
    assert first.text == "changed"
    assert first.added_tool_names == ("g",)
    assert not first.is_error
    assert "already" in second.text or second.text == "changed", (
        "the turn keeps what it was told of"
    )
    assert list(kernel.registry.active()) == ["g"]


async def test_f45_unknown_tools_double_ids_and_two_hundred_calls() -> None:
    events = await run([call("c1", "nobody"), "done"], tools=[tool()])
    assert "Tool nobody not found. Available: work" in results(events)["c1"].text
    events = await run([[call("c", n=1), call("c", n=2)], "done"], tools=[tool()])
    assert list(results(events)) == ["c", "c~2"]
    events = await run([AssistantMessage("nothing called")], tools=[tool()])
    assert results(events) == {}
    calls = [call(f"c{n}", n=n) for n in range(200)]
    events = await run([calls, "done"], tools=[tool()])
    assert sum(result.is_error for result in results(events).values()) == 100
    assert len(results(events)) == 200


def test_f50_surroundings_are_put_back_and_said(kernel: Kernel, tmp_path: Path) -> None:
    folder, handler = Path.cwd(), os_signal.getsignal(os_signal.SIGINT)
    streams = sys.stdout, sys.stderr

    def f():
        """F."""
        os.chdir(tmp_path)
        os_signal.signal(os_signal.SIGINT, os_signal.SIG_IGN)
        sys.stdout = sys.stderr = None
        return "ok"

    result = kernel.told(f)
    assert (Path.cwd(), os_signal.getsignal(os_signal.SIGINT)) == (folder, handler)
    assert (sys.stdout, sys.stderr) == streams
    assert "working directory was changed and has been put back" in result.text
    assert "interrupt handler was changed and has been put back" in result.text


def test_f50_a_folder_that_is_gone_is_said(kernel: Kernel, tmp_path: Path) -> None:
    before, gone = Path.cwd(), tmp_path / "gone"
    gone.mkdir()

    def f():
        """F."""
        os.chdir(tmp_path)
        gone.rmdir()

    os.chdir(gone)
    try:
        assert "the one before is gone" in kernel.told(f).text
    finally:
        os.chdir(before)


def test_a_tool_may_ask_another_agent_and_its_own_is_busy(kernel: Kernel) -> None:
    inner = Agent(AgentOptions(model=MODEL), ScriptedProvider(["from inside"] * 2))

    def f():
        """F."""
        return kernel.bridge.run_sync(lambda: inner.prompt("hi")).text

    assert kernel.told(f).text == "from inside"
    outer: list[Agent] = []

    def g():
        """G."""
        return kernel.bridge.run_sync(lambda: outer[0].prompt("hi")).text

    kernel.registry.add(g, name="g")
    outer.append(
        Agent(
            AgentOptions(model=MODEL, tools=kernel.registry.active()),
            ScriptedProvider([call("c1", "g"), "done"]),
        )
    )
    assert kernel.bridge.run_sync(lambda: outer[0].prompt("go")).text == "done"
    (told,) = [m for m in outer[0].state.messages if isinstance(m, ToolResultMessage)]
    assert told.details["code"] == "AGENT_BUSY"


@pytest.mark.requirement("SPEC-1.3")
async def test_a_sequential_call_is_a_barrier_in_its_batch() -> None:
    running: set[str] = set()
    beside: dict[str, set[str]] = {}

    async def watch(id: str, *_: Any) -> AgentToolResult:
        running.add(id)
        for _ in range(5):
            await asyncio.sleep(0)
        beside[id] = running - {id}
        for _ in range(5):
            await asyncio.sleep(0)
        running.discard(id)
        return AgentToolResult(id)

    tools = [tool("free", watch), tool("alone", watch, execution_mode=ToolExecutionMode.SEQUENTIAL)]
    calls = [call(f"c{n}", "alone" if n == 2 else "free", n=n) for n in range(5)]
    await run([calls, "done"], tools=tools)
    assert beside == {"c0": {"c1"}, "c1": {"c0"}, "c2": set(), "c3": {"c4"}, "c4": {"c3"}}


# --- The governor --------------------------------------------------------------------------


async def test_the_results_of_one_turn_share_a_limit_and_each_has_a_little() -> None:
    async def long(*_: Any) -> AgentToolResult:
        return AgentToolResult("y" * 1_000_000)

    events = await run([[call(f"c{n}", n=n) for n in range(9)], "done"], tools=[tool(execute=long)])
    sizes = [len(result.text) for result in results(events).values()]
    assert max(sizes) == MAX_RESULT
    assert min(sizes) >= MIN_RESULT
    assert sum(sizes) <= MAX_TURN + 9 * MIN_RESULT


async def test_a_store_that_fails_costs_the_file_not_the_result() -> None:
    class Full:
        def save_output(self, output: Any, name: str = "") -> None:
            raise OSError("full")

    async def long(*_: Any) -> AgentToolResult:
        return AgentToolResult("y" * 1_000_000)

    events = await run([call("c1"), "done"], tools=[tool(execute=long)], store=Full())
    assert "characters left out …" in results(events)["c1"].text


def test_images_beyond_their_limits_are_left_out_and_counted() -> None:
    from yiem_nb.messages import ImageContent

    small = ImageContent("aaaa", "image/png")
    huge = ImageContent("a" * 8_000_000, "image/png")
    governor = Governor()
    result = AgentToolResult([huge, *[small] * 6])
    assert not governor.fits(result)
    cut = governor.fit(result)
    assert sum(isinstance(block, ImageContent) for block in cut.content) == 4
    assert cut.text == "(3 of 7 images are left out)"
    assert governor.fits(cut)


# --- The whole way -------------------------------------------------------------------------


@pytest.mark.requirement("SPEC-11.1")
def test_what_the_benchmark_of_latencies_times_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The figures are printed by ``tests.benchmarks.tools`` and ``.session``; here they come about."""
    from tests.benchmarks.tools import Way, nothing, row
    from yiem_nb.session import JsonlSessionStorage, build_context

    way = Way(tmp_path)
    spent, turns = way.run(nothing, turns=3, calls=2)
    said = way.messages(2)
    path = way.storage.path
    way.close()
    row("tool execution", spent)
    assert "tool execution" in capsys.readouterr().out
    assert (len(spent), len(turns), len(said)) == (6, 3, 2)
    storage = JsonlSessionStorage.open(path)  # session recovery
    roles = [m.role for m in build_context(storage.tree, storage.get_leaf_id()).messages]
    storage.close()
    turn = ["assistant", "toolResult", "toolResult"]
    assert roles == ["user", *turn * 3, "assistant", *["user", "assistant"] * 2]
