"""What OpenAI and Anthropic refuse, as a strict reader of requests.

The servers of the tests run it over every request they get; what it finds fails the test.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["broken_rules", "broken_rules_of_line"]

_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_TOOL = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def broken_rules_of_line(line: str, body: bytes) -> list[str]:
    """Read a request by its first line; one that is no request of a known kind breaks no rule."""
    path = line.split(" ")[1].partition("?")[0]
    family = next((f for end, f in _PATHS.items() if path.endswith(end)), None)
    return broken_rules(family, json.loads(body)) if family is not None else []


def broken_rules(family: str, body: dict[str, Any]) -> list[str]:
    """Say what `family` would refuse in `body`."""
    found = list(_RULES[family](body)) if family in _RULES else []
    try:
        json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except ValueError as error:
        found.append(f"no JSON in UTF-8: {error}")
    return found


_PATHS = {
    "/chat/completions": "openai-chat",
    "/responses": "openai-responses",
    "/v1/messages": "anthropic-messages",
}


# --- Chat completions ----------------------------------------------------------------------


def _chat(body: dict[str, Any]) -> Iterator[str]:
    if "max_tokens" in body and "max_completion_tokens" in body:
        yield "two limits"
    for tool in body.get("tools", ()):
        yield from _tool(tool["function"]["name"], tool["function"]["parameters"])
    if body.get("tools") == []:
        yield "an empty list of tools"
    waiting: list[str] = []
    for number, message in enumerate(body["messages"]):
        role = message["role"]
        if role not in ("system", "developer", "user", "assistant", "tool"):
            yield f"{number}: role {role!r}"
        if role in ("system", "developer") and number:
            yield f"{number}: a system message that is not the first"
        if role == "tool":
            if message["tool_call_id"] not in waiting:
                yield f"{number}: a result nobody waits for"
            else:
                waiting.remove(message["tool_call_id"])
        elif waiting:
            yield f"{number}: {role} before the results of {waiting}"
            waiting = []
        calls = message.get("tool_calls")
        if calls is not None and (role != "assistant" or not calls):
            yield f"{number}: tool_calls {calls!r} of {role}"
        yield from _chat_content(number, message, calls)
        for call in calls or ():
            waiting.append(call["id"])
            if not 0 < len(call["id"]) <= 40:
                yield f"{number}: an id of {len(call['id'])} characters"
            if not isinstance(json.loads(call["function"]["arguments"]), dict):
                yield f"{number}: arguments that are no object"
    if len(waiting) != len(set(waiting)):
        yield "the same id twice"
    if waiting:
        yield f"no result for {waiting}"


def _chat_content(number: int, message: dict[str, Any], calls: Any) -> Iterator[str]:
    content = message.get("content")
    if content is None and not calls:
        yield f"{number}: no content"
    if content in ("", []) and not calls:
        yield f"{number}: empty content"
    for part in content if isinstance(content, list) else ():
        if part["type"] == "image_url":
            if message["role"] != "user":
                yield f"{number}: an image of {message['role']}"
            yield from _data_url(number, part["image_url"]["url"])
        elif part["type"] != "text":
            yield f"{number}: a part {part['type']!r}"


# --- Responses -----------------------------------------------------------------------------


def _responses(body: dict[str, Any]) -> Iterator[str]:
    if body.get("store") is not False:
        yield "it would be stored"
    for tool in body.get("tools", ()):
        yield from _tool(tool["name"], tool["parameters"])
    called, answered = [], []
    for number, item in enumerate(body["input"]):
        match item["type"]:
            case "function_call":
                called.append(item["call_id"])
                if not isinstance(json.loads(item["arguments"]), dict):
                    yield f"{number}: arguments that are no object"
                if not _ID.fullmatch(item["call_id"]):
                    yield f"{number}: id {item['call_id']!r}"
            case "function_call_output":
                answered.append(item["call_id"])
                if item["call_id"] not in called:
                    yield f"{number}: an output before its call"
            case "reasoning":
                if not item.get("encrypted_content"):
                    yield f"{number}: a thought that would be looked for on the server"
            case "message":
                if not item["content"]:
                    yield f"{number}: empty content"
            case other:
                yield f"{number}: an item {other!r}"
    if sorted(called) != sorted(answered):
        yield f"calls {called}, outputs {answered}"


# --- Anthropic -----------------------------------------------------------------------------


def _anthropic(body: dict[str, Any]) -> Iterator[str]:
    if not isinstance(body.get("max_tokens"), int) or body["max_tokens"] < 1:
        yield "no max_tokens"
    thinking = body.get("thinking", {})
    if (
        thinking.get("type") == "enabled"
        and not 1024 <= thinking["budget_tokens"] < body["max_tokens"]
    ):
        yield f"a budget of {thinking['budget_tokens']}"
    if thinking and "temperature" in body:
        yield "a temperature beside thinking"
    if json.dumps(body).count('"cache_control"') > 4:
        yield "more than four breakpoints"
    for tool in body.get("tools", ()):
        yield from _tool(tool["name"], tool["input_schema"])
    waiting: list[str] = []
    for number, turn in enumerate(body["messages"]):
        if turn["role"] != ("assistant" if number % 2 else "user"):
            yield f"{number}: turns do not alternate from the user's"
        answered = [b["tool_use_id"] for b in turn["content"] if b["type"] == "tool_result"]
        if sorted(answered) != sorted(waiting):
            yield f"{number}: calls {waiting}, results {answered}"
        kinds = [block["type"] for block in turn["content"]]
        if not kinds:
            yield f"{number}: empty content"
        if kinds[: len(answered)] != ["tool_result"] * len(answered):
            yield f"{number}: results do not come first"
        waiting = [block["id"] for block in turn["content"] if block["type"] == "tool_use"]
        for block in turn["content"]:
            yield from _block(number, turn["role"], block)
    if waiting:
        yield f"no result for {waiting}"
    kinds = [[block["type"] for block in turn["content"]] for turn in body["messages"]]
    if any("tool_use" in turn for turn in kinds) and "tools" not in body:
        yield "calls without tools"
    under_way = thinking.get("type") == "enabled" and kinds and "tool_result" in kinds[-1]
    if under_way and kinds[-2][0] not in ("thinking", "redacted_thinking"):
        yield "a call under way that did not begin with a thought"


def _block(number: int, role: str, block: dict[str, Any]) -> Iterator[str]:
    allowed = {
        "assistant": {"text", "tool_use", "thinking", "redacted_thinking"},
        "user": {"text", "image", "tool_result"},
    }
    if block["type"] not in allowed[role]:
        yield f"{number}: {block['type']} of {role}"
    if block["type"] == "text" and not block["text"].strip():
        yield f"{number}: text of blanks"
    if block["type"] == "tool_use" and not _ID.fullmatch(block["id"]):
        yield f"{number}: id {block['id']!r}"
    if block["type"] == "thinking" and not block.get("signature"):
        yield f"{number}: a thought without signature"
    if block["type"] == "image":
        base64.b64decode(block["source"]["data"], validate=True)
    if block["type"] == "tool_result" and block.get("is_error"):
        inner = {part["type"] for part in block["content"]}
        yield from (f"{number}: an error with {kind}" for kind in inner - {"text"})


# --- All -----------------------------------------------------------------------------------


def _tool(name: str, schema: Any) -> Iterator[str]:
    if not _TOOL.fullmatch(name):
        yield f"a tool called {name!r}"
    if not isinstance(schema, dict) or schema.get("type") != "object":
        yield f"{name}: a schema that is no object's"


def _data_url(number: int, url: str) -> Iterator[str]:
    found = re.fullmatch(r"data:image/[a-z+.-]+;base64,(.+)", url)
    if found is None:
        yield f"{number}: an image at {url[:30]!r}"
    else:
        base64.b64decode(found[1], validate=True)


_RULES: dict[str, Callable[[dict[str, Any]], Iterator[str]]] = {
    "openai-chat": _chat,
    "openai-responses": _responses,
    "anthropic-messages": _anthropic,
}
