"""One provider, five families: where each request goes, how it is signed, and what comes back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.asking import ask
from tests.fault_server import DONE, Script, answer, delta, event, fault_server, head, refusal
from yiem_nb.errors import ErrorCode
from yiem_nb.events import AbortSignal
from yiem_nb.messages import StopReason, UserMessage
from yiem_nb.models import Model
from yiem_nb.providers.keys import Secret
from yiem_nb.providers.local import LOCAL_MODEL, LocalServer, is_installed
from yiem_nb.wire import FAMILIES, dialect

KEY = "k-canary-lower-4711"


def named(kind: str, **payload: Any) -> bytes:
    """A server-sent event that has a name, as Anthropic and OpenAI's responses send them."""
    return f"event: {kind}\n".encode() + event(type=kind, **payload)


#: Family → the path that is asked, the header that carries the key, and an answer of "All well".
FAMILY: dict[str, tuple[str, str, str, Script]] = {
    "openai-chat": (
        "/v1/chat/completions",
        "authorization",
        f"Bearer {KEY}",
        [head(), delta(content="All "), delta(content="well"), delta("stop"), DONE],
    ),
    "openai-responses": (
        "/v1/responses",
        "authorization",
        f"Bearer {KEY}",
        [
            head(),
            named("response.output_text.delta", output_index=0, content_index=0, delta="All "),
            named("response.output_text.delta", output_index=0, content_index=0, delta="well"),
            named("response.completed", response={"status": "completed", "output": []}),
        ],
    ),
    "anthropic-messages": (
        "/v1/messages",
        "x-api-key",
        KEY,
        [
            head(),
            named("message_start", message={"id": "m", "role": "assistant", "content": []}),
            named("content_block_start", index=0, content_block={"type": "text", "text": ""}),
            named("content_block_delta", index=0, delta={"type": "text_delta", "text": "All "}),
            named("content_block_delta", index=0, delta={"type": "text_delta", "text": "well"}),
            named("content_block_stop", index=0),
            named("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 2}),
            named("message_stop"),
        ],
    ),
    "gemini": (
        "/v1beta/models/test-model:streamgeneratecontent?alt=sse",
        "x-goog-api-key",
        KEY,
        [
            head(),
            event(candidates=[{"content": {"parts": [{"text": "All "}]}}]),
            event(candidates=[{"content": {"parts": [{"text": "well"}]}, "finishReason": "STOP"}]),
        ],
    ),
    "ollama": (
        "/api/chat",
        "authorization",
        f"Bearer {KEY}",
        [
            head(200, "application/x-ndjson"),
            json.dumps({"message": {"content": "All "}}).encode() + b"\n",
            json.dumps({"message": {"content": "well"}, "done": True}).encode() + b"\n",
        ],
    ),
}


def model(api: str, **compat: Any) -> Model:
    return Model(id="test-model", provider="test", api=api, compat=compat)


def test_every_family_is_tried_here():
    assert FAMILY.keys() == FAMILIES.keys()


@pytest.mark.parametrize("api", FAMILY)
async def test_a_family_is_asked_at_its_own_path_with_its_own_header(api):
    path, header, value, script = FAMILY[api]
    async with fault_server(script) as server:
        host = server.base_url.removesuffix("/v1")
        outcome = await ask(host, key=Secret(KEY, "MY_KEY"), model=model(api))
    (request,) = server.requests
    assert request.line.lower() == f"post {path} http/1.1"
    assert request.headers[header] == value
    assert sum(KEY in text for text in [request.line, *request.headers.values()]) == 1
    assert outcome.message.text == outcome.text == "All well"
    assert outcome.message.stop_reason is StopReason.STOP
    assert (outcome.message.api, outcome.message.model) == (api, "test-model")


@pytest.mark.parametrize("api", FAMILY)
async def test_an_answer_that_is_cut_in_any_family_is_incomplete(api):
    script = FAMILY[api][3]
    async with fault_server(script[:2]) as server:
        host = server.base_url.removesuffix("/v1")
        outcome = await ask(host, model=model(api), attempts=1)
    assert outcome.message.stop_reason is StopReason.ERROR
    assert outcome.message.error_code == ErrorCode.PROVIDER_INCOMPLETE


async def test_azure_has_a_header_and_a_version_of_its_own():
    azure = model("openai-chat", key_header="api-key", query={"api-version": "2024-10-21"})
    async with fault_server(answer("ok")) as server:
        base = server.base_url.replace("/v1", "/openai/deployments/mine")
        outcome = await ask(base, key=Secret(KEY, "AZURE_KEY"), model=azure)
    (request,) = server.requests
    assert request.line == (
        "POST /openai/deployments/mine/chat/completions?api-version=2024-10-21 HTTP/1.1"
    )
    assert request.headers["api-key"] == KEY
    assert "authorization" not in request.headers
    assert outcome.message.text == "ok"


@pytest.mark.parametrize(
    ("api", "base", "address"),
    [
        ("openai-chat", "http://h", "http://h/v1/chat/completions"),
        ("openai-chat", "http://h/", "http://h/v1/chat/completions"),
        ("openai-chat", "http://h/v1/", "http://h/v1/chat/completions"),
        ("openai-chat", "http://h/a/b", "http://h/a/b/chat/completions"),
        ("openai-chat", "http://h/v1/chat/completions", "http://h/v1/chat/completions"),
        ("anthropic-messages", "https://h/proxy/v1", "https://h/proxy/v1/messages"),
        ("ollama", "http://h:1", "http://h:1/api/chat"),
    ],
)
def test_an_address_is_completed_where_it_names_a_host_alone(api, base, address):
    assert dialect(api).address(base, Model(id="m")) == address


def test_a_models_name_is_one_step_of_an_address():
    odd = Model(id="models/a b/../c?key=1", api="gemini")
    address = dialect("gemini").address("http://h", odd)
    assert address == (
        "http://h/v1beta/models/a%20b%2F..%2Fc%3Fkey%3D1:streamGenerateContent?alt=sse"
    )


@pytest.mark.parametrize("api", FAMILY)
async def test_a_model_that_is_not_there_is_answered_with_those_that_are(api):
    async with fault_server(refusal(404), listing=["test-model-2"]) as server:
        host = server.base_url.removesuffix("/v1")
        outcome = await ask(host, model=model(api))
    assert "It has test-model-2" in str(outcome.message.error_message)


async def test_a_server_that_moved_its_path_is_followed_once():
    moved = head(308, "text/plain", location="/v2/chat/completions")
    async with fault_server([moved], answer("found")) as server:
        outcome = await ask(server.base_url, key=Secret(KEY, "MY_KEY"))
    first, second = server.requests
    assert second.line == "POST /v2/chat/completions HTTP/1.1"
    assert second.body == first.body
    assert second.headers["authorization"] == f"Bearer {KEY}"
    assert outcome.message.text == "found"


async def test_a_server_that_moves_twice_is_not_followed_for_ever():
    moved = head(307, "text/plain", location="/v1/chat/completions")
    async with fault_server([moved], [moved], answer("never")) as server:
        outcome = await ask(server.base_url)
    assert len(server.requests) == 2
    assert outcome.message.error_code == ErrorCode.PROVIDER_CONFIG


# --- A real engine -------------------------------------------------------------------------


@pytest.mark.model
@pytest.mark.skipif(not is_installed(), reason="the embedded model is not installed")
@pytest.mark.parametrize("api", ["openai-chat", "openai-responses", "anthropic-messages"])
async def test_a_conversation_is_stopped_and_goes_on_in_three_dialects(api):
    limit = {"max_output_tokens": 60} if api == "openai-responses" else {"max_tokens": 60}
    compat = {"extra_body": limit | {"temperature": 0.0}, "tools_mode": "none"}
    spoken = LOCAL_MODEL.model_copy(update={"api": api, "compat": compat})
    engine = LocalServer()
    try:
        base = await engine.connect()
        signal, seen = AbortSignal(), []

        def count() -> None:
            seen.append(1)
            if len(seen) == 5:
                signal.abort("enough")

        question = UserMessage("Count from one to fifty in words.", 1)
        asked: dict[str, Any] = {"key": base.key, "model": spoken}
        one = await ask(base.base_url, messages=[question], signal=signal, on_delta=count, **asked)
        assert one.message.stop_reason is StopReason.ABORTED
        assert one.message.text == one.text != ""
        again = UserMessage("What is the capital of France? One sentence.", 3)
        two = await ask(base.base_url, messages=[question, one.message, again], **asked)
        assert two.message.error_message is None
        assert "Paris" in two.message.text
        assert two.text == two.message.text
        assert two.message.usage.reported
        assert two.message.usage.output > 0
    finally:
        engine.stop()
