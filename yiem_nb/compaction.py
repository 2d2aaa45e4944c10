"""When a conversation outgrows the model's window, a summary stands for its beginning.

The rules are pi's: when to compact, where to cut, what the summary holds. What differs is said in
`DECISIONS.md`. Planning is pure; the summary is asked for through the same `StreamFn` as any answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from yiem_nb.errors import CompactionError
from yiem_nb.events import (
    CALLEE_RAISES,
    Aborted,
    AbortSignal,
    AgentEvent,
    CompactionEndEvent,
    CompactionStartEvent,
    is_own_cancellation,
)
from yiem_nb.messages import (
    AgentMessage,
    AgentToolCall,
    AssistantMessage,
    ImageContent,
    StopReason,
    TextContent,
    ToolResultMessage,
    UserMessage,
    now_ms,
)
from yiem_nb.models import Model, ThinkingLevel
from yiem_nb.state import AgentContext, StreamEvent, StreamFn, compacted
from yiem_nb.tokens import ContextMeter, message_tokens, text_tokens

__all__ = [
    "UNKNOWN_ROOM",
    "Compaction",
    "CompactionPlan",
    "Room",
    "close_stream",
    "meter_of",
    "plan_compaction",
    "request_text",
    "room_of",
    "summarise",
    "summary_message",
    "summary_of",
]

#: How long a stream may take to close its connection.
CLOSE_SECONDS = 1.0
#: Of a tool's result the summariser reads so many characters.
RESULT_CHARACTERS = 2_000
#: Less than this is not worth a summary, which would be no shorter.
LEAST_TOKENS = 200
#: A summary that was cut off by the model's limit is kept from this length on.
LEAST_CHARACTERS = 200

_HEAD = (
    "The conversation history before this point was compacted into the following summary:"
    "\n\n<summary>\n"
)
_TAIL = "\n</summary>"


def summary_message(summary: str, timestamp: int) -> UserMessage:
    """Say in a user's words what a compaction has replaced."""
    content = [{"type": "text", "text": f"{_HEAD}{summary}{_TAIL}"}]
    return UserMessage.model_validate({"content": content, "timestamp": timestamp})


def summary_of(message: AgentMessage) -> str | None:
    """Return the summary that a message tells; ``None`` where it tells none."""
    if not isinstance(message, UserMessage):
        return None
    text = message.text
    if not (text.startswith(_HEAD) and text.endswith(_TAIL)):
        return None
    return text[len(_HEAD) : -len(_TAIL)]


# --- When and where ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Room:
    """What a model's window leaves, in tokens.

    Attributes
    ----------
    limit
        A conversation larger than this is compacted before the next request.
    keep
        How much of its end stays as it is.
    """

    limit: int
    keep: int


#: Where nobody knows the window, what most have.
UNKNOWN_ROOM = Room(100_000, 20_000)


def room_of(model: Model) -> Room | None:
    """Return the room of a model; ``None`` where its window is not known.

    pi reserves 16,384 tokens for the answer and keeps 20,000; a small window gives a quarter and
    keeps a third.
    """
    window = model.context_window
    if window <= 0:
        return None
    reserve = min(16_384, window // 4)
    return Room(window - reserve, min(20_000, window // 3))


def meter_of(context: AgentContext) -> ContextMeter:
    """Estimate what a request holds, and go on counting from there."""
    messages = context.messages
    summary = messages[0] if messages and summary_of(messages[0]) is not None else None
    tools = [tool.parameters for tool in (context.tools or {}).values()]
    since = summary.timestamp if summary is not None else 0
    return ContextMeter(messages, context.system_prompt, tools, since=since)


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """What is summarised and what stays.

    Attributes
    ----------
    cut
        The messages that the summary stands for, without an earlier summary.
    kept
        How many messages stay, the newest.
    earlier
        The summary that this one carries on.
    splits_turn
        Whether what stays begins in the middle of an exchange.
    """

    cut: tuple[AgentMessage, ...]
    kept: int
    earlier: str = ""
    splits_turn: bool = False


def plan_compaction(messages: Sequence[AgentMessage], keep: int) -> CompactionPlan | None:
    """Decide where to cut, or return ``None`` where there is nothing to summarise.

    The end of the conversation stays, about `keep` tokens of it. It never begins with a tool's
    result: a call and its results stay together. The last question always stays.
    """
    earlier = summary_of(messages[0]) if messages else None
    first = 0 if earlier is None else 1
    start = _start(messages, first, keep)
    if start <= first or sum(map(message_tokens, messages[first:start])) < LEAST_TOKENS:
        return None
    return CompactionPlan(
        cut=tuple(messages[first:start]),
        kept=len(messages) - start,
        earlier=earlier or "",
        splits_turn=not isinstance(messages[start], UserMessage),
    )


def _start(messages: Sequence[AgentMessage], first: int, keep: int) -> int:
    """Return where what stays begins."""
    start = len(messages)
    tokens = 0
    while start > first:
        tokens += message_tokens(messages[start - 1])
        if tokens > keep and start < len(messages):
            break
        start -= 1
    # A batch is passed over; where nothing is left behind it, what stays begins with its call.
    after = start
    while after < len(messages) and isinstance(messages[after], ToolResultMessage):
        after += 1
    if after < len(messages):
        return after
    while start > first and isinstance(messages[start], ToolResultMessage):
        start -= 1
    return start


# --- What the summariser reads and writes --------------------------------------------------

_SYSTEM = (
    "You summarise a conversation between a user and an assistant that works in a notebook, so that the"
    " assistant can go on from the summary alone. Do not continue the conversation and do not answer"
    " questions in it. Write only the summary."
)
_SHAPE = """Use exactly these headings:

## Goal
What the user wants.
## Constraints and preferences
What was asked for or ruled out.
## Progress
### Done
### In progress
### Blocked
## Key decisions
Each with its reason.
## Next steps
In order.
## Critical context
Names of variables, functions, columns, files and cells; exact values, errors and results that are needed to go on.

Be brief. Keep names, paths, numbers and error messages exactly as they are."""
_UPDATE = (
    "Below is also the summary of what came before. Carry it on: keep what still holds, move what was"
    " finished to Done, add what is new.\n\n<previous-summary>\n{}\n</previous-summary>\n\n"
)
_SPLIT = (
    "The conversation breaks off in the middle of an exchange whose end the assistant still has. Say under"
    " In progress what was asked in it and what was found so far.\n\n"
)
_BRANCH_SHAPE = (
    "The user goes back to an earlier point and leaves this branch of the conversation. Summarise what was"
    " tried on it and what came of it, for the assistant that goes on elsewhere.\n\n"
)


def request_text(
    cut: Sequence[AgentMessage],
    *,
    budget: int,
    earlier: str = "",
    splits_turn: bool = False,
    instructions: str = "",
    branch: bool = False,
) -> str:
    """Write what the summariser is asked; of a long conversation its end, within `budget` tokens."""
    parts = [_BRANCH_SHAPE if branch else "", _SHAPE, "\n\n"]
    if instructions:
        parts.append(f"Above all: {instructions}\n\n")
    if earlier:
        parts.append(_UPDATE.format(earlier))
    if splits_turn:
        parts.append(_SPLIT)
    left = budget - text_tokens("".join(parts))
    lines: list[str] = []
    for message in reversed(cut):
        said = _said(message)
        left -= text_tokens(said)
        if left < 0 and lines:
            lines.append("[what came before this is left out]")
            break
        lines.append(said)
    talk = "\n\n".join(reversed(lines))
    return f"{''.join(parts)}<conversation>\n{talk}\n</conversation>"


def _said(message: AgentMessage) -> str:
    """Write a message down for the summariser: no thoughts, no images, little of outputs."""
    name = {"user": "User", "assistant": "Assistant"}.get(message.role, "Tool result")
    parts = []
    for block in message.content:
        if isinstance(block, TextContent):
            parts.append(block.text)
        elif isinstance(block, ImageContent):
            parts.append("[an image]")
        elif isinstance(block, AgentToolCall):
            arguments = ", ".join(
                f"{key}={value!r}" for key, value in (block.arguments or {}).items()
            )
            parts.append(f"[calls {block.name}({_clipped(arguments)})]")
    text = "\n".join(parts)
    if isinstance(message, ToolResultMessage):
        name, text = f"Result of {message.tool_name}", _clipped(text)
    return f"[{name}]: {text}"


def _clipped(text: str) -> str:
    left_out = len(text) - RESULT_CHARACTERS
    return text if left_out <= 0 else f"{text[:RESULT_CHARACTERS]}… [{left_out:,} more characters]"


async def summarise(
    text: str,
    model: Model,
    stream_fn: StreamFn,
    signal: AbortSignal,
    level: ThinkingLevel = ThinkingLevel.OFF,
) -> AssistantMessage:
    """Ask the model for a summary; the answer holds text, and nothing else is wanted of it.

    Raises
    ------
    CompactionError
        It failed, was empty, called a tool, or was cut off before it said anything.
    Aborted
        `signal` fired.
    """
    context = AgentContext(_SYSTEM, (UserMessage(text),), {})
    answer: AssistantMessage | None = None
    stream = stream_fn(model, context, level, signal)
    try:
        async for item in stream:
            if isinstance(item, AssistantMessage):
                answer = item
    finally:
        if isinstance(stream, AsyncGenerator):
            await close_stream(stream)
    signal.raise_if_aborted()
    if answer is None:
        raise CompactionError("The summary did not arrive.")
    if answer.stop_reason is StopReason.ERROR:
        raise CompactionError(answer.error_message or "The summary could not be made.")
    said = answer.text.strip()
    if answer.tool_calls or not said:
        raise CompactionError("The model was asked for a summary and gave none.")
    if answer.stop_reason is StopReason.LENGTH:
        # Small models seldom end by themselves; what they said until then is better than nothing.
        if len(said) < LEAST_CHARACTERS:
            raise CompactionError("The summary was cut off by the model's limit.")
        said = f"{said.rpartition(chr(10))[0] or said}\n[the summary was cut off here]"
    return answer.model_copy(update={"content": (TextContent(said),)})


async def close_stream(stream: AsyncGenerator[StreamEvent]) -> None:
    """Let a stream clean up; neither its failing nor its dawdling changes what it has said."""
    with suppress(Exception):
        async with asyncio.timeout(CLOSE_SECONDS):
            await stream.aclose()


# --- Doing it ------------------------------------------------------------------------------


@dataclass(slots=True)
class Compaction:
    """One compaction, from its first event to its last.

    Afterwards `messages` is the conversation that the model sees from now on; the old one where
    the summary could not be made.
    """

    context: AgentContext
    model: Model
    level: ThinkingLevel
    signal: AbortSignal
    reason: str
    instructions: str = ""
    messages: tuple[AgentMessage, ...] = ()
    done: bool = False
    end: CompactionEndEvent = field(default_factory=CompactionEndEvent)

    async def run(self, stream_fn: StreamFn) -> AsyncIterator[AgentEvent]:
        """Say that it begins, make the summary, and say how it ended."""
        self.messages = self.context.messages
        before = meter_of(self.context).tokens
        yield CompactionStartEvent(self.reason)
        try:
            with self.signal.guard():
                self.end = await self._summary(stream_fn)
            self.done = True
            self.messages = compacted(self.messages, self.end)
        except Aborted:
            self.end = CompactionEndEvent(error_message="It was stopped.")
        except CALLEE_RAISES as error:
            if is_own_cancellation(error):
                raise
            self.end = CompactionEndEvent(error_message=str(error))
        after = meter_of(replace(self.context, messages=self.messages)).tokens
        self.end = replace(self.end, tokens_before=before, tokens_after=after)
        yield self.end

    async def _summary(self, stream_fn: StreamFn) -> CompactionEndEvent:
        room = room_of(self.model) or UNKNOWN_ROOM
        messages = self.context.messages
        # An answer that failed stays behind what is kept, whatever it is.
        failed = bool(messages) and _has_failed(messages[-1])
        plan = plan_compaction(messages[: len(messages) - failed], room.keep)
        if plan is None:
            raise CompactionError("There is nothing to summarise yet.")
        text = request_text(
            plan.cut,
            budget=room.limit,
            earlier=plan.earlier,
            splits_turn=plan.splits_turn,
            instructions=self.instructions,
        )
        answer = await summarise(text, self.model, stream_fn, self.signal, self.level)
        message = summary_message(answer.text, now_ms())
        return CompactionEndEvent(message=message, kept=plan.kept + failed, usage=answer.usage)


def _has_failed(message: AgentMessage) -> bool:
    return isinstance(message, AssistantMessage) and message.stop_reason is StopReason.ERROR
