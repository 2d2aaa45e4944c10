"""F01-F30: each fault between here and a model, met by a whole agent with a file of its own.

After each: what the user reads, what was written, how often it was asked, and that the next prompt
works. A key of another shape lies in wait each time, and is found nowhere afterwards.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import random
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.asking import ask
from tests.fault_server import (
    DONE,
    Act,
    Request,
    Script,
    answer,
    delta,
    event,
    fault_server,
    head,
    keep_alive,
    refusal,
    reset,
    stall,
)
from yiem_nb.agent import Agent, AgentOptions
from yiem_nb.errors import ErrorCode
from yiem_nb.events import AgentEvent, RetryEvent
from yiem_nb.messages import AssistantMessage, StopReason
from yiem_nb.models import Model
from yiem_nb.providers import http
from yiem_nb.providers.clocks import Clocks, RetryPolicy
from yiem_nb.providers.http import Connection, HttpProvider
from yiem_nb.providers.keys import Secret
from yiem_nb.session import JsonlSessionStorage, SessionOptions
from yiem_nb.session.journal import SessionJournal
from yiem_nb.wire import FAMILIES

MODEL = Model(id="test-model", provider="test")
#: No fault may take longer than its clock; these stand for the long ones.
SHORT = Clocks(first_byte=0.2, byte_idle=0.2, content_idle=0.3, total=2.0)
PATIENCE = 10.0
PAGE = b"<html><head><title>Sign in</title></head><script>steal()</script><p>Pay first</p></html>"

#: Keys as providers shape them, and as people store them.
KEYS = (
    "sk-canary0000000000000001",
    "sk-ant-api03-canary0000000002",
    "sk-proj-canary_00000000-00003",
    "AIzaSyCanary0000000000000000000000004",
    "gsk_canary00000000000000000000000005",
    "hf_canary000000000000000000000000006",
    "xai-canary-00000000000007",
    "r8_canary0000000000000008",
    "0123456789abcdef0123456789abca09",
    "eyJhbGciOi.canary.000010",
    "canary/with+odd=chars/000011",
    "plain-canary-word-000012",
)


async def echo_key(request: Request) -> None:
    """Say the key back, in every form a careless server might."""
    said = request.headers.get("authorization", "")
    key = said.removeprefix("Bearer ")
    forms = {"plain": said, "base64": base64.b64encode(key.encode()).decode(), "quoted": repr(key)}
    request.writer.write(json.dumps({"error": {"message": f"You sent {forms}"}}).encode())


async def flood(request: Request) -> None:
    """Send one event that does not end."""
    request.writer.write(b"data: ")
    piece = b"x" * 1_048_576
    for _ in range(100):
        if request.closed.is_set():
            return
        request.writer.write(piece)
        await request.writer.drain()


async def drip(request: Request) -> None:
    """Send a word again and again, so that only the whole clock ends it."""
    while not request.closed.is_set():
        request.writer.write(delta(content="on "))
        await asyncio.sleep(0.02)


@dataclass(frozen=True)
class Fault:
    """What the server does, and what must follow."""

    scripts: list[Script]
    says: str
    code: ErrorCode
    requests: int = 1
    #: What is kept of the answer.
    text: str = ""
    model: Model = MODEL
    waits: Callable[[list[float]], bool] = field(default=lambda waits: True)


def often(script: Script) -> list[Script]:
    return [script] * 4


UNAVAILABLE, INCOMPLETE = ErrorCode.PROVIDER_UNAVAILABLE, ErrorCode.PROVIDER_INCOMPLETE
LIMITED, RESPONSE = ErrorCode.PROVIDER_RATE_LIMITED, ErrorCode.PROVIDER_RESPONSE
TIMEOUT, OVERFLOW = ErrorCode.PROVIDER_TIMEOUT, ErrorCode.PROVIDER_OVERFLOW
LONG = "maximum context length is 4096 tokens"

FAULTS: dict[str, Fault] = {
    "F04 key refused": Fault(
        [[head(401, "application/json"), echo_key]],
        "The key in MY_KEY was refused by HOST (401).",
        ErrorCode.PROVIDER_AUTH,
    ),
    "F05 not allowed": Fault(
        [[head(403, "application/json"), echo_key]],
        "HOST does not allow this (403). It says: You sent",
        ErrorCode.PROVIDER_AUTH,
    ),
    "F06 model unknown": Fault(
        [refusal(404, "no such model")],
        "has no model 'test-model' (404). It says: no such model → It has test-model-2",
        ErrorCode.PROVIDER_NOT_FOUND,
    ),
    "F08 too large": Fault(
        [refusal(413), refusal(413)],
        "The conversation is longer than test-model can take (413).",
        OVERFLOW,
    ),
    "F09 slow down for two seconds": Fault(
        often(refusal(429, "slow down", retry_after="2")),
        "allows no more requests for now (429). It says: slow down → Run the cell again in 2 s.",
        LIMITED,
        requests=4,
        waits=lambda waits: all(2 <= wait <= 2.2 for wait in waits),
    ),
    "F11 slow down": Fault(
        often(refusal(429, "slow down")),
        "allows no more requests for now (429).",
        LIMITED,
        requests=4,
        waits=lambda waits: all(0 <= wait <= 4 for wait in waits),
    ),
    **{
        f"F13 {status}": Fault(
            often(refusal(status, "oops", x_request_id="req_17")),
            f"HOST failed ({status}). It says: oops (request req_17) → Run the cell again",
            UNAVAILABLE,
            requests=4,
        )
        for status in (500, 502, 503, 529)
    },
    "F15 cut in the middle of an event": Fault(
        often([head(), b'data: {"choices": [{"del', reset]),
        "The connection to HOST ended before the answer was complete.",
        INCOMPLETE,
        requests=4,
    ),
    "F15 cut after some words": Fault(
        [[head(), delta(content="Half "), delta(content="a"), reset]],
        "The connection to HOST ended before the answer was complete.",
        INCOMPLETE,
        text="Half a",
    ),
    "F16 ended without an end": Fault(
        often([head(), event(choices=[])]),
        "The connection ended before the answer was complete.",
        INCOMPLETE,
        requests=4,
    ),
    "F17 silent before the first byte": Fault(
        often([stall]), "HOST did not answer in time.", TIMEOUT, requests=4
    ),
    "F17 silent in the middle": Fault(
        [[head(), delta(content="And "), stall]],
        "HOST did not answer in time.",
        TIMEOUT,
        text="And ",
    ),
    "F18 nothing but keep-alives": Fault(
        often([head(), keep_alive]), "HOST did not answer in time.", TIMEOUT, requests=4
    ),
    "F20 malformed": Fault(
        often([head(), b"data: {not json}\n\n"]),
        "an event that is no JSON object: {not json}",
        RESPONSE,
        requests=4,
    ),
    "F22 a web page": Fault(
        [[head(200, "text/html"), PAGE]],
        "HOST answered with a web page ('Sign in'), not with a model's answer.",
        RESPONSE,
    ),
    "F23 a web page as error": Fault(
        often([head(503, "text/html"), PAGE]),
        "HOST failed (503). It says: Sign in Pay first →",
        UNAVAILABLE,
        requests=4,
    ),
    "F24 packed": Fault(
        [[head(content_encoding="gzip"), b"\x1f\x8b broken"]],
        "HOST sent a compressed answer (gzip) though it was asked not to.",
        RESPONSE,
    ),
    "F24 an endless error": Fault(
        [[head(400, "text/plain"), *[b"y" * 65_536] * 64]], "HOST rejected the request (400).",
        ErrorCode.PROVIDER_REJECTED,
    ),
    "F25 sent elsewhere": Fault(
        [[head(307, "text/plain", location="https://evil.example/v1/chat")]],
        "HOST redirects to evil.example (307); nothing was sent there.",
        ErrorCode.PROVIDER_CONFIG,
    ),
    "F27 an event without an end": Fault(
        [[head(), flood]], "The answer from HOST failed:", RESPONSE
    ),
    "F29 too long": Fault(
        [refusal(400, LONG), refusal(400, LONG)],
        f"The conversation is longer than test-model can take (400). It says: {LONG}",
        OVERFLOW,
    ),
    "F30 words without an end": Fault(
        [[head(), drip]], "HOST did not answer in time.", TIMEOUT, text="on "
    ),
}  # fmt: skip


@dataclass
class Met:
    """An agent with a file, and everything that was heard of it."""

    agent: Agent
    path: Path
    events: list[AgentEvent]
    waits: list[float]
    close: Callable[[], Awaitable[None]]

    @property
    def entries(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text("utf-8").splitlines()]


def meet(folder: Path, base_url: str, key: Secret | None, model: Model = MODEL) -> Met:
    waits: list[float] = []

    async def connect() -> Connection:
        return Connection(base_url, key)

    async def note(seconds: float) -> None:
        waits.append(seconds)

    policy = RetryPolicy(random=random.Random(7))
    provider = HttpProvider(connect, policy=policy, sleep=note, clocks=SHORT)
    path = folder / "s.jsonl"
    storage = JsonlSessionStorage.create(SessionOptions(path=str(path)))
    journal = SessionJournal(storage)
    agent = Agent(AgentOptions(model=model), provider, journal)
    events: list[AgentEvent] = []

    async def hear(heard: AgentEvent, signal: object) -> None:
        events.append(heard)

    agent.subscribe(hear)

    async def close() -> None:
        await provider.aclose()
        journal.close()

    return Met(agent, path, events, waits, close)


def roles(entries: list[dict[str, Any]]) -> list[tuple[str, str | None]]:
    """Who said something, and how it ended."""
    messages = [entry["message"] for entry in entries if entry["type"] == "message"]
    return [(message["role"], message.get("stopReason")) for message in messages]


@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_is_said_kept_and_over(name, tmp_path, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    fault = FAULTS[name]
    number = list(FAULTS).index(name) % len(KEYS)
    key = Secret(KEYS[number], "MY_KEY")
    scripts = [*fault.scripts[: fault.requests], answer("All good")]
    async with fault_server(*scripts, listing=["test-model-2"]) as server:
        met = meet(tmp_path, server.base_url, key)
        said = await asyncio.wait_for(met.agent.prompt("Why?"), PATIENCE)
        asked = len(server.requests)
        then = await asyncio.wait_for(met.agent.prompt("And now?"), PATIENCE)
        await met.close()
    sentence = str(said.error_message).replace(f"127.0.0.1:{server.port}", "HOST")
    assert fault.says in sentence
    assert " → " in sentence
    assert (said.error_code, said.stop_reason) == (fault.code, StopReason.ERROR)
    assert said.text[: len(fault.text)] == fault.text
    assert not said.tool_calls
    assert asked == fault.requests
    assert len(met.waits) == fault.requests - 1
    assert fault.waits(met.waits)
    assert len([e for e in met.events if isinstance(e, RetryEvent)]) == fault.requests - 1
    assert then.text == "Allgood"
    kept = [("user", None), ("assistant", "error"), ("user", None), ("assistant", "stop")]
    assert roles(met.entries) == kept
    out, err = capfd.readouterr()
    sinks = [met.path.read_text("utf-8"), repr(met.events), repr(said), caplog.text, out, err]
    for sink in sinks:
        assert KEYS[number] not in sink
        assert base64.b64encode(KEYS[number].encode()).decode() not in sink


@pytest.mark.parametrize(
    ("name", "base_url", "says", "requests"),
    [
        ("F01 refused", "http://127.0.0.1:9/v1", "Cannot reach 127.0.0.1:9: the connection was", 3),
        ("F02 no such name", "http://model.invalid/v1", "The name model.invalid is not known", 3),
    ],
)
async def test_a_server_that_is_not_there_is_said_kept_and_over(
    name, base_url, says, requests, tmp_path
):
    met = meet(tmp_path, base_url, Secret(KEYS[0], "MY_KEY"))
    said = await asyncio.wait_for(met.agent.prompt("Why?"), PATIENCE)
    then = await asyncio.wait_for(met.agent.prompt("And now?"), PATIENCE)
    await met.close()
    assert says in str(said.error_message)
    assert then.error_code == ErrorCode.PROVIDER_UNREACHABLE
    assert len(met.waits) <= 2 * (requests - 1)
    assert sum(met.waits) <= 15
    assert roles(met.entries) == [("user", None), ("assistant", "error")] * 2


@pytest.mark.parametrize("api", FAMILIES)
async def test_no_frame_of_ours_holds_a_key_when_a_request_breaks(api, monkeypatch):
    """As ``%xmode Verbose`` shows them: names and values of each frame on the way."""
    frames: list[str] = []
    explain = http.transport_fault

    def look(error: Exception, *, url: str) -> Any:
        frames.extend(
            repr(frame.f_locals)
            for frame, _ in traceback.walk_tb(error.__traceback__)
            if frame.f_globals["__name__"].startswith("yiem_nb")
        )
        return explain(error, url=url)

    monkeypatch.setattr(http, "transport_fault", look)
    model = MODEL.model_copy(update={"api": api})
    async with fault_server([reset]) as server:
        said = await ask(server.base_url, key=Secret(KEYS[2], "MY_KEY"), model=model, attempts=1)
    assert said.message.error_code == ErrorCode.PROVIDER_INCOMPLETE
    assert frames
    assert KEYS[2] not in "".join(frames)


# --- F29, by each provider's words ---------------------------------------------------------

WORDS = {
    "OpenAI": "Your input exceeds the context window of this model.",
    "OpenAI chat": "This model's maximum context length is 128000 tokens. [context_length_exceeded]",
    "Anthropic": "prompt is too long: 213462 tokens > 200000 maximum",
    "Gemini": "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
    "xAI": "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "Groq": "Please reduce the length of the messages or completion.",
    "Mistral": "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
    "Moonshot": "Invalid request: Your request exceeded model token limit: 262144",
    "Copilot": "prompt token count of 131073 exceeds the limit of 128000",
    "llama.cpp": "the request exceeds the available context size. [exceed_context_size_error]",
    "LM Studio": "The number of tokens to keep from the initial prompt is greater than the context length",
    "Ollama": "prompt too long; exceeded max context length by 4 tokens",
    "Bedrock": "Input is too long for requested model.",
    "MiniMax": "invalid params, context window exceeds limit",
    "Together": "`inputs` tokens + `max_new_tokens` must be <= 4097.",
}  # fmt: skip


@pytest.mark.parametrize("provider", WORDS)
@pytest.mark.parametrize("inside", [False, True])
async def test_each_provider_is_understood_when_a_conversation_is_too_long(
    provider, inside, tmp_path
):
    body = {"error": {"message": WORDS[provider], "type": "invalid_request_error"}}
    script: Script = [head(), event(**body)] if inside else refusal(400, WORDS[provider])
    async with fault_server(script) as server:
        met = meet(tmp_path, server.base_url, None)
        said = await met.agent.prompt("Why?")
        await met.close()
    assert said.error_code == ErrorCode.PROVIDER_OVERFLOW
    assert not said.retryable


@pytest.mark.parametrize(
    "words",
    [
        "Request too large: tokens per minute (TPM): Limit 30000, Requested 40000",
        "Too many tokens, please wait before trying again.",
        "Too many tokens per day",
    ],
)
async def test_tokens_in_a_minute_are_no_length_of_a_conversation(words, tmp_path):
    async with fault_server(*[refusal(429, words)] * 4) as server:
        met = meet(tmp_path, server.base_url, None)
        said = await met.agent.prompt("Why?")
        await met.close()
    assert said.error_code == ErrorCode.PROVIDER_RATE_LIMITED


# --- One request, tried more than once -----------------------------------------------------


async def test_each_try_of_a_request_has_the_same_name_and_the_next_another(tmp_path):
    scripts = [refusal(500), refusal(500), answer("one"), answer("two")]
    async with fault_server(*scripts) as server:
        met = meet(tmp_path, server.base_url, None)
        await met.agent.prompt("Why?")
        await met.agent.prompt("And now?")
        await met.close()
    names = [request.headers["idempotency-key"] for request in server.requests]
    assert len(set(names[:3])) == 1
    assert names[3] not in names[:3]


async def test_a_call_that_was_cut_runs_nothing(tmp_path):
    function = {"name": "drop", "arguments": '{"table": "wi'}
    call = delta(tool_calls=[{"index": 0, "id": "c1", "function": function}])
    gone: Act = reset
    async with fault_server([head(), call, gone], [head(), delta("stop", content="ok"), DONE]) as s:
        met = meet(tmp_path, s.base_url, None)
        said: AssistantMessage = await met.agent.prompt("Drop it.")
        await met.agent.prompt("And now?")
        await met.close()
    assert said.stop_reason is StopReason.ERROR
    sent = json.dumps(s.requests[1].json["messages"])
    assert "tool_calls" not in sent
    assert "wi" not in [entry.get("type") for entry in met.entries]
