"""Pydantic's findings → lines that a model can act on."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

__all__ = ["complaint"]

_MAX_LINES = 10
_MAX_RECEIVED = 80
_URL = re.compile(r"\s*For further information visit \S+")


def complaint(
    name: str, error: ValidationError, sent: Mapping[str, Any], collector: str | None
) -> str:
    """Say which arguments do not fit, one line each.

    Parameters
    ----------
    name
        The tool's.
    error
        What pydantic found.
    sent
        What was validated.
    collector
        The argument that gathers the others for ``**kwargs``; it has no name for the model.
    """
    found = error.errors(include_url=False, include_context=False)
    missing = [str(each["loc"][0]) for each in found if _is_missing(each)]
    said = f"Missing required arguments: {', '.join(missing)}"
    if len(missing) == len(found):
        return said
    lines = [_line(each, sent, collector) for each in found if not _is_missing(each)]
    lines = [f"- {line}" for line in dict.fromkeys(lines)]
    if missing:
        lines.insert(0, f"- {said}")
    if len(lines) > _MAX_LINES:
        lines[_MAX_LINES:] = [f"… and {len(lines) - _MAX_LINES} more"]
    return "\n".join([f"The arguments of {name} do not fit:", *lines])


def _is_missing(error: ErrorDetails) -> bool:
    return error["type"] == "missing" and len(error["loc"]) == 1


def _line(error: ErrorDetails, sent: Mapping[str, Any], collector: str | None) -> str:
    path = _path(error, sent)
    if path[:1] == [collector]:
        del path[0]
    where = ".".join(path)
    if error["type"] == "extra_forbidden":
        return f"{where}: there is no such argument"
    message = _URL.sub("", error["msg"])
    if error["type"] == "missing":
        return f"{where}: {message}"
    return f"{where}: {message}; received {_received(error['input'])}"


def _path(error: ErrorDetails, sent: Any) -> list[str]:
    """Return the steps that lead to the value; pydantic adds the names of union members to them."""
    path: list[str] = []
    for step in error["loc"]:
        if _has(sent, step):
            sent = sent[step]
        elif error["type"] != "missing" or step != error["loc"][-1]:
            continue
        path.append(str(step))
    return path


def _has(value: Any, step: int | str) -> bool:
    if isinstance(value, Mapping):
        return step in value
    return isinstance(value, list) and isinstance(step, int) and step < len(value)


def _received(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= _MAX_RECEIVED else f"{text[:_MAX_RECEIVED]}…"
