"""What a click in a page does to the session, and that an answer to a question is good for once."""

from __future__ import annotations

import asyncio
import json
import secrets
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from tests.factories import MODEL, call, tool
from yiem_nb.agent import Agent, AgentOptions
from yiem_nb.errors import YiemError
from yiem_nb.events import ToolApprovalRequestEvent
from yiem_nb.messages import AgentToolResult, UserMessage
from yiem_nb.models import ThinkingLevel
from yiem_nb.providers import ScriptedProvider
from yiem_nb.tools import ApprovalDesk, Gate
from yiem_nb.widget.controls import Controls


@dataclass
class Scene:
    """An agent with a tool that asks, and a page's controls of it."""

    turns: list[Any]
    ran: list[dict[str, Any]] = field(default_factory=list)
    asked: list[ToolApprovalRequestEvent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.desk = ApprovalDesk()

        async def execute(id: str, arguments: dict[str, Any], *_: Any) -> AgentToolResult:
            self.ran.append(arguments)
            return AgentToolResult("done")

        schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
        asking = tool(execute=execute, parameters=schema, asks=True)
        gate = Gate(approver=self.desk)
        options = AgentOptions(model=MODEL, tools=[asking], gate=gate)
        self.agent = Agent(options, ScriptedProvider(self.turns, size=1000))
        storage = SimpleNamespace(path=SimpleNamespace(name="n.yiem.jsonl"))
        conversation = SimpleNamespace(
            agent=self.agent, storage=storage, choice=SimpleNamespace(model=MODEL)
        )
        shell = SimpleNamespace(
            user_ns={"prices": [1], "_hidden": 1, "In": []}, user_ns_hidden={"In": []}
        )
        workspace: Any = SimpleNamespace(
            open=lambda: conversation,
            stop=lambda: bool(self.agent.abort()) or True,
            shell=shell,
            insert_below=lambda code: False,
        )
        self.controls = Controls(workspace, self.desk, lambda name: None)

    async def hears(self, event: Any, signal: Any) -> None:
        if isinstance(event, ToolApprovalRequestEvent):
            self.asked.append(event)

    async def ask(self) -> asyncio.Task[Any]:
        self.agent.subscribe(self.hears)
        run = asyncio.create_task(self.agent.prompt("go"))
        async with asyncio.timeout(10):
            while not self.asked:
                await asyncio.sleep(0.001)
        return run

    async def answer(self, nonce: str, decision: str = "once", **more: Any) -> str:
        given = {"nonce": nonce, "decision": decision, "reason": "", "arguments": ""} | more
        try:
            await self.controls.carry_out("approve", given)
        except YiemError as error:
            return str(error)
        return ""


async def test_ten_thousand_forged_answers_run_nothing_and_the_right_one_runs_once() -> None:
    scene = Scene([call("c1", n=1), "done"])
    run = await scene.ask()
    nonce = scene.asked[0].nonce
    guesses = [
        "", "0", nonce[:-1], nonce + " ", nonce.upper(), *(secrets.token_hex(16) for _ in range(9_995))
    ]  # fmt: skip
    refused = [await scene.answer(guess) for guess in guesses if guess != nonce]
    assert all("answered already" in said for said in refused)
    assert scene.ran == []
    assert await scene.answer(nonce) == ""
    again = [await scene.answer(nonce) for _ in range(100)]
    await run
    again += [await scene.answer(nonce) for _ in range(100)]
    assert all("answered already" in said for said in again)
    assert scene.ran == [{"n": 1}]


async def test_what_is_shown_is_what_runs_and_what_is_edited_runs_instead() -> None:
    scene = Scene([call("c1", n=1), call("c2", n=2), "done"])
    run = await scene.ask()
    assert scene.asked[0].args == {"n": 1}
    assert "no JSON" in await scene.answer(scene.asked[0].nonce, "edit", arguments="{")
    assert "no JSON object" in await scene.answer(scene.asked[0].nonce, "edit", arguments="[1]")
    assert "no answer" in await scene.answer(scene.asked[0].nonce, "always")
    assert await scene.answer(scene.asked[0].nonce, "edit", arguments=json.dumps({"n": 7})) == ""
    async with asyncio.timeout(10):
        while len(scene.asked) < 2:
            await asyncio.sleep(0.001)
    assert await scene.answer(scene.asked[1].nonce, "deny", reason="enough") == ""
    await run
    assert scene.ran == [{"n": 7}]


async def test_a_question_of_a_run_that_was_stopped_takes_no_answer() -> None:
    scene = Scene([call("c1", n=1), "done"])
    run = await scene.ask()
    await scene.controls.carry_out("stop", {})
    await run
    assert "not asked any more" in await scene.answer(scene.asked[0].nonce)
    assert scene.ran == []


async def test_what_waits_to_be_said_is_shown_and_can_be_taken_back() -> None:
    scene = Scene([call("c1", n=1), "done"])
    run = await scene.ask()
    await scene.controls.carry_out("steer", {"text": "shorter"})
    await scene.controls.carry_out("follow_up", {"text": "and then"})
    queue = scene.controls.session()["queue"]
    assert [(item["mode"], item["text"]) for item in queue] == [
        ("steer", "shorter"),
        ("next", "and then"),
    ]
    await scene.controls.carry_out("unqueue", {"item": queue[1]["id"]})
    assert len(scene.controls.session()["queue"]) == 1
    with pytest.raises(YiemError, match="said already"):
        await scene.controls.carry_out("unqueue", {"item": queue[1]["id"]})
    await scene.controls.carry_out("stop", {})
    await run
    for op in ("steer", "follow_up"):
        with pytest.raises(YiemError, match="finished already"):
            await scene.controls.carry_out(op, {"text": "late"})


async def test_settings_names_and_a_cell_that_cannot_be_inserted() -> None:
    scene = Scene([])
    await scene.controls.carry_out("thinking", {"level": "high"})
    assert scene.agent.state.thinking_level is ThinkingLevel.HIGH
    with pytest.raises(YiemError, match="no thinking level"):
        await scene.controls.carry_out("thinking", {"level": "furious"})
    offered = await scene.controls.carry_out("complete", {"text": "@p"})
    assert offered == [{"text": "@prices", "about": "list"}]
    assert await scene.controls.carry_out("complete", {"text": "p"}) == []
    with pytest.raises(YiemError, match="No cell runs"):
        await scene.controls.carry_out("insert", {"code": "x"})
    with pytest.raises(YiemError, match="nothing to send"):
        await scene.controls.carry_out("prompt", {"text": " ", "images": []})
    view = scene.controls.session()
    assert (view["name"], view["busy"], view["levels"]) == ("n", False, ["off"])
    assert UserMessage("x").text == "x"
