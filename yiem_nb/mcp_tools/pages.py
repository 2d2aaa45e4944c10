"""Lists that a server hands out page by page (SP-009)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

__all__ = ["MAX_PAGES", "all_pages"]

MAX_PAGES = 100


async def all_pages(
    ask: Callable[[dict[str, Any]], Awaitable[Mapping[str, Any]]], key: str
) -> list[Mapping[str, Any]]:
    """Return the objects under `key` of every page.

    `ask` sends the parameters of a list request and returns its raw result. The list ends at a
    cursor that is empty or was seen before, at the latest after `MAX_PAGES` pages (SP-009).
    """
    found: list[Mapping[str, Any]] = []
    seen: set[str] = set()
    cursor: Any = None
    for _ in range(MAX_PAGES):
        page = await ask({"cursor": cursor} if cursor else {})
        entries = page.get(key)
        if isinstance(entries, list):
            found += [entry for entry in entries if isinstance(entry, Mapping)]
        cursor = page.get("nextCursor")
        if not isinstance(cursor, str) or not cursor or cursor in seen:
            break
        seen.add(cursor)
    return found
