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
from typing import TypeAlias

from yiem_nb.errors import CommandError, ErrorCode

__all__ = [
    "COMMANDS",
    "CellOptions",
    "Command",
    "HelpCommand",
    "Line",
    "ModelCommand",
    "Question",
    "ResetCommand",
    "SessionCommand",
    "StopCommand",
    "ToolsCommand",
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
class ToolsCommand:
    """List the tools."""


@dataclass(frozen=True, slots=True)
class SessionCommand:
    """Say where the session is and what it holds."""


@dataclass(frozen=True, slots=True)
class StopCommand:
    """Stop what runs."""


@dataclass(frozen=True, slots=True)
class ResetCommand:
    """Start a new conversation."""


@dataclass(frozen=True, slots=True)
class HelpCommand:
    """Show the reference card."""


Command: TypeAlias = (
    ModelCommand | ToolsCommand | SessionCommand | StopCommand | ResetCommand | HelpCommand
)
Line: TypeAlias = Command | Question


@dataclass(frozen=True, slots=True)
class _Entry:
    """How a command is written and what it does."""

    usage: str
    does: str
    alone: Command
    #: Builds the command from one word, for those that take one.
    with_word: Callable[[str], Command] | None = None

    def parse(self, words: list[str]) -> Command | None:
        """Build the command from its arguments, or return ``None`` where they do not fit."""
        if not words:
            return self.alone
        if self.with_word is not None and len(words) == 1 and _WORD.fullmatch(words[0]):
            return self.with_word(words[0])
        return None


_WORD = re.compile(r"[A-Za-z0-9][\w.:/@+-]*")

COMMANDS: dict[str, _Entry] = {
    "model": _Entry(
        "model [NAME]", "choose the model, or list what there is", ModelCommand(), ModelCommand
    ),
    "tools": _Entry("tools", "list the functions the model may call", ToolsCommand()),
    "session": _Entry("session", "say where this conversation is kept", SessionCommand()),
    "stop": _Entry("stop", "stop what is running", StopCommand()),
    "reset": _Entry(
        "reset", "start a new conversation; the file keeps the old one", ResetCommand()
    ),
    "help": _Entry("help", "show this", HelpCommand()),
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
    words = text.removeprefix("/").split()
    entry = COMMANDS.get(words[0]) if words else None
    command = entry.parse(words[1:]) if entry is not None else None
    if command is not None:
        return command
    if not explicit:
        return Question(line)
    if entry is None:
        name = words[0] if words else ""
        hint = nearest(name, COMMANDS) or "%yiem help lists the commands."
        raise CommandError(f"There is no command /{name}.", hint=hint)
    raise CommandError(
        f"/{words[0]} does not take {' '.join(words[1:])!r}.", hint=f"Write %yiem /{entry.usage}"
    )


@dataclass(frozen=True, slots=True)
class CellOptions:
    """What the line of ``%%yiem`` says about the cell."""

    model: str | None = None
    usage: bool = True
    text: str = ""


_FLAGS = ("-m", "--model", "--no-usage")


def parse_cell_line(line: str) -> CellOptions:
    """Understand the line of ``%%yiem``: options first, then the beginning of the prompt.

    Raises
    ------
    CommandError
        An option nobody knows, or one without its value.
    """
    model: str | None = None
    usage = True
    rest = line.strip()
    while rest.startswith("-"):
        word, _, rest = rest.partition(" ")
        rest = rest.strip()
        name, given, value = word.partition("=")
        if name == "--no-usage" and not given:
            usage = False
        elif name in ("-m", "--model"):
            if not given:
                value, _, rest = rest.partition(" ")
                rest = rest.strip()
            if not value:
                raise CommandError(f"{name} wants a model.", hint="Write %%yiem -m NAME")
            model = value
        else:
            hint = nearest(name, _FLAGS) or f"Known are {', '.join(_FLAGS)}."
            raise CommandError(f"There is no option {name}.", hint=hint)
    return CellOptions(model, usage, rest)


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
    close = difflib.get_close_matches(name, list(known), n=2, cutoff=0.5)
    return f"Did you mean {' or '.join(close)}?" if close else ""


def help_text() -> str:
    """Write the reference card, as Markdown that reads well as text too."""
    width = max(len(entry.usage) for entry in COMMANDS.values())
    rows = [f"%yiem {entry.usage:<{width}}  {entry.does}" for entry in COMMANDS.values()]
    card = [
        "%%yiem [-m MODEL] [--no-usage]",
        "the prompt, as it stands, over as many lines as you like",
        "",
        f"%yiem {'a question':<{width}}  asks it",
        *rows,
        f"%yiem {'/command':<{width}}  is always a command, never a question",
        "",
        "@yiem.tool                    above a function lets the model call it",
        "%config YiemMagics            lists every setting",
    ]
    return "\n".join(card)
