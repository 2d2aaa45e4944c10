"""Which model servers run on this machine, for this user.

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

from yiem_nb.providers.catalogue import LOOPBACK_SERVERS, LoopbackServer

__all__ = ["Found", "listens_for_me", "probe"]

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
