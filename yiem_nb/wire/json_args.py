"""The arguments of a tool call, read once they are whole (pure)."""

from __future__ import annotations

import json
from typing import Any, NoReturn

__all__ = ["loads", "parse_arguments"]


def loads(text: str) -> Any:
    """Parse JSON strictly: ``NaN`` and ``Infinity`` are no JSON, too deep is a `ValueError` too."""
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def parse_arguments(text: str) -> dict[str, Any] | None:
    """Parse the arguments of a call; ``None`` where they are no JSON object.

    Empty text is an empty object: a tool without parameters. JSON inside a JSON string is
    unpacked once. A parseable prefix is never salvaged, because half a call is another call.
    """
    if not text.strip():
        return {}
    try:
        value = loads(text)
        if isinstance(value, str):
            value = loads(value) if value.strip() else {}
    except ValueError:
        return None
    return {} if value is None else value if isinstance(value, dict) else None
