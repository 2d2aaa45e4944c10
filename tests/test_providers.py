"""Requests over real HTTP: faults are answers, waits are shown, keys are nowhere."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
import random
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.fake_openai import FakeOpenAi, Reply, call, serving, text
from yiem_nb.errors import ErrorCode, ProviderError
from yiem_nb.events import AbortSignal, MessageUpdateEvent, RetryEvent
from yiem_nb.messages import AssistantMessage, StopReason, UserMessage
from yiem_nb.models import Model, ModelCost, ThinkingLevel
from yiem_nb.providers import ScriptedProvider
from yiem_nb.providers.catalogue import CLOUDS, LOOPBACK_SERVERS, MODELS, LoopbackServer
from yiem_nb.providers.clocks import RetryPolicy, retry_after
from yiem_nb.providers.http import Connection, HttpProvider
from yiem_nb.providers.keys import Secret, check_variable_name, read_key
from yiem_nb.providers.probe import Found, listens_for_me, probe
from yiem_nb.providers.resolve import (
    Settings,
    check_base_url,
    list_models,
    read_user_file,
    resolve,
)
from yiem_nb.state import AgentContext

KEY = "sk-canary-0123456789abcdef"
MODEL = Model(id="m-1", provider="test", cost=ModelCost(input=1.0, output=2.0))


@asynccontextmanager
async def provider(
    server: FakeOpenAi | str, *, key: str | None = KEY, **more: Any
) -> AsyncIterator[HttpProvider]:
    url = server if isinstance(server, str) else server.base_url

    async def connect() -> Connection:
        return Connection(url, Secret(key, "MY_KEY") if key else None)

    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    made = HttpProvider(connect, **({"sleep": sleep} | more))
    made.waits = waits  # type: ignore[attr-defined]
    try:
        yield made
    finally:
        await made.aclose()


async def ask(
    made: Callable[..., Any], signal: AbortSignal | None = None, model: Model = MODEL
) -> tuple[AssistantMessage, list[Any]]:
    context = AgentContext("be brief", (UserMessage("hi", 1),))
    events = [e async for e in made(model, context, ThinkingLevel.OFF, signal or AbortSignal())]
    assert isinstance(events[-1], AssistantMessage)
    assert sum(isinstance(e, AssistantMessage) for e in events) == 1
    return events[-1], events[:-1]


# --- An answer -----------------------------------------------------------------------------


async def test_an_answer_streams_and_is_priced() -> None:
    with serving(text("hello world")) as server:
        async with provider(server) as made:
            message, events = await ask(made)
    assert "".join(e.text for e in events) == message.text == "hello world"
    assert (message.provider, message.model, message.stop_reason) == (
        "test",
        "m-1",
        StopReason.STOP,
    )
    assert message.usage.cost.total == pytest.approx((10 * 1.0 + 3 * 2.0) / 1e6)
    body, headers = server.requests[0], server.headers[0]
    assert body["messages"][0] == {"role": "system", "content": "be brief"}
    assert headers["authorization"] == f"bearer {KEY}"
    assert headers["accept-encoding"] == "identity"


async def test_a_client_belongs_to_its_loop() -> None:
    with serving(text("one"), text("two")) as server:
        async with provider(server) as made:
            await ask(made)
            other = await asyncio.to_thread(lambda: asyncio.run(_once(made)))
    assert other == "two"


async def _once(made: HttpProvider) -> str:
    message, _ = await ask(made)
    await made.aclose()
    await made.aclose()
    return message.text


# --- Faults --------------------------------------------------------------------------------

PAGE = b"<html><head><title>Sign in</title></head><body><script>x</script></body></html>"
ERROR = json.dumps({"error": {"message": "no credit", "code": "insufficient_quota"}}).encode()


def status(number: int, body: bytes = b"", kind: str = "application/json", **headers: str) -> Reply:
    return Reply(status=number, raw=body, content_type=kind, headers=headers)


@pytest.mark.parametrize(
    ("reply", "code", "words"),
    [
        (status(401), "PROVIDER_AUTH", "The key in MY_KEY was refused by 127.0.0.1:"),
        (status(403, b'{"error":"blocked"}'), "PROVIDER_AUTH", "It says: blocked"),
        (status(404), "PROVIDER_NOT_FOUND", "has no model 'm-1' (404)"),
        (status(413), "PROVIDER_OVERFLOW", "longer than m-1 can take"),
        (
            status(400, b'{"error":{"message":"maximum context length is 4096 tokens"}}'),
            "PROVIDER_OVERFLOW",
            "longer than m-1 can take",
        ),
        (status(400, b'{"detail":"bad field"}'), "PROVIDER_REJECTED", "It says: bad field"),
        (status(429, ERROR), "PROVIDER_RATE_LIMITED", "no credit left"),
        (
            status(307, location="https://elsewhere.example/v1"),
            "PROVIDER_CONFIG",
            "elsewhere.example",
        ),
        (status(302, location="/login"), "PROVIDER_CONFIG", "redirects to /login"),
        (status(200, PAGE, "text/html"), "PROVIDER_RESPONSE", "a web page ('Sign in')"),
        (status(200, b"<html>", "text/html"), "PROVIDER_RESPONSE", "answered with a web page"),
        (status(418, PAGE, "text/html"), "PROVIDER_REJECTED", "It says: Sign in"),
    ],
)
async def test_a_fault_that_stays_is_one_sentence_with_a_next_step(
    reply: Reply, code: str, words: str
) -> None:
    with serving(reply) as server:
        async with provider(server) as made:
            message, events = await ask(made)
    assert (message.stop_reason, message.error_code) == (StopReason.ERROR, code)
    assert words in message.error_message
    assert " → " in message.error_message
    assert KEY not in message.model_dump_json()
    assert not events


@pytest.mark.parametrize(
    "reply",
    [
        status(429, **{"retry-after": "7"}),
        status(429, **{"retry-after-ms": "7000"}),
        status(500, b"<h1>boom</h1>", "text/html"),
        status(503),
        status(529),
        status(408),
        Reply(cut=True),
        Reply(finish=None, raw=b"data: {}\n\n"),
        Reply(raw=b'data: {"choices"'),
        Reply(raw=b"data: {broken\n\n"),
        Reply(finish="stop"),
        Reply(raw=b'data: {"error":{"message":"busy","code":503}}\n\n'),
    ],
)
async def test_a_fault_that_may_pass_is_tried_again_while_nothing_was_shown(reply: Reply) -> None:
    with serving(reply, text("fine")) as server:
        async with provider(server) as made:
            message, events = await ask(made)
    assert message.text == "fine"
    assert [type(e) for e in events] == [RetryEvent, MessageUpdateEvent]
    assert len(made.waits) == 1  # type: ignore[attr-defined]
    if "retry-after" in str(reply.headers):
        assert 7 <= made.waits[0] <= 7.7  # type: ignore[attr-defined]


async def test_trying_again_ends_after_four_requests() -> None:
    with serving(*[status(500, b'{"message":"down"}')] * 9) as server:
        async with provider(server) as made:
            message, _ = await ask(made)
    assert len(server.requests) == 4
    assert "failed (500). It says: down" in message.error_message
    assert message.retryable is True


async def test_a_server_that_asks_for_a_long_wait_is_not_waited_for() -> None:
    with serving(status(429, **{"retry-after": "3600"})) as server:
        async with provider(server) as made:
            message, events = await ask(made)
    assert not events
    assert "Run the cell again after " in message.error_message


async def test_once_something_was_shown_nothing_is_sent_again() -> None:
    broken = Reply([{"content": "partial"}], cut=True)
    with serving(broken, text("never")) as server:
        async with provider(server) as made:
            message, _ = await ask(made)
    assert len(server.requests) == 1
    assert (message.text, message.stop_reason) == ("partial", StopReason.ERROR)


async def test_an_empty_answer_is_an_error() -> None:
    with serving(*[Reply(finish="stop")] * 4) as server:
        async with provider(server) as made:
            message, _ = await ask(made)
    assert message.error_code == "PROVIDER_EMPTY"
    assert "sent an empty answer" in message.error_message


async def test_a_server_that_is_not_there_is_said_soon() -> None:
    with socket.socket() as probe_socket:
        probe_socket.bind(("127.0.0.1", 0))
        port = probe_socket.getsockname()[1]
    async with provider(f"http://127.0.0.1:{port}/v1") as made:
        message, events = await ask(made)
    assert f"Cannot reach 127.0.0.1:{port}" in message.error_message
    assert "Is the server running?" in message.error_message
    assert len(events) <= 2


@pytest.mark.parametrize(
    ("url", "code", "words"),
    [
        ("http://no-such-host.invalid/v1", "PROVIDER_UNREACHABLE", "is not known"),
        ("nonsense://host/v1", "PROVIDER_CONFIG", "cannot be used"),
    ],
)
async def test_an_address_that_leads_nowhere_is_named(url: str, code: str, words: str) -> None:
    async with provider(url) as made:
        message, _ = await ask(made)
    assert message.error_code == code
    assert words in message.error_message


async def test_without_a_key_the_server_says_it_wants_one() -> None:
    with serving(status(401)) as server:
        async with provider(server, key=None) as made:
            message, _ = await ask(made)
    assert "wants a key and none was sent" in message.error_message
    assert "authorization" not in server.headers[0]


async def test_keep_alives_do_not_keep_an_answer_waiting() -> None:
    with serving(Reply(stall=True, deltas=[])) as server:
        async with provider(server, content_idle=0.05, policy=RetryPolicy(attempts=1)) as made:
            message, _ = await ask(made)
    assert message.error_code == "PROVIDER_TIMEOUT"


# --- Stopping ------------------------------------------------------------------------------


async def test_a_stop_closes_the_connection_and_keeps_what_arrived() -> None:
    signal = AbortSignal()
    with serving(Reply([{"content": "so far"}], stall=True)) as server:
        async with provider(server) as made:
            events = []
            async for event in made(MODEL, AgentContext(), ThinkingLevel.OFF, signal):
                events.append(event)
                signal.abort("enough")
            for _ in range(200):
                if server.closed:
                    break
                await asyncio.sleep(0.01)
    assert (events[-1].text, events[-1].stop_reason) == ("so far", StopReason.ABORTED)
    assert events[-1].error_message == "enough"
    assert server.closed


async def test_a_stop_ends_a_wait_between_two_tries() -> None:
    signal = AbortSignal()

    async def sleep(seconds: float) -> None:
        signal.abort()
        await asyncio.get_running_loop().create_future()

    with serving(status(500), text("never")) as server:
        async with provider(server, sleep=sleep) as made:
            message, _ = await ask(made, signal)
    assert message.stop_reason is StopReason.ABORTED
    assert len(server.requests) == 1


async def test_tools_and_calls_travel_both_ways() -> None:
    with serving(call("look", {"x": 1})) as server:
        async with provider(server) as made:
            message, _ = await ask(made)
    assert message.tool_calls[0].arguments == {"x": 1}
    assert message.stop_reason is StopReason.TOOL_USE


# --- When to try again ---------------------------------------------------------------------


def test_a_wait_is_read_in_all_its_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yiem_nb.providers.clocks.time.time", lambda: 1_767_323_045.0)
    assert retry_after({"retry-after-ms": "1500"}) == 1.5
    assert retry_after({"retry-after": "2"}) == 2.0
    assert retry_after({"retry-after": "Fri, 02 Jan 2026 03:04:15 GMT"}) == 10.0
    assert retry_after({"retry-after": "soon"}) is None
    assert retry_after({"retry-after": "nan"}) is None
    assert retry_after({}) is None


def test_waits_spread_over_their_whole_window() -> None:
    policy = RetryPolicy(random=random.Random(1))
    waits = [policy.delay(2, None) for _ in range(200)]
    assert min(waits) < 0.3
    assert max(waits) > 1.7
    assert max(policy.delay(9, None) for _ in range(200)) <= 20.0


# --- Keys ----------------------------------------------------------------------------------


def test_a_key_does_not_show_itself() -> None:
    secret = Secret(KEY, "MY_KEY")
    for shown in (repr(secret), str(secret), f"{secret}", f"{secret:>40}"):
        assert KEY not in shown
        assert "cdef" in shown
    for copying in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            copying(secret)
    assert Secret("short", "K").reveal() == "short"


@pytest.mark.parametrize("value", [f"{KEY}\n", f'"{KEY}"', f"a {KEY}", f"{KEY}'"])
def test_a_mangled_key_is_named_and_not_sent(value: str) -> None:
    with pytest.raises(ProviderError) as caught:
        read_key("MY_KEY", {"MY_KEY": value})
    assert "MY_KEY" in str(caught.value)
    assert KEY not in str(caught.value)
    assert read_key("MY_KEY", {}) is None
    assert read_key("MY_KEY", {"MY_KEY": KEY}).reveal() == KEY


@pytest.mark.parametrize("value", [KEY, "gsk_abcdefghij", "AIzaSyABC", "my key", "a-b", "0" * 32])
def test_a_key_where_a_name_belongs_is_refused_without_repeating_it(value: str) -> None:
    with pytest.raises(ProviderError) as caught:
        check_variable_name(value)
    assert value not in str(caught.value)
    assert "name of an environment variable" in str(caught.value)
    assert check_variable_name("MY_KEY") == "MY_KEY"
    assert check_variable_name("") == ""


# --- Which model ---------------------------------------------------------------------------

NOTHING: dict[str, Any] = {
    "environ": {},
    "user_file": Settings,
    "find": list,
    "local_installed": lambda: False,
}


def test_the_order_of_choice() -> None:
    environ = {"OPENAI_API_KEY": "x" * 20, "GROQ_API_KEY": "y" * 20}
    facts = NOTHING | {"environ": environ, "user_file": lambda: Settings("groq/fast")}
    assert (
        resolve(explicit="local", typed=Settings("openai/gpt-5"), **facts).model.id
        == "smollm2-135m"
    )
    assert resolve(typed=Settings("openai/gpt-5"), **facts).model.id == "gpt-5"
    assert resolve(**facts).model.id == "fast"
    facts["user_file"] = Settings
    chosen = resolve(**facts)
    assert chosen.model.id == CLOUDS["openai"].default
    assert chosen.line == (
        "openai/gpt-5-mini · api.openai.com · key from OPENAI_API_KEY"
        " · $0.25 in, $2 out per million tokens"
    )


def test_nothing_is_slipped_in() -> None:
    environ = {"OPENAI_API_KEY": "x" * 20}
    found = [Found(LOOPBACK_SERVERS["ollama"], ("llama3.2",))]
    facts = NOTHING | {"environ": environ, "find": lambda: found, "local_installed": lambda: True}
    with pytest.raises(ProviderError) as caught:
        resolve(headless=True, **facts)
    assert caught.value.code is ErrorCode.PROVIDER_NOT_CHOSEN
    for command in (
        "%yiem model ollama/llama3.2",
        "%yiem model openai/gpt-5-mini",
        "%yiem model local",
    ):
        assert command in caught.value.hint
    with pytest.raises(ProviderError, match="Nothing was found"):
        try:
            resolve(**NOTHING)
        except ProviderError as error:
            raise ProviderError(error.hint) from error


def test_any_model_goes_with_an_address_with_or_without_a_key() -> None:
    typed = Settings("what/ever:1", "http://127.0.0.1:9999/v1/")
    chosen = resolve(typed=typed, **NOTHING)
    assert (chosen.model.id, chosen.model.base_url) == ("what/ever:1", "http://127.0.0.1:9999/v1")
    assert chosen.line == "custom/what/ever:1 · 127.0.0.1:9999 · no key · on this machine"
    keyed = Settings("m", "https://h.example/v1", "MY_KEY")
    assert resolve(typed=keyed, **(NOTHING | {"environ": {"MY_KEY": KEY}})).key_name == "MY_KEY"
    assert "price unknown" in resolve(typed=keyed, **(NOTHING | {"environ": {"MY_KEY": KEY}})).line
    with pytest.raises(ProviderError, match="MY_KEY, and that variable is not set"):
        resolve(typed=keyed, **NOTHING)
    with pytest.raises(ProviderError, match="but no model"):
        resolve(typed=Settings("", "http://h/v1"), **NOTHING)


@pytest.mark.parametrize(
    "url", ["h/v1", "ftp://h", "", "http://", "http://u:p@h/v1", "http://h?k=1"]
)
def test_a_bad_address_is_refused(url: str) -> None:
    with pytest.raises(ProviderError):
        check_base_url(url)


def test_an_address_may_end_in_what_people_copy() -> None:
    assert check_base_url(" https://h/v1/chat/completions ") == "https://h/v1"


@pytest.mark.parametrize(
    ("name", "offer"),
    [("gpt-5-mni", "openai/gpt-5-mini"), ("locl", "local"), ("openai/", "openai/gpt-5")],
)
def test_an_unknown_name_is_answered_with_the_nearest(name: str, offer: str) -> None:
    with pytest.raises(ProviderError) as caught:
        resolve(explicit=name, **NOTHING)
    assert caught.value.code is ErrorCode.PROVIDER_NOT_FOUND
    assert offer in caught.value.hint


def test_names_of_the_catalogue_and_beyond_it() -> None:
    environ = {cloud.key_name: "x" * 20 for cloud in CLOUDS.values()}
    facts = NOTHING | {"environ": environ}
    for model in MODELS:
        assert resolve(explicit=f"{model.provider}/{model.id}", **facts).model == model
    assert resolve(explicit="openai/new-thing", **facts).model.cost.input == 0
    assert resolve(explicit="gpt-5", **facts).model.provider == "openai"
    ollama = resolve(explicit="ollama/llama3.2", **facts)
    assert ollama.line == "ollama/llama3.2 · 127.0.0.1:11434 · no key · on this machine"


def test_the_users_file_is_read_and_a_shared_one_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    assert read_user_file(path) == Settings()
    assert read_user_file() == Settings()
    path.write_text('model = "local"\nother = 1\n')
    path.chmod(0o600)
    assert read_user_file(path) == Settings("local")
    path.chmod(0o666)
    with pytest.raises(ProviderError, match="may be changed by others"):
        read_user_file(path)
    path.write_text("not toml")
    path.chmod(0o600)
    with pytest.raises(ProviderError, match="cannot be read"):
        read_user_file(path)


def test_models_are_listed_as_commands() -> None:
    chosen = resolve(explicit="local", **NOTHING)
    facts = {k: NOTHING[k] for k in ("environ", "find")}
    listed = list_models(chosen, local_installed=lambda: True, **facts)
    assert listed.startswith("In use: smollm2-135m · on this machine · no key · free\n")
    assert "%yiem model local" in listed
    assert list_models(None, local_installed=lambda: False, **facts).startswith(
        "No model is chosen."
    )


def test_servers_on_this_machine_are_found_and_strangers_are_not_asked(tmp_path: Path) -> None:
    with serving() as server:
        mine = LoopbackServer("mine", server.port)
        assert probe([mine]) == [Found(mine, ("fake-1",))]
        table = tmp_path / "tcp"
        row = f"0: 0100007F:{server.port:04X} 00000000:0000 0A 0:0 0:0 0 64321 0"
        table.write_text(f"header\n{row}\n")
        assert not listens_for_me(server.port, [table, tmp_path / "missing"])
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        assert probe([LoopbackServer("silent", silent.getsockname()[1])]) == []
    assert probe([LoopbackServer("nobody", 1)]) == []


# --- The script ----------------------------------------------------------------------------


async def test_a_script_is_answered_turn_by_turn_and_says_when_it_is_over() -> None:
    script = ScriptedProvider(["one", lambda context: f"{len(context.messages)} said"], delay=0.001)
    assert (await ask(script))[0].text == "one"
    assert (await ask(script))[0].text == "1 said"
    assert script.model.label == "scripted (no model)"
    with pytest.raises(ProviderError, match="2 turns and this is request 3"):
        await ask(script)
