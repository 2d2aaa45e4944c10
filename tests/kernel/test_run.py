"""`yiem run`: a notebook in order, headless, with its session and an exit status that is true."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from tests.fake_openai import FakeOpenAi, Reply, serving, text
from tests.kernel.scenes import entries, notebook
from tests.kernel.test_places import _prompts
from yiem_nb.messages import AssistantMessage, Usage, UserMessage
from yiem_nb.session import JsonlSessionStorage, MessageEntry, SessionOptions

pytestmark = pytest.mark.kernel


def write(folder: Path, server: FakeOpenAi, *cells: str) -> Path:
    """Write a notebook whose first cell chooses the server."""
    setup = (
        f"%load_ext yiem_nb\n%config YiemMagics.base_url = {server.base_url!r}\n"
        "%config YiemMagics.model = 'fake-1'"
    )
    sources = [setup, *cells]
    code = [new_code_cell(source, id=f"cell-{at}") for at, source in enumerate(sources)]
    path = folder / "n.ipynb"
    nbformat.write(new_notebook(cells=[new_markdown_cell("# Study", id="title"), *code]), path)
    return path


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    clean = {k: v for k, v in os.environ.items() if not k.endswith("_API_KEY")}
    home = {"HOME": str(folder), "IPYTHONDIR": str(folder / ".ipython")}
    home |= {"XDG_DATA_HOME": str(folder / ".data")}  # as the kernels of the harness have it
    return subprocess.Popen(
        [sys.executable, "-m", "yiem_nb.cli", "run", *words],
        env=clean | home,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
    )


def run(folder: Path, *words: str) -> tuple[int, str, str]:
    process = start(folder, *words)
    out, err = process.communicate(timeout=90)
    return process.returncode, out, err


def shown(path: Path) -> list[str]:
    """The text of each code cell's outputs."""
    return [
        "\n".join(str(o.get("text") or o.get("data", {}).get("text/plain", "")) for o in c.outputs)
        for c in nbformat.read(path, 4).cells
        if c.cell_type == "code"
    ]


def used(folder: Path, name: str = "n") -> int:
    with JsonlSessionStorage.open(folder / f"{name}.yiem.jsonl") as storage:
        return storage.get_session_stats().total_tokens


def seen(server: FakeOpenAi) -> Sequence[list[str]]:
    return [_prompts(request) for request in server.requests]


def test_a_notebook_runs_in_order_and_its_outputs_and_session_are_kept(tmp_path: Path) -> None:
    with serving(text("one"), text("two")) as server:
        path = write(tmp_path, server, "%%yiem\nfirst question", "1 + 1", "%%yiem\nsecond question")
        status, out, err = run(tmp_path, "n.ipynb")
        assert (status, err) == (0, "")
        assert seen(server) == [["first question"], ["first question", "second question"]]
    lines = out.splitlines()
    assert lines[1].startswith("[2/4] %%yiem first question   ")
    assert lines[-1] == f"4 of 4 cells · {used(tmp_path)} tokens · session n.yiem.jsonl"
    assert "one" in shown(path)[1]
    assert shown(path)[2] == "2"
    assert [e["cellId"] for e in entries(tmp_path) if "cellId" in e] == ["cell-1", "cell-3"]
    assert not any(
        "widget" in kind
        for c in nbformat.read(path, 4).cells
        for kind in str(c.get("outputs")).split()
    )


def test_what_is_summed_up_is_the_session_that_was_written(tmp_path: Path) -> None:
    foreign = tmp_path / "n.yiem.jsonl"
    with JsonlSessionStorage.create(SessionOptions(foreign)) as storage:
        storage.append_entry(MessageEntry(message=UserMessage("theirs")))
        usage = Usage(input=1_000_000, total_tokens=1_000_000)
        storage.append_entry(MessageEntry(message=AssistantMessage("yes", usage=usage)))
    before = foreign.read_bytes()
    with serving(text("one"), text("two")) as server:
        write(tmp_path, server, "%%yiem\na")
        first = run(tmp_path, "n.ipynb")[1].splitlines()[-1]
        once = used(tmp_path, "n.2")
        again = run(tmp_path, "n.ipynb")[1].splitlines()[-1]
    assert first == f"2 of 2 cells · {once} tokens · session n.2.yiem.jsonl"
    twice = used(tmp_path, "n.2")
    assert again == f"2 of 2 cells · {twice - once} tokens · session n.2.yiem.jsonl"
    assert foreign.read_bytes() == before


def test_while_another_kernel_has_the_session_the_copy_is_named_and_only_its_own_tokens_counted(
    tmp_path: Path,
) -> None:
    with notebook(tmp_path, text("mine"), text("runs")) as (kernel, server):
        kernel.run("%%yiem\nfirst", cell_id="cell-1")
        before = used(tmp_path)
        write(tmp_path, server, "%%yiem\na")
        said = run(tmp_path, "n.ipynb")[1].splitlines()[-1]
        assert used(tmp_path) == before
    own = used(tmp_path, "n.2") - before
    assert own > 0
    assert said == f"2 of 2 cells · {own} tokens · session n.2.yiem.jsonl"


def test_a_notebook_that_asks_nothing_has_no_session(tmp_path: Path) -> None:
    with serving() as server:
        write(tmp_path, server, "1 + 1")
        assert run(tmp_path, "n.ipynb")[1].splitlines()[-1] == "2 of 2 cells"
    assert not list(tmp_path.glob("*.jsonl"))


def test_run_again_it_grows_one_clean_branch_and_with_continue_it_goes_on(tmp_path: Path) -> None:
    with serving(*(text(f"answer {n}") for n in range(6))) as server:
        write(tmp_path, server, "%%yiem\na", "%%yiem\nb")
        for words in ([], [], ["--continue"]):
            assert run(tmp_path, "n.ipynb", *words)[0] == 0
        assert seen(server) == [
            *(["a"], ["a", "b"]),
            *(["a"], ["a", "b"]),
            *(["a", "b", "a"], ["a", "b", "a", "b"]),
        ]


def test_a_model_named_on_the_line_answers_every_cell_that_names_none(tmp_path: Path) -> None:
    with serving(text("one"), text("two")) as server:
        write(tmp_path, server, "%%yiem\na", "%%yiem -m mine\nb")
        assert run(tmp_path, "n.ipynb", "--model", "other")[0] == 0
        assert [request["model"] for request in server.requests] == ["other", "mine"]


def test_a_failed_cell_fails_the_run_and_what_came_before_is_saved(tmp_path: Path) -> None:
    with serving(text("one")) as server:
        path = write(tmp_path, server, "%%yiem\na", "1 / 0", "%%yiem\nnever asked")
        status, out, err = run(tmp_path, "n.ipynb")
        assert len(server.requests) == 1
    assert status == 1
    assert err == "✕ Cell 3 of 4 failed: ZeroDivisionError: division by zero\n"
    assert out.splitlines()[-1].startswith("3 of 4 cells")
    assert "one" in shown(path)[1]


def test_a_refused_request_fails_the_run(tmp_path: Path) -> None:
    body = b'{"error": {"message": "bad key"}}'
    with serving(Reply(status=401, raw=body, content_type="application/json")) as server:
        write(tmp_path, server, "%%yiem\na")
        status, _, err = run(tmp_path, "n.ipynb")
    assert status == 1
    assert err.startswith("✕ Cell 2 of 2 failed: ")
    assert "401" in err


def test_ctrl_c_stops_the_cell_and_keeps_the_partial_answer(tmp_path: Path) -> None:
    with serving(Reply([{"content": "partial"}], stall=True)) as server:
        path = write(tmp_path, server, "%%yiem\na", "print('never')")
        process = start(tmp_path, "n.ipynb")
        deadline = time.monotonic() + 60
        while not server.sent and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopped" in shown(path)[1]
    assert shown(path)[2] == ""
    assert entries(tmp_path)[-1]["message"]["stopReason"] == "aborted"


def test_a_notebook_that_was_edited_meanwhile_is_left_alone(tmp_path: Path) -> None:
    with serving(text("one")) as server:
        path = write(tmp_path, server, "open('n.ipynb', 'a').write(' ')", "%%yiem\na")
        status, _, err = run(tmp_path, "n.ipynb")
    assert status == 0
    assert err == "n.ipynb has changed meanwhile; the outputs are in n.run.ipynb\n"
    assert "one" in shown(tmp_path / "n.run.ipynb")[2]
    assert shown(path)[2] == ""


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("absent.ipynb", None, "cannot be read: No such file or directory."),
        ("text.ipynb", "no json", "is no notebook that can be read."),
        ("list.ipynb", "[]", "is no notebook that can be read."),
        ("old.ipynb", '{"nbformat": 99}', "is no notebook that can be read."),
    ],
)
def test_what_is_no_notebook_is_refused_in_a_sentence(
    name: str, content: str | None, said: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    status, out, err = run(tmp_path, name)
    assert status == 2
    assert out == ""
    assert said in err
    assert len(err.splitlines()) == 2


def test_a_kernel_that_is_not_installed_is_named(tmp_path: Path) -> None:
    notebook = new_notebook(cells=[new_code_cell("1")])
    notebook.metadata["kernelspec"] = {"name": "julia-9", "display_name": "J", "language": "julia"}
    nbformat.write(notebook, tmp_path / "n.ipynb")
    status, _, err = run(tmp_path, "n.ipynb")
    assert status == 2
    assert "'julia-9', which is not installed here" in err
