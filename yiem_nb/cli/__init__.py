"""The command line, ``yiem``: one module for each command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from yiem_nb import __version__
from yiem_nb.cli import demo, run
from yiem_nb.errors import YiemError

__all__ = ["main"]

_COMMANDS = (demo, run)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    arguments = _parser().parse_args(argv)
    try:
        status: int = arguments.run(arguments)
    except YiemError as error:
        print(f"✕ {error}\n  [{error.code}]", file=sys.stderr)
        return 1
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
