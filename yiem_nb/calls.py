"""The calls of one answer: prepared in order, run together, answered in order.

Every call has exactly one result, whatever happens to it: an unknown name, arguments that do not
fit, a hook that refuses or fails, a tool that raises, exits the interpreter or never ends.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from yiem_nb.errors import ErrorCode, YiemError, redact
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
    AgentMessage,
    AgentToolCall,
    AgentToolResult,
    AssistantMessage,
    StopReason,
    ToolResultMessage,
)
from yiem_nb.models import Model, ThinkingLevel
from yiem_nb.state import AgentContext
from yiem_nb.tools import (
    AgentTool,
    ToolExecutionMode,
    call_in_thread,
    error_result,
    validate_tool_arguments,
)

__all__ = [
    "AfterToolCall",
    "AgentLoopConfig",
    "Batch",
    "BeforeToolCall",
    "ToolBlock",
    "sentence",
    "settled",
]

#: How long an aborted batch waits for tools that do not end when they are cancelled.
ABORT_GRACE_SECONDS = 1.0

ABORTED_TEXT = "Operation aborted"
CUT_TEXT = (
    "Not run: the answer was cut off at its length limit, so the arguments may be incomplete."
)


@dataclass(frozen=True, slots=True)
class ToolBlock:
    """A before-hook's refusal; the model is told the reason."""

    reason: str = "Tool execution was blocked"
    code: ErrorCode = ErrorCode.EXECUTION_DENIED


#: Called with validated arguments before a tool runs. Returns ``None`` to let it run or a
#: `ToolBlock`. One that raises denies the call (fails closed).
BeforeToolCall: TypeAlias = Callable[
    [AgentToolCall, dict[str, Any], AgentContext, AbortSignal],
    Awaitable[ToolBlock | None] | ToolBlock | None,
]
#: Called with a tool's result. Returns ``None`` to keep it or another result in its place.
#: One that raises turns the result into an error.
AfterToolCall: TypeAlias = Callable[
    [AgentToolCall, AgentToolResult, AgentContext, AbortSignal],
    Awaitable[AgentToolResult | None] | AgentToolResult | None,
]


def _nothing() -> Sequence[AgentMessage]:
    return ()


@dataclass(frozen=True, slots=True)
class AgentLoopConfig:
    """What a run may ask for (SP-021, SPEC-1.3, SPEC-9.1).

    Parameters
    ----------
    model, thinking_level
        Who answers, and how hard it thinks.
    before_tool_call, after_tool_call
        Hooks around every call; see `BeforeToolCall` and `AfterToolCall`.
    tool_execution
        ``PARALLEL`` unless a tool of the batch is sequential.
    tool_calls_per_turn
        How many calls run at once; the rest wait. ``None`` lifts the limit.
    steering, follow_up
        Called for messages to insert: steering after each turn, follow-ups when the run would
        end. What they return they have given away.
    prepare_context
        Called before each request with what would be sent; returns what is sent. The tools it
        returns are those the answer may call.
    on_tool_result
        Called as each call finishes, before its end event: the place to write it down.
    """

    model: Model
    thinking_level: ThinkingLevel = ThinkingLevel.OFF
    before_tool_call: BeforeToolCall | None = None
    after_tool_call: AfterToolCall | None = None
    tool_execution: ToolExecutionMode = ToolExecutionMode.PARALLEL
    tool_calls_per_turn: int | None = 10
    steering: Callable[[], Sequence[AgentMessage]] = _nothing
    follow_up: Callable[[], Sequence[AgentMessage]] = _nothing
    prepare_context: Callable[[AgentContext], AgentContext | Awaitable[AgentContext]] | None = None
    on_tool_result: Callable[[ToolResultMessage], Awaitable[None] | None] | None = None


async def settled(value: Any) -> Any:
    """Return the value of a hook that may be plain or async."""
    return await value if inspect.isawaitable(value) else value


def sentence(error: BaseException) -> str:
    """Say in one redacted sentence what was raised."""
    if isinstance(error, YiemError):
        return str(error)
    try:
        said = str(error)
    except Exception:  # noqa: BLE001 - an error that cannot even be printed
        said = "(it has no text)"
    return redact(f"{type(error).__name__}: {said}")


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A call that may run: found, validated, allowed."""

    call: AgentToolCall
    tool: AgentTool
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Immediate:
    """A call that is answered without running."""

    call: AgentToolCall
    result: AgentToolResult


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
    ) -> None:
        self.calls = answer.tool_calls
        self.cut = answer.stop_reason is StopReason.LENGTH
        self.context = context
        self.config = config
        self.signal = signal
        self.messages: list[ToolResultMessage] = []
        self._events: asyncio.Queue[AgentEvent | _Broken] = asyncio.Queue()
        self._results: dict[str, ToolResultMessage] = {}
        self._slots = asyncio.Semaphore(config.tool_calls_per_turn or max(len(self.calls), 1))

    async def run(self) -> AsyncIterator[AgentEvent]:
        """Run the batch; afterwards `messages` holds the results in the order of the calls."""
        if self._sequential():
            for call in self.calls:
                async for event in self._run_together([call]):
                    yield event
                for event in self._message_events([call]):
                    yield event
            return
        async for event in self._run_together(self.calls):
            yield event
        for event in self._message_events(self.calls):
            yield event

    def _sequential(self) -> bool:
        tools = self.context.tools or {}
        called = (tools[call.name] for call in self.calls if call.name in tools)
        return self.config.tool_execution is ToolExecutionMode.SEQUENTIAL or any(
            tool.execution_mode is ToolExecutionMode.SEQUENTIAL for tool in called
        )

    async def _run_together(self, calls: Sequence[AgentToolCall]) -> AsyncIterator[AgentEvent]:
        ready: list[_Prepared] = []
        for call in calls:
            yield ToolExecutionStartEvent(call.id, call.name, call.arguments)
            step = await self._prepare(call)
            if isinstance(step, _Prepared):
                ready.append(step)
            else:
                yield await self._finish(step.call, step.result)
        running = {asyncio.create_task(self._run_one(step)): step for step in ready}
        try:
            async for event in self._drain(running):
                yield event
        finally:
            for task in running:
                task.cancel()

    async def _drain(
        self, running: dict[asyncio.Task[None], _Prepared]
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
            if event is None and deadline is not None:
                break
            if isinstance(event, ToolExecutionEndEvent):
                unfinished.discard(event.tool_call_id)
            if event is not None:
                yield event
        for step in running.values():
            if step.call.id in unfinished:
                yield await self._finish(step.call, _aborted_result())

    async def _next_event(self, deadline: float | None) -> AgentEvent | _Broken | None:
        """Wait for the next event; ``None`` when the signal fires, or the deadline passes, before it."""
        try:
            if deadline is None:
                with self.signal.guard():
                    return await self._events.get()
            async with asyncio.timeout_at(deadline):
                return await self._events.get()
        except (Aborted, TimeoutError):
            return None

    async def _prepare(self, call: AgentToolCall) -> _Prepared | _Immediate:
        """Find, mend, validate, ask: in this order, and refuse at the first that fails."""
        if self.signal.aborted:
            return _Immediate(call, _aborted_result())
        if self.cut:
            return _Immediate(call, error_result(CUT_TEXT, ErrorCode.INVALID_PARAMETERS))
        if not call.runnable:
            return _Immediate(call, _unreadable_result(call))
        tool = (self.context.tools or {}).get(call.name)
        if tool is None:
            return _Immediate(call, _unknown_result(call.name, self.context.tools or {}))
        try:
            if tool.prepare_arguments is not None:
                mended = tool.prepare_arguments(dict(call.arguments))
                call = call.model_copy(update={"arguments": mended})
            arguments = validate_tool_arguments(tool, call)
        except CALLEE_RAISES as error:  # the model mends what we tell it
            return _Immediate(call, _failure(error, ErrorCode.INVALID_PARAMETERS))
        return await self._ask(_Prepared(call, tool, arguments))

    async def _ask(self, step: _Prepared) -> _Prepared | _Immediate:
        hook = self.config.before_tool_call
        if hook is None:
            return step
        try:
            with self.signal.guard():
                block = await settled(hook(step.call, step.arguments, self.context, self.signal))
            if block is not None and not isinstance(block, ToolBlock):
                raise TypeError(f"before_tool_call returned {block!r}, not a ToolBlock or None")
        except Aborted:
            return _Immediate(step.call, _aborted_result())
        except CALLEE_RAISES as error:  # a hook that fails must not let the call through
            if is_own_cancellation(error):
                raise
            return _Immediate(step.call, _failure(error, ErrorCode.EXECUTION_DENIED))
        if block is not None:
            return _Immediate(step.call, error_result(block.reason, block.code))
        return step

    async def _run_one(self, step: _Prepared) -> None:
        async with self._slots:
            result = await self._execute(step)
        try:
            result = await self._after(step.call, result)
            self._events.put_nowait(await self._finish(step.call, result))
        except Exception as error:  # noqa: BLE001 - the run waits for this task's word, and gets it
            self._events.put_nowait(_Broken(error))

    async def _execute(self, step: _Prepared) -> AgentToolResult:
        """Run the tool; whatever it raises, exits of the interpreter included, is a result."""
        updates = _Updates(step.call, self._events)
        task = asyncio.current_task()
        try:
            with self.signal.guard():
                result = await _call_tool(step, self.signal, updates.send)
        except Aborted:
            return _aborted_result()
        except asyncio.CancelledError as error:
            if task is not None and task.cancelling():
                raise
            return _failure(error, ErrorCode.EXECUTION_FAILED)
        except BaseException as error:  # noqa: BLE001 - SystemExit from a tool would end the kernel
            return _failure(error, ErrorCode.EXECUTION_FAILED)
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
            return _failure(error, ErrorCode.EXECUTION_FAILED)
        return result if changed is None else changed

    async def _finish(self, call: AgentToolCall, result: AgentToolResult) -> ToolExecutionEndEvent:
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
    """A call's progress on its way to the run: from any thread, and not after the call is over."""

    def __init__(self, call: AgentToolCall, events: asyncio.Queue[AgentEvent | _Broken]) -> None:
        self._call = call
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._open = True

    def send(self, partial: AgentToolResult) -> None:
        event = ToolExecutionUpdateEvent(self._call.id, self._call.name, partial)
        try:
            on_loop = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            on_loop = False
        if on_loop:
            self._put(event)
        else:
            self._loop.call_soon_threadsafe(self._put, event)

    def _put(self, event: AgentEvent) -> None:
        if self._open:
            self._events.put_nowait(event)

    def close(self) -> None:
        self._open = False


async def _call_tool(
    step: _Prepared, signal: AbortSignal, on_update: Callable[[AgentToolResult], None]
) -> Any:
    """Call `execute`: an async one here, a plain one in a thread, so that it stalls nobody."""
    execute = step.tool.execute
    arguments = (step.call.id, step.arguments, signal, on_update)
    if inspect.iscoroutinefunction(execute) or inspect.iscoroutinefunction(
        getattr(execute, "__call__", None)  # noqa: B004 - an object with an async __call__
    ):
        return await execute(*arguments)  # type: ignore[misc]
    return await settled(await call_in_thread(execute, *arguments))


def _failure(error: BaseException, code: ErrorCode) -> AgentToolResult:
    own = error.code if isinstance(error, YiemError) else code
    return error_result(sentence(error), own)


def _aborted_result() -> AgentToolResult:
    return error_result(ABORTED_TEXT, ErrorCode.EXECUTION_ABORTED)


def _unreadable_result(call: AgentToolCall) -> AgentToolResult:
    sent = (call.raw_arguments or "")[:500]
    state = "were cut off" if call.incomplete else "are not a JSON object"
    text = f"Not run: the arguments of {call.name!r} {state}. Received: {sent}"
    return error_result(text, ErrorCode.INVALID_PARAMETERS)


def _unknown_result(name: str, tools: dict[str, AgentTool]) -> AgentToolResult:
    known = ", ".join(tools) or "none"
    return error_result(f"Tool {name} not found. Available: {known}", ErrorCode.TOOL_NOT_FOUND)
