"""Environments with one ipykernel each, made once and kept in ``.cache/``."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
CACHE = ROOT / ".cache" / "envs"

#: The oldest of each line that is supported; ``newest`` is what the test environment has.
VERSIONS = {
    "6.29": ["ipykernel==6.29.5", "ipython<9"],
    "6.30": ["ipykernel==6.30.1", "ipython<9"],
    "7.3": ["ipykernel==7.3.0"],
    "7.4": ["ipykernel==7.4.0"],
}
CI = ("6.29", "newest")


def wanted() -> list[str]:
    """The versions this run covers: CI's share, or all of them."""
    return [*VERSIONS, "newest"] if os.environ.get("YIEM_TESTS_FULL") else list(CI)


def python_of(version: str) -> str:
    """The interpreter of the environment with this ipykernel."""
    if version == "newest":
        return sys.executable
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wants = [sys.version, *VERSIONS[version], *project["dependencies"]]
    digest = hashlib.sha256("\n".join(wants).encode()).hexdigest()[:8]
    home = CACHE / f"ipykernel-{version}-{digest}"
    python = home / "bin" / "python"
    if not (home / "ready").exists():
        shutil.rmtree(home, ignore_errors=True)
        uv = shutil.which("uv")
        assert uv, "uv makes the environments; pip install uv"
        quiet = {"check": True, "stdout": subprocess.DEVNULL}
        subprocess.run([uv, "venv", "-q", "--python", sys.executable, str(home)], **quiet)
        install = [uv, "pip", "install", "-q", "--python", str(python)]
        subprocess.run([*install, *VERSIONS[version], "-e", str(ROOT)], **quiet)
        (home / "ready").touch()
    return str(python)
