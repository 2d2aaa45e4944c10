"""A provider that says what it was told to: for tests, lessons and users' own tests.

It never poses as a model: its name is ``scripted`` and nothing chooses it but you.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TypeAlias

from yiem_nb.errors import ErrorCode, ProviderError
from yiem_nb.events import AbortSignal, MessageUpdateEvent
from yiem_nb.messages import (
    AgentToolCall,
    AssistantMessage,
    ReasoningContent,
    TextContent,
    Usage,
)
from yiem_nb.models import Model, ThinkingLevel
from yiem_nb.state import AgentContext, StreamEvent

__all__ = ["ScriptedProvider", "Turn"]

#: What it answers: a text, a call or several, a ready message, an error to raise, or a function of
#: the request that returns one of these.
Turn: TypeAlias = (
    str
    | AgentToolCall
    | list[AgentToolCall]
    | AssistantMessage
    | Exception
    | Callable[[AgentContext], "Turn"]
)


class ScriptedProvider:
    """Answers one turn after the other; a `StreamFn`.

    Parameters
    ----------
    turns
        What to answer, in order.
    delay
        Seconds between two deltas.
    size
        Characters of a delta.

    Attributes
    ----------
    requests
        The `AgentContext` of each request so far.

    Examples
    --------
    >>> provider = ScriptedProvider(["The mean is 4.5."])
    >>> provider.model.label
    'scripted (no model)'
    """

    model = Model(id="scripted", name="scripted (no model)", provider="scripted", api="scripted")

    def __init__(self, turns: Iterable[Turn], *, delay: float = 0.0, size: int = 4) -> None:
        self._turns = list(turns)
        self._delay = delay
        self._size = size
        self.requests: list[AgentContext] = []

    def __call__(
        self, model: Model, context: AgentContext, level: ThinkingLevel, signal: AbortSignal
    ) -> AsyncIterator[StreamEvent]:
        """Answer a request with the next turn."""
        self.requests.append(context)
        number = len(self.requests)
        if number > len(self._turns):
            raise ProviderError(
                f"The script has {len(self._turns)} turns and this is request {number}.",
                hint="Add a turn to ScriptedProvider([...]).",
                code=ErrorCode.PROVIDER_INCOMPLETE,
            )
        return self._answer(self._turns[number - 1], model, context)

    async def _answer(
        self, turn: Turn, model: Model, context: AgentContext
    ) -> AsyncIterator[StreamEvent]:
        if callable(turn):
            turn = turn(context)
        if isinstance(turn, Exception):
            raise turn
        message = _message(turn, model)
        for index, block in enumerate(message.content):
            if isinstance(block, TextContent | ReasoningContent):
                kind = block.type
                for start in range(0, len(block.text), self._size):
                    if self._delay:
                        await asyncio.sleep(self._delay)
                    yield MessageUpdateEvent(index, kind, block.text[start : start + self._size])
            elif isinstance(block, AgentToolCall):
                yield MessageUpdateEvent(index, "toolCall", "", block.id, block.name)
        yield message


def _message(turn: Turn, model: Model) -> AssistantMessage:
    if isinstance(turn, AssistantMessage):
        return turn
    calls = [turn] if isinstance(turn, AgentToolCall) else turn if isinstance(turn, list) else []
    return AssistantMessage(
        "" if calls else str(turn),
        api=model.api,
        provider=model.provider,
        model=model.id,
        tool_calls=calls,
        usage=Usage(reported=False),
    )
