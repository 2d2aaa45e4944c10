"""Asking a person for leave: the question, the answer, and that each is good for once.

An answer counts only if it names the nonce of a question that waits, and only the first time; whatever
else arrives, forged, replayed or late, changes nothing (reliability T10).
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from yiem_nb.tools.text import redacted

__all__ = [
    "APPROVAL_ENTRY",
    "ApprovalDesk",
    "ApprovalRequest",
    "Approver",
    "Decision",
    "DecisionKind",
]

#: The type of the session entries that say what a person decided about a call. They are a record; no
#: leave is ever read from a file.
APPROVAL_ENTRY = "yiem.approval"

DecisionKind: TypeAlias = Literal["once", "session", "edit", "deny"]


def _nonce() -> str:
    return secrets.token_hex(16)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """A call that waits for a person's leave.

    Parameters
    ----------
    tool_call_id, tool_name, description
        Which call, of which tool, and what the tool says it does.
    arguments
        Exactly what the tool would be called with.
    reason
        Why it is asked about.
    offers_session
        Whether ``session`` is among the answers.
    problem
        What was wrong with the last answer to the same question.
    nonce
        Unguessable; an answer must name it.
    """

    tool_call_id: str
    tool_name: str
    arguments: dict[str, Any]
    description: str = ""
    reason: str = ""
    offers_session: bool = True
    problem: str = ""
    nonce: str = field(default_factory=_nonce)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A person's answer.

    Parameters
    ----------
    nonce
        The question's.
    kind
        ``once`` and ``session`` allow, ``edit`` allows with other `arguments`, ``deny`` does not.
    reason
        Why not; the model reads it.
    arguments
        What the tool is called with instead, for ``edit``.
    """

    nonce: str
    kind: DecisionKind
    reason: str = ""
    arguments: dict[str, Any] | None = None

    @property
    def allows(self) -> bool:
        """Whether the call may run."""
        return self.kind in ("once", "session") or (
            self.kind == "edit" and isinstance(self.arguments, dict)
        )

    def record(self, request: ApprovalRequest) -> dict[str, Any]:
        """Return what a session keeps of it."""
        data: dict[str, Any] = {
            "toolCallId": request.tool_call_id,
            "toolName": request.tool_name,
            "decision": self.kind,
            "askedBecause": request.reason,
        }
        if self.reason:
            data["reason"] = self.reason
        if self.kind == "edit":
            data["arguments"] = self.arguments
        kept: dict[str, Any] = redacted(data)
        return kept


class Approver(Protocol):
    """Asks a person. One that raises, or answers another question, denies."""

    async def __call__(self, request: ApprovalRequest) -> Decision:
        """Return what the person decided; cancelled when the run is stopped."""


class ApprovalDesk:
    """An `Approver` for hosts where answers arrive as messages, in any order and from any thread.

    Attributes
    ----------
    ignored
        How many answers fitted no question.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, tuple[ApprovalRequest, asyncio.Future[Decision]]] = {}
        self.ignored = 0

    @property
    def waiting(self) -> tuple[ApprovalRequest, ...]:
        """The questions that are open, oldest first."""
        with self._lock:
            return tuple(request for request, _ in self._open.values())

    async def __call__(self, request: ApprovalRequest) -> Decision:
        """Wait for the answer to `request`."""
        future: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        with self._lock:
            self._open[request.nonce] = request, future
        try:
            return await future
        finally:
            with self._lock:
                self._open.pop(request.nonce, None)

    def answer(self, decision: Decision) -> bool:
        """Take an answer, from any thread; say whether it was the first to a question that waits."""
        with self._lock:
            waiting = self._open.pop(decision.nonce, None)
            if waiting is None:
                self.ignored += 1
                return False
        _, future = waiting
        future.get_loop().call_soon_threadsafe(_settle, future, decision)
        return True


def _settle(future: asyncio.Future[Decision], decision: Decision) -> None:
    if not future.done():
        future.set_result(decision)
