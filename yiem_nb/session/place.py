"""A cell is a place in the tree.

The rule: when a cell runs, the model sees what stands above that cell in the notebook, each cell's
exchange in its current version, and nothing that stands below. Everything else stays in the tree.

The words used here:

place
    A cell, known by its id. Its prompts record it as ``cellId``.
version
    One execution of a place, known by its first prompt. Prompts of the same cell that follow
    belong to it. A copy that was carried to another branch names its original in ``copyOf`` and
    is the same version.
segment
    A version's entries down to the next version, so also the turns from the chat panel that
    followed it. What comes before the first version is a segment too, owned by nobody.
failed
    A turn that got no answer: nothing may follow it. An aborted one has one, however short.
era
    What was said since somebody started over, which leaves a mark in the tree. A cell sees what
    stands above it in the era of the conversation; earlier ones are kept, and can be gone back to.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from yiem_nb.messages import AssistantMessage, StopReason
from yiem_nb.session.context import SessionContext, settings_of
from yiem_nb.session.entries import (
    ActiveToolsChangeEntry,
    ContextEditEntry,
    CustomEntry,
    CustomMessageEntry,
    MessageEntry,
    ModelChangeEntry,
    SessionTreeEntry,
    ThinkingLevelChangeEntry,
    new_entry_id,
)
from yiem_nb.session.partial import PARTIAL
from yiem_nb.session.tree import SessionTree

__all__ = ["RESET", "How", "Places", "Plan", "plan_place", "plan_reset", "stale_cells"]

#: At the cell's place; at the leaf, wherever that is; or as a root of its own.
How: TypeAlias = Literal["place", "append", "new"]

#: The `CustomEntry.custom_type` of the mark that begins an era.
RESET = "yiem.reset"

_NOBODY = -1
#: The era before anybody started over.
_FIRST_ERA = -1


@dataclass(frozen=True, slots=True)
class Plan:
    """Where a prompt goes, and what goes there before it."""

    #: The entry to branch from; ``None`` starts a new root.
    parent: str | None
    #: What to append there first: copies of exchanges, settings, edits. Linked and with ids.
    entries: tuple[SessionTreeEntry, ...] = ()
    #: The first prompts of the exchanges that are carried, as originals.
    carried: tuple[str, ...] = ()
    #: The same of those of other cells that the conversation leaves behind.
    set_aside: tuple[str, ...] = ()

    @property
    def notice(self) -> str:
        """One quiet line for people; empty where nothing moved."""
        said = []
        if self.carried:
            said.append(f"{_exchanges(self.carried)} from above carried along")
        if self.set_aside:
            said.append(f"{_exchanges(self.set_aside)} set aside on the earlier branch")
        return " · ".join(said)


def _exchanges(versions: Sequence[str]) -> str:
    return "1 exchange" if len(versions) == 1 else f"{len(versions)} exchanges"


class Places:
    """Who owns what in a tree: versions, their cells and segments.

    It reads every message once; `update` takes in what came since.
    """

    def __init__(self, tree: SessionTree) -> None:
        self.tree = tree
        #: For each entry, by its place in file order: the first prompt of its segment.
        self._owners: list[int] = []
        #: Whether its turn has an answer by then.
        self._answered: list[bool] = []
        #: The mark of its era.
        self._eras: list[int] = []
        self._cells: dict[int, str] = {}
        self._originals: dict[int, str] = {}
        self._occurrences: dict[str, list[int]] = {}
        self._versions: dict[str, list[str]] = {}
        self._segments: dict[int, list[int]] = {}
        self.update()

    def update(self) -> None:
        """Take in the entries that are new."""
        first = len(self._owners)
        new = len(self.tree) - first
        self._owners += [_NOBODY] * new
        self._answered += [True] * new
        self._eras += [_FIRST_ERA] * new
        done = bytearray(new)
        for position in range(first, len(self.tree)):
            # Parents come first, also where the file has them later.
            chain = []
            at: int | None = position
            while at is not None and at >= first and not done[at - first]:
                chain.append(at)
                done[at - first] = 1
                at = self._parent(at)
            for member in reversed(chain):
                self._take(member)

    def _parent(self, position: int) -> int | None:
        parent = self.tree.parent(self.tree.id_at(position))
        return None if parent is None else self.tree.position(parent)

    def _take(self, position: int) -> None:
        entry_id = self.tree.id_at(position)
        parent = self._parent(position)
        if parent is not None:
            self._owners[position] = self._owners[parent]
            self._answered[position] = self._answered[parent]
            self._eras[position] = self._eras[parent]
        if self.tree.type(entry_id) in {"message", "custom"}:
            entry = self.tree.entry(entry_id)
            if isinstance(entry, MessageEntry):
                self._take_message(position, entry)
            elif isinstance(entry, CustomEntry):
                self._take_mark(position, entry.custom_type)
        self._segments.setdefault(self._owners[position], []).append(position)

    def _take_message(self, position: int, entry: MessageEntry) -> None:
        message = entry.message
        if message.role == "user":
            self._answered[position] = False
            if entry.cell_id and entry.cell_id != self._cells.get(self._owners[position]):
                self._take_version(position, entry, entry.cell_id)
        elif isinstance(message, AssistantMessage) and (
            message.content or message.stop_reason is not StopReason.ERROR
        ):
            self._answered[position] = True

    def _take_mark(self, position: int, kind: str) -> None:
        if kind == RESET:
            self._eras[position] = position
        elif kind == PARTIAL:
            self._answered[position] = True

    def _take_version(self, position: int, entry: MessageEntry, cell: str) -> None:
        original = entry.copy_of or self.tree.id_at(position)
        self._owners[position] = position
        self._cells[position] = cell
        self._originals[position] = original
        self._occurrences.setdefault(original, []).append(position)
        versions = self._versions.setdefault(cell, [])
        if original not in versions:
            versions.append(original)

    # --- Looking -----------------------------------------------------------------------

    def __contains__(self, version: object) -> bool:
        return version in self._occurrences

    def prompt(self, version: str) -> str:
        """Return the entry that first says a version here; in a fork that may be a copy."""
        return self.tree.id_at(self._occurrences[version][0])

    def cells(self) -> list[str]:
        """List all places in the order of their first execution."""
        return list(self._versions)

    def versions(self, cell: str) -> list[str]:
        """List the versions of a place, oldest first."""
        return list(self._versions.get(cell, ()))

    def failed(self, version: str) -> bool:
        """Tell whether a version got no answer."""
        return not any(self._ends(position) for position in self._occurrences[version])

    def newest_leaf(self, version: str) -> str:
        """Return where the conversation goes on when a version is chosen."""
        ends = [self.tree.newest_leaf(self.tree.id_at(at)) for at in self._occurrences[version]]
        return max(ends, key=self.tree.position)

    def along(self, leaf: str | None) -> list[int]:
        """List the first prompts of the versions on the path to an entry."""
        owners: list[int] = []
        owner = _NOBODY if leaf is None else self._owners[self.tree.position(leaf)]
        while owner != _NOBODY:
            owners.append(owner)
            owner = self._above(owner)
        owners.reverse()
        return owners

    def _above(self, owner: int) -> int:
        """Return the owner of what a version was asked after."""
        parent = self._parent(owner)
        return _NOBODY if parent is None else self._owners[parent]

    def original(self, owner: int) -> str:
        """Return the version that a first prompt, or a copy of it, begins."""
        return self._originals[owner]

    def asked_after(self, version: str) -> list[str]:
        """List the versions that a version, as an original, was asked after."""
        parent = self.tree.parent(self.prompt(version))
        return [self.original(owner) for owner in self.along(parent)]

    def era(self, leaf: str | None) -> int:
        """Return the position of the mark that a conversation began with, or one before all."""
        return _FIRST_ERA if leaf is None else self._eras[self.tree.position(leaf)]

    def start(self, leaf: str | None) -> str | None:
        """Return that mark; ``None`` where nobody started over."""
        era = self.era(leaf)
        return None if era == _FIRST_ERA else self.tree.id_at(era)

    def _occur(self, version: str, era: int) -> list[int]:
        """List the first prompts of a version in an era."""
        return [at for at in self._occurrences[version] if self._eras[at] == era]

    def current(self, leaf: str | None) -> dict[str, str]:
        """Map each place to its current version: the one on the path, else its newest."""
        era = self.era(leaf)
        current: dict[str, str] = {}
        for cell, versions in self._versions.items():
            here = [version for version in versions if self._occur(version, era)]
            if here:
                current[cell] = here[-1]
        for owner in self.along(leaf):
            current[self._cells[owner]] = self.original(owner)
        return current

    def _ends(self, owner: int) -> list[int]:
        """List the entries of a segment that something may follow."""
        return [at for at in self._segments.get(owner, ()) if self._answered[at]]

    def last_answered(self, entry_id: str | None) -> str | None:
        """Return the entry, or the nearest one above it that is not part of a failed turn."""
        while entry_id is not None and not self._answered[self.tree.position(entry_id)]:
            entry_id = self.tree.parent(entry_id)
        return entry_id

    def reach(self, wanted: Sequence[str], leaf: str | None) -> tuple[int, str | None]:
        """Find the deepest entry whose path is a beginning of `wanted`, and how long that is."""
        era = self.era(leaf)
        owners = {_NOBODY}
        length = 0
        for version in wanted:
            deeper = {
                at
                for at in self._occur(version, era)
                if self._above(at) in owners and self._ends(at)
            }
            if not deeper:
                break
            owners = deeper
            length += 1
        return length, self._end(owners, era, self.tree.path(leaf))

    def _end(self, owners: Iterable[int], era: int, path: Sequence[str]) -> str | None:
        """Choose where to go on in some segments: on the path where possible, else the newest."""
        ends = {
            self.tree.id_at(at)
            for owner in owners
            for at in self._ends(owner)
            if self._eras[at] == era
        }
        on_path = [entry_id for entry_id in path if entry_id in ends]
        if on_path:
            return on_path[-1]
        return max(ends, key=self.tree.position, default=None)

    def segment(self, version: str, leaf: str | None) -> list[str]:
        """List a version's entries, from its prompt to where one would go on."""
        era = self.era(leaf)
        path = self.tree.path(leaf)
        occurrences = self._occur(version, era)
        on_path = [at for at in occurrences if self.tree.id_at(at) in path]
        owner = on_path[-1] if on_path else occurrences[0]
        end = self._end([owner], era, path)
        whole = self.tree.path(end)
        return whole[whole.index(self.tree.id_at(owner)) :]


def plan_place(
    tree: SessionTree,
    leaf: str | None,
    order: Sequence[str],
    cell_id: str | None,
    *,
    how: How = "place",
    places: Places | None = None,
) -> Plan:
    """Decide where the prompt of a cell goes.

    Parameters
    ----------
    tree, leaf
        The session, and where its conversation is.
    order
        The ids of the cells in the order of the notebook; empty where nobody knows it, which
        makes it the order of execution.
    cell_id
        The cell that runs. None at all, one that is not in `order`, or that is in it twice, is
        not known: its prompt is appended.
    how
        ``--append`` and ``--new`` overrule the rule.
    places
        An index of `tree` to use again.

    Returns
    -------
    Plan
        Nothing has changed yet.
    """
    places = places if places is not None else Places(tree)
    places.update()
    known = _order(places, order, cell_id)
    parent: str | None = None
    lost: list[str] = []
    if how == "place" and cell_id and known.count(cell_id) == 1:
        wanted = _seen_by(places, leaf, known, cell_id)
        length, parent = places.reach(wanted, leaf)
        lost = wanted[length:]
    elif how == "new":
        parent = places.start(leaf)
    else:
        parent = places.last_answered(leaf)
    carried = _Carrier(tree, leaf, parent)
    for version in lost:
        carried.copy(places.segment(version, leaf))
    carried.settle()
    left = [places.original(owner) for owner in places.along(leaf)]
    kept = {places.original(owner) for owner in places.along(parent)} | set(lost)
    kept.update(places.versions(cell_id or ""))
    return Plan(
        parent=parent,
        entries=tuple(carried.entries),
        carried=tuple(lost),
        set_aside=tuple(version for version in left if version not in kept),
    )


def plan_reset(tree: SessionTree, leaf: str | None) -> Plan:
    """Decide how to start over: a root of its own, with the settings that are in force."""
    carried = _Carrier(tree, leaf, None)
    carried.append(CustomEntry(custom_type=RESET))
    carried.settle()
    return Plan(parent=None, entries=tuple(carried.entries))


def stale_cells(
    tree: SessionTree, leaf: str | None, order: Sequence[str], *, places: Places | None = None
) -> list[str]:
    """List the cells, in page order, that were answered on another version of what is above.

    Those are the ones whose current exchange was asked, as an original, after other exchanges
    than it would see now.
    """
    places = places if places is not None else Places(tree)
    places.update()
    known = _order(places, order, None)
    current = places.current(leaf)
    return [
        cell
        for cell in known
        if cell in current
        and known.count(cell) == 1
        and places.asked_after(current[cell]) != _seen_by(places, leaf, known, cell)
    ]


def _order(places: Places, order: Sequence[str], cell_id: str | None) -> list[str]:
    if order:
        return list(order)
    executed = places.cells()
    return executed if cell_id is None or cell_id in executed else [*executed, cell_id]


def _seen_by(places: Places, leaf: str | None, order: Sequence[str], cell_id: str) -> list[str]:
    """List the versions that stand above a cell now."""
    current = places.current(leaf)
    above = [cell for cell in order[: order.index(cell_id)] if order.count(cell) == 1]
    versions = [current[cell] for cell in above if cell in current]
    return [version for version in versions if not places.failed(version)]


class _Carrier:
    """Links what goes onto a branch before the prompt: copies, edits and settings."""

    def __init__(self, tree: SessionTree, leaf: str | None, parent: str | None) -> None:
        self.entries: list[SessionTreeEntry] = []
        self._tree = tree
        self._leaf = leaf
        self._parent = parent
        self._at = parent
        #: Where each entry that a model saw on the old path is on the new one.
        self._now = {entry_id: entry_id for entry_id in tree.path(parent)}

    def copy(self, segment: Iterable[str]) -> None:
        """Carry what a model sees of an exchange; copies name their originals."""
        for entry_id in segment:
            entry = self._tree.entry(entry_id)
            if isinstance(entry, MessageEntry):
                copy = entry.model_copy(update={"copy_of": entry.copy_of or entry_id})
                self._now[entry_id] = self.append(copy)
            elif isinstance(entry, CustomMessageEntry):
                self._now[entry_id] = self.append(entry)

    def settle(self) -> None:
        """Carry along the edits and settings that were in force, where the branch lacks them."""
        here = set(self._tree.path(self._parent))
        for entry_id in self._tree.path(self._leaf):
            if self._tree.type(entry_id) != "context_edit" or entry_id in here:
                continue
            edit = self._tree.entry(entry_id)
            if isinstance(edit, ContextEditEntry) and edit.target_id in self._now:
                self.append(edit.model_copy(update={"target_id": self._now[edit.target_id]}))
        before = settings_of(self._tree, self._tree.path(self._leaf))
        for change in _changes(before, settings_of(self._tree, self._tree.path(self._parent))):
            self.append(change)

    def append(self, entry: SessionTreeEntry) -> str:
        """Let an entry follow the one before it; return its id."""
        entry_id = new_entry_id(lambda taken: taken in self._tree)
        update = {"id": entry_id, "parent_id": self._at}
        self.entries.append(entry.model_copy(update=update))
        self._at = entry_id
        return entry_id


def _changes(before: SessionContext, now: SessionContext) -> Iterable[SessionTreeEntry]:
    """Give the entries that bring the settings of `before` to where they are as in `now`."""
    if before.model is not None and before.model != now.model:
        provider, model_id = before.model
        yield ModelChangeEntry(provider=provider, model_id=model_id)
    if before.thinking_level is not now.thinking_level:
        yield ThinkingLevelChangeEntry(thinking_level=before.thinking_level)
    if before.active_tools is not None and before.active_tools != now.active_tools:
        yield ActiveToolsChangeEntry(active_tool_names=before.active_tools)
