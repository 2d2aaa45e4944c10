"""``python -m tests``: everything that must pass, in parts that can be run alone.

    uv run --group test python -m tests              all parts, CI's share of the long ones
    uv run --group test python -m tests unit kernel  some parts
    uv run --group test python -m tests --full       the full counts, every ipykernel, every pi

Each part prints its name, its time and the machine's load; the exit status is that of the worst.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: All branches, but for those that the tracer of CPython 3.11 cannot see: it loses a line of an async
#: generator that an exception resumes.
GATE = 99.5
#: Modules without input or output; every branch of theirs is run by the unit tests.
PURE = [
    "calls",
    "errors",
    "events",
    "hashing",
    "instructions",
    "loop",
    "blocks",
    "messages",
    "models",
    "prepare",
    "compaction",
    "state",
    "tokens",
    "kernel/pacing",
    "magics/grammar",
    "render/*",
    "session/context",
    "session/entries",
    "session/tree",
    "tools/approval",
    "tools/base",
    "tools/gate",
    "tools/policy",
    "wire/*",
]


def main() -> int:
    """Run the parts that were asked for, all by default."""
    parser = argparse.ArgumentParser(prog="python -m tests")
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; default: all"
    )
    parser.add_argument("--full", action="store_true", help="full counts and every version")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.parts if name not in PARTS]
    if unknown:
        parser.error(f"there is no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    if importlib.util.find_spec("pytest") is None:
        return _under_uv()
    if arguments.full:
        os.environ["YIEM_TESTS_FULL"] = "1"
    done: list[tuple[str, int, float]] = []
    for name in arguments.parts or PARTS:
        print(f"\n━━━ {name}", flush=True)
        start = time.monotonic()
        status = PARTS[name](arguments)
        done.append((name, status, time.monotonic() - start))
    print("\n━━━ summary")
    for name, status, seconds in done:
        print(f"{'passed' if not status else 'FAILED':>7}  {name:<8} {seconds:6.1f} s")
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    failed = sum(bool(status) for _, status, _ in done)
    print(f"{len(done) - failed} passed, {failed} failed")
    return 1 if failed else 0


def _under_uv() -> int:
    """Run once more where the test packages are."""
    uv = shutil.which("uv")
    if uv is None:
        print("The test packages are missing: pip install uv, then run this again.")
        return 1
    command = [uv, "run", "--group", "test", "python", "-m", "tests", *sys.argv[1:]]
    return subprocess.call(command, cwd=ROOT)


def _call(*command: str, script: bool = False) -> int:
    return subprocess.call([sys.executable, *([] if script else ["-m"]), *command], cwd=ROOT)


def _lint(arguments: argparse.Namespace) -> int:
    statuses = [
        _call("ruff", "check", "."),
        _call("ruff", "format", "--check", "."),
        _call("mypy"),
        subprocess.call([str(Path(sys.executable).parent / "lint-imports")], cwd=ROOT),
    ]
    # A child that was killed has a negative status.
    return int(any(statuses))


def _js(arguments: argparse.Namespace) -> int:
    """Check the front end, and that the bundle in the repository is what its sources give."""
    npm = shutil.which("npm")
    if npm is None:
        print(
            "There is no npm here: the front end was not checked. The bundle is in the repository."
        )
        return 0
    folder = ROOT / "js"
    statuses = [_call(str(folder / "protocol.py"), "--check", script=True)]
    steps = (("ci", "--silent"), ("run", "lint"), ("run", "types"), ("test",))
    for step in steps:
        statuses.append(subprocess.call([npm, *step], cwd=folder))
        if statuses[-1]:
            return 1
    with tempfile.TemporaryDirectory() as built:
        statuses.append(subprocess.call(["node", "build.mjs", "--out", built], cwd=folder))
        committed = ROOT / "yiem_nb" / "widget" / "static"
        for path in sorted(Path(built).iterdir()):
            if path.read_bytes() != (committed / path.name).read_bytes():
                print(f"{path.name} is not what its sources give: npm --prefix js run build")
                statuses.append(1)
    return int(any(statuses))


def _unit(arguments: argparse.Namespace) -> int:
    """Run the unit tests under coverage; the pure modules must be covered whole."""
    (ROOT / ".coverage").unlink(missing_ok=True)
    status = _call(
        "coverage", "run", "-m", "pytest", "-q", "-m", "not kernel and not browser and not model"
    )
    included = ",".join(f"yiem_nb/{name}.py" for name in PURE)
    gate = _call(
        "coverage", "report", f"--include={included}", f"--fail-under={GATE}", "--skip-covered"
    )
    return int(any((status, gate)))


def _marked(mark: str) -> Callable[[argparse.Namespace], int]:
    return lambda arguments: _call("pytest", "-q", "-m", mark)


def _browser(arguments: argparse.Namespace) -> int:
    from tests.browser.lab import chromium

    if chromium() is None and not _install_chromium():
        print("There is no Chromium: install Debian's package with apt-get install chromium.")
        return 1
    return _marked("browser")(arguments)


def _install_chromium() -> bool:
    """Install Debian's package where this user may."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    subprocess.call(["apt-get", "update", "-qq"])
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    command = [
        "apt-get",
        "install",
        "-y",
        "-qq",
        "--no-install-recommends",
        "chromium",
        "fonts-dejavu-core",
    ]
    return subprocess.call(command, env=environment) == 0


PARTS: dict[str, Callable[[argparse.Namespace], int]] = {
    "lint": _lint,
    "js": _js,
    "unit": _unit,
    "model": _marked("model"),
    "kernel": _marked("kernel and not browser"),
    "browser": _browser,
}

if __name__ == "__main__":
    sys.exit(main())
