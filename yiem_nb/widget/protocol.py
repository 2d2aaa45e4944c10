"""What kernel and browser say to each other (pure).

``js/src/protocol.ts`` is made from this module by ``python js/protocol.py``. The browser is sent packets: all
that happened within a thirtieth of a second, with ``v``, ``epoch`` (another one after each start of the
kernel) and ``s``, which counts them. No message in them depends on another having arrived: events are
numbered within their turn, text is addressed by its offset in code points, what is closed is sent whole,
and a ``tick`` says how much there should be. So a packet that is lost, doubled or late is found out and
healed.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, TypedDict

from yiem_nb.events import DeltaKind

__all__ = [
    "OPERATIONS",
    "VERSION",
    "BlockMessage",
    "DeltaMessage",
    "EventMessage",
    "HelloMessage",
    "KernelMessage",
    "ModelChoice",
    "NeedMessage",
    "OpenBlockSnapshot",
    "Packet",
    "Queued",
    "RequestMessage",
    "ResultMessage",
    "SessionView",
    "SnapshotMessage",
    "StampedEvent",
    "StateMessage",
    "TickMessage",
    "TurnHeight",
    "TurnOrigin",
    "TurnSnapshot",
]

VERSION = 1

TurnOrigin: TypeAlias = Literal["cell", "chat", "python"]


class StampedEvent(TypedDict):
    """An event, its number within the turn, and when it happened (milliseconds)."""

    n: int
    t: int
    e: dict[str, Any]


class OpenBlockSnapshot(TypedDict):
    """A block of the streaming message as far as it has arrived."""

    block: int
    kind: DeltaKind
    text: str
    id: str
    name: str


class TurnSnapshot(TypedDict):
    """A whole turn. `message` is the number of the event that began the streaming message."""

    turn: str
    origin: TurnOrigin
    cell: str | None
    label: str
    waiting: str
    events: list[StampedEvent]
    message: int
    open: list[OpenBlockSnapshot]
    done: bool


class Queued(TypedDict):
    """A message that waits to be said."""

    id: str
    mode: Literal["steer", "next"]
    text: str


class ModelChoice(TypedDict):
    """A model that can be chosen."""

    name: str
    label: str


class SessionView(TypedDict):
    """What is true of the session beside its turns; small, and always sent whole."""

    name: str
    busy: bool
    model: str
    models: list[ModelChoice]
    thinking: str
    levels: list[str]
    queue: list[Queued]
    contextUsed: int
    contextWindow: int
    input: int
    cached: int
    output: int
    cost: float
    notice: str


class SnapshotMessage(TypedDict):
    """Turns as they are; with `whole` there are no others."""

    kind: Literal["snap"]
    whole: bool
    earlier: int
    turns: list[TurnSnapshot]
    session: SessionView


class EventMessage(TypedDict):
    """Something happened in a turn."""

    kind: Literal["ev"]
    turn: str
    origin: TurnOrigin
    cell: str | None
    label: str
    waiting: str
    n: int
    t: int
    e: dict[str, Any]


class DeltaMessage(TypedDict):
    """New text of a block of the streaming message; `off` counts code points."""

    kind: Literal["d"]
    turn: str
    message: int
    block: int
    what: DeltaKind
    off: int
    txt: str
    id: str
    name: str


class BlockMessage(TypedDict):
    """The whole text of a block that is complete while its message is not."""

    kind: Literal["blk"]
    turn: str
    message: int
    block: int
    what: DeltaKind
    text: str
    id: str
    name: str


class TurnHeight(TypedDict):
    """How much of a turn there is: events, and code points of each open block."""

    turn: str
    n: int
    message: int
    open: dict[str, int]


class TickMessage(TypedDict):
    """How much there should be in the browser by now."""

    kind: Literal["tick"]
    turns: list[TurnHeight]


class StateMessage(TypedDict):
    """The session view changed."""

    kind: Literal["state"]
    session: SessionView


class ResultMessage(TypedDict):
    """The answer to a request."""

    kind: Literal["res"]
    id: str
    ok: bool
    value: Any
    error: str


KernelMessage: TypeAlias = (
    SnapshotMessage
    | EventMessage
    | DeltaMessage
    | BlockMessage
    | TickMessage
    | StateMessage
    | ResultMessage
)


class Packet(TypedDict):
    """What one comm message holds."""

    v: int
    epoch: str
    s: int
    all: list[KernelMessage]


class HelloMessage(TypedDict):
    """A page is there and has nothing yet."""

    kind: Literal["hello"]
    v: int


class NeedMessage(TypedDict):
    """Some turns have gaps; without names: all of them."""

    kind: Literal["need"]
    turns: list[str]


#: What a browser may ask for, and the arguments of each by name.
OPERATIONS: dict[str, dict[str, type]] = {
    "prompt": {"text": str, "images": list},
    "steer": {"text": str},
    "follow_up": {"text": str},
    "unqueue": {"item": str},
    "stop": {},
    "approve": {"nonce": str, "decision": str, "reason": str, "arguments": str},
    "model": {"name": str},
    "thinking": {"level": str},
    "complete": {"text": str},
    "earlier": {"before": str},
    "insert": {"code": str},
}


class RequestMessage(TypedDict):
    """A person's wish; answered by a `ResultMessage` of the same id."""

    kind: Literal["req"]
    v: int
    id: str
    op: str
    args: dict[str, Any]
