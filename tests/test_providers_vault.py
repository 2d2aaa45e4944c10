"""Keys: where they are looked for, in order, and that keeping one shows it to nobody."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import types
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yiem_nb.errors import ErrorCode, ProviderError, redact
from yiem_nb.kernel.key_desk import KeyDesk
from yiem_nb.providers import vault
from yiem_nb.providers.config import config_folder
from yiem_nb.providers.resolve import Settings, resolve
from yiem_nb.providers.vault import allow_dotenv, find_key, forget_key, keep_key, waiting_dotenv

KEY = "canary-vault-0123456789"


class Ring(types.ModuleType):
    """A keyring in memory."""

    def __init__(self) -> None:
        super().__init__("keyring")
        self.kept: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, name: str) -> str | None:
        return self.kept.get((service, name))

    def set_password(self, service: str, name: str, value: str) -> None:
        self.kept[service, name] = value

    def delete_password(self, service: str, name: str) -> None:
        del self.kept[service, name]


class Shell:
    """As much of IPython as says that somebody sits in front of it."""

    kernel = None


@pytest.fixture
def nobody_has_a_ring(monkeypatch):
    monkeypatch.setitem(sys.modules, "keyring", None)


def found(name: str = "MY_KEY", **environ: str) -> str | None:
    hit = find_key(name, environ)
    return f"{hit.secret.reveal()} from {hit.source}" if hit is not None else None


def test_the_first_place_that_has_a_key_wins(monkeypatch, tmp_path):
    ring = Ring()
    monkeypatch.setitem(sys.modules, "keyring", None)
    env = tmp_path / ".env"
    env.write_text(f'# mine\nexport MY_KEY="{KEY}-env"\n')
    assert found() is None
    allow_dotenv(env)
    assert found() == f"{KEY}-env from an .env you allowed"
    assert keep_key("MY_KEY", f"{KEY}-file\n") == str(config_folder() / "keys.json")
    assert found() == f"{KEY}-file from {config_folder() / 'keys.json'}"
    monkeypatch.setitem(sys.modules, "keyring", ring)
    assert keep_key("MY_KEY", f"{KEY}-ring") == "the keyring"
    assert found() == f"{KEY}-ring from the keyring"
    assert found(MY_KEY=f"{KEY}-environ") == f"{KEY}-environ from the environment"
    assert forget_key("MY_KEY") == ["the keyring", str(config_folder() / "keys.json")]
    assert found() == f"{KEY}-env from an .env you allowed"
    assert forget_key("MY_KEY") == []


def test_a_file_of_keys_is_its_owners_alone(nobody_has_a_ring):
    keep_key("MY_KEY", KEY)
    path = config_folder() / "keys.json"
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    with pytest.raises(ProviderError, match="may be read by others") as caught:
        find_key("MY_KEY", {})
    assert f"chmod 600 {path}" in caught.value.hint
    path.chmod(0o600)
    path.write_text('{"MY_KEY": "canary-vault-cut')
    with pytest.raises(ProviderError) as caught:
        find_key("MY_KEY", {})
    assert "canary" not in str(caught.value)


def test_a_ring_that_does_not_answer_is_not_waited_for(monkeypatch):
    asked, over = threading.Event(), threading.Event()

    class Stuck(Ring):
        def get_password(self, service: str, name: str) -> str | None:
            asked.set()
            over.wait(10)
            return None

    monkeypatch.setitem(sys.modules, "keyring", Stuck())
    monkeypatch.setattr(vault, "KEYRING_SECONDS", 0.05)
    try:
        assert found() is None
        assert asked.is_set()
    finally:
        over.set()


def test_a_ring_that_raises_is_passed_over(monkeypatch):
    class Broken(Ring):
        def get_password(self, service: str, name: str) -> str | None:
            raise RuntimeError(f"locked {KEY}")

    monkeypatch.setitem(sys.modules, "keyring", Broken())
    assert found() is None


def test_a_projects_env_is_read_by_leave_alone(nobody_has_a_ring, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text(f"OTHER=1\nOPENAI_API_KEY = {KEY} # mine\n")
    with pytest.raises(ProviderError) as caught:
        resolve(explicit="openai/gpt-5", environ={}, user_file=Settings, find=list)
    assert f"%yiem key dotenv {tmp_path / '.env'}" in caught.value.hint
    assert "canary" not in str(caught.value)
    KeyDesk(Shell()).dotenv(".env")
    assert waiting_dotenv("OPENAI_API_KEY", tmp_path) is None
    chosen = resolve(explicit="openai/gpt-5", environ={}, user_file=Settings, find=list)
    assert chosen.key_name == "OPENAI_API_KEY"
    assert found("OPENAI_API_KEY") == f"{KEY} from an .env you allowed"
    with pytest.raises(ProviderError, match="There is no file"):
        allow_dotenv(tmp_path / "gone")


def test_a_key_is_asked_for_kept_shown_by_its_end_and_forgotten(nobody_has_a_ring, monkeypatch):
    monkeypatch.setattr("yiem_nb.kernel.compat.is_headless", lambda shell: False)
    prompts: list[str] = []

    def typed(prompt: str) -> str:
        prompts.append(prompt)
        return KEY

    desk = KeyDesk(Shell(), typed)
    said = [desk.set("anthropic"), desk.show("anthropic"), desk.show(""), desk.forget("anthropic")]
    assert prompts == ["ANTHROPIC_API_KEY: "]
    assert KEY not in "".join(said)
    assert said[1] == f"<secret ANTHROPIC_API_KEY …6789> · from {config_folder() / 'keys.json'}"
    assert said[2] == said[1]
    assert said[3].startswith("ANTHROPIC_API_KEY was removed from ")
    assert desk.show("anthropic").startswith("ANTHROPIC_API_KEY is nowhere;")
    assert desk.show("") == "No key was found; %yiem key set PROVIDER asks for one."
    assert redact(f"heard {KEY}") == "heard [redacted:ANTHROPIC_API_KEY]"


def test_nothing_is_kept_that_cannot_be_a_key(nobody_has_a_ring, monkeypatch):
    monkeypatch.setattr("yiem_nb.kernel.compat.is_headless", lambda shell: False)
    with pytest.raises(ProviderError) as caught:
        KeyDesk(Shell(), lambda _: "two words-canary").set("openai")
    assert "canary" not in str(caught.value)
    assert KeyDesk(Shell(), lambda _: "  ").set("openai") == "Nothing was typed; nothing was kept."
    assert not (config_folder() / "keys.json").exists()
    with pytest.raises(ProviderError, match="looks like a key itself"):
        KeyDesk(Shell()).set("sk-canary-0123456789abcdef")


def test_where_nobody_sits_nobody_is_asked(monkeypatch):
    monkeypatch.setattr("yiem_nb.kernel.compat.is_headless", lambda shell: True)

    def never(prompt: str) -> str:
        raise AssertionError("asked")

    with pytest.raises(ProviderError) as caught:
        KeyDesk(Shell(), never).set("openai")
    assert caught.value.code is ErrorCode.PROVIDER_AUTH
    assert "OPENAI_API_KEY" in caught.value.hint


@given(st.text())
def test_any_env_file_is_read_or_passed_over(text):
    assert isinstance(vault._unquoted(text), str)


def test_a_key_of_a_child_is_in_no_list_of_processes(nobody_has_a_ring, tmp_path):
    """What is kept is read from a file, so a program that needs it is told nothing on its line."""
    keep_key("MY_KEY", KEY)
    program = "from yiem_nb.providers.vault import find_key; print(find_key('MY_KEY').secret)"
    done: Any = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONWARNINGS": "error"},
        cwd=Path(__file__).parents[1],
    )
    assert done.stdout == "<secret MY_KEY …6789>\n"
    assert KEY not in done.stdout + done.stderr
