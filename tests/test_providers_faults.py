"""What goes wrong on the way to a model: each in one sentence with a next step and a code."""

from __future__ import annotations

import asyncio
import email.utils
import gzip
import random
import ssl
import time
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.asking import ask
from tests.fault_server import DONE, Script, delta, event, fault_server, head, refusal, reset
from yiem_nb.errors import ErrorCode
from yiem_nb.providers import faults, hosts, http
from yiem_nb.providers.clocks import RetryPolicy, in_words, retry_after
from yiem_nb.providers.keys import Secret

PAGE = (
    b"<!doctype html><html><head><title>Sign in &amp; pay</title></head><script>x</script></html>"
)
OVERFLOW = "This model's maximum context length is 128000 tokens."

# --- Bad input (the issue's own list): what the server does → what is said, and its code ---

BAD: dict[str, tuple[Script, str, ErrorCode]] = {
    "key rejected": (
        refusal(401, "Incorrect API key"),
        (
            "The key in MY_KEY was refused by HOST (401). → Put a valid key into MY_KEY and restart "
            "the kernel."
        ),
        ErrorCode.PROVIDER_AUTH,
    ),
    "not allowed": (
        refusal(403, "No access to this model."),
        (
            "HOST does not allow this (403). It says: No access to this model. → Check what the key "
            "may do."
        ),
        ErrorCode.PROVIDER_AUTH,
    ),
    "model unknown": (
        refusal(404, "no such model"),
        (
            "HOST does not know the model 'test-model', or the address is wrong (404). It says: no "
            "such model → %yiem model lists models; the address in use is http://HOST/v1"
        ),
        ErrorCode.PROVIDER_NOT_FOUND,
    ),
    "too large": (
        refusal(413),
        (
            "The conversation is longer than test-model can take (413). → Start a new one with "
            "%yiem reset."
        ),
        ErrorCode.PROVIDER_OVERFLOW,
    ),
    "too long": (
        refusal(400, OVERFLOW),
        (
            f"The conversation is longer than test-model can take (400). It says: {OVERFLOW} → Start "
            "a new one with %yiem reset."
        ),
        ErrorCode.PROVIDER_OVERFLOW,
    ),
    "rejected": (
        refusal(400, "temperature is not supported"),
        (
            "HOST rejected the request (400). It says: temperature is not supported → Check the model "
            "and its settings."
        ),
        ErrorCode.PROVIDER_REJECTED,
    ),
    "rate limited": (
        refusal(429, "slow down", retry_after="3"),
        (
            "HOST allows no more requests for now (429). It says: slow down → Run the cell again in "
            "3 s."
        ),
        ErrorCode.PROVIDER_RATE_LIMITED,
    ),
    "broken": (
        refusal(500, "internal"),
        "HOST failed (500). It says: internal → Run the cell again in a moment.",
        ErrorCode.PROVIDER_UNAVAILABLE,
    ),
    "an error page": (
        [head(502, "text/html"), PAGE.replace(b"<script>", b"<b>Bad gateway</b><script>")],
        "HOST failed (502). It says: Sign in & pay Bad gateway → Run the cell again in a moment.",
        ErrorCode.PROVIDER_UNAVAILABLE,
    ),
    "a web page": (
        [head(200, "text/html; charset=utf-8"), PAGE],
        (
            "HOST answered with a web page ('Sign in & pay'), not with a model's answer. → Check the "
            "address http://HOST/v1; is a proxy or a login page in between?"
        ),
        ErrorCode.PROVIDER_RESPONSE,
    ),
    "a web page in disguise": (
        [head(), PAGE],
        (
            "The answer from HOST failed: A web page titled “Sign in & pay” came instead of an answer: "
            "a captive portal, a proxy or a wrong address? → Check the address and the network."
        ),
        ErrorCode.PROVIDER_RESPONSE,
    ),
    "cut in the middle of an event": (
        [head(), b'data: {"choices": [{"del', reset],
        "The connection to HOST ended before the answer was complete. → Run the cell again.",
        ErrorCode.PROVIDER_INCOMPLETE,
    ),
    "ended without an end": (
        [head(), delta(content="Half")],
        (
            "The answer from HOST failed: The connection ended before the answer was complete. → Run "
            "the cell again."
        ),
        ErrorCode.PROVIDER_INCOMPLETE,
    ),
    "a malformed event": (
        [head(), b"data: {not json}\n\n"],
        (
            "The answer from HOST failed: The server sent an event that is no JSON object: {not json} "
            "→ Check the address; run the cell again."
        ),
        ErrorCode.PROVIDER_RESPONSE,
    ),
    "JSON of another kind": (
        [head(200, "application/json"), b'{"hello": "world"}'],
        (
            "The answer from HOST failed: The server's reply holds neither an answer nor an error. → "
            "Check the address and the model."
        ),
        ErrorCode.PROVIDER_RESPONSE,
    ),
    "an empty answer": (
        [head(), delta("stop"), DONE],
        "HOST sent an empty answer. → Run the cell again, or put the question differently.",
        ErrorCode.PROVIDER_EMPTY,
    ),
    "no room for an answer": (
        [head(), delta("length"), DONE],
        (
            "HOST reached the limit of the answer's length before the first word. → Raise max_tokens, "
            "or lower the thinking level."
        ),
        ErrorCode.PROVIDER_EMPTY,
    ),
    "no answer at all": (
        [head()],
        (
            "The answer from HOST failed: The connection ended before the answer was complete. → Run "
            "the cell again."
        ),
        ErrorCode.PROVIDER_INCOMPLETE,
    ),
    "closed without a word": (
        [reset],
        "The connection to HOST ended before the answer was complete. → Run the cell again.",
        ErrorCode.PROVIDER_INCOMPLETE,
    ),
    "not HTTP": (
        [b"SSH-2.0-OpenSSH_9.2\r\n\r\n"],
        (
            "HOST does not speak HTTP: illegal status line: bytearray(b'SSH-2.0-OpenSSH_9.2') → Check "
            "the address http://HOST/v1"
        ),
        ErrorCode.PROVIDER_RESPONSE,
    ),
    "an error inside the answer": (
        [head(), event(error={"message": "The engine is overloaded.", "code": 503})],
        "The answer from HOST failed: The engine is overloaded. → Run the cell again in a moment.",
        ErrorCode.PROVIDER_UNAVAILABLE,
    ),
    "a limit inside the answer": (
        [head(), event(error={"message": "Slow down.", "code": "rate_limit_exceeded"})],
        "The answer from HOST failed: Slow down. → Run the cell again in a moment.",
        ErrorCode.PROVIDER_RATE_LIMITED,
    ),
    "too long, inside the answer": (
        [head(), event(error={"message": OVERFLOW, "code": "context_length_exceeded"})],
        f"The answer from HOST failed: {OVERFLOW} → Start a new conversation with %yiem reset.",
        ErrorCode.PROVIDER_OVERFLOW,
    ),
    "a key refused inside the answer": (
        [head(), event(error={"message": "No.", "code": "invalid_api_key"})],
        "The answer from HOST failed: No. → Check the key and what it may do.",
        ErrorCode.PROVIDER_AUTH,
    ),
    "rejected inside the answer": (
        [head(), event(error={"message": "No such field.", "code": "invalid_request"})],
        "The answer from HOST failed: No such field. → Check the model and its settings.",
        ErrorCode.PROVIDER_REJECTED,
    ),
    "filtered": (
        [head(), delta(content="I"), delta("content_filter"), DONE],
        "The provider's content filter stopped the answer. → Put the question differently.",
        ErrorCode.PROVIDER_FILTERED,
    ),
    "packed": (
        [head(content_encoding="gzip"), gzip.compress(delta(content="x"))],
        (
            "HOST sent a compressed answer (gzip) though it was asked not to. → Switch compression off "
            "there, or in the proxy in between."
        ),
        ErrorCode.PROVIDER_RESPONSE,
    ),
    "a packed error": (
        [head(500, content_encoding="gzip"), gzip.compress(b"x" * 10_000_000)],
        "HOST failed (500). → Run the cell again in a moment.",
        ErrorCode.PROVIDER_UNAVAILABLE,
    ),
    "a redirect to nowhere": (
        [head(308, "text/plain")],
        (
            "HOST redirects to nowhere (308); nothing was sent there. → If that is the right address, "
            "set it: %config YiemMagics.base_url = …"
        ),
        ErrorCode.PROVIDER_CONFIG,
    ),
}


@pytest.mark.parametrize("name", BAD)
async def test_bad_answers_are_explained(name):
    script, sentence, code = BAD[name]
    async with fault_server(script) as server:
        outcome = await ask(server.base_url, key=Secret("canary-4711-xyz", "MY_KEY"), attempts=1)
    said = str(outcome.message.error_message).replace(f"127.0.0.1:{server.port}", "HOST")
    assert said == sentence
    assert outcome.message.error_code == code
    assert "canary" not in outcome.message.model_dump_json()


async def test_a_server_that_wants_a_key_and_gets_none_names_the_setting():
    async with fault_server(refusal(401)) as server:
        outcome = await ask(server.base_url)
    assert "wants a key and none was sent" in str(outcome.message.error_message)
    assert "api_key_env" in str(outcome.message.error_message)


async def test_a_model_the_server_lacks_is_answered_with_the_nearest_it_has():
    listing = ["llama3", "test-modell", "test-model-2", "other"]
    async with fault_server(refusal(404), listing=listing) as server:
        outcome = await ask(server.base_url)
    host = f"127.0.0.1:{server.port}"
    message = f"{host} has no model 'test-model' (404). → It has test-modell, test-model-2"
    assert str(outcome.message.error_message).startswith(message)


async def test_a_model_the_server_does_list_is_an_address_gone_wrong():
    async with fault_server(refusal(404), listing=["test-model"]) as server:
        outcome = await ask(server.base_url)
    assert "or the address is wrong" in str(outcome.message.error_message)


async def test_a_name_nobody_knows_is_not_found():
    outcome = await ask("http://model.invalid/v1", attempts=1)
    assert outcome.message.error_code == ErrorCode.PROVIDER_UNREACHABLE
    assert str(outcome.message.error_message).startswith("The name model.invalid is not known")


@pytest.mark.parametrize("address", ["", "ftp://host/v1", "http://[::1/v1", "host/v1"])
async def test_an_address_that_is_none_is_said_to_be(address):
    outcome = await ask(address)
    assert outcome.message.error_code == ErrorCode.PROVIDER_CONFIG
    assert "It should look like https://host/v1" in str(outcome.message.error_message)


def test_a_certificate_of_ones_own_is_not_trusted():
    error = http.httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed")
    error.__cause__ = ssl.SSLCertVerificationError("CERTIFICATE_VERIFY_FAILED")
    fault = faults.transport_fault(error, url="https://host/v1")
    assert "SSL_CERT_FILE" in fault.hint
    assert not fault.retryable


async def test_tls_where_none_is_spoken_is_unreachable():
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example.org ESMTP\r\n")
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    outcome = await ask(f"https://127.0.0.1:{port}/v1", attempts=1)
    server.close()
    assert outcome.message.error_code == ErrorCode.PROVIDER_UNREACHABLE


async def test_an_error_body_is_read_up_to_its_cap():
    async with fault_server([head(400, "text/plain"), *[b"y" * 65_536] * 64]) as server:
        outcome = await ask(server.base_url)
    assert len(str(outcome.message.error_message)) < 400


async def test_an_endless_body_is_left(monkeypatch):
    monkeypatch.setattr(http, "MAX_BODY", 1000)
    comments = b": " + b"x" * 500 + b"\n\n"
    async with fault_server([head(), *[comments] * 4]) as server:
        outcome = await ask(server.base_url, attempts=1)
    assert outcome.message.error_code == ErrorCode.PROVIDER_RESPONSE
    assert "sent more than" in str(outcome.message.error_message)


# --- Headers and clocks --------------------------------------------------------------------


def test_the_time_to_wait_is_read_from_three_headers():
    later = email.utils.formatdate(time.time() + 30, usegmt=True)
    assert retry_after({"retry-after-ms": "250", "retry-after": "9"}) == 0.25
    assert retry_after({"retry-after": "9"}) == 9
    assert retry_after({"retry-after": "-9"}) == 0
    assert 28 <= (retry_after({"retry-after": later}) or 0) <= 30
    assert retry_after({"retry-after": "Mon, 01 Jan 2001 00:00:00 GMT"}) == 0


@given(st.text(), st.text())
def test_any_header_is_a_sensible_time_or_none(seconds, milliseconds):
    wait = retry_after({"retry-after": seconds, "retry-after-ms": milliseconds})
    assert wait is None or 0 <= wait <= 366 * 86_400
    assert in_words(wait)


@pytest.mark.parametrize("odd", ["nan", "inf", "1e400", "soon", ""])
def test_odd_times_are_no_times(odd):
    assert retry_after({"retry-after": odd}) is None


def test_a_wait_is_said_in_seconds_or_as_a_time_of_day():
    assert in_words(None) == "in a moment"
    assert in_words(12.4) == "in 12 s"
    assert in_words(3600).startswith("after ")
    assert len(in_words(3600)) == len("after 14:32")
    assert in_words(200_000).count(" ") == 3


@given(st.integers(1, 1000), st.randoms(use_true_random=False))
def test_waits_grow_and_stay_below_twenty_seconds(attempt, rng):
    policy = RetryPolicy(random=rng)
    assert 0 <= policy.delay(attempt, None) <= min(20.0, 0.5 * 2 ** min(attempt, 10))
    assert 5 <= policy.delay(attempt, 5.0) <= 5.5


def test_waits_differ():
    policy = RetryPolicy(random=random.Random(1))
    assert len({policy.delay(3, None) for _ in range(10)}) == 10


# --- Words ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"error": {"message": "m", "type": "t"}}', "m [t]"),
        (b'{"error": "plain"}', "plain"),
        (b'[{"error": {"message": "in a list", "code": 400}}]', "in a list"),
        (b'{"detail": "FastAPI"}', "FastAPI"),
        (b'{"message": "Mistral"}', "Mistral"),
        (b"plain \x1b[31m words\n\nof \xff two lines", "plain [31m words of � two lines"),
        (b"", ""),
        (b"<p>Down</p><style>p{}</style>", "Down"),
    ],
)
def test_the_servers_own_words_are_found(body, said):
    fault = faults.status_fault(500, {}, body, url="http://h/v1", model="m", key_name=None)
    assert fault.message == f"h failed (500).{f' It says: {said}' if said else ''}"


@given(st.integers(300, 999), st.binary(max_size=300) | st.just(zlib.compress(b"x")))
def test_any_status_and_body_is_one_short_line(status, body):
    fault = faults.status_fault(status, {}, body, url="http://h/v1", model="m", key_name=None)
    assert len(fault.message) < 400
    assert fault.message.isprintable()
    assert fault.hint


def test_long_words_are_cut():
    fault = faults.status_fault(400, {}, b"w" * 999, url="http://h", model="m", key_name=None)
    assert fault.message.endswith("w…")


@pytest.mark.parametrize(
    ("url", "host", "is_here"),
    [
        ("http://localhost:11434/v1", "localhost:11434", True),
        ("http://127.8.0.1/v1", "127.8.0.1", True),
        ("http://[::1]:8080/v1", "::1:8080", True),
        ("https://127.0.0.1.example.com/v1", "127.0.0.1.example.com", False),
        ("https://api.openai.com/v1", "api.openai.com", False),
    ],
)
def test_hosts_are_named_and_this_machine_is_known(url, host, is_here):
    assert hosts.host_of(url) == host
    assert hosts.is_loopback(url) is is_here


def test_a_refusal_on_all_of_a_names_addresses_is_a_refusal():
    error = http.httpx.ConnectError("All connection attempts failed")
    error.__cause__ = OSError("All connection attempts failed")
    error.__cause__.__cause__ = ExceptionGroup(
        "several", [ConnectionRefusedError(111, "::1"), ConnectionRefusedError(111, "127.0.0.1")]
    )
    fault = faults.transport_fault(error, url="http://localhost:8080/v1")
    assert fault.message == "Cannot reach localhost:8080: the connection was refused."
    assert fault.hint == "Is the server running?"


def test_a_network_that_is_not_there_is_told_in_its_own_words():
    error = http.httpx.ConnectError("[Errno 101] Network is unreachable")
    fault = faults.transport_fault(error, url="https://api.example.com/v1")
    assert fault.message == "Cannot reach api.example.com: [Errno 101] Network is unreachable"
    assert fault.code is ErrorCode.PROVIDER_UNREACHABLE
    assert fault.retryable


async def test_a_list_of_models_that_is_none_is_no_second_fault():
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        body = b"<html>not here" if line.startswith(b"GET") else b'{"error": "nope"}'
        status = 200 if line.startswith(b"GET") else 404
        writer.write(head(status, "application/json") + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    outcome = await ask(f"http://127.0.0.1:{port}/v1")
    server.close()
    assert outcome.message.error_code == ErrorCode.PROVIDER_NOT_FOUND
    assert "It says: nope" in str(outcome.message.error_message)
