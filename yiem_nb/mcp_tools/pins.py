"""What a tool's definition was when it was approved, and what changed since (pure)."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Mapping
from typing import Any

__all__ = ["difference", "fingerprint", "label_of"]

_PINNED = ("name", "title", "description", "inputSchema", "annotations")


def fingerprint(definition: Mapping[str, Any]) -> str:
    """Return the hash of all that a model or a person judges a tool by, 64 hexadecimal digits.

    `definition` is an entry of a ``tools/list`` response as it came (SP-009). The order of its
    keys does not count, nor do fields which nobody is shown.
    """
    text = json.dumps(_pinned(definition), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return what changed as a unified diff; empty where the fingerprints are equal."""
    lines = difflib.unified_diff(
        _lines(before), _lines(after), "approved", "offered now", lineterm=""
    )
    return "\n".join(lines)


def label_of(definition: Mapping[str, Any]) -> str:
    """Return what people read: title, else the annotations' title, else label, else name."""
    annotations = definition.get("annotations")
    inner = annotations.get("title") if isinstance(annotations, Mapping) else None
    for text in (definition.get("title"), inner, definition.get("label")):
        if isinstance(text, str) and text.strip():
            return text
    return str(definition.get("name", ""))


def _pinned(definition: Mapping[str, Any]) -> dict[str, Any]:
    pinned = {key: definition[key] for key in _PINNED if definition.get(key) is not None}
    return pinned | {"label": label_of(definition)}


def _lines(definition: Mapping[str, Any]) -> list[str]:
    # Escaped, so that signs nobody can see are seen here.
    return json.dumps(_pinned(definition), sort_keys=True, indent=2).splitlines()
