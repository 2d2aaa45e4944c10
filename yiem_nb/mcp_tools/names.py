"""Names a model can call the tools of servers by (pure; SPEC-8.2)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from yiem_nb.tools.base import MAX_NAME_LENGTH

__all__ = ["tool_name", "tool_names"]

_STRANGE = re.compile(r"[^a-zA-Z0-9_]")
_DIGITS = 8


def tool_name(server: str, tool: str) -> str:
    """Return ``mcp__server__tool`` within the pattern and the length of `AgentTool` (SPEC-8.2).

    A name that had to be changed or cut to fit may meet another's; `tool_names` tells them apart.
    """
    plain = _STRANGE.sub("_", f"mcp__{server}__{tool}")
    return plain if len(plain) <= MAX_NAME_LENGTH else _marked(plain, server, tool)


def tool_names(tools: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Name every ``(server, tool)`` once, no two alike, whatever order they come in.

    A tool listed twice is one tool. Where several would share a name, each of them ends in a hash
    of its own, so that none takes over a name that a decision was kept for.
    """
    known = sorted(set(tools))
    wanted = {key: tool_name(*key) for key in known}
    shared: dict[str, int] = {}
    for name in wanted.values():
        shared[name] = shared.get(name, 0) + 1
    names: dict[tuple[str, str], str] = {}
    taken = {name for name, count in shared.items() if count == 1}
    for key, name in wanted.items():
        own, turn = name, 0
        while shared[name] > 1 and (turn == 0 or own in taken):
            own = _marked(name, *key, turn=turn)
            turn += 1
        taken.add(own)
        names[key] = own
    return names


def _marked(plain: str, server: str, tool: str, turn: int = 0) -> str:
    whole = f"{len(server)}:{server}{tool}{turn or ''}".encode("utf-8", "surrogatepass")
    mark = hashlib.sha256(whole).hexdigest()[:_DIGITS]
    return f"{plain[: MAX_NAME_LENGTH - _DIGITS - 1]}_{mark}"
