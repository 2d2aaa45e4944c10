"""The user's own ``config.toml``: a default, other names for models, and models of one's own.

::

    model = "work"

    [aliases]
    fast = "openai/gpt-5-nano"

    [models.work]
    id = "gpt-5"
    base_url = "https://mine.openai.azure.com/openai/v1"
    api_key_env = "AZURE_KEY"
    context_window = 400000
    compat = { key_header = "api-key" }

    [budget]
    cost_per_session = 2.0

It stands outside of every project, and a file that others may change is refused: who can change the
address can read the key.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from yiem_nb.errors import ErrorCode, ProviderError
from yiem_nb.models import Model
from yiem_nb.providers.keys import check_variable_name
from yiem_nb.wire import FAMILIES, Compat

__all__ = ["Settings", "UserModel", "check_api", "config_folder", "read_user_file"]

_TABLES = ("aliases", "models", "budget")


@dataclass(frozen=True, slots=True)
class UserModel:
    """A model the user described, and the variable that holds its key."""

    model: Model
    key_name: str = ""


@dataclass(frozen=True, slots=True)
class Settings:
    """A wish for a model, from one place.

    Parameters
    ----------
    model
        ``"local"``, which always is the embedded model; ``"provider/id"``; an id of the
        catalogue; a name of the user's own file; or, with `base_url`, any id.
    base_url
        Root of a server.
    api_key_env
        The *name* of the variable that holds its key.
    api
        The dialect the server speaks; chat completions where none is named.
    aliases, models, budget
        Only in a file: other names for models, models of one's own, and caps on what is spent.
    """

    model: str = ""
    base_url: str = ""
    api_key_env: str = ""
    api: str = ""
    aliases: Mapping[str, str] = field(default_factory=dict)
    models: Mapping[str, UserModel] = field(default_factory=dict)
    budget: Mapping[str, Any] = field(default_factory=dict)


def config_folder() -> Path:
    """Say where the user's settings are."""
    import platformdirs

    return Path(platformdirs.user_config_dir("yiem_nb", appauthor=False))


def read_user_file(path: Path | None = None) -> Settings:
    """Read the user's file; no file is no wish.

    Raises
    ------
    ProviderError
        PROVIDER_CONFIG: others may change it, or something in it cannot be meant.
    """
    path = path or config_folder() / "config.toml"
    try:
        check_owner(path)
        value: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Settings()
    except (OSError, ValueError) as error:
        raise _mistake(f"{path} cannot be read: {error}", "Mend the file or remove it.") from None
    names = [item.name for item in fields(Settings)]
    for name in value.keys() - names:
        _check_unknown(name, names, path)
    plain = {name: _text(name, value.get(name, ""), path) for name in names if name not in _TABLES}
    check_api(plain["api"])
    aliases = {
        name: _text(name, meant, path)
        for name, meant in _table("aliases", value.get("aliases", {}), path).items()
    }
    models = {
        name: _user_model(name, _table(f"models.{name}", given, path), path)
        for name, given in _table("models", value.get("models", {}), path).items()
    }
    budget = _table("budget", value.get("budget", {}), path)
    return Settings(**plain, aliases=aliases, models=models, budget=budget)


def check_api(name: str) -> str:
    """Return the name of a dialect, or say which there are."""
    if name and name not in FAMILIES:
        raise _mistake(f"There is no dialect {name!r}.", f"Known: {', '.join(FAMILIES)}.")
    return name


def check_owner(path: Path) -> None:
    """Refuse a file that others may change.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    ProviderError
        It belongs to somebody else, or others may write to it.
    """
    if not hasattr(os, "getuid"):
        return
    status = path.stat()
    if status.st_mode & 0o022 or status.st_uid not in (os.getuid(), 0):
        raise _mistake(
            f"{path} may be changed by others.", f"Make it yours alone: chmod 600 {path}"
        )


def _user_model(name: str, given: Mapping[str, Any], path: Path) -> UserModel:
    known = [*Model.model_fields, "api_key_env"]
    for key in given.keys() - set(known):
        near = difflib.get_close_matches(key, known, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(known)}."
        raise _mistake(f"models.{name} in {path} has {key!r}, which is no setting.", hint)
    described = {"id": name, "provider": "custom"} | dict(given)
    key_name = check_variable_name(_text("api_key_env", described.pop("api_key_env", ""), path))
    try:
        model = Model.model_validate(described)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(step) for step in first["loc"])
        raise _mistake(
            f"models.{name}.{where} in {path} cannot be used.", f"{first['msg']}."
        ) from None
    check_api(model.api)
    Compat.of(model.compat)
    if not model.base_url:
        raise _mistake(f"models.{name} in {path} has no base_url.", "Say where its server is.")
    return UserModel(model, key_name)


def _check_unknown(name: str, names: Sequence[str], path: Path) -> None:
    """Refuse what is nearly a setting; what is none at all may be a later version's."""
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.7)
    if close:
        raise _mistake(
            f"{path} has {name!r}, which is no setting.",
            f"Did you mean {close[0]}? A key itself belongs into an environment variable.",
        )


def _table(name: str, value: object, path: Path) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _mistake(f"{name} in {path} is no table.", f"Write it as [{name}]")
    return value


def _text(name: str, value: object, path: Path) -> str:
    if not isinstance(value, str):
        raise _mistake(f"{name} in {path} is no text.", f'Write it as {name} = "…"')
    return value


def _mistake(message: str, hint: str) -> ProviderError:
    return ProviderError(message, hint=hint, code=ErrorCode.PROVIDER_CONFIG)
