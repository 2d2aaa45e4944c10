"""Text within its limits."""

from __future__ import annotations

from typing import Any

from yiem_nb.errors import redact

__all__ = ["MAX_CHARACTERS", "clipped", "few", "redacted"]

#: How much text of one result the model reads, about five thousand tokens.
MAX_CHARACTERS = 20_000
_MAX_FEW = 40


def clipped(text: str, limit: int = MAX_CHARACTERS, where: str = "") -> str:
    """Keep the head and the tail of a text that is too long, and say how much is missing.

    `where` says where the whole is. Lone surrogates, which no UTF-8 can carry, are replaced.
    """
    if len(text) > limit:
        missing = len(text) - limit
        note = f"\n… {missing:,} characters left out{where} …\n"
        room = max(limit - len(note), 0)
        tail = room // 4
        text = f"{text[: room - tail]}{note}{text[len(text) - tail :]}"
    return text.encode(errors="replace").decode()


def few(text: str) -> str:
    """Return a text that fits into a line, else how long it is."""
    line = " ".join(text[: 2 * _MAX_FEW].split())
    fits = len(text) <= 2 * _MAX_FEW and len(line) <= _MAX_FEW
    return line.encode(errors="replace").decode() if fits else f"{len(text):,} characters"


def redacted(value: Any, depth: int = 5) -> Any:
    """Return text, or nested data, with every known secret replaced."""
    if isinstance(value, str):
        return redact(value)
    if depth and type(value) is dict:
        return {key: redacted(each, depth - 1) for key, each in value.items()}
    if depth and type(value) is list:
        return [redacted(each, depth - 1) for each in value]
    return value
