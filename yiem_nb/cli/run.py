"""``yiem run NOTEBOOK`` executes a notebook headless, in order, with the session where it belongs."""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from yiem_nb.errors import CommandError, ErrorCode, YiemError
from yiem_nb.kernel.notebook import (
    CONTINUE_VARIABLE,
    MODEL_VARIABLE,
    NOTEBOOK_VARIABLE,
    REPORT_VARIABLE,
)
from yiem_nb.render.text import visible

__all__ = ["add_parser"]

#: Exit statuses: a cell failed; the notebook cannot be run; Ctrl+C.
FAILED, UNUSABLE, INTERRUPTED = 1, 2, 130
_WIDTH = 60


def add_parser(commands: Any) -> None:
    """Describe the command to the command line."""
    parser = commands.add_parser(
        "run",
        help="execute a notebook headless and save its outputs",
        description="Execute a notebook headless, cell by cell, and save its outputs. Exit status: 0 when"
        " every cell is done, 1 when one failed, 2 when the notebook cannot be run, 130 after Ctrl+C.",
    )
    parser.add_argument("notebook", type=Path, help="the notebook")
    parser.add_argument(
        "--model", default="", help="the model of every cell that names none itself"
    )
    parser.add_argument(
        "--continue",
        dest="go_on",
        action="store_true",
        help="let each prompt follow the last exchange of the session, as --append does",
    )
    parser.add_argument(
        "-o", "--output", type=Path, help="where the executed notebook goes (default: in place)"
    )
    parser.add_argument("--timeout", type=float, help="seconds a cell may take (default: any)")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    for module in ("nbclient", "ipykernel"):
        if importlib.util.find_spec(module) is None:
            raise YiemError(
                f"{module} is not installed in this environment.",
                hint='pip install "yiem-nb[lab]"',
                code=ErrorCode.KERNEL_UNAVAILABLE,
            )
    try:
        run = _Run(arguments.notebook.resolve(), arguments.timeout, go_on=arguments.go_on)
    except CommandError as error:
        print(f"✕ {error}\n  [{error.code}]", file=sys.stderr)
        return UNUSABLE
    with tempfile.TemporaryDirectory(prefix="yiem-run-") as folder:
        report = Path(folder) / "sessions"
        report.touch(mode=0o600)
        with _told(run.path, arguments.model, report, go_on=arguments.go_on):
            status = run.execute()
        run.save(arguments.output)
        run.sum_up(report)
    return status


@contextmanager
def _told(notebook: Path, model: str, report: Path, *, go_on: bool) -> Iterator[None]:
    """Tell the kernel, through its environment, what it cannot know."""
    told = {
        NOTEBOOK_VARIABLE: str(notebook),
        MODEL_VARIABLE: model,
        REPORT_VARIABLE: str(report),
        CONTINUE_VARIABLE: "1" if go_on else "",
    }
    before = {name: os.environ.get(name) for name in told}
    os.environ.update(told)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class _Run:
    """One execution of a notebook.

    Raises
    ------
    CommandError
        There is no notebook at the path, or none that can be read.
    """

    def __init__(self, path: Path, timeout: float | None, *, go_on: bool) -> None:
        self.path = path
        self._timeout = timeout
        self._go_on = go_on
        self._before, self.notebook = _read(path)
        cells = [c for c in self.notebook.cells if c.cell_type == "code" and c.source.strip()]
        self._total = len(cells)
        self._done = 0
        self._started = time.monotonic()
        self._interrupted = False
        self._client: Any = None

    def execute(self) -> int:
        """Run all cells; return the exit status."""
        return asyncio.run(self._execute())

    async def _execute(self) -> int:
        from jupyter_client.kernelspec import NoSuchKernel
        from nbclient import NotebookClient
        from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

        name = self.notebook.metadata.get("kernelspec", {}).get("name") or "python3"
        self._client = NotebookClient(
            self.notebook,
            timeout=self._timeout,
            kernel_name=name,
            resources={"metadata": {"path": str(self.path.parent)}},
            # What the kernel's program says of itself is no news here; cells' output is untouched.
            extra_arguments=["--log-level=ERROR"] if name.startswith("python") else [],
            on_cell_execute=self._begin,
            on_cell_executed=self._end,
        )
        try:
            async with self._client.async_setup_kernel():
                self._take_signals()
                for index, cell in enumerate(self.notebook.cells):
                    await self._client.async_execute_cell(cell, index, self._done + 1)
        except NoSuchKernel:
            self._say(f"✕ The notebook wants a kernel {name!r}, which is not installed here.")
            return UNUSABLE
        except CellExecutionError as error:
            self._fail(f"{error.ename}: {error.evalue}" if error.evalue else error.ename)
        except CellTimeoutError:
            self._fail(f"it took longer than {self._timeout:g} s")
        except DeadKernelError:
            self._fail("the kernel died")
        else:
            return 0
        return INTERRUPTED if self._interrupted else FAILED

    def _take_signals(self) -> None:
        """Let Ctrl+C interrupt the cell, so that what it has is kept; a second one ends the kernel."""
        loop = asyncio.get_running_loop()

        def interrupt() -> None:
            again, self._interrupted = self._interrupted, True
            how = self._client.km.shutdown_kernel(now=True) if again else None
            loop.create_task(how or self._client.km.interrupt_kernel())  # noqa: RUF006 - the run goes on

        with suppress(NotImplementedError, RuntimeError):
            loop.add_signal_handler(signal.SIGINT, interrupt)

    # --- Cells -------------------------------------------------------------------------

    def _begin(self, cell: Any, cell_index: int) -> None:
        # The cell's id goes with the request, as JupyterLab sends it: a cell is a place in the
        # tree. A run that is to go on from the last exchange has no places.
        told = {} if self._go_on else {"cellId": cell.id}
        self._client.kc.session.metadata = told
        self._started = time.monotonic()
        print(f"[{self._done + 1}/{self._total}] {_title(cell.source)}", end="", flush=True)

    def _end(self, cell: Any, cell_index: int, execute_reply: Any) -> None:
        self._done += 1
        if execute_reply["content"]["status"] == "ok":
            print(f"   {time.monotonic() - self._started:.1f} s", flush=True)

    def _fail(self, why: str) -> None:
        lines = visible(why).strip().splitlines()
        print(flush=True)
        self._say(f"✕ Cell {max(self._done, 1)} of {self._total} failed: {lines[0]}")

    def _say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    # --- The end -----------------------------------------------------------------------

    def save(self, output: Path | None) -> None:
        """Write the executed notebook; one that somebody has changed meanwhile is left alone."""
        import nbformat

        target = output.resolve() if output is not None else self.path
        if target == self.path and _bytes_of(self.path) != self._before:
            target = self.path.with_name(f"{self.path.stem}.run.ipynb")
            self._say(f"{self.path.name} has changed meanwhile; the outputs are in {target.name}")
        _replace(target, str(nbformat.writes(self.notebook)))  # type: ignore[no-untyped-call]

    def sum_up(self, report: Path) -> None:
        """Say what was done, what it used, and where the session is."""
        from yiem_nb.kernel.report import read_report

        said = [f"{self._done} of {self._total} cells"]
        session, tokens = read_report(report)
        if tokens:
            said.append(f"{tokens:,} tokens")
        if session is not None:
            beside = session.parent == self.path.parent
            said.append(f"session {session.name if beside else session}")
        print(" · ".join(said), flush=True)


def _read(path: Path) -> tuple[bytes, Any]:
    import nbformat

    try:
        content = path.read_bytes()
    except OSError as error:
        raise CommandError(
            f"The notebook {path} cannot be read: {error.strerror}.", hint="Check the path."
        ) from None
    try:
        notebook = nbformat.reads(content.decode(), 4)  # type: ignore[no-untyped-call]
    except (ValueError, nbformat.ValidationError, AttributeError, KeyError, TypeError):
        raise CommandError(
            f"{path.name} is no notebook that can be read.",
            hint="Open it in JupyterLab and save it.",
        ) from None
    return content, notebook


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _title(source: str) -> str:
    """Return the first line of a cell; of a prompt also the line below."""
    lines = [line.strip() for line in source.strip().splitlines() if line.strip()]
    title = " ".join(lines[:2] if lines[0].startswith("%%") else lines[:1])
    title = visible(title)
    return title if len(title) <= _WIDTH else f"{title[: _WIDTH - 1]}…"


def _replace(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(_mode(path))
        Path(temporary).replace(path)
    except OSError as error:
        raise YiemError(
            f"The executed notebook cannot be saved as {path}: {error.strerror}.",
            hint="Name another file with -o.",
            code=ErrorCode.SESSION_STORAGE,
        ) from None


def _mode(path: Path) -> int:
    """Return the permissions a file has, or would have if it were made now."""
    with suppress(OSError):
        return path.stat().st_mode & 0o777
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask
