"""A provider that says what it was told to: for tests, lessons and users' own tests.

It never poses as a model: its name is ``scripted`` and nothing chooses it but you.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import TypeAlias, cast

from yiem_nb.errors import ErrorCode, ProviderError
from yiem_nb.events import Aborted, AbortSignal, MessageUpdateEvent
from yiem_nb.messages import (
    AgentToolCall,
    AssistantMessage,
    MessageContent,
    ReasoningContent,
    StopReason,
    TextContent,
    Usage,
)
from yiem_nb.models import Model, ThinkingLevel
from yiem_nb.state import AgentContext, Deltas, StreamEvent

__all__ = ["ScriptedProvider", "Turn"]

#: A block of an answer: text, a thought, or a call.
Part: TypeAlias = str | ReasoningContent | AgentToolCall

#: What it answers: a block or several, a ready message, an error to raise, or a function of the
#: request that returns one of these.
Turn: TypeAlias = (
    Part | Sequence[Part] | AssistantMessage | Exception | Callable[[AgentContext], "Turn"]
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
        if isinstance(turns, str):
            raise ProviderError(
                "The script is one text, and should be a list of turns.",
                hint=f"Write ScriptedProvider([{turns!r}]).",
                code=ErrorCode.PROVIDER_CONFIG,
            )
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
        return self._answer(self._turns[number - 1], model, context, signal)

    async def _answer(
        self, turn: Turn, model: Model, context: AgentContext, signal: AbortSignal
    ) -> AsyncIterator[StreamEvent]:
        if callable(turn):
            turn = turn(context)
        if isinstance(turn, Exception):
            raise turn
        message = _message(turn, model)
        given: list[MessageUpdateEvent] = []
        try:
            for index, block in enumerate(message.content):
                for delta in _deltas(index, block, self._size):
                    await self._pause(signal)
                    given.append(delta)
                    yield delta
        except Aborted as stopped:
            message = _cut(message, given, stopped)
        yield message

    async def _pause(self, signal: AbortSignal) -> None:
        signal.raise_if_aborted()
        if self._delay:
            with signal.guard():
                await asyncio.sleep(self._delay)


def _deltas(index: int, block: MessageContent, size: int) -> Iterator[MessageUpdateEvent]:
    """Cut a block into deltas; joined they are the block."""
    if isinstance(block, AgentToolCall):
        text = block.raw_arguments or json.dumps(block.arguments, ensure_ascii=False)
        yield MessageUpdateEvent(index, "toolCall", text, block.id, block.name)
    elif isinstance(block, TextContent | ReasoningContent):
        for start in range(0, len(block.text), size):
            yield MessageUpdateEvent(index, block.type, block.text[start : start + size])


def _cut(
    message: AssistantMessage, given: list[MessageUpdateEvent], stopped: Aborted
) -> AssistantMessage:
    """Return what had been given of a message when it was stopped."""
    changes = {
        "stop_reason": StopReason.ABORTED,
        "error_message": str(stopped),
        "error_code": str(ErrorCode.EXECUTION_ABORTED),
    }
    partial = Deltas(message, given, len(given)).message()
    return partial.model_copy(update=changes)


def _message(turn: Turn, model: Model) -> AssistantMessage:
    if isinstance(turn, AssistantMessage):
        return turn
    parts = [turn] if isinstance(turn, Part) else list(cast("Sequence[Part]", turn))
    is_calling = any(isinstance(part, AgentToolCall) for part in parts)
    return AssistantMessage(
        [TextContent(part) if isinstance(part, str) else part for part in parts if part != ""],
        api=model.api,
        provider=model.provider,
        model=model.id,
        stop_reason=StopReason.TOOL_USE if is_calling else StopReason.STOP,
        usage=Usage(reported=False),
    )
