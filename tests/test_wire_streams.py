"""Every fixture folds to its message, however its bytes are cut."""

import base64
import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from yiem_nb.messages import (
    AgentToolCall,
    AssistantMessage,
    ReasoningContent,
    StopReason,
    TextContent,
)
from yiem_nb.wire import DecoderOptions, decoder_class, fold_stream

HERE = Path(__file__).parent / "conformance"
CASES = {
    case["id"]: case
    for name in ("streams.json", "streams-own.json")
    if (HERE / name).exists()
    for case in json.loads((HERE / name).read_text("utf-8"))
}
NOT_YET = ("anthropic-messages", "openai-responses", "gemini", "ollama")
CASES = {k: c for k, c in CASES.items() if c["family"] not in NOT_YET}


def chunks_of(case):
    raw = case["raw"]
    return [raw.encode()] if isinstance(raw, str) else [base64.b64decode(part) for part in raw]


def fold(case, chunks):
    return fold_stream(
        case["family"],
        chunks,
        content_type=case.get("content_type", "text/event-stream"),
        options=case.get("options"),
    )


def neutral(block):
    """Our block in the words of the fixtures."""
    if isinstance(block, TextContent):
        return {"type": "text", "text": block.text}
    if isinstance(block, ReasoningContent):
        return {
            "type": "thinking",
            "thinking": block.text,
            "signature": block.signature,
            "redacted": block.redacted,
            "field": block.field,
            "item_id": block.item_id,
        }
    assert isinstance(block, AgentToolCall)
    return {
        "type": "tool_call",
        "id": block.id,
        "name": block.name,
        "arguments": block.arguments if block.runnable else None,
        "raw_arguments": block.raw_arguments,
        "incomplete": block.incomplete,
        "invalid": block.invalid,
        "signature": block.signature,
        "item_id": block.item_id,
        "recovered": block.recovered,
    }


def check(message: AssistantMessage, expected):
    blocks = [neutral(block) for block in message.content]
    assert len(blocks) == len(expected["content"]), blocks
    for block, wanted in zip(blocks, expected["content"], strict=True):
        generated = {"id": block["id"]} if wanted.get("id") == "*" else {}
        assert block | wanted | generated == block
    ids = [call.id for call in message.tool_calls]
    assert all(ids)
    assert len(set(ids)) == len(ids)
    assert message.stop_reason == StopReason(expected["stop_reason"])
    assert message.raw_stop_reason == expected["raw_stop_reason"]
    usage = expected["usage"]
    assert message.usage.reported == (usage is not None)
    for name, number in (usage or {}).items():
        assert getattr(message.usage, name) == number, name
    error = expected["error"]
    assert (message.error_code is None) == (error is None)
    if error:
        assert message.error_code == error["code"]
        assert message.retryable == error["retryable"]
        assert error.get("message", message.error_message) == message.error_message


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_fixture_folds_to_its_message(case):
    check(fold(case, chunks_of(case)), case["expected"])


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_one_byte_at_a_time_makes_no_difference(case):
    body = b"".join(chunks_of(case))
    check(fold(case, [body[i : i + 1] for i in range(len(body))]), case["expected"])


@settings(deadline=None, max_examples=150)
@given(st.sampled_from(sorted(CASES)), st.data())
def test_no_chunking_makes_a_difference(name, data):
    case = CASES[name]
    body = b"".join(chunks_of(case))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(body)), max_size=12)) | {0, len(body)})
    check(fold(case, [body[a:b] for a, b in pairwise(cuts)]), case["expected"])


@settings(deadline=None, max_examples=100)
@given(st.sampled_from(sorted(CASES)), st.integers(1, 40))
def test_the_deltas_joined_are_the_message(name, size):
    case = CASES[name]
    body = b"".join(chunks_of(case))
    decoder = decoder_class(case["family"])(
        content_type=case.get("content_type", "text/event-stream"),
        options=DecoderOptions(**case.get("options") or {}),
    )
    deltas = []
    for start in range(0, len(body), size):
        deltas += decoder.feed(body[start : start + size])
    message = decoder.close()
    deltas += decoder.tail_events()
    joined = ["" for _ in message.content]
    for delta in deltas:
        assert delta.kind == message.content[delta.index].type
        joined[delta.index] += delta.text
    for text, block in zip(joined, message.content, strict=True):
        if isinstance(block, AgentToolCall):
            said = block.raw_arguments if block.raw_arguments is not None else block.arguments
            assert (json.loads(text or "{}") if block.runnable else text) == said
        else:
            assert text == block.text
