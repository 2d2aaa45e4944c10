"""Every fixture folds to its message, however its bytes are cut."""

import base64
import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from yiem_nb.errors import CommandError
from yiem_nb.messages import (
    AgentToolCall,
    AssistantMessage,
    ReasoningContent,
    StopReason,
    TextContent,
)
from yiem_nb.wire import DecoderOptions, StreamError, decoder_class, fold_stream
from yiem_nb.wire.json_args import parse_arguments

HERE = Path(__file__).parent / "conformance"
CASES = {
    case["id"]: case
    for name in ("streams.json", "streams-own.json")
    if (HERE / name).exists()
    for case in json.loads((HERE / name).read_text("utf-8"))
}


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
            if block.runnable:
                assert parse_arguments(text) == block.arguments
            else:
                assert text == block.raw_arguments
        else:
            assert text == block.text


def mangled(value, data):
    """The same JSON with one value somewhere replaced by another."""
    if data.draw(st.booleans()):
        if isinstance(value, dict) and value:
            key = data.draw(st.sampled_from(sorted(value)))
            return value | {key: mangled(value[key], data)}
        if isinstance(value, list) and value:
            at = data.draw(st.integers(0, len(value) - 1))
            return [*value[:at], mangled(value[at], data), *value[at + 1 :]]
    return data.draw(st.sampled_from([None, 0, -1.5, True, "", "x", [], [1], {}, {"a": {}}]))


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(sorted(CASES)), st.data())
def test_no_shape_of_an_event_makes_a_decoder_raise(name, data):
    case = CASES[name]
    lines = b"".join(chunks_of(case)).decode("utf-8", "replace").split("\n")
    at = data.draw(st.integers(0, len(lines) - 1))
    start = lines[at].find("{")
    try:
        payload = json.loads(lines[at][start:])
    except ValueError:
        lines[at] = data.draw(st.text(max_size=20))
    else:
        lines[at] = lines[at][: max(0, start)] + json.dumps(mangled(payload, data))
    message = fold(case, ["\n".join(lines).encode("utf-8", "surrogatepass")])
    assert AssistantMessage.model_validate_json(message.model_dump_json(by_alias=True))


@settings(deadline=None, max_examples=100)
@given(st.sampled_from(sorted(CASES)), st.data())
def test_an_answer_stopped_anywhere_is_aborted_and_its_open_calls_are_incomplete(name, data):
    case = CASES[name]
    body = b"".join(chunks_of(case))
    decoder = decoder_class(case["family"])(
        content_type=case.get("content_type", "text/event-stream"),
        options=DecoderOptions(**case.get("options") or {}),
    )
    decoder.feed(body[: data.draw(st.integers(0, len(body)))])
    message = decoder.close(stopped=True)
    assert not any(call.invalid for call in message.tool_calls if message.stop_reason == "aborted")
    if message.stop_reason != "aborted":
        assert message.stop_reason == StopReason(case["expected"]["stop_reason"])


@pytest.mark.parametrize("name", ["oc01", "oc13", "oc48", "am03", "or02", "ge01"])
def test_line_ends_and_comments_make_no_difference(name):
    body = b"".join(chunks_of(CASES[name]))
    for end in (b"\r\n", b"\r"):
        check(fold(CASES[name], [body.replace(b"\n", end)]), CASES[name]["expected"])
    noisy = body.replace(b"\n\n", b"\n: ping\nretry: 5\n\n: pong\n\n")
    check(fold(CASES[name], [noisy]), CASES[name]["expected"])


def test_half_an_event_cut_by_the_connection_is_nothing():
    decoder = decoder_class("openai-chat")()
    decoder.feed(b'data: {"choices":[{"delta":{"content":"whole"}}]}\n\n')
    decoder.feed(b'data: {"choices":[{"delta":{"content":" half"}}]}')
    message = decoder.close(StreamError("connection", "reset by peer", retryable=True))
    assert (message.text, message.stop_reason) == ("whole", StopReason.ERROR)
    assert (message.error_code, message.error_message) == ("connection", "reset by peer")


def test_what_breaks_after_the_answer_was_complete_does_not_matter():
    decoder = decoder_class("openai-chat")()
    decoder.feed(b'data: {"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}\n\n')
    assert decoder.close(StreamError("connection")).stop_reason is StopReason.STOP


def test_bytes_after_the_end_are_ignored_and_a_message_can_be_asked_for_twice():
    decoder = decoder_class("openai-chat")(api="a", provider="p", model="m")
    decoder.feed(
        b'data: {"model":"other","choices":[{"delta":{"content":"x"}}]}\n\ndata: [DONE]\n\n'
    )
    assert decoder.done
    assert decoder.events == 1
    assert decoder.feed(b"data: late\n\n") == []
    message = decoder.close()
    assert (message.api, message.provider, message.model) == ("a", "p", "m")
    assert decoder.close().content == message.content


def test_a_server_names_the_model_where_we_did_not():
    assert fold(CASES["oc01"], chunks_of(CASES["oc01"])).model == "demo-model"


def test_a_price_the_provider_names_is_kept():
    case = CASES["own-oc56"]
    assert fold(case, chunks_of(case)).usage.cost.total == 0.25


@pytest.mark.parametrize("start", [b"data: ", b"[", b": "])
def test_a_body_without_end_is_refused_before_it_fills_the_memory(start, monkeypatch):
    for module in ("sse", "frames"):
        monkeypatch.setattr(f"yiem_nb.wire.{module}.MAX_EVENT_BYTES", 1000)
    decoder = decoder_class("openai-chat")()
    decoder.feed(start)
    for _ in range(10):
        decoder.feed(b"x" * 200)
    assert decoder.done
    message = decoder.close()
    assert (message.error_code, message.retryable) == ("event_too_large", False)


def test_many_lines_of_one_event_are_too_large_as_well(monkeypatch):
    monkeypatch.setattr("yiem_nb.wire.sse.MAX_EVENT_BYTES", 1000)
    message = fold_stream("openai-chat", [b"data: " + b"x" * 200 + b"\n"] * 10)
    assert message.error_code == "event_too_large"


def test_a_key_in_a_broken_event_is_not_repeated():
    message = fold_stream("openai-chat", [b'data: {"key": "sk-abcdefghijklmnopqrstuvwx\n\n'])
    assert message.error_code == "malformed_event"
    assert "abcdef" not in message.error_message


def test_json_nested_beyond_reason_is_malformed():
    deep = b"data: " + b'{"a":' * 100_000 + b"\n\n"
    assert fold_stream("openai-chat", [deep]).error_code == "malformed_event"
    arguments = json.dumps('{"a":' * 100_000 + "1" + "}" * 100_000)
    chunk = f'data: {{"choices":[{{"delta":{{"tool_calls":[{{"id":"c","function":{{"name":"f","arguments":{arguments}}}}}]}},"finish_reason":"stop"}}]}}\n\n'
    (call,) = fold_stream("openai-chat", [chunk.encode()]).tool_calls
    assert call.invalid


def test_a_hundred_thousand_fragments_that_look_like_beginnings_are_one_call():
    def delta(arguments):
        fragment = {"index": 0, "id": "c", "function": {"name": "f", "arguments": arguments}}
        body = {"choices": [{"delta": {"tool_calls": [fragment]}}]}
        return b"data: " + json.dumps(body).encode() + b"\n\n"

    # A fragment that looks like the beginning of another call, again and again.
    decoder = decoder_class("openai-chat")()
    decoder.feed(delta('{"x": "') + delta("{}") * 100_000 + delta('"}') + b"data: [DONE]\n\n")
    (call,) = decoder.close().tool_calls
    assert len(call.arguments["x"]) == 200_000


def test_an_unknown_dialect_is_refused_with_the_known_ones():
    with pytest.raises(CommandError, match="openai-chat"):
        fold_stream("openai-chats", [])


def test_keep_alives_are_no_events_and_are_not_collected():
    decoder = decoder_class("anthropic-messages")()
    for _ in range(3):
        decoder.feed(b"\n\r\n")
        decoder.feed(b": ping\n\n")
        decoder.feed(b'event: ping\ndata: {"type": "ping"}\n\n')
    assert decoder.events == 0
    decoder.feed(b'event: message_stop\ndata: {"type": "message_stop"}\n\n')
    assert (decoder.events, decoder.done) == (1, True)
