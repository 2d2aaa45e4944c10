"""A run, shown in its cell: one display for each text segment and each call, in order.

Both views are listeners. They run on the loop thread in the context of the cell, so what they publish
lands there. While text streams its display is sent again at the pacer's rate; when the message ends
each display becomes a static rendering that reads well without this extension.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

from yiem_nb.errors import ErrorCode
from yiem_nb.events import (
    AbortSignal,
    AgentEndEvent,
    AgentEvent,
    CompactionEndEvent,
    CompactionStartEvent,
    MessageEndEvent,
    MessageUpdateEvent,
    RetryEvent,
    ToolApprovalEndEvent,
    ToolApprovalRequestEvent,
    ToolExecutionEndEvent,
    ToolExecutionStartEvent,
    ToolExecutionUpdateEvent,
    TurnEndEvent,
)
from yiem_nb.kernel.pacing import Pacer
from yiem_nb.messages import (
    AgentMessage,
    AgentToolResult,
    AssistantMessage,
    ImageContent,
    ReasoningContent,
    StopReason,
    TextContent,
    ToolResultMessage,
    Usage,
    UsageCost,
)
from yiem_nb.render import (
    CallState,
    CallView,
    StreamingMarkdown,
    call_bundle,
    footer_bundle,
    html_of,
    notice_bundle,
    seconds_text,
    status_bundle,
    text_bundle,
    thinking_bundle,
)

__all__ = [
    "CellView",
    "Publish",
    "TerminalView",
    "View",
    "compaction_line",
    "shell_publisher",
    "was_stopped",
]

Bundle = Mapping[str, Any]


class Publish(Protocol):
    """Sends a display to the front end."""

    def __call__(self, bundle: Bundle, display_id: str, *, update: bool) -> None:
        """Show `bundle`, or, with `update`, let it replace what `display_id` shows."""


def shell_publisher(shell: Any) -> Publish:
    """Publish through IPython, as `display` and `update_display` do with ready bundles."""
    # The publisher of now: while code of the model runs, the shell has one that captures.
    publisher = shell.display_pub

    def publish(bundle: Bundle, display_id: str, *, update: bool) -> None:
        publisher.publish(
            data=dict(bundle), metadata={}, transient={"display_id": display_id}, update=update
        )

    return publish


class View(Protocol):
    """A listener that shows a run."""

    finished: asyncio.Event

    async def __call__(self, event: AgentEvent, signal: AbortSignal) -> None:
        """Show what `event` says."""

    def notice(self, text: str) -> None:
        """Say something quietly, after what is there."""

    def abandon(self) -> None:
        """Take away the waiting line of a run that never began, or was left behind."""


@dataclass(slots=True)
class _Slot:
    """One display of the cell."""

    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    shown: bool = False


@dataclass(slots=True)
class _Segment:
    """One block of the answer while it arrives."""

    slot: _Slot
    kind: str
    text: StreamingMarkdown
    pacer: Pacer
    started: float
    #: Whether nothing of it was shown yet, and whether there is more than was shown.
    fresh: bool = True
    dirty: bool = False


@dataclass(slots=True)
class _Card:
    """One call."""

    slot: _Slot
    view: CallView
    started: float


@dataclass(slots=True)
class _Totals:
    """What the run has used so far."""

    usage: Usage = field(default_factory=Usage)
    reported: bool = False

    def add(self, usage: Usage) -> None:
        if not usage.reported:
            return
        self.reported = True
        one, two = self.usage, usage
        cost = UsageCost(total=one.cost.total + two.cost.total)
        self.usage = Usage(
            one.input + two.input,
            one.output + two.output,
            one.cache_read + two.cache_read,
            one.cache_write + two.cache_write,
            one.reasoning + two.reasoning,
            cost=cost,
        )


class CellView:
    """A run in a notebook cell.

    Parameters
    ----------
    publish
        Sends a display.
    waiting_for
        What the quiet line says until something arrives.
    model
        The model's name, for the last line.
    show_usage
        Whether the last line has tokens and time; without them a notebook that is run again
        shows fewer differences in git.
    """

    def __init__(
        self, publish: Publish, *, waiting_for: str, model: str, show_usage: bool = True
    ) -> None:
        self._publish = publish
        self._waiting_for = waiting_for
        self._model = model
        self._show_usage = show_usage
        self._started = self._waiting_since = time.monotonic()
        self._status = ""
        self._until: float | None = None
        self._spare: _Slot | None = None
        self._segments: dict[int, _Segment] = {}
        self._cards: dict[str, _Card] = {}
        self._totals = _Totals()
        self._ticker: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()
        self.finished = asyncio.Event()
        #: Whether growing text is not drawn, because another view shows it meanwhile.
        self.hold = False
        self._wait(waiting_for)

    async def __call__(self, event: AgentEvent, signal: AbortSignal) -> None:
        """Show what `event` says."""
        if self._ticker is None:
            self._ticker = asyncio.create_task(self._tick())
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(self, event)

    def notice(self, text: str) -> None:
        """Say something quietly, after what is there."""
        waiting = self._spare is not None and not self.finished.is_set()
        self._show(self._new_slot(), notice_bundle(text))
        if waiting:
            self._wait(self._status)

    def abandon(self) -> None:
        """Take away the waiting line of a run that never began, or was left behind."""
        if not self.finished.is_set():
            self.finished.set()
            self._show(self._new_slot(), notice_bundle("■ not answered"))

    # --- Events ------------------------------------------------------------------------

    def _on_delta(self, event: MessageUpdateEvent) -> None:
        if event.kind == "toolCall":
            if event.name:
                self._wait(f"calling {event.name}")
            return
        segment = self._segment(event.index, event.kind)
        segment.text.feed(event.text)
        segment.pacer.received(len(event.text))
        if segment.dirty or self.hold:
            return  # the ticker knows already, or another view shows it
        segment.dirty = True
        if segment.fresh:
            self._refresh(segment)
        else:
            self._woken.set()

    def _on_message_end(self, event: MessageEndEvent) -> None:
        message = event.message
        if not isinstance(message, AssistantMessage):
            return
        for index, block in enumerate(message.content):
            if isinstance(block, TextContent) and block.text:
                slot = self._segment(index, "text").slot
                self._show(slot, text_bundle(block.text))
            elif isinstance(block, ReasoningContent) and block.text:
                segment = self._segment(index, "thinking")
                seconds = time.monotonic() - segment.started
                self._show(segment.slot, thinking_bundle(block.text, self._seconds(seconds)))
        self._segments.clear()
        self._totals.add(message.usage)

    def _on_retry(self, event: RetryEvent) -> None:
        self._wait(event.reason, until=time.monotonic() + event.delay)

    def _on_compaction_start(self, event: CompactionStartEvent) -> None:
        self._wait(f"making room: {event.reason}")

    def _on_compaction_end(self, event: CompactionEndEvent) -> None:
        self._show(self._new_slot(), notice_bundle(compaction_line(event)))

    def _on_tool_start(self, event: ToolExecutionStartEvent) -> None:
        view = CallView(name=event.tool_name, arguments=event.args, state="running")
        card = _Card(self._new_slot(), view, time.monotonic())
        self._cards[event.tool_call_id] = card
        self._show(card.slot, call_bundle(view))

    def _on_approval_request(self, event: ToolApprovalRequestEvent) -> None:
        self._change_card(event.tool_call_id, state="waiting")

    def _on_approval_end(self, event: ToolApprovalEndEvent) -> None:
        edited = {} if event.args is None else {"arguments": event.args}
        self._change_card(event.tool_call_id, state="running", **edited)

    def _change_card(self, call_id: str, **changes: Any) -> None:
        card = self._cards.get(call_id)
        if card is not None:
            card.view = replace(card.view, **changes)
            self._show(card.slot, call_bundle(card.view))

    def _on_tool_update(self, event: ToolExecutionUpdateEvent) -> None:
        card = self._cards.get(event.tool_call_id)
        if card is not None:
            seconds = time.monotonic() - card.started
            printed = event.partial_result.text
            card.view = replace(card.view, seconds=seconds, output=printed)
            self._show(card.slot, call_bundle(card.view))

    def _on_tool_end(self, event: ToolExecutionEndEvent) -> None:
        card = self._cards.pop(event.tool_call_id, None)
        if card is None:
            return
        seconds = self._seconds(time.monotonic() - card.started)
        view = settled_call(card.view, event.result, seconds)
        self._show(card.slot, call_bundle(view))
        for block in event.result.content:
            if isinstance(block, ImageContent):
                self._show(self._new_slot(), {block.mime_type: block.data, "text/plain": "figure"})

    def _on_turn_end(self, event: TurnEndEvent) -> None:
        if event.tool_results:
            self._wait(self._waiting_for)

    def _on_agent_end(self, event: AgentEndEvent) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
        seconds = time.monotonic() - self._started
        self._show(self._new_slot(), self._ending(event, seconds))
        self.finished.set()

    _handlers: ClassVar[dict[type, Callable[[CellView, Any], None]]] = {
        MessageUpdateEvent: _on_delta,
        MessageEndEvent: _on_message_end,
        RetryEvent: _on_retry,
        CompactionStartEvent: _on_compaction_start,
        CompactionEndEvent: _on_compaction_end,
        ToolExecutionStartEvent: _on_tool_start,
        ToolApprovalRequestEvent: _on_approval_request,
        ToolApprovalEndEvent: _on_approval_end,
        ToolExecutionUpdateEvent: _on_tool_update,
        ToolExecutionEndEvent: _on_tool_end,
        TurnEndEvent: _on_turn_end,
        AgentEndEvent: _on_agent_end,
    }

    # --- Displays ----------------------------------------------------------------------

    def _ending(self, event: AgentEndEvent, seconds: float) -> Bundle:
        last = event.messages[-1] if event.messages else None
        if was_stopped(last):
            after = f" after {seconds_text(seconds)}" if self._show_usage else ""
            return notice_bundle(f"■ stopped{after} · the partial answer is kept")
        return self._footer(seconds)

    def _footer(self, seconds: float) -> Bundle:
        usage = self._totals.usage if self._totals.reported else Usage(reported=False)
        if not self._show_usage:
            return footer_bundle(self._model)
        return footer_bundle(self._model, usage=usage, seconds=seconds)

    def _seconds(self, seconds: float) -> float | None:
        return seconds if self._show_usage else None

    def _segment(self, index: int, kind: str) -> _Segment:
        segment = self._segments.get(index)
        if segment is None:
            segment = _Segment(
                self._new_slot(), kind, StreamingMarkdown(), Pacer(), time.monotonic()
            )
            self._segments[index] = segment
        return segment

    def _new_slot(self) -> _Slot:
        """Take the place of the waiting line, or a new one at the end."""
        slot, self._spare = self._spare or _Slot(), None
        return slot

    def _wait(self, text: str, *, until: float | None = None) -> None:
        """Show a waiting line; what comes next takes its place.

        With `until`, on the monotonic clock, it counts down to the next try.
        """
        if self._spare is None:
            self._spare = _Slot()
            self._waiting_since = time.monotonic()
        self._status, self._until = text, until
        self._show_status(time.monotonic())

    def _show_status(self, now: float) -> None:
        assert self._spare is not None
        text = self._status
        if self._until is not None:
            text = f"{text} Trying again in {max(0.0, self._until - now):.0f} s."
        self._show(self._spare, status_bundle(text, now - self._waiting_since))

    def _refresh(self, segment: _Segment) -> None:
        now = time.monotonic()
        if segment.kind == "text":
            bundle: Bundle = {"text/html": html_of(segment.text.html), "text/plain": ""}
        else:
            bundle = thinking_bundle(segment.text.text, now - segment.started)
        size = sum(len(value) for value in bundle.values())
        if not segment.fresh and not segment.pacer.due(now, size):
            return
        segment.fresh = segment.dirty = False
        segment.pacer.sent(now, size)
        self._show(segment.slot, bundle)

    def _show(self, slot: _Slot, bundle: Bundle) -> None:
        self._publish(bundle, slot.id, update=slot.shown)
        slot.shown = True

    async def _tick(self) -> None:
        """Send what has grown, and count the seconds of what is waited for."""
        while not self.finished.is_set():
            dirty = [segment for segment in self._segments.values() if segment.dirty]
            if dirty:
                now = time.monotonic()
                await asyncio.sleep(min(segment.pacer.delay(now) for segment in dirty))
                for segment in [s for s in self._segments.values() if s.dirty]:
                    self._refresh(segment)
                continue
            self._woken.clear()
            try:
                async with asyncio.timeout(1.0):
                    await self._woken.wait()
            except TimeoutError:
                self._count_seconds()

    def _count_seconds(self) -> None:
        now = time.monotonic()
        if self._spare is not None and self._spare.shown:
            self._show_status(now)
        for card in self._cards.values():
            card.view = replace(card.view, seconds=now - card.started)
            self._show(card.slot, call_bundle(card.view))


def compaction_line(event: CompactionEndEvent) -> str:
    """Say in one line how a compaction went; the tokens are estimates."""
    if event.message is None:
        return f"not compacted: {event.error_message}"
    return f"compacted: about {event.tokens_before:,} → {event.tokens_after:,} tokens"


def was_stopped(last: AgentMessage | None) -> bool:
    """Whether a run's last message says that it was stopped."""
    if isinstance(last, AssistantMessage):
        return last.stop_reason is StopReason.ABORTED
    return isinstance(last, ToolResultMessage) and last.aborted


_STATES: dict[str, CallState] = {
    ErrorCode.EXECUTION_ABORTED: "aborted",
    ErrorCode.EXECUTION_DENIED: "denied",
}


def settled_call(view: CallView, result: AgentToolResult, seconds: float | None) -> CallView:
    """Return the card of a call that is over."""
    details = result.details if isinstance(result.details, dict) else {}
    state: CallState = "error" if result.is_error else "ok"
    state = _STATES.get(str(details.get("code")), state)
    return replace(
        view,
        state=state,
        seconds=seconds,
        summary=str(details.get("summary", "")),
        output=str(details.get("output", "")),
        result=result.text,
    )


class TerminalView:
    """A run in a terminal: text as it comes, a line for each call, no control characters."""

    def __init__(self, write: Callable[[str], Any], *, model: str, show_usage: bool = True) -> None:
        self._write = write
        self._model = model
        self._show_usage = show_usage
        self._started = time.monotonic()
        self._streamed: set[int] = set()
        self._at_line_start = True
        self._cards: dict[str, _Card] = {}
        self._totals = _Totals()
        self.finished = asyncio.Event()

    async def __call__(self, event: AgentEvent, signal: AbortSignal) -> None:
        """Show what `event` says."""
        if isinstance(event, MessageUpdateEvent):
            if event.kind == "text":
                self._streamed.add(event.index)
                self._say(event.text)
        elif isinstance(event, MessageEndEvent):
            self._on_message_end(event)
        elif isinstance(event, CompactionEndEvent):
            self._line(compaction_line(event))
        elif isinstance(event, RetryEvent):
            self._line(f"{event.reason} Trying again in {event.delay:.0f} s.")
        elif isinstance(event, ToolExecutionStartEvent):
            view = CallView(name=event.tool_name, arguments=event.args, state="running")
            self._cards[event.tool_call_id] = _Card(_Slot(), view, time.monotonic())
        elif isinstance(event, ToolExecutionEndEvent):
            self._on_tool_end(event)
        elif isinstance(event, AgentEndEvent):
            self._on_agent_end(event)

    def notice(self, text: str) -> None:
        """Say something on a line of its own."""
        self._line(notice_bundle(text)["text/plain"])

    def abandon(self) -> None:
        """Nothing waits on a line here."""

    def _on_message_end(self, event: MessageEndEvent) -> None:
        message = event.message
        if isinstance(message, AssistantMessage):
            for index, block in enumerate(message.content):
                if isinstance(block, TextContent) and index not in self._streamed:
                    self._say(block.text)
            self._streamed.clear()
            self._totals.add(message.usage)

    def _on_tool_end(self, event: ToolExecutionEndEvent) -> None:
        card = self._cards.pop(event.tool_call_id)
        seconds = time.monotonic() - card.started
        view = settled_call(card.view, event.result, seconds if self._show_usage else None)
        self._line(str(call_bundle(view)["text/plain"]))

    def _on_agent_end(self, event: AgentEndEvent) -> None:
        usage = self._totals.usage if self._totals.reported else Usage(reported=False)
        if self._show_usage:
            footer = footer_bundle(
                self._model, usage=usage, seconds=time.monotonic() - self._started
            )
        else:
            footer = footer_bundle(self._model)
        if event.messages and was_stopped(event.messages[-1]):
            footer = notice_bundle("■ stopped · the partial answer is kept")
        self._line("")
        self._line(footer["text/plain"])
        self.finished.set()

    def _say(self, text: str) -> None:
        if text:
            self._write(text)
            self._at_line_start = text.endswith("\n")

    def _line(self, text: str) -> None:
        if not self._at_line_start:
            self._write("\n")
        self._write(text + "\n")
        self._at_line_start = True
