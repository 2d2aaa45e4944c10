"""Requests over HTTP against a real server: streams, keys, prices, tries, stops."""

from __future__ import annotations

import asyncio
import gc
import logging
import time

import pytest
from tests.asking import MODEL, ask
from tests.fault_server import (
    DONE,
    Script,
    answer,
    delta,
    do,
    event,
    fault_server,
    head,
    keep_alive,
    refusal,
    reset,
    stall,
    when,
)
from yiem_nb.errors import ErrorCode
from yiem_nb.events import AbortSignal, MessageUpdateEvent
from yiem_nb.messages import AgentToolCall, StopReason, TextContent, UserMessage
from yiem_nb.models import Model, ModelCost, ThinkingLevel
from yiem_nb.providers.clocks import Clocks
from yiem_nb.providers.http import Connection, HttpProvider
from yiem_nb.providers.keys import Secret
from yiem_nb.state import AgentContext

NOTHING_LISTENS = "http://127.0.0.1:9/v1"


# --- A good answer -------------------------------------------------------------------------


@pytest.mark.requirement("SP-011", "SP-018.1")
async def test_an_answer_streams_and_ends_in_one_message():
    async with fault_server(answer("All is well", prompt_tokens=10, completion_tokens=3)) as server:
        outcome = await ask(server.base_url)
    assert outcome.text == outcome.message.text == "Alliswell"
    assert outcome.message.stop_reason is StopReason.STOP
    assert (outcome.message.usage.input, outcome.message.usage.output) == (10, 3)
    assert (outcome.message.provider, outcome.message.model) == ("test", "test-model")
    assert server.requests[0].line == "POST /v1/chat/completions HTTP/1.1"
    assert server.requests[0].json["messages"] == [{"role": "user", "content": "hi"}]
    assert server.requests[0].json["stream"] is True


async def test_a_delta_is_handed_on_before_the_next_one_is_sent():
    gate = asyncio.Event()
    script: Script = [head(), delta(content="a"), when(gate), delta(content="b"), delta("stop")]
    async with fault_server([*script, DONE]) as server:

        async def connect() -> Connection:
            return Connection(server.base_url)

        provider = HttpProvider(connect)
        context = AgentContext("", (UserMessage("hi", 1),))
        stream = provider(MODEL, context, ThinkingLevel.OFF, AbortSignal())
        first = await anext(stream)
        gate.set()
        rest = [event async for event in stream]
        await provider.aclose()
    assert first == MessageUpdateEvent(0, "text", "a")
    assert rest[0] == MessageUpdateEvent(0, "text", "b")


async def test_a_body_that_arrives_byte_by_byte_is_the_same_answer():
    body = b"".join(part for part in answer("Größe 🍷 groß") if isinstance(part, bytes))
    async with fault_server([bytes([byte]) for byte in body]) as server:
        outcome = await ask(server.base_url)
    assert outcome.message.text == "Größe🍷groß"


async def test_a_call_arrives_whole():
    function = {"name": "add", "arguments": '{"a": 1}'}
    call = delta(tool_calls=[{"index": 0, "id": "c1", "type": "function", "function": function}])
    async with fault_server([head(), call, delta("tool_calls"), DONE]) as server:
        outcome = await ask(server.base_url)
    assert outcome.message.tool_calls == (AgentToolCall("c1", "add", {"a": 1}),)
    assert outcome.message.stop_reason is StopReason.TOOL_USE


async def test_a_server_that_does_not_stream_is_understood():
    body = b'{"choices": [{"message": {"content": "whole"}, "finish_reason": "stop"}]}'
    async with fault_server([head(200, "application/json"), body]) as server:
        outcome = await ask(server.base_url)
    assert outcome.message.content == (TextContent("whole"),)


async def test_a_connection_that_breaks_after_the_end_does_no_harm():
    async with fault_server([head(), delta(content="whole"), delta("stop"), reset]) as server:
        outcome = await ask(server.base_url)
    assert outcome.message.stop_reason is StopReason.STOP
    assert outcome.message.text == "whole"


@pytest.mark.requirement("SP-008")
async def test_an_answer_costs_what_the_model_costs():
    model = Model(id="m", cost=ModelCost(input=2.0, output=8.0, cache_read=0.5))
    usage = {"prompt_tokens": 1_500_000, "completion_tokens": 250_000}
    cached = {"prompt_tokens_details": {"cached_tokens": 500_000}}
    last = event(choices=[], usage=usage | cached)
    async with fault_server([head(), delta("stop", content="x"), last, DONE]) as server:
        outcome = await ask(server.base_url, model=model)
    cost = outcome.message.usage.cost
    assert (cost.input, cost.output, cost.cache_read, cost.total) == (2.0, 2.0, 0.25, 4.25)


async def test_tokens_nobody_reported_cost_nothing_and_say_so():
    async with fault_server(answer("x")) as server:
        outcome = await ask(server.base_url, model=Model(id="m", cost=ModelCost(input=2.0)))
    assert not outcome.message.usage.reported
    assert outcome.message.usage.cost.total == 0


# --- The key -------------------------------------------------------------------------------


async def test_the_key_is_in_the_header_and_nowhere_else(caplog):
    caplog.set_level(logging.DEBUG)
    async with fault_server(answer("ok")) as server:
        outcome = await ask(server.base_url, key=Secret("k-9x2-canary-77", "MY_KEY"))
    assert server.requests[0].headers["authorization"] == "Bearer k-9x2-canary-77"
    assert b"canary" not in server.requests[0].body
    assert "canary" not in server.requests[0].line
    assert "canary" not in caplog.text
    assert "canary" not in repr(outcome)


async def test_without_a_key_no_header_is_sent():
    async with fault_server(answer("ok")) as server:
        await ask(server.base_url)
    assert "authorization" not in server.requests[0].headers


async def test_a_redirect_within_a_host_is_not_followed_either():
    async with fault_server([head(302, "text/plain", location="/login")]) as server:
        outcome = await ask(server.base_url)
    assert len(server.requests) == 1
    assert "redirects to /login (302)" in str(outcome.message.error_message)


async def test_a_redirect_is_not_followed_and_takes_no_key_along():
    async with fault_server(answer("stolen")) as other:
        moved = head(307, "text/plain", location=f"{other.base_url}/chat/completions")
        async with fault_server([moved]) as server:
            outcome = await ask(server.base_url, key=Secret("k-9x2-canary-78", "MY_KEY"))
    assert other.requests == []
    assert outcome.message.error_code == ErrorCode.PROVIDER_CONFIG
    assert f"redirects to 127.0.0.1:{other.port} (307)" in str(outcome.message.error_message)


async def test_a_server_that_repeats_the_key_does_not_show_it():
    key = Secret("k-9x2-canary-79", "MY_KEY")
    async with fault_server(refusal(400, "bad key k-9x2-canary-79")) as server:
        outcome = await ask(server.base_url, key=key)
    assert "canary" not in outcome.message.model_dump_json()
    assert "[redacted:MY_KEY]" in str(outcome.message.error_message)


async def test_packed_answers_are_not_asked_for():
    async with fault_server(answer("ok")) as server:
        await ask(server.base_url)
    assert server.requests[0].headers["accept-encoding"] == "identity"


async def test_a_proxy_is_no_way_to_this_machine(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "socks://127.0.0.1:9")
    async with fault_server(answer("direct")) as server:
        outcome = await ask(server.base_url)
    assert outcome.message.text == "direct"


async def test_a_proxy_that_cannot_be_used_is_named(monkeypatch):
    monkeypatch.setenv("ALL_PROXY", "socks://127.0.0.1:9")
    outcome = await ask("https://model.invalid/v1")
    assert outcome.message.error_code == ErrorCode.PROVIDER_CONFIG
    assert "ALL_PROXY" in str(outcome.message.error_message)


# --- Trying again --------------------------------------------------------------------------


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 529])
async def test_a_passing_failure_is_tried_again(status):
    async with fault_server(refusal(status, "later"), answer("ok")) as server:
        outcome = await ask(server.base_url)
    assert outcome.message.text == "ok"
    assert [retry.attempt for retry in outcome.retries] == [1]
    assert f"({status})" in outcome.retries[0].reason
    assert outcome.waits == [outcome.retries[0].delay]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
async def test_a_lasting_failure_is_not(status):
    async with fault_server(refusal(status, "never"), answer("ok")) as server:
        outcome = await ask(server.base_url)
    assert len(server.requests) == 1
    assert outcome.retries == []
    assert not outcome.message.retryable


async def test_four_requests_are_enough():
    async with fault_server(*[refusal(500, "broken")] * 5) as server:
        outcome = await ask(server.base_url)
    assert len(server.requests) == 4
    assert [retry.attempt for retry in outcome.retries] == [1, 2, 3]
    assert outcome.message.error_code == ErrorCode.PROVIDER_UNAVAILABLE
    assert outcome.message.retryable


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "7"}, 7),
        ({"retry_after_ms": "1500"}, 1.5),
        ({"retry_after": "0"}, 0),
    ],
)
async def test_a_server_that_names_a_time_gets_it(headers, seconds):
    async with fault_server(refusal(429, "slowly", **headers), answer("ok")) as server:
        outcome = await ask(server.base_url)
    (waited,) = outcome.waits
    assert seconds <= waited <= seconds * 1.1
    assert outcome.message.text == "ok"


async def test_a_time_too_long_is_not_waited_for_but_told():
    async with fault_server(refusal(429, "quota per day", retry_after="7200")) as server:
        outcome = await ask(server.base_url)
    at = time.strftime("%H:", time.localtime(time.time() + 7200))
    assert outcome.waits == []
    assert outcome.message.error_code == ErrorCode.PROVIDER_RATE_LIMITED
    assert f"Run the cell again after {at}" in str(outcome.message.error_message)


async def test_a_server_that_says_so_is_not_asked_again():
    async with fault_server(refusal(503, "no", x_should_retry="false")) as server:
        outcome = await ask(server.base_url)
    assert len(server.requests) == 1
    assert outcome.retries == []


async def test_an_account_without_credit_is_not_asked_again():
    async with fault_server(refusal(429, "You exceeded your quota: insufficient_quota")) as server:
        outcome = await ask(server.base_url)
    assert outcome.retries == []
    assert "no credit" in str(outcome.message.error_message)


@pytest.mark.parametrize(
    "script",
    [
        [reset],
        [head(), b'data: {"choi', reset],
        [head(), b'data: {"choi'],
        [head(), b"data: {broken}\n\n"],
        [head(), delta("stop"), DONE],
        [head(), event(error={"message": "busy", "code": 503})],
    ],
)
async def test_an_answer_that_breaks_before_its_first_word_is_tried_again(script):
    async with fault_server(script, answer("ok")) as server:
        outcome = await ask(server.base_url)
    assert outcome.message.text == "ok"
    assert len(outcome.retries) == 1


async def test_an_answer_that_was_shown_is_not_asked_for_again():
    async with fault_server([head(), delta(content="Half a"), reset], answer("ok")) as server:
        outcome = await ask(server.base_url)
    assert len(server.requests) == 1
    assert outcome.message.text == "Half a"
    assert outcome.message.stop_reason is StopReason.ERROR
    assert outcome.message.error_code == ErrorCode.PROVIDER_INCOMPLETE


async def test_a_call_that_was_cut_is_never_whole():
    function = {"name": "drop", "arguments": '{"table": "wi'}
    call = delta(tool_calls=[{"index": 0, "id": "c1", "function": function}])
    async with fault_server([head(), call, reset]) as server:
        outcome = await ask(server.base_url)
    (cut,) = outcome.message.tool_calls
    assert cut.incomplete
    assert cut.arguments == {}


async def test_a_server_that_is_not_running_is_given_three_seconds():
    outcome = await ask(NOTHING_LISTENS)
    assert sum(outcome.waits) <= 3.0
    assert 1 <= len(outcome.retries) <= 2
    message = "Cannot reach 127.0.0.1:9: the connection was refused. → Is the server running?"
    assert outcome.message.error_message == message
    assert outcome.message.error_code == ErrorCode.PROVIDER_UNREACHABLE


# --- Silence -------------------------------------------------------------------------------


async def test_keep_alives_alone_do_not_keep_an_answer_open():
    async with fault_server([head(), delta(content="And"), keep_alive]) as server:
        outcome = await ask(server.base_url, clocks=Clocks(content_idle=0.05))
    assert outcome.message.text == "And"
    assert outcome.message.error_code == ErrorCode.PROVIDER_TIMEOUT


async def test_a_server_that_never_answers_times_out():
    async with fault_server([stall]) as server:
        outcome = await ask(server.base_url, clocks=Clocks(first_byte=0.05), attempts=1)
    assert outcome.message.error_code == ErrorCode.PROVIDER_TIMEOUT
    assert "did not answer in time" in str(outcome.message.error_message)


# --- Stopping ------------------------------------------------------------------------------


@pytest.mark.requirement("SP-022")
async def test_stopping_closes_the_connection_at_once_and_keeps_what_came():
    signal, stopped = AbortSignal(), []

    def stop() -> None:
        stopped.append(time.monotonic())
        signal.abort("by the user")

    def soon() -> None:
        asyncio.get_running_loop().call_later(0.02, stop)

    async with fault_server([head(), delta(content="Half"), stall]) as server:
        outcome = await ask(server.base_url, signal=signal, on_delta=soon)
        await asyncio.wait_for(server.requests[0].closed.wait(), 1)
        assert time.monotonic() - stopped[0] < 0.2
    assert outcome.message.stop_reason is StopReason.ABORTED
    assert outcome.message.text == "Half"
    assert outcome.message.error_message == "by the user"
    assert outcome.message.error_code == ErrorCode.EXECUTION_ABORTED
    assert outcome.retries == []


async def test_stopping_before_the_head_has_come_closes_the_connection():
    signal = AbortSignal()
    async with fault_server([do(signal.abort), stall]) as server:
        outcome = await ask(server.base_url, signal=signal)
        await asyncio.wait_for(server.requests[0].closed.wait(), 1)
    assert outcome.message.stop_reason is StopReason.ABORTED
    assert outcome.message.content == ()


async def test_stopping_while_it_waits_ends_the_wait():
    signal = AbortSignal()
    async with fault_server(refusal(429, "later", retry_after="50")) as server:

        async def connect() -> Connection:
            return Connection(server.base_url)

        provider = HttpProvider(connect)
        context = AgentContext("", (UserMessage("hi", 1),))
        stream = provider(MODEL, context, ThinkingLevel.OFF, signal)
        await anext(stream)
        asyncio.get_running_loop().call_later(0.02, signal.abort, "enough")
        (message,) = [event async for event in stream]
        await provider.aclose()
    assert message.stop_reason is StopReason.ABORTED
    assert message.error_message == "enough"


async def test_a_run_that_was_stopped_before_sends_nothing():
    async with fault_server(answer("never")) as server:
        outcome = await ask(server.base_url, signal=AbortSignal(aborted=True))
    assert server.requests == []
    assert outcome.message.stop_reason is StopReason.ABORTED


async def test_whoever_leaves_the_stream_closes_the_connection():
    async with fault_server([head(), delta(content="a"), stall]) as server:

        async def connect() -> Connection:
            return Connection(server.base_url)

        provider = HttpProvider(connect)
        context = AgentContext("", (UserMessage("hi", 1),))
        stream = provider(MODEL, context, ThinkingLevel.OFF, AbortSignal())
        await anext(stream)
        await stream.aclose()
        await asyncio.wait_for(server.requests[0].closed.wait(), 1)
        await provider.aclose()


def test_each_loop_has_its_own_connections():
    async def once() -> str:
        async with fault_server(answer("ok")) as server:
            where.append(server.base_url)
            context = AgentContext("", (UserMessage("hi", 1),))
            stream = provider(MODEL, context, ThinkingLevel.OFF, AbortSignal())
            events = [event async for event in stream]
            await provider.aclose()
            return events[-1].text

    async def connect() -> Connection:
        return Connection(where[-1])

    where: list[str] = []
    provider = HttpProvider(connect)
    assert [asyncio.run(once()) for _ in range(3)] == ["ok"] * 3
    gc.collect()


async def test_two_loops_at_once_have_their_own_connections():
    async with fault_server(answer("one"), answer("two")) as server:

        async def connect() -> Connection:
            return Connection(server.base_url)

        async def once() -> str:
            context = AgentContext("", (UserMessage("hi", 1),))
            stream = provider(MODEL, context, ThinkingLevel.OFF, AbortSignal())
            events = [event async for event in stream]
            if asyncio.get_running_loop() is not here:
                await provider.aclose()
            return events[-1].text

        here = asyncio.get_running_loop()
        provider = HttpProvider(connect)
        said = [await once(), await asyncio.to_thread(lambda: asyncio.run(once()))]
        await provider.aclose()
        await provider.aclose()
    assert said == ["one", "two"]


async def test_the_system_prompt_is_sent_first():
    async with fault_server(answer("ok")) as server:

        async def connect() -> Connection:
            return Connection(f"{server.base_url}/")

        provider = HttpProvider(connect)
        context = AgentContext("be brief", (UserMessage("hi", 1),))
        stream = provider(MODEL, context, ThinkingLevel.OFF, AbortSignal())
        assert [event async for event in stream][-1].text == "ok"
        await provider.aclose()
    assert server.requests[0].line.startswith("POST /v1/chat/completions ")
    assert server.requests[0].json["messages"][0] == {"role": "system", "content": "be brief"}


# --- Everywhere ----------------------------------------------------------------------------


async def test_a_body_cut_anywhere_is_a_prefix_of_the_answer_and_says_so():
    body = b"".join(part for part in answer("Größe 🍷") if isinstance(part, bytes))[len(head()) :]
    cuts: list[Script] = [[head(), body[:length]] for length in range(len(body))]
    async with fault_server(*cuts) as server:
        for length in range(len(body)):
            outcome = await ask(server.base_url, attempts=1)
            assert "Größe🍷".startswith(outcome.message.text)
            assert outcome.message.text == outcome.text
            is_whole = b'"stop"}]}' in body[:length]
            assert (outcome.message.stop_reason is StopReason.STOP) == is_whole
            assert is_whole or outcome.message.error_code == ErrorCode.PROVIDER_INCOMPLETE


async def test_a_stop_at_any_step_of_an_answer_keeps_what_was_shown_and_leaves_nothing_open():
    words = [delta(content=word) for word in ["one", "two", "three", "four"]]
    loop = asyncio.get_running_loop()
    for step in range(30):
        signal = AbortSignal()
        async with fault_server([head(), *words, stall]) as server:
            steps = iter(range(step))

            def count(steps=steps, signal=signal) -> None:
                if next(steps, None) is None:
                    signal.abort("now")
                else:
                    loop.call_soon(count, steps, signal)

            loop.call_soon(count)
            outcome = await asyncio.wait_for(ask(server.base_url, signal=signal), 5)
            assert outcome.message.stop_reason is StopReason.ABORTED
            assert outcome.message.text == outcome.text
            for request in server.requests:
                await asyncio.wait_for(request.closed.wait(), 1)
