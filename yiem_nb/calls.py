"""The calls of one answer: prepared in order, run together, answered in order.

Every call has exactly one result, whatever happens to it: an unknown name, arguments that do not
fit, a hook that refuses or fails, a tool that raises, exits the interpreter or never ends.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from yiem_nb.errors import ErrorCode
from yiem_nb.events import (
    CALLEE_RAISES,
    Aborted,
    AbortSignal,
    AgentEvent,
    MessageEndEvent,
    MessageStartEvent,
    ToolExecutionEndEvent,
    ToolExecutionStartEvent,
    ToolExecutionUpdateEvent,
    is_own_cancellation,
)
from yiem_nb.messages import (
    AgentToolCall,
    AgentToolResult,
    AssistantMessage,
    StopReason,
    TextContent,
    ToolResultMessage,
)
from yiem_nb.prepare import (
    AfterToolCall,
    AgentLoopConfig,
    BeforeToolCall,
    ImmediateToolCall,
    PreparedToolCall,
    ToolBlock,
    aborted_result,
    failure,
    prepare_tool_call,
    preparing,
    sentence,
    settled,
)
from yiem_nb.state import AgentContext
from yiem_nb.tools import (
    Governor,
    Repeats,
    ToolExecutionMode,
    call_in_thread,
    clipped,
    error_result,
)

__all__ = [
    "AfterToolCall",
    "AgentLoopConfig",
    "Batch",
    "BeforeToolCall",
    "ImmediateToolCall",
    "PreparedToolCall",
    "ToolBlock",
    "prepare_tool_call",
    "sentence",
    "settled",
]

#: How long an aborted batch waits for tools that do not end when they are cancelled.
ABORT_GRACE_SECONDS = 1.0

CUT_TEXT = (
    "Not run: the answer was cut off at its length limit, so the arguments may be incomplete."
)


@dataclass(frozen=True, slots=True)
class _Broken:
    """A call whose result could not be kept: the run cannot go on."""

    error: Exception


class Batch:
    """The calls of one answer: prepared in order, run together, answered in order."""

    def __init__(
        self,
        answer: AssistantMessage,
        context: AgentContext,
        config: AgentLoopConfig,
        signal: AbortSignal,
        repeats: Repeats | None = None,
    ) -> None:
        self.calls = answer.tool_calls
        self._numbers = {call.id: number for number, call in enumerate(self.calls)}
        self._asked = {call.id: call for call in self.calls}
        self._repeats = repeats or Repeats()
        self._governor = Governor(config.store)
        self._governing = asyncio.Lock()
        self.cut = answer.stop_reason is StopReason.LENGTH
        self.context = context
        self.config = config
        self.signal = signal
        self.messages: list[ToolResultMessage] = []
        self._events: asyncio.Queue[AgentEvent | _Updates | _Broken] = asyncio.Queue()
        self._results: dict[str, ToolResultMessage] = {}
        self._slots = asyncio.Semaphore(config.tool_calls_per_turn or max(len(self.calls), 1))

    async def run(self) -> AsyncIterator[AgentEvent]:
        """Run the batch; afterwards `messages` holds the results in the order of the calls."""
        self._repeats.next_answer()
        if self.config.gate is not None:
            self.config.gate.offered((self.context.tools or {}).values())
        for calls in self._groups():
            async for event in self._run_together(calls):
                yield event
            for event in self._message_events(calls):
                yield event

    def _groups(self) -> list[list[AgentToolCall]]:
        """Part the calls into those that run together; one that is sequential runs alone.

        It is a barrier: what was called before it ends first, what comes after waits.
        """
        tools = self.context.tools or {}
        groups: list[list[AgentToolCall]] = []
        open_group = False
        for call in self.calls:
            mode = tools[call.name].execution_mode if call.name in tools else None
            alone = ToolExecutionMode.SEQUENTIAL in (mode, self.config.tool_execution)
            if open_group and not alone:
                groups[-1].append(call)
            else:
                groups.append([call])
            open_group = not alone
        return groups

    async def _run_together(self, calls: Sequence[AgentToolCall]) -> AsyncIterator[AgentEvent]:
        ready: list[PreparedToolCall] = []
        for call in calls:
            yield ToolExecutionStartEvent(call.id, call.name, call.arguments)
            refused = self._refusal(self._numbers[call.id], call)
            if refused is not None:
                yield await self._finish(call, refused)
                continue
            async with aclosing(preparing(call, self.context, self.config, self.signal)) as steps:
                async for step in steps:
                    if isinstance(step, PreparedToolCall):
                        ready.append(step)
                    elif isinstance(step, ImmediateToolCall):
                        yield await self._finish(step.call, step.result)
                    else:
                        yield step
        running = {asyncio.create_task(self._run_one(step)): step for step in ready}
        try:
            async for event in self._drain(running):
                yield event
        finally:
            for task in running:
                task.cancel()

    async def _drain(
        self, running: dict[asyncio.Task[None], PreparedToolCall]
    ) -> AsyncIterator[AgentEvent]:
        """Yield what the tasks say until each has said its end, or the abort's grace is over."""
        unfinished = {step.call.id for step in running.values()}
        deadline: float | None = None
        while unfinished:
            if self.signal.aborted and deadline is None:
                deadline = asyncio.get_running_loop().time() + ABORT_GRACE_SECONDS
            event = await self._next_event(deadline)
            if isinstance(event, _Broken):
                raise event.error
            if isinstance(event, _Updates):
                yield event.take()
                continue
            if event is None and deadline is not None:
                break
            if isinstance(event, ToolExecutionEndEvent):
                unfinished.discard(event.tool_call_id)
            if event is not None:
                yield event
        for step in running.values():
            if step.call.id in unfinished:
                yield await self._finish(step.call, aborted_result())

    async def _next_event(self, deadline: float | None) -> AgentEvent | _Updates | _Broken | None:
        """Wait for the next event; ``None`` when the signal fires, or the deadline passes, before it."""
        try:
            if deadline is None:
                with self.signal.guard():
                    return await self._events.get()
            async with asyncio.timeout_at(deadline):
                return await self._events.get()
        except (Aborted, TimeoutError):
            return None

    def _refusal(self, number: int, call: AgentToolCall) -> AgentToolResult | None:
        """Say what is refused before anybody looks at it."""
        if self.cut:
            return error_result(CUT_TEXT, ErrorCode.INVALID_PARAMETERS)
        most = self.config.tool_calls_per_answer
        if most is not None and number >= most:
            text = f"Not run: one answer may make {most} calls, and this is number {number + 1}."
            return error_result(text, ErrorCode.RATE_LIMITED)
        repeated = self._repeats.refusal(call)
        if repeated is not None:
            return error_result(repeated, ErrorCode.EXECUTION_DENIED)
        return None

    async def _run_one(self, step: PreparedToolCall) -> None:
        async with self._slots:
            result = await self._execute(step)
        try:
            result = await self._after(step.call, result)
            self._repeats.saw(self._asked[step.call.id], result)
            if self.config.gate is not None:
                self.config.gate.saw(step.tool)
            if step.edited:
                result = _with_edit(step, result)
            self._events.put_nowait(await self._finish(step.call, result))
        except Exception as error:  # noqa: BLE001 - the run waits for this task's word, and gets it
            self._events.put_nowait(_Broken(error))

    async def _execute(self, step: PreparedToolCall) -> AgentToolResult:
        """Run the tool; whatever it raises, exits of the interpreter included, is a result."""
        updates = _Updates(step.call, self._events)
        task = asyncio.current_task()
        try:
            with self.signal.guard():
                result = await _call_tool(step, self.signal, updates.send)
        except Aborted:
            return aborted_result()
        except asyncio.CancelledError as error:
            if task is not None and task.cancelling():
                raise
            return failure(error, ErrorCode.EXECUTION_FAILED)
        except BaseException as error:  # noqa: BLE001 - SystemExit from a tool would end the kernel
            return failure(error, ErrorCode.EXECUTION_FAILED)
        finally:
            updates.close()
        if not isinstance(result, AgentToolResult):
            kind = type(result).__name__
            text = f"The tool {step.tool.name!r} returned {kind}, not an AgentToolResult."
            return error_result(text, ErrorCode.EXECUTION_FAILED)
        return result

    async def _after(self, call: AgentToolCall, result: AgentToolResult) -> AgentToolResult:
        hook = self.config.after_tool_call
        if hook is None or self.signal.aborted:
            return result
        try:
            changed = await settled(hook(call, result, self.context, self.signal))
            if changed is not None and not isinstance(changed, AgentToolResult):
                raise TypeError(
                    f"after_tool_call returned {changed!r}, not an AgentToolResult or None"
                )
        except CALLEE_RAISES as error:  # the result it should have checked is not trusted
            if is_own_cancellation(error):
                raise
            return failure(error, ErrorCode.EXECUTION_FAILED)
        return result if changed is None else changed

    async def _governed(self, result: AgentToolResult) -> AgentToolResult:
        """Hold a result to the limits of its turn; what writes a file does so in a thread."""
        async with self._governing:  # one after the other: they share what room there is
            if not self._governor.fits(result):
                result = await call_in_thread(self._governor.fit, result)
            return self._governor.take(result)

    async def _finish(self, call: AgentToolCall, result: AgentToolResult) -> ToolExecutionEndEvent:
        result = await self._governed(result)
        message = ToolResultMessage.model_validate(
            {
                "tool_call_id": call.id,
                "tool_name": call.name,
                "content": result.content,
                "details": result.details,
                "usage": result.usage,
                "added_tool_names": result.added_tool_names,
                "is_error": result.is_error,
            }
        )
        self._results[call.id] = message
        if self.config.on_tool_result is not None:
            await settled(self.config.on_tool_result(message))
        return ToolExecutionEndEvent(call.id, call.name, result, result.is_error)

    def _message_events(self, calls: Iterable[AgentToolCall]) -> Iterable[AgentEvent]:
        for call in calls:
            message = self._results[call.id]
            if self.signal.aborted and call is self.calls[-1]:
                message = message.model_copy(update={"aborted": True})
            self.messages.append(message)
            yield MessageStartEvent(message)
            yield MessageEndEvent(message)


class _Updates:
    """A call's progress on its way to the run: from any thread, and not after the call is over.

    One that comes before the one before it was heard takes its place, so that a tool that talks faster
    than anybody listens fills no memory.
    """

    def __init__(self, call: AgentToolCall, events: asyncio.Queue[Any]) -> None:
        self._call = call
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._latest: AgentToolResult | None = None
        self._open = True

    def send(self, partial: AgentToolResult) -> None:
        with self._lock:
            is_waiting, self._latest = self._latest is not None, partial
        if is_waiting:
            return
        try:
            on_loop = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            on_loop = False
        if on_loop:
            self._put()
        else:
            self._loop.call_soon_threadsafe(self._put)

    def take(self) -> AgentEvent:
        """Return the newest progress."""
        with self._lock:
            partial, self._latest = self._latest, None
        assert partial is not None
        return ToolExecutionUpdateEvent(self._call.id, self._call.name, _brief(partial))

    def _put(self) -> None:
        if self._open:
            self._events.put_nowait(self)

    def close(self) -> None:
        self._open = False


async def _call_tool(
    step: PreparedToolCall, signal: AbortSignal, on_update: Callable[[AgentToolResult], None]
) -> Any:
    """Call `execute`: an async one here, a plain one in a thread, so that it stalls nobody."""
    execute = step.tool.execute
    arguments = (step.call.id, step.arguments, signal, on_update)
    if inspect.iscoroutinefunction(execute) or inspect.iscoroutinefunction(
        getattr(execute, "__call__", None)  # noqa: B004 - an object with an async __call__
    ):
        return await execute(*arguments)  # type: ignore[misc]
    return await settled(await call_in_thread(execute, *arguments))


def _brief(partial: AgentToolResult) -> AgentToolResult:
    """Hold progress to the limits of a result; it is shown and forgotten."""
    governor = Governor()
    return governor.take(partial if governor.fits(partial) else governor.fit(partial))


def _with_edit(step: PreparedToolCall, result: AgentToolResult) -> AgentToolResult:
    """Tell the model that a person ran the call with other arguments than its own."""
    text = json.dumps(step.arguments, ensure_ascii=False, default=repr)
    block = TextContent(f"The user changed the arguments before this ran, to: {clipped(text)}")
    return result.model_copy(update={"content": (block, *result.content)})
