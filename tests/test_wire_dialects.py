"""Requests in the other dialects, and the rules of their providers over any conversation."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.histories import PIXEL, histories
from yiem_nb.errors import CommandError
from yiem_nb.messages import (
    AgentToolCall,
    AgentToolResult,
    AssistantMessage,
    ReasoningContent,
    TextContent,
    ToolResultMessage,
    UserMessage,
)
from yiem_nb.models import Model
from yiem_nb.tools import AgentTool
from yiem_nb.wire import FAMILIES, RequestOptions, encode
from yiem_nb.wire.compat import thinking_budget

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = {
    "weather": AgentTool(
        name="weather",
        description="Say the weather.",
        parameters=PARAMETERS,
        execute=lambda *_: AgentToolResult("x"),
    )
}


def model(api, **fields):
    given = {"id": "m", "provider": "p", "api": api, "input": ("text", "image"), "max_tokens": 8000}
    return Model(**given | fields)


def history(api):
    """One exchange with everything: thought, text, calls, results with image and failure."""
    names = {"api": api, "provider": "p", "model": "m"}
    calls = [
        AgentToolCall("c1", "weather", {"city": "Oslo"}, signature="sig"),
        AgentToolCall("c.2", "weather", {"city": "Rome"}),
    ]
    thought = ReasoningContent("hm", "signed", item_id="rs1")
    return [
        UserMessage([TextContent("Look"), PIXEL]),
        AssistantMessage([thought, TextContent("I look."), *calls], **names),
        ToolResultMessage("c1", "weather", [TextContent("rain"), PIXEL]),
        ToolResultMessage("c.2", "weather", [TextContent("no net"), PIXEL], is_error=True),
        UserMessage("And?"),
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_each_dialect_has_an_encoder(family):
    body = encode("Be brief.", [UserMessage("x")], TOOLS, model(family))
    assert "Be brief." in json.dumps(body)
    assert "weather" in json.dumps(body["tools"])
    extra = model(family, compat={"extra_body": {"seed": 7}, "tools_mode": "none"})
    body = encode("", [], TOOLS, extra)
    assert body["seed"] == 7
    assert "tools" not in body
    assert "Be brief" not in json.dumps(encode("", [], None, model(family)))


def test_chat_completions_are_the_first_dialect_and_others_are_refused():
    assert Model(id="m").api == next(iter(FAMILIES))
    with pytest.raises(CommandError, match="grpc") as caught:
        encode("", [], None, model("grpc"))
    assert "gemini" in caught.value.hint


# --- Anthropic -----------------------------------------------------------------------------

IMAGE = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
}


def anthropic(messages, options=None, tools=None, **fields):
    return encode("S", messages, tools, model("anthropic-messages", **fields), options)


def test_an_anthropic_conversation():
    body = anthropic(history("anthropic-messages"), compat={"prompt_cache": False})
    user, answer, results = body["messages"]
    assert user == {"role": "user", "content": [{"type": "text", "text": "Look"}, IMAGE]}
    second = answer["content"][3]["id"]
    assert re.fullmatch(r"c_2_[0-9a-f]{8}", second)
    assert answer["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "signed"},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Oslo"}},
        {"type": "tool_use", "id": second, "name": "weather", "input": {"city": "Rome"}},
    ]
    rain = [{"type": "text", "text": "rain"}, IMAGE]
    failed = [{"type": "text", "text": "no net"}]
    assert results["content"] == [
        {"type": "tool_result", "tool_use_id": "c1", "content": rain},
        {"type": "tool_result", "tool_use_id": second, "content": failed, "is_error": True},
        IMAGE,
        {"type": "text", "text": "And?"},
    ]
    assert (body["max_tokens"], body["stream"]) == (8000, True)
    assert body["system"] == [{"type": "text", "text": "S"}]


def test_stable_prefixes_are_cached_and_nothing_else():
    body = anthropic([UserMessage("a"), UserMessage("b")], tools=TOOLS)
    cached = {"cache_control": {"type": "ephemeral"}}
    assert body["system"][-1] == {"type": "text", "text": "S"} | cached
    assert body["tools"][-1]["cache_control"] == cached["cache_control"]
    assert body["messages"][-1]["content"] == [
        {"type": "text", "text": "a"},
        {"type": "text", "text": "b"} | cached,
    ]
    assert json.dumps(body).count("cache_control") == 3


def test_anthropic_thinks_within_a_budget_or_with_an_effort():
    options = RequestOptions("high", temperature=0.5)
    body = anthropic([], options, reasoning=True)
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 4000}
    assert "temperature" not in body
    effort = anthropic([], options, reasoning=True, compat={"thinking_style": "effort"})
    assert effort["thinking"] == {"type": "adaptive"}
    assert effort["output_config"] == {"effort": "high"}
    assert anthropic([], options)["temperature"] == 0.5
    assert "thinking" not in anthropic([], RequestOptions("max", max_tokens=1500), reasoning=True)
    assert "thinking" not in anthropic([], reasoning=True)


def test_a_budget_leaves_half_of_the_limit_to_the_answer():
    assert thinking_budget("low", 100_000) == 2048
    assert thinking_budget("max", 10_000) == 5000
    assert thinking_budget("minimal", 2047) == 0


@pytest.mark.parametrize(
    ("choice", "encoded"),
    [
        ("auto", {"type": "auto"}),
        ("none", {"type": "none"}),
        ("required", {"type": "any"}),
        ("weather", {"type": "tool", "name": "weather"}),
    ],
)
def test_anthropic_tool_choices(choice, encoded):
    body = anthropic([], RequestOptions(tool_choice=choice), tools=TOOLS)
    assert body["tool_choice"] == encoded


def test_redacted_thoughts_go_back_and_unsigned_ones_do_not():
    names = {"api": "anthropic-messages", "provider": "p", "model": "m"}
    blocks = [ReasoningContent("", "enc", redacted=True), ReasoningContent("x"), TextContent("a")]
    user, answer = anthropic([AssistantMessage(blocks, **names)])["messages"]
    assert user["content"] == [{"type": "text", "text": "(continued)"}]
    kinds = [block["type"] for block in answer["content"]]
    assert kinds == ["redacted_thinking", "text"]


ANTHROPIC = histories(api="anthropic-messages", provider="p", model="m")


@settings(deadline=None)
@given(ANTHROPIC, st.booleans())
def test_whatever_the_history_anthropic_takes_it(messages, sees):
    body = anthropic(messages, input=("text", "image") if sees else ("text",))
    json.dumps(body, ensure_ascii=False).encode()
    waiting = set()
    for number, turn in enumerate(body["messages"]):
        assert turn["role"] == ("assistant" if number % 2 else "user")
        kinds = [block["type"] for block in turn["content"]]
        assert kinds
        answered = [b["tool_use_id"] for b in turn["content"] if b["type"] == "tool_result"]
        assert len(answered) == len(waiting)
        assert set(answered) == waiting
        assert kinds[: len(answered)] == ["tool_result"] * len(answered)
        calls = [block["id"] for block in turn["content"] if block["type"] == "tool_use"]
        waiting = set(calls)
        assert len(calls) == len(waiting)
        assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", call) for call in calls)
        for block in turn["content"]:
            assert block["type"] != "text" or block["text"].strip()
            if block["type"] == "tool_result":
                assert block["content"]
                assert not block.get("is_error") or {b["type"] for b in block["content"]} <= {
                    "text"
                }
    assert not waiting


# --- OpenAI's responses --------------------------------------------------------------------


def responses(messages, options=None, tools=None, **fields):
    return encode("S", messages, tools, model("openai-responses", **fields), options)


def test_a_conversation_of_responses():
    items = responses(history("openai-responses"))["input"]
    second = items[4]["call_id"]
    image = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}
    assert items == [
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "Look"}, image],
        },
        {
            "type": "reasoning",
            "id": "rs1",
            "summary": [{"type": "summary_text", "text": "hm"}],
            "encrypted_content": "signed",
        },
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "I look."}],
        },
        {
            "type": "function_call",
            "call_id": "c1",
            "name": "weather",
            "arguments": '{"city": "Oslo"}',
        },
        {
            "type": "function_call",
            "call_id": second,
            "name": "weather",
            "arguments": '{"city": "Rome"}',
        },
        {
            "type": "function_call_output",
            "call_id": "c1",
            "output": [{"type": "input_text", "text": "rain"}, image],
        },
        {
            "type": "function_call_output",
            "call_id": second,
            "output": [{"type": "input_text", "text": "no net"}, image],
        },
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "And?"}],
        },
    ]


def test_a_result_of_text_alone_is_plain_text():
    calls = AssistantMessage(tool_calls=[AgentToolCall("c1", "weather")])
    items = responses([calls, ToolResultMessage("c1", "weather", "rain")])["input"]
    assert items[1]["output"] == "rain"


def test_settings_of_responses():
    options = RequestOptions("max", max_tokens=9, temperature=0.5, tool_choice="weather")
    body = responses([], options, TOOLS, reasoning=True)
    assert (body["store"], body["stream"], body["instructions"]) == (False, True, "S")
    assert (body["max_output_tokens"], body["temperature"]) == (9, 0.5)
    assert body["reasoning"] == {"effort": "high", "summary": "auto"}
    assert body["include"] == ["reasoning.encrypted_content"]
    assert body["tool_choice"] == {"type": "function", "name": "weather"}
    assert body["tools"] == [
        {
            "type": "function",
            "name": "weather",
            "description": "Say the weather.",
            "parameters": PARAMETERS,
            "strict": False,
        }
    ]
    quiet = responses([], RequestOptions(tool_choice="auto"), TOOLS, reasoning=True)
    assert quiet["tool_choice"] == "auto"
    assert "reasoning" not in quiet


@settings(deadline=None)
@given(histories(api="openai-responses", provider="p", model="m"))
def test_whatever_the_history_each_function_call_has_its_output(messages):
    body = responses(messages)
    json.dumps(body, ensure_ascii=False).encode()
    kinds = [item.get("type", item.get("role")) for item in body["input"]]
    assert kinds.count("function_call") == kinds.count("function_call_output")
    waiting = []
    for item in body["input"]:
        if item.get("type") == "function_call":
            waiting.append(item["call_id"])
        elif item.get("type") == "function_call_output":
            waiting.remove(item["call_id"])
            assert item["output"]
        elif "role" in item:
            assert item["content"]
    assert not waiting


# --- Gemini --------------------------------------------------------------------------------


def gemini(messages, options=None, tools=None, **fields):
    return encode("S", messages, tools, model("gemini", **fields), options)


def test_a_gemini_conversation():
    user, answer, results = gemini(history("gemini"))["contents"]
    image = {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}
    assert user == {"role": "user", "parts": [{"text": "Look"}, image]}
    second = answer["parts"][2]["functionCall"]["id"]
    assert answer == {
        "role": "model",
        "parts": [
            {"text": "I look."},
            {
                "functionCall": {"id": "c1", "name": "weather", "args": {"city": "Oslo"}},
                "thoughtSignature": "sig",
            },
            {"functionCall": {"id": second, "name": "weather", "args": {"city": "Rome"}}},
        ],
    }
    assert results["parts"] == [
        {"functionResponse": {"name": "weather", "id": "c1", "response": {"output": "rain"}}},
        image,
        {"functionResponse": {"name": "weather", "id": second, "response": {"error": "no net"}}},
        image,
        {"text": "And?"},
    ]


def test_gemini_settings():
    options = RequestOptions("low", max_tokens=9000, temperature=0.5, tool_choice="weather")
    body = gemini([], options, TOOLS, reasoning=True)
    assert body["systemInstruction"] == {"parts": [{"text": "S"}]}
    assert body["generationConfig"] == {
        "maxOutputTokens": 9000,
        "temperature": 0.5,
        "thinkingConfig": {"includeThoughts": True, "thinkingBudget": 2048},
    }
    assert body["toolConfig"]["functionCallingConfig"] == {
        "mode": "ANY",
        "allowedFunctionNames": ["weather"],
    }
    assert body["tools"][0]["functionDeclarations"][0]["parametersJsonSchema"] == PARAMETERS
    levels = gemini([], options, reasoning=True, compat={"thinking_style": "effort"})
    assert levels["generationConfig"]["thinkingConfig"]["thinkingLevel"] == "low"
    none = gemini([], RequestOptions(tool_choice="none"), TOOLS)
    assert none["toolConfig"]["functionCallingConfig"] == {"mode": "NONE"}
    assert "generationConfig" not in none


# --- Ollama --------------------------------------------------------------------------------


def ollama(messages, options=None, tools=None, **fields):
    return encode("S", messages, tools, model("ollama", **fields), options)


def test_an_ollama_conversation():
    assert ollama(history("ollama"))["messages"] == [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "Look", "images": ["iVBORw0KGgo="]},
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [
                {"function": {"name": "weather", "arguments": {"city": "Oslo"}}},
                {"function": {"name": "weather", "arguments": {"city": "Rome"}}},
            ],
        },
        {"role": "tool", "content": "rain", "tool_name": "weather"},
        {"role": "tool", "content": "no net", "tool_name": "weather"},
        {
            "role": "user",
            "content": "Images returned by the tools above:",
            "images": ["iVBORw0KGgo=", "iVBORw0KGgo="],
        },
        {"role": "user", "content": "And?"},
    ]
    assert ollama(history("ollama")[:-1])["messages"][-1]["role"] == "user"


def test_ollama_settings():
    options = RequestOptions("low", max_tokens=9, temperature=0.5)
    body = ollama([], options, TOOLS, context_window=4096, reasoning=True)
    assert body["options"] == {"num_ctx": 4096, "num_predict": 9, "temperature": 0.5}
    assert body["think"] is True
    assert body["tools"][0]["function"]["name"] == "weather"
    assert ollama([], reasoning=True)["think"] is False
    assert "think" not in ollama([])
