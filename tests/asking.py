"""Asking a server over HTTP as the agent would, without waiting for anything."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from yiem_nb.events import AbortSignal, MessageUpdateEvent, RetryEvent
from yiem_nb.messages import AgentMessage, AssistantMessage, UserMessage
from yiem_nb.models import Model, ThinkingLevel
from yiem_nb.providers.clocks import Clocks, RetryPolicy
from yiem_nb.providers.http import Connection, HttpProvider
from yiem_nb.providers.keys import Secret
from yiem_nb.state import AgentContext, tools_by_name
from yiem_nb.tools import AgentTool

MODEL = Model(id="test-model", provider="test")


@dataclass
class Outcome:
    """What came: the deltas, the retries, the waits, and the message."""

    deltas: list[MessageUpdateEvent] = field(default_factory=list)
    retries: list[RetryEvent] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    messages: list[AssistantMessage] = field(default_factory=list)

    @property
    def message(self) -> AssistantMessage:
        (message,) = self.messages
        return message

    @property
    def text(self) -> str:
        return "".join(delta.text for delta in self.deltas)


async def ask(
    base_url: str,
    *,
    key: Secret | None = None,
    model: Model = MODEL,
    messages: Sequence[AgentMessage] = (UserMessage("hi", 1),),
    tools: Sequence[AgentTool] = (),
    signal: AbortSignal | None = None,
    on_delta: Callable[[], object] = bool,
    attempts: int = 4,
    clocks: Clocks | None = None,
) -> Outcome:
    """Send one request to the server at `base_url`; waits between tries are noted, not waited for."""
    outcome = Outcome()

    async def connect() -> Connection:
        return Connection(base_url, key)

    async def note(seconds: float) -> None:
        outcome.waits.append(seconds)

    provider = HttpProvider(
        connect,
        policy=RetryPolicy(attempts=attempts, random=random.Random(7)),
        sleep=note,
        clocks=clocks,
    )
    context = AgentContext("", tuple(messages), tools_by_name(tools) or None)
    try:
        async for event in provider(model, context, ThinkingLevel.OFF, signal or AbortSignal()):
            match event:
                case MessageUpdateEvent():
                    outcome.deltas.append(event)
                    on_delta()
                case RetryEvent():
                    outcome.retries.append(event)
                case AssistantMessage():
                    outcome.messages.append(event)
    finally:
        await provider.aclose()
    return outcome
