"""The agent: one conversation, its queues and its listeners (SPEC-6.1, SPEC-10.1).

It wires the rooms below and decides nothing they could decide: the loop says what happens, the
journal writes it down, the fold makes it state, listeners hear of it, in this order.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias, TypeVar, overload

from yiem_nb.budget import Purse
from yiem_nb.calls import AfterToolCall, BeforeToolCall, settled
from yiem_nb.compaction import Compaction
from yiem_nb.errors import (
    AgentBusyError,
    CompactionError,
    ErrorCode,
    InvalidMessageRoleError,
    ProviderError,
    RateLimitedError,
)
from yiem_nb.events import (
    AbortSignal,
    AgentEndEvent,
    AgentEvent,
    CompactionEndEvent,
    Listener,
    MessageEndEvent,
    QueueUpdateEvent,
    TurnEndEvent,
)
from yiem_nb.hashing import RequestHasher
from yiem_nb.listeners import Subscription, subscribe
from yiem_nb.loop import AgentLoopConfig, agent_loop, agent_loop_continue, check_can_continue
from yiem_nb.messages import (
    AgentMessage,
    AssistantMessage,
    UserMessage,
)
from yiem_nb.models import Limits, Model, QueueMode, ThinkingLevel
from yiem_nb.queues import MessageQueue
from yiem_nb.scribe import Journal, Scribe
from yiem_nb.state import AgentContext, AgentState, StreamFn, reduce, tools_by_name
from yiem_nb.structured import OutputForm
from yiem_nb.tools import (
    AgentTool,
    Gate,
    OutputStore,
    ToolExecutionMode,
)

__all__ = ["Agent", "AgentOptions", "Journal", "Prompt"]

T = TypeVar("T")
Prompt: TypeAlias = str | AgentMessage | Sequence[AgentMessage]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions:
    """What an agent starts with (SPEC-10.1).

    `model` may be ``None`` after loading a session whose model is not configured here; prompting
    then raises with the remedy.
    """

    model: Model | None
    system_prompt: str = ""
    thinking_level: ThinkingLevel = ThinkingLevel.OFF
    tools: Sequence[AgentTool] | Mapping[str, AgentTool] = ()
    messages: Sequence[AgentMessage] = ()
    steering_mode: QueueMode = QueueMode.ONE_AT_A_TIME
    follow_up_mode: QueueMode = QueueMode.ONE_AT_A_TIME
    tool_execution: ToolExecutionMode = ToolExecutionMode.PARALLEL
    limits: Limits = field(default_factory=Limits)
    before_tool_call: BeforeToolCall | None = None
    after_tool_call: AfterToolCall | None = None
    #: Rules on calls before they run; without one every call may.
    gate: Gate | None = None
    #: Keeps the whole of results that are too long for the model.
    store: OutputStore | None = None
    #: Whether a summary may stand for the beginning of a conversation that grows too long.
    compaction: bool = True
    #: What was spent, and what may be.
    purse: Purse = field(default_factory=Purse)
    #: The last word on each request: called with what would be sent, returns what is sent.
    prepare_context: Callable[[AgentContext], AgentContext | Awaitable[AgentContext]] | None = None


class Agent:
    """One conversation with a model that may call tools.

    Parameters
    ----------
    options
        Model, prompt, tools and limits.
    stream_fn
        How a request is made; see `yiem_nb.state.StreamFn`.
    journal
        Where messages are kept before anything acts on them. Without one they are in memory only.

    Notes
    -----
    Its coroutines belong to one event loop. `abort`, `steer`, `follow_up` and `state` may be used
    from any thread.
    """

    def __init__(
        self, options: AgentOptions, stream_fn: StreamFn, journal: Journal | None = None
    ) -> None:
        self.options = options
        self._stream_fn = stream_fn
        self._scribe = Scribe(journal)
        self._state = AgentState(
            system_prompt=options.system_prompt,
            model=options.model,
            thinking_level=options.thinking_level,
            tools=tools_by_name(options.tools),
            messages=tuple(options.messages),
        )
        self._steering = MessageQueue(options.steering_mode)
        self._follow_up = MessageQueue(options.follow_up_mode)
        self._subscriptions: list[Subscription] = []
        self._signal: AbortSignal | None = None
        self._requests: deque[float] = deque()
        self._hasher = RequestHasher()
        #: What the last answer of the present run must be.
        self._form: OutputForm[Any] | None = None

    # --- What is so --------------------------------------------------------------------

    @property
    def state(self) -> AgentState:
        """All that is true now; frozen, so hold it as long as you like."""
        return self._state

    def get_state(self) -> AgentState:
        """Return `state` (SPEC-6.1)."""
        return self._state

    @property
    def is_busy(self) -> bool:
        """Whether a run is under way."""
        return self._signal is not None

    # --- Runs --------------------------------------------------------------------------

    @overload
    async def prompt(self, prompt: Prompt, *, cell_id: str | None = None) -> AssistantMessage: ...

    @overload
    async def prompt(
        self, prompt: Prompt, *, cell_id: str | None = None, output_type: type[T]
    ) -> T: ...

    @overload
    async def prompt(
        self, prompt: Prompt, *, cell_id: str | None = None, output_type: type[T] | None
    ) -> AssistantMessage | T: ...

    async def prompt(
        self, prompt: Prompt, *, cell_id: str | None = None, output_type: type[T] | None = None
    ) -> AssistantMessage | T:
        """Say something and run until the model has nothing left to do.

        Parameters
        ----------
        prompt
            Text, a message, or several messages.
        cell_id
            The notebook cell it comes from, kept with it.
        output_type
            A pydantic model or other type that the last answer must be; it is returned then. An
            answer that does not fit may be mended once, in the same run.

        Returns
        -------
        AssistantMessage or `output_type`
            The last answer; ``stop_reason`` says whether it is whole. A failed request is an
            answer with ``error_message``, not an exception.

        Raises
        ------
        AgentBusyError
            While another run is under way; nothing changes.
        ProviderError
            No model was chosen.
        OutputError
            With `output_type`: the answer failed or does not fit; the error has its text.
        RateLimitedError
            One of `Limits` is reached.
        """
        messages = _as_messages(prompt)
        form = OutputForm(output_type) if output_type is not None else None
        self.check_idle("prompt")
        self._check_messages(len(messages))
        self._form = form
        try:
            answer = await self._run(lambda *a: agent_loop(messages, *a), cell_id)
        finally:
            self._form = None
        return answer if form is None else form.read(answer)

    async def continue_(self) -> AssistantMessage:
        """Run on from the last message; after an answer, from what is queued (SPEC-6.1).

        Raises
        ------
        AgentBusyError
            While another run is under way.
        InvalidMessageRoleError
            Nothing wants an answer.
        """
        self.check_idle("continue")
        messages = self._state.messages
        if messages and isinstance(messages[-1], AssistantMessage):
            queue = self._steering if self._steering.waiting else self._follow_up
            if queue.next:
                # Refused before anything is taken from the queue: a refusal loses no message.
                self._check_ready()
                self._check_messages(len(queue.next))
                queued = queue.drain()
                return await self._run(lambda *a: agent_loop(queued, *a))
        check_can_continue(messages)
        return await self._run(agent_loop_continue)

    async def compact(self, instructions: str = "") -> CompactionEndEvent:
        """Let a summary stand for the beginning of the conversation; the file keeps all of it.

        Parameters
        ----------
        instructions
            What the summary is to hold above all.

        Returns
        -------
        CompactionEndEvent
            How it went, with the tokens before and after as estimates.

        Raises
        ------
        AgentBusyError
            While a run is under way.
        CompactionError
            There is nothing to summarise, or the summary could not be made; nothing changes.
        """
        self.check_idle("compact the conversation")
        compaction: Compaction | None = None

        def start(
            context: AgentContext, config: AgentLoopConfig, signal: AbortSignal, stream_fn: StreamFn
        ) -> AsyncIterator[AgentEvent]:
            nonlocal compaction
            reason = "it was asked for"
            compaction = Compaction(
                context, config.model, config.thinking_level, signal, reason, instructions
            )
            return compaction.run(stream_fn)

        await self._run(start)
        assert compaction is not None
        if not compaction.done:
            raise CompactionError(
                f"The conversation was not compacted. {compaction.end.error_message}",
                hint="It is as it was.",
            )
        return compaction.end

    def abort(self, reason: str = "stopped") -> list[AgentMessage]:
        """Stop the run, if there is one, and return the queued messages this clears."""
        cleared = [*self._steering.clear(), *self._follow_up.clear()]
        if self._signal is not None:
            self._signal.abort(reason)
        if cleared:
            self._queues_changed()
        return cleared

    def steer(self, message: str | AgentMessage) -> None:
        """Queue a message for after the present turn."""
        self._steering.put(_as_messages(message)[0])
        self._queues_changed()

    def follow_up(self, message: str | AgentMessage) -> None:
        """Queue a message for when the run would end."""
        self._follow_up.put(_as_messages(message)[0])
        self._queues_changed()

    @property
    def queued(self) -> tuple[tuple[AgentMessage, ...], tuple[AgentMessage, ...]]:
        """What waits to be said: by `steer`, and by `follow_up`."""
        return self._steering.waiting, self._follow_up.waiting

    def withdraw(self, message: AgentMessage) -> bool:
        """Take a message back from the queues; say whether it still waited."""
        found = self._steering.remove(message) or self._follow_up.remove(message)
        if found:
            self._queues_changed()
        return found

    async def reset(self) -> None:
        """Clear messages, queues and error; keep prompt, model and tools.

        The session file loses nothing: the next prompt starts a new root.
        """
        self.check_idle("reset")
        self._steering.clear()
        self._follow_up.clear()
        self._state = replace(self._state, messages=(), error_message=None)
        if self.options.gate is not None:
            self.options.gate.forget()
        if self._scribe.journal is not None:
            await self._scribe.journal.new_root()

    # --- Settings ----------------------------------------------------------------------

    async def set_model(self, model: Model, *, record: bool = True) -> None:
        """Answer with `model` from the next run on; `record` it unless the session says so."""
        self._state = replace(self._state, model=model)
        if record:
            await self._write(lambda journal: journal.model(model))

    async def set_thinking_level(self, level: ThinkingLevel) -> None:
        """Think this hard from the next run on."""
        self._state = replace(self._state, thinking_level=level)
        await self._write(lambda journal: journal.thinking_level(level))

    async def set_tools(self, tools: Sequence[AgentTool] | Mapping[str, AgentTool]) -> None:
        """Offer these tools from the next request on."""
        by_name = tools_by_name(tools)
        self._state = replace(self._state, tools=by_name)
        await self._write(lambda journal: journal.tools(tuple(by_name)))

    def set_system_prompt(self, text: str) -> None:
        """Begin the next request with `text`."""
        self._state = replace(self._state, system_prompt=text)

    def set_messages(self, messages: Sequence[AgentMessage]) -> None:
        """Take another point of the tree as the conversation so far."""
        self.check_idle("change the conversation")
        self._state = replace(self._state, messages=tuple(messages), error_message=None)

    # --- Listeners ---------------------------------------------------------------------

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call ``listener(event, signal)`` with every event; return what ends that (SPEC-5.2).

        Async listeners run on the running loop, plain functions in a thread of their own. Neither
        delays the run.
        """
        subscription = subscribe(listener)
        self._subscriptions.append(subscription)

        def unsubscribe() -> None:
            subscription.close()
            if subscription in self._subscriptions:
                self._subscriptions.remove(subscription)

        return unsubscribe

    # --- Inside ------------------------------------------------------------------------

    async def _run(
        self, start: Callable[..., AsyncIterator[AgentEvent]], cell_id: str | None = None
    ) -> AssistantMessage:
        """Drive a run in a task of its own, so that cancelling the caller stops it in order."""
        model = self._check_ready()
        signal = AbortSignal()
        self.options.purse.begin()
        context = AgentContext(
            self._state.system_prompt, self._state.messages, dict(self._state.tools)
        )
        events = start(context, self._config(model), signal, self._stream_fn)
        self._signal = signal
        task = asyncio.ensure_future(self._drive(events, signal, cell_id))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            signal.abort("cancelled")
            await asyncio.wait([task])
            raise

    async def _drive(
        self, events: AsyncIterator[AgentEvent], signal: AbortSignal, cell_id: str | None
    ) -> AssistantMessage:
        answer = AssistantMessage()
        try:
            async for event in events:
                await self._scribe.event(event, cell_id)
                if isinstance(event, TurnEndEvent):
                    answer = event.message
                self._happened(event, signal)
            return answer
        finally:
            if self._state.is_streaming:  # torn: the journal failed, or the loop is being stopped
                self._happened(AgentEndEvent(()), signal)
            self._signal = None
            self._scribe.end()

    def _happened(self, event: AgentEvent, signal: AbortSignal) -> None:
        self._state = reduce(self._state, event)
        if isinstance(event, MessageEndEvent) and isinstance(event.message, AssistantMessage):
            self.options.purse.add(event.message.usage)
        self._notify(event, signal)

    def _config(self, model: Model) -> AgentLoopConfig:
        options = self.options
        return AgentLoopConfig(
            model=model,
            thinking_level=self._state.thinking_level,
            before_tool_call=options.before_tool_call,
            after_tool_call=options.after_tool_call,
            tool_execution=options.tool_execution,
            tool_calls_per_turn=options.limits.tool_calls_per_turn,
            tool_calls_per_answer=options.limits.tool_calls_per_answer,
            turns_per_run=options.limits.turns_per_run,
            gate=options.gate,
            store=options.store,
            on_approval=self._scribe.approval,
            steering=self._steering.drain,
            follow_up=self._say_next,
            compaction=options.compaction,
            prepare_context=partial(self._prepare, model, self._state.thinking_level),
            on_tool_result=self._scribe.result,
        )

    def _say_next(self) -> list[AgentMessage]:
        """Return what follows an answer that would end the run: a repair of it, or what is queued."""
        last = self._state.messages[-1] if self._state.messages else None
        if self._form is not None and isinstance(last, AssistantMessage):
            repair = self._form.repair(last)
            if repair is not None:
                return [repair]
        return self._follow_up.drain()

    async def _prepare(
        self, model: Model, level: ThinkingLevel, context: AgentContext
    ) -> AgentContext:
        """Count the request, offer the tools of this moment, and take the request's hash."""
        self._check_requests()
        state = self._state
        context = replace(
            context,
            system_prompt=state.system_prompt,
            tools=dict(state.tools),
            output_schema=self._form.schema if self._form is not None else None,
        )
        if self.options.prepare_context is not None:
            context = await settled(self.options.prepare_context(context))
        await self.options.purse.request(model, context)
        self._requests.append(time.monotonic())
        self._scribe.request_hash = self._hasher.hash(model, level, context)
        return context

    async def _write(self, change: Callable[[Journal], Awaitable[None]]) -> None:
        """Write a setting down: now, or, during a run, when the turn is over."""
        self._scribe.later(change)
        if not self.is_busy:
            await self._scribe.settings()

    def _notify(self, event: AgentEvent, signal: AbortSignal) -> None:
        for subscription in tuple(self._subscriptions):  # another thread may unsubscribe meanwhile
            subscription.put(event, signal)

    def _queues_changed(self) -> None:
        event = QueueUpdateEvent(self._steering.waiting, self._follow_up.waiting)
        self._notify(event, self._signal or AbortSignal())

    def check_idle(self, what: str) -> None:
        """Raise `AgentBusyError` while a run is under way; `what` cannot be done then."""
        if self.is_busy:
            raise AgentBusyError(
                f"The agent is answering; it cannot {what} now.",
                hint="Wait, stop it with %yiem stop, or use steer() or follow_up().",
            )

    def _check_ready(self) -> Model:
        """Return the model that can be asked now, or say why none can."""
        if self._state.model is None:
            raise ProviderError(
                "No model is chosen for this conversation.",
                hint="%yiem model lists what there is.",
                code=ErrorCode.PROVIDER_NOT_CHOSEN,
            )
        self._check_requests()
        return self._state.model

    def _check_messages(self, new: int) -> None:
        limit = self.options.limits.messages_per_session
        if limit is not None and len(self._state.messages) + new > limit:
            raise RateLimitedError(
                f"This conversation has reached its limit of {limit} messages.",
                hint="%yiem compact makes room, %yiem reset starts over; or raise Limits(messages_per_session=…).",
            )

    def _check_requests(self) -> None:
        limit = self.options.limits.messages_per_minute
        now = time.monotonic()
        while self._requests and now - self._requests[0] >= 60:
            self._requests.popleft()
        if limit is not None and len(self._requests) >= limit:
            wait = 60 - (now - self._requests[0])
            raise RateLimitedError(
                f"{limit} requests were sent within the last minute, which is the limit.",
                hint=f"Try again in {wait:.0f} s, or raise Limits(messages_per_minute=…).",
            )


def _as_messages(prompt: Prompt) -> tuple[AgentMessage, ...]:
    """Take a prompt in any of its forms; its last message must want an answer."""
    if isinstance(prompt, str):
        return (UserMessage(prompt),)
    messages = tuple(prompt) if isinstance(prompt, list | tuple) else (prompt,)
    if not messages or isinstance(messages[-1], AssistantMessage):
        what = "an answer" if messages else "empty"
        raise InvalidMessageRoleError(
            f"This prompt is {what}; there is nothing to reply to.",
            hint="End it with a UserMessage.",
        )
    return messages
