"""What a line means: a command, or a question (pure).

A line is a command only if the whole of it fits that command's grammar; everything else is a question,
byte for byte. ``%yiem model`` lists models, ``%yiem model the residuals`` asks about residuals.
``%yiem /model …`` is always a command, and a mistake in one is answered with what is near.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

from yiem_nb.errors import CommandError, ErrorCode

__all__ = [
    "COMMANDS",
    "CellOptions",
    "ChatCommand",
    "Command",
    "CompactCommand",
    "HelpCommand",
    "KeyCommand",
    "LeaveCommand",
    "Line",
    "ModelCommand",
    "PrivateCommand",
    "Question",
    "ResetCommand",
    "RunningToolsCommand",
    "SessionCommand",
    "ShowToolCommand",
    "StopCommand",
    "SwitchToolsCommand",
    "ToolsCommand",
    "TrialCommand",
    "UsageCommand",
    "check_prompt",
    "help_text",
    "nearest",
    "parse_cell_line",
    "parse_line",
]


@dataclass(frozen=True, slots=True)
class Question:
    """Text for the model."""

    text: str


@dataclass(frozen=True, slots=True)
class ModelCommand:
    """Choose a model, or list what there is."""

    name: str | None = None


@dataclass(frozen=True, slots=True)
class KeyCommand:
    """Do something with a key; `KeyDesk` has a method for each."""

    do: str
    what: str = ""


@dataclass(frozen=True, slots=True)
class UsageCommand:
    """Say what was spent, by day and model."""


@dataclass(frozen=True, slots=True)
class ToolsCommand:
    """List the tools."""


@dataclass(frozen=True, slots=True)
class SwitchToolsCommand:
    """Offer some tools to the model, or do not."""

    names: tuple[str, ...]
    on: bool


@dataclass(frozen=True, slots=True)
class LeaveCommand:
    """Say what calls of some tools need: ``auto``, ``ask`` or ``deny``."""

    leave: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShowToolCommand:
    """Show all that is known of a tool."""

    name: str


@dataclass(frozen=True, slots=True)
class TrialCommand:
    """Say what a call would come to, without calling."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class RunningToolsCommand:
    """List calls that were given up and still run."""


@dataclass(frozen=True, slots=True)
class SessionCommand:
    """Do something with the session; `SessionDesk` has a method for each."""

    do: str = "where"
    #: What it is done with: a name, a label, an entry, a file; empty where nothing was said.
    what: str | None = None


@dataclass(frozen=True, slots=True)
class PrivateCommand:
    """Write nothing of the conversation down, or do so again."""

    on: bool


@dataclass(frozen=True, slots=True)
class CompactCommand:
    """Let a summary stand for the beginning of the conversation."""

    instructions: str = ""


@dataclass(frozen=True, slots=True)
class StopCommand:
    """Stop what runs."""


@dataclass(frozen=True, slots=True)
class ChatCommand:
    """Show the chat panel."""


@dataclass(frozen=True, slots=True)
class ResetCommand:
    """Start a new conversation."""


@dataclass(frozen=True, slots=True)
class HelpCommand:
    """Show the reference card."""


Command: TypeAlias = (
    ModelCommand
    | KeyCommand
    | UsageCommand
    | ToolsCommand
    | SwitchToolsCommand
    | LeaveCommand
    | ShowToolCommand
    | TrialCommand
    | RunningToolsCommand
    | SessionCommand
    | PrivateCommand
    | CompactCommand
    | StopCommand
    | ChatCommand
    | ResetCommand
    | HelpCommand
)
Line: TypeAlias = Command | Question


#: Reads what stands behind a command's name; ``None`` where it does not fit.
_Grammar: TypeAlias = Callable[[str], Command | None]

_WORD = re.compile(r"[A-Za-z0-9][\w.:/@+-]*")
_TOOL = re.compile(r"[A-Za-z_]\w*\*?", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Entry:
    """How a command is written, what it does, and how its arguments are read."""

    usage: str
    does: str
    parse: _Grammar

    @property
    def card(self) -> str:
        """How it is written on the reference card; the whole of it is said after a mistake."""
        return self.usage if len(self.usage) <= 20 else f"{self.usage.split()[0]} …"


def _alone(command: Command) -> _Grammar:
    """Take no argument."""
    return lambda rest: command if not rest else None


def _word(make: Callable[[str], Command]) -> _Grammar:
    """Take one word, such as a name or an address."""
    return lambda rest: make(rest) if _WORD.fullmatch(rest) else None


def _two_words(make: Callable[[str], Command]) -> _Grammar:
    """Take two words."""
    return lambda rest: make(rest) if len(rest.split()) == 2 else None


def _perhaps(make: Callable[[str], Command]) -> _Grammar:
    """Take one word, or none."""
    return lambda rest: make(rest) if not rest or _WORD.fullmatch(rest) else None


def _text(make: Callable[[str], Command]) -> _Grammar:
    """Take the rest of the line, as it stands."""
    return lambda rest: make(rest) if rest else None


def _tools(make: Callable[[tuple[str, ...]], Command]) -> _Grammar:
    """Take names of tools, with commas between them."""

    def parse(rest: str) -> Command | None:
        names = tuple(name.strip() for name in rest.split(","))
        return make(names) if all(_TOOL.fullmatch(name) for name in names) else None

    return parse


def _trial(rest: str) -> Command | None:
    """Take a tool's name and arguments as JSON; none are an empty object."""
    name, rest = _split(rest)
    if not _TOOL.fullmatch(name) or rest[:1] not in ("", "{", "[", '"'):
        return None
    return TrialCommand(name, rest or "{}")


def _sub(**grammars: _Grammar) -> _Grammar:
    """Take a word that says which of several, and that one's arguments."""

    def parse(rest: str) -> Command | None:
        name, rest = _split(rest)
        return grammars[name](rest) if name in grammars else None

    return parse


def _split(text: str) -> tuple[str, str]:
    """Part the first word from the rest."""
    word, *rest = text.split(None, 1) or [""]
    return word, rest[0].strip() if rest else ""


def _first(*grammars: _Grammar) -> _Grammar:
    """Take what the first of several takes."""

    def parse(rest: str) -> Command | None:
        found = (grammar(rest) for grammar in grammars)
        return next((command for command in found if command is not None), None)

    return parse


def _session(do: str, takes: Callable[[Callable[[str], Command]], _Grammar]) -> _Grammar:
    return takes(lambda what: SessionCommand(do, what))


#: What is done with the session, and what each takes: text, a word, two, a word or none.
_SESSION = {
    "tree": _alone(SessionCommand("tree")),
    "name": _session("name", _text),
    "label": _session("label", _text),
    "goto": _session("goto", _text),
    "hide": _session("hide", _perhaps),
    "unhide": _session("unhide", _perhaps),
    "compare": _session("compare", _two_words),
    "fork": _session("fork", _perhaps),
    "export": _session("export", _perhaps),
    "takeover": _alone(SessionCommand("takeover")),
}

COMMANDS: dict[str, _Entry] = {
    "model": _Entry(
        "model [NAME]",
        "choose the model, or list what there is",
        _first(_alone(ModelCommand()), _word(ModelCommand)),
    ),
    "key": _Entry(
        "key set PROVIDER | show [PROVIDER] | forget PROVIDER | dotenv FILE",
        "ask for a key, say where one is, forget it",
        _sub(
            set=_word(partial(KeyCommand, "set")),
            show=_perhaps(partial(KeyCommand, "show")),
            forget=_word(partial(KeyCommand, "forget")),
            dotenv=_text(partial(KeyCommand, "dotenv")),
        ),
    ),
    "tools": _Entry(
        "tools [on|off|auto|ask|deny NAME,…|show NAME|test NAME JSON|threads]",
        "list what may be called; switch, allow, try it",
        _first(
            _alone(ToolsCommand()),
            _sub(
                on=_tools(lambda names: SwitchToolsCommand(names, on=True)),
                off=_tools(lambda names: SwitchToolsCommand(names, on=False)),
                auto=_tools(partial(LeaveCommand, "auto")),
                ask=_tools(partial(LeaveCommand, "ask")),
                deny=_tools(partial(LeaveCommand, "deny")),
                show=_word(ShowToolCommand),
                test=_trial,
                threads=_alone(RunningToolsCommand()),
            ),
        ),
    ),
    "session": _Entry(
        "session [tree | name TEXT | label TEXT | goto WHERE [--summary [WHAT]] | hide [WHERE] | unhide [WHERE]"
        " | compare A B | fork [FILE] | export [FILE] | takeover]",
        "where it is kept; tree, label, goto, fork, export",
        _first(_alone(SessionCommand()), _sub(**_SESSION)),
    ),
    "usage": _Entry("usage", "tokens and cost of the session", _alone(UsageCommand())),
    "private": _Entry(
        "private on|off",
        "keep the conversation in memory only",
        _sub(on=_alone(PrivateCommand(on=True)), off=_alone(PrivateCommand(on=False))),
    ),
    "compact": _Entry(
        "compact [WHAT MATTERS]",
        "summarise the beginning to make room",
        _first(_alone(CompactCommand()), _text(CompactCommand)),
    ),
    "stop": _Entry("stop", "stop what is running", _alone(StopCommand())),
    "chat": _Entry("chat", "show the chat panel here", _alone(ChatCommand())),
    "reset": _Entry("reset", "start over; the file keeps what was said", _alone(ResetCommand())),
    "help": _Entry("help", "show this", _alone(HelpCommand())),
}


def parse_line(line: str) -> Line:
    """Understand the line of ``%yiem``.

    Raises
    ------
    CommandError
        After ``/``: no such command, or its arguments do not fit.
    """
    text = line.strip()
    if not text:
        return HelpCommand()
    explicit = text.startswith("/")
    name, rest = _split(text.removeprefix("/"))
    entry = COMMANDS.get(name)
    command = entry.parse(rest) if entry is not None else None
    if command is not None:
        return command
    if not explicit:
        return Question(line)
    if entry is None:
        hint = nearest(name, COMMANDS) or "%yiem help lists the commands."
        raise CommandError(f"There is no command /{name}.", hint=hint)
    raise CommandError(f"/{name} does not take {rest!r}.", hint=f"Write %yiem /{entry.usage}")


@dataclass(frozen=True, slots=True)
class CellOptions:
    """What the line of ``%%yiem`` says about the cell."""

    model: str | None = None
    usage: bool = True
    #: At the cell's place in the tree, after the last exchange, or as a root of its own.
    how: Literal["place", "append", "new"] = "place"
    text: str = ""


#: Options without a value, and what each says.
_SWITCHES: dict[str, dict[str, Any]] = {
    "--append": {"how": "append"},
    "--new": {"how": "new"},
    "--no-usage": {"usage": False},
}
#: Options with one.
_VALUES = {"-m": "model", "--model": "model"}
_FLAGS = (*_VALUES, *_SWITCHES)


def parse_cell_line(line: str) -> CellOptions:
    """Understand the line of ``%%yiem``: options first, then the beginning of the prompt.

    Raises
    ------
    CommandError
        An option nobody knows, one without its value, or one that takes none.
    """
    said: dict[str, Any] = {}
    rest = line.strip()
    while rest.startswith("-"):
        word, rest = _split(rest)
        name, given, value = word.partition("=")
        if name in _SWITCHES:
            if given:
                raise CommandError(f"{name} takes no value.", hint=f"Write %%yiem {name}")
            said |= _SWITCHES[name]
        elif name in _VALUES:
            if not given:
                value, rest = _split(rest)
            if not value:
                raise CommandError(f"{name} wants a model.", hint="Write %%yiem -m NAME")
            said[_VALUES[name]] = value
        else:
            hint = nearest(name, _FLAGS) or f"Known are {', '.join(_FLAGS)}."
            raise CommandError(f"There is no option {name}.", hint=hint)
    return CellOptions(**said, text=rest)


def check_prompt(text: str) -> str:
    """Return the prompt, or refuse one that says nothing."""
    if not text.strip():
        raise CommandError(
            "There is no prompt in this cell.",
            hint="Write the question below the %%yiem line.",
            code=ErrorCode.PROMPT_EMPTY,
        )
    return text


def nearest(name: str, known: Iterable[str]) -> str:
    """Offer what is spelled like `name`, or nothing."""
    close = difflib.get_close_matches(name, list(known), n=2, cutoff=0.6)
    return f"Did you mean {' or '.join(close)}?" if close else ""


def help_text() -> str:
    """Write the reference card, as Markdown that reads well as text too."""
    width = 22
    rows = [f"%yiem {entry.card:<{width}}{entry.does}" for entry in COMMANDS.values()]
    card = [
        "%%yiem [-m MODEL] [--append|--new] [--no-usage]",
        "the prompt, as it stands; the model sees what stands above the cell,",
        "with --append what was said last, with --new nothing",
        "",
        f"%yiem {'a question':<{width}}asks it",
        *rows,
        f"%yiem {'/command':<{width}}is always a command, never a question",
        "@yiem.tool                  above a function lets the model call it",
        "%config YiemMagics          lists every setting",
    ]
    return "\n".join(card)
