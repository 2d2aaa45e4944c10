"""What a person does in a page, done to the session."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from yiem_nb.errors import CommandError, ErrorCode, YiemError
from yiem_nb.events import AbortSignal, AgentEvent, AgentStartEvent
from yiem_nb.messages import (
    AgentMessage,
    AssistantMessage,
    ImageContent,
    TextContent,
    UserMessage,
    text_of,
)
from yiem_nb.models import ThinkingLevel
from yiem_nb.tools import ApprovalDesk, Decision
from yiem_nb.widget.protocol import ModelChoice, Queued, SessionView

if TYPE_CHECKING:
    from yiem_nb.agent import Agent
    from yiem_nb.kernel.workspace import Workspace
    from yiem_nb.widget.hub import Hub
    from yiem_nb.widget.record import TurnRecord

__all__ = ["Controls"]

_MAX_OFFERS = 30
Operation: TypeAlias = Callable[[dict[str, Any]], Any]


class Controls:
    """Carries out wishes; on the loop thread.

    Parameters
    ----------
    workspace
        The kernel's conversation.
    desk
        Where answers to questions go.
    choose_model
        Makes a model the typed choice; runs in a thread, because it may look for servers.
    """

    def __init__(
        self, workspace: Workspace, desk: ApprovalDesk, choose_model: Callable[[str], object]
    ) -> None:
        self.hub: Hub | None = None
        self._workspace = workspace
        self._desk = desk
        self._choose_model = choose_model
        self._notice = ""
        self._known: dict[str, str] = {}
        self._runs: set[asyncio.Task[Any]] = set()
        self._operations: dict[str, Operation] = {
            "prompt": self._prompt,
            "steer": self._steer,
            "follow_up": self._follow_up,
            "unqueue": self._unqueue,
            "stop": self._stop,
            "approve": self._approve,
            "model": self._model,
            "thinking": self._thinking,
            "complete": self._complete,
            "insert": self._insert,
        }

    async def carry_out(self, op: str, args: dict[str, Any]) -> Any:
        """Do what is asked and return what the page is told."""
        result = self._operations[op](args)
        return await result if asyncio.iscoroutine(result) else result

    # --- Saying something --------------------------------------------------------------

    async def _prompt(self, args: dict[str, Any]) -> None:
        """Begin a turn; done once it has begun."""
        message = _message(args["text"], args["images"])
        self._workspace.open().agent.check_idle("prompt")
        if args["images"]:
            model = (await asyncio.to_thread(self._workspace.choose, headless=False)).model
            if "image" not in model.input:
                raise CommandError(
                    f"{model.label} is not known to take pictures.",
                    hint="Remove them, or choose another model.",
                )
        assert self.hub is not None
        record = self.hub.begin("chat", None, self._workspace.open().choice.model.label)
        view = _ChatView(self.hub, record, self._workspace)
        run = asyncio.ensure_future(self._workspace.converse(message, view, self._desk))
        self._runs.add(run)
        run.add_done_callback(self._ended)
        begun = asyncio.ensure_future(view.begun.wait())
        await asyncio.wait([run, begun], return_when=asyncio.FIRST_COMPLETED)
        begun.cancel()
        if run.done() and not view.begun.is_set():
            run.result()

    def _ended(self, run: asyncio.Task[AssistantMessage]) -> None:
        """Say what ended a turn that had begun; its own card says the rest."""
        self._runs.discard(run)
        error = None if run.cancelled() else run.exception()
        self._notice = str(error) if isinstance(error, YiemError) else ""
        if self.hub is not None:
            self.hub.tell_session()

    def _steer(self, args: dict[str, Any]) -> None:
        self._running().steer(args["text"])

    def _follow_up(self, args: dict[str, Any]) -> None:
        self._running().follow_up(args["text"])

    def _running(self) -> Agent:
        agent = self._workspace.open().agent
        if not agent.is_busy:
            raise CommandError("The answer is finished already.", hint="Send it as a prompt.")
        return agent

    def _unqueue(self, args: dict[str, Any]) -> None:
        agent = self._workspace.open().agent
        for message in (*agent.queued[0], *agent.queued[1]):
            if _name(message) == args["item"] and agent.withdraw(message):
                return
        raise CommandError("It was said already.")

    def _stop(self, args: dict[str, Any]) -> bool:
        return self._workspace.stop()

    # --- Answering questions -----------------------------------------------------------

    def _approve(self, args: dict[str, Any]) -> None:
        """Hand an answer to the question that waits for it; each question takes one."""
        kind = args["decision"]
        if kind not in ("once", "session", "edit", "deny"):
            raise CommandError("This is no answer to the question.")
        arguments = _arguments(args["arguments"]) if kind == "edit" else None
        decision = Decision(
            nonce=args["nonce"], kind=kind, reason=args["reason"][:2_000], arguments=arguments
        )
        if not self._desk.answer(decision):
            raise CommandError("This question was answered already, or is not asked any more.")

    # --- Settings ----------------------------------------------------------------------

    async def _model(self, args: dict[str, Any]) -> None:
        await asyncio.to_thread(self._choose_model, args["name"])
        choice = await asyncio.to_thread(self._workspace.choose, headless=False)
        conversation = self._workspace.open()
        if not conversation.agent.is_busy:
            conversation.choice = choice
        self._known[args["name"]] = choice.model.label

    async def _thinking(self, args: dict[str, Any]) -> None:
        try:
            level = ThinkingLevel(args["level"])
        except ValueError as error:
            raise CommandError(f"There is no thinking level {args['level']}.") from error
        await self._workspace.open().agent.set_thinking_level(level)

    # --- Small services ----------------------------------------------------------------

    def _complete(self, args: dict[str, Any]) -> list[dict[str, str]]:
        """Offer the names of variables after ``@``."""
        text = args["text"]
        if not text.startswith("@"):
            return []
        space = self._workspace.shell.user_ns
        hidden = self._workspace.shell.user_ns_hidden
        names = sorted(
            name
            for name in list(space)
            if name.startswith(text[1:]) and not name.startswith("_") and name not in hidden
        )
        return [
            {"text": f"@{name}", "about": type(space.get(name)).__name__}
            for name in names[:_MAX_OFFERS]
        ]

    def _insert(self, args: dict[str, Any]) -> None:
        """Let the running cell put code below itself; only a cell that runs can."""
        if not self._workspace.insert_below(args["code"]):
            raise CommandError(
                "No cell runs that could insert it.", code=ErrorCode.KERNEL_UNAVAILABLE
            )

    # --- The session -------------------------------------------------------------------

    def session(self) -> SessionView:
        """Describe the session beside its turns."""
        conversation = self._workspace.open()
        agent = conversation.agent
        model = conversation.choice.model
        self._known.setdefault(model.label, model.label)
        sent = cached = output = used = 0
        cost = 0.0
        for message in agent.state.messages:
            if isinstance(message, AssistantMessage) and message.usage.reported:
                usage = message.usage
                sent += usage.input + usage.cache_read + usage.cache_write
                cached += usage.cache_read
                output += usage.output
                cost += usage.cost.total
                used = usage.total_tokens
        levels = [str(level) for level in ThinkingLevel] if model.reasoning else ["off"]
        return SessionView(
            name=conversation.storage.path.name.removesuffix(".yiem.jsonl"),
            busy=agent.is_busy,
            model=model.label,
            models=[ModelChoice(name=name, label=label) for name, label in self._known.items()],
            thinking=str(agent.state.thinking_level),
            levels=levels,
            queue=[
                Queued(id=_name(message), mode=mode, text=text_of(message.content))
                for mode, messages in _queues(agent)
                for message in messages
            ],
            contextUsed=used,
            contextWindow=model.context_window,
            input=sent,
            cached=cached,
            output=output,
            cost=cost,
            notice=self._notice,
        )


class _ChatView:
    """The view of a turn that has no cell: pages show it, and nothing else."""

    def __init__(self, hub: Hub, record: TurnRecord, workspace: Workspace) -> None:
        self.begun = asyncio.Event()
        self.finished = asyncio.Event()
        self._hub = hub
        self._record = record
        self._workspace = workspace

    async def __call__(self, event: AgentEvent, signal: AbortSignal) -> None:
        """Tell the pages."""
        if isinstance(event, AgentStartEvent):
            self._record.label = self._workspace.open().choice.model.label
            self.begun.set()
        self._hub.happened(self._record, event)
        if self._record.done:
            self.finished.set()

    def notice(self, text: str) -> None:
        """Nothing is said beside the card."""

    def abandon(self) -> None:
        """Nothing waits outside of pages."""


def _queues(agent: Agent) -> Iterator[tuple[Literal["steer", "next"], Sequence[AgentMessage]]]:
    steering, follow_up = agent.queued
    yield "steer", steering
    yield "next", follow_up


def _message(text: str, images: list[Any]) -> UserMessage:
    blocks: list[Any] = [TextContent(text)] if text.strip() else []
    blocks += [ImageContent(data=image["data"], mime_type=image["mimeType"]) for image in images]
    if not blocks:
        raise CommandError("There is nothing to send.", code=ErrorCode.PROMPT_EMPTY)
    return UserMessage(blocks)


def _arguments(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CommandError(f"The arguments are no JSON ({error}).") from error
    if not isinstance(value, dict):
        raise CommandError("The arguments are no JSON object.")
    return value


def _name(message: AgentMessage) -> str:
    """Name a queued message for as long as it waits."""
    return f"q{id(message):x}"
