"""`%%yiem` in real kernels: what is shown, what is kept, and what goes wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.fake_openai import Reply, call, serving, text
from tests.kernel.envs import wanted
from tests.kernel.harness import Kernel
from tests.kernel.scenes import SLOW_TOOL, entries, messages, notebook

pytestmark = pytest.mark.kernel


# --- The scene -----------------------------------------------------------------------------


@pytest.mark.parametrize("version", wanted())
def test_a_cell_asks_a_function_is_called_and_all_of_it_is_kept(
    version: str, tmp_path: Path
) -> None:
    replies = [text("Hello **world**."), call("work", {"seconds": 0.01}), text("It worked.")]
    with notebook(tmp_path, *replies, version=version) as (kernel, server):
        first = kernel.run("%%yiem\nSay hello.", cell_id="c1")
        assert first.status == "ok"
        assert first.text.startswith("Hello **world**.\nfake-1 · 10 in · 4 out")
        assert all("text/html" in o and "text/markdown" in o for o in first.outputs.values())
        kernel.run(SLOW_TOOL)
        second = kernel.run("%%yiem\nNow work.", cell_id="c2")
        assert "▸ work(seconds=0.01) → " in second.text
        assert "It worked." in second.text
        assert "working" not in second.stream
        assert "working 0.01" in "".join(o["text/html"] for o in second.outputs.values())
        assert server.requests[1]["tools"][0]["function"]["name"] == "work"
        told = server.requests[2]["messages"][-1]
        assert told["role"] == "tool"
        assert told["content"].startswith("working 0.01\n")
        assert json.loads(told["content"].partition("\n")[2]) == {"worked": 0.01}
    kept = entries(tmp_path)
    prompts = [e["cellId"] for e in kept if "cellId" in e]
    assert prompts == ["c1", "c2"]
    assert [m["role"] for m in messages(tmp_path)] == [
        "user", "assistant", "user", "assistant", "toolResult", "assistant",
    ]  # fmt: skip
    assert all(
        len(e["requestHash"]) == 64 for e in kept if e.get("message", {}).get("role") == "assistant"
    )
    assert (tmp_path / "n.yiem.jsonl").stat().st_mode & 0o777 == 0o600


def test_the_conversation_goes_on_after_a_restart(tmp_path: Path) -> None:
    with notebook(tmp_path, text("one"), text("two")) as (kernel, server):
        kernel.run("%%yiem\nfirst", cell_id="a")
        kernel.restart()
        kernel.run("%load_ext yiem_nb")
        kernel.run(
            f"%config YiemMagics.base_url = {server.base_url!r}\n%config YiemMagics.model='fake-1'"
        )
        kernel.run("%%yiem\nsecond", cell_id="b")
        said = [m["content"] for m in server.requests[1]["messages"] if m["role"] == "user"]
    assert said == ["first", "second"]
    assert sum(e["type"] == "model_change" for e in entries(tmp_path)) == 1


@pytest.mark.parametrize("version", wanted())
def test_run_all_answers_every_queued_cell(version: str, tmp_path: Path) -> None:
    replies = [text(f"answer {n} " * 5, delay=0.005) for n in range(4)]
    with notebook(tmp_path, *replies, version=version) as (kernel, _):
        cells = [kernel.submit(f"%%yiem\nquestion {n}") for n in range(4)]
        for number, cell in enumerate(cells):
            kernel.wait(cell)
            assert cell.status == "ok"
            assert f"answer {number}" in cell.text


def test_the_prompt_is_on_disk_before_the_request_leaves(tmp_path: Path) -> None:
    with notebook(tmp_path, Reply([], stall=True)) as (kernel, server):
        kernel.submit("%%yiem\nremember me")
        deadline = time.monotonic() + 20
        while not server.requests and time.monotonic() < deadline:
            time.sleep(0.01)
        assert server.requests
        assert "remember me" in (tmp_path / "n.yiem.jsonl").read_text()
        os.kill(kernel.pid, 9)
    assert messages(tmp_path)[-1]["role"] == "user"


def test_a_cell_that_awaits_and_a_script_get_the_answer(tmp_path: Path) -> None:
    replies = [
        text("awaited"),
        call("work", {"seconds": 0.01}),
        text("after a tool"),
        text("asked"),
    ]
    with notebook(tmp_path, *replies) as (kernel, _):
        kernel.run(SLOW_TOOL)
        cell = kernel.run(
            "a = await yiem.prompt('hi')\nb = await yiem.prompt('again')\nprint(a.text, b.text)"
        )
        assert cell.status == "ok"
        assert "awaited after a tool" in cell.stream
        assert "asked" in kernel.run("print(yiem.ask('once more').text)").stream


def test_an_async_function_may_use_what_asyncio_offers(tmp_path: Path) -> None:
    replies = [call("fetch", {"n": 3}), text("fetched")]
    with notebook(tmp_path, *replies) as (kernel, server):
        kernel.run(
            "import asyncio\n@yiem.tool\nasync def fetch(n: int) -> list:\n"
            "    'Fetch n things.'\n    return await asyncio.gather(*(asyncio.sleep(0.01, i) for i in range(n)))"
        )
        assert "fetched" in kernel.run("%%yiem\ngo").text
        assert json.loads(server.requests[1]["messages"][-1]["content"]) == [0, 1, 2]
        assert (
            kernel.run("import asyncio; await asyncio.sleep(0); print('fine')").stream == "fine\n"
        )


def test_a_function_that_asks_is_answered_in_the_cell(tmp_path: Path) -> None:
    tool = "@yiem.tool(ask=True)\ndef wipe(table: str) -> str:\n    'Wipe.'\n    return 'wiped ' + table"
    replies = [
        call("wipe", {"table": "a\u202eb"}),
        text("ok"),
        call("wipe", {"table": "b"}),
        text("no"),
    ]
    with notebook(tmp_path, *replies) as (kernel, server):
        kernel.run(tool)
        cell = kernel.submit("%%yiem\nwipe a", allow_stdin=True)
        question = kernel.client.get_stdin_msg(timeout=20)["content"]["prompt"]
        assert 'table = "a⟨U+202E⟩b"' in question
        kernel.client.input("y")
        kernel.wait(cell)
        assert "wiped" in server.requests[1]["messages"][-1]["content"]
        cell = kernel.submit("%%yiem\nwipe b", allow_stdin=True)
        kernel.client.get_stdin_msg(timeout=20)
        kernel.client.input("not that one")
        kernel.wait(cell)
        assert (
            "did not allow this call. not that one" in server.requests[3]["messages"][-1]["content"]
        )


def test_without_anybody_to_ask_it_is_not_run(tmp_path: Path) -> None:
    tool = "@yiem.tool(ask=True)\ndef wipe() -> str:\n    'Wipe.'\n    open('ran', 'w')\n    return 'x'"
    with notebook(tmp_path, call("wipe", {}), text("ok")) as (kernel, server):
        kernel.run(tool)
        kernel.run("%%yiem\nwipe", allow_stdin=False)
        assert "nobody can be asked" in server.requests[1]["messages"][-1]["content"]
    assert not (tmp_path / "ran").exists()


def test_a_redefined_function_is_the_new_one_and_a_deleted_one_is_gone(tmp_path: Path) -> None:
    replies = [
        call("f", {"x": 1}),
        text("ok"),
        call("f", {"x": 1, "y": 2}),
        text("ok"),
        text("none left"),
    ]
    with notebook(tmp_path, *replies) as (kernel, server):
        kernel.run("@yiem.tool\ndef f(x: int) -> str:\n    'One.'\n    return 'old'")
        kernel.run("%%yiem\ngo")
        kernel.run("@yiem.tool\ndef f(x: int, y: int) -> str:\n    'Two.'\n    return 'new'")
        kernel.run("%%yiem\ngo")
        assert server.requests[3]["messages"][-1]["content"] == "new"
        kernel.run("del f")
        kernel.run("%%yiem\ngo")
        assert "tools" not in server.requests[4]


# --- Bad input -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("%%yiem\n  \n", "There is no prompt in this cell."),
        ("%yiem /modle", "Did you mean model?"),
        ("%%yiem --modle x\nhi", "Did you mean --model?"),
        ("%%yiem -m openai/gpt-5-mini\nhi", "The key should be in OPENAI_API_KEY"),
        ("%yiem model gtp-5", "Did you mean"),
    ],
)
def test_a_mistake_is_one_sentence_and_an_error(cell: str, said: str, tmp_path: Path) -> None:
    kernel = Kernel(sys.executable, tmp_path)
    try:
        kernel.run("%load_ext yiem_nb")
        found = kernel.run(cell)
    finally:
        kernel.stop()
    assert found.status == "error"
    assert said in found.error
    assert len(found.error.splitlines()) == 2
    assert not list(tmp_path.glob("*.jsonl"))


def test_without_a_model_nothing_is_sent_and_the_choices_are_listed(tmp_path: Path) -> None:
    kernel = Kernel(sys.executable, tmp_path, {"OPENAI_API_KEY": "sk-canary-000000000000"})
    try:
        kernel.run("%load_ext yiem_nb")
        found = kernel.run("%%yiem\nhi", allow_stdin=False)
    finally:
        kernel.stop()
    assert found.status == "error"
    assert "No model is chosen" in found.error
    assert "%yiem model openai/gpt-5-mini" in found.error


@pytest.mark.parametrize(
    ("reply", "said", "code"),
    [
        (Reply(status=401, raw=b""), "wants a key", "PROVIDER_AUTH"),
        (Reply(status=404, raw=b""), "does not know the model 'fake-1'", "PROVIDER_NOT_FOUND"),
        (
            Reply(raw=b"<html><title>Portal</title>", content_type="text/html"),
            "a web page",
            "PROVIDER_RESPONSE",
        ),
        (Reply([{"content": "half"}], cut=True), "127.0.0.1", "PROVIDER_"),
    ],
)
def test_a_failed_request_fails_the_cell_and_the_next_one_works(
    reply: Reply, said: str, code: str, tmp_path: Path
) -> None:
    with notebook(tmp_path, reply, text("up again")) as (kernel, _):
        cell = kernel.run("%%yiem\nhi")
        assert cell.status == "error"
        assert said in cell.error
        assert code in cell.error
        assert "up again" in kernel.run("%%yiem\nhi").text
    assert messages(tmp_path)[1]["stopReason"] == "error"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise ValueError('bad')", "ValueError: bad"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("raise KeyboardInterrupt", "Interrupted"),
        ("return object()", "object at 0x"),
        ("x = []; x.append(x); return x", "["),
        ("return float('nan')", "NaN"),
        ("return 'x' * 10**6", "characters left out"),
        ("print('y' * 10**6); return 1", "y"),
        ("return f(x)", "RecursionError"),
        ("class Bad:\n        def __repr__(self): raise RuntimeError\n    return Bad()", "Bad"),
    ],
)
def test_whatever_a_function_does_the_kernel_lives_and_the_model_is_told(
    body: str, said: str, tmp_path: Path
) -> None:
    with notebook(tmp_path, call("f", {"x": 1}), text("told")) as (kernel, server):
        kernel.run(f"@yiem.tool\ndef f(x: int):\n    'F.'\n    {body}")
        cell = kernel.run("%%yiem\ngo")
        if len(server.requests) > 1:
            told = server.requests[1]["messages"][-1]["content"]
            assert said in told
            assert len(told) < 25_000
            assert "told" in cell.text
        else:
            assert said == "Interrupted"
        assert kernel.run("1 + 1").status == "ok"


def test_arguments_that_do_not_fit_come_back_to_the_model(tmp_path: Path) -> None:
    replies = [call("f", {"n": "many", "zz": 1}), call("f", {"n": "3"}, id="call_2"), text("done")]
    with notebook(tmp_path, *replies) as (kernel, server):
        kernel.run("@yiem.tool\ndef f(n: int) -> int:\n    'F.'\n    return n + 1")
        kernel.run("%%yiem\ngo")
    first, second = (server.requests[n]["messages"][-1]["content"] for n in (1, 2))
    assert "zz" in first
    assert "n" in first
    assert second == "4"


def test_a_folder_that_cannot_be_written_loses_nothing(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        target = Path("/proc")  # nobody writes there, root included
        env = {"YIEM_NOTEBOOK": "/proc/n.ipynb"}
    else:
        target = tmp_path / "locked"
        target.mkdir(mode=0o500)
        env = {"YIEM_NOTEBOOK": str(target / "n.ipynb")}
    with notebook(tmp_path, text("still here"), text("and again"), **env) as (kernel, server):
        cell = kernel.run("%%yiem\nhi")
        assert cell.status == "ok"
        assert "still here" in cell.text
        assert "not saved" in cell.text
        kernel.run("%%yiem\nmore")
        said = [m["content"] for m in server.requests[1]["messages"]]
        assert said[-3:] == ["hi", "still here", "more"]


def test_a_kernel_without_a_notebook_says_where_its_session_is(tmp_path: Path) -> None:
    with serving(text("hello")) as server:
        kernel = Kernel(sys.executable, tmp_path)
        try:
            kernel.run("%load_ext yiem_nb")
            kernel.run(
                f"%config YiemMagics.base_url={server.base_url!r}\n%config YiemMagics.model='m'"
            )
            cell = kernel.run("%%yiem\nhi")
        finally:
            kernel.stop()
    assert "belongs to no notebook; the session is" in cell.text
    assert len(list((tmp_path / ".data").rglob("*.yiem.jsonl"))) == 1


def test_no_key_is_in_anything_that_is_kept_or_shown(tmp_path: Path) -> None:
    canary = "sk-canary-abcdefghijklmnop"
    fail = Reply(status=500, raw=f'{{"error": "your key {canary} is odd"}}'.encode())
    replies = [text("ok"), fail, fail, fail, fail]
    with notebook(tmp_path, *replies, MY_KEY=canary) as (kernel, server):
        kernel.run("%config YiemMagics.api_key_env = 'MY_KEY'")
        cells = [kernel.run("%%yiem\nhi"), kernel.run(f"%%yiem\nmy key is {canary}", timeout=90)]
        assert server.headers[0]["authorization"] == f"bearer {canary}"
        shown = "".join(json.dumps(c.outputs) + c.error + c.stream for c in cells)
        assert canary not in shown
        refused = kernel.run(f"%config YiemMagics.api_key_env = {canary!r}")
        assert canary not in refused.stream + refused.error


def test_a_terminal_and_a_script_show_the_same_as_text(tmp_path: Path) -> None:
    script = tmp_path / "script.ipy"
    replies = [call("work", {"seconds": 0.01}), text("It *worked*."), Reply(status=401, raw=b"")]
    with serving(*replies) as server:
        script.write_text(
            "%load_ext yiem_nb\n"
            f"%config YiemMagics.base_url = {server.base_url!r}\n"
            "%config YiemMagics.model = 'fake-1'\n"
            f"{SLOW_TOOL}\n"
            "%yiem please work\n"
            "%yiem once more\n"
            "print('never reached')\n"
        )
        home = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / ".data")}
        done = subprocess.run(
            [sys.executable, "-m", "IPython", "--no-banner", "--colors=NoColor", str(script)],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=tmp_path,
            env=os.environ | home,
            stdin=subprocess.DEVNULL,
        )
    assert "▸ work(seconds=0.01) → " in done.stdout
    assert "It *worked*.\n\nfake-1 · 10 in" in done.stdout
    assert "wants a key" in done.stdout + done.stderr
    assert "never reached" not in done.stdout
    assert "\x1b" not in done.stdout.split("▸", 1)[1].split("fake-1")[0]
    assert done.returncode != 0


# --- Lines and settings --------------------------------------------------------------------


def test_the_line_is_raw_and_what_was_understood_is_shown(tmp_path: Path) -> None:
    with notebook(tmp_path, text("a"), text("b")) as (kernel, server):
        kernel.run("x = 5")
        kernel.run("%yiem model the $x of {x} it's \\frac{1}{2}")
        kernel.run("%%yiem What is {x}\nand $x?")
        said = [r["messages"][-1]["content"] for r in server.requests]
        assert said == ["model the $x of {x} it's \\frac{1}{2}", "What is {x}\nand $x?"]
        assert "model: custom/other" in kernel.run("%yiem model other").stream
        assert "In use: custom/other" in kernel.run("%yiem model").stream
        assert "nothing was running" in kernel.run("%yiem stop").stream
        assert "n.yiem.jsonl" in kernel.run("%yiem session").stream
        assert "No tools." in kernel.run("%yiem tools").stream
        assert "new conversation" in kernel.run("%yiem reset").stream
        kernel.run("%%yiem\nfresh")
        assert [m["role"] for m in server.requests[2]["messages"]] == ["system", "user"]


def test_a_prompt_that_is_refused_leaves_no_waiting_line(tmp_path: Path) -> None:
    tool = "@yiem.tool\ndef f() -> str:\n    'F.'\n    return yiem.ask('me again').text"
    with notebook(tmp_path, call("f", {}), text("done")) as (kernel, server):
        kernel.run(tool)
        cell = kernel.run("%%yiem\ngo")
        assert "The agent is answering" in server.requests[1]["messages"][-1]["content"]
        assert "waiting" not in cell.text
        assert "■ not answered" in cell.text


def test_without_usage_two_runs_look_the_same(tmp_path: Path) -> None:
    with notebook(tmp_path, text("same"), text("same")) as (kernel, _):
        kernel.run("%config YiemMagics.show_usage = False")
        one, two = kernel.run("%%yiem\nhi"), kernel.run("%%yiem\nhi")
        assert list(one.outputs.values()) == list(two.outputs.values())
        assert one.text == "same\nfake-1"


def test_the_extension_can_be_taken_away_and_loaded_again(tmp_path: Path) -> None:
    with notebook(tmp_path, text("a"), text("b")) as (kernel, server):
        kernel.run("%%yiem\nhi")
        kernel.run("%unload_ext yiem_nb")
        assert kernel.run("%%yiem\nhi").status == "error"
        kernel.run("%load_ext yiem_nb")
        kernel.run(f"%config YiemMagics.base_url={server.base_url!r}\n%config YiemMagics.model='m'")
        assert "b" in kernel.run("%%yiem\nhi").text


def test_a_script_of_answers_never_poses_as_a_model(tmp_path: Path) -> None:
    kernel = Kernel(sys.executable, tmp_path)
    try:
        kernel.run("%load_ext yiem_nb")
        kernel.run("yiem.use(yiem.ScriptedProvider(['scripted answer']))")
        cell = kernel.run("%%yiem\nhi")
    finally:
        kernel.stop()
    assert "scripted answer" in cell.text
    assert "scripted (no model)" in cell.text
