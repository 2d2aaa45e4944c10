"""SIGKILL a writer, or an agent that streams and calls tools, at random instants.

Every acknowledged entry must be there, and of a text on its way all but the last piece.
"""

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

from yiem_nb.models import Limits
from yiem_nb.session import JsonlSessionStorage, build_context

UNLIMITED = Limits(reads_per_second=None, writes_per_second=None)

# Appends until it is killed and acknowledges each entry on its standard output, which is a pipe:
# what was written there before the signal can still be read after it.
WRITER = """
import os, random, sys
from yiem_nb.messages import UserMessage
from yiem_nb.models import Limits
from yiem_nb.session import JsonlSessionStorage, MessageEntry
limits = Limits(reads_per_second=None, writes_per_second=None)
storage = JsonlSessionStorage.open(sys.argv[1], limits=limits)
random.seed(int(sys.argv[2]))
os.write(1, b"ready\\n")
while True:
    text = "x" * random.choice([10, 1_000, 100_000])
    entry = storage.append_entry(MessageEntry(message=UserMessage(text)))
    os.write(1, entry.id.encode() + b"\\n")
"""

# An agent that streams for ever, in turns with a call each. It acknowledges a message when its event
# is told, and a long text, in pieces of 16,384 characters, when the next piece is asked for.
AGENT = r"""
import asyncio, os, sys
from yiem_nb.agent import Agent, AgentOptions
from yiem_nb.events import MessageEndEvent, MessageUpdateEvent
from yiem_nb.messages import AgentToolCall, AgentToolResult, AssistantMessage
from yiem_nb.models import Limits, Model
from yiem_nb.session import JsonlSessionStorage
from yiem_nb.session.journal import SessionJournal
from yiem_nb.tools import AgentTool
free = dict.fromkeys(Limits.model_fields)
storage = JsonlSessionStorage.open(sys.argv[1], limits=Limits(reads_per_second=None, writes_per_second=None))
run = sys.argv[2]
number = 0
async def work(*_):
    return AgentToolResult("ok")
async def stream(*_):
    global number
    number += 1
    for piece in range(number % 4):
        yield MessageUpdateEvent(0, "text", "x" * 16384)
        os.write(1, f"piece {run}.{number} {piece + 1}\n".encode())
        await asyncio.sleep(0.003)
    call = AgentToolCall(f"{run}.{number}", "work", {"number": number})
    yield AssistantMessage("x" * 16384 * (number % 4), tool_calls=[call])
async def told(event, signal):
    if isinstance(event, MessageEndEvent):
        message = event.message
        calls = getattr(message, "tool_calls", None)
        name = calls[0].id if calls else getattr(message, "tool_call_id", "prompt " + run)
        os.write(1, f"{message.role} {name}\n".encode())
async def main():
    schema = {"type": "object", "properties": {"number": {"type": "integer"}}}
    tool = AgentTool(name="work", description="Work.", parameters=schema, execute=work)
    options = AgentOptions(model=Model(id="m"), tools=[tool], limits=Limits(**free), compaction=False)
    agent = Agent(options, stream, SessionJournal(storage))
    agent.subscribe(told)
    os.write(1, b"ready\n")
    await agent.prompt("prompt " + run)
asyncio.run(main())
"""


@dataclass
class Report:
    """What a run has shown."""

    kills: int = 0
    acknowledged: int = 0
    lost: int = 0
    torn: int = 0

    def __str__(self):
        return (
            f"{self.kills} kills, {self.acknowledged} acknowledged entries, {self.lost} lost,"
            f" {self.torn} records cut"
        )


def run(folder, count, seed=1):
    """Kill `count` writers, some hundred of them on one file after the other."""
    chance = random.Random(seed)
    report = Report()
    for number in range(count):
        path = folder / f"s{number // 100}.yiem.jsonl"
        if not path.exists():
            path.write_text('{"type":"session","version":3,"id":"s","timestamp":"t","cwd":"/"}\n')
        acknowledged = _one(path, number, chance.uniform(0, 0.03))
        storage = JsonlSessionStorage.open(path, limits=UNLIMITED)
        report.kills += 1
        report.acknowledged += len(acknowledged)
        report.lost += sum(entry_id not in storage.tree for entry_id in acknowledged)
        report.torn += any("was cut" in notice for notice in storage.notices)
        storage.close()
        if number % 100 == 99:
            path.unlink()
    return report


def run_agents(folder, count, seed=1):
    """Kill `count` streaming agents, some hundred of them on one file after the other."""
    chance = random.Random(seed)
    report = Report()
    for number in range(count):
        path = folder / f"a{number // 100}.yiem.jsonl"
        if not path.exists():
            path.write_text('{"type":"session","version":3,"id":"s","timestamp":"t","cwd":"/"}\n')
        acknowledged = _one(path, number, chance.uniform(0, 0.08), AGENT)
        storage = JsonlSessionStorage.open(path, limits=UNLIMITED)
        report.kills += 1
        report.acknowledged += len(acknowledged)
        report.lost += len(acknowledged - _kept(storage))
        report.torn += any("was cut" in notice for notice in storage.notices)
        storage.close()
        if number % 100 == 99:
            path.unlink()
    return report


def _kept(storage):
    """Name what is in the file, as an agent acknowledges it."""
    kept = set()
    context = build_context(storage.tree, storage.get_leaf_id())
    run, number = "", 0
    for message in context.messages:
        if message.role == "user":
            run, number = message.text.removeprefix("prompt "), 0
            kept.add(f"user prompt {run}")
        elif message.role == "assistant":
            number += 1
            kept.update(
                f"piece {run}.{number} {at + 1}" for at in range(len(message.text) // 16384)
            )
            kept.update(f"assistant {call.id}" for call in message.tool_calls)
        else:
            kept.add(f"toolResult {message.tool_call_id}")
    return kept


def _one(path, seed, delay, program=WRITER):
    """Start a writer, kill it, and return what it acknowledged."""
    command = [sys.executable, "-c", program, str(path), str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        assert writer.stdout.readline() == b"ready\n"
        time.sleep(delay)
        os.kill(writer.pid, signal.SIGKILL)
        output = writer.stdout.read()
    # An id without its line end was not acknowledged.
    return set(output.decode().split("\n")[:-1])
