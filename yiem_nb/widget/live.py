"""A turn in its cell: the live widget while it runs, the static rendering once it has settled.

The plain view makes the static pieces all along; while the widget shows the turn they are kept on a
tape, and when it settles they take the widget's place. Where a function displays something in the
cell, what came before it settles at once and the widget goes on below, so that the order stays.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from yiem_nb.events import (
    AbortSignal,
    AgentEndEvent,
    AgentEvent,
    AgentStartEvent,
    MessageEndEvent,
    ToolExecutionEndEvent,
)
from yiem_nb.kernel.front import PlainView
from yiem_nb.kernel.view import Bundle, CellView, Publish
from yiem_nb.messages import UserMessage
from yiem_nb.widget.hub import Hub
from yiem_nb.widget.record import TurnRecord

__all__ = ["LiveView", "TurnWidget", "bundle_of"]

#: How long a widget that is shown nowhere any more is kept.
CLOSE_SECONDS = 5.0


class TurnWidget(Protocol):
    """What shows a turn in a cell."""

    def bundle(self) -> Bundle:
        """Return what is displayed."""

    def close(self) -> None:
        """It is shown nowhere any more."""


class LiveView:
    """A run in a notebook cell whose pages show widgets.

    Parameters
    ----------
    hub, record
        Where pages hear of it.
    publish
        Sends a display.
    plain
        Makes the view that gives the static pieces.
    widget
        Makes the live display of the turn, from an event on.
    displayed
        Returns how much was displayed by functions so far.
    """

    def __init__(
        self,
        hub: Hub,
        record: TurnRecord,
        publish: Publish,
        plain: PlainView,
        widget: Callable[[TurnRecord, int], TurnWidget],
        displayed: Callable[[], int],
    ) -> None:
        self.finished = asyncio.Event()
        self._hub = hub
        self._record = record
        self._tape = _Tape(publish)
        self._plain: CellView = plain(self._tape)
        self._make = widget
        self._displayed = displayed
        self._seen = displayed()
        self._widget: TurnWidget | None = None

    @property
    def is_live(self) -> bool:
        """Whether the widget shows the turn."""
        return self._widget is not None

    async def __call__(self, event: AgentEvent, signal: AbortSignal) -> None:
        """Show what `event` says."""
        self._hub.happened(self._record, event)
        if not self.is_live and self._hub.is_live and _shows(event):
            self._go_live(0)
        await self._plain(event, signal)
        if self.is_live and isinstance(event, ToolExecutionEndEvent):
            seen, self._seen = self._seen, self._displayed()
            if seen != self._seen:
                self._settle(together=True)
                self._go_live(self._record.count)
        if isinstance(event, AgentEndEvent):
            self._settle()
            self.finished.set()

    def notice(self, text: str) -> None:
        """Say something quietly, after what is there."""
        self._plain.notice(text)

    def abandon(self) -> None:
        """Take the widget away from a run that never began, or was left behind."""
        if not self.finished.is_set():
            self._settle()
            self._plain.abandon()
            self.finished.set()

    def _go_live(self, start: int) -> None:
        try:
            self._widget = self._make(self._record, start)
        except Exception:  # noqa: BLE001 - the plain view is there
            return
        self._plain.hold = True
        self._tape.record(self._widget.bundle())

    def _settle(self, *, together: bool = False) -> None:
        """Put the static pieces in the place of the widget."""
        widget, self._widget = self._widget, None
        if widget is None:
            return
        self._plain.hold = False
        self._tape.play(together=together)
        # A page that is told of its end while it still begins complains.
        self._hub.later(CLOSE_SECONDS, widget.close)


def _shows(event: AgentEvent) -> bool:
    """Whether there is more to show than that something is waited for."""
    if isinstance(event, MessageEndEvent):
        return not isinstance(event.message, UserMessage)
    return not isinstance(event, AgentStartEvent | AgentEndEvent)


class _Tape:
    """Publishes at once, or keeps what would be published until it is played."""

    def __init__(self, publish: Publish) -> None:
        self._publish = publish
        self._kept: dict[str, Bundle] | None = None
        self._host = ""
        #: Displays that are in the cell: by which name, and the pieces that share it.
        self._shown: dict[str, str] = {}
        self._together: dict[str, dict[str, Bundle]] = {}

    def __call__(self, bundle: Bundle, display_id: str, *, update: bool) -> None:
        if self._kept is not None:
            self._kept[display_id] = bundle
            return
        self._show(bundle, display_id, update=update)

    def _show(self, bundle: Bundle, display_id: str, *, update: bool) -> None:
        name = self._shown.setdefault(display_id, display_id)
        pieces = self._together.get(name)
        if pieces is not None:
            pieces[display_id] = bundle
            bundle = _joined(pieces.values())
        self._publish(bundle, name, update=update)

    def record(self, live: Bundle) -> None:
        """Show `live`, where the waiting line is if there is one, and keep what comes."""
        waiting = not self._host and len(self._shown) == 1
        self._host = next(iter(self._shown)) if waiting else uuid.uuid4().hex
        self._publish(live, self._host, update=waiting)
        if waiting:
            self._shown.clear()
        self._kept = {}

    def play(self, *, together: bool = False) -> None:
        """Show what was kept: its first new piece where `live` is, the others below.

        With `together` all of them where `live` is, because something else stands below it.
        """
        kept, self._kept = self._kept or {}, None
        free: str | None = self._host
        for display_id, bundle in kept.items():
            if display_id in self._shown:
                self._show(bundle, display_id, update=True)
            elif free is not None:
                self._shown[display_id] = free
                if together:
                    self._together[free] = {}
                self._show(bundle, display_id, update=True)
                free = None
            elif together and _has_words(bundle):
                self._shown[display_id] = self._host
                self._show(bundle, display_id, update=True)
            else:
                self._show(bundle, display_id, update=False)
        if free is not None:
            self._publish({"text/plain": ""}, free, update=True)


_WORDS = {"text/html": "", "text/markdown": "\n\n", "text/plain": "\n"}


def _has_words(bundle: Bundle) -> bool:
    return all(isinstance(bundle.get(kind), str) for kind in _WORDS)


def _joined(bundles: Iterable[Bundle]) -> Bundle:
    """Make one display of several."""
    whole = list(bundles)
    return {
        kind: between.join(str(bundle.get(kind, "")) for bundle in whole)
        for kind, between in _WORDS.items()
    }


def bundle_of(widget: Any) -> Bundle:
    """Return what a widget displays, and in words where no widget can be."""
    data: Any = widget._repr_mimebundle_()
    return dict(data[0] if isinstance(data, tuple) else data)
