"""The agent's journal: in the file, in order, before anybody acts on it."""

import asyncio
import base64

from yiem_nb.agent import Agent, AgentOptions
from yiem_nb.messages import (
    AgentToolResult,
    AssistantMessage,
    ImageContent,
    TextContent,
    UserMessage,
)
from yiem_nb.models import Limits, Model, ThinkingLevel
from yiem_nb.session import JsonlSessionStorage, SessionOptions, build_context
from yiem_nb.session.journal import SessionJournal
from yiem_nb.tools import AgentTool

UNLIMITED = Limits(reads_per_second=None, writes_per_second=None)


def reopen(journal):
    return JsonlSessionStorage.open(journal.storage.path, limits=UNLIMITED)


def new(folder):
    options = SessionOptions(folder / "s.yiem.jsonl")
    return SessionJournal(JsonlSessionStorage.create(options, limits=UNLIMITED))


async def test_each_call_returns_when_its_entry_is_in_the_file(tmp_path):
    journal = new(tmp_path)

    await journal.model(Model(id="m", provider="p"))
    await journal.thinking_level(ThinkingLevel.LOW)
    await journal.tools(["f"])
    await journal.message(UserMessage("a"), cell_id="c")
    await journal.message(AssistantMessage("b"), request_hash="h")
    await journal.settle()

    again = reopen(journal)
    context = build_context(again.tree, again.get_leaf_id())
    prompt, answer = again.find_entries("message")
    assert [message.text for message in context.messages] == ["a", "b"]
    assert (context.model, context.thinking_level) == (("p", "m"), ThinkingLevel.LOW)
    assert context.active_tools == ("f",)
    assert (prompt.cell_id, answer.request_hash) == ("c", "h")

    await journal.new_root()
    await journal.message(UserMessage("c"))
    journal.close()
    again = reopen(journal)
    context = build_context(again.tree, again.get_leaf_id())
    assert [message.text for message in context.messages] == ["c"]
    assert (context.model, context.active_tools) == (("p", "m"), ("f",))


async def test_calls_made_at_once_are_written_in_their_order(tmp_path):
    journal = new(tmp_path)

    await asyncio.gather(*(journal.message(UserMessage(f"{number}")) for number in range(50)))

    journal.close()
    texts = [entry.message.text for entry in reopen(journal).get_path()]
    assert texts == [f"{number}" for number in range(50)]


async def test_the_prompt_is_in_the_file_before_the_request_leaves(tmp_path):
    journal = new(tmp_path)
    in_file = []

    async def stream(model, context, thinking_level, signal):
        in_file.extend(entry.message.text for entry in reopen(journal).find_entries("message"))
        yield AssistantMessage("b")

    agent = Agent(AgentOptions(model=Model(id="m")), stream, journal)
    await agent.prompt("a", cell_id="c")

    assert in_file == ["a"]
    again = reopen(journal)
    assert [entry.message.text for entry in again.get_path()] == ["a", "b"]
    assert again.get_path()[1].request_hash
    # What is live and what is read back are the same conversation.
    assert build_context(again.tree, again.get_leaf_id()).messages == agent.state.messages
    journal.close()


async def test_after_a_large_image_the_reopened_conversation_equals_the_live_one(tmp_path):
    """The image lies beside the file; the model sees it again."""
    journal = new(tmp_path)
    image = ImageContent(base64.b64encode(b"x" * 300_000).decode(), "image/png")
    answers = [AssistantMessage(tool_calls=[{"id": "1", "name": "plot"}]), AssistantMessage("seen")]

    async def plot(tool_call_id, arguments, signal, on_update):
        return AgentToolResult([TextContent("done"), image])

    async def stream(model, context, thinking_level, signal):
        yield answers.pop(0)

    schema = {"type": "object", "properties": {}}
    tool = AgentTool(name="plot", description="plots", parameters=schema, execute=plot)
    agent = Agent(AgentOptions(model=Model(id="m"), tools=[tool]), stream, journal)
    await agent.prompt([UserMessage([TextContent("plot it"), image])])

    again = reopen(journal)
    assert build_context(again.tree, again.get_leaf_id()).messages == agent.state.messages
    assert [block for block in agent.state.messages[2].content if block == image] == [image]
    assert len(list((tmp_path / "s.yiem.files").iterdir())) == 1
    assert again.path.stat().st_size < 5_000
