"""One kernel's conversation: its notebook, session, model, tools and agent, opened on first use."""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from yiem_nb.agent import Prompt
from yiem_nb.errors import CommandError, ErrorCode, ProviderError, YiemError
from yiem_nb.events import AbortSignal
from yiem_nb.kernel import compat
from yiem_nb.kernel.approval import PlainApprover
from yiem_nb.kernel.bridge import Bridge
from yiem_nb.kernel.conversation import Conversation
from yiem_nb.kernel.desk import SessionDesk
from yiem_nb.kernel.front import FrontEnd
from yiem_nb.kernel.functions import FunctionRunner
from yiem_nb.kernel.kernel_tools import provide_kernel_tools
from yiem_nb.kernel.notebook import MODEL_VARIABLE, find_notebook
from yiem_nb.kernel.page import RunningCell
from yiem_nb.kernel.private_loop import PrivateLoop
from yiem_nb.kernel.tenure import Tenure
from yiem_nb.kernel.toolbox import Toolbox
from yiem_nb.kernel.user_code import UserCode
from yiem_nb.kernel.view import (
    CellView,
    Publish,
    TerminalView,
    View,
    compaction_line,
    shell_publisher,
)
from yiem_nb.messages import AgentMessage, AssistantMessage, StopReason
from yiem_nb.models import Model, ThinkingLevel
from yiem_nb.providers import ScriptedProvider
from yiem_nb.providers.resolve import Choice, Settings, list_models, resolve
from yiem_nb.session import How, Ledger, ledger_path, lock_folder
from yiem_nb.state import AgentContext, StreamEvent
from yiem_nb.tools import Approver, ToolRegistry

__all__ = ["Workspace"]


class Workspace:
    """What `%%yiem` works with.

    Parameters
    ----------
    shell
        IPython's.
    settings
        Returns what was typed in this kernel: model, address, key variable.
    registry
        The functions the model may call; they run on the main thread from now on.
    """

    def __init__(
        self, shell: Any, settings: Callable[[], Settings], registry: ToolRegistry
    ) -> None:
        self.shell = shell
        self.registry = registry
        self.toolbox = Toolbox(registry)
        self.tap = compat.CommTap(shell)
        self.bridge = Bridge(pump=self.tap.pump if self.tap.needs_pump else None)
        #: Shows turns live in a browser; whoever knows how sets it.
        self.front: FrontEnd | None = None
        self._settings = settings
        #: How many cells wait for an answer: one, or more where a tool asks again.
        self._asking = 0
        self._scripted: ScriptedProvider | None = None
        self._providers: dict[str, Any] = {}
        self._private = PrivateLoop()
        self._conversation: Conversation | None = None
        self._history: compat.PausedHistory | None = None
        self.desk = SessionDesk(self.open, self.summarise)
        registry.namespace = lambda: shell.user_ns
        functions = FunctionRunner(registry, self._private)
        registry.runner, registry.thread_runner = functions.on_main, functions.in_thread
        registry.formatter = shell.display_formatter.format
        provide_kernel_tools(registry, UserCode(shell, self._private))
        shell.events.register("post_run_cell", self._check_tools)
        atexit.register(self.close)

    def _check_tools(self, result: Any) -> None:
        """Look at the functions after each cell, and say at once what can no longer be called."""
        if self._conversation is not None and self._conversation.agent.is_busy:
            return  # code of the model has run, within a cell of the user's; the run's end says it
        self.registry.active()
        for said in self.registry.notices():
            print(said)  # noqa: T201 - in the cell that did it

    # --- Asking ------------------------------------------------------------------------

    def ask(
        self,
        text: str,
        *,
        model: str = "",
        how: How = "place",
        show_usage: bool = True,
        output_type: type[Any] | None = None,
    ) -> Any:
        """Send a prompt, show the answer in this cell, and return it, or the value it is.

        Raises
        ------
        ProviderError
            No model is chosen, or the request failed; what had arrived is kept and shown.
        CellInterrupted
            The kernel was interrupted; the partial answer is kept and shown.
        AgentBusyError
            The agent is answering already, for instance because a tool of it asks.
        """
        turn, view = self._turn(text, model, how, show_usage=show_usage, output_type=output_type)
        self._asking += 1
        try:
            return _checked(self.bridge.run_sync(turn))
        finally:
            self._asking -= 1
            view.abandon()

    async def ask_async(
        self,
        text: str,
        *,
        model: str = "",
        how: How = "place",
        show_usage: bool = True,
        output_type: type[Any] | None = None,
    ) -> Any:
        """Do the same from a cell that awaits."""
        turn, view = self._turn(text, model, how, show_usage=show_usage, output_type=output_type)
        try:
            return _checked(await self.bridge.run_async(turn))
        finally:
            view.abandon()

    def _turn(
        self,
        text: str,
        model: str,
        how: How,
        *,
        show_usage: bool,
        output_type: type[Any] | None,
    ) -> tuple[Callable[[], Any], View]:
        """Prepare a turn here, on the main thread; what is returned runs it on the other."""
        conversation = self.open()
        choice = self.choose(model)
        headless = compat.is_headless(self.shell)
        self._admit(conversation, headless=headless)
        cell = RunningCell(compat.cell_id(self.shell), compat.execution(self.shell))
        view, approver = self._view(choice, cell.id, show_usage=show_usage)

        async def turn() -> Any:
            return await conversation.turn(
                text, choice, cell, view, how=how, approver=approver, output_type=output_type
            )

        return turn, view

    def _view(
        self, choice: Choice, cell: str | None, *, show_usage: bool
    ) -> tuple[View, Approver | None]:
        """Return what shows a turn of this cell, and who is asked in it."""
        label = choice.model.label
        headless = compat.is_headless(self.shell)
        asked = None if headless else PlainApprover()
        if not compat.has_kernel(self.shell):
            return self._terminal_view(label, show_usage=show_usage), asked

        waiting = choice.line if show_usage else label

        def plain(publish: Publish) -> CellView:
            return CellView(publish, waiting_for=waiting, model=label, show_usage=show_usage)

        publish = shell_publisher(self.shell)
        if self.front is None or headless:
            return plain(publish), asked
        return self.front.view(publish, plain, cell=cell, label=label, waiting=waiting)

    @staticmethod
    def _terminal_view(label: str, *, show_usage: bool) -> View:
        out = sys.stdout

        def write(words: str) -> None:
            out.write(words)
            out.flush()

        return TerminalView(write, model=label, show_usage=show_usage)

    async def converse(self, prompt: Prompt, view: View, approver: Approver) -> AssistantMessage:
        """Run a prompt that no cell has asked, after all that was said; on the loop thread.

        Functions of the notebook wait until the main thread is free.
        """
        main = compat.main_loop(self.shell)
        if main is None:
            raise YiemError(
                "A prompt outside of a cell needs a kernel.", code=ErrorCode.KERNEL_UNAVAILABLE
            )
        conversation = self.open()
        if conversation.tenure.question:
            raise CommandError(
                "This session was written elsewhere and nobody here has agreed to continue it.",
                hint="Run a %%yiem cell once; it asks.",
            )
        choice = await asyncio.to_thread(self.choose, headless=False)
        done = asyncio.Event()
        here = asyncio.get_running_loop()

        async def turn() -> AssistantMessage:
            answer: AssistantMessage = await conversation.turn(
                prompt, choice, RunningCell(), view, how="append", approver=approver
            )
            return answer

        run = self.bridge.run_background(turn, main, lambda: here.call_soon_threadsafe(done.set))
        await done.wait()
        return run.result()

    # --- The model ---------------------------------------------------------------------

    def choose(self, explicit: str = "", *, headless: bool | None = None) -> Choice:
        """Say which model answers now; `headless` where it is known whether anybody looks."""
        explicit = explicit or os.environ.get(MODEL_VARIABLE, "")
        if self._scripted is not None and not explicit:
            return Choice(self._scripted.model, source="yiem.use")
        conversation = self._conversation
        return resolve(
            explicit=explicit,
            typed=self._settings(),
            recorded=conversation.recorded_model if conversation is not None else None,
            headless=compat.is_headless(self.shell) if headless is None else headless,
        )

    def use(self, provider: ScriptedProvider | None) -> None:
        """Let a script answer from now on, or, with ``None``, the chosen model again."""
        self._scripted = provider

    def models(self) -> str:
        """List what was found, each as the command that chooses it."""
        try:
            current = self.choose()
        except ProviderError:
            current = None
        return list_models(current)

    async def stream(
        self, model: Model, context: AgentContext, level: ThinkingLevel, signal: AbortSignal
    ) -> AsyncIterator[StreamEvent]:
        """Send a request to whoever serves `model`; the agent's `StreamFn`."""
        conversation = self.open()
        provider = self._provider(conversation.choice)
        async for event in provider(model, context, level, signal):
            yield event

    def _provider(self, choice: Choice) -> Any:
        if choice.model.provider == "scripted":
            return self._scripted
        where = f"{choice.model.provider} {choice.model.base_url} {choice.key_name}"
        if where not in self._providers:
            self._providers[where] = _http_provider(choice)
        return self._providers[where]

    async def _close_connections(self) -> None:
        for provider in self._providers.values():
            await provider.aclose()
        self._providers.clear()

    # --- The session -------------------------------------------------------------------

    def open(self, *, private: bool = False) -> Conversation:
        """Open the notebook's session, once; a process that belongs to no notebook gets its own."""
        if self._conversation is None:
            tenure = Tenure(
                find_notebook(self.shell.user_ns),
                Ledger(ledger_path()),
                lock_folder(),
                compat.kernel_name(self.shell),
                private=private,
            )
            self._conversation = Conversation(self.stream, self.registry, tenure)
        return self._conversation

    def _admit(self, conversation: Conversation, *, headless: bool) -> None:
        """Ask once before a session that was written elsewhere is continued."""
        question = conversation.tenure.question
        if not question or headless or conversation.agent.is_busy:
            return
        # A front end that takes no input after all has not agreed.
        with suppress(EOFError, RuntimeError):
            if input(question).strip().lower() in ("y", "yes"):
                conversation.tenure.admit()

    def private(self, *, on: bool) -> str:
        """Keep the conversation in memory only from now on, or go on in the file."""
        conversation = self.open(private=on)
        conversation.agent.check_idle("change where it is kept")
        tenure, was = conversation.tenure, conversation.tenure.private
        if on:
            tenure.begin_privacy()
            self._history = self._history or compat.PausedHistory(self.shell)
            said = (
                "private: from here on nothing of the conversation is written to a file; what the"
                " notebook shows is in it when you save it. %yiem private off ends this."
            )
        else:
            tenure.end_privacy()
            if self._history is not None:
                self._history.resume()
                self._history = None
            name = tenure.storage.path.name
            said = (
                f"no longer private: going on in {name}, from where it was"
                if was
                else "not private"
            )
        conversation.journal.settle_right()
        conversation.take_context()
        return said

    def insert_below(self, code: str) -> bool:
        """Let the cell that waits for an answer put a cell below itself; say whether one waits."""
        if self._asking:
            self.shell.set_next_input(code)
        return bool(self._asking)

    def compact(self, instructions: str = "") -> str:
        """Let a summary stand for the beginning of the conversation; say how that went."""
        choice, conversation = self.choose(), self.open()
        work = partial(conversation.compact, choice, instructions)
        return compaction_line(self.bridge.run_sync(work))

    def summarise(self, messages: Sequence[AgentMessage], instructions: str = "") -> str:
        """Summarise a branch of the conversation that is about to be left."""
        choice, conversation = self.choose(), self.open()
        work = partial(conversation.summarise, choice, messages, instructions)
        return self.bridge.run_sync(work)

    def stop(self) -> bool:
        """Stop what runs; say whether anything did."""
        conversation = self._conversation
        if conversation is None or not conversation.agent.is_busy:
            return False
        conversation.agent.abort("stopped")
        return True

    def reset(self) -> None:
        """Start a new conversation; the file keeps the old one."""
        conversation = self.open()
        self.bridge.run_sync(conversation.agent.reset)

    def close(self) -> None:
        """Stop what runs and finish writing; for the end of the kernel."""
        atexit.unregister(self.close)
        with suppress(ValueError):
            self.shell.events.unregister("post_run_cell", self._check_tools)
        self.stop()
        if self._providers:
            self.bridge.run_sync(self._close_connections)
        self.bridge.thread.stop()
        if self._conversation is not None:
            self._conversation.journal.close()
            self._conversation.tenure.close()
            self._conversation = None
        if self._history is not None:
            self._history.resume()
        self._private.close()


def _http_provider(choice: Choice) -> Any:
    from yiem_nb.providers.http import Connection, HttpProvider
    from yiem_nb.providers.vault import find_key

    if choice.model.provider == "local":
        from yiem_nb.providers.local import local_server

        return HttpProvider(local_server().connect)

    async def connect() -> Connection:
        found = await asyncio.to_thread(find_key, choice.key_name)
        return Connection(choice.model.base_url, found.secret if found else None)

    return HttpProvider(connect)


def _checked(answer: Any) -> Any:
    """Return the answer, or raise what it says went wrong, so that the cell fails."""
    if not isinstance(answer, AssistantMessage) or answer.stop_reason is not StopReason.ERROR:
        return answer
    code = ErrorCode.__members__.get(answer.error_code or "", ErrorCode.PROVIDER_UNAVAILABLE)
    raise ProviderError(answer.error_message or "The request failed.", code=code)
