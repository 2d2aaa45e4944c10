"""Asking for leave where there is no widget: a plain question in the cell that waits."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any, TypeAlias

from yiem_nb.kernel.bridge import call_main
from yiem_nb.render.text import clipped, visible
from yiem_nb.tools import ApprovalRequest, Decision

__all__ = ["PlainApprover", "question"]

#: Asks for a line on the main thread.
Ask: TypeAlias = Callable[[str], Awaitable[str]]

#: More of the arguments than this is shown only when asked for, so that the question stays in sight.
SHOWN = 4_000
_DESCRIBED = 300
_EDIT = "  Arguments as JSON, or nothing to leave them: "


async def ask_in_cell(text: str) -> str:
    """Ask with `input` in the cell that waits."""
    return await call_main(lambda: input(text))


class PlainApprover:
    """Asks in the cell that waits, with `input`.

    The arguments are shown exactly, and what cannot be seen in them is spelled out: what a person
    allows must be what runs (reliability T09).
    """

    def __init__(self, ask: Ask = ask_in_cell) -> None:
        self._ask = ask

    async def __call__(self, request: ApprovalRequest) -> Decision:
        """Ask until the answer is one."""
        text = question(request)
        while True:
            said = (await self._ask(text)).strip()
            word = said.lower()
            if word == "v":
                text = question(request, limit=None)
            elif word == "a" and not request.offers_session:
                text = "  Not for the session now: y once, n, or why not: "
            elif word == "e":
                decision = await self._edited(request)
                if decision is not None:
                    return decision
                text = question(request)
            else:
                return _decision(request, said)

    async def _edited(self, request: ApprovalRequest) -> Decision | None:
        text = _EDIT
        while True:
            said = (await self._ask(text)).strip()
            if not said:
                return None
            try:
                arguments = json.loads(said)
            except (ValueError, RecursionError) as error:
                text = f"  That is no JSON ({error}).\n{_EDIT}"
                continue
            if isinstance(arguments, dict):
                return Decision(nonce=request.nonce, kind="edit", arguments=arguments)
            text = f"  That is no JSON object.\n{_EDIT}"


def _decision(request: ApprovalRequest, said: str) -> Decision:
    denied = Decision(nonce=request.nonce, kind="deny")
    word = said.lower()
    if word in ("y", "yes"):
        return replace(denied, kind="once")
    if word == "a":
        return replace(denied, kind="session")
    return denied if word in ("", "n", "no") else replace(denied, reason=said)


def question(request: ApprovalRequest, limit: int | None = SHOWN) -> str:
    """Write the question; every line of the call is marked, so that it cannot pose as ours."""
    shown = list(_argument_lines(request.arguments))
    size = sum(len(line) for line in shown)
    offers = ["y once"]
    if request.offers_session:
        offers.append("a for this session")
    offers.append("e edit")
    if limit is not None and size > limit:
        shown = clipped("\n".join(shown), limit).split("\n")
        offers.append("v view all")
    described = visible(" ".join(request.description.split()))[:_DESCRIBED]
    lines = [
        f"? The model wants to call {visible(request.tool_name)}: {described}",
        *(f"  │ {line}" for line in shown),
    ]
    if request.problem:
        lines.append(f"  {visible(request.problem)}")
    lines.append(f"  Asked because {visible(request.reason)}.")
    lines.append(f"  Allow? [{', '.join(offers)}; n, or why not] ")
    return "\n".join(lines)


def _argument_lines(arguments: dict[str, Any]) -> Iterator[str]:
    if not arguments:
        yield "(no arguments)"
    for name, value in arguments.items():
        if isinstance(value, str) and "\n" in value:
            yield f"{visible(name)} ="
            # Only the line ends that every display breaks at; all others are spelled out.
            yield from (f"    {visible(line)}" for line in value.split("\n"))
        else:
            yield f"{visible(name)} = {visible(_exact(value))}"


def _exact(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return repr(value)
