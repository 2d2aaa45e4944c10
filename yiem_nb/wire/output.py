"""The schema of an answer, as providers take it (pure)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["closed", "output_in_words"]


def output_in_words(schema: Mapping[str, Any]) -> str:
    """Say in the prompt what the answer must be."""
    text = json.dumps(schema, ensure_ascii=False)
    return f"Answer with one JSON object and nothing else. It must fit this JSON schema:\n{text}"


def closed(schema: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return `schema` with nothing optional and nothing beside it, and whether that could be done.

    That is what OpenAI and Anthropic call strict. An object whose names are not known beforehand
    cannot be written so; then the schema is as it was.
    """
    try:
        return _closed(schema), True
    except _OpenError:
        return dict(schema), False


class _OpenError(Exception):
    """An object may have names nobody knows."""


def _closed(schema: Mapping[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, value in schema.items():
        if name in ("properties", "$defs"):
            out[name] = {key: _closed(inner) for key, inner in value.items()}
        elif name in ("items", "additionalProperties") and isinstance(value, Mapping):
            out[name] = _closed(value)
        elif name in ("anyOf", "oneOf", "allOf", "prefixItems"):
            out[name] = [_closed(inner) for inner in value]
        elif name not in ("default", "title"):
            out[name] = value
    if schema.get("type") == "object":
        if "properties" not in schema or schema.get("additionalProperties"):
            raise _OpenError
        out |= {"required": list(schema["properties"]), "additionalProperties": False}
    return out
