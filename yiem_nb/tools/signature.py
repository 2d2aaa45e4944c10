"""A callable → its parameters, with annotations resolved where the function was written."""

from __future__ import annotations

import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from yiem_nb.errors import InvalidParametersError
from yiem_nb.tools.context import Injection, injection_of

__all__ = [
    "OMITTED",
    "Argument",
    "Injected",
    "ToolParameter",
    "UnresolvedAnnotationError",
    "innermost",
    "read_parameters",
    "takes_positions",
]

_Kind = inspect.Parameter
_VARIADIC = (_Kind.VAR_POSITIONAL, _Kind.VAR_KEYWORD)

#: The default of a key that a ``**options: Unpack[…]`` may leave out.
OMITTED = object()


class UnresolvedAnnotationError(InvalidParametersError):
    """An annotation names something that does not exist, at least not yet."""


@dataclass(frozen=True, slots=True)
class Argument:
    """A parameter that the model fills."""

    parameter: inspect.Parameter
    annotation: Any


@dataclass(frozen=True, slots=True)
class Injected:
    """A parameter that we fill; the model never hears of it."""

    parameter: inspect.Parameter
    source: Injection


ToolParameter: TypeAlias = Argument | Injected


def innermost(function: Any) -> Any:
    """Return the function below partials, methods, wrappers and callable objects."""
    seen: set[int] = set()
    while id(function) not in seen:
        seen.add(id(function))
        if isinstance(function, functools.partial):
            function = function.func
        elif inspect.ismethod(function):
            function = function.__func__
        elif inspect.isclass(function):
            break
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif not inspect.isroutine(function):
            function = type(function).__call__
    return function


def read_parameters(function: Callable[..., Any], name: str) -> tuple[ToolParameter, ...]:
    """Read a function's parameters in their order.

    Raises
    ------
    InvalidParametersError
        It does not say what it takes.
    UnresolvedAnnotationError
        An annotation cannot be resolved; the return annotation does not matter.
    """
    found = tuple(_signature(function, name).parameters.values())
    if _says_nothing(found):
        raise InvalidParametersError(
            f"{name} takes (*{found[0].name}, **{found[1].name}) without types, which says nothing.",
            hint="A decorator should use functools.wraps; or wrap it in a def with named parameters.",
        )
    scope = _Scope.of(function)
    return tuple(item for parameter in found for item in _tool_parameters(parameter, scope, name))


def takes_positions(function: Callable[..., Any]) -> bool:
    """Whether this is a wrapper around another function that passes ``*args`` on.

    Some, `functools.singledispatch` for one, look at the first of them.
    """
    if not hasattr(function, "__wrapped__"):
        return False
    try:
        own = inspect.signature(function, follow_wrapped=False).parameters.values()
    except ValueError:  # compiled, as `functools.lru_cache` is
        return False
    return any(each.kind is _Kind.VAR_POSITIONAL for each in own)


def _signature(function: Callable[..., Any], name: str) -> inspect.Signature:
    # What a compiled callable such as numpy.sqrt says about itself is no help to anybody.
    if not isinstance(innermost(function), types.WrapperDescriptorType):
        try:
            return _inspected(function)
        except (TypeError, ValueError):
            pass
    raise InvalidParametersError(
        f"{name} ({type(function).__name__}) does not say what it takes.",
        hint="Wrap it in a def with named and typed parameters.",
    )


def _inspected(function: Callable[..., Any]) -> inspect.Signature:
    if sys.version_info >= (3, 14):  # pragma: no cover - annotations are evaluated on access there
        import annotationlib

        return inspect.signature(function, annotation_format=annotationlib.Format.FORWARDREF)
    return inspect.signature(function)


def _says_nothing(parameters: tuple[inspect.Parameter, ...]) -> bool:
    kinds = tuple(each.kind for each in parameters if each.annotation is each.empty)
    return len(parameters) == 2 and kinds == _VARIADIC


def _tool_parameters(
    parameter: inspect.Parameter, scope: _Scope, name: str
) -> tuple[ToolParameter, ...]:
    annotation = scope.resolve(parameter, name)
    if parameter.kind is _Kind.VAR_KEYWORD and typing.get_origin(annotation) is typing.Unpack:
        return _unpacked(typing.get_args(annotation)[0])
    injection = injection_of(annotation)
    if injection is not None:
        return (Injected(parameter, injection),)
    return (Argument(parameter, annotation),)


def _unpacked(keys: Any) -> tuple[Argument, ...]:
    """Take ``**options: Unpack[SomeTypedDict]`` for the named parameters that it stands for."""
    return tuple(
        Argument(
            inspect.Parameter(
                key,
                _Kind.KEYWORD_ONLY,
                default=_Kind.empty if key in keys.__required_keys__ else OMITTED,
            ),
            hint,
        )
        for key, hint in typing.get_type_hints(keys).items()
    )


@dataclass(frozen=True, slots=True)
class _Scope:
    """Where the names in a function's annotations have their meaning."""

    globals: dict[str, Any]
    locals: dict[str, Any]

    @classmethod
    def of(cls, function: Callable[..., Any]) -> _Scope:
        target = innermost(function)
        module = vars(sys.modules.get(getattr(target, "__module__", None) or "", typing))
        known: dict[str, Any] = {
            parameter.__name__: parameter
            for parameter in getattr(target, "__type_params__", ())
            if isinstance(parameter, TypeVar)
        }
        code, cells = getattr(target, "__code__", None), getattr(target, "__closure__", None)
        for name, cell in zip(code.co_freevars if code else (), cells or (), strict=True):
            try:
                known[name] = cell.cell_contents
            except ValueError:  # named in the closure but not assigned yet
                continue
        return cls(getattr(target, "__globals__", module), known)

    def resolve(self, parameter: inspect.Parameter, name: str) -> Any:
        """Evaluate one annotation, so that an error is about one parameter."""
        if parameter.annotation is parameter.empty:
            return Any

        def probe() -> None:
            """Carry the annotation: this is what `get_type_hints` takes."""

        probe.__annotations__ = {"it": parameter.annotation}
        try:
            hints = typing.get_type_hints(probe, self.globals, self.locals, include_extras=True)
        except NameError as error:
            raise UnresolvedAnnotationError(
                f"{name}: the annotation {parameter.annotation!r} of the parameter "
                f"{parameter.name!r} cannot be resolved: {error}.",
                hint="Define or import it in the notebook before the function; "
                "a class inside another function cannot be found by its name.",
            ) from None
        except Exception as error:  # noqa: BLE001 - whatever an expression raises
            raise InvalidParametersError(
                f"{name}: the annotation {parameter.annotation!r} of the parameter "
                f"{parameter.name!r} is no type: {type(error).__name__}: {error}.",
                hint='Write a type; words about the parameter go into Annotated[type, "words"].',
            ) from None
        return hints["it"]
