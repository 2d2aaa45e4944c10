"""Token counts in every shape servers give them (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from yiem_nb.messages import Usage

__all__ = ["openai_usage"]


def openai_usage(value: Any) -> Usage | None:
    """Read OpenAI's counts, and those of servers that nearly follow it.

    Input excludes what was read from or written to a cache; reasoning is a part of output.
    """
    if not isinstance(value, Mapping):
        return None
    sent = _count(value, "prompt_tokens", "input_tokens", "inputTokens")
    output = _count(value, "completion_tokens", "output_tokens", "outputTokens")
    if sent is None and output is None:
        return None
    details = value.get("prompt_tokens_details") or value.get("input_tokens_details") or {}
    cached = (
        _count(details, "cached_tokens")
        or _count(value, "prompt_cache_hit_tokens", "cached_tokens", "cacheRead")
        or 0
    )
    written = _count(details, "cache_write_tokens", "cache_creation_tokens") or 0
    more = value.get("completion_tokens_details") or value.get("output_tokens_details") or {}
    total = _count(value, "total_tokens", "totalTokens")
    return Usage(
        max((sent or 0) - cached - written, 0),
        output or 0,
        cached,
        written,
        _count(more, "reasoning_tokens") or 0,
        total_tokens=total,
    )


def _count(value: Any, *names: str) -> int | None:
    """The first of `names` that is a count; NaN, negatives and text are none."""
    if not isinstance(value, Mapping):
        return None
    for name in names:
        number = value.get(name)
        if isinstance(number, int | float) and not isinstance(number, bool) and number >= 0:
            return int(number)
    return None
