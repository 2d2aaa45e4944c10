"""``yiem sessions``: look at session files, check them, export them, take something out of them.

All but ``purge`` open a file for reading only. The modules that do the work are imported when a
command is run, so that ``yiem --help`` and ``yiem demo`` stay quick.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:
    """Describe the commands to the command line."""
    sessions = commands.add_parser("sessions", help="list, show, check, export or purge sessions")
    known = sessions.add_subparsers(required=True, metavar="COMMAND")
    listing = known.add_parser("list", help="the sessions of a folder, the newest first")
    listing.add_argument(
        "folder", nargs="?", type=Path, help="default: here, and those that belong to no notebook"
    )
    listing.set_defaults(run=_run, module="looking", function="list_sessions")
    for name, function, words in (
        ("show", "show_session", "the tree of a session: its prompts, forks and labels"),
        ("check", "check_session", "look at every byte and say what is wrong; nothing is changed"),
        ("stats", "count_session", "messages, tokens and cost, over all branches"),
    ):
        command = known.add_parser(name, help=words)
        command.add_argument("file", type=Path)
        command.set_defaults(run=_run, module="looking", function=function)
    exporting = known.add_parser(
        "export", help="write a session as one page or one Markdown text that needs nothing else"
    )
    exporting.add_argument("file", type=Path)
    exporting.add_argument(
        "--format", choices=("html", "md"), help="default: by OUT's ending, html"
    )
    exporting.add_argument(
        "-o", "--output", metavar="OUT", help="default: FILE's name, here; - is the terminal"
    )
    exporting.add_argument(
        "--branch",
        metavar="LEAF",
        help="an entry or a label where the branch ends; all: every branch (default: the current one)",
    )
    exporting.add_argument("--force", action="store_true", help="replace OUT if it is there")
    exporting.set_defaults(run=_run, module="exporting", function="export_session")
    importing = known.add_parser(
        "import", help="make a session of a file that pi, or a newer program, wrote"
    )
    importing.add_argument("file", type=Path)
    importing.add_argument(
        "-o", "--output", metavar="OUT", type=Path, help="default: FILE's name, here"
    )
    importing.set_defaults(run=_run, module="importing", function="import_session")
    purging = known.add_parser(
        "purge", help="take entries out of a session for good: a name, a pasted key"
    )
    purging.add_argument("file", type=Path)
    what = purging.add_mutually_exclusive_group(required=True)
    what.add_argument("--entry", metavar="ID", action="append", help="this entry and its copies")
    what.add_argument("--matching", metavar="TEXT", help="every entry that says this")
    purging.add_argument("--regex", action="store_true", help="TEXT is a regular expression")
    purging.add_argument("--yes", action="store_true", help="do not ask")
    purging.set_defaults(run=_run, module="purging", function="purge_session")


def _run(arguments: argparse.Namespace) -> int:
    module = import_module(f"yiem_nb.cli.{arguments.module}")
    status: int = getattr(module, arguments.function)(arguments)
    return status
