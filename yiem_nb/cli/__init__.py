"""The command line, ``yiem``: one module for each command."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from yiem_nb import __version__
from yiem_nb.cli import demo, run, sessions
from yiem_nb.errors import YiemError

__all__ = ["main"]

_COMMANDS = (demo, run, sessions)
#: What a shell sees of a program that Ctrl+C ended.
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    arguments = _parser().parse_args(argv)
    try:
        status: int = arguments.run(arguments)
    except YiemError as error:
        print(f"✕ {error}\n  [{error.code}]", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read the output has seen enough (`| head`); nothing more can be flushed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="yiem", description="An LLM agent that lives in the notebook's own kernel."
    )
    parser.add_argument("--version", action="version", version=f"yiem_nb {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in _COMMANDS:
        command.add_parser(commands)
    return parser
