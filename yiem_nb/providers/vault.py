"""Where keys are looked for: the environment, the keyring, the user's own file, an ``.env`` that was allowed.

The first that has one wins. Nothing here prints a key, and nothing looks into a project's ``.env``
before its owner has said so, by its path.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yiem_nb.errors import ErrorCode, ProviderError
from yiem_nb.providers.config import config_folder
from yiem_nb.providers.keys import Secret, check_key

__all__ = ["Found", "allow_dotenv", "find_key", "forget_key", "keep_key", "waiting_dotenv"]

#: A keyring that is locked, or asks somebody who is not there, is not waited for (F79).
KEYRING_SECONDS = 1.0
_SERVICE = "yiem_nb"
_FILE = "keys.json"
_ALLOWED = "dotenv.json"


@dataclass(frozen=True, slots=True)
class Found:
    """A key, and where it was."""

    secret: Secret
    source: str


def find_key(name: str, environ: Mapping[str, str] = os.environ) -> Found | None:
    """Look for the key of the variable `name`, in order; ``None`` if nobody has it.

    Raises
    ------
    ProviderError
        What was found cannot be a key, or others may read the user's file.
    """
    if not name:
        return None
    places: tuple[tuple[str, Callable[[], str | None]], ...] = (
        ("the environment", lambda: environ.get(name)),
        ("the keyring", lambda: _from_keyring(name)),
        (f"{config_folder() / _FILE}", lambda: _read_private(_FILE).get(name)),
        ("an .env you allowed", lambda: _from_dotenv(name)),
    )
    for source, look in places:
        value = look()
        if value:
            return Found(Secret(check_key(value, name), name), source)
    return None


def keep_key(name: str, value: str) -> str:
    """Keep a key for this user: in the keyring, else in a file nobody else reads; say where.

    Raises
    ------
    ProviderError
        It cannot be a key; nothing is kept.
    """
    value = check_key(value.strip(), name)
    Secret(value, name)
    if _with_keyring(lambda ring: ring.set_password(_SERVICE, name, value) or True):
        return "the keyring"
    _write_private(_FILE, _read_private(_FILE) | {name: value})
    return str(config_folder() / _FILE)


def forget_key(name: str) -> list[str]:
    """Forget a key that was kept; say where it was."""
    gone = []

    def delete(ring: Any) -> bool:
        if ring.get_password(_SERVICE, name) is None:
            return False
        ring.delete_password(_SERVICE, name)
        return True

    if _with_keyring(delete):
        gone.append("the keyring")
    kept = _read_private(_FILE)
    if name in kept:
        del kept[name]
        _write_private(_FILE, kept)
        gone.append(str(config_folder() / _FILE))
    return gone


# --- The keyring ---------------------------------------------------------------------------


def _from_keyring(name: str) -> str | None:
    value = _with_keyring(lambda ring: ring.get_password(_SERVICE, name))
    return value if isinstance(value, str) else None


def _with_keyring(use: Callable[[Any], Any]) -> Any:
    """Use the keyring if there is one and it answers in time; else ``None``."""
    try:
        import keyring
    except ImportError:
        return None
    said: list[Any] = []

    def ask() -> None:
        try:
            said.append(use(keyring))
        except Exception:  # noqa: BLE001 - each backend has errors of its own; the next place is asked
            said.append(None)

    thread = threading.Thread(target=ask, daemon=True, name="yiem-keyring")
    thread.start()
    thread.join(KEYRING_SECONDS)
    return said[0] if said else None


# --- The user's own files ------------------------------------------------------------------


def _read_private(name: str) -> dict[str, str]:
    path = config_folder() / name
    try:
        if hasattr(os, "getuid"):
            status = path.stat()
            if status.st_mode & 0o077 or status.st_uid not in (os.getuid(), 0):
                raise ProviderError(
                    f"{path} may be read by others.",
                    hint=f"Make it yours alone: chmod 600 {path}",
                    code=ErrorCode.PROVIDER_CONFIG,
                )
        value = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ProviderError(
            f"{path} cannot be read ({type(error).__name__}).",
            hint="Remove it, then give the keys again with %yiem key set PROVIDER",
            code=ErrorCode.PROVIDER_CONFIG,
        ) from None
    return {str(key): str(text) for key, text in value.items()} if isinstance(value, dict) else {}


def _write_private(name: str, value: Mapping[str, str]) -> None:
    """Write a file that nobody else can read at any moment, whole or not at all."""
    folder = config_folder()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = folder / f"{name}.new"
    fresh.unlink(missing_ok=True)
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(dict(value), file)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(folder / name)


# --- A project's .env ----------------------------------------------------------------------


def allow_dotenv(path: Path) -> Path:
    """Read keys from this file from now on; return its whole path.

    Raises
    ------
    ProviderError
        There is no such file.
    """
    path = path.expanduser().resolve()
    if not path.is_file():
        raise ProviderError(
            f"There is no file {path}.",
            hint="Name the .env whose keys may be read.",
            code=ErrorCode.PROVIDER_CONFIG,
        )
    _write_private(_ALLOWED, _read_private(_ALLOWED) | {str(path): "read"})
    return path


def waiting_dotenv(name: str, folder: Path) -> Path | None:
    """Find an ``.env`` in `folder` that names this variable and was not allowed; no value is read."""
    path = (folder / ".env").resolve()
    if str(path) in _read_private(_ALLOWED):
        return None
    try:
        names = [line.partition("=")[0].strip() for line in path.read_text("utf-8").splitlines()]
    except (OSError, ValueError):
        return None
    return path if name in (text.removeprefix("export ").strip() for text in names) else None


def _from_dotenv(name: str) -> str | None:
    for allowed in _read_private(_ALLOWED):
        try:
            lines = Path(allowed).read_text("utf-8").splitlines()
        except (OSError, ValueError):
            continue
        for line in lines:
            left, equals, value = line.strip().removeprefix("export ").partition("=")
            if equals and left.strip() == name:
                return _unquoted(value.strip())
    return None


def _unquoted(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
        return value[1:-1]
    return value.partition(" #")[0].rstrip()
