"""Between an entry and its line.

Writing is strict, because parsers disagree about what is JSON: a lone surrogate, NaN or two
hundred levels of nesting are written by one library and refused by the next, which would lose
the record on reading. Reading is lenient: what the fast parser refuses is tried with the
standard library's, and what has no known shape is kept as an `UnknownEntry`.
"""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from yiem_nb.errors import ErrorCode, SessionError
from yiem_nb.session.entries import (
    ENTRY_TYPES,
    ContextEditEntry,
    LeafEntry,
    SessionEntry,
    SessionHeader,
    SessionTreeEntry,
    UnknownEntry,
)

__all__ = ["dump_line", "entry_of", "load_json", "parse_line"]

#: Readers stop at 201 levels.
_MAX_DEPTH = 150
_MAX_INT = 2**63
#: Splitters other than ours take these for the end of a line.
_LINE_ENDS = {"\u2028": "\\u2028", "\u2029": "\\u2029", "\x85": "\\u0085"}
#: The fields in which null says something; everywhere else null is absence.
_NULL_FIELDS = {SessionEntry: {"parent_id"}, LeafEntry: {"target_id"}}
_NULL_FIELDS[ContextEditEntry] = {"replacement"}


def dump_line(entry: SessionEntry | SessionHeader) -> bytes:
    """Serialise an entry as one line, its end included.

    What JSON cannot hold is written as the nearest thing it can: NaN and infinities as null,
    integers beyond 64 bits as text, other objects, and whatever is nested more than 150 deep,
    as a bounded ``repr``. The entry then says where in ``_lossy``.
    """
    if isinstance(entry, UnknownEntry) and entry.line is not None:
        return entry.line + b"\n"
    plain = _Plain()
    value = plain.of(entry, "", 1)
    if plain.lossy:
        value["_lossy"] = [*value.get("_lossy", ()), *plain.lossy]
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character, escape in _LINE_ENDS.items():
        if character in text:
            text = text.replace(character, escape)
    return _utf8(text) + b"\n"


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        # Two halves of a pair become their character, a half alone becomes U+FFFD.
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


@dataclass(slots=True)
class _Plain:
    """Turns values into what JSON holds, and remembers where that lost something."""

    lossy: list[str] = field(default_factory=list)
    _open: set[int] = field(default_factory=set)

    def of(self, value: Any, path: str, depth: int) -> Any:
        if value is None or isinstance(value, str | bool):
            return value
        if isinstance(value, int):
            return int(value) if -_MAX_INT <= value < _MAX_INT else self._lost(path, _digits(value))
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else self._lost(path, None)
        nested = _items(value)
        if nested is None or depth > _MAX_DEPTH or id(value) in self._open:
            return self._lost(path, _short_repr(value))
        self._open.add(id(value))
        pairs = [(key, self.of(item, f"{path}/{key}", depth + 1)) for key, item in nested]
        self._open.discard(id(value))
        if isinstance(value, Mapping | BaseModel):
            return {key if isinstance(key, str) else str(key): item for key, item in pairs}
        return [item for _, item in pairs]

    def _lost(self, path: str, value: str | None) -> str | None:
        self.lossy.append(path)
        return value


def _items(value: Any) -> Iterator[tuple[Any, Any]] | None:
    """Give what is inside a container, or ``None`` where the value is none."""
    if isinstance(value, BaseModel):
        return _fields(value)
    if isinstance(value, Mapping):
        return iter(list(value.items()))
    if isinstance(value, list | tuple):
        return iter(list(enumerate(value)))
    return None


def _fields(model: BaseModel) -> Iterator[tuple[str, Any]]:
    """Give a model's fields by their names on disk, leaving out what is not set or says nothing."""
    kind = type(model)
    nulls = {
        name for base, names in _NULL_FIELDS.items() if issubclass(kind, base) for name in names
    }
    for name, info in kind.model_fields.items():
        value = getattr(model, name)
        if value is None and name not in nulls:
            continue
        if info.exclude_if is not None and info.exclude_if(value):
            continue
        yield info.serialization_alias or name, value
    yield from (model.model_extra or {}).items()


def _digits(value: int) -> str:
    # Beyond 4,300 digits Python refuses decimals; hexadecimal has no such limit.
    return str(value) if value.bit_length() < 10_000 else _short_repr(hex(value))


def _short_repr(value: Any) -> str:
    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = 1_000
    try:
        return short.repr(value)
    except Exception:  # noqa: BLE001 - a stranger's __repr__ may raise anything
        return f"<{type(value).__name__}>"


# --- Reading -------------------------------------------------------------------------------


def load_json(line: bytes) -> Any:
    """Parse one line, first with the fast parser, then with the lenient one.

    Raises
    ------
    ValueError
        It is no JSON.
    """
    try:
        return from_json(line, cache_strings="keys")
    except ValueError:
        try:
            return json.loads(line.decode())
        except RecursionError:
            raise ValueError("nested too deep") from None


def parse_line(line: bytes) -> SessionTreeEntry:
    """Read an entry from its line; any JSON object with a type is one.

    Raises
    ------
    SessionError
        The line is no JSON object with a ``type``.
    """
    line = line.rstrip(b"\r\n")
    try:
        value = load_json(line)
    except ValueError as error:
        raise SessionError(
            f"This line is no entry: {error}.", code=ErrorCode.SESSION_ENTRY
        ) from None
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise SessionError(
            "This line is no entry: it is no object with a type.", code=ErrorCode.SESSION_ENTRY
        )
    return entry_of(value, line)


def entry_of(value: dict[str, Any], line: bytes) -> SessionTreeEntry:
    """Make an entry of a parsed `line`; one in an unknown shape keeps its bytes."""
    kind = ENTRY_TYPES.get(value["type"])
    if kind is not None:
        for attempt in (value, _essentials(value)):
            try:
                return kind.model_validate(attempt)
            except ValidationError:
                continue
    return UnknownEntry.read(value, line)


def _essentials(value: dict[str, Any]) -> dict[str, Any]:
    """Keep of a message what was said: a hand-edited time or count must not hide the words."""
    message = value.get("message")
    if not isinstance(message, dict):
        return value
    names = ("role", "content", "toolCallId", "toolName", "isError")
    said = {name: message[name] for name in names if name in message}
    return value | {"message": {"timestamp": 0, **said}}
