"""Which notebook this is, and where its session lives."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

__all__ = [
    "CONTINUE_VARIABLE",
    "NOTEBOOK_VARIABLE",
    "REPORT_VARIABLE",
    "SUFFIX",
    "find_notebook",
    "session_path",
    "stray_session_path",
]

#: Set by whoever runs a notebook headless and knows its path.
NOTEBOOK_VARIABLE = "YIEM_NOTEBOOK"
#: Set to ``1``: a run without cell ids goes on where the last one ended, instead of a new root.
CONTINUE_VARIABLE = "YIEM_CONTINUE"
#: Names the model of every cell that names none itself, whatever the notebook chooses.
MODEL_VARIABLE = "YIEM_MODEL"
#: Names a file to which the kernel adds which sessions it wrote.
REPORT_VARIABLE = "YIEM_REPORT"
SUFFIX = ".yiem.jsonl"


def find_notebook(
    namespace: Mapping[str, Any], environ: Mapping[str, str] = os.environ
) -> Path | None:
    """Find the notebook this kernel runs, or ``None`` where nobody says.

    In this order: `NOTEBOOK_VARIABLE`; VS Code's ``__vsc_ipynb_file__``; ``JPY_SESSION_NAME``, which
    Jupyter Server sets when it starts a kernel. The last goes stale when the notebook is renamed
    while the kernel runs, and some servers put something else there (jupyter_server#1059), so a path
    whose folder does not exist is not believed.
    """
    told = (
        environ.get(NOTEBOOK_VARIABLE),
        namespace.get("__vsc_ipynb_file__"),
        environ.get("JPY_SESSION_NAME"),
    )
    for value in told:
        if isinstance(value, str) and value.endswith(".ipynb"):
            path = Path(value)
            if not path.is_absolute():
                path = Path.cwd() / path
            if path.parent.is_dir():
                return path
    return None


def session_path(notebook: Path) -> Path:
    """``NAME.yiem.jsonl`` beside ``NAME.ipynb``."""
    return notebook.with_name(notebook.stem + SUFFIX)


def stray_session_path() -> Path:
    """Name a new session in the user's data folder, for a process that belongs to no notebook."""
    import platformdirs

    folder = Path(platformdirs.user_data_dir("yiem_nb", appauthor=False)) / "sessions"
    stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S")
    return folder / f"{stamp}_{uuid.uuid4().hex[:8]}{SUFFIX}"
