"""What is sent: literally what the specification says, then what servers accept."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.histories import PIXEL, histories
from yiem_nb.errors import ErrorCode, ProviderError
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
from yiem_nb.wire import Compat, RequestOptions, decode_response, encode, uses_schema
from yiem_nb.wire.compat import nearest_level
from yiem_nb.wire.history import NO_IMAGE, NO_RESULT, plain_id, prepared, short_id
from yiem_nb.wire.openai_encode import (
    encode_assistant,
    encode_content,
    encode_system,
    encode_tool,
    encode_tool_result,
    encode_user,
)

URL = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
MODEL = Model(id="m", provider="p", api="openai-chat")
SEEING = MODEL.model_copy(update={"input": ("text", "image")})
MINE = {"api": "openai-chat", "provider": "p", "model": "m"}
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "Where"}},
    "required": ["city"],
}


def tool(name="weather", parameters=PARAMETERS):
    return AgentTool(
        name=name,
        description="Say the weather.\nIn detail.",
        parameters=parameters,
        execute=lambda *_: AgentToolResult("x"),
    )


def compat(**flags):
    return MODEL.model_copy(update={"compat": flags})


def sent(*messages, model=MODEL):
    return encode("", messages, None, model)["messages"]


def call(id="c1", name="weather", **arguments):
    return AgentToolCall(id, name, arguments or {"city": "Oslo"})


# --- The specification's rows --------------------------------------------------------------


@pytest.mark.requirement("SP-011")
def test_the_system_prompt_is_a_text_block():
    assert encode_system("Be brief.") == {
        "role": "system",
        "content": [{"type": "text", "text": "Be brief."}],
    }


@pytest.mark.requirement("SP-012")
def test_a_user_message_is_blocks_of_text_and_images():
    assert encode_user(UserMessage([TextContent("Look"), PIXEL])) == {
        "role": "user",
        "content": [{"type": "text", "text": "Look"}, URL],
    }
    assert encode_content([ReasoningContent("hm"), call()]) == []


@pytest.mark.requirement("SP-013")
def test_calls_are_functions_with_arguments_as_json_text():
    message = AssistantMessage(tool_calls=[call(city="Zürich")])
    assert encode_assistant(message) == {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "weather", "arguments": '{"city": "Zürich"}'},
            }
        ],
    }


@pytest.mark.requirement("SP-013")
def test_text_beside_calls_is_kept():
    message = AssistantMessage("Let me look.", tool_calls=[call()])
    assert encode_assistant(message)["content"] == [{"type": "text", "text": "Let me look."}]


@pytest.mark.requirement("SP-014")
def test_an_answer_is_blocks():
    assert encode_assistant(AssistantMessage("Hello")) == {
        "role": "assistant",
        "content": [{"type": "text", "text": "Hello"}],
    }


@pytest.mark.requirement("SP-015")
def test_a_result_names_its_call():
    assert encode_tool_result(ToolResultMessage("c1", "weather", "rain")) == {
        "role": "tool",
        "tool_call_id": "c1",
        "content": [{"type": "text", "text": "rain"}],
    }


@pytest.mark.requirement("SP-016")
def test_a_tool_is_a_function_with_its_schema():
    assert encode_tool(tool()) == {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Say the weather.\nIn detail.",
            "parameters": PARAMETERS,
        },
    }


# --- The request ---------------------------------------------------------------------------


def test_a_whole_request():
    history = [
        UserMessage("How is it in Oslo?"),
        AssistantMessage("Let me see.", tool_calls=[call()], **MINE),
        ToolResultMessage("c1", "weather", "rain"),
        AssistantMessage("It rains.", **MINE),
        UserMessage("Thanks."),
    ]
    body = encode("Be brief.", history, {"weather": tool()}, MODEL)
    assert body == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "How is it in Oslo?"},
            {
                "role": "assistant",
                "content": "Let me see.",
                "tool_calls": encode_assistant(history[1])["tool_calls"],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "rain"},
            {"role": "assistant", "content": "It rains."},
            {"role": "user", "content": "Thanks."},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [encode_tool(tool())],
    }


def test_options_become_fields():
    options = RequestOptions(max_tokens=9, temperature=0.5, tool_choice="weather")
    body = encode("", [UserMessage("x")], {"weather": tool()}, MODEL, options)
    assert body["max_completion_tokens"] == 9
    assert body["temperature"] == 0.5
    assert body["tool_choice"] == {"type": "function", "function": {"name": "weather"}}
    required = RequestOptions(tool_choice="required")
    assert encode("", [], {"weather": tool()}, MODEL, required)["tool_choice"] == "required"
    assert "tool_choice" not in encode("", [], None, MODEL, required)


def test_flags_bend_the_request():
    model = compat(
        system_role="developer",
        max_tokens_field="max_tokens",
        usage_in_stream=False,
        null_content=False,
        extra_body={"seed": 7},
    )
    message = AssistantMessage(tool_calls=[call()], **MINE)
    body = encode("S", [message], None, model, RequestOptions(max_tokens=9))
    assert body["messages"][0] == {"role": "developer", "content": "S"}
    assert body["messages"][1]["content"] == ""
    assert (body["max_tokens"], body["seed"]) == (9, 7)
    assert "stream_options" not in body


def test_calls_alone_have_null_content():
    assert sent(AssistantMessage(tool_calls=[call()], **MINE))[0]["content"] is None


@pytest.mark.parametrize(
    ("level", "effort"),
    [("minimal", "low"), ("low", "low"), ("medium", "medium"), ("xhigh", "high"), ("max", "high")],
)
def test_a_thinking_level_becomes_the_nearest_effort(level, effort):
    model = MODEL.model_copy(update={"reasoning": True})
    body = encode("", [], None, model, RequestOptions(thinking_level=level))
    assert body["reasoning_effort"] == effort


@pytest.mark.parametrize(
    ("model", "level"),
    [
        (MODEL, "high"),
        (MODEL.model_copy(update={"reasoning": True}), "off"),
        (
            MODEL.model_copy(update={"reasoning": True, "compat": {"reasoning_effort": False}}),
            "high",
        ),
    ],
)
def test_no_effort_is_asked_of_a_model_that_does_not_know_it(model, level):
    assert "reasoning_effort" not in encode("", [], None, model, RequestOptions(level))


@given(
    st.sampled_from(list(ThinkingLevel)), st.sets(st.sampled_from(list(ThinkingLevel)), min_size=1)
)
def test_the_nearest_level_is_known_and_not_above_unless_it_must_be(level, known):
    found = nearest_level(level, tuple(known))
    order = list(ThinkingLevel)
    assert found in known
    assert order.index(found) <= order.index(level) or found == min(known, key=order.index)


# --- Histories -----------------------------------------------------------------------------


def test_thoughts_of_other_models_and_empty_answers_are_left_out():
    thought = ReasoningContent("hm", field="reasoning_content")
    history = (
        AssistantMessage([thought, TextContent("a")], provider="other", model="m"),
        AssistantMessage([thought], **MINE),
        AssistantMessage([thought, TextContent("b")], **MINE),
        AssistantMessage([], **MINE),
    )
    assert sent(*history) == [
        {"role": "assistant", "content": "a"},
        {"role": "assistant", "content": "b"},
    ]
    echoed = sent(*history, model=compat(echo_reasoning=True))
    assert echoed[1] == {"role": "assistant", "content": "b", "reasoning_content": "hm"}
    assert "reasoning_content" not in echoed[0]
    required = sent(*history, model=compat(required_reasoning_field="reasoning_content"))
    assert [message["reasoning_content"] for message in required] == ["", ""]


def test_a_thought_from_the_text_is_not_echoed():
    thought = ReasoningContent("hm", field="content")
    message = AssistantMessage([thought, TextContent("b")], **MINE)
    assert sent(message, model=compat(echo_reasoning=True)) == [
        {"role": "assistant", "content": "b"}
    ]


@pytest.mark.parametrize("reason", [StopReason.ABORTED, StopReason.ERROR])
def test_an_answer_that_was_cut_keeps_its_text_alone(reason):
    cut = AgentToolCall("c1", "weather", raw_arguments='{"ci', incomplete=True)
    message = AssistantMessage([TextContent("Let me"), cut], stop_reason=reason, **MINE)
    result = ToolResultMessage("c1", "weather", "stopped", is_error=True)
    assert sent(message, result) == [{"role": "assistant", "content": "Let me"}]
    assert sent(AssistantMessage([cut], stop_reason=reason, **MINE), result) == []


def test_every_call_is_answered_once_and_right_behind_it():
    calls = AssistantMessage(tool_calls=[call("a"), call("b"), call("c")], **MINE)
    history = (
        calls,
        ToolResultMessage("b", "weather", "sun"),
        UserMessage("Wait!"),
        ToolResultMessage("a", "weather", "rain"),
        ToolResultMessage("a", "weather", "twice"),
        ToolResultMessage("zzz", "weather", "whose?"),
        AssistantMessage("Done.", **MINE),
    )
    assert [(m["role"], m["content"]) for m in sent(*history)[1:]] == [
        ("tool", "rain"),
        ("tool", "sun"),
        ("tool", NO_RESULT),
        ("user", "Wait!"),
        ("assistant", "Done."),
    ]


def test_a_result_without_a_call_is_not_sent():
    assert sent(ToolResultMessage("a", "weather", "rain"), UserMessage("x")) == [
        {"role": "user", "content": "x"}
    ]


def test_images_of_results_follow_the_whole_batch():
    history = (
        AssistantMessage(tool_calls=[call("a"), call("b")], **MINE),
        ToolResultMessage("a", "weather", [PIXEL]),
        ToolResultMessage("b", "weather", [TextContent("map"), PIXEL]),
        UserMessage("And?"),
    )
    out = sent(*history, model=SEEING)
    assert [m["content"] for m in out[1:3]] == ["(see the image below)", "map"]
    assert out[3]["content"] == [
        {"type": "text", "text": "Images returned by the tools above:"},
        URL,
        URL,
    ]
    assert out[4] == {"role": "user", "content": "And?"}
    assert len(sent(*history[:3], model=SEEING)) == 4


def test_a_model_without_eyes_is_told_that_an_image_was_left_out():
    message = UserMessage([TextContent("Look"), PIXEL, PIXEL, TextContent("here"), PIXEL])
    text = f"Look\n\n{NO_IMAGE}\n\nhere\n\n{NO_IMAGE}"
    assert sent(message) == [{"role": "user", "content": text}]
    seen = sent(message, model=SEEING)[0]["content"]
    assert [part["type"] for part in seen] == [
        "text",
        "image_url",
        "image_url",
        "text",
        "image_url",
    ]


def test_nothing_empty_is_sent():
    empty = TextContent.model_validate({"text": ""})
    blank = UserMessage.model_validate({"content": [empty]})
    silent = ToolResultMessage.model_validate({"toolCallId": "c1", "content": []})
    out = sent(UserMessage(), blank, AssistantMessage(tool_calls=[call()], **MINE), silent)
    assert [m["content"] for m in out] == [None, "(no output)"]


def test_half_a_character_does_not_break_the_request():
    broken = "a\ud800b"
    out = encode(
        broken,
        [UserMessage(broken), AssistantMessage(broken, tool_calls=[call(city=broken)], **MINE)],
        None,
        MODEL,
    )
    json.dumps(out, ensure_ascii=False).encode()
    assert out["messages"][1]["content"] == "a\ufffdb"


def test_long_ids_are_shortened_in_both_halves():
    long, twin = "x" * 60, "x" * 59 + "y"
    out = sent(
        AssistantMessage(tool_calls=[call(long), call(twin)], **MINE),
        ToolResultMessage(long, "weather", "1"),
        ToolResultMessage(twin, "weather", "2"),
    )
    ids = [each["id"] for each in out[0]["tool_calls"]]
    assert [m["tool_call_id"] for m in out[1:]] == ids
    assert len(set(ids)) == 2
    assert max(map(len, ids)) == 40


@given(st.text(min_size=1), st.text(min_size=1))
def test_id_rules_are_stable_and_keep_ids_apart(first, second):
    for rule, longest in ((short_id(40), 40), (plain_id(64), 64)):
        assert rule(first) == rule(rule(first))
        assert 0 < len(rule(first)) <= longest
        assert (rule(first) == rule(second)) == (first == second)


def test_two_ids_that_a_rule_makes_one_are_kept_apart():
    message = AssistantMessage(tool_calls=[call("a"), call("b")], **MINE)
    ids = [c.id for c in prepared([message], MODEL, call_id=lambda given: given[:1])[0].tool_calls]
    assert ids == ["a", "b"]
    ids = [
        c.id
        for c in prepared([message], MODEL, call_id=lambda given: f"{len(given)}")[0].tool_calls
    ]
    assert len(set(ids)) == 2


def test_what_only_the_calling_model_understands_is_not_sent_to_another():
    signed = AgentToolCall("c", "f", signature="s", item_id="i")
    for names, kept in ((MINE, ("s", "i")), ({}, (None, None))):
        (out, _) = prepared([AssistantMessage([signed], **names)], MODEL, call_id=str)
        assert (out.tool_calls[0].signature, out.tool_calls[0].item_id) == kept


# --- Any history at all --------------------------------------------------------------------

HISTORIES = histories(**MINE)


def check_openai(body):
    """OpenAI's own rules for a conversation."""
    json.dumps(body, ensure_ascii=False).encode()
    waiting = []
    for message in body["messages"]:
        if message["role"] == "tool":
            assert message["tool_call_id"] in waiting
            waiting.remove(message["tool_call_id"])
            assert message["content"]
            continue
        assert not waiting
        calls = message.get("tool_calls", [])
        waiting = [each["id"] for each in calls]
        assert len(set(waiting)) == len(waiting)
        assert all(0 < len(id) <= 40 for id in waiting)
        assert all(isinstance(json.loads(c["function"]["arguments"]), dict) for c in calls)
        assert message["content"] or (message["content"] is None and calls)
        assert isinstance(message["content"], str | None) or message["role"] == "user"
    assert not waiting


@settings(deadline=None)
@given(HISTORIES, st.booleans())
def test_whatever_the_history_the_request_is_valid(history, sees):
    check_openai(encode("S", history, None, SEEING if sees else MODEL))


@settings(deadline=None)
@given(HISTORIES)
def test_an_answer_that_was_sent_reads_back_as_it_was(history):
    for message in prepared(history, MODEL, call_id=str):
        if isinstance(message, AssistantMessage):
            (encoded, *_) = sent(message)
            again = decode_response({"message": encoded})
            assert [(c.id, c.name) for c in again.tool_calls] == [
                (short_id(40)(c.id), c.name) for c in message.tool_calls
            ]
            assert again.text == "".join(
                b.text for b in message.content if isinstance(b, TextContent)
            )


# --- Tools through a schema ----------------------------------------------------------------

EMULATED = compat(tools_mode="json_schema")


def test_a_server_without_tools_is_held_to_a_schema():
    body = encode("Be brief.", [UserMessage("x")], {"weather": tool()}, EMULATED)
    assert "tools" not in body
    assert body["messages"][0]["content"] == (
        "Be brief.\n\nYou have these tools:\n- weather(city): Say the weather.\n"
        "Answer with one JSON object. If a tool can answer, use it: "
        '{"tool": name, "arguments": {...}}. Otherwise: {"reply": text}.'
    )
    schema = body["response_format"]["json_schema"]["schema"]
    assert schema["anyOf"] == [
        {
            "type": "object",
            "properties": {
                "tool": {"const": "weather"},
                "arguments": {
                    "type": "object",
                    "properties": {"city": {"type": "string"}},
                    "required": ["city"],
                },
            },
            "required": ["tool", "arguments"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "properties": {"reply": {"type": "string"}},
            "required": ["reply"],
            "additionalProperties": False,
        },
    ]
    without = encode("", [UserMessage("x")], {"weather": tool()}, EMULATED)
    assert without["messages"][0]["role"] == "system"


def test_what_calls_returned_stands_below_the_question():
    history = [
        UserMessage("Oslo?"),
        AssistantMessage("Well.", tool_calls=[call()], **MINE),
        ToolResultMessage("c1", "weather", "rain"),
        AssistantMessage(tool_calls=[call("c2")], **MINE),
        ToolResultMessage("c2", "weather", "no net", is_error=True),
    ]
    below = 'Oslo?\n\nweather(city="Oslo") returned: rain\n\nweather(city="Oslo") failed: no net'
    asked = f"{below}\n\nAnswer the question with this result, in one sentence."
    for model in (EMULATED, compat(tools_mode="none")):
        assert sent(*history, model=model) == [{"role": "user", "content": asked}]
        answered = sent(*history, AssistantMessage("Rain.", **MINE), model=model)
        assert [m["content"] for m in answered] == [below, "Well.", "Rain."]


def test_a_result_whose_call_or_question_is_gone_does_no_harm():
    lost = ToolResultMessage("c9", "weather", "rain")
    assert sent(lost, model=EMULATED) == []
    (question,) = sent(UserMessage("Oslo?"), lost, model=EMULATED)
    assert question["content"].startswith("Oslo?\n\nweather() returned: rain\n\n")


def test_a_model_that_cannot_chain_calls_answers_freely_after_a_result():
    result = ToolResultMessage("c1", "weather", "rain")
    history = [UserMessage("x"), AssistantMessage(tool_calls=[call()], **MINE), result]
    plain = compat(tools_mode="json_schema", chain_calls=False)
    assert "response_format" not in encode("", history, {"weather": tool()}, plain)
    assert "response_format" in encode("", history, {"weather": tool()}, EMULATED)
    assert "response_format" in encode("", history[:1], {"weather": tool()}, plain)
    assert not uses_schema([], {}, Compat.of(EMULATED.compat))
    assert "response_format" not in encode("", [], None, EMULATED)


def test_no_tools_are_offered_where_there_are_none():
    body = encode("", [], {"weather": tool()}, compat(tools_mode="none"))
    assert body.keys() == {"model", "messages", "stream", "stream_options"}


ANY = {"type": ["string", "number", "boolean", "null", "array", "object"]}


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        ({"type": "string", "title": "T", "pattern": "^a"}, {"type": "string"}),
        ({"$ref": "#/$defs/P"}, {"type": "object", "properties": {"x": {"type": "number"}}}),
        (
            {"allOf": [{"$ref": "#/$defs/P"}]},
            {"type": "object", "properties": {"x": {"type": "number"}}},
        ),
        ({"$ref": "#/$defs/Missing"}, ANY),
        ({"$ref": "#/$defs/Loop"}, ANY),
        ({"type": "array", "prefixItems": [{"type": "string"}]}, {"type": "array"}),
        ({"type": "array", "items": {"title": "x"}}, {"type": "array", "items": ANY}),
        (
            {"anyOf": [{"type": "null"}, {"enum": [1]}]},
            {"anyOf": [{"type": "null"}, {"enum": [1]}]},
        ),
        ({"oneOf": [{"const": 1}]}, {"anyOf": [{"const": 1}]}),
        (
            {"type": "object", "additionalProperties": {"type": "integer"}},
            {"type": "object", "additionalProperties": {"type": "integer"}},
        ),
        (
            {"properties": {}, "additionalProperties": False},
            {"properties": {}, "type": "object", "additionalProperties": False},
        ),
        (True, ANY),
        ({}, ANY),
    ],
)
def test_schemas_are_reduced_to_what_grammars_know(given, plain):
    definitions = {
        "P": {"type": "object", "properties": {"x": {"type": "number"}}},
        "Loop": {"$ref": "#/$defs/Loop"},
    }
    parameters = {"type": "object", "properties": {"a": given}, "$defs": definitions}
    body = encode("", [], {"f": tool("f", parameters)}, EMULATED)
    branch = body["response_format"]["json_schema"]["schema"]["anyOf"][0]
    assert branch["properties"]["arguments"]["properties"]["a"] == plain


def test_a_schema_that_contains_itself_ends_somewhere():
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
    parameters = {"type": "object", "properties": {"n": node}, "$defs": {"Node": node}}
    body = encode("", [], {"f": tool("f", parameters)}, EMULATED)
    text = json.dumps(body["response_format"])
    assert "$ref" not in text
    assert text.count("next") < 20


def test_parameters_that_are_no_object_are_any_object():
    body = encode("", [], {"f": tool("f", {"type": "string"})}, EMULATED)
    branch = body["response_format"]["json_schema"]["schema"]["anyOf"][0]
    assert branch["properties"]["arguments"] == {"type": "object"}


# --- Flags ---------------------------------------------------------------------------------


def test_an_unknown_flag_is_refused_with_the_nearest():
    with pytest.raises(ProviderError, match="think_tag'") as caught:
        Compat.of({"think_tag": True})
    assert caught.value.hint == "Did you mean think_tags?"
    assert caught.value.code is ErrorCode.PROVIDER_CONFIG
    with pytest.raises(ProviderError, match="zzz") as caught:
        Compat.of({"zzz": True})
    assert "tools_mode" in caught.value.hint


@pytest.mark.parametrize(
    "flags", [{"tools_mode": "maybe"}, {"efforts": ["huge"]}, {"extra_body": 3}]
)
def test_a_value_a_flag_cannot_have_is_refused(flags):
    with pytest.raises(ProviderError, match=next(iter(flags))) as caught:
        Compat.of(flags)
    assert caught.value.hint
