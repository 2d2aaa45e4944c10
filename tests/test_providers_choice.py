"""Which model answers, and whose key it takes: chosen, never slipped in; keys are nowhere."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import pickle
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fake_openai import serving
from tests.fault_server import fault_server
from yiem_nb.errors import ErrorCode, ProviderError, redact
from yiem_nb.providers.catalogue import CLOUDS, LOOPBACK_SERVERS, LoopbackServer, models
from yiem_nb.providers.keys import Secret, check_variable_name
from yiem_nb.providers.probe import Found, listens_for_me, probe
from yiem_nb.providers.resolve import (
    Settings,
    check_base_url,
    list_models,
    read_user_file,
    resolve,
)
from yiem_nb.providers.vault import find_key

KEY = "sk-canary-0123456789abcdef"

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
        find_key("MY_KEY", {"MY_KEY": value})
    assert "MY_KEY" in str(caught.value)
    assert KEY not in str(caught.value)
    assert find_key("MY_KEY", {}) is None
    found = find_key("MY_KEY", {"MY_KEY": KEY})
    assert found is not None
    assert found.secret.reveal() == KEY


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


def test_a_conversation_goes_on_with_its_model_where_that_is_configured_here() -> None:
    def chosen(recorded: tuple[str, str], **environ: str) -> str:
        choice = resolve(
            recorded=recorded,
            environ=environ,
            user_file=lambda: Settings("gpt-5", "http://127.0.0.1:1"),
        )
        return f"{choice.model.provider}/{choice.model.id} ({choice.source})"

    key = {"GROQ_API_KEY": "k"}
    assert chosen(("groq", "fast"), **key) == "groq/fast (this conversation)"
    assert chosen(("local", "smollm2-135m")).endswith("(this conversation)")
    assert chosen(("groq", "fast")) == "custom/gpt-5 (your configuration)"
    assert chosen(("custom", "m"), **key) == "custom/gpt-5 (your configuration)"
    typed = resolve(
        recorded=("groq", "fast"), typed=Settings("m", "http://127.0.0.1:1"), environ=key
    )
    assert typed.source == "this notebook"


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
    for model in models():
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


# --- What people type by mistake -----------------------------------------------------------


@pytest.mark.parametrize("value", ["“curly-quotes-0123456789”", "kéy-0123456789", "a\tb", "x\x00y"])
def test_an_odd_letter_in_a_key_is_found_before_it_is_sent(value: str) -> None:
    with pytest.raises(ProviderError, match="The key in MY_KEY has") as caught:
        find_key("MY_KEY", {"MY_KEY": value})
    assert caught.value.code is ErrorCode.PROVIDER_CONFIG
    assert value not in str(caught.value)


@pytest.mark.parametrize("value", ["aB3dE6gH9jK2mN5pQ8sT1vW4yZ7cF0hJ", "DEADBEEF" * 4])
def test_a_key_without_a_prefix_is_seen_too(value: str) -> None:
    with pytest.raises(ProviderError, match="name of an environment variable"):
        check_variable_name(value)


@pytest.mark.parametrize(
    "name", ["OPENAI_API_KEY", "my_key_2", "_K", "AZURE_OPENAI_KEY_WEST_EUROPE_2"]
)
def test_names_are_names(name: str) -> None:
    assert check_variable_name(name) == name


def test_a_loaded_key_is_redacted_wherever_it_turns_up() -> None:
    secret = Secret("hush-hush-0815-4711", "HUSH")
    assert redact(f"said {secret.reveal()} aloud") == "said [redacted:HUSH] aloud"
    with pytest.raises(TypeError):
        json.dumps({"key": secret})
    assert not hasattr(secret, "__dict__")


@pytest.mark.parametrize(
    "url",
    ["http://[::1/v1", "http://h:99999/v1", "http://h:x/v1", "localhost:8080/v1", "http://h/#k"],
)
def test_an_address_that_cannot_be_parsed_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(ProviderError) as caught:
        check_base_url(url)
    assert caught.value.code is ErrorCode.PROVIDER_CONFIG


def attempt(action: Callable[[], Any]) -> Any:
    """What `action` returns, or the error it raises."""
    try:
        return action()
    except ProviderError as error:
        return error


@given(st.text())
def test_any_address_is_taken_or_refused(url: str) -> None:
    said = attempt(lambda: check_base_url(url))
    assert said.hint if isinstance(said, ProviderError) else said.lower().startswith("http")


@given(st.text(min_size=1))
def test_any_name_is_a_model_or_an_error_with_a_next_step(name: str) -> None:
    environ = {cloud.key_name: "x" * 20 for cloud in CLOUDS.values()}
    said = attempt(lambda: resolve(explicit=name, **(NOTHING | {"environ": environ})))
    if isinstance(said, ProviderError):
        assert said.code is ErrorCode.PROVIDER_NOT_FOUND
        assert "%yiem model" in said.hint
    else:
        assert said.line


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('api_key = "sk-canary-0123456789abcdef"', "Did you mean api_key_env? A key itself"),
        ('base-url = "http://h/v1"', "Did you mean base_url?"),
        ("model = 3", 'Write it as model = "…"'),
    ],
)
def test_a_mistake_in_the_users_file_is_named(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(f"{line}\n")
    path.chmod(0o600)
    with pytest.raises(ProviderError) as caught:
        read_user_file(path)
    assert words in caught.value.hint
    assert "canary" not in str(caught.value)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_a_file_of_somebody_else_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('base_url = "https://evil.example/v1"\n')
    path.chmod(0o600)
    os.chown(path, 12345, 12345)
    with pytest.raises(ProviderError, match="may be changed by others"):
        read_user_file(path)


def test_looking_at_the_choice_asks_no_server() -> None:
    def never() -> Any:
        raise AssertionError("probed")

    facts = NOTHING | {"find": never, "local_installed": never}
    assert resolve(explicit="local", **facts).model.provider == "local"
    assert resolve(typed=Settings("ollama/llama3.2"), **facts).model.id == "llama3.2"


def test_the_embedded_model_is_meant_by_its_name_even_where_an_address_is_set() -> None:
    typed = Settings("some-model", "http://127.0.0.1:9999/v1")
    assert resolve(explicit="local", typed=typed, **NOTHING).model.provider == "local"


def test_prices_and_windows_of_the_catalogue_are_sensible() -> None:
    for model in models():
        assert 0 < model.cost.input <= model.cost.output
        assert model.cost.cache_read < model.cost.input
        assert model.context_window >= 100_000
        assert model.provider in CLOUDS
    assert len({(model.provider, model.id) for model in models()}) == len(models())


def test_each_default_is_a_name_that_resolves() -> None:
    environ = {cloud.key_name: "x" * 20 for cloud in CLOUDS.values()}
    for cloud in CLOUDS.values():
        name = f"{cloud.name}/{cloud.default}"
        chosen = resolve(explicit=name, **(NOTHING | {"environ": environ}))
        assert chosen.key_name == cloud.key_name
        assert cloud.base_url.startswith("https://")


async def test_a_name_that_is_no_word_is_offered_to_nobody() -> None:
    async with fault_server(listing=["good", "two words", "line\nend"]) as server:
        found = await asyncio.to_thread(probe, [LoopbackServer("mine", server.port)])
    assert [item.models for item in found] == [("good",)]
