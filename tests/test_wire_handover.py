"""A conversation begun with one model and gone on with any other, and answers there and back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.histories import PIXEL, histories
from tests.wire_rules import broken_rules
from yiem_nb.messages import (
    AgentToolCall,
    AgentToolResult,
    AssistantMessage,
    ReasoningContent,
    StopReason,
    TextContent,
    ToolResultMessage,
    UserMessage,
)
from yiem_nb.models import Model, ThinkingLevel
from yiem_nb.tools import AgentTool
from yiem_nb.wire import FAMILIES, RequestOptions, encode, fold_stream

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS = {
    "f": AgentTool(
        name="f", description="F.", parameters=SCHEMA, execute=lambda *_: AgentToolResult("x")
    )
}


def model(api: str, **fields: Any) -> Model:
    given = {"id": "m", "provider": "p", "api": api, "input": ("text", "image")}
    return Model(**given | {"max_tokens": 8000} | fields)


@given(
    st.sampled_from(list(FAMILIES)).flatmap(
        lambda api: histories(api=api, provider="p", model="m")
    ),
    st.sampled_from(list(FAMILIES)),
    st.sampled_from([("text",), ("text", "image")]),
    st.sampled_from(list(ThinkingLevel)),
    st.booleans(),
)
def test_whoever_had_a_conversation_any_other_can_go_on_with_it(
    messages, api, takes, level, offered
):
    known = model(api, input=takes, reasoning=True)
    tools = TOOLS if offered else None
    body = encode("S", messages, tools, known, RequestOptions(level, max_tokens=4096))
    assert broken_rules(api, body) == []
    if takes == ("text",):
        assert PIXEL.data not in json.dumps(body)


def test_the_rules_can_be_broken():
    """A reader that finds nothing in anything would prove nothing."""
    chat = {"messages": [{"role": "tool", "tool_call_id": "x", "content": "y"}]}
    assert broken_rules("openai-chat", chat) == ["0: a result nobody waits for"]
    call = {"id": "x", "function": {"arguments": "{}"}}
    chat = {"messages": [{"role": "assistant", "content": None, "tool_calls": [call]}]}
    assert broken_rules("openai-chat", chat) == ["no result for ['x']"]
    turn = {"role": "user", "content": [{"type": "text", "text": " "}]}
    assert broken_rules("anthropic-messages", {"max_tokens": 1, "messages": [turn]}) == [
        "0: text of blanks"
    ]
    item = {"type": "function_call", "call_id": "a.b", "arguments": "{}"}
    assert len(broken_rules("openai-responses", {"store": False, "input": [item]})) == 2


def had(api: str) -> list[Any]:
    """What one model left behind: thoughts, a call with an id of its own, a result with an image."""
    names = {"api": api, "provider": "p", "model": "m"}
    thought = ReasoningContent("hm", "signed", field="reasoning_content", item_id="rs_1")
    call = AgentToolCall("functions.f:0", "f", {"city": "Oslo"}, signature="s", item_id="fc_1")
    return [
        UserMessage("Look", 1),
        AssistantMessage([thought, TextContent("I look."), call], **names),
        ToolResultMessage("functions.f:0", "f", [TextContent("rain"), PIXEL]),
        AssistantMessage([TextContent("Half")], stop_reason=StopReason.ABORTED, **names),
        UserMessage("Go on", 1),
    ]


@pytest.mark.parametrize("before", FAMILIES)
@pytest.mark.parametrize("after", FAMILIES)
def test_what_only_the_first_model_understands_stays_with_it(before, after):
    other = model(after, id="other", compat={"echo_reasoning": True} if "chat" in after else {})
    sent = json.dumps(encode("S", had(before), TOOLS, other))
    for mine in ("hm", "signed", "rs_1", "fc_1"):
        assert json.dumps(mine) not in sent
    for kept in ("I look.", "rain", "Half", "Go on", "Oslo"):
        assert kept in sent


# --- There and back ------------------------------------------------------------------------

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc"), inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(st.text("abc", min_size=1), VALUES, max_size=3)
ANSWERS = st.tuples(TEXTS, st.lists(ARGUMENTS, max_size=3))


def replied(api: str, body: dict[str, Any]) -> bytes:
    """The answer within a request, as the server would have sent it."""
    match api:
        case "openai-chat":
            choice = {"index": 0, "message": body["messages"][0], "finish_reason": "stop"}
            whole: Any = {"choices": [choice]}
        case "openai-responses":
            items = [item for item in body["input"] if item["type"] != "function_call_output"]
            whole = {"status": "completed", "output": items, "object": "response"}
        case "anthropic-messages":
            turn = next(turn for turn in body["messages"] if turn["role"] == "assistant")
            whole = {"type": "message", "stop_reason": "end_turn", **turn}
        case "gemini":
            turn = next(turn for turn in body["contents"] if turn["role"] == "model")
            whole = {"candidates": [{"content": turn, "finishReason": "STOP"}]}
        case _:
            whole = {"message": body["messages"][0], "done": True}
    return json.dumps(whole).encode()


@pytest.mark.parametrize("api", FAMILIES)
@given(ANSWERS)
def test_an_answer_that_is_sent_back_is_the_answer_that_came(api, said):
    text, arguments = said
    calls = [AgentToolCall(f"c{n}", "f", given) for n, given in enumerate(arguments)]
    answer = AssistantMessage([TextContent(text), *calls], api=api, provider="p", model="m")
    results = [ToolResultMessage(call.id, "f", "ok") for call in calls]
    body = encode("", [answer, *results], TOOLS, model(api))
    back = fold_stream(api, [replied(api, body)], content_type="application/json")
    assert back.error_message is None
    assert back.text == text
    assert [call.arguments for call in back.tool_calls] == arguments
    assert [call.name for call in back.tool_calls] == ["f"] * len(calls)
    if api != "ollama":  # its calls have no ids on the wire
        assert [call.id for call in back.tool_calls] == [call.id for call in calls]
