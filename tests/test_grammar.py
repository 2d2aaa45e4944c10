"""What a line means: a command only if all of it is one, else a question, byte for byte."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yiem_nb.errors import CommandError, ErrorCode
from yiem_nb.magics.grammar import (
    CellOptions,
    CompactCommand,
    HelpCommand,
    LeaveCommand,
    ModelCommand,
    Question,
    ResetCommand,
    RunningToolsCommand,
    SessionCommand,
    ShowToolCommand,
    StopCommand,
    SwitchToolsCommand,
    ToolsCommand,
    TrialCommand,
    check_prompt,
    help_text,
    parse_cell_line,
    parse_line,
)


@pytest.mark.parametrize(
    ("line", "meaning"),
    [
        ("", HelpCommand()),
        ("help", HelpCommand()),
        ("model", ModelCommand()),
        ("model local", ModelCommand("local")),
        ("model ollama/llama3.2:1b", ModelCommand("ollama/llama3.2:1b")),
        ("/model local", ModelCommand("local")),
        (" tools ", ToolsCommand()),
        ("tools on python", SwitchToolsCommand(("python",), on=True)),
        ("tools off a, b", SwitchToolsCommand(("a", "b"), on=False)),
        ("tools deny mcp__x__*", LeaveCommand("deny", ("mcp__x__*",))),
        ("tools show f", ShowToolCommand("f")),
        ('tools test f  {"a": "b  c"}', TrialCommand("f", '{"a": "b  c"}')),
        ("tools test f", TrialCommand("f", "{}")),
        ("tools threads", RunningToolsCommand()),
        ("session", SessionCommand()),
        ("session name The wine study", SessionCommand("name", "The wine study")),
        ("session  label\tbaseline", SessionCommand("label", "baseline")),
        ("compact", CompactCommand()),
        ("compact keep the file names", CompactCommand("keep the file names")),
        ("session tree", SessionCommand("tree")),
        ("session hide", SessionCommand("hide", "")),
        ("session export out.md", SessionCommand("export", "out.md")),
        ("session compare a b", SessionCommand("compare", "a b")),
        ("stop", StopCommand()),
        ("/reset", ResetCommand()),
    ],
)
def test_a_whole_command_is_a_command(line: str, meaning: Any) -> None:
    assert parse_line(line) == meaning


@pytest.mark.parametrize(
    "line",
    [
        "model the residuals",
        "tools for cleaning data?",
        "tools on the market",
        "tools test whether a is b",
        "tools off?",
        "stop words in German",
        "help me",
        "what is {x}?",
        "model it's",
        "session name",
        "session of parliament",
        "reset\tthe index",
        "sum $5 and \\frac{1}{2} of 'a' \"b\"",
    ],
)
def test_anything_else_is_a_question_as_it_stands(line: str) -> None:
    assert parse_line(line) == Question(line)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("/modle local", "There is no command /modle. → Did you mean model?"),
        ("/xyzzy", "There is no command /xyzzy. → %yiem help lists the commands."),
        ("/", "There is no command /. → %yiem help lists the commands."),
        ("/stop now", "/stop does not take 'now'. → Write %yiem /stop"),
        (
            "/session x",
            (
                "/session does not take 'x'. → Write %yiem /session [tree | name TEXT | label TEXT"
                " | goto WHERE [--summary [WHAT]] | hide [WHERE] | unhide [WHERE] | compare A B | fork [FILE] | export [FILE]"
                " | takeover]"
            ),
        ),
        ("/model a b", "/model does not take 'a b'. → Write %yiem /model [NAME]"),
    ],
)
def test_a_mistake_after_the_slash_is_answered_with_what_is_near(line: str, said: str) -> None:
    with pytest.raises(CommandError) as caught:
        parse_line(line)
    assert str(caught.value) == said


@given(st.text())
def test_no_line_without_a_slash_is_an_error(line: str) -> None:
    if not line.strip().startswith("/"):
        parsed = parse_line(line)
        assert not isinstance(parsed, Question) or parsed.text == line


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("", CellOptions()),
        ("-m local", CellOptions("local")),
        ("--model=openai/gpt-5 --no-usage", CellOptions("openai/gpt-5", usage=False)),
        ("--no-usage  What is  this?", CellOptions(usage=False, text="What is  this?")),
        ("--append -m local go on", CellOptions("local", how="append", text="go on")),
        ("--new", CellOptions(how="new")),
        ("Why -5?", CellOptions(text="Why -5?")),
    ],
)
def test_options_come_first_and_the_rest_begins_the_prompt(line: str, options: CellOptions) -> None:
    assert parse_cell_line(line) == options


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--modle x", "There is no option --modle. → Did you mean --model?"),
        (
            "--zzz",
            "There is no option --zzz. → Known are -m, --model, --append, --new, --no-usage.",
        ),
        ("-m", "-m wants a model. → Write %%yiem -m NAME"),
        ("--no-usage=1 x", "--no-usage takes no value. → Write %%yiem --no-usage"),
        ("--modell x", "There is no option --modell. → Did you mean --model?"),
    ],
)
def test_an_unknown_option_is_refused(line: str, said: str) -> None:
    with pytest.raises(CommandError) as caught:
        parse_cell_line(line)
    assert str(caught.value) == said


def test_an_empty_prompt_is_refused_and_any_other_is_left_alone() -> None:
    with pytest.raises(CommandError) as caught:
        check_prompt(" \n\t")
    assert caught.value.code is ErrorCode.PROMPT_EMPTY
    assert check_prompt(" $5 \\ {x} ") == " $5 \\ {x} "


def test_the_help_fits_one_screen() -> None:
    lines = help_text().splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
