"""Which call does a fragment belong to? By id, else by index, else the latest (pure).

Each of the three lies somewhere: Ollama numbers every call 0, Gemini's compatible endpoint numbers
none, llama-cpp-python repeats id and name in every fragment, some gateways give two calls one id, and
a name may come after its first arguments.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from yiem_nb.wire.json_args import parse_arguments

__all__ = ["Call", "Calls"]

_MAX_PROBES = 8


@dataclass(slots=True)
class Call:
    """One call as far as it has arrived."""

    number: int
    key: Any
    #: What the message says; `wire_id` is what the server said, which may be nothing, or not unique.
    id: str
    wire_id: str
    name: str
    parts: list[str] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)
    probes: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether the arguments so far are a JSON object, which nothing can continue.

        Asked only when a fragment looks like a beginning, and not for ever: arguments may hold
        ``}{`` a million times.
        """
        if not self.parts or not self.parts[-1].rstrip().endswith("}"):
            return False
        self.probes += 1
        return self.probes <= _MAX_PROBES and parse_arguments("".join(self.parts)) is not None


class Calls:
    """The calls of one answer, found by what their fragments carry."""

    def __init__(self) -> None:
        self._calls: list[Call] = []
        self._by_id: dict[str, Call] = {}
        self._by_key: dict[Any, Call] = {}
        self._ids: set[str] = set()

    def __iter__(self) -> Iterator[Call]:
        return iter(self._calls)

    def find(self, key: Any, id: str | None, name: str | None, arguments: str) -> Call | None:
        """Return the call of a fragment, begun now where there is none.

        ``None`` means that the fragment is a whole call which is known already: some servers send
        it in pieces and then once more.
        """
        call = self._known(key, id, name)
        if call is not None and name and call.name:
            if _is_another(call, name, arguments):
                call = None
            elif id and _begins(arguments) and call.is_whole:
                if "".join(call.parts) == arguments:
                    return None
                call = None
        if call is None:
            return self._begin(key, id or "", name or "")
        if id and not call.wire_id:
            call.wire_id, call.id = id, self._unique(id)
            self._by_id[id] = call
        call.name = call.name or name or ""
        return call

    def at(self, key: Any) -> str:
        """Return the arguments so far of the call at `key`."""
        call = self._by_key.get(key)
        return "" if call is None else "".join(call.parts)

    def _known(self, key: Any, id: str | None, name: str | None) -> Call | None:
        at_key = self._by_key.get(key) if key is not None else None
        latest = self._calls[-1] if self._calls else None
        if not id:
            return at_key if key is not None else latest
        known = self._by_id.get(id)
        if known is None:
            # A late id belongs to a call that has none yet, unless a name says it is a new call.
            late = at_key if key is not None else latest
            named_anew = late is not None and bool(name and late.name)
            return late if late is not None and not late.wire_id and not named_anew else None
        if key is None or known.key is None or known.key == key:
            return known
        return at_key if at_key is not None and at_key.wire_id == id else None

    def _begin(self, key: Any, id: str, name: str) -> Call:
        unique = self._unique(id or f"call_{uuid.uuid4().hex[:12]}")
        call = Call(len(self._calls), key, unique, id, name)
        self._calls.append(call)
        if id:
            self._by_id[id] = call
        if key is not None:
            self._by_key[key] = call
        return call

    def _unique(self, id: str) -> str:
        unique, number = id, 1
        while unique in self._ids:
            number += 1
            unique = f"{id}_{number}"
        self._ids.add(unique)
        return unique


def _is_another(call: Call, name: str, arguments: str) -> bool:
    """Whether a fragment that names its call again begins another one."""
    if name != call.name:
        return True
    if call.wire_id:
        return False
    if not arguments:
        return call.key is None and not call.parts
    return _begins(arguments) and call.is_whole


def _begins(arguments: str) -> bool:
    return arguments.lstrip().startswith("{")
