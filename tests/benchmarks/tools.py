"""What a tool call costs, and how others take the same functions; prints, judges nothing.

python -m tests.benchmarks.tools          overhead, batches, messages beside SPEC-11.1
python -m tests.benchmarks.tools peers    the cases table beside other libraries, in an environment
                                          of their own below .cache/
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from yiem_nb.agent import Agent, AgentOptions
from yiem_nb.events import ToolExecutionEndEvent, ToolExecutionStartEvent
from yiem_nb.kernel.bridge import Bridge
from yiem_nb.kernel.functions import FunctionRunner
from yiem_nb.kernel.private_loop import PrivateLoop
from yiem_nb.messages import AgentToolCall, AssistantMessage
from yiem_nb.models import Limits, Model
from yiem_nb.session import JsonlSessionStorage, SessionOptions
from yiem_nb.session.journal import SessionJournal
from yiem_nb.tools import Gate, ToolRegistry

ROOT = Path(__file__).resolve().parents[2]
FREE = Limits(messages_per_minute=None, messages_per_session=None, turns_per_run=None)
PEERS = ("pydantic-ai", "openai-agents", "chatlas")
PACKAGES = {"pydantic-ai": "pydantic-ai-slim"}
WAIT = 0.05
BATCH = 10


def nothing(n: int) -> int:
    """Do nothing."""
    return n


async def nothing_async(n: int) -> int:
    """Do nothing."""
    return n


def waiting(n: int) -> int:
    """Wait."""
    time.sleep(WAIT)
    return n


async def waiting_async(n: int) -> int:
    """Wait."""
    await asyncio.sleep(WAIT)
    return n


class Way:
    """The whole way of a call: registry, gate, loop thread, main thread, governor, session on disk."""

    def __init__(self, folder: Path) -> None:
        self.bridge = Bridge()
        self.registry = ToolRegistry()
        functions = FunctionRunner(self.registry, PrivateLoop())
        self.registry.runner, self.registry.thread_runner = functions.on_main, functions.in_thread
        path = str(folder / f"{time.monotonic_ns()}.yiem.jsonl")
        self.storage = JsonlSessionStorage.create(SessionOptions(path=path))
        self.journal = SessionJournal(self.storage)

    def run(
        self, function: Callable[..., Any], turns: int, calls: int, **options: Any
    ) -> tuple[list[float], list[float]]:
        """Seconds of each call, from its start event to its end event, and of each turn.

        A turn is from the answer with its calls to the next request: two messages are written to the
        session meanwhile, and made durable.
        """
        self.registry.add(function, name="f", **options)
        times: list[float] = []
        began = 0.0

        async def stream(*_: Any) -> AsyncIterator[Any]:
            nonlocal began
            if began:
                times.append(time.perf_counter() - began)
            number = len(times)
            if number == turns:
                yield AssistantMessage("done")
                return
            made = [
                AgentToolCall(f"{number}-{n}", "f", {"n": number * calls + n}) for n in range(calls)
            ]
            began = time.perf_counter()
            yield AssistantMessage(tool_calls=made)

        agent = Agent(
            AgentOptions(
                model=Model(id="m"),
                tools=self.registry.active(),
                limits=FREE,
                gate=Gate(),
                store=self.storage.blobs,
            ),
            stream,
            self.journal,
        )
        started: dict[str, float] = {}
        spent: list[float] = []

        async def listen(event: Any, signal: Any) -> None:
            if isinstance(event, ToolExecutionStartEvent):
                started[event.tool_call_id] = time.perf_counter()
            elif isinstance(event, ToolExecutionEndEvent):
                spent.append(time.perf_counter() - started[event.tool_call_id])

        async def go() -> None:
            agent.subscribe(listen)
            await agent.prompt("go")

        self.bridge.run_sync(go)
        return spent, times

    def messages(self, count: int) -> list[float]:
        """Seconds of each prompt of one line and its answer, written and told."""

        async def stream(*_: Any) -> AsyncIterator[Any]:
            yield AssistantMessage("fine")

        agent = Agent(AgentOptions(model=Model(id="m"), limits=FREE), stream, self.journal)
        times = []
        for _ in range(count):
            start = time.perf_counter()
            self.bridge.run_sync(lambda: agent.prompt("hello"))
            times.append(time.perf_counter() - start)
        return times

    def close(self) -> None:
        self.bridge.thread.stop()
        self.journal.close()


def row(name: str, times: list[float], note: str = "") -> None:
    """Print p50, p95 and p99 in milliseconds."""
    cuts = statistics.quantiles(times, n=100, method="inclusive")
    print(f"{name:<36} {cuts[49] * 1e3:8.2f} {cuts[94] * 1e3:8.2f} {cuts[98] * 1e3:8.2f}   {note}")


def overhead() -> None:
    """Print what the whole way costs."""
    goal = "seed 500 / 2000 / 5000; ours 0.5 at p50, 5 at p99"
    print(f"{'milliseconds':<36} {'p50':>8} {'p95':>8} {'p99':>8}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kinds: list[tuple[str, Callable[..., Any], dict[str, Any]]] = [
            ("no-op tool, main thread", nothing, {}),
            ("no-op tool, main thread, async", nothing_async, {}),
            ("no-op tool, thread=True", nothing, {"thread": True}),
            ("no-op tool, thread=True, async", nothing_async, {"thread": True}),
        ]
        for title, function, options in kinds:
            way = Way(folder)
            spent, turns = way.run(function, 500, 1, **options)
            row(title, spent, goal)
            row("  the whole turn, session included", turns)
            way.close()
        for title, function, options in (
            ("ten of 50 ms, thread=True, async", waiting_async, {"thread": True}),
            ("ten of 50 ms, thread=True", waiting, {"thread": True}),
            ("ten of 50 ms, main thread, in order", waiting, {}),
        ):
            way = Way(folder)
            note = "ours 75 at most" if options else "one after the other: 500"
            row(title, way.run(function, 20 if options else 4, BATCH, **options)[1], note)
            way.close()
        way = Way(folder)
        row("message: prompt to settled answer", way.messages(500), "seed 200 / 500 / 1000")
        way.close()
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


def peers() -> None:
    """Print the cases table beside other libraries."""
    home = ROOT / ".cache" / "peers"
    python = home / "bin" / "python"
    if not python.exists():
        uv = shutil.which("uv")
        assert uv, "uv makes the environment; pip install uv"
        subprocess.run([uv, "venv", "-q", "--python", sys.executable, str(home)], check=True)
        packages = ["numpy", "pandas", *(PACKAGES.get(name, name) for name in PEERS)]
        subprocess.run([uv, "pip", "install", "-q", "--python", str(python), *packages], check=True)
    print(f"{'library':<28} {'registers':>9} {'describes':>9} {'calls':>9} {'all three':>9}")
    for name in ("yiem_nb", *PEERS):
        interpreter = sys.executable if name == "yiem_nb" else str(python)
        said = _judge(interpreter, name)
        title = f"{name} {_version(interpreter, name)}"
        if said is None:
            print(f"{title:<28} does not run here")
            continue
        columns = [
            sum(case[part] for case in said.values()) for part in ("register", "schema", "call")
        ]
        whole = sum(all(case.values()) for case in said.values())
        print(
            f"{title:<28} " + " ".join(f"{n:>9}" for n in (*columns, whole)) + f"  of {len(said)}"
        )


def _judge(interpreter: str, name: str) -> dict[str, dict[str, bool]] | None:
    program = Path(__file__).with_name("tool_peers.py")
    command = [interpreter, "-W", "ignore", str(program), name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT)
    if done.returncode:
        print(done.stderr.strip().splitlines()[-1] if done.stderr else "no output", file=sys.stderr)
        return None
    found: dict[str, dict[str, bool]] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def _version(interpreter: str, name: str) -> str:
    if name == "yiem_nb":
        return version("yiem-nb")
    code = f"import importlib.metadata as m; print(m.version({PACKAGES.get(name, name)!r}))"
    done = subprocess.run([interpreter, "-c", code], capture_output=True, text=True)
    return done.stdout.strip()


if __name__ == "__main__":
    if sys.argv[1:] == ["peers"]:
        peers()
    else:
        overhead()
