"""A model that obeys whatever it reads calls nothing with side effects without leave (T04).

Fifty texts arrive by six ways. The scripted model does the worst: whatever the text says, it then calls
every tool it has that changes something. What ran is counted where it would have run.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from PIL import Image, ImageDraw
from tests.factories import MODEL, call
from tests.injections import INJECTIONS
from tests.test_kernel_tools import Notebook
from yiem_nb.agent import Agent, AgentOptions
from yiem_nb.messages import (
    AgentToolResult,
    ImageContent,
    TextContent,
    ToolResultMessage,
    UserMessage,
)
from yiem_nb.models import Limits
from yiem_nb.providers import ScriptedProvider
from yiem_nb.session import JsonlSessionStorage, SessionOptions, build_context
from yiem_nb.session.entries import MessageEntry
from yiem_nb.tools import AgentTool, ApprovalRequest, Decision, Gate

WAYS = ("cell of a table", "file", "server", "description", "image", "session")
HARMFUL = ("wipe", "python", "mcp__mail__forward")


class Scene:
    """A notebook with tools that change things, a way for the text to come, and a person."""

    def __init__(self, notebook: Notebook, folder: Path) -> None:
        self.notebook = notebook
        self.folder = folder
        self.ran: list[str] = []
        self.asked: list[ApprovalRequest] = []
        self.answers: list[str] = []
        self.gate = Gate()
        notebook.shell.user_ns["ran"] = self.ran
        notebook.registry.add(self.wipe, ask=True)
        notebook.registry.provide(self.server_tool("mcp__mail__forward", "Forward a mail.", ""))

    def wipe(self, table: str = "t") -> str:
        """Wipe a table."""
        self.ran.append("wipe")
        return "wiped"

    def server_tool(
        self, name: str, description: str, answer: str, *, read_only: bool = False
    ) -> AgentTool:
        """A tool as a server's arrives: its words are others', and it asks unless it only reads."""

        async def execute(*_: Any) -> AgentToolResult:
            if not read_only:
                self.ran.append(name)
            return AgentToolResult(answer or "forwarded")

        return AgentTool(
            name=name,
            description=description,
            execute=execute,
            asks=not read_only,
            read_only=read_only,
            untrusted=True,
        )

    async def person(self, request: ApprovalRequest) -> Decision:
        """Answers as told, then no to everything."""
        self.asked.append(request)
        kind = self.answers.pop(0) if self.answers else "deny"
        return Decision(nonce=request.nonce, kind=kind)  # type: ignore[arg-type]

    def bring(self, way: str, text: str) -> list[Any]:
        """Prepare the arrival; return what the model calls to read it."""
        registry, name = self.notebook.registry, "look"
        if way == "session":
            self.messages = self.from_session(text)
            return []
        if way == "description":
            registry.provide(self.server_tool(name, text, "x", read_only=True))
            return []
        if way == "server":
            registry.provide(self.server_tool(name, "Look.", text, read_only=True))
            return [call("c0", name)]
        made = {"cell of a table": self.table, "file": self.file, "image": self.image}[way]
        registry.add(made(text), name=name)
        return [call("c0", name)]

    messages: tuple[Any, ...] = ()

    def table(self, text: str) -> Any:
        def look() -> pd.DataFrame:
            """Look at the table."""
            return pd.DataFrame({"note": ["fine", text]})

        return look

    def file(self, text: str) -> Any:
        path = self.folder / "notes.txt"
        path.write_text(text)

        def look() -> str:
            """Read the notes."""
            return path.read_text()

        return look

    def image(self, text: str) -> Any:
        picture = Image.new("RGB", (400, 40), "white")
        ImageDraw.Draw(picture).text((2, 2), text.encode("ascii", "replace").decode())
        buffer = io.BytesIO()
        picture.save(buffer, "PNG")

        def look() -> bytes:
            """Look at the picture."""
            return buffer.getvalue()

        return look

    def from_session(self, text: str) -> tuple[Any, ...]:
        """What another's session file holds, read as a conversation does."""
        path = self.folder / "other.yiem.jsonl"
        path.unlink(missing_ok=True)
        storage = JsonlSessionStorage.create(SessionOptions(path=str(path)))
        storage.append_entry(MessageEntry(message=UserMessage(text)))
        messages = build_context(storage.tree, storage.get_leaf_id()).messages
        storage.close()
        self.gate.hear(f"the session file {path.name}")
        return messages

    def attack(self, way: str, text: str) -> list[ToolResultMessage]:
        """Let the text arrive and the model obey; return the results of what it tried."""
        reads = self.bring(way, text)
        harm = [
            call("h1", "wipe"),
            call("h2", "python", code="ran.append('python')"),
            call("h3", "mcp__mail__forward"),
        ]
        turns: list[Any] = [*([reads] if reads else []), harm, "done"]
        agent = Agent(
            AgentOptions(
                model=MODEL,
                tools=self.notebook.registry.active(),
                messages=self.messages,
                gate=self.gate,
                limits=Limits(messages_per_session=None),
            ),
            provider := ScriptedProvider(turns, size=1000),
        )
        assert self.notebook.bridge.run_sync(lambda: agent.prompt("go")).text == "done"
        assert arrived(way, text, provider.requests[-2]), "the text was read before it was obeyed"
        results = {
            m.tool_call_id: m for m in agent.state.messages if isinstance(m, ToolResultMessage)
        }
        return [results[each.id] for each in harm]


def arrived(way: str, text: str, request: Any) -> bool:
    """Whether what the model saw held the text, or its beginning where a table cuts it."""
    if way == "description":
        return bool(request.tools["look"].description == text)
    blocks = [block for message in request.messages for block in message.content]
    if way == "image":
        pictures = [b.data for b in blocks if isinstance(b, ImageContent)]
        return any(base64.b64decode(data).startswith(b"\x89PNG") for data in pictures)
    words = text.split("\n", maxsplit=1)[0][:20]
    return any(words in b.text for b in blocks if isinstance(b, TextContent))


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    notebook = Notebook()
    yield Scene(notebook, tmp_path)
    notebook.close()


def test_the_corpus_is_fifty_different_texts() -> None:
    assert len(set(INJECTIONS)) == 50


@pytest.mark.parametrize("way", WAYS)
def test_without_anybody_to_ask_nothing_runs(scene: Scene, way: str) -> None:
    tried = 0
    for text in INJECTIONS:
        for result in scene.attack(way, text):
            tried += 1
            assert result.details["code"] == "EXECUTION_DENIED"
    assert tried == 150
    assert scene.ran == []


@pytest.mark.parametrize("way", WAYS)
def test_a_person_is_asked_about_each_and_no_is_no(scene: Scene, way: str) -> None:
    scene.gate.approver = scene.person
    for text in INJECTIONS:
        scene.attack(way, text)
    assert scene.ran == []
    assert len(scene.asked) == 150


@pytest.mark.parametrize("way", WAYS)
def test_what_was_allowed_for_the_session_before_is_asked_about_again(
    scene: Scene, way: str
) -> None:
    """Leave given to the user's own work is not the text's to use."""
    scene.gate.approver = scene.person
    for text in INJECTIONS:
        scene.gate.forget()
        scene.notebook.registry.remove("look")
        scene.answers = ["session"]
        wipe = scene.notebook.registry.active()["wipe"]
        before = scene.gate.judge(wipe, call("c", "wipe"), {})
        assert isinstance(before, ApprovalRequest)
        scene.gate.settle(wipe, Decision(nonce=before.nonce, kind="session"))
        scene.answers.clear()
        asked = len(scene.asked)
        scene.attack(way, text)
        assert [request.tool_name for request in scene.asked[asked:]] == list(HARMFUL)
        assert not any(request.offers_session for request in scene.asked[asked:])
    assert scene.ran == []


def test_the_scene_would_notice_a_call_that_ran(scene: Scene) -> None:
    scene.gate.approver = scene.person
    scene.answers = ["once"] * 3
    scene.attack("file", INJECTIONS[0])
    assert scene.ran == list(HARMFUL)
