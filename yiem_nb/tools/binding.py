"""A model's arguments → what the function is called with."""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Mapping, MutableMapping, MutableSequence, MutableSet
from dataclasses import dataclass, is_dataclass
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from yiem_nb.errors import InvalidParametersError
from yiem_nb.tools.complaints import complaint
from yiem_nb.tools.context import ToolContext
from yiem_nb.tools.schema import Asked, Shape
from yiem_nb.tools.signature import OMITTED, Injected, ToolParameter

__all__ = ["BoundCall", "bind"]

_Kind = inspect.Parameter
_MUTABLE = (MutableSequence, MutableMapping, MutableSet, BaseModel)


@dataclass(frozen=True, slots=True)
class BoundCall:
    """What a function is called with."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def bind(
    shape: Shape, arguments: object, context: ToolContext, *, by_position: bool = False
) -> BoundCall:
    """Check and convert the model's arguments; what may go by name does, unless told otherwise.

    Raises
    ------
    InvalidParametersError
        With each argument that does not fit, so that the model can mend it.
    """
    if not isinstance(arguments, Mapping):
        kind = type(arguments).__name__
        raise InvalidParametersError(
            f"The arguments of {shape.name} must be an object, not {kind}."
        )
    values = _validated(shape, _gathered(shape, arguments), context)
    variadic = shape.of_kind(_Kind.VAR_POSITIONAL)
    rest = getattr(values, variadic.field) if variadic is not None else []
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for item in shape.parameters:
        parameter = item.parameter
        value = _value(shape, item, values, context)
        if parameter.kind is _Kind.VAR_POSITIONAL:
            args.extend(rest)
        elif parameter.kind is _Kind.VAR_KEYWORD:
            kwargs |= value
        elif parameter.kind is _Kind.POSITIONAL_ONLY or (
            (rest or by_position) and parameter.kind is _Kind.POSITIONAL_OR_KEYWORD
        ):
            args.append(parameter.default if value is OMITTED else value)
        elif value is not OMITTED:
            kwargs[parameter.name] = value
    return BoundCall(tuple(args), kwargs)


def _value(shape: Shape, item: ToolParameter, values: BaseModel, context: ToolContext) -> Any:
    """Return what a parameter receives; `OMITTED` leaves it to the function's own default."""
    if isinstance(item, Injected):
        return getattr(context, item.source) if item.source else context
    asked = shape.asked.get(item.parameter.name)
    if asked is None:  # no JSON can carry it
        return OMITTED
    default = item.parameter.default
    if (
        asked.field in values.model_fields_set
        or default is _Kind.empty
        or isinstance(default, FieldInfo)
    ):
        return getattr(values, asked.field)
    return copy.deepcopy(default) if _is_mutable(default) else OMITTED


def _is_mutable(default: Any) -> bool:
    """Whether a call could leave its traces in the default, for the next call to find."""
    return isinstance(default, _MUTABLE) or is_dataclass(default)


# --- **kwargs ------------------------------------------------------------------------------


def _gathered(shape: Shape, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Put what only ``**kwargs`` can take under its name, where the model has a field for it."""
    collector = shape.of_kind(_Kind.VAR_KEYWORD)
    if collector is None:
        return dict(arguments)
    named = {each.alias for each in shape.asked.values() if each is not collector}
    others = {key: value for key, value in arguments.items() if key not in named}
    for item in shape.parameters:
        own = item.parameter
        if own.name in others and own.kind in (_Kind.POSITIONAL_OR_KEYWORD, _Kind.KEYWORD_ONLY):
            raise InvalidParametersError(
                f"The arguments of {shape.name} do not fit:\n- {own.name}: it cannot be set"
            )
    return {key: arguments[key] for key in arguments if key in named} | {collector.alias: others}


# --- Checking, and mending two slips that models make --------------------------------------


def _validated(shape: Shape, arguments: dict[str, Any], context: ToolContext) -> BaseModel:
    seen = {"namespace": context.namespace}
    try:
        try:
            return shape.model.model_validate(arguments, context=seen)
        except ValidationError as error:
            mended = _mended(shape, arguments, error)
            if mended is None:
                raise
            arguments = mended
            return shape.model.model_validate(arguments, context=seen)
    except ValidationError as error:
        collector = shape.of_kind(_Kind.VAR_KEYWORD)
        alias = collector.alias if collector is not None else None
        raise InvalidParametersError(complaint(shape.name, error, arguments, alias)) from None
    except Exception as error:
        raise InvalidParametersError(
            f"The arguments of {shape.name} cannot be read: {type(error).__name__}: {error}"
        ) from error


def _mended(
    shape: Shape, arguments: dict[str, Any], error: ValidationError
) -> dict[str, Any] | None:
    """Return what was probably meant, for arguments that do not fit as they are."""
    if len(shape.asked) == 1:
        (only,) = shape.asked.values()
        if arguments and only.alias not in arguments and _allows(shape, only, "object"):
            return {only.alias: arguments}  # the object's keys without the object
    wrong = {each["loc"][0] for each in error.errors(include_url=False) if each["loc"]}
    parsed = {
        asked.alias: value
        for asked in shape.asked.values()
        if asked.alias in wrong and not _allows(shape, asked, "string")
        if (value := _parsed(arguments.get(asked.alias))) is not None
    }
    return arguments | parsed if parsed else None


def _parsed(value: Any) -> list[Any] | dict[str, Any] | None:
    """Read a list or an object that was sent as JSON text."""
    if not isinstance(value, str):
        return None
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, list | dict) else None


def _allows(shape: Shape, asked: Asked, kind: str) -> bool:
    """Whether the argument's schema has room for a JSON value of this kind."""
    return _is_of(shape.schema["properties"].get(asked.alias, {}), shape.schema, kind)


def _is_of(schema: dict[str, Any], root: dict[str, Any], kind: str) -> bool:
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    choices = (*schema.get("anyOf", ()), *schema.get("oneOf", ()))
    return schema.get("type") == kind or any(_is_of(each, root, kind) for each in choices)
