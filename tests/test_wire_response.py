"""Whole responses of every format become messages, and none is told its format."""

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yiem_nb.messages import (
    AgentToolCall,
    AssistantMessage,
    ReasoningContent,
    StopReason,
    TextContent,
    ToolResultMessage,
)
from yiem_nb.wire import decode_response
from yiem_nb.wire.openai_encode import encode_assistant

CALL = {
    "type": "function",
    "function": {"name": "getWeather", "arguments": '{"city":"Bangkok"}'},
    "id": "call_1",
}
PARSED = CALL | {"function": {"name": "getWeather", "arguments": {"city": "Bangkok"}}}
EXPECTED = AgentToolCall("call_1", "getWeather", {"city": "Bangkok"})


@pytest.mark.requirement("SP-017")
def test_1_a_message_with_calls():
    response = {
        "finish_reason": "tool_calls",
        "message": {
            "role": "assistant",
            "content": "",
            "reasoning_content": "I need to call getWeather...",
            "tool_calls": [CALL],
        },
    }
    message = decode_response(response)
    thought = ReasoningContent("I need to call getWeather...", field="reasoning_content")
    assert message.content == (thought, EXPECTED)
    assert message.stop_reason is StopReason.TOOL_CALLS
    assert message.raw_stop_reason == "tool_calls"


@pytest.mark.requirement("SP-017")
def test_2_a_message_without_calls():
    message = decode_response(
        {
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": "It's 22°C in Bangkok"},
        }
    )
    assert message.content == (TextContent("It's 22°C in Bangkok"),)
    assert message.stop_reason is StopReason.STOP


@pytest.mark.requirement("SP-017")
@pytest.mark.parametrize("calls", [None, []])
@pytest.mark.parametrize(
    ("content", "text"),
    [(None, ""), ("", ""), ([{"type": "text", "text": "a"}, "b", {"type": "odd"}], "ab")],
)
def test_3_no_calls_are_no_tool_turn(calls, content, text):
    message = decode_response(
        {"finish_reason": "tool_calls", "message": {"content": content, "tool_calls": calls}}
    )
    assert message.tool_calls == ()
    assert message.text == text
    assert message.stop_reason is StopReason.STOP
    assert message.error_message is None


def test_3_a_message_without_content_is_an_empty_answer():
    assert decode_response({"message": {}, "finish_reason": "stop"}).stop_reason is StopReason.STOP


@pytest.mark.requirement("SP-018.1")
def test_4_a_block_that_holds_a_list_of_calls():
    second = {"type": "function", "function": {"name": "b", "arguments": {"n": 1}}, "id": "call_2"}
    message = decode_response({"content": [{"type": "tool_calls", "tool_calls": [PARSED, second]}]})
    assert message.tool_calls == (EXPECTED, AgentToolCall("call_2", "b", {"n": 1}))
    assert message.stop_reason is StopReason.TOOL_CALLS


@pytest.mark.requirement("SP-018.2")
def test_5_a_block_that_is_a_call():
    block = {
        "type": "tool_call",
        "name": "getWeather",
        "arguments": {"city": "Bangkok"},
        "id": "call_1",
    }
    assert decode_response({"content": [block]}).tool_calls == (EXPECTED,)


@pytest.mark.requirement("SP-018.3")
def test_6_blocks_of_text():
    message = decode_response({"content": [{"type": "text", "text": "It's 22°C in Bangkok"}]})
    assert message.content == (TextContent("It's 22°C in Bangkok"),)
    assert message.stop_reason is StopReason.END_TURN
    assert message.raw_stop_reason is None


@pytest.mark.requirement("SP-018.1", "SP-018.2", "SP-018.3")
def test_7_mixed_blocks_keep_their_order():
    content = [
        {"type": "text", "text": "a"},
        {"type": "tool_call", "name": "x", "arguments": {}, "id": "1"},
        {"type": "tool_calls", "tool_calls": [PARSED]},
        {"type": "text", "text": "b"},
    ]
    kinds = [block.type for block in decode_response({"content": content}).content]
    assert kinds == ["text", "toolCall", "toolCall", "text"]


@pytest.mark.requirement("SP-018.4")
@pytest.mark.parametrize(
    "usage",
    [
        {"inputTokens": 100, "outputTokens": 50},
        {"prompt_tokens": 100, "completion_tokens": 50},
        {"input_tokens": 100, "output_tokens": 50},
        {"input_tokens": 100, "output_tokens": 50, "cache_read_input_tokens": 0},
    ],
)
@pytest.mark.parametrize(
    "answer", [{"content": "x"}, {"message": {"content": "x"}, "finish_reason": "stop"}]
)
def test_8_extras_of_either_format(usage, answer):
    extras = {"api": "openai", "provider": "anthropic", "model": "gpt-4", "usage": usage}
    message = decode_response(answer | extras)
    assert (message.api, message.provider, message.model) == ("openai", "anthropic", "gpt-4")
    assert (message.usage.input, message.usage.output) == (100, 50)
    assert message.usage.reported
    failed = decode_response(answer | {"error_message": "Optional error"})
    assert failed.error_message == "Optional error"
    assert failed.stop_reason is StopReason.ERROR
    assert failed.text == "x"


@pytest.mark.requirement("SP-018.4")
def test_8_absent_extras_are_empty():
    message = decode_response({"content": "x"})
    assert (message.api, message.provider, message.model) == ("", "", "")
    assert (message.usage.input, message.usage.output, message.error_message) == (0, 0, None)
    assert not message.usage.reported


@pytest.mark.parametrize("empty", ["", None, {}, "{}", "null", '""'])
def test_9_empty_arguments_are_an_empty_object(empty):
    block = {"type": "tool_call", "name": "f", "id": "1", "arguments": empty}
    (call,) = decode_response({"content": [block]}).tool_calls
    assert (call.arguments, call.runnable) == ({}, True)
    del block["arguments"]
    assert decode_response({"content": [block]}).tool_calls == (call,)


@pytest.mark.parametrize(
    ("broken", "raw"), [("{a", "{a"), ("[1]", "[1]"), ([1], "[1]"), (7, "7"), ("7", "7")]
)
def test_9_arguments_that_are_no_object_are_kept_and_never_run(broken, raw):
    block = {"type": "tool_call", "name": "f", "id": "1", "arguments": broken}
    message = decode_response({"content": [block]})
    (call,) = message.tool_calls
    assert (call.invalid, call.raw_arguments, call.arguments) == (True, raw, {})
    assert message.stop_reason is StopReason.TOOL_USE


def test_9_arguments_cut_by_the_length_are_incomplete():
    block = {"type": "tool_call", "name": "f", "id": "1", "arguments": '{"a'}
    message = decode_response({"content": [block], "stop_reason": "max_tokens"})
    assert message.stop_reason is StopReason.LENGTH
    assert message.tool_calls[0].incomplete


def test_10_a_missing_id_is_made_and_a_missing_name_is_an_error():
    blocks = [{"type": "tool_call", "name": "f", "arguments": {}}] * 2
    ids = [call.id for call in decode_response({"content": blocks}).tool_calls]
    assert all(ids)
    assert len(set(ids)) == 2
    nameless = [{"type": "tool_call", "name": "", "arguments": {}, "id": "1"}]
    message = decode_response({"content": nameless})
    assert message.tool_calls == ()
    assert (message.stop_reason, message.error_code) == (StopReason.ERROR, "malformed_tool_call")


@pytest.mark.requirement("SP-017", "SP-018.1")
def test_11_real_envelopes():
    openai = decode_response(
        {
            "id": "x",
            "model": "gpt",
            "choices": [
                {"index": 0, "finish_reason": "tool_calls", "message": {"tool_calls": [CALL]}}
            ],
            "usage": {"prompt_tokens": 3, "completion_tokens": 2},
        }
    )
    assert openai.content == (EXPECTED,)
    assert (openai.model, openai.usage.input) == ("gpt", 3)
    anthropic = decode_response(
        {
            "type": "message",
            "content": [
                {"type": "thinking", "thinking": "t", "signature": "s"},
                {"type": "redacted_thinking", "data": "enc"},
                {"type": "text", "text": "x"},
                {
                    "type": "tool_use",
                    "id": "call_1",
                    "name": "getWeather",
                    "input": {"city": "Bangkok"},
                },
            ],
            "stop_reason": "tool_use",
        }
    )
    assert anthropic.content == (
        ReasoningContent("t", "s"),
        ReasoningContent("", "enc", redacted=True),
        TextContent("x"),
        EXPECTED,
    )
    ollama = decode_response({"message": {"content": "x"}, "done": True, "done_reason": "length"})
    assert ollama.stop_reason is StopReason.LENGTH
    gemini = decode_response(
        {"candidates": [{"content": {"parts": [{"text": "x"}]}, "finishReason": "STOP"}]}
    )
    assert (gemini.text, gemini.stop_reason) == ("x", StopReason.STOP)
    responses = decode_response(
        {
            "object": "response",
            "status": "completed",
            "output": [{"type": "message", "content": [{"type": "output_text", "text": "x"}]}],
        }
    )
    assert (responses.text, responses.stop_reason) == ("x", StopReason.STOP)


def test_12_the_message_wins_if_it_says_something():
    both = {"message": {"content": "from message"}, "content": "from content"}
    assert decode_response(both).text == "from message"
    empty = {"message": {"content": ""}, "content": [{"type": "text", "text": "from content"}]}
    assert decode_response(empty).text == "from content"


@pytest.mark.parametrize("nothing", [{}, {"x": 1}, {"choices": []}, None, [], {"message": None}])
def test_12_what_is_no_answer_is_an_error_message(nothing):
    message = decode_response(nothing)
    assert message.stop_reason is StopReason.ERROR
    assert message.error_code == "malformed_response"


@pytest.mark.parametrize(
    "odd", [{"choices": 5}, {"content": 5}, {"content": [{"type": "text", "text": 5}]}]
)
def test_12_another_shape_is_an_error_message(odd):
    assert decode_response(odd).error_code == "malformed_response"


def test_12_an_error_and_a_filter_are_error_messages():
    failed = decode_response({"error": {"message": "no", "type": "invalid_request_error"}})
    assert (failed.error_message, failed.error_code) == ("no", "invalid_request_error")
    filtered = decode_response({"message": {"content": "x"}, "finish_reason": "content_filter"})
    assert (filtered.text, filtered.error_code) == ("x", "content_filter")


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.requirement("SP-013", "SP-017")
@given(st.lists(st.dictionaries(st.text(), JSON, max_size=4), min_size=1, max_size=3))
def test_13_calls_survive_the_wire_and_the_response_is_not_changed(arguments):
    calls = [AgentToolCall(f"c{i}", "f", value) for i, value in enumerate(arguments)]
    encoded = encode_assistant(AssistantMessage(tool_calls=calls))
    response = {"finish_reason": "tool_calls", "message": encoded}
    before = copy.deepcopy(response)
    message = decode_response(response)
    assert response == before
    assert list(message.tool_calls) == calls
    again = AssistantMessage.model_validate_json(message.model_dump_json(by_alias=True))
    assert again == message


def test_13_integers_beyond_a_double_stay_exact():
    arguments = json.dumps({"n": 2**53 + 1})
    block = {"type": "tool_call", "name": "f", "id": "1", "arguments": arguments}
    (call,) = decode_response({"content": [block]}).tool_calls
    assert call.arguments == {"n": 2**53 + 1}


def test_14_both_names_of_the_result_role_are_read():
    for role in ("tool", "toolResult"):
        assert ToolResultMessage("1", "f", "x", role=role).role == "toolResult"
