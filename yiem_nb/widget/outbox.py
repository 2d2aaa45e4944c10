"""What is sent, and how often: one packet for all turns, at most thirty a second.

A front end's server drops messages beyond a rate that all of a kernel's messages share; thirty leave it
room. Everything here runs on the loop thread.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable

from yiem_nb.errors import redact
from yiem_nb.widget.encode import sendable
from yiem_nb.widget.protocol import VERSION, KernelMessage, Packet
from yiem_nb.widget.record import TurnRecord

__all__ = ["Outbox"]

#: Shortest time between two packets.
INTERVAL = 1 / 30
_log = logging.getLogger("yiem_nb")


class Outbox:
    """Collects messages and text, and sends them together.

    Parameters
    ----------
    send
        Sends a packet; what it raises is logged once, and the packet is lost.
    loop
        Where all this runs.
    """

    def __init__(self, send: Callable[[Packet], None], loop: asyncio.AbstractEventLoop) -> None:
        self.epoch = uuid.uuid4().hex[:8]
        self.open = False
        self._send = send
        self._loop = loop
        self._count = 0
        self._messages: list[KernelMessage] = []
        self._dirty: dict[str, TurnRecord] = {}
        self._next = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._failed = False

    def say(self, *messages: KernelMessage) -> None:
        """Send these with the next packet."""
        if self.open and messages:
            self._messages.extend(messages)
            self._plan()

    def touch(self, record: TurnRecord) -> None:
        """Send the new text of a turn with the next packet."""
        if self.open:
            self._dirty[record.id] = record
            self._plan()

    def text_before(self, record: TurnRecord) -> None:
        """Put the text of a turn before what is said next: an event may close it."""
        if self._dirty.pop(record.id, None) is not None:
            self._messages.extend(record.deltas())

    def _plan(self) -> None:
        if self._timer is not None:
            return
        wait = max(self._next - self._loop.time(), 0.0)
        self._timer = self._loop.call_later(wait, self._flush)

    def _flush(self) -> None:
        self._timer = None
        self._next = self._loop.time() + INTERVAL
        for record in self._dirty.values():
            self._messages.extend(record.deltas())
        self._dirty.clear()
        messages, self._messages = self._messages, []
        if not messages:
            return
        self._count += 1
        packet = Packet(v=VERSION, epoch=self.epoch, s=self._count, all=messages)
        try:
            self._send(packet)
        except UnicodeEncodeError:
            self._send(sendable(packet))
        except Exception as error:  # noqa: BLE001 - a page that is gone must not stop the run
            if not self._failed:
                self._failed = True
                _log.error("The browser could not be told: %s", redact(repr(error)))
