"""The user's own file, and what a server on this machine says of itself."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.fault_server import head
from yiem_nb.errors import ErrorCode, ProviderError
from yiem_nb.models import Model
from yiem_nb.providers.config import Settings, read_user_file
from yiem_nb.providers.probe import OLLAMA_WINDOW, with_real_window
from yiem_nb.providers.resolve import Choice, resolve

FILE = """
model = "work"

[aliases]
fast = "openai/gpt-5-nano"
w = "work"

[models.work]
id = "gpt-5"
base_url = "https://mine.openai.azure.com/openai/v1/"
api_key_env = "AZURE_KEY"
context_window = 400000
reasoning = true
compat = { key_header = "api-key", query = { api-version = "preview" } }
cost = { input = 1.25, output = 10 }
"""


def read(folder: Path, text: str) -> Settings:
    path = folder / "config.toml"
    path.write_text(text)
    path.chmod(0o600)
    return read_user_file(path)


def choose(own: Settings, **wish: Any) -> Choice:
    environ = {"AZURE_KEY": "x" * 20, "OPENAI_API_KEY": "y" * 20}
    return resolve(environ=environ, user_file=lambda: own, find=list, **wish)


def test_a_model_of_ones_own_is_described_once_and_chosen_by_its_name(tmp_path):
    own = read(tmp_path, FILE)
    for chosen in (choose(own), choose(own, explicit="w"), choose(own, typed=Settings("work"))):
        assert (chosen.model.id, chosen.key_name) == ("gpt-5", "AZURE_KEY")
        assert chosen.model.base_url == "https://mine.openai.azure.com/openai/v1"
        assert chosen.model.context_window == 400_000
        assert chosen.model.cost.output == 10
    assert choose(own, explicit="fast").model.id == "gpt-5-nano"


def test_a_name_that_is_nearly_ones_own_is_offered(tmp_path):
    with pytest.raises(ProviderError) as caught:
        choose(read(tmp_path, FILE), explicit="wrok")
    assert "Did you mean work " in caught.value.hint


def test_a_cell_names_another_model_of_the_same_server():
    typed = Settings("a", "http://127.0.0.1:9/v1", api="anthropic-messages")
    chosen = choose(Settings(), explicit="b", typed=typed)
    assert (chosen.model.id, chosen.model.api) == ("b", "anthropic-messages")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("models = 3", "models in "),
        ("[models]\nm = 3", "models.m in "),
        ('[models.m]\nbase_ulr = "http://h"', "Did you mean base_url?"),
        ("[models.m]\nid = 3\nbase_url = 'http://h'", "models.m.id in "),
        ("[models.m]\nid = 'x'", "models.m in "),
        ("[models.m]\nbase_url = 'http://h'\napi = 'grpc'", "There is no dialect 'grpc'"),
        ("[models.m]\nbase_url = 'http://h'\ncompat = { thnk = 1 }", "no compat flag 'thnk'"),
        (
            "[models.m]\nbase_url = 'http://h'\napi_key_env = 'sk-canary-000000000000'",
            "name of an environment variable",
        ),
        ("api = 'grpc'", "There is no dialect 'grpc'"),
        ("[aliases]\na = 1", "a in "),
        ("alias = 1", "Did you mean aliases?"),
    ],
)
def test_a_mistake_in_a_table_is_named_and_nothing_is_half_read(tmp_path, text, words):
    with pytest.raises(ProviderError) as caught:
        read(tmp_path, text)
    assert caught.value.code is ErrorCode.PROVIDER_CONFIG
    assert words.lower() in str(caught.value).lower()
    assert caught.value.hint
    assert "canary" not in str(caught.value)


# --- The window of a local server ----------------------------------------------------------


@asynccontextmanager
async def telling(pages: dict[str, Any]) -> AsyncIterator[str]:
    """A server that has these pages and nothing else."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readuntil(b"\r\n\r\n")
        path = asked.split(b" ")[1].decode()
        # A body that is not read makes the close a reset.
        length = re.search(rb"content-length: (\d+)", asked, re.IGNORECASE)
        await reader.readexactly(int(length[1]) if length else 0)
        body = json.dumps(pages.get(path)).encode()
        writer.write(head(200 if path in pages else 404, "application/json") + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


LISTED = {"data": [{"id": "other", "max_model_len": 1}, {"id": "m", "max_model_len": 16_000}]}


@pytest.mark.parametrize(
    ("api", "pages", "window"),
    [
        ("openai-chat", {"/props": {"default_generation_settings": {"n_ctx": 512}}}, 512),
        ("openai-chat", {"/v1/models": LISTED}, 16_000),
        (
            "openai-chat",
            {"/api/v0/models": {"data": [{"id": "m", "loaded_context_length": 4096}]}},
            4096,
        ),
        ("ollama", {"/api/show": {"model_info": {"llama.context_length": 8192}}}, 8192),
        (
            "ollama",
            {"/api/show": {"model_info": {"llama.context_length": 131_072}}},
            OLLAMA_WINDOW,
        ),
        ("ollama", {"/api/show": {"model_info": ["odd"]}}, 32_768),
        ("openai-chat", {"/props": [], "/v1/models": {"data": [3, {"id": "m"}]}}, 32_768),
        ("openai-chat", {}, 32_768),
    ],
)
async def test_a_local_server_is_asked_for_its_window(api, pages, window):
    async with telling(pages) as base:
        model = Model(id="m", provider="custom", base_url=base, api=api, context_window=32_768)
        found = await asyncio.to_thread(with_real_window, model)
    assert found.context_window == window


async def test_a_window_is_asked_for_once_and_again_where_nobody_answered():
    pages: dict[str, Any] = {}
    async with telling(pages) as base:
        model = Model(id="m", provider="custom", base_url=base, context_window=32_768)
        windows = []
        for length in (0, 512, 1024):
            if length:
                pages["/props"] = {"default_generation_settings": {"n_ctx": length}}
            found = await asyncio.to_thread(with_real_window, model)
            windows.append(found.context_window)
    assert windows == [32_768, 512, 512]


def test_a_branch_of_a_model_of_ones_own_goes_on_with_it(tmp_path):
    chosen = choose(read(tmp_path, FILE), recorded=("custom", "gpt-5"))
    assert (chosen.key_name, chosen.source) == ("AZURE_KEY", "this conversation")


def test_a_server_elsewhere_is_not_asked_and_one_that_is_not_there_does_no_harm():
    far = Model(id="m", base_url="https://api.example.com/v1")
    assert with_real_window(far) is far
    gone = Model(id="m", base_url="http://127.0.0.1:9/v1")
    assert with_real_window(gone) == gone


def test_caps_are_read_from_the_file_as_they_stand(tmp_path):
    own = read(tmp_path, "[budget]\ncost_per_session = 2.0\n")
    assert own.budget == {"cost_per_session": 2.0}
