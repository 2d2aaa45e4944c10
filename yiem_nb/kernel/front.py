"""What a cell's turn may be shown by beside plain displays; the widget's room fills it in."""

from __future__ import annotations

from typing import Protocol

from yiem_nb.kernel.view import CellView, Publish, View
from yiem_nb.tools import Approver

__all__ = ["FrontEnd"]


class FrontEnd(Protocol):
    """Live views in a browser."""

    def view(
        self, publish: Publish, plain: PlainView, *, cell: str | None, label: str, waiting: str
    ) -> tuple[View, Approver]:
        """Return what shows a turn of a cell, and who is asked in it.

        Called on the main thread, before the turn begins. Where no page shows widgets the view
        is `plain`'s.
        """

    def show_panel(self) -> None:
        """Display the chat panel in the cell that runs."""

    def stop(self) -> None:
        """Nothing more is shown; the kernel ends."""


class PlainView(Protocol):
    """Makes the plain view of a turn, publishing as it is told."""

    def __call__(self, publish: Publish) -> CellView:
        """Make it."""
