"""Where a function runs, and how its call ends: a value, an error, and values on the way."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from yiem_nb.events import AbortSignal
from yiem_nb.messages import AgentToolResult
from yiem_nb.tools.base import OnUpdate
from yiem_nb.tools.signature import innermost
from yiem_nb.tools.worker import call_in_thread

__all__ = [
    "CallLog",
    "FunctionKind",
    "Outcome",
    "Runner",
    "RunningCall",
    "finish",
    "finish_async",
    "kind_of",
    "outcome_of",
    "run_here",
    "run_in_private",
]

#: What a runner must know: whether calling gives the outcome, or something to await. Generators are of
#: one kind or the other: they have been turned into functions that report what they yield.
FunctionKind: TypeAlias = Literal["plain", "async"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call ended: a value or what it raised, and what it printed."""

    value: Any = None
    error: BaseException | None = None
    printed: str = ""


class Runner(Protocol):
    """Runs a bound call somewhere; the kernel's runs it on the main thread."""

    def __call__(
        self,
        call: Callable[[], Any],
        kind: FunctionKind,
        describe: Callable[[Outcome], AgentToolResult],
        on_update: OnUpdate,
    ) -> Awaitable[AgentToolResult]:
        """Run `call`, and `describe` how it ended on the same thread, where its objects live."""


async def run_here(
    call: Callable[[], Any],
    kind: FunctionKind,
    describe: Callable[[Outcome], AgentToolResult],
    on_update: OnUpdate,
) -> AgentToolResult:
    """Run a plain function in a daemon thread and an async one on this loop."""
    if kind == "plain":
        return await call_in_thread(lambda: describe(_contained(call)))
    try:
        value = await call()
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - SystemExit of a tool is its result
        return describe(Outcome(error=error))
    return describe(Outcome(value))


def _contained(call: Callable[[], Any]) -> Outcome:
    """In a thread of its own no `KeyboardInterrupt` is the user's: the function raised it."""
    try:
        return outcome_of(call)
    except KeyboardInterrupt as error:
        return Outcome(error=error)


def outcome_of(call: Callable[[], Any]) -> Outcome:
    """Call, and keep what it returns or raises; an interrupt goes on."""
    try:
        return Outcome(call())
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - SystemExit of a tool is its result
        return Outcome(error=error)


# --- Calls under way -----------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class RunningCall:
    """A call of a function that has begun and not returned.

    Parameters
    ----------
    tool_name, tool_call_id, arguments
        Which, and with what.
    started
        By the clock of `time.monotonic`.
    given_up
        Why nobody waits for it any more; empty while somebody does.
    """

    tool_name: str
    tool_call_id: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)
    given_up: str = ""


class CallLog:
    """The calls that are under way; a thread that is given up stays listed until it returns."""

    def __init__(self) -> None:
        self._calls: dict[RunningCall, None] = {}

    def watched(self, running: RunningCall, call: Callable[[], Any]) -> Callable[[], Any]:
        """Return `call` such that the log knows when it runs, wherever that is."""

        def plain() -> Any:
            self._calls[running] = None
            try:
                value = call()
            except BaseException:
                self._calls.pop(running, None)
                raise
            if inspect.isawaitable(value):
                return self._awaited(running, value)
            self._calls.pop(running, None)
            return value

        return plain

    async def _awaited(self, running: RunningCall, value: Awaitable[Any]) -> Any:
        try:
            return await value
        finally:
            self._calls.pop(running, None)

    @property
    def left(self) -> list[RunningCall]:
        """Those that nobody waits for, oldest first."""
        return [call for call in tuple(self._calls) if call.given_up]

    def same(self, call: RunningCall) -> RunningCall | None:
        """Return a call of the same tool with the same arguments that was given up and runs on."""
        alike = (call.tool_name, call.arguments)
        return next((left for left in self.left if (left.tool_name, left.arguments) == alike), None)

    def is_running(self, running: RunningCall) -> bool:
        """Whether a call has begun and not returned."""
        return running in self._calls


# --- Kinds of functions --------------------------------------------------------------------


def kind_of(function: Callable[..., Any]) -> FunctionKind:
    """Whether a call must be awaited; wrappers around an ``async def`` are of its kind."""
    target = innermost(function)
    is_async = any(
        inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each)
        for each in (function, target)
    )
    return "async" if is_async else "plain"


def finish(call: Callable[[], Any], on_yield: Callable[[Any], object], signal: AbortSignal) -> Any:
    """Call a plain function to its end.

    What a generator yields is progress; its result is what it returns, else what it yielded last.
    """
    value = call()
    if not inspect.isgenerator(value):
        return value
    last = None
    try:
        while True:
            last = next(value)
            on_yield(last)
            signal.raise_if_aborted()
    except StopIteration as stop:
        return last if stop.value is None else stop.value
    finally:
        value.close()


async def finish_async(
    call: Callable[[], Any], on_yield: Callable[[Any], object], signal: AbortSignal
) -> Any:
    """Await an async function, or what an async generator yields, to its end."""
    value = finish(call, on_yield, signal)
    if inspect.isawaitable(value):
        return await value
    if not inspect.isasyncgen(value):
        return value
    last = None
    try:
        async for last in value:
            on_yield(last)
            signal.raise_if_aborted()
    finally:
        await value.aclose()
    return last


def run_in_private(call: Callable[[], Any]) -> Any:
    """Run what `call` returns on a new loop, in a thread of its own where one runs here already."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(call())
    outcome = Outcome()

    def work() -> None:
        nonlocal outcome
        outcome = _contained(lambda: asyncio.run(call()))

    thread = threading.Thread(target=work, daemon=True, name="yiem-private-loop")
    thread.start()
    thread.join()
    if outcome.error is not None:
        raise outcome.error
    return outcome.value
