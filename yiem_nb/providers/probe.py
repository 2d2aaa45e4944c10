"""Which model servers run on this machine, for this user, and what they can take.

Asked only when somebody wants to know. A port that another user listens on is not asked: on a shared
machine it would be a stranger's server.
"""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from yiem_nb.models import Model
from yiem_nb.providers.catalogue import LOOPBACK_SERVERS, LoopbackServer
from yiem_nb.providers.hosts import is_loopback

__all__ = ["Found", "listens_for_me", "probe", "with_real_window"]

PATIENCE_SECONDS = 0.3
_LISTEN = "0A"
MAX_MODELS = 20


@dataclass(frozen=True, slots=True)
class Found:
    """A server that answered, and what it offers."""

    server: LoopbackServer
    models: tuple[str, ...]


def probe(servers: Iterable[LoopbackServer] = tuple(LOOPBACK_SERVERS.values())) -> list[Found]:
    """Ask the usual ports which models they have, all at once."""
    mine = [server for server in servers if listens_for_me(server.port)]
    if not mine:
        return []
    with ThreadPoolExecutor(len(mine)) as pool:
        answers = list(pool.map(_models, mine))
    return [
        Found(server, models)
        for server, models in zip(mine, answers, strict=True)
        if models is not None
    ]


def _models(server: LoopbackServer) -> tuple[str, ...] | None:
    """The names the server lists; ``None`` if it is no model server."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_SECONDS)
    try:
        connection.request("GET", "/v1/models")
        value = json.loads(connection.getresponse().read(1_000_000))
        names = [str(item["id"]) for item in value["data"]]
        # A name becomes a command to copy: it must be one word.
        names = [name for name in names if name.isprintable() and " " not in name]
    except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return tuple(names[:MAX_MODELS])


def listens_for_me(port: int, tables: Iterable[Path] | None = None) -> bool:
    """Whether a process of this user listens on `port` (Linux; elsewhere nobody can be asked)."""
    if not hasattr(os, "getuid"):
        return False
    tables = tables if tables is not None else (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
    owners = set()
    for table in tables:
        try:
            rows = table.read_text().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            columns = row.split()
            if columns[3] == _LISTEN and int(columns[1].rpartition(":")[2], 16) == port:
                owners.add(int(columns[7]))
    return owners == {os.getuid()}


# --- How long a conversation it takes ------------------------------------------------------

#: Ollama reserves memory for the whole window it is asked for; more than this is a choice.
OLLAMA_WINDOW = 32_768
_windows: dict[tuple[str, str], int] = {}


def with_real_window(model: Model) -> Model:
    """Return `model` with the context window its server really has, where a local server says so.

    Asked once for each model and address; a server that does not answer, or answers something
    else, leaves the model as it is.
    """
    if not is_loopback(model.base_url) or model.provider == "local":
        return model
    asked = (model.base_url, model.id)
    window = _windows.get(asked) or _ask_window(model)
    if window is None:
        return model
    _windows[asked] = window
    return model.model_copy(update={"context_window": window})


def _ask_window(model: Model) -> int | None:
    parts = urlsplit(model.base_url)
    host, port = parts.hostname or "", parts.port or 80
    if model.api == "ollama":
        shown = _json(host, port, "/api/show", {"model": model.id})
        length = _first(
            value
            for name, value in _at(shown, "model_info").items()
            if name.endswith(".context_length")
        )
        return min(length, OLLAMA_WINDOW) if length else None
    # llama.cpp, then vLLM and SGLang, then LM Studio.
    settings = _at(_json(host, port, "/props"), "default_generation_settings")
    if length := _first([settings.get("n_ctx")]):
        return length
    for path in ("/v1/models", "/api/v0/models"):
        listed = _at({"d": _json(host, port, path)}, "d").get("data")
        for item in listed if isinstance(listed, list) else ():
            if isinstance(item, dict) and item.get("id") == model.id:
                names = ("max_model_len", "loaded_context_length", "max_context_length")
                if length := _first(item.get(name) for name in names):
                    return length
    return None


def _at(value: object, name: str) -> dict[str, Any]:
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def _first(values: Iterable[object]) -> int | None:
    """Return the first that is a length."""
    for value in values:
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def _json(host: str, port: int, path: str, body: object = None) -> object:
    """Ask and read JSON; ``None`` if that is not what comes."""
    connection = http.client.HTTPConnection(host, port, timeout=PATIENCE_SECONDS)
    try:
        text = None if body is None else json.dumps(body)
        connection.request("GET" if body is None else "POST", path, text)
        answer = connection.getresponse()
        found: object = json.loads(answer.read(4_000_000)) if answer.status == 200 else None
    except (OSError, ValueError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return found
