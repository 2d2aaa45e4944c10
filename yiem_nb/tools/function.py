"""A Python function → a tool: its schema, its arguments, its call."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from yiem_nb.errors import InvalidParametersError, ToolTimeoutError
from yiem_nb.events import AbortSignal
from yiem_nb.messages import AgentToolResult
from yiem_nb.tools.base import MAX_NAME_LENGTH, AgentTool, OnUpdate, ToolExecutionMode
from yiem_nb.tools.binding import bind
from yiem_nb.tools.context import Namespace, OutputStore, ToolContext, main_namespace
from yiem_nb.tools.docs import clipped_description, read_docs
from yiem_nb.tools.policy import Predicate
from yiem_nb.tools.results import Formatter, failure_result, to_result
from yiem_nb.tools.running import (
    CallLog,
    Outcome,
    Runner,
    RunningCall,
    finish,
    finish_async,
    kind_of,
    run_here,
    run_in_private,
)
from yiem_nb.tools.schema import Shape, shape_of
from yiem_nb.tools.signature import innermost, read_parameters, takes_positions

__all__ = ["FunctionExecute", "call_function", "tool_from_function", "tool_name"]


class FunctionExecute:
    """`AgentTool.execute` of a function, in three steps: bind, run, describe.

    Parameters
    ----------
    function
        What is called.
    shape
        How its arguments are read.
    runner, namespace, formatter, timeout
        As `tool_from_function` was told.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        shape: Shape,
        *,
        runner: Runner,
        namespace: Namespace,
        formatter: Formatter | None,
        timeout: float | None,
        store: OutputStore | None = None,
        calls: CallLog | None = None,
    ) -> None:
        self.function = function
        self.shape = shape
        self.kind = kind_of(function)
        self.namespace = namespace
        self._runner = runner
        self._formatter = formatter
        self.timeout = timeout
        self._store = store
        self._calls = calls or CallLog()

    async def __call__(
        self,
        tool_call_id: str,
        arguments: dict[str, Any],
        signal: AbortSignal,
        on_update: OnUpdate,
    ) -> AgentToolResult:
        """Run one call, and turn what comes out into a result."""
        progress = _Progress(on_update)
        # Its own signal fires with the run's, and when the call is given up.
        own = signal if self.timeout is None else AbortSignal()
        context = ToolContext(tool_call_id, own, progress, self.namespace())
        running = RunningCall(self.shape.name, tool_call_id, arguments)
        if (earlier := self._calls.same(running)) is not None:
            raise ToolTimeoutError(
                f"The same call of {self.shape.name} is still running ({earlier.given_up}); "
                "it was not started again."
            )
        call = self._calls.watched(running, self.bound(arguments, context))
        work = self._runner(call, self.kind, self._describe, progress)
        limit = asyncio.timeout(self.timeout)
        try:
            async with limit, _together(signal, own):
                return await work
        except asyncio.CancelledError:
            running.given_up = signal.reason or "stopped"
            raise
        except TimeoutError:
            if not limit.expired():
                raise
            running.given_up = f"it took longer than {self.timeout:g} s"
            own.abort(running.given_up)
            return self._overtime(running, progress.last)

    def _overtime(self, running: RunningCall, so_far: str) -> AgentToolResult:
        """Say that a call takes too long, honestly: a function cannot be stopped from outside."""
        state = (
            "It is still running, because a function cannot be stopped from outside; what it "
            "returns is lost. Do not call it again with the same arguments."
            if self._calls.is_running(running)
            else "It was stopped."
        )
        error = ToolTimeoutError(
            f"{self.shape.name} has run for {self.timeout:g} s, longer than it may. {state}"
        )
        return failure_result(error, so_far, store=self._store)

    def bound(self, arguments: Mapping[str, Any], context: ToolContext) -> Callable[[], Any]:
        """Read the arguments, and return the call: a coroutine function if it is ``async``.

        Raises
        ------
        InvalidParametersError
            With each argument that does not fit.
        """
        by_position = takes_positions(self.function)
        given = bind(self.shape, arguments, context, by_position=by_position)
        call = functools.partial(self.function, *given.args, **given.kwargs)
        finished: Any = finish if self.kind == "plain" else finish_async
        return functools.partial(finished, call, self._reporter(context), context.signal)

    def dry_run(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the function would receive, by parameter, without calling it.

        Raises
        ------
        InvalidParametersError
            With each argument that does not fit.
        """
        given = bind(self.shape, arguments, ToolContext(namespace=self.namespace()))
        named = dict(zip(self.shape.asked, given.args, strict=False))
        return named | given.kwargs

    def complaint(self, arguments: dict[str, Any]) -> str | None:
        """Say what is wrong with the arguments, so that nobody is asked to allow a call that cannot be."""
        try:
            bind(self.shape, arguments, ToolContext(namespace=self.namespace()))
        except InvalidParametersError as error:
            return error.message
        return None

    def _reporter(self, context: ToolContext) -> Callable[[Any], None]:
        return lambda value: context.on_update(to_result(value, format=self._formatter))

    def _describe(self, outcome: Outcome) -> AgentToolResult:
        if outcome.error is not None:
            return failure_result(outcome.error, outcome.printed, store=self._store)
        return to_result(outcome.value, outcome.printed, format=self._formatter, store=self._store)


@asynccontextmanager
async def _together(signal: AbortSignal, own: AbortSignal) -> AsyncIterator[None]:
    """Fire `own` when `signal` fires, while the block lasts."""

    async def follow() -> None:
        await signal
        own.abort(signal.reason)

    following = None if own is signal else asyncio.create_task(follow())
    try:
        yield
    finally:
        if signal.aborted:
            own.abort(signal.reason)
        if following is not None:
            following.cancel()


class _Progress:
    """Passes a call's progress on, and remembers the last of it."""

    def __init__(self, on_update: OnUpdate) -> None:
        self._on_update = on_update
        self.last = ""

    def __call__(self, partial_result: AgentToolResult) -> None:
        self.last = partial_result.text
        self._on_update(partial_result)


def tool_from_function(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
    ask: bool | Predicate = False,
    sequential: bool = False,
    timeout: float | None = None,
    read_only: bool = False,
    untrusted: bool = False,
    runner: Runner = run_here,
    namespace: Namespace = main_namespace,
    formatter: Formatter | None = None,
    store: OutputStore | None = None,
    calls: CallLog | None = None,
) -> AgentTool:
    """Make a tool of a typed function.

    Parameters
    ----------
    function
        Its annotations become the schema, its docstring the description.
    name
        What the model calls it, where the function's own name does not do.
    description
        What it does, instead of the docstring.
    ask
        Ask before each call, or before those for whose arguments a function says so.
    sequential
        Run alone, not beside other calls of the same answer.
    timeout
        Seconds after which the model is told that it takes too long; ``None`` waits for it.
    read_only, untrusted
        It changes nothing; it brings in what others wrote. See `AgentTool`.
    runner
        Where it runs.
    namespace
        Returns the notebook's variables, for `Var` and `ToolContext`.
    formatter
        Returns what an object looks like by MIME type, as IPython's does.
    store
        Keeps the whole of results that are too long for the model.
    calls
        Where calls are listed while they run.

    Raises
    ------
    InvalidParametersError
        Names the parameter, its type and the remedy.
    """
    own = tool_name(function, name)
    docs = read_docs(function)
    shape = shape_of(own, read_parameters(function, own), docs.of)
    execute = FunctionExecute(
        function,
        shape,
        runner=runner,
        namespace=namespace,
        formatter=formatter,
        timeout=timeout,
        store=store,
        calls=calls,
    )
    said = description or docs.description or f"{own}{inspect.signature(function)}"
    return AgentTool(
        name=own,
        description=clipped_description(said),
        parameters=shape.schema,
        execute=execute,
        execution_mode=ToolExecutionMode.SEQUENTIAL if sequential else None,
        validate_required_args=execute.complaint,
        asks=ask,
        read_only=read_only,
        untrusted=untrusted,
    )


def tool_name(function: Callable[..., Any], given: str | None = None) -> str:
    """Return what a model calls a function: the given name, else its own.

    Raises
    ------
    InvalidParametersError
        Its own name is none that every provider takes, or it cannot be called at all.
    """
    if not callable(function):
        raise InvalidParametersError(
            f"{type(function).__name__} cannot be called, so it cannot be a tool.",
            hint="Give a function.",
        )
    if given is not None:
        return given
    target = innermost(function) if isinstance(function, functools.partial) else function
    name = str(getattr(target, "__name__", type(target).__name__))
    if name.isascii() and name.isidentifier() and len(name) <= MAX_NAME_LENGTH:
        return name
    shown = "A lambda has no name" if name == "<lambda>" else f"{name!r} is no name for a tool"
    raise InvalidParametersError(
        f"{shown}: letters, digits and _, not starting with a digit, at most 64 characters.",
        hint='Give it another with name="…".',
    )


def call_function(
    tool: AgentTool, arguments: Mapping[str, Any], *, context: ToolContext | None = None
) -> Any:
    """Check, convert and call, here and now; return what the function returns.

    Raises
    ------
    InvalidParametersError
        The arguments do not fit, or the tool was not made from a function.
    """
    execute = tool.execute
    if not isinstance(execute, FunctionExecute):
        raise InvalidParametersError(f"The tool {tool.name!r} was not made from a function.")
    if context is None:
        context = ToolContext(namespace=execute.namespace())
    call = execute.bound(arguments, context)
    return call() if execute.kind == "plain" else run_in_private(call)
