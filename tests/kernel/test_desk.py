"""`%yiem session`: look at the tree, go elsewhere in it, hide, compare, and take it along."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fake_openai import text
from tests.kernel.scenes import notebook
from yiem_nb.session import JsonlSessionStorage, Session

pytestmark = pytest.mark.kernel


def test_the_session_is_walked_from_a_cell(tmp_path: Path) -> None:
    replies = [text(f"answer {n}") for n in range(1, 5)]
    with notebook(tmp_path, *replies) as (kernel, server):

        def say(command: str) -> str:
            return kernel.run(f"%yiem session {command}").stream

        assert "Nothing has been said yet" in kernel.run("%yiem session label x").error
        assert "Nothing has been said yet" in say("tree")
        kernel.run("%%yiem\nfirst", cell_id="A")
        assert say("label baseline") == "labelled: baseline\n"
        assert say("name The wine study") == "session: The wine study\n"
        kernel.run("%%yiem\nsecond", cell_id="B")
        say("label tried")

        assert say("goto baseline") == "the next prompt goes on after: answer 1\n"
        kernel.run("%%yiem\nthird", cell_id="C")
        assert _prompts(server.requests[-1]) == ["first", "third"]
        tree = say("tree")
        assert [line.split("  ")[0] for line in tree.splitlines()] == [
            *("● first", "├─● third", "└─○ second"),
        ]
        assert "← you are here" in tree.splitlines()[1]

        say("label other")
        both = say("compare tried other")
        assert both.startswith("only in tried:\n  ● second\n    answer 2  (fake-1)\n")
        assert "only in other:\n  ● third\n    answer 3  (fake-1)" in both

        assert say("hide other") == "hidden from the model: 2 messages\n"
        kernel.run("%%yiem --append\nfourth", cell_id="D")
        assert _prompts(server.requests[-1]) == ["first", "fourth"]
        assert say("unhide other") == "the model sees it again: 2 messages\n"

        assert "n.2.yiem.jsonl" in say("fork")
        assert "n.session.html" in say("export")
        assert "n.session.html" in say("export")
        assert "out.md" in say("export out.md")
        assert "There is something at" in kernel.run("%yiem session export out.md").error
        wrong = kernel.run("%yiem session goto nowhere").error
        assert "There is no entry and no label 'nowhere' in this session." in wrong
        assert "%yiem session tree" in wrong
    assert "answer 3" in (tmp_path / "out.md").read_text()
    assert "The wine study" in (tmp_path / "n.session.html").read_text()
    forked = Session(JsonlSessionStorage.open(tmp_path / "n.2.yiem.jsonl"))
    assert [m.text for m in forked.context().messages if m.role == "user"] == [
        *("first", "third", "fourth"),
    ]


def test_nothing_moves_while_a_run_writes(tmp_path: Path) -> None:
    moving = "@yiem.tool\ndef move() -> str:\n    'M.'\n    get_ipython().run_line_magic('yiem', 'session label x')"
    from tests.fake_openai import call

    with notebook(tmp_path, call("move", {}), text("done")) as (kernel, server):
        kernel.run(moving)
        kernel.run("%%yiem\ngo", cell_id="A")
        told = server.requests[1]["messages"][-1]["content"]
        assert "The agent is answering; it cannot change the session now." in told


def _prompts(request: dict) -> list[str]:
    return [m["content"] for m in request["messages"] if m["role"] == "user"]


def test_a_long_conversation_is_compacted_from_a_cell_and_a_branch_is_summarised(
    tmp_path: Path,
) -> None:
    replies = [
        text("word " * 22_000, size=5_000),
        text("short"),
        text("## Goal\nwine"),
        text("go on"),
    ]
    replies += [text("it led nowhere"), text("after")]
    with notebook(tmp_path, *replies) as (kernel, server):
        kernel.run("%%yiem\nfirst", cell_id="A")
        assert "There is nothing to summarise yet." in kernel.run("%yiem compact").error
        kernel.run("%yiem session label start")
        kernel.run("%%yiem\nsecond", cell_id="B")
        said = kernel.run("%yiem compact the altitude").stream
        assert said.startswith("compacted: about ")
        kernel.run("%%yiem --append\nthird", cell_id="C")
        said = kernel.run("%yiem session goto start --summary what failed").stream
        assert "the next prompt goes on after: " in said
        kernel.run("%%yiem\nfourth", cell_id="D")
    assert "Above all: the altitude" in _prompts(server.requests[2])[-1]
    assert "<summary>\n## Goal\nwine\n</summary>" in _prompts(server.requests[3])[0]
    asked = [m["content"] for m in server.requests[-2]["messages"] if m["role"] == "user"]
    assert "Above all: what failed" in asked[-1]
    assert "[User]: second" in asked[-1]
    told = _prompts(server.requests[-1])
    assert "it led nowhere" in told[-2]
    assert told[-1] == "fourth"
