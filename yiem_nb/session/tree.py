"""The tree of a session: who follows whom, which end is current.

It holds one short row per entry and loads an entry when somebody looks at it, so that a file of a
hundred thousand entries opens in a second. Everything here is a loop, never a recursion: a
conversation is as deep as it is long.

Damage is joined, not dropped. An entry whose parent is missing follows the entry before it; a ring
of parents is opened at its earliest member; the second of two different entries with one id is
called ``id~2`` and takes the children that come after it. (pi loses history in the first case and
never returns in the second.)
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from sys import intern
from typing import NamedTuple

from yiem_nb.session.entries import (
    LabelEntry,
    LeafEntry,
    MessageEntry,
    SessionInfoEntry,
    SessionTreeEntry,
)

__all__ = ["TRANSPARENT", "Link", "Repairs", "SessionTree", "link_of"]

#: Types that add nothing a model would see.
TRANSPARENT = frozenset(
    {
        "leaf",
        "label",
        "session_info",
        "model_change",
        "thinking_level_change",
        "active_tools_change",
        "context_edit",
        "custom",
        "usage",
    }
)

_ROOT = -1


class Link(NamedTuple):
    """What the tree has to know of an entry."""

    type: str
    id: str
    parent_id: str | None = None
    target_id: str | None = None


@dataclass(slots=True)
class Repairs:
    """What had to be joined."""

    orphans: int = 0
    cycles: int = 0
    duplicates: int = 0


class SessionTree:
    """All entries of a session by their place in the file and in the tree.

    Parameters
    ----------
    load
        Gives the entry at a position of the file order.
    whole
        Puts back into an entry what is kept beside the file.
    """

    def __init__(
        self,
        load: Callable[[int], SessionTreeEntry],
        whole: Callable[[SessionTreeEntry], SessionTreeEntry] | None = None,
    ) -> None:
        self._load = load
        self._whole = whole
        self._ids: list[str] = []
        self._types: list[str] = []
        self._parents = array("q")
        self._positions: dict[str, int] = {}
        #: The newest bearer of an id that several entries bear, and how many bear it.
        self._newest: dict[str, int] = {}
        self._bearers: dict[str, int] = {}
        self._by_type: dict[str, list[int]] = {}
        self._children: dict[int, list[int]] | None = None
        self._leaf = _ROOT
        self.repairs = Repairs()

    @classmethod
    def of(cls, entries: Iterable[SessionTreeEntry]) -> SessionTree:
        """Build a tree of entries that are in memory; a repeated one counts once."""
        kept: list[SessionTreeEntry] = []
        seen: dict[str, list[SessionTreeEntry]] = {}
        for entry in entries:
            same = seen.setdefault(entry.id, [])
            if entry not in same:
                same.append(entry)
                kept.append(entry)
        tree = cls(kept.__getitem__)
        tree.extend(link_of(entry) for entry in kept)
        return tree

    # --- Growing -----------------------------------------------------------------------

    def extend(self, links: Iterable[Link]) -> None:
        """Add entries in file order; a parent may come later in the same batch."""
        loose: list[tuple[int, str]] = []
        positions = self._positions
        for link in links:
            parent = _ROOT
            if link.parent_id is not None:
                known = self._newest.get(link.parent_id) if self._newest else None
                found = known if known is not None else positions.get(link.parent_id)
                if found is None:
                    loose.append((len(self._ids), link.parent_id))
                else:
                    parent = found
            self._add(link, parent)
        if loose:
            self._join(loose)

    def _add(self, link: Link, parent: int) -> None:
        position = len(self._ids)
        name = link.id
        if name in self._positions:
            name = self._alias(link.id)
            self._newest[link.id] = position
            self.repairs.duplicates += 1
        kind = intern(link.type)
        self._ids.append(name)
        self._types.append(kind)
        self._parents.append(parent)
        self._positions[name] = position
        self._by_type.setdefault(kind, []).append(position)
        if self._children is not None:
            self._children.setdefault(parent, []).append(position)
        self._leaf = self._target(link, position) if kind == "leaf" else position

    def _alias(self, name: str) -> str:
        number = self._bearers.get(name, 1) + 1
        while f"{name}~{number}" in self._positions:
            number += 1
        self._bearers[name] = number
        return f"{name}~{number}"

    def _target(self, link: Link, position: int) -> int:
        """Say where the conversation goes on after this leaf entry."""
        if link.target_id is None:
            return _ROOT
        target = self._newest.get(link.target_id, self._positions.get(link.target_id))
        # A target that is not there leaves the leaf where the entry itself hangs.
        return self._parents[position] if target is None else target

    def _join(self, loose: Iterable[tuple[int, str]]) -> None:
        """Give entries the parent that came later, or else the entry before them."""
        self._children = None
        forward = False
        for position, name in loose:
            parent = self._positions.get(name)
            if parent is None:
                self.repairs.orphans += 1
                parent = position - 1
            forward = forward or parent >= position
            self._parents[position] = parent
        if forward:
            self._open_rings()

    def _open_rings(self) -> None:
        """Cut each ring of parents at its earliest member, which then follows what is before."""
        settled = bytearray(len(self._ids))
        for start in range(len(self._ids)):
            walk: list[int] = []
            at = start
            while at != _ROOT and not settled[at]:
                # 2 marks the present walk; meeting it again closes a ring.
                settled[at] = 2
                walk.append(at)
                at = self._parents[at]
                if at != _ROOT and settled[at] == 2:
                    earliest = min(walk[walk.index(at) :])
                    # All before `start` are known to end in a root.
                    self._parents[earliest] = start - 1
                    self.repairs.cycles += 1
                    break
            for at in walk:
                settled[at] = 1

    # --- Looking -----------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, entry_id: object) -> bool:
        return entry_id in self._positions

    def __iter__(self) -> Iterator[str]:
        """Walk the ids in file order, which is the only order there is: clocks go backwards."""
        return iter(self._ids)

    @property
    def leaf(self) -> str | None:
        """Where the conversation goes on: the last leaf entry's target, or what came after it."""
        return None if self._leaf == _ROOT else self._ids[self._leaf]

    def position(self, entry_id: str) -> int:
        """Return the entry's place in file order; raises `KeyError` where there is none."""
        return self._positions[entry_id]

    def bearers(self, entry_id: str) -> tuple[int, ...]:
        """Return the places of the first and the newest entry that bear an id."""
        return self._positions[entry_id], self._newest.get(entry_id, self._positions[entry_id])

    def id_at(self, position: int) -> str:
        """Return the id of the entry at a place in file order."""
        return self._ids[position]

    def type(self, entry_id: str) -> str:
        """Return the entry's type, without loading it."""
        return self._types[self._positions[entry_id]]

    def of_type(self, kind: str) -> list[str]:
        """List the ids of all entries of a type, in file order."""
        return [self._ids[position] for position in self._by_type.get(kind, ())]

    def entry(self, entry_id: str) -> SessionTreeEntry:
        """Load an entry; in the place of a large image it has a text that says so."""
        return self._load(self._positions[entry_id])

    def whole(self, entry_id: str) -> SessionTreeEntry:
        """Load an entry with all that is kept beside the file."""
        entry = self.entry(entry_id)
        return entry if self._whole is None else self._whole(entry)

    def parent(self, entry_id: str) -> str | None:
        """Return the parent's id, after repairs; ``None`` above a root."""
        parent = self._parents[self._positions[entry_id]]
        return None if parent == _ROOT else self._ids[parent]

    def children(self, entry_id: str | None) -> list[str]:
        """List who follows an entry, in file order; the roots for ``None``."""
        if self._children is None:
            self._children = {}
            for position, parent in enumerate(self._parents):
                self._children.setdefault(parent, []).append(position)
        parent = _ROOT if entry_id is None else self._positions[entry_id]
        return [self._ids[position] for position in self._children.get(parent, ())]

    def path(self, leaf: str | None) -> list[str]:
        """List the ids from the root to `leaf`, both included."""
        path: list[str] = []
        at = _ROOT if leaf is None else self._positions[leaf]
        while at != _ROOT:
            path.append(self._ids[at])
            at = self._parents[at]
        path.reverse()
        return path

    def common_ancestor(self, one: str | None, other: str | None) -> str | None:
        """Return the deepest entry both paths share."""
        shared = None
        for mine, theirs in zip(self.path(one), self.path(other), strict=False):
            if mine != theirs:
                break
            shared = mine
        return shared

    def descendants(self, entry_id: str | None) -> Iterator[str]:
        """Walk all that comes below an entry, parents before children."""
        waiting = self.children(entry_id)[::-1]
        while waiting:
            found = waiting.pop()
            yield found
            waiting.extend(self.children(found)[::-1])

    def newest_leaf(self, entry_id: str) -> str:
        """Return the end of the branch through `entry_id` that was written last."""
        newest = self._positions[entry_id]
        for below in self.descendants(entry_id):
            if self.type(below) != "leaf":
                newest = max(newest, self._positions[below])
        return self._ids[newest]

    def siblings(self, prompt_id: str) -> list[str]:
        """List the prompts that were said at the same point, this one included, oldest first."""
        anchor = self.parent(prompt_id)
        while anchor is not None and self.type(anchor) in TRANSPARENT:
            anchor = self.parent(anchor)
        found: list[str] = []
        waiting = self.children(anchor)
        while waiting:
            candidate = waiting.pop()
            if self.type(candidate) in TRANSPARENT:
                waiting.extend(self.children(candidate))
            elif self._is_prompt(candidate):
                found.append(candidate)
        return sorted(found, key=self._positions.__getitem__)

    def _is_prompt(self, entry_id: str) -> bool:
        if self.type(entry_id) != "message":
            return False
        entry = self.entry(entry_id)
        return isinstance(entry, MessageEntry) and entry.message.role == "user"

    # --- Names -------------------------------------------------------------------------

    def find(self, name: str) -> str | None:
        """Find the entry that a person names: by its id, its label, or how its id begins."""
        if name in self:
            return name
        labelled = [entry_id for entry_id, label in self.labels().items() if label == name]
        if labelled:
            return labelled[-1]
        begun = [entry_id for entry_id in self if entry_id.startswith(name)] if name else []
        return begun[0] if len(begun) == 1 else None

    def labels(self) -> dict[str, str]:
        """Map entries to their labels; the last one set wins, an empty one takes it off."""
        labels: dict[str, str] = {}
        for entry_id in self.of_type("label"):
            entry = self.entry(entry_id)
            if isinstance(entry, LabelEntry):
                if entry.label:
                    labels[entry.target_id] = entry.label
                else:
                    labels.pop(entry.target_id, None)
        return labels

    @property
    def name(self) -> str | None:
        """The session's name, if it has one."""
        for entry_id in reversed(self.of_type("session_info")):
            entry = self.entry(entry_id)
            if isinstance(entry, SessionInfoEntry):
                return entry.name or None
        return None


def link_of(entry: SessionTreeEntry) -> Link:
    """Say what the tree has to know of an entry."""
    target = entry.target_id if isinstance(entry, LeafEntry) else None
    return Link(entry.type, entry.id, entry.parent_id, target)
