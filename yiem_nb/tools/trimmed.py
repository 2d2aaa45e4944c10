"""Nested data → JSON text of a bounded size; cycles and endless things included."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from yiem_nb.tools.reprs import bounded_repr, guarded

__all__ = ["as_json", "is_data"]

#: More items than this a model could not read anyway: its text would be above every cap.
MAX_ITEMS = 10_000
MAX_DEPTH = 30
MAX_STRING = 20_000
_MAX_INTEGER_BITS = 10_000

_SCALARS = (str, int, float, bool, type(None))


def is_data(value: Any) -> bool:
    """Whether JSON says best what this is: plain values, and objects that are their fields."""
    return isinstance(
        value, (*_SCALARS, Mapping, list, tuple, AbstractSet, BaseModel)
    ) or _is_dataclass(value)


def _is_dataclass(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def as_json(value: Any) -> str:
    """Return `value` as JSON, each part that JSON does not know by its `repr`.

    What is nothing but text then, such as a date, is that text.
    """
    copied = _Trimmer().copy(value)
    return (
        copied
        if isinstance(copied, str)
        else json.dumps(copied, ensure_ascii=False, separators=(",", ":"))
    )


class _Trimmer:
    """Copies data as long as there is room for items; what is left out is counted in its place."""

    def __init__(self) -> None:
        self._room = MAX_ITEMS
        self._open: set[int] = set()

    def copy(self, value: Any) -> Any:
        if isinstance(value, _SCALARS):
            return _scalar(value)
        if id(value) in self._open:  # it contains itself
            return bounded_repr(value)
        if len(self._open) >= MAX_DEPTH:
            return "…"
        self._open.add(id(value))
        try:
            return self._nested(value)
        finally:
            self._open.discard(id(value))

    def _nested(self, value: Any) -> Any:
        if isinstance(value, BaseModel):
            return self.copy(guarded(lambda: _dumped(value), lambda _why: bounded_repr(value)))
        if _is_dataclass(value):
            fields = dataclasses.fields(value)
            return self._mapping({each.name: getattr(value, each.name, None) for each in fields})
        if isinstance(value, Mapping):
            return self._mapping(value)
        if isinstance(value, tuple) and (names := getattr(value, "_fields", None)):
            return self._mapping(dict(zip(names, value, strict=False)))
        if isinstance(value, list | tuple | AbstractSet):
            return self._items(value, len(value))
        return _leaf(value)

    def _mapping(self, value: Mapping[Any, Any]) -> dict[str, Any]:
        taken = self._take(value.items())
        copied = {str(_key(key)): self.copy(each) for key, each in taken}
        if len(taken) < len(value):
            copied["…"] = f"{len(value) - len(taken):,} more"
        return copied

    def _items(self, value: Iterable[Any], length: int) -> list[Any]:
        taken = self._take(value)
        copied = [self.copy(each) for each in taken]
        if len(taken) < length:
            copied.append(f"… {length - len(taken):,} more")
        return copied

    def _take(self, items: Iterable[Any]) -> list[Any]:
        taken = list(islice(items, self._room))
        self._room -= len(taken)
        return taken


def _scalar(value: Any) -> Any:
    if isinstance(value, str):
        return value[:MAX_STRING] + "…" if len(value) > MAX_STRING else str.__str__(value)
    if isinstance(value, int) and value.bit_length() > _MAX_INTEGER_BITS:
        return f"<int of {value.bit_length():,} bits>"
    return value


def _key(key: Any) -> Any:
    return _scalar(key) if isinstance(key, _SCALARS) else _leaf(key)


def _dumped(value: BaseModel) -> Any:
    return value.model_dump(mode="json", fallback=bounded_repr, warnings=False)


def _leaf(value: Any) -> Any:
    """Return what JSON can hold of a date, a path, a number of numpy's …, else the repr."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic):
        value = value.item()
    if isinstance(value, Iterator | bytes | bytearray | memoryview):
        return bounded_repr(value)
    return guarded(
        lambda: to_jsonable_python(value, fallback=bounded_repr, inf_nan_mode="constants"),
        lambda _why: bounded_repr(value),
    )
