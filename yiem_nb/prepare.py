"""What a call goes through before it runs: found, read, checked, allowed (SP-021, SP-024).

Each step refuses with a result that the model can act on; none raises.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from yiem_nb.errors import ErrorCode, YiemError, redact
from yiem_nb.events import (
    CALLEE_RAISES,
    Aborted,
    AbortSignal,
    AgentEvent,
    ToolApprovalEndEvent,
    ToolApprovalRequestEvent,
    is_own_cancellation,
)
from yiem_nb.messages import AgentMessage, AgentToolCall, AgentToolResult, ToolResultMessage
from yiem_nb.models import Model, ThinkingLevel
from yiem_nb.state import AgentContext
from yiem_nb.tools import (
    AgentTool,
    ApprovalRequest,
    Decision,
    Gate,
    OutputStore,
    Refused,
    ToolExecutionMode,
    error_result,
    validate_tool_arguments,
)

__all__ = [
    "HOOK_SECONDS",
    "AfterToolCall",
    "AgentLoopConfig",
    "BeforeToolCall",
    "ImmediateToolCall",
    "PreparedToolCall",
    "ToolBlock",
    "aborted_result",
    "failure",
    "prepare_tool_call",
    "preparing",
    "sentence",
    "settled",
]

#: How long a hook may think about one call (reliability F63).
HOOK_SECONDS = 30.0
#: How often a person may mend arguments that do not fit.
EDITS = 3

ABORTED_TEXT = "Operation aborted"


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
    tool_calls_per_answer, turns_per_run
        Where a model that goes on and on is stopped, and told so.
    gate, on_approval
        Who rules on calls before they run, and where a person's decisions are written down before
        anything acts on them. Without a gate every call may run.
    store
        Keeps the whole of results that are too long for the model.
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
    tool_calls_per_answer: int | None = 100
    turns_per_run: int | None = 50
    gate: Gate | None = None
    store: OutputStore | None = None
    on_approval: Callable[[ApprovalRequest, Decision], Awaitable[None] | None] | None = None
    steering: Callable[[], Sequence[AgentMessage]] = _nothing
    follow_up: Callable[[], Sequence[AgentMessage]] = _nothing
    #: Whether a summary may stand for the beginning of a conversation that grows too long.
    compaction: bool = True
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
class PreparedToolCall:
    """A call that may run, with checked arguments; `edited` if a person changed them."""

    call: AgentToolCall
    tool: AgentTool
    arguments: dict[str, Any]
    edited: bool = False


@dataclass(frozen=True, slots=True)
class ImmediateToolCall:
    """A call that is answered without running."""

    call: AgentToolCall
    result: AgentToolResult


Outcome: TypeAlias = PreparedToolCall | ImmediateToolCall


def _unheard(event: AgentEvent) -> None:
    """Nobody listens to the asking."""


async def prepare_tool_call(
    call: AgentToolCall,
    context: AgentContext,
    config: AgentLoopConfig,
    signal: AbortSignal,
    emit: Callable[[AgentEvent], object] = _unheard,
) -> PreparedToolCall | ImmediateToolCall:
    """Make a call ready to run, or answer it at once (SP-024).

    Parameters
    ----------
    call
        The model's.
    context
        Whose tools may be called.
    config
        The gate and the hooks.
    signal
        Ends the waiting for a person or a hook.
    emit
        Hears that a person is asked, and what was decided.

    Returns
    -------
    PreparedToolCall or ImmediateToolCall
        The second holds the result the model sees: no such tool, arguments that do not fit, no
        leave. Nothing is raised for the model's mistakes.
    """
    outcome: Outcome | None = None
    async with aclosing(preparing(call, context, config, signal)) as steps:
        async for step in steps:
            if isinstance(step, PreparedToolCall | ImmediateToolCall):
                outcome = step
            else:
                emit(step)
    assert outcome is not None  # a preparation ends with its outcome
    return outcome


async def preparing(
    call: AgentToolCall, context: AgentContext, config: AgentLoopConfig, signal: AbortSignal
) -> AsyncGenerator[AgentEvent | Outcome]:
    """Find, mend, check, ask, and let the hook see: yields events, and last the outcome."""
    found = _checked(call, context, signal)
    if isinstance(found, PreparedToolCall) and config.gate is not None:
        async with aclosing(_through(config.gate, found, config, signal)) as steps:
            async for step in steps:
                if isinstance(step, PreparedToolCall | ImmediateToolCall):
                    found = step
                else:
                    yield step
    if isinstance(found, PreparedToolCall):
        found = await _before(found, context, config, signal)
    yield found


def _checked(call: AgentToolCall, context: AgentContext, signal: AbortSignal) -> Outcome:
    if signal.aborted:
        return ImmediateToolCall(call, aborted_result())
    if not call.runnable:
        return ImmediateToolCall(call, _unreadable_result(call))
    tool = (context.tools or {}).get(call.name)
    if tool is None:
        return ImmediateToolCall(call, _unknown_result(call.name, context.tools or {}))
    try:
        # The tool gets its own copy: what it does to it must not change what was said.
        arguments = copy.deepcopy(call.arguments)
        if tool.prepare_arguments is not None:
            arguments = tool.prepare_arguments(arguments)
        call = call.model_copy(update={"arguments": arguments})
        return PreparedToolCall(call, tool, validate_tool_arguments(tool, call))
    except CALLEE_RAISES as error:  # the model mends what we tell it
        return ImmediateToolCall(call, failure(error, ErrorCode.INVALID_PARAMETERS))


# --- A person's leave ----------------------------------------------------------------------


async def _through(
    gate: Gate, step: PreparedToolCall, config: AgentLoopConfig, signal: AbortSignal
) -> AsyncGenerator[AgentEvent | Outcome]:
    """Let the gate rule; where it wants a person asked, ask."""
    try:
        ruling = gate.judge(step.tool, step.call, step.arguments)
        for _ in range(EDITS):
            if not isinstance(ruling, ApprovalRequest):
                break
            request = ruling
            yield _asking(request)
            decision = await _decision(gate, request, signal)
            changed = _edited(step, decision)
            if isinstance(changed, str):
                yield _answered(request, replace(decision, kind="deny", reason=changed))
                ruling = _again(request, changed)
                continue
            step = changed
            if config.on_approval is not None:
                await settled(config.on_approval(request, decision))
            yield _answered(request, decision)
            ruling = gate.settle(step.tool, decision)
    except Aborted:
        yield ImmediateToolCall(step.call, aborted_result())
        return
    except CALLEE_RAISES as error:  # who fails to ask must not let the call through
        if is_own_cancellation(error):
            raise
        yield ImmediateToolCall(step.call, failure(error, ErrorCode.EXECUTION_DENIED))
        return
    if isinstance(ruling, ApprovalRequest):
        ruling = Refused(f"The user's own arguments did not fit: {ruling.problem}")
    if isinstance(ruling, Refused):
        yield ImmediateToolCall(step.call, error_result(ruling.reason, ruling.code))
    else:
        yield step


async def _decision(gate: Gate, request: ApprovalRequest, signal: AbortSignal) -> Decision:
    with signal.guard():
        return await gate.ask(request)


def _edited(step: PreparedToolCall, decision: Decision) -> PreparedToolCall | str:
    """Put a person's arguments in place of the model's, or say why they cannot be."""
    if decision.kind != "edit" or decision.arguments is None:
        return step
    call = step.call.model_copy(update={"arguments": copy.deepcopy(decision.arguments)})
    try:
        return PreparedToolCall(call, step.tool, validate_tool_arguments(step.tool, call), True)
    except CALLEE_RAISES as error:
        return sentence(error)


def _again(request: ApprovalRequest, problem: str) -> ApprovalRequest:
    return ApprovalRequest(
        tool_call_id=request.tool_call_id,
        tool_name=request.tool_name,
        arguments=request.arguments,
        description=request.description,
        reason=request.reason,
        offers_session=request.offers_session,
        problem=problem,
    )


def _asking(request: ApprovalRequest) -> ToolApprovalRequestEvent:
    return ToolApprovalRequestEvent(
        request.tool_call_id,
        request.tool_name,
        request.arguments,
        request.nonce,
        request.reason,
        request.offers_session,
        request.problem,
    )


def _answered(request: ApprovalRequest, decision: Decision) -> ToolApprovalEndEvent:
    return ToolApprovalEndEvent(
        request.tool_call_id,
        request.tool_name,
        decision.allows,
        decision.reason,
        decision.arguments if decision.allows else None,
    )


# --- The user's hook -----------------------------------------------------------------------


async def _before(
    step: PreparedToolCall, context: AgentContext, config: AgentLoopConfig, signal: AbortSignal
) -> Outcome:
    hook = config.before_tool_call
    if hook is None:
        return step
    try:
        with signal.guard():
            async with asyncio.timeout(HOOK_SECONDS) as limit:
                block = await settled(hook(step.call, step.arguments, context, signal))
        if block is not None and not isinstance(block, ToolBlock):
            raise TypeError(f"before_tool_call returned {block!r}, not a ToolBlock or None")
    except Aborted:
        return ImmediateToolCall(step.call, aborted_result())
    except CALLEE_RAISES as error:  # a hook that fails must not let the call through
        if is_own_cancellation(error):
            raise
        if isinstance(error, TimeoutError) and limit.expired():
            text = f"Not run: before_tool_call did not answer within {HOOK_SECONDS:g} s."
            return ImmediateToolCall(step.call, error_result(text, ErrorCode.EXECUTION_DENIED))
        return ImmediateToolCall(step.call, failure(error, ErrorCode.EXECUTION_DENIED))
    if block is not None:
        return ImmediateToolCall(step.call, error_result(block.reason, block.code))
    return step


# --- Results without a call ----------------------------------------------------------------


def failure(error: BaseException, code: ErrorCode) -> AgentToolResult:
    """Tell the model what was raised."""
    own = error.code if isinstance(error, YiemError) else code
    return error_result(sentence(error), own)


def aborted_result() -> AgentToolResult:
    """Tell the model that the run was stopped."""
    return error_result(ABORTED_TEXT, ErrorCode.EXECUTION_ABORTED)


def _unreadable_result(call: AgentToolCall) -> AgentToolResult:
    sent = (call.raw_arguments or "")[:500]
    state = "were cut off" if call.incomplete else "are not a JSON object"
    text = f"Not run: the arguments of {call.name!r} {state}. Received: {sent}"
    return error_result(text, ErrorCode.INVALID_PARAMETERS)


def _unknown_result(name: str, tools: dict[str, AgentTool]) -> AgentToolResult:
    known = ", ".join(tools) or "none"
    return error_result(f"Tool {name} not found. Available: {known}", ErrorCode.TOOL_NOT_FOUND)
