"""What a browser says, parsed once (pure). Whatever does not fit exactly is no message."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from yiem_nb.widget.protocol import OPERATIONS, VERSION

__all__ = ["Hello", "Incoming", "Need", "Request", "parse"]

#: Longer texts are refused whole.
MAX_TEXT = 2_000_000
#: All images of a prompt, as Base64.
MAX_IMAGES = 40_000_000
_MAX_NAME = 200


@dataclass(frozen=True, slots=True)
class Hello:
    """A page is there and wants everything."""


@dataclass(frozen=True, slots=True)
class Need:
    """A page misses something of these turns; of all of them where none is named."""

    turns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """A person's wish. `problem` says what is wrong with it, if something is."""

    id: str
    op: str
    args: dict[str, Any] = field(default_factory=dict)
    problem: str = ""


Incoming: TypeAlias = Hello | Need | Request


def parse(content: object) -> Incoming | None:
    """Understand a message; ``None`` for one that nobody here has sent."""
    if not isinstance(content, dict):
        return None
    match content.get("kind"):
        case "hello":
            return Hello()
        case "need":
            turns = content.get("turns")
            if isinstance(turns, list) and all(isinstance(turn, str) for turn in turns):
                return Need(tuple(turns[:1000]))
        case "req":
            return _request(content)
    return None


def _request(content: dict[Any, Any]) -> Request | None:
    name, op, given = content.get("id"), content.get("op"), content.get("args")
    if not isinstance(name, str) or len(name) > _MAX_NAME or not isinstance(op, str):
        return None
    if content.get("v") != VERSION:
        problem = "This page belongs to another version of yiem_nb. Save, then reload the page."
        return Request(name, op[:_MAX_NAME], problem=problem)
    wanted = OPERATIONS.get(op)
    if wanted is None or not isinstance(given, dict):
        return Request(name, op[:_MAX_NAME], problem="The kernel does not know this request.")
    args: dict[str, Any] = {}
    for field_name, kind in wanted.items():
        value = given.get(field_name, kind())
        if not isinstance(value, kind):
            return Request(name, op, problem=f"{field_name} is not what {op} takes.")
        if isinstance(value, str) and len(value) > MAX_TEXT:
            return Request(name, op, problem="This text is too long: up to 2,000,000 characters.")
        args[field_name] = value
    if not _are_images(args.get("images", [])):
        return Request(name, op, problem="These are no pictures that can be sent.")
    return Request(name, op, args)


def _are_images(images: list[Any]) -> bool:
    size = 0
    for image in images:
        if not isinstance(image, dict) or set(image) != {"data", "mimeType"}:
            return False
        data, kind = image["data"], image["mimeType"]
        if not isinstance(data, str) or kind not in ("image/png", "image/jpeg", "image/webp"):
            return False
        size += len(data)
    return size <= MAX_IMAGES
