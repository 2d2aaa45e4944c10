"""Messages that wait to be said."""

from __future__ import annotations

from collections import deque

from yiem_nb.messages import AgentMessage
from yiem_nb.models import QueueMode

__all__ = ["MessageQueue"]


class MessageQueue:
    """Messages that wait; given away one at a time, or all at once."""

    def __init__(self, mode: QueueMode) -> None:
        self._mode = mode
        self._messages: deque[AgentMessage] = deque()

    @property
    def waiting(self) -> tuple[AgentMessage, ...]:
        """What waits, oldest first."""
        return tuple(self._messages)

    @property
    def next(self) -> tuple[AgentMessage, ...]:
        """What `drain` would give away."""
        return self.waiting if self._mode is QueueMode.ALL else self.waiting[:1]

    def put(self, message: AgentMessage) -> None:
        """Let a message wait."""
        self._messages.append(message)

    def drain(self) -> list[AgentMessage]:
        """Give away one message, or all, as the mode says."""
        return [self._messages.popleft() for _ in self.next]

    def remove(self, message: AgentMessage) -> bool:
        """Take one away; say whether it still waited."""
        for index, waiting in enumerate(self._messages):
            if waiting is message:
                del self._messages[index]
                return True
        return False

    def clear(self) -> list[AgentMessage]:
        """Take all away and return them."""
        messages = list(self._messages)
        self._messages.clear()
        return messages
