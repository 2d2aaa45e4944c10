"""Parameters → a pydantic model and its JSON Schema.

All knowledge of types is pydantic's, through its public API: one model per function whose fields have
neutral names (``p0``, ``p1`` …), so that no parameter's name can collide with `BaseModel`'s own.
"""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Any, Optional

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from yiem_nb.errors import InvalidParametersError
from yiem_nb.tools.signature import Argument, ToolParameter, UnresolvedAnnotationError
from yiem_nb.tools.typed_dicts import rebuilt

__all__ = ["Asked", "Shape", "shape_of"]

_Kind = inspect.Parameter
_CONFIG = ConfigDict(extra="forbid")
#: A default longer than this, as JSON, is not worth its tokens.
_MAX_DEFAULT = 1_000


@dataclass(frozen=True, slots=True)
class Asked:
    """An argument, its field in the model, and what the language model calls it."""

    argument: Argument
    field: str
    alias: str

    @property
    def kind(self) -> Any:
        """Which of the five kinds of parameters it is."""
        return self.argument.parameter.kind


@dataclass(frozen=True, slots=True)
class Shape:
    """What a function takes, and what of it a language model is asked for.

    Parameters
    ----------
    name
        The tool's, for messages.
    parameters
        The function's own, in order.
    asked
        Those that the model fills, by the function's own names for them.
    model
        Reads them.
    schema
        Describes them.
    """

    name: str
    parameters: tuple[ToolParameter, ...]
    asked: dict[str, Asked]
    model: type[BaseModel]
    schema: dict[str, Any]

    def of_kind(self, kind: Any) -> Asked | None:
        """Return the argument of this kind, of which there is at most one."""
        return next((each for each in self.asked.values() if each.kind is kind), None)


def shape_of(
    name: str, parameters: tuple[ToolParameter, ...], describe: Callable[[Argument], str]
) -> Shape:
    """Find what a language model can be asked for.

    A parameter that no JSON can carry is left to its default; without one it is refused.

    Raises
    ------
    InvalidParametersError
        Names the parameter, its type and the remedy.
    """
    arguments = [each for each in parameters if isinstance(each, Argument)]
    try:
        return _shape(name, parameters, arguments, describe)
    except Exception:  # noqa: BLE001 - a type's own hooks may raise anything; which one was it?
        fitting = [fit for each in arguments if (fit := _fitting(each, name)) is not None]
        return _shape(name, parameters, fitting, describe)


def _shape(
    name: str,
    parameters: tuple[ToolParameter, ...],
    arguments: Iterable[Argument],
    describe: Callable[[Argument], str],
) -> Shape:
    asked: dict[str, Asked] = {}
    fields: dict[str, Any] = {}
    for position, argument in enumerate(arguments):
        field = f"p{position}"
        fields[field] = _field(argument, describe(argument))
        asked[argument.parameter.name] = Asked(argument, field, _alias(argument))
    model = create_model("Arguments", __config__=_CONFIG, **fields)
    schema = model.model_json_schema(schema_generator=_QuietSchema)
    shape = Shape(name, parameters, asked, model, _cleaned(schema))
    collector = shape.of_kind(_Kind.VAR_KEYWORD)
    if collector is not None:
        others = shape.schema["properties"].pop(collector.alias)
        shape.schema["additionalProperties"] = others.get("additionalProperties", True)
    return shape


# --- Fields --------------------------------------------------------------------------------


def _field(argument: Argument, description: str) -> tuple[Any, Any]:
    """Make the model's field: its annotation, and name, default and description around it."""
    parameter, annotation = argument.parameter, argument.annotation
    options: dict[str, Any] = {}
    if description:
        options["description"] = description
    if _users_alias(argument) is None:
        options["alias"] = parameter.name
    match parameter.kind, parameter.default:
        case _Kind.VAR_POSITIONAL, _:
            return list[annotation], Field(default_factory=list, **options)  # type: ignore[valid-type]
        case _Kind.VAR_KEYWORD, _:
            return dict[str, annotation], Field(default_factory=dict, **options)  # type: ignore[valid-type]
        case _, FieldInfo() as info:
            return Annotated[annotation, info], Field(**options)
        case _, None if annotation is not Any:
            return _nullable(annotation), Field(default=None, **options)
        case _, default if default is _Kind.empty:
            return annotation, Field(**options)
        case _, default if default is ... or _is_endless(default):
            # A factory hides it: the first is pydantic's "required", the others are no JSON.
            return annotation, Field(default_factory=lambda: default, **options)
        case _:
            return annotation, Field(default=parameter.default, **options)


def _is_endless(default: Any) -> bool:
    """Whether there is an infinity in it, or a NaN, or itself."""
    try:
        json.dumps(default, allow_nan=False, default=str)
    except ValueError:
        return True
    except Exception:  # noqa: BLE001 - keys that are no strings, a broken __str__: pydantic decides
        return False
    return False


def _alias(argument: Argument) -> str:
    return _users_alias(argument) or argument.parameter.name


def _users_alias(argument: Argument) -> str | None:
    """Return the name that a ``Field(alias=…)`` of the user's gives the argument."""
    metadata = getattr(argument.annotation, "__metadata__", ())
    for each in (argument.parameter.default, *metadata):
        if isinstance(each, FieldInfo) and isinstance(each.validation_alias, str):
            return each.validation_alias
    return None


def _nullable(annotation: Any) -> Any:
    """Accept the ``null`` that ``x: int = None`` advertises."""
    if typing.get_origin(annotation) is Annotated:
        return Annotated[(Optional[annotation.__origin__], *annotation.__metadata__)]  # noqa: UP045 - as below
    return Optional[annotation]  # noqa: UP045 - `|` is not defined for everything pydantic takes


def _fitting(argument: Argument, name: str) -> Argument | None:
    """Return the argument as pydantic can read it; ``None`` leaves it to its default."""
    try:
        TypeAdapter(argument.annotation).json_schema(schema_generator=_QuietSchema)
        return argument
    except Exception as error:  # noqa: BLE001 - whatever a type's own hooks raise, this is the parameter
        problem = error
    if _is_about_typed_dicts(problem):
        again = _rebuilt(argument, name)
        if again.annotation != argument.annotation:
            return _fitting(again, name)
    if _is_unresolved(problem):
        raise _unresolved(argument, name, problem)
    if _has_default(argument.parameter):
        return None
    shown = inspect.formatannotation(argument.annotation).replace("__main__.", "")
    remedy = f"Annotate it as Var[{shown}] to be given a notebook variable by its name"
    if _is_about_typed_dicts(problem):
        remedy = "Take TypedDict from typing_extensions instead of typing"
    raise InvalidParametersError(
        f"{name}: a model cannot pass a {shown} for the parameter {argument.parameter.name!r}.",
        hint=f"{remedy}, or take plain values.",
    )


def _rebuilt(argument: Argument, name: str) -> Argument:
    try:
        return replace(argument, annotation=rebuilt(argument.annotation))
    except NameError as error:
        raise _unresolved(argument, name, error) from None


def _is_unresolved(error: Exception) -> bool:
    """Whether a name inside the type has no meaning, at least not yet."""
    undefined = isinstance(error, PydanticUserError) and error.code == "class-not-fully-defined"
    return undefined or isinstance(error, NameError)


def _unresolved(argument: Argument, name: str, error: Exception) -> UnresolvedAnnotationError:
    reason = str(error).split("\n", maxsplit=1)[0]
    return UnresolvedAnnotationError(
        f"{name}: the type {inspect.formatannotation(argument.annotation)} of the parameter "
        f"{argument.parameter.name!r} is not complete: {reason}",
        hint="Define what its fields name, in the notebook.",
    )


def _is_about_typed_dicts(error: Exception) -> bool:
    """Whether this is Python 3.11, where pydantic cannot read `typing.TypedDict`."""
    return isinstance(error, PydanticUserError) and error.code == "typed-dict-version"


def _has_default(parameter: inspect.Parameter) -> bool:
    default = parameter.default
    return default is not parameter.empty and not isinstance(default, FieldInfo)


# --- The schema ----------------------------------------------------------------------------


class _QuietSchema(GenerateJsonSchema):
    """Leaves out defaults that are no JSON without a warning."""

    ignored_warning_kinds: set[Any] = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - pydantic's


_NAMED_SCHEMAS = ("properties", "$defs", "patternProperties")
_VALUES = ("const", "enum", "examples", "default")


def _cleaned(schema: Any) -> Any:
    """Drop what costs tokens and says nothing: made-up titles, defaults that are no JSON."""
    if isinstance(schema, list):
        return [_cleaned(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: {name: _cleaned(each) for name, each in value.items()}
        if key in _NAMED_SCHEMAS
        else (value if key in _VALUES else _cleaned(value))
        for key, value in schema.items()
        if key != "title" and not (key == "default" and not _is_short_json(value))
    }


def _is_short_json(value: Any) -> bool:
    try:
        return len(json.dumps(value, allow_nan=False)) <= _MAX_DEFAULT
    except (TypeError, ValueError):  # infinity, for one
        return False
