"""Notebooks for the widget's tests: cells, the answers they get, and a page that shows them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.browser.lab import Lab
from tests.fake_openai import FakeOpenAi, Reply, serving

TOOLS = """
import time

@yiem.tool
def price_of(country: str) -> str:
    "Look up a price."
    print("looking up", country)
    return "252,000 euros"

@yiem.tool(ask=True)
def delete_rows(table: str, where: str) -> str:
    "Delete rows."
    deleted.append((table, where))
    return f"{len(deleted)} rows"

@yiem.tool
def wait(seconds: float) -> str:
    "Wait."
    time.sleep(seconds)
    return "waited"

deleted = []
"""


def write_notebook(path: Path, cells: Sequence[str]) -> None:
    """A notebook of code cells."""
    document = {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {
            "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}
        },
        "cells": [
            {
                # Its own: a notebook with another's ids is that notebook's copy, and has its session.
                "id": f"{path.stem}-{number}",
                "cell_type": "code",
                "source": source,
                "metadata": {},
                "outputs": [],
                "execution_count": None,
            }
            for number, source in enumerate(cells)
        ],
    }
    path.write_text(json.dumps(document))


@contextmanager
def opened(
    page: Lab, name: str, cells: Sequence[str], *replies: Reply, chat: bool = False
) -> Iterator[FakeOpenAi]:
    """Open a notebook whose first cell sets up a model that answers `replies`."""
    with serving(*replies) as server:
        setup = (
            "%load_ext yiem_nb\n"
            f"%config YiemMagics.base_url = {server.base_url!r}\n"
            f"%config YiemMagics.model = 'fake-1'\n{TOOLS}"
        )
        panel = ["%yiem chat"] if chat else []
        write_notebook(page.server.root / f"{name}.ipynb", [setup, *panel, *cells])
        page.open(f"{name}.ipynb", workspace=name)
        page.wait_idle()
        try:
            yield server
        finally:
            page.page.goto("about:blank")
            for session in page.server.api("sessions"):
                with suppress(OSError):  # it is ending already
                    page.server.api(f"sessions/{session['id']}", method="DELETE")


def run_cell(page: Lab, number: int) -> None:
    """Run one cell, as a click on it and the button of the toolbar do."""
    page.page.evaluate(
        """number => {
          const notebook = window.jupyterapp.shell.currentWidget.content;
          notebook.activeCellIndex = number;
          window.jupyterapp.commands.execute('notebook:run-cell');
        }""",
        number,
    )


def wait_run(page: Lab, number: int, timeout: float = 60) -> None:
    """Wait until a cell has its number."""
    page.page.wait_for_function(
        """number => {
          const cell = window.jupyterapp.shell.currentWidget.content.widgets[number];
          return cell.model.executionCount !== null && !/\\*/.test(cell.promptNode?.textContent ?? '');
        }""",
        arg=number,
        timeout=timeout * 1000,
    )


def kernel_says(page: Lab, code: str) -> str:
    """Run code in the page's kernel and return what it prints."""
    said: str = page.page.evaluate(
        """async code => {
          const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
          const future = kernel.requestExecute({ code, store_history: false });
          let text = '';
          future.onIOPub = message => {
            if (message.header.msg_type === 'stream') text += message.content.text;
            if (message.header.msg_type === 'error') text += message.content.traceback.join('\\n');
          };
          await future.done;
          return text;
        }""",
        code,
    )
    return said
