"""A session as one document that needs nothing else: HTML or Markdown (issue 4, item 9; pure).

The HTML runs nothing and loads nothing; a policy in its head forbids both. Words go through the same
renderer as in a cell; images are data; names in it are numbers of ours, whatever the file calls its
entries. In the Markdown no image is left that a host would load, and no tag but the folds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from yiem_nb.render.view import money
from yiem_nb.session.document import Branches, document_of
from yiem_nb.session.export_html import html_document
from yiem_nb.session.export_markdown import markdown_document
from yiem_nb.session.stats import SessionStats
from yiem_nb.session.transcript import Read, moment
from yiem_nb.session.tree import SessionTree

__all__ = ["Branches", "Format", "export", "facts_of"]

Format: TypeAlias = Literal["html", "md"]


def export(
    tree: SessionTree,
    leaf: str | None,
    *,
    format: Format = "html",
    branches: Branches = "path",
    title: str = "",
    facts: Sequence[str] = (),
    read: Read | None = None,
) -> str:
    """Write a session down.

    Parameters
    ----------
    tree
        The session; what its entries keep beside the file comes in through it.
    leaf
        Where the branch ends that is written, or comes first.
    format, branches
        In which form, and how much.
    title
        What it is called if the session has no name.
    facts
        A few words each, for the line below the title.
    read
        Gives a file beside the session, for whole outputs; without it they are left out.

    Returns
    -------
    str
        The document; nothing in a file, however damaged, raises.
    """
    document = document_of(tree, leaf, branches=branches, title=title, facts=facts, read=read)
    return html_document(document) if format == "html" else markdown_document(document)


def facts_of(created: str, stats: SessionStats) -> list[str]:
    """Say in a few words each what a session is."""
    messages = "1 message" if stats.message_count == 1 else f"{stats.message_count:,} messages"
    begun = moment(created)
    facts = [f"begun {begun}"] if begun else []
    facts.append(messages)
    if stats.cost_total > 0:
        facts.append(money(stats.cost_total))
    return facts
