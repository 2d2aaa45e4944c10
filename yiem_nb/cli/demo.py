"""``yiem demo`` opens the first lesson in JupyterLab."""

from __future__ import annotations

import argparse
import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from importlib import resources
from pathlib import Path
from typing import Any

from yiem_nb.errors import ErrorCode, YiemError

__all__ = ["add_parser", "copy_lesson"]

LESSON = "01-first-steps.ipynb"
START_SECONDS = 60.0


def add_parser(commands: Any) -> None:
    """Describe the command to the command line."""
    demo = commands.add_parser(
        "demo", help="open the first lesson in JupyterLab; needs no key and no network"
    )
    demo.add_argument(
        "folder",
        nargs="?",
        type=Path,
        default=Path("yiem-lessons"),
        help="where your copy of the lesson goes (default: ./yiem-lessons)",
    )
    demo.add_argument("--port", type=int, default=0, help="port to listen on (default: a free one)")
    demo.set_defaults(run=_demo)


def _demo(arguments: argparse.Namespace) -> int:
    if importlib.util.find_spec("jupyterlab") is None:
        raise YiemError(
            "JupyterLab is not installed in this environment.",
            hint='pip install "yiem-nb[lab,local]"',
            code=ErrorCode.KERNEL_UNAVAILABLE,
        )
    lesson = copy_lesson(arguments.folder)
    port = arguments.port or _free_port()
    token = secrets.token_urlsafe(24)
    # Ended from outside, it ends the server too, as with Ctrl+C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    server = subprocess.Popen(_lab_command(lesson, port), env=os.environ | {"JUPYTER_TOKEN": token})
    try:
        _wait_for(server, port)
        print(f"\nYour copy of the lesson: {lesson}")
        print(f"Open  http://127.0.0.1:{port}/lab/tree/{lesson.name}?token={token}")
        print("Ctrl+C ends it.", flush=True)
        return server.wait()
    except KeyboardInterrupt:
        return 0
    finally:
        server.terminate()
        server.wait()


def copy_lesson(folder: Path) -> Path:
    """Put copies of the lessons into `folder`, those that are not there yet; return the first one's."""
    target = folder.resolve() / LESSON
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for lesson in sorted(_lessons().glob("*.ipynb")):
            copy = target.with_name(lesson.name)
            if not copy.exists():
                shutil.copyfile(lesson, copy)
    except OSError as error:
        raise YiemError(
            f"The lesson cannot be copied to {folder}: {error.strerror}.",
            hint="Name a folder you may write to: yiem demo FOLDER",
            code=ErrorCode.SESSION_STORAGE,
        ) from None
    return target


def _lessons() -> Path:
    """Find the lessons: inside an installed package, or in the repository it is developed in."""
    package = Path(str(resources.files("yiem_nb")))
    installed = package / "lessons"
    return installed if installed.exists() else package.parent / "notebooks"


def _lab_command(lesson: Path, port: int) -> list[str]:
    options = {
        "ServerApp.ip": "127.0.0.1",
        "ServerApp.port": port,
        "ServerApp.port_retries": 0,
        "ServerApp.root_dir": lesson.parent,
        "ServerApp.open_browser": False,
        # Nothing is asked of the network, neither news nor updates.
        "LabApp.news_url": "",
        "LabApp.check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
        "Application.log_level": "WARN",
    }
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        options["ServerApp.allow_root"] = True
    return [
        sys.executable,
        "-m",
        "jupyterlab",
        *(f"--{name}={value}" for name, value in options.items()),
    ]


def _free_port() -> int:
    """Jupyter's usual port where it is free, else any."""
    for port in (8888, 0):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise YiemError("No port is free on this machine.", code=ErrorCode.KERNEL_UNAVAILABLE)


def _wait_for(server: subprocess.Popen[bytes], port: int) -> None:
    """Return when the server answers."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            break
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/api", timeout=1).close()
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
        else:
            return
    raise YiemError(
        "JupyterLab did not start.",
        hint="What it said stands above; try another --port.",
        code=ErrorCode.KERNEL_UNAVAILABLE,
    )
