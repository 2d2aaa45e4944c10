"""Golden traces: the events of whole runs as JSON lines, and that folding them gives the run's state.

The files are for every implementation of the fold to read. Write them anew with
``YIEM_WRITE_GOLDEN=1``.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic.alias_generators import to_camel
from tests.factories import call, run, stream, tool
from yiem_nb.events import AbortSignal, AgentEndEvent, MessageUpdateEvent
from yiem_nb.messages import AgentToolResult, AssistantMessage, StopReason, UserMessage
from yiem_nb.models import Model
from yiem_nb.state import AgentState, reduce

#: So small that a prompt of 300 words is too much for a request.
SMALL = Model(id="small", context_window=400)
FOLDER = Path(__file__).resolve().parent / "traces"


async def _stopped_while_streaming() -> list[Any]:
    signal = AbortSignal()
    asyncio.get_running_loop().call_later(0.01, signal.abort, "enough")
    items = (MessageUpdateEvent(0, "text", "so far"), None)
    return await run([], stream_fn=stream(*items), signal=signal)


async def _stopped_during_a_call() -> list[Any]:
    signal = AbortSignal()

    async def wait(*_: Any) -> AgentToolResult:
        asyncio.get_running_loop().call_soon(signal.abort, "enough")
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    return await run([call("c1"), "never"], tools=[tool(execute=wait)], signal=signal)


async def _compacted() -> list[Any]:
    words = UserMessage("word " * 300)
    turns = ["a summary", call("c1", n=1), "done"]
    return await run(turns, prompts=[words, UserMessage("go")], tools=[tool()], model=SMALL)


SCENES: dict[str, Any] = {
    "text": lambda: run(["hello"]),
    "one-call": lambda: run([call("c1", n=1), "done"], tools=[tool()]),
    "unknown-tool": lambda: run([call("c1", "zzz"), "done"], tools=[tool()]),
    "failed-stream": lambda: run(
        [], stream_fn=stream(MessageUpdateEvent(0, "text", "half"), RuntimeError("cut"))
    ),
    "cut-at-its-length": lambda: run(
        [AssistantMessage(tool_calls=[call("c1")], stop_reason=StopReason.LENGTH), "done"],
        tools=[tool()],
    ),
    "stopped-while-streaming": _stopped_while_streaming,
    "stopped-during-a-call": _stopped_during_a_call,
    "compacted": _compacted,
}


def plain(value: Any) -> Any:
    """An event as JSON: camelCase names, absent instead of null, times as zero."""
    if isinstance(value, BaseModel):
        return plain(value.model_dump(mode="json", by_alias=True, exclude_none=True))
    if dataclasses.is_dataclass(value):
        names = ["type", *(f.name for f in dataclasses.fields(value) if f.name != "type")]
        return {to_camel(name): plain(getattr(value, name)) for name in names}
    if isinstance(value, dict):
        return {key: 0 if key == "timestamp" else plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


@pytest.mark.requirement("SPEC-5.1")
@pytest.mark.parametrize("name", SCENES)
async def test_a_run_leaves_the_agreed_trace_and_its_fold_is_the_state(name: str) -> None:
    events = await SCENES[name]()
    text = "".join(json.dumps(plain(event), ensure_ascii=False) + "\n" for event in events)
    path = FOLDER / f"{name}.jsonl"
    if os.environ.get("YIEM_WRITE_GOLDEN"):
        FOLDER.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
    state = AgentState()
    for event in events:
        state = reduce(state, event)
    assert isinstance(events[-1], AgentEndEvent)
    if name == "compacted":
        assert [message.role for message in state.messages][:2] == ["user", "user"]
        assert "a summary" in state.messages[0].text
    else:
        assert state.messages == events[-1].messages
    assert (state.is_streaming, state.pending_tool_calls) == (False, ())
