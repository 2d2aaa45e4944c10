"""Words and tables on a terminal, plain where there is none; rich is imported on first use."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["ask", "say", "show_table", "steps", "working"]

T = TypeVar("T")

#: Without a terminal nothing is cut or wrapped: a program may be reading.
_ENDLESS = 100_000


def say(line: str, *, style: str = "") -> None:
    """Print a line; what is in it is shown as it is."""
    from rich.text import Text

    _console().print(Text(line, style=style), soft_wrap=True)


def show_table(
    head: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int] = ()
) -> None:
    """Print a table; the columns in `right` hold numbers."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=any(head), header_style="dim")
    numbers = set(right)
    for index, name in enumerate(head):
        if index in numbers:
            table.add_column(name, justify="right", no_wrap=True)
        else:
            table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    _console().print(table)


def steps(items: Sequence[T], doing: str) -> Iterator[T]:
    """Go through `items` with a bar on the terminal, if there is one and it takes a while."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    yield from track(items, doing, console=console, transient=True, disable=not console.is_terminal)


@contextlib.contextmanager
def working(doing: str) -> Iterator[None]:
    """Show on the terminal, if there is one, that something is being done."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(doing):
        yield


def ask(question: str) -> bool:
    """Ask for a yes; anything else is a no."""
    say(f"{question} [y/N] ")
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _console() -> Console:
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    return (
        console
        if console.is_terminal
        else Console(highlight=False, markup=False, emoji=False, width=_ENDLESS, color_system=None)
    )
