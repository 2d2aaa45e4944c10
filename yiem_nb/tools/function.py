"""A Python function → a tool: its schema, its arguments, its call."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from yiem_nb.errors import InvalidParametersError, ToolTimeoutError
from yiem_nb.events import AbortSignal
from yiem_nb.messages import AgentToolResult
from yiem_nb.tools.base import MAX_NAME_LENGTH, AgentTool, OnUpdate, ToolExecutionMode
from yiem_nb.tools.binding import bind
from yiem_nb.tools.context import Namespace, ToolContext, main_namespace
from yiem_nb.tools.docs import clipped_description, read_docs
from yiem_nb.tools.results import Formatter, failure_result, to_result
from yiem_nb.tools.running import (
    Outcome,
    Runner,
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
    ) -> None:
        self.function = function
        self.shape = shape
        self.kind = kind_of(function)
        self.namespace = namespace
        self._runner = runner
        self._formatter = formatter
        self._timeout = timeout

    async def __call__(
        self,
        tool_call_id: str,
        arguments: dict[str, Any],
        signal: AbortSignal,
        on_update: OnUpdate,
    ) -> AgentToolResult:
        """Run one call, and turn what comes out into a result."""
        context = ToolContext(tool_call_id, signal, on_update, self.namespace())
        call = self.bound(arguments, context)
        running = self._runner(call, self.kind, self._describe, on_update)
        try:
            async with asyncio.timeout(self._timeout):
                return await running
        except TimeoutError:
            raise ToolTimeoutError(
                f"{self.shape.name} has run for {self._timeout:g} s, longer than it may.",
                hint="It may still be running: a thread cannot be stopped from outside.",
            ) from None

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
            return failure_result(outcome.error, outcome.printed)
        return to_result(outcome.value, outcome.printed, format=self._formatter)


def tool_from_function(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
    ask: bool = False,
    sequential: bool = False,
    timeout: float | None = None,
    runner: Runner = run_here,
    namespace: Namespace = main_namespace,
    formatter: Formatter | None = None,
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
        Ask before each call.
    sequential
        Run alone, not beside other calls of the same answer.
    timeout
        Seconds after which the model is told that it takes too long; ``None`` waits for it.
    runner
        Where it runs.
    namespace
        Returns the notebook's variables, for `Var` and `ToolContext`.
    formatter
        Returns what an object looks like by MIME type, as IPython's does.

    Raises
    ------
    InvalidParametersError
        Names the parameter, its type and the remedy.
    """
    own = tool_name(function, name)
    docs = read_docs(function)
    shape = shape_of(own, read_parameters(function, own), docs.of)
    execute = FunctionExecute(
        function, shape, runner=runner, namespace=namespace, formatter=formatter, timeout=timeout
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
