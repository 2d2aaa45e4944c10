"""The tree as people read it: stretches of a conversation and the forks between them (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from yiem_nb.session.tree import TRANSPARENT, SessionTree

__all__ = ["Stretch", "outline", "stretch_to"]


@dataclass(frozen=True, slots=True)
class Stretch:
    """What was said between two forks.

    Parameters
    ----------
    ids
        Its entries that hold words, oldest first.
    forks
        The first entry of each stretch that goes on from here, the current one first.
    depth
        How many forks lie above it.
    current
        Whether it is on the path to the leaf.
    """

    ids: tuple[str, ...]
    forks: tuple[str, ...] = ()
    depth: int = 0
    current: bool = True

    @property
    def first(self) -> str:
        """The entry that names the stretch."""
        return self.ids[0]


def stretch_to(tree: SessionTree, leaf: str | None) -> list[Stretch]:
    """Return the path to `leaf` as one stretch; none where nothing was said."""
    ids = tuple(entry_id for entry_id in tree.path(leaf) if tree.type(entry_id) not in TRANSPARENT)
    return [Stretch(ids)] if ids else []


def outline(tree: SessionTree, leaf: str | None) -> list[Stretch]:
    """Return all that was said, a stretch followed by those that go on from it.

    The path to `leaf` comes first at each fork, the others in file order.
    """
    below = _children(tree)
    path = set(tree.path(leaf))
    found: list[Stretch] = []
    waiting = [(first, 0) for first in reversed(_current_first(below.get(None, []), path))]
    while waiting:
        first, depth = waiting.pop()
        ids = list(_chain(first, below))
        forks = _current_first(below.get(ids[-1], []), path)
        found.append(Stretch(tuple(ids), tuple(forks), depth, first in path))
        waiting += [(fork, depth + 1) for fork in reversed(forks)]
    return found


def _children(tree: SessionTree) -> dict[str | None, list[str]]:
    """Map each entry that holds words to those that follow it, past all that hold none."""
    above: dict[str, str | None] = {}
    below: dict[str | None, list[str]] = {}
    for entry_id in tree.descendants(None):
        parent = tree.parent(entry_id)
        if parent is not None and tree.type(parent) in TRANSPARENT:
            parent = above[parent]
        above[entry_id] = parent
        if tree.type(entry_id) not in TRANSPARENT:
            below.setdefault(parent, []).append(entry_id)
    for entries in below.values():
        entries.sort(key=tree.position)
    return below


def _chain(first: str, below: dict[str | None, list[str]]) -> Iterator[str]:
    at = first
    yield at
    while len(followers := below.get(at, [])) == 1:
        at = followers[0]
        yield at


def _current_first(ids: list[str], path: set[str]) -> list[str]:
    return sorted(ids, key=lambda entry_id: entry_id not in path)
