"""`typing.TypedDict` on Python 3.11, whose parts pydantic cannot see.

There pydantic asks for `typing_extensions.TypedDict`; this makes one of the other. From Python 3.12 on
it is not used.
"""

from __future__ import annotations

import types
import typing
from typing import Annotated, Any, Union

import typing_extensions

__all__ = ["rebuilt"]

_MAY_BE_MISSING = (typing.NotRequired, typing_extensions.NotRequired)
_QUALIFIERS = (
    *_MAY_BE_MISSING,
    typing.Required,
    typing_extensions.Required,
    typing_extensions.ReadOnly,
)


def rebuilt(annotation: Any, inside: tuple[Any, ...] = ()) -> Any:
    """Return `annotation` with each TypedDict in it made anew.

    One that contains itself stays as it is, and is refused later.
    """
    if typing.is_typeddict(annotation):
        return annotation if annotation in inside else _anew(annotation, (*inside, annotation))
    parts = typing.get_args(annotation)
    if not parts:
        return annotation
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        return Annotated[(rebuilt(annotation.__origin__, inside), *annotation.__metadata__)]
    new = tuple(rebuilt(part, inside) for part in parts)
    if new == parts:  # Literal and Callable among them, whose parts are no types
        return annotation
    if origin is types.UnionType:
        return Union[new]  # noqa: UP007 - of a tuple
    return origin[new]


def _anew(kind: Any, inside: tuple[Any, ...]) -> Any:
    keys = {
        key: _key(hint, key in kind.__required_keys__, inside)
        for key, hint in typing.get_type_hints(kind, include_extras=True).items()
    }
    new = typing_extensions.TypedDict(kind.__name__, keys)  # type: ignore[misc]
    new.__doc__ = kind.__doc__
    new.__module__ = kind.__module__
    return new


def _key(hint: Any, required: bool, inside: tuple[Any, ...]) -> Any:
    """Say of a key whether it may be missing, in the one way that is always understood."""
    while (origin := typing.get_origin(hint)) in _QUALIFIERS:
        required = (required or origin is typing.Required) and origin not in _MAY_BE_MISSING
        hint = typing.get_args(hint)[0]
    new = rebuilt(hint, inside)
    return new if required else typing_extensions.NotRequired[new]
