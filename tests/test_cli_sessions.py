"""`yiem sessions` says what there is, refuses what is none in a sentence, and changes nothing."""

import base64
import contextlib
import json
import os
import subprocess
import sys

import pytest
from yiem_nb.cli import main
from yiem_nb.messages import AssistantMessage, ImageContent, UserMessage
from yiem_nb.models import Limits
from yiem_nb.session import (
    BranchSummaryEntry,
    CompactionEntry,
    CustomMessageEntry,
    JsonlSessionStorage,
    MessageEntry,
    OtherMessage,
    Session,
    SessionOptions,
)

UNLIMITED = Limits(reads_per_second=None, writes_per_second=None)
HEADER = b'{"type":"session","version":3,"id":"s","timestamp":"t","cwd":"/"}\n'
READERS = ["show", "check", "stats", "export"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """Keep the user's own sessions out of the tests."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(tmp_path)


def new(path):
    return Session(JsonlSessionStorage.create(SessionOptions(path), limits=UNLIMITED))


def ask(session, prompt, answer="yes"):
    entry = session.storage.append_entry(MessageEntry(message=UserMessage(prompt)))
    session.storage.append_entry(MessageEntry(message=AssistantMessage(answer)))
    return entry


def forked(path):
    """Write a session with a fork, a label and a name."""
    session = new(path)
    ask(session, "load the data")
    end = session.leaf
    first = ask(session, "a linear model")
    session.label(first.id, "baseline")
    there = session.leaf
    session.move_to(end)
    ask(session, "a forest")
    session.move_to(there)
    session.rename("Prices")
    return session


def lines_of(capsys):
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_show_draws_the_tree_with_the_current_path_first(tmp_path, capsys):
    session = forked(tmp_path / "p.yiem.jsonl")

    assert main(["sessions", "show", str(session.storage.path)]) == 0

    title, _, *rows = lines_of(capsys)
    assert title == "p.yiem.jsonl · Prices"
    assert [row.rsplit(maxsplit=1)[0].rstrip() for row in rows] == [
        "● load the data",
        "├─● a linear model  ★ baseline   ← you are here",
        "└─○ a forest",
    ]
    assert all(row.rsplit(maxsplit=1)[1] in session.tree for row in rows)


def test_show_names_what_is_no_prompt(tmp_path, capsys):
    session = new(tmp_path / "s.yiem.jsonl")
    other = OtherMessage(role="bashExecution")
    for entry in (
        MessageEntry(message=AssistantMessage("hello")),
        CustomMessageEntry(custom_type="note", content="by the way"),
        CompactionEntry(summary="so far"),
        MessageEntry(message=other),
    ):
        session.storage.append_entry(entry)
    end = session.leaf
    session.storage.append_entry(BranchSummaryEntry(summary="it led nowhere"))
    session.move_to(end)
    session.storage.append_entry(MessageEntry(message=other))
    session.storage.append_entry(MessageEntry(message=UserMessage([])))

    main(["sessions", "show", str(session.storage.path)])

    _, _, *rows = lines_of(capsys)
    assert [" ".join(row.split()[:-1]) for row in rows] == [
        "● note: by the way",
        "● summary: so far",
        "├─● (no words) ← you are here",
        "└─○ summary: it led nowhere",
    ]


def test_what_a_terminal_would_obey_is_not_printed(tmp_path, capsys):
    session = new(tmp_path / "s.yiem.jsonl")
    ask(session, "red \x1b[31m\x1b]0;title\x07 [bold]text[/bold] \u202eabc")

    main(["sessions", "show", str(session.storage.path)])
    main(["sessions", "list"])

    out = capsys.readouterr().out
    assert "red [bold]text[/bold] ⟨U+202E⟩abc" in out
    assert not set("\x1b\x07\u202e") & set(out)


def test_list_gives_the_newest_first_and_knows_sessions_by_their_first_line(tmp_path, capsys):
    forked(tmp_path / "old.yiem.jsonl")
    ask(new(tmp_path / "new.yiem.jsonl"), "a question")
    os.utime(tmp_path / "old.yiem.jsonl", (1_000_000, 1_000_000))
    (tmp_path / "of-pi.jsonl").write_bytes(HEADER)
    (tmp_path / "other.jsonl").write_text('{"name": "no session"}\n')
    (tmp_path / "empty.yiem.jsonl").touch()
    (tmp_path / "folder.yiem.jsonl").mkdir()
    os.mkfifo(tmp_path / "pipe.yiem.jsonl")
    stray = tmp_path / "data" / "yiem_nb" / "sessions"
    stray.mkdir(parents=True)
    ask(new(stray / "stray.yiem.jsonl"), "of no notebook")

    assert main(["sessions", "list"]) == 0

    head, *rows = lines_of(capsys)
    assert head.split() == ["file", "about", "messages", "cost", "size", "changed"]
    found = {row.split()[0]: row for row in rows}
    assert set(found) == {
        *("new.yiem.jsonl", "old.yiem.jsonl", "of-pi.jsonl", "empty.yiem.jsonl"),
        "data/yiem_nb/sessions/stray.yiem.jsonl",
    }
    assert rows[-1].startswith("old.yiem.jsonl")
    assert "Prices" in found["old.yiem.jsonl"]
    assert "a question" in found["new.yiem.jsonl"]
    assert "it is empty" in found["empty.yiem.jsonl"]


def test_list_goes_on_over_a_damaged_file_and_one_of_another_folder(tmp_path, capsys):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "torn.yiem.jsonl").write_bytes(HEADER + b'{"type":')
    os.chdir(tmp_path / "here")
    other = new(tmp_path / "other.yiem.jsonl")
    other.storage.append_entry(MessageEntry(message=AssistantMessage("no prompt yet")))

    assert main(["sessions", "list"]) == 0
    (row,) = lines_of(capsys)[1:]
    assert row.endswith("see yiem sessions check")
    assert main(["sessions", "list", str(tmp_path)]) == 0
    assert str(other.storage.path) in capsys.readouterr().out


def test_list_of_a_folder_without_sessions_says_so(tmp_path, capsys):
    assert main(["sessions", "list", str(tmp_path)]) == 0
    assert lines_of(capsys) == [f"There are no sessions in {tmp_path}."]
    assert main(["sessions", "list", str(tmp_path / "nothing")]) == 1
    assert capsys.readouterr().err.endswith("[AGENT_NOT_FOUND]\n")


def test_stats_count_all_branches_and_the_files_beside(tmp_path, capsys):
    session = forked(tmp_path / "s.yiem.jsonl")
    image = ImageContent(base64.b64encode(b"x" * 300_000).decode(), "image/png")
    session.storage.append_entry(MessageEntry(message=UserMessage([image])))

    assert main(["sessions", "stats", str(session.storage.path)]) == 0

    figures = dict(line.rsplit("  ", 1) for line in lines_of(capsys) if "  " in line)
    figures = {name.strip(): value.strip() for name, value in figures.items()}
    assert figures["messages"] == "7"
    assert figures["branches"] == "2"
    assert figures["files beside it"] == "1 (300,000 bytes)"


def test_check_says_what_is_missing_beside_the_file(tmp_path, capsys):
    session = new(tmp_path / "s.yiem.jsonl")
    image = ImageContent(base64.b64encode(b"x" * 300_000).decode(), "image/png")
    session.storage.append_entry(MessageEntry(message=UserMessage([image])))
    session.storage.blobs.save_output("not named by any entry")
    assert main(["sessions", "check", str(session.storage.path)]) == 0
    for path in (tmp_path / "s.yiem.files").glob("*.png"):
        path.unlink()
    capsys.readouterr()

    assert main(["sessions", "check", str(session.storage.path)]) == 1

    assert lines_of(capsys)[1:] == ["✕ 1 file is missing from s.yiem.files, or altered"]


def _make(path, kind):
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.with_name("target").write_bytes(HEADER)
        path.symlink_to(path.with_name("target"))
    elif kind == "socket":
        path.symlink_to("/dev/null")
    elif isinstance(kind, bytes):
        path.write_bytes(kind)


@pytest.mark.parametrize("command", READERS)
@pytest.mark.parametrize(
    ("kind", "sentence", "code"),
    [
        ("nothing", "There is no session at", "AGENT_NOT_FOUND"),
        ("folder", "is a folder, not a session file", "SESSION_UNREADABLE"),
        ("pipe", "is a pipe, not a session file", "SESSION_UNREADABLE"),
        ("link", "is a symbolic link, not a session file", "SESSION_UNREADABLE"),
        ("socket", "is a symbolic link, not a session file", "SESSION_UNREADABLE"),
    ],
)
def test_what_is_no_file_is_refused_in_one_sentence(
    tmp_path, capsys, command, kind, sentence, code
):
    path = tmp_path / "s.jsonl"
    _make(path, kind)

    assert main(["sessions", command, str(path)]) == 1

    out, err = capsys.readouterr()
    assert out == ""
    assert sentence in err
    assert err.endswith(f"[{code}]\n")
    assert len(err.splitlines()) == 2


@pytest.mark.parametrize("command", READERS)
@pytest.mark.parametrize(
    ("content", "finding"),
    [
        (b"", "the file is empty; a session begins in it when something is said"),
        (b'{"name":"package"}\n', "header unreadable; 0 records loaded"),
        (b"\x89PNG\r\n\x1a\n\0\0", "header unreadable; 0 records loaded"),
    ],
)
def test_a_file_that_is_no_session(tmp_path, capsys, command, content, finding):
    path = tmp_path / "s.jsonl"
    path.write_bytes(content)

    assert main(["sessions", command, str(path)]) == 1

    out, err = capsys.readouterr()
    assert path.read_bytes() == content
    if command == "check":
        assert f"✕ {finding}\n" in out
    else:
        assert "is no session file: " in err
        assert err.endswith("[SESSION_UNREADABLE]\n")


@pytest.mark.parametrize("command", READERS)
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (HEADER.replace(b"3", b"9"), "written by a newer program (format 9, this one knows 3)"),
        (HEADER + b'{"type":"label"', "recovered: last record was cut (15 bytes"),
        (HEADER + b"\xff\xfe\n", "1 damaged record at line 2"),
        (b"\0" * 9 + b"\n" + b'{"type":"x","id":"a","parentId":null}\n', "header unreadable"),
    ],
)
def test_a_damaged_or_newer_file_is_read_and_told_of(tmp_path, capsys, command, content, said):
    path = tmp_path / "s.jsonl"
    path.write_bytes(content)

    output = ["-o", "-"] if command == "export" else []
    status = main(["sessions", command, str(path), *output])

    assert status == (1 if command == "check" else 0)
    out, err = capsys.readouterr()
    assert said in (err if command == "export" else out)
    assert path.read_bytes() == content
    assert [one.name for one in tmp_path.iterdir()] == ["s.jsonl"]


@pytest.mark.parametrize(
    ("options", "name", "begins"),
    [
        ([], "p.html", "<!DOCTYPE html>"),
        (["--format", "md"], "p.md", "# Prices"),
        (["-o", "out.md"], "out.md", "# Prices"),
        (["-o", "out.md", "--format", "html"], "out.md", "<!DOCTYPE html>"),
        (["-o", "out.txt"], "out.txt", "<!DOCTYPE html>"),
    ],
)
def test_export_writes_a_file_for_its_owner_alone(tmp_path, capsys, options, name, begins):
    session = forked(tmp_path / "p.yiem.jsonl")
    before = session.storage.path.read_bytes()

    assert main(["sessions", "export", "p.yiem.jsonl", *options]) == 0

    out = tmp_path / name
    assert out.read_text().startswith(begins)
    assert out.stat().st_mode & 0o777 == 0o600
    assert capsys.readouterr().out.startswith(f"{name} · ")
    assert session.storage.path.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, "p.yiem.jsonl"])


def test_export_leaves_what_is_there_alone_unless_it_is_forced(tmp_path, capsys):
    session = forked(tmp_path / "p.yiem.jsonl")
    before = session.storage.path.read_bytes()
    (tmp_path / "p.html").write_text("mine")
    (tmp_path / "folder").mkdir()

    for options in ([], ["-o", "folder", "--force"], ["-o", "p.yiem.jsonl", "--force"]):
        assert main(["sessions", "export", "p.yiem.jsonl", *options]) == 1
        assert "already. → Choose another name" in capsys.readouterr().err
    assert main(["sessions", "export", "p.yiem.jsonl", "-o", "no/such/folder.md"]) == 1
    assert "cannot be written: no such file or directory" in capsys.readouterr().err
    assert (tmp_path / "p.html").read_text() == "mine"
    assert session.storage.path.read_bytes() == before

    assert main(["sessions", "export", "p.yiem.jsonl", "--force"]) == 0
    assert "Prices" in (tmp_path / "p.html").read_text()


def test_export_takes_a_branch_by_its_entry_or_label_or_all(tmp_path, capsys):
    session = forked(tmp_path / "p.yiem.jsonl")
    forest = next(
        entry.id
        for entry in session.storage.get_entries()
        if "a forest" in str(getattr(entry, "message", ""))
    )

    def exported(branch):
        command = ["sessions", "export", "p.yiem.jsonl", "--format", "md", "-o", "-"]
        assert main([*command, "--branch", branch]) == 0
        out = capsys.readouterr().out
        return "a linear model" in out, "a forest" in out

    assert exported(forest) == (False, True)
    assert exported("baseline") == (True, False)
    assert exported("all") == (True, True)
    assert main(["sessions", "export", "p.yiem.jsonl", "--branch", "x"]) == 1
    assert "no entry and no label 'x'" in capsys.readouterr().err


def test_on_a_terminal_the_tables_are_as_wide_as_it_and_work_is_shown(tmp_path):
    """A real terminal: colours and a moving line there, and nothing of it is left at the end."""
    session = forked(tmp_path / "s.yiem.jsonl")
    ask(session, "a very long prompt " * 9)
    master, slave = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "yiem_nb.cli", "sessions", "export", "s.yiem.jsonl"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=tmp_path,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "60"},
    )
    os.close(slave)
    seen = b""
    with contextlib.suppress(OSError):
        while piece := os.read(master, 4096):
            seen += piece
    os.close(master)

    assert process.wait(timeout=60) == 0
    assert b"writing" in seen
    assert seen.rstrip().endswith(b"kB")


def test_a_command_that_is_none_ends_with_two(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["sessions", "burn", "s.jsonl"])
    assert ended.value.code == 2
    assert "invalid choice: 'burn'" in capsys.readouterr().err


def test_the_program_itself_speaks_plainly_into_a_pipe_and_loads_nothing_heavy(tmp_path):
    """Help needs no rich; a closed pipe is no error."""
    forked(tmp_path / "s.yiem.jsonl")
    code = (
        "import sys; from yiem_nb.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: print([n for n in ('rich', 'IPython') if n in sys.modules])"
    )
    helped = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert helped.stdout.splitlines()[-1] == "[]"
    command = [sys.executable, "-m", "yiem_nb.cli", "sessions", "show", "s.yiem.jsonl"]
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, cwd=tmp_path)
    os.close(writer)
    assert process.stderr == b""
    shown = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert "\x1b" not in shown.stdout
    assert json.dumps(shown.stdout)
