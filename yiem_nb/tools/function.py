"""A Python function → a tool: its schema, its arguments, its call (pydantic's public API alone)."""

from __future__ import annotations

import asyncio
import functools
import inspect
import typing
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic_core import PydanticUndefined

from yiem_nb.errors import InvalidParametersError
from yiem_nb.events import AbortSignal
from yiem_nb.messages import AgentToolResult
from yiem_nb.tools.base import AgentTool, OnUpdate, ToolExecutionMode
from yiem_nb.tools.results import failure_result, to_result
from yiem_nb.tools.worker import call_in_thread

__all__ = [
    "FunctionKind",
    "Outcome",
    "Runner",
    "call_function",
    "outcome_of",
    "run_here",
    "tool_from_function",
]

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
        return await call_in_thread(lambda: describe(outcome_of(call)))
    try:
        value = await call()
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - SystemExit of a tool is its result
        return describe(Outcome(error=error))
    return describe(Outcome(value))


def outcome_of(call: Callable[[], Any]) -> Outcome:
    """Call, and keep what it returns or raises; an interrupt goes on."""
    try:
        return Outcome(call())
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - SystemExit of a tool is its result
        return Outcome(error=error)


class Signature:
    """A function's parameters as a model: what is asked of the language model, and how it is read."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self._name = name
        try:
            self._parameters = inspect.signature(function).parameters
        except (TypeError, ValueError):
            raise InvalidParametersError(
                f"{name} does not say what it takes.", hint="Wrap it in a def with parameters."
            ) from None
        hints = _hints(function, name)
        fields: dict[str, Any] = {}
        self._names: dict[str, str] = {}
        for position, (own, parameter) in enumerate(self._parameters.items()):
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise InvalidParametersError(
                    f"{name}: the parameter *{own} has no fixed shape.",
                    hint="Give it named parameters; a decorator should use functools.wraps.",
                )
            neutral = f"p{position}"
            self._names[neutral] = own
            fields[neutral] = _field(own, parameter, hints.get(own, Any))
        config = ConfigDict(extra="forbid", arbitrary_types_allowed=False, title=name)
        try:
            self._model = create_model("Arguments", __config__=config, **fields)
            schema = self._model.model_json_schema(by_alias=True)
        except (PydanticInvalidForJsonSchema, TypeError, RuntimeError) as error:
            raise _unsupported(name, hints, error) from None
        self.schema = _without_titles(schema)

    def bind(self, arguments: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Check and convert the model's arguments.

        Raises
        ------
        InvalidParametersError
            With each argument that does not fit, so that the model can mend it.
        """
        try:
            values = self._model.model_validate(arguments)
        except ValidationError as error:
            raise InvalidParametersError(_complaint(self._name, error)) from None
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for neutral in values.model_fields_set:
            own = self._names[neutral]
            if self._parameters[own].kind is not inspect.Parameter.POSITIONAL_ONLY:
                named[own] = getattr(values, neutral)
        for neutral, own in self._names.items():
            if self._parameters[own].kind is inspect.Parameter.POSITIONAL_ONLY:
                if neutral not in values.model_fields_set:
                    break
                positional.append(getattr(values, neutral))
        return positional, named


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    target = inspect.unwrap(function)
    while isinstance(target, functools.partial):
        target = target.func
    if not inspect.isroutine(target):
        target = type(target).__call__
    try:
        return typing.get_type_hints(target, include_extras=True)
    except (NameError, TypeError) as error:
        raise InvalidParametersError(
            f"{name}: an annotation cannot be resolved: {error}.",
            hint="Define the class before the function, in the notebook.",
        ) from None


def _field(name: str, parameter: inspect.Parameter, annotation: Any) -> tuple[Any, Any]:
    default = parameter.default
    if isinstance(default, FieldInfo):
        merged = FieldInfo.from_annotated_attribute(annotation, default)
        return annotation, Field(default=merged.default, alias=name, description=merged.description)
    given = PydanticUndefined if default is parameter.empty else default
    if default is None and annotation is not Any:
        annotation = annotation | None if isinstance(annotation, type) else annotation
    return annotation, Field(default=given, alias=name)


def _unsupported(name: str, hints: dict[str, Any], error: Exception) -> InvalidParametersError:
    """Name the parameter whose type no JSON can carry."""
    for parameter, annotation in hints.items():
        if parameter == "return":
            continue
        try:
            TypeAdapter(annotation).json_schema()
        except Exception:  # noqa: BLE001 - whatever pydantic raises, this is the parameter
            shown = getattr(annotation, "__name__", str(annotation))
            return InvalidParametersError(
                f"{name}: a model cannot pass a {shown} for the parameter {parameter!r}.",
                hint="Take the name of a variable as str and look it up inside.",
            )
    return InvalidParametersError(f"{name} cannot be described as a tool: {error}")


def _without_titles(schema: Any) -> Any:
    """Drop the titles pydantic adds; they cost tokens and say nothing."""
    if isinstance(schema, list):
        return [_without_titles(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: {name: _without_titles(item) for name, item in value.items()}
        if key in ("properties", "$defs")
        else _without_titles(value)
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str))
    }


def _complaint(name: str, error: ValidationError) -> str:
    lines = []
    for item in error.errors(include_url=False, include_context=False):
        where = ".".join(str(part) for part in item["loc"]) or "arguments"
        what = "unknown argument" if item["type"] == "extra_forbidden" else item["msg"]
        lines.append(f"- {where}: {what}")
    return f"The arguments of {name} do not fit:\n" + "\n".join(lines)


# --- The tool ------------------------------------------------------------------------------


class FunctionExecute:
    """`AgentTool.execute` of a function."""

    def __init__(self, function: Callable[..., Any], signature: Signature, runner: Runner) -> None:
        self.function = function
        self.signature = signature
        self._runner = runner
        self._kind: FunctionKind = "async" if inspect.iscoroutinefunction(function) else "plain"

    async def __call__(
        self,
        tool_call_id: str,
        arguments: dict[str, Any],
        signal: AbortSignal,
        on_update: OnUpdate,
    ) -> AgentToolResult:
        """Bind, run, and turn what came out into a result."""
        positional, named = self.signature.bind(arguments)
        call = functools.partial(self.function, *positional, **named)
        return await self._runner(call, self._kind, _describe, on_update)


def _describe(outcome: Outcome) -> AgentToolResult:
    if outcome.error is not None:
        return failure_result(outcome.error, outcome.printed)
    return to_result(outcome.value, outcome.printed)


def tool_from_function(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
    ask: bool = False,
    sequential: bool = False,
    runner: Runner = run_here,
) -> AgentTool:
    """Make a tool of a typed function.

    Parameters
    ----------
    function
        Its annotations become the schema, its docstring the description.
    name
        What the model calls it, where the function's own name does not do.
    ask
        Ask before each call.
    sequential
        Run alone, not beside other calls of the same answer.
    runner
        Where it runs.

    Raises
    ------
    InvalidParametersError
        Names the parameter, its type and the remedy.
    """
    own = name or _name_of(function)
    signature = Signature(function, own)
    return AgentTool(
        name=own,
        description=description
        or inspect.getdoc(function)
        or f"{own}{inspect.signature(function)}",
        parameters=signature.schema,
        execute=FunctionExecute(function, signature, runner),
        execution_mode=ToolExecutionMode.SEQUENTIAL if sequential else None,
        validate_required_args=_bound_later,
        asks=ask,
    )


def _bound_later(arguments: dict[str, Any]) -> None:
    """Nothing to check: binding does it, and says more than which argument is missing."""


def _name_of(function: Callable[..., Any]) -> str:
    target = function
    while isinstance(target, functools.partial):
        target = target.func
    return getattr(target, "__name__", type(target).__name__)


def call_function(tool: AgentTool, arguments: dict[str, Any]) -> Any:
    """Check, convert and call, here and now; return what the function returns."""
    execute = tool.execute
    if not isinstance(execute, FunctionExecute):
        raise InvalidParametersError(f"The tool {tool.name!r} was not made from a function.")
    positional, named = execute.signature.bind(arguments)
    value = execute.function(*positional, **named)
    return asyncio.run(value) if inspect.iscoroutine(value) else value
