"""What an export writes, before it is HTML or Markdown (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from yiem_nb.errors import redact
from yiem_nb.render.text import cleaned
from yiem_nb.session.outline import Stretch, outline, stretch_to
from yiem_nb.session.transcript import Piece, Prompt, Read, Summary, pieces_of
from yiem_nb.session.tree import SessionTree

__all__ = ["Branches", "Chapter", "Document", "Way", "document_of"]

#: The path to the leaf, or every branch.
Branches: TypeAlias = Literal["path", "all"]


@dataclass(frozen=True, slots=True)
class Way:
    """A branch that goes on from a fork: where it stands in the document, and its first words."""

    anchor: str
    words: str
    current: bool


@dataclass(frozen=True, slots=True)
class Chapter:
    """What was said between two forks.

    Parameters
    ----------
    anchor
        Its name in the document.
    heading
        Which branch it is; empty where there is only one.
    pieces
        What was said.
    ways
        The branches that go on from here.
    back
        The chapter that it goes on from, if any.
    """

    anchor: str
    heading: str
    pieces: tuple[Piece, ...]
    ways: tuple[Way, ...] = ()
    back: str = ""


@dataclass(frozen=True, slots=True)
class Document:
    """A session, ready to be written."""

    title: str
    facts: tuple[str, ...]
    chapters: tuple[Chapter, ...]


def document_of(
    tree: SessionTree,
    leaf: str | None,
    *,
    branches: Branches = "path",
    title: str = "",
    facts: Sequence[str] = (),
    read: Read | None = None,
) -> Document:
    """Gather what an export writes; the parameters are those of `export.export`."""
    labels = tree.labels()
    stretches = outline(tree, leaf) if branches == "all" else stretch_to(tree, leaf)
    pieces = {
        stretch.first: tuple(pieces_of(tree, stretch.ids, labels, read)) for stretch in stretches
    }
    above: dict[str, tuple[Stretch, int]] = {}
    for stretch in stretches:
        above |= {fork: (stretch, number) for number, fork in enumerate(stretch.forks, 1)}
    current = {stretch.first for stretch in stretches if stretch.current}
    chapters = []
    for stretch in stretches:
        parent, number = above.get(stretch.first, (None, 0))
        heading = f"Branch {number} of {len(parent.forks)}" if parent else ""
        ways = tuple(
            Way(_anchor(tree, fork), _first_words(pieces[fork]), fork in current)
            for fork in stretch.forks
        )
        back = _anchor(tree, parent.first) if parent else ""
        anchor = _anchor(tree, stretch.first)
        chapters.append(Chapter(anchor, heading, pieces[stretch.first], ways, back))
    name = redact(tree.name or title or "Session")
    return Document(name, tuple(map(redact, facts)), tuple(chapters))


def _anchor(tree: SessionTree, entry_id: str) -> str:
    """Name a chapter by a number of ours: an id of a file may be anything."""
    return f"branch-{tree.position(entry_id) + 1}"


def _first_words(pieces: Sequence[Piece]) -> str:
    for piece in pieces:
        if isinstance(piece, Prompt | Summary):
            return " ".join(cleaned(piece.text).split())[:80] or "(no words)"
    return "goes on"
