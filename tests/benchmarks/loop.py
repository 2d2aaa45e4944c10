"""The loop with an in-process stream: µs an event, ms a tool turn, and whether it is linear."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import AsyncIterator
from typing import Any

from yiem_nb.agent import Agent, AgentOptions
from yiem_nb.events import MessageUpdateEvent
from yiem_nb.messages import AgentToolCall, AgentToolResult, AssistantMessage
from yiem_nb.models import Limits, Model
from yiem_nb.tools import AgentTool

FREE = Limits(messages_per_minute=None, messages_per_session=None, turns_per_run=None)
NUMBER = {"type": "object", "properties": {"number": {"type": "integer"}}}


async def _work(*_: Any) -> AgentToolResult:
    return AgentToolResult("ok")


def _agent(stream: Any) -> Agent:
    tool = AgentTool(name="work", description="Work.", parameters=NUMBER, execute=_work)
    return Agent(AgentOptions(model=Model(id="m"), tools=[tool], limits=FREE), stream)


async def deltas(count: int) -> float:
    """CPU seconds an event for one turn of `count` deltas with one counting listener."""

    async def stream(*_: Any) -> AsyncIterator[Any]:
        for _number in range(count):
            yield MessageUpdateEvent(0, "text", "abcd")
        yield AssistantMessage("abcd" * count)

    agent, seen = _agent(stream), []

    async def listen(event: Any, signal: Any) -> None:
        seen.append(event)

    agent.subscribe(listen)
    start = time.process_time()
    await agent.prompt("go")
    return (time.process_time() - start) / count


async def turns(count: int) -> float:
    """CPU seconds a tool turn."""
    left = count

    async def stream(*_: Any) -> AsyncIterator[Any]:
        nonlocal left
        left -= 1
        if left >= 0:
            yield AssistantMessage(tool_calls=[AgentToolCall(f"c{left}", "work", {"number": left})])
        else:
            yield AssistantMessage("done")

    agent = _agent(stream)
    start = time.process_time()
    await agent.prompt("go")
    assert len(agent.state.messages) == 2 * count + 2, "a limit ended the run"
    return (time.process_time() - start) / count


def main() -> None:
    """Print medians of five."""
    for count in (2_000, 20_000):
        took = statistics.median(asyncio.run(deltas(count)) for _ in range(5))
        print(f"{count:>6} deltas   {took * 1e6:6.2f} µs an event    (goal 10)")
    for count in (100, 400):
        took = statistics.median(asyncio.run(turns(count)) for _ in range(5))
        print(f"{count:>6} turns    {took * 1e3:6.3f} ms a tool turn (goal 0.2)")
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
