"""Runs functions of the notebook: on the main thread, or in threads of their own, with their prints."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from yiem_nb.kernel.bridge import call_main
from yiem_nb.kernel.capture import Tape, captured_prints
from yiem_nb.kernel.private_loop import PrivateLoop
from yiem_nb.messages import AgentToolResult, TextContent
from yiem_nb.tools import (
    FunctionKind,
    OnUpdate,
    Outcome,
    ToolRegistry,
    call_in_thread,
    clipped,
    outcome_of,
)

__all__ = ["FunctionRunner", "kept_surroundings"]

#: How often a card is told what its function has printed.
PRINT_SECONDS = 0.1
#: How much of it a card shows while the function runs.
SHOWN = 10_000


class FunctionRunner:
    """Runs the calls of a kernel's tools.

    Parameters
    ----------
    registry
        Says which tools a call has registered.
    private
        Where ``async def`` functions run on the main thread.
    """

    def __init__(self, registry: ToolRegistry, private: PrivateLoop) -> None:
        self._registry = registry
        self._private = private

    async def on_main(
        self,
        call: Callable[[], Any],
        kind: FunctionKind,
        describe: Callable[[Outcome], AgentToolResult],
        on_update: OnUpdate,
    ) -> AgentToolResult:
        """Run a function on the main thread; what it prints goes to its card."""
        tape = Tape()

        def work() -> AgentToolResult:
            known = self._registry.names()
            with kept_surroundings() as put_back, captured_prints(tape):
                run = (lambda: self._private.run(call())) if kind == "async" else call
                outcome = outcome_of(run)
                result = describe(replace(outcome, printed=tape.text()))
            added = self._registry.names() - known
            return _with_notes(result, put_back, sorted(added))

        return await _shown_meanwhile(call_main(work), tape, on_update)

    async def in_thread(
        self,
        call: Callable[[], Any],
        kind: FunctionKind,
        describe: Callable[[Outcome], AgentToolResult],
        on_update: OnUpdate,
    ) -> AgentToolResult:
        """Run a plain function in a daemon thread and an async one on this loop."""
        tape = Tape()
        if kind == "plain":

            def work() -> AgentToolResult:
                with captured_prints(tape):
                    outcome = _contained(call)
                    return describe(replace(outcome, printed=tape.text()))

            return await _shown_meanwhile(call_in_thread(work), tape, on_update)

        async def awaited() -> AgentToolResult:
            with captured_prints(tape):
                outcome = await _awaited(call)
                return describe(replace(outcome, printed=tape.text()))

        return await _shown_meanwhile(awaited(), tape, on_update)


def _contained(call: Callable[[], Any]) -> Outcome:
    """In a thread of its own no `KeyboardInterrupt` is the user's: the function raised it."""
    try:
        return outcome_of(call)
    except KeyboardInterrupt as error:
        return Outcome(error=error)


async def _awaited(call: Callable[[], Any]) -> Outcome:
    try:
        return Outcome(await call())
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - SystemExit of a tool is its result
        return Outcome(error=error)


async def _shown_meanwhile(
    work: Awaitable[AgentToolResult], tape: Tape, on_update: OnUpdate
) -> AgentToolResult:
    """Wait for `work`, and tell the card what is printed until then; also what was, if it is cut off."""
    shown = 0

    def show() -> None:
        nonlocal shown
        if tape.length > shown:
            shown = tape.length
            on_update(AgentToolResult(clipped(tape.text(), SHOWN)))

    async def tick() -> None:
        while True:
            await asyncio.sleep(PRINT_SECONDS)
            show()

    ticking = asyncio.create_task(tick())
    try:
        return await work
    except asyncio.CancelledError:
        show()
        raise
    finally:
        ticking.cancel()


def _with_notes(result: AgentToolResult, notes: list[str], added: list[str]) -> AgentToolResult:
    if added:
        joined = (*(result.added_tool_names or ()), *added)
        result = result.model_copy(update={"added_tool_names": joined})
    if notes:
        block = TextContent("\n".join(notes))
        result = result.model_copy(update={"content": (*result.content, block)})
    return result


@contextmanager
def kept_surroundings() -> Iterator[list[str]]:
    """Put back the working folder and the interrupt handler after a function (reliability F50).

    Yields
    ------
    list
        What was put back, in words for the model; filled when the block ends.
    """
    notes: list[str] = []
    folder = None
    with suppress(OSError):
        folder = os.getcwd()  # noqa: PTH109 - to compare with, as it is
    on_main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGINT) if on_main else None
    try:
        yield notes
    finally:
        if folder is not None and _folder_now() != folder:
            try:
                os.chdir(folder)
                notes.append("The working directory was changed and has been put back.")
            except OSError:
                notes.append("The working directory was changed; the one before is gone.")
        if on_main and handler is not None and signal.getsignal(signal.SIGINT) is not handler:
            signal.signal(signal.SIGINT, handler)
            notes.append("The interrupt handler was changed and has been put back.")


def _folder_now() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError:
        return None
