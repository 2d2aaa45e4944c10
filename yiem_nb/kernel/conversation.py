"""One session's agent: its model and tools, and each turn from prompt to settled view."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic import ValidationError

from yiem_nb.agent import Agent, AgentOptions, Prompt
from yiem_nb.budget import Budget, Purse, Spending
from yiem_nb.compaction import UNKNOWN_ROOM, request_text, room_of, summarise
from yiem_nb.errors import ErrorCode, OutputError, ProviderError
from yiem_nb.events import AbortSignal, CompactionEndEvent
from yiem_nb.instructions import system_prompt
from yiem_nb.kernel.approval import ask_in_cell
from yiem_nb.kernel.notebook import CONTINUE_VARIABLE
from yiem_nb.kernel.page import Page, RunningCell
from yiem_nb.kernel.tenure import Tenure
from yiem_nb.kernel.view import View
from yiem_nb.messages import AgentMessage
from yiem_nb.models import ThinkingLevel
from yiem_nb.providers import ScriptedProvider
from yiem_nb.providers.config import read_user_file
from yiem_nb.providers.probe import with_real_window
from yiem_nb.providers.resolve import Choice
from yiem_nb.session import How, JsonlSessionStorage, Plan, build_context
from yiem_nb.session.foreign import foreign_messages, with_note
from yiem_nb.session.journal import SessionJournal
from yiem_nb.state import AgentContext, StreamFn
from yiem_nb.tools import Approver, Gate, ToolRegistry

__all__ = ["Conversation"]

#: How long a cell waits for its display after the run is over.
VIEW_SECONDS = 2.0

UNKNOWN_PLACE = (
    "↳ this cell is not in the notebook as last saved, so its prompt follows the last exchange;"
    " save, then run it again to ask at its place"
)

#: Entries that hold what was read before, in other words.
_SUMMARIES = ("compaction", "branch_summary", "custom_message")


class Conversation:
    """The agent of one session."""

    def __init__(
        self,
        stream: StreamFn,
        registry: ToolRegistry,
        tenure: Tenure,
    ) -> None:
        storage, notebook = tenure.storage, tenure.notebook
        self.tenure = tenure
        self.journal = SessionJournal(storage, tenure.writable)
        self.choice = Choice(ScriptedProvider.model)
        self._registry = registry
        registry.store = self.journal
        self._notebook = notebook
        self._notices: list[str] = []
        #: Where the last prompt went, and how much of what it follows was written elsewhere.
        self._placed_in = storage
        self._foreign = 0
        self.gate = Gate()
        self.purse = Purse(session=_spent(storage))
        self._stream = stream
        self._page = Page(notebook)
        #: The execution whose prompts are one chain, and whether this kernel has asked yet.
        self._execution = ""
        self._stays = False
        self._begun = os.environ.get(CONTINUE_VARIABLE) == "1"
        context = build_context(storage.tree, storage.get_leaf_id())
        self._recorded_model = context.model
        self._recorded_tools = context.active_tools or ()
        self.agent = Agent(
            AgentOptions(
                model=None,
                messages=context.messages,
                thinking_level=(
                    ThinkingLevel.OFF if tenure.right == "foreign" else context.thinking_level
                ),
                gate=self.gate,
                store=self.journal,
                purse=self.purse,
                prepare_context=self._with_present_tools,
            ),
            stream,
            self.journal,
        )

    @property
    def storage(self) -> JsonlSessionStorage:
        """Where the conversation is now."""
        return self.journal.storage

    async def turn(
        self,
        prompt: Prompt,
        choice: Choice,
        cell: RunningCell,
        view: View,
        *,
        how: How = "place",
        approver: Approver | None,
        output_type: type[Any] | None = None,
    ) -> Any:
        """Run one prompt and show it; on the loop thread.

        Without `approver` nobody can be asked.
        """
        agent = self.agent
        if not agent.is_busy:
            self.gate.policy = self._registry.policy
            self.gate.approver = approver
            await self._go_to(cell, how)
            self._listen_back()
            for line in [*_emptied(self.tenure.news), *_emptied(self._page.news)]:
                view.notice(line)
            await self._configure(choice)
            await self._take_budget(can_ask=approver is not None)
        unsubscribe = agent.subscribe(view)
        try:
            return await self._prompt(prompt, cell.id, view, output_type)
        finally:
            unsubscribe()

    async def _take_budget(self, *, can_ask: bool) -> None:
        """Take the caps of the user's file, and ask before they are passed where somebody is there."""
        settings = await asyncio.to_thread(read_user_file)
        try:
            self.purse.budget = Budget(**settings.budget)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise ProviderError(
                f"[budget] in config.toml: {'.'.join(map(str, first['loc']))}: {first['msg']}.",
                hint=f"Known are {', '.join(Budget.model_fields)}.",
                code=ErrorCode.PROVIDER_CONFIG,
            ) from None
        self.purse.ask = _ask_to_spend if can_ask else None

    def _listen_back(self) -> None:
        """Tell the gate whose words stand above: what was allowed for the session may end by them."""
        self.gate.recall(self.agent.state.messages, self._registry.all())
        if self._foreign:
            self.gate.hear("messages that were written elsewhere")
        tree = self.storage.tree
        if any(tree.of_type(kind) for kind in _SUMMARIES):
            on_path = {tree.type(entry) for entry in tree.path(tree.leaf)}
            if on_path.intersection(_SUMMARIES):
                self.gate.hear("a summary of earlier messages")

    async def compact(self, choice: Choice, instructions: str) -> CompactionEndEvent:
        """Let a summary stand for the beginning of the conversation."""
        self.agent.check_idle("compact the conversation")
        await self._configure(choice)
        return await self.agent.compact(instructions)

    async def summarise(
        self, choice: Choice, messages: Sequence[AgentMessage], instructions: str
    ) -> str:
        """Summarise a branch that is about to be left; nothing changes."""
        self.agent.check_idle("summarise a branch")
        await self._configure(choice)
        model = choice.model
        room = room_of(model)
        budget = room.limit if room is not None else UNKNOWN_ROOM.limit
        text = request_text(messages, budget=budget, instructions=instructions, branch=True)
        return (await summarise(text, model, self._stream, AbortSignal())).text

    @property
    def recorded_model(self) -> tuple[str, str] | None:
        """Provider and id of the model of this branch; nothing that somebody else has written."""
        return (
            self._recorded_model if self.tenure.right != "foreign" and not self._foreign else None
        )

    # --- Where a prompt goes -----------------------------------------------------------

    async def _go_to(self, cell: RunningCell, how: How) -> None:
        """Take the conversation to where the prompt of a cell belongs (DESIGN: a cell is a place)."""
        how = self._how(cell, how)
        self._begun, self._execution = True, cell.execution
        await self.journal.run(partial(self._place, cell.id, how))

    def go_on_here(self) -> None:
        """Let the next prompt follow where the conversation is now, wherever its cell stands."""
        self.take_context()
        self._stays = True

    def _how(self, cell: RunningCell, how: How) -> How:
        stays, self._stays = self._stays, False
        if stays and how == "place":
            return "append"
        if how != "place":
            return how
        if cell.execution and cell.execution == self._execution:
            return "append"  # several prompts of one execution are one chain
        if cell.id is None:
            return "append" if self._begun else "new"
        return how

    def _place(self, cell_id: str | None, how: How) -> None:
        """Plan and move; on the writer's thread, because a long session takes its time."""
        session = self.journal.session
        order = self._page.order()
        plan = session.plan(order, cell_id, how=how)
        repeats = how == "place" and bool(order) and cell_id not in order
        if repeats and session.places.versions(cell_id or ""):
            self._notices.append(UNKNOWN_PLACE)
        moved, self._placed_in = self._placed_in is not self.storage, self.storage
        if moved or plan.parent != session.leaf or plan.entries:
            session.apply(plan)
            self.take_context()
        self._foreign = foreign_messages(session.tree, session.leaf)
        if plan.notice:
            self._notices.append(_notice(plan, order))

    def take_context(self) -> None:
        """Make the branch that the leaf is on the agent's conversation."""
        context = build_context(self.storage.tree, self.storage.get_leaf_id())
        self.agent.set_messages(context.messages)
        self._recorded_model = context.model
        self._recorded_tools = context.active_tools or ()

    async def _prompt(
        self, prompt: Prompt, cell: str | None, view: View, output_type: type[Any] | None
    ) -> Any:
        try:
            answer = await self.agent.prompt(prompt, cell_id=cell, output_type=output_type)
        except (asyncio.CancelledError, OutputError):
            await self._settle(view)
            raise
        await self._settle(view)
        saving = await self.journal.run(self.tenure.saving)
        for notice in [*self._take_notices(), *([saving] if saving else [])]:
            view.notice(notice)
        return answer

    async def _settle(self, view: View) -> None:
        """Let the view show the end; it is a listener and hears of it a little later."""
        try:
            async with asyncio.timeout(VIEW_SECONDS):
                await view.finished.wait()
        except TimeoutError:
            return

    async def _configure(self, choice: Choice) -> None:
        """Take the model that was chosen; record it where it is another than before."""
        agent, model = self.agent, await asyncio.to_thread(with_real_window, choice.model)
        self.choice = choice
        name = self._notebook.name if self._notebook is not None else None
        agent.set_system_prompt(system_prompt(context_window=model.context_window, notebook=name))
        if agent.state.model != model:
            recorded = self._recorded_model == (model.provider, model.id)
            await agent.set_model(model, record=not recorded)
            self._recorded_model = (model.provider, model.id)
        tools = self._registry.active()
        if tuple(tools) != self._recorded_tools:
            await agent.set_tools(tools)
            self._recorded_tools = tuple(tools)

    def _with_present_tools(self, context: AgentContext) -> AgentContext:
        """Offer the functions as they are now: a tool may define another."""
        messages = with_note(context.messages, self._foreign)
        return replace(context, messages=messages, tools=self._registry.active())

    def _take_notices(self) -> list[str]:
        return [
            *_emptied(self._notices),
            *_emptied(self.tenure.notices),
            *self.tenure.happened(),
            *self._registry.notices(),
        ]


def _emptied(lines: list[str]) -> list[str]:
    taken = lines.copy()
    lines.clear()
    return taken


def _spent(storage: JsonlSessionStorage) -> Spending:
    stats = storage.get_session_stats()
    return Spending(stats.total_tokens, stats.cost_total)


async def _ask_to_spend(said: str) -> bool:
    answer = await ask_in_cell(f"{said} Send it? [y/N] ")
    return answer.strip().lower() in ("y", "yes")


def _notice(plan: Plan, order: Sequence[str]) -> str:
    """Say in one line what moved, and on whose word about the page."""
    page = "the order of the cells as last saved" if order else "the order of execution"
    return f"↳ {plan.notice} ({page})"
