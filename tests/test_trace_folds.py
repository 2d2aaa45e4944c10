"""What the fold makes of the golden traces and of generated ones, for the browser's fold to agree with.

``tests/traces/folds.json`` is read by the tests in ``js/test/fold.test.ts``. Write it anew with
``YIEM_WRITE_GOLDEN=1``.
"""

from __future__ import annotations

import json
import os
import random
from typing import Any

from pydantic import TypeAdapter
from pydantic.alias_generators import to_snake
from tests.test_traces import FOLDER, plain
from yiem_nb import events as known
from yiem_nb.messages import AgentMessage, AgentToolResult, AssistantMessage, ToolResultMessage
from yiem_nb.state import AgentState, reduce

TARGET = FOLDER / "folds.json"
_TYPES = {
    kind.__dataclass_fields__["type"].default: kind
    for kind in vars(known).values()
    if isinstance(kind, type) and "type" in getattr(kind, "__dataclass_fields__", {})
}
_MESSAGE: TypeAdapter[Any] = TypeAdapter(AgentMessage)
_RESULT: TypeAdapter[Any] = TypeAdapter(AgentToolResult)


def event_of(written: dict[str, Any]) -> Any:
    """Read an event back from its line."""
    fields = {to_snake(name): value for name, value in written.items() if name != "type"}
    for name in ("message", "result", "partial_result"):
        if fields.get(name) is not None:
            adapter = _MESSAGE if name == "message" else _RESULT
            fields[name] = adapter.validate_python(
                fields[name] | {"timestamp": 0} if name == "message" else fields[name]
            )
    for name in ("messages", "tool_results"):
        if name in fields:
            fields[name] = tuple(
                _MESSAGE.validate_python(m | {"timestamp": 0}) for m in fields[name]
            )
    return _TYPES[written["type"]](**fields)


def described(state: AgentState) -> dict[str, Any]:
    """A state as JSON."""
    streaming = state.streaming_message
    return {
        "messages": plain(state.messages),
        "isStreaming": state.is_streaming,
        "streamingMessage": plain(streaming) if streaming is not None else None,
        "pendingToolCalls": list(state.pending_tool_calls),
        "errorMessage": state.error_message,
    }


def _generated(seed: int) -> list[dict[str, Any]]:
    """Events in any order: a fold has an answer for each."""
    chance = random.Random(seed)
    answers = [
        AssistantMessage("so", error_message="cut", timestamp=1),
        AssistantMessage("done", timestamp=1),
    ]
    choices: list[Any] = [
        known.AgentStartEvent(),
        known.AgentEndEvent(()),
        known.TurnStartEvent(),
        *(known.MessageStartEvent(AssistantMessage((), timestamp=1)) for _ in range(3)),
        *(known.MessageEndEvent(message) for message in answers),
        known.MessageEndEvent(ToolResultMessage("c1", "work", "ok", timestamp=1)),
        *(known.ToolExecutionStartEvent(f"c{n}", "work", {"n": n}) for n in range(3)),
        *(
            known.ToolExecutionEndEvent(f"c{n}", "work", AgentToolResult("ok"), False)
            for n in range(3)
        ),
        *(
            known.MessageUpdateEvent(index, kind, text, id, name)
            for index, kind, text, id, name in [
                (0, "text", "a👩‍👩‍👧", "", ""),
                (0, "text", "b", "", ""),
                (1, "thinking", "hm", "", ""),
                (2, "toolCall", '{"n"', "c1", ""),
                (2, "toolCall", ": 1}", "", "work"),
                (3, "toolCall", "[1]", "c2", "work"),
            ]
            for _ in range(2)
        ),
    ]
    return [plain(chance.choice(choices)) for _ in range(40)]


def _folds() -> list[dict[str, Any]]:
    traces = {
        path.stem: [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for path in sorted(FOLDER.glob("*.jsonl"))
    } | {f"generated {seed}": _generated(seed) for seed in range(12)}
    folds = []
    for name, events in traces.items():
        state, states = AgentState(), {}
        for index, written in enumerate(events):
            state = reduce(state, event_of(written))
            if index % 5 == 4 or index == len(events) - 1:
                states[str(index)] = described(state)
        folds.append({"name": name, "events": events, "states": states})
    return folds


def test_the_folds_of_all_traces_are_written_down_for_the_browser() -> None:
    text = json.dumps(_folds(), ensure_ascii=False, separators=(",", ":")) + "\n"
    if os.environ.get("YIEM_WRITE_GOLDEN"):
        TARGET.write_text(text, encoding="utf-8")
    assert json.loads(TARGET.read_text(encoding="utf-8")) == json.loads(text)
