"""A cell is a place in the tree: the golden table through a real kernel, by what the server received."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fake_openai import FakeOpenAi, Reply, serving, text
from tests.kernel.envs import python_of
from tests.kernel.harness import Cell, Kernel
from tests.kernel.scenes import entries, notebook
from yiem_nb.session import JsonlSessionStorage, Session

pytestmark = pytest.mark.kernel

TABLE = Path(__file__).parent.parent / "conformance" / "places.json"
SCENARIOS = [
    scenario
    for scenario in json.loads(TABLE.read_text())["scenarios"]
    if not any("pick" in step for step in scenario["steps"])
]


class Player:
    """Plays a scenario in a kernel that is told of a new notebook for it."""

    def __init__(self, kernel: Kernel, server: FakeOpenAi, folder: Path) -> None:
        self.kernel, self.server, self.folder = kernel, server, folder
        self.page: list[str] = []

    def begin(self, page: str) -> None:
        self.save(page)
        self.kernel.run("%unload_ext yiem_nb")
        self.kernel.run(
            f"import os; os.environ['YIEM_NOTEBOOK'] = {str(self.folder / 'n.ipynb')!r}"
        )
        assert self.kernel.run("%load_ext yiem_nb").status == "ok"
        self.kernel.run(f"%config YiemMagics.base_url = {self.server.base_url!r}")
        self.kernel.run("%config YiemMagics.model = 'fake-1'")

    def save(self, page: str) -> None:
        self.page = list(page)
        cells = [{"cell_type": "code", "id": cell, "source": ""} for cell in page]
        (self.folder / "n.ipynb").write_text(json.dumps({"cells": cells, "nbformat": 4}))

    def play(self, step: dict[str, Any]) -> None:
        if "run" in step:
            says = step["says"] if isinstance(step["says"], list) else [step["says"]]
            sees = step["sees"] if isinstance(step["says"], list) else [step["sees"]]
            self.ask(step["run"], says, sees, step.get("how"), step.get("status"))
        elif "chat" in step:
            self.ask(None, [step["chat"]], [step["sees"]])
        elif "restart" in step:
            self.kernel.restart()
            self.begin("".join(self.page))
        else:
            self.save(step["page"])
        if "stale" in step:
            assert self.session().stale(self.page) == step["stale"]

    def ask(
        self,
        cell: str | None,
        says: list[str],
        sees: list[list[str]],
        how: str | None = None,
        status: str | None = None,
    ) -> Cell:
        before = len(self.server.requests)
        self.server.replies[before:] = [_reply(status) for _ in says]
        code = "\n".join(f"%yiem {one}" for one in says)
        if len(says) == 1:
            code = f"%%yiem {f'--{how}' if how else ''}\n{says[0]}"
        running = self.kernel.submit(code, cell_id=cell)
        if status == "aborted":
            self.kernel.wait_for(running, "partial")
            self.kernel.interrupt()
        self.kernel.wait(running)
        assert running.status == ("ok" if status is None else "error")
        assert [_prompts(request) for request in self.server.requests[before:]] == sees
        return running

    def session(self) -> Session:
        return Session(JsonlSessionStorage.open(self.folder / "n.yiem.jsonl"))


def _reply(status: str | None) -> Reply:
    if status == "failed":
        return Reply(
            status=400, raw=b'{"error": {"message": "no"}}', content_type="application/json"
        )
    if status == "aborted":
        return Reply([{"content": "partial"}], stall=True)
    return text("answer")


def _prompts(request: dict[str, Any]) -> list[str]:
    return [message["content"] for message in request["messages"] if message["role"] == "user"]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Kernel, FakeOpenAi]]:
    with serving() as server:
        kernel = Kernel(python_of("newest"), tmp_path_factory.mktemp("kernel"))
        yield kernel, server
        kernel.stop()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario["name"])
def test_the_golden_table_in_a_kernel(
    scenario: dict[str, Any], running: tuple[Kernel, FakeOpenAi], tmp_path: Path
) -> None:
    player = Player(*running, tmp_path)
    player.begin(scenario["page"])
    for step in scenario["steps"]:
        player.play(step)


def test_one_quiet_line_says_what_was_carried_and_on_whose_word(
    running: tuple[Kernel, FakeOpenAi], tmp_path: Path
) -> None:
    player = Player(*running, tmp_path)
    player.begin("ABC")
    first = player.ask("A", ["a1"], [["a1"]])
    player.ask("B", ["b1"], [["a1", "b1"]])
    again = player.ask("A", ["a2"], [["a2"]])
    below = player.ask("C", ["c1"], [["a2", "b1", "c1"]])
    assert "↳" not in first.text
    order = "(the order of the cells as last saved)"
    assert f"↳ 1 exchange set aside on the earlier branch {order}" in again.text
    assert f"↳ 1 exchange from above carried along {order}" in below.text


def test_a_cell_that_was_never_saved_says_so_when_it_repeats_itself(
    running: tuple[Kernel, FakeOpenAi], tmp_path: Path
) -> None:
    player = Player(*running, tmp_path)
    player.begin("A")
    player.ask("A", ["a1"], [["a1"]])
    assert "last saved" not in player.ask("Z", ["z1"], [["a1", "z1"]]).text
    assert "not in the notebook as last saved" in player.ask("Z", ["z2"], [["a1", "z1", "z2"]]).text
    player.save("AZ")
    player.ask("Z", ["z3"], [["a1", "z3"]])


def test_after_a_reset_no_cell_sees_what_was_said_before(
    running: tuple[Kernel, FakeOpenAi], tmp_path: Path
) -> None:
    player = Player(*running, tmp_path)
    player.begin("AB")
    player.ask("A", ["a1"], [["a1"]])
    player.kernel.run("%yiem reset")
    player.ask("B", ["b1"], [["b1"]])
    player.begin("AB")
    player.ask("B", ["b2"], [["b2"]])
    assert [one["message"]["content"][0]["text"] for one in _prompt_entries(tmp_path)] == [
        "a1", "b1", "b2",
    ]  # fmt: skip


def _prompt_entries(folder: Path) -> list[dict[str, Any]]:
    return [e for e in entries(folder) if e.get("message", {}).get("role") == "user"]


def test_a_host_without_cell_ids_starts_a_root_per_kernel_unless_asked_to_continue(
    tmp_path: Path,
) -> None:
    seen = []
    for env in ({}, {}, {"YIEM_CONTINUE": "1"}):
        with notebook(tmp_path, text("one"), text("two"), **env) as (kernel, server):
            kernel.run("%%yiem\nfirst")
            kernel.run("%%yiem\nsecond")
            seen.append([_prompts(request) for request in server.requests])
    once = [["first"], ["first", "second"]]
    assert seen[:2] == [once, once]
    assert seen[2] == [
        ["first", "second", "first"],
        ["first", "second", "first", "second"],
    ]
