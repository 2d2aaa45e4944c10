"""Between the turns of a session and the pages that show them; all of it on the loop thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from yiem_nb.errors import YiemError, redact
from yiem_nb.events import AgentEvent, MessageUpdateEvent
from yiem_nb.widget.incoming import Hello, Need, Request, parse
from yiem_nb.widget.outbox import Outbox
from yiem_nb.widget.protocol import (
    Packet,
    ResultMessage,
    SessionView,
    SnapshotMessage,
    StateMessage,
    TickMessage,
    TurnOrigin,
)
from yiem_nb.widget.record import TurnRecord

__all__ = ["Hub", "Wishes"]

#: How many turns a page gets at once, and how many are kept to be asked for.
PAGE = 30
KEPT = 300
#: How often pages are told how much there should be, and for how long after a turn.
TICK = 1.0
TICKS_AFTER = 4.0


class Wishes(Protocol):
    """Carries out what a person asks for in a page."""

    async def carry_out(self, op: str, args: dict[str, Any]) -> Any:
        """Do it and return what the page is told; a `YiemError` says why not."""

    def session(self) -> SessionView:
        """Describe the session beside its turns."""


class Hub:
    """Keeps the turns of one session, tells pages of them, and takes their wishes.

    Parameters
    ----------
    send
        Sends a packet to all pages; called on the loop thread.
    wishes
        Carries out what is asked for.
    loop
        The loop of the loop thread.
    """

    def __init__(
        self, send: Callable[[Packet], None], wishes: Wishes, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._outbox = Outbox(send, loop)
        self._wishes = wishes
        self._loop = loop
        self._turns: list[TurnRecord] = []
        self._shown = PAGE
        self._told: SessionView | None = None
        self._beat: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._on_live: list[Callable[[], object]] = []

    @property
    def is_live(self) -> bool:
        """Whether a page has said that it is there."""
        return self._outbox.open

    def when_live(self, function: Callable[[], object]) -> None:
        """Call `function` on the loop thread once a page is there; any thread may ask."""

        def ask() -> None:
            if self.is_live:
                function()
            else:
                self._on_live.append(function)

        self._loop.call_soon_threadsafe(ask)

    # --- What happens ------------------------------------------------------------------

    def begin(
        self, origin: TurnOrigin, cell: str | None, label: str, waiting: str = ""
    ) -> TurnRecord:
        """Begin the record of a turn; any thread may."""
        return TurnRecord(origin, cell, label, waiting)

    def remember(self, turns: Iterable[TurnRecord]) -> None:
        """Put turns of an earlier time before all others."""
        self._turns[:0] = turns

    def happened(self, record: TurnRecord, event: AgentEvent) -> None:
        """Take an event of a turn."""
        if record.count == 0 and record not in self._turns:
            self._turns.append(record)
            del self._turns[:-KEPT]
        if isinstance(event, MessageUpdateEvent):
            said = record.take(event)
            if said:
                self._outbox.say(*said)
            self._outbox.touch(record)
        else:
            self._outbox.text_before(record)
            self._outbox.say(*record.take(event))
            self.tell_session()
        if self._beat is None and self.is_live:
            self._beat = self._loop.create_task(self._tick())

    def later(self, seconds: float, function: Callable[[], object]) -> None:
        """Call `function` on the loop thread in a while; any thread may ask."""
        self._loop.call_soon_threadsafe(self._loop.call_later, seconds, function)

    def tell_session(self) -> None:
        """Send the session view where it changed."""
        if not self.is_live:
            return
        view = self._wishes.session()
        if view != self._told:
            self._told = view
            self._outbox.say(StateMessage(kind="state", session=view))

    async def _tick(self) -> None:
        """Say how much there should be, while something runs and a little longer."""
        try:
            while True:
                await asyncio.sleep(TICK)
                now = time.monotonic()
                recent = [
                    turn
                    for turn in self._turns[-PAGE:]
                    if turn.count and (not turn.done or now - turn.ended_at < TICKS_AFTER)
                ]
                if not recent:
                    return
                for turn in recent:
                    self._outbox.text_before(turn)
                heights = [turn.height() for turn in recent]
                self._outbox.say(TickMessage(kind="tick", turns=heights))
                self.tell_session()
        finally:
            self._beat = None

    # --- What is asked for -------------------------------------------------------------

    def receive(self, content: object) -> None:
        """Take a message of a page."""
        match parse(content):
            case Hello():
                self._outbox.open = True
                self._snapshot(self._turns[-self._shown :], whole=True)
                waiting, self._on_live = self._on_live, []
                for function in waiting:
                    function()
            case Need(turns=()):
                self._snapshot(self._turns[-self._shown :], whole=True)
            case Need(turns=names):
                self._snapshot([turn for turn in self._turns if turn.id in names], whole=False)
            case Request() as request:
                task = self._loop.create_task(self._answer(request))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    def _snapshot(self, turns: list[TurnRecord], *, whole: bool) -> None:
        session = self._told = self._wishes.session()
        for turn in turns:
            self._outbox.text_before(turn)
        self._outbox.say(
            SnapshotMessage(
                kind="snap",
                whole=whole,
                earlier=max(len(self._turns) - self._shown, 0),
                turns=[turn.snapshot() for turn in turns],
                session=session,
            )
        )

    async def _answer(self, request: Request) -> None:
        value, error = None, request.problem
        if not error:
            try:
                if request.op == "earlier":
                    self._shown += PAGE
                    self._snapshot(self._turns[-self._shown :], whole=True)
                else:
                    value = await self._wishes.carry_out(request.op, request.args)
            except YiemError as refused:
                error = redact(str(refused))
            except Exception as failed:  # noqa: BLE001 - a page must hear of it whatever it is
                error = redact(f"{type(failed).__name__}: {failed}")
        self._outbox.say(
            ResultMessage(kind="res", id=request.id, ok=not error, value=value, error=error)
        )
        self.tell_session()
