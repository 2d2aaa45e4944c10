"""The agent loop: requests and tools in turn, as an async generator of events (SPEC-6.2).

A run is ``agent_start``, turns, ``agent_end``. A turn is the messages that open it, one answer,
the calls of that answer and their results. Whatever fails, what was opened is closed: a message
that began ends, a turn that began ends, every call has exactly one result.

The loop knows neither HTTP nor kernels nor files. It is handed a `StreamFn` and tools that are
closures, and says what happens; whoever iterates it has done with an event (written it down, shown
it) before the next step is taken.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace

from yiem_nb.calls import AgentLoopConfig, Batch, ToolBlock, sentence, settled
from yiem_nb.compaction import Compaction, close_stream, meter_of, room_of
from yiem_nb.errors import ErrorCode, InvalidMessageRoleError, RateLimitedError, YiemError
from yiem_nb.events import (
    CALLEE_RAISES,
    Aborted,
    AbortSignal,
    AgentEndEvent,
    AgentEvent,
    AgentStartEvent,
    MessageEndEvent,
    MessageStartEvent,
    MessageUpdateEvent,
    RetryEvent,
    TurnEndEvent,
    TurnStartEvent,
    is_own_cancellation,
)
from yiem_nb.messages import (
    AgentMessage,
    AgentToolCall,
    AssistantMessage,
    StopReason,
    ToolResultMessage,
)
from yiem_nb.state import AgentContext, Deltas, StreamFn
from yiem_nb.tools import Repeats

__all__ = [
    "AgentLoopConfig",
    "ToolBlock",
    "agent_loop",
    "agent_loop_continue",
    "check_can_continue",
    "stream_assistant_response",
]


def agent_loop(
    prompts: Sequence[AgentMessage],
    context: AgentContext,
    config: AgentLoopConfig,
    signal: AbortSignal,
    stream_fn: StreamFn,
) -> AsyncIterator[AgentEvent]:
    """Run from `prompts` until the model has nothing left to do.

    Yields
    ------
    AgentEvent
        In the order things happen. ``agent_end`` carries the messages of this run alone,
        `prompts` included.
    """
    return _run(tuple(prompts), context, config, signal, stream_fn)


def agent_loop_continue(
    context: AgentContext,
    config: AgentLoopConfig,
    signal: AbortSignal,
    stream_fn: StreamFn,
) -> AsyncIterator[AgentEvent]:
    """Run on from the last message of `context`, which must want an answer.

    Raises
    ------
    InvalidMessageRoleError
        When there is no message, or the last one is an answer.
    """
    check_can_continue(context.messages)
    return _run((), context, config, signal, stream_fn)


def check_can_continue(messages: Sequence[AgentMessage]) -> None:
    """Raise unless the last message wants an answer (SPEC-7.1: INVALID_MESSAGE_ROLE)."""
    if not messages:
        raise InvalidMessageRoleError(
            "There is nothing to continue: the conversation is empty.", hint="Send a prompt first."
        )
    if isinstance(messages[-1], AssistantMessage):
        raise InvalidMessageRoleError(
            "There is nothing to continue: the last message is an answer.",
            hint="Send a prompt, or queue one with follow_up().",
        )


async def stream_assistant_response(
    context: AgentContext,
    config: AgentLoopConfig,
    signal: AbortSignal,
    emit: Callable[[AgentEvent], Awaitable[None] | None],
    stream_fn: StreamFn,
) -> AssistantMessage:
    """Make one request, call `emit` with each event of its answer, and return the answer."""
    exchange = _Exchange(context, config, signal)
    async for event in exchange.run(stream_fn):
        await settled(emit(event))
    return exchange.answer


# --- A run ---------------------------------------------------------------------------------


async def _run(
    prompts: tuple[AgentMessage, ...],
    context: AgentContext,
    config: AgentLoopConfig,
    signal: AbortSignal,
    stream_fn: StreamFn,
) -> AsyncIterator[AgentEvent]:
    talk = _Talk(context, config, signal)
    yield AgentStartEvent()
    pending: tuple[AgentMessage, ...] = (*prompts, *config.steering())
    while True:
        async for event in talk.turn(pending, stream_fn):
            yield event
        if talk.goes_again:
            pending = ()
            continue
        if _failed(talk.answer) or signal.aborted:
            break
        pending = tuple(config.steering())
        if not talk.results:
            pending = pending or tuple(config.follow_up())
            if not pending:
                break
    yield AgentEndEvent(tuple(talk.said))


class _Talk:
    """The conversation of a run: what the model sees of it, and what was said in this run.

    `answer` and `results` are those of the last turn.
    """

    def __init__(self, context: AgentContext, config: AgentLoopConfig, signal: AbortSignal) -> None:
        self.said: list[AgentMessage] = []
        self.answer = AssistantMessage()
        self.results: list[ToolResultMessage] = []
        #: Whether the last request did not fit, and a smaller one is to be tried.
        self.goes_again = False
        self._context = context
        self._messages = list(context.messages)
        self._room = room_of(config.model)
        self._meter = meter_of(context)
        self._config = config
        self._signal = signal
        #: A summary that could not be made is not tried again in this run.
        self._tries = config.compaction
        self._overflowed = False
        self._pace = _Pace(config.turns_per_run)

    @property
    def context(self) -> AgentContext:
        """What the next request holds."""
        return replace(self._context, messages=tuple(self._messages))

    def add(self, *messages: AgentMessage) -> None:
        self._messages += messages
        self.said += messages
        for message in messages:
            self._meter.add(message)

    async def turn(
        self, pending: Sequence[AgentMessage], stream_fn: StreamFn
    ) -> AsyncIterator[AgentEvent]:
        """Say what is pending, ask for an answer, and run its calls."""
        yield TurnStartEvent()
        for message in pending:
            self.add(message)
            yield MessageStartEvent(message)
            yield MessageEndEvent(message)
        async for event in self._make_room(stream_fn):
            yield event
        exchange = _Exchange(self.context, self._config, self._signal, self._pace)
        async for event in exchange.run(stream_fn):
            yield event
        self.answer, self.results = exchange.answer, []
        self.add(self.answer)
        async for event in self._make_room(stream_fn, self.answer):
            yield event
        if not _failed(self.answer):
            seen = replace(exchange.context, messages=self.context.messages)
            batch = Batch(self.answer, seen, self._config, self._signal, self._pace.repeats)
            async for event in batch.run():
                yield event
            self.results = batch.messages
            self.add(*self.results)
        yield TurnEndEvent(self.answer, tuple(self.results))

    async def _make_room(
        self, stream_fn: StreamFn, answer: AssistantMessage | None = None
    ) -> AsyncIterator[AgentEvent]:
        """Let a summary stand for the beginning: where it is due, or where `answer` says it was."""
        if answer is None:
            overflowed, wanted = False, self._is_due()
        else:
            before, self._overflowed = self._overflowed, answer.error_code == _OVERFLOW
            overflowed = wanted = self._overflowed and not before
        self.goes_again = False
        if not (wanted and self._tries) or self._signal.aborted:
            return
        config = self._config
        compaction = Compaction(
            self.context,
            config.model,
            config.thinking_level,
            self._signal,
            "the conversation did not fit" if overflowed else "the conversation nears the limit",
        )
        async for event in compaction.run(stream_fn):
            yield event
        self._messages = list(compaction.messages)
        self._meter = meter_of(self.context)
        self._tries = compaction.done
        self.goes_again = overflowed and compaction.done

    def _is_due(self) -> bool:
        return self._room is not None and self._meter.tokens > self._room.limit


class _Pace:
    """How far a run has come, and where it must end though the model would go on (T21)."""

    def __init__(self, most: int | None) -> None:
        self.repeats = Repeats()
        self._most = most
        self._turns = 0

    def step(self) -> None:
        """Begin a turn.

        Raises
        ------
        RateLimitedError
            The model repeats itself, or has taken as many turns as a run may.
        """
        self._turns += 1
        if self.repeats.is_lost:
            raise RateLimitedError(
                "The model goes on repeating calls it was told not to repeat; the run was ended.",
                hint="Ask in other words, or with another model.",
            )
        if self._most is not None and self._turns > self._most:
            raise RateLimitedError(
                f"The model has taken {self._most} turns, which is the limit for one prompt.",
                hint="Prompt again to let it go on, or raise Limits(turns_per_run=…).",
            )


_OVERFLOW = str(ErrorCode.PROVIDER_OVERFLOW)


def _failed(answer: AssistantMessage) -> bool:
    return answer.stop_reason in (StopReason.ERROR, StopReason.ABORTED)


# --- One answer ----------------------------------------------------------------------------


class _Exchange:
    """One request and its answer: opened once, closed once, however the stream ends.

    Afterwards `context` is what was sent and `answer` what came back.
    """

    def __init__(
        self,
        context: AgentContext,
        config: AgentLoopConfig,
        signal: AbortSignal,
        pace: _Pace | None = None,
    ) -> None:
        model = config.model
        start = AssistantMessage(api=model.api, provider=model.provider, model=model.id)
        self.context = context
        self.answer = start
        self._config = config
        self._signal = signal
        self._pace = pace
        self._partial = Deltas(start)
        self._final: AssistantMessage | None = None

    async def run(self, stream_fn: StreamFn) -> AsyncIterator[AgentEvent]:
        """Forward what the stream says, then close the message."""
        started = False
        try:
            with self._signal.guard():
                await self._prepare()
            async for event in self._stream(stream_fn):
                if not started and isinstance(event, MessageUpdateEvent):
                    started = True
                    yield MessageStartEvent(self._partial.start)
                yield event
        except Aborted as stopped:
            self._close(StopReason.ABORTED, str(stopped), ErrorCode.EXECUTION_ABORTED)
        except CALLEE_RAISES as error:  # whoever raises must not leave the run open
            if is_own_cancellation(error):
                raise
            code = error.code if isinstance(error, YiemError) else ErrorCode.INTERNAL
            self._close(StopReason.ERROR, sentence(error), code)
        if not started:
            yield MessageStartEvent(self._partial.start)
        self.answer = _with_unique_calls(self._final or self._without_end())
        yield MessageEndEvent(self.answer)

    async def _prepare(self) -> None:
        if self._pace is not None:
            self._pace.step()
        if self._config.prepare_context is not None:
            self.context = await settled(self._config.prepare_context(self.context))

    async def _stream(self, stream_fn: StreamFn) -> AsyncIterator[MessageUpdateEvent | RetryEvent]:
        config, signal = self._config, self._signal
        stream = stream_fn(config.model, self.context, config.thinking_level, signal)
        try:
            while self._final is None:
                with signal.guard():
                    item = await anext(stream)
                if isinstance(item, AssistantMessage):
                    self._final = item
                    continue
                if isinstance(item, MessageUpdateEvent):
                    self._partial = self._partial.append(item)
                yield item
        except StopAsyncIteration:
            return
        finally:
            if isinstance(stream, AsyncGenerator):
                await close_stream(stream)

    def _without_end(self) -> AssistantMessage:
        text = "The stream ended without an answer."
        return self._close(StopReason.ERROR, text, ErrorCode.PROVIDER_INCOMPLETE)

    def _close(self, reason: StopReason, text: str, code: ErrorCode) -> AssistantMessage:
        """Keep what had arrived and say why there is no more."""
        changes = {"stop_reason": reason, "error_message": text, "error_code": str(code)}
        self._final = self._partial.message().model_copy(update=changes)
        return self._final


def _with_unique_calls(message: AssistantMessage) -> AssistantMessage:
    """Rename a call whose id an earlier one has, so that each result finds its own."""
    calls = message.tool_calls
    if len({call.id for call in calls}) == len(calls):
        return message
    seen: set[str] = set()
    content = []
    for block in message.content:
        if isinstance(block, AgentToolCall):
            number, name = 1, block.id
            while name in seen:
                number += 1
                name = f"{block.id}~{number}"
            seen.add(name)
            block = block.model_copy(update={"id": name})  # noqa: PLW2901
        content.append(block)
    return message.model_copy(update={"content": tuple(content)})
