"""JupyterLab in Chromium, as a person uses it: a server of its own, a page, and what it shows."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Page, sync_playwright

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]


def chromium() -> str | None:
    """The browser, where there is one."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        found = shutil.which(name)
        if found:
            return found
    return None


#: Asks whether it may fetch news; it stands in the way of what is looked at.
ANNOUNCEMENTS = "@jupyterlab/apputils-extension:announcements"


class Server:
    """A Jupyter server with nothing of the user's."""

    def __init__(
        self,
        python: str,
        root: Path,
        env: dict[str, str] | None = None,
        without: Sequence[str] = (),
    ) -> None:
        self.root = root
        self.token = secrets.token_hex(16)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        home = root.parent / f"{root.name}-home"
        home.mkdir(exist_ok=True)
        disabled = dict.fromkeys((ANNOUNCEMENTS, *without), True)
        config = home / "config" / "labconfig"
        config.mkdir(parents=True, exist_ok=True)
        (config / "page_config.json").write_text(json.dumps({"disabledExtensions": disabled}))
        clean = {k: v for k, v in os.environ.items() if not k.endswith("_API_KEY")}
        places = {
            "HOME": home,
            "JUPYTER_CONFIG_DIR": home / "config",
            "JUPYTER_DATA_DIR": home / "data",
            "JUPYTER_RUNTIME_DIR": home / "runtime",
            "IPYTHONDIR": home / "ipython",
            "XDG_DATA_HOME": home / "xdg-data",
            "XDG_CONFIG_HOME": home / "xdg-config",
        }
        variables = clean | {k: str(v) for k, v in places.items()} | {"JUPYTER_TOKEN": self.token}
        self._log = (home / "server.log").open("wb")
        self.process = subprocess.Popen(
            [
                python,
                "-m",
                "jupyterlab",
                "--allow-root",
                "--no-browser",
                "--ServerApp.ip=127.0.0.1",
                f"--ServerApp.port={self.port}",
                "--ServerApp.port_retries=0",
                f"--ServerApp.root_dir={root}",
                "--LabApp.expose_app_in_browser=True",
                "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
            ],
            env=variables | (env or {}),
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )
        self._wait()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def api(self, path: str, method: str = "GET") -> Any:
        request = urllib.request.Request(
            f"{self.url}/api/{path}",
            method=method,
            headers={"Authorization": f"token {self.token}"},
        )
        with urllib.request.urlopen(request, timeout=10) as response:
            body = response.read()
        return json.loads(body) if body else None

    def stop(self) -> None:
        os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._log.close()

    def _wait(self) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                urllib.request.urlopen(f"{self.url}/api", timeout=1).close()
            except OSError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.1)
            else:
                return
        raise RuntimeError("JupyterLab did not start")


class Lab:
    """One page."""

    def __init__(self, page: Page, server: Server) -> None:
        self.page = page
        self.server = server
        self.foreign: list[str] = []
        page.on("request", lambda request: self._note(request.url))
        page.on("websocket", lambda socket: self._note(socket.url))

    def _note(self, url: str) -> None:
        parts = urlsplit(url)
        own = (parts.hostname, parts.port) == ("127.0.0.1", self.server.port)
        if parts.scheme in ("http", "https", "ws", "wss") and not own:
            self.foreign.append(url)

    def open(self, name: str, workspace: str = "") -> None:
        """Open a notebook and wait until its kernel is idle, or there is none.

        A workspace of its own shows nothing that another notebook has left.
        """
        place = f"lab/workspaces/{workspace}" if workspace else "lab"
        self.page.goto(f"{self.server.url}/{place}/tree/{name}?token={self.server.token}&reset")
        self.page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=60_000)

    def wait_idle(self) -> None:
        """Wait until the kernel is there: a cell that is run earlier asks which kernel to take."""
        self.page.wait_for_function(
            """() => {
              const context = window.jupyterapp?.shell?.currentWidget?.sessionContext;
              const kernel = context?.session?.kernel;
              return context?.isReady && kernel?.connectionStatus === 'connected'
                && kernel.status === 'idle';
            }""",
            timeout=60_000,
        )

    def command(self, name: str, **arguments: Any) -> None:
        """Carry out a command of JupyterLab, as its menus do, without waiting for what it starts."""
        self.page.evaluate(
            "([name, arguments]) => { window.jupyterapp.commands.execute(name, arguments); }",
            [name, arguments],
        )

    def run_all(self, timeout: float = 120) -> None:
        self.wait_idle()
        self.command("notebook:run-all-cells")
        self._wait_done(timeout)

    def restart_and_run_all(self, timeout: float = 120) -> None:
        self.command("notebook:restart-run-all")
        self.page.locator(".jp-Dialog button.jp-mod-accept").click()
        self.page.wait_for_function(
            "() => [...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')]"
            ".some(p => /\\[[ *]\\]/.test(p.textContent))",
            timeout=30_000,
        )
        self._wait_done(timeout)

    def save(self) -> None:
        self.command("docmanager:save")
        self.page.wait_for_function(
            "() => !document.querySelector('.jp-mod-dirty')", timeout=20_000
        )

    def _wait_done(self, timeout: float) -> None:
        """Wait until every code cell has a number."""
        self.page.wait_for_function(
            """() => {
              const prompts = [...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')];
              return prompts.length && prompts.every(p => /\\[\\d+\\]/.test(p.textContent))
            }""",
            timeout=timeout * 1000,
        )

    def outputs(self) -> list[str]:
        """The text that each code cell shows."""
        return [
            cell.locator(".jp-Cell-outputArea").inner_text()
            if cell.locator(".jp-Cell-outputArea").count()
            else ""
            for cell in self.page.locator(".jp-CodeCell").all()
        ]

    def theme(self, name: str) -> None:
        self.command("apputils:change-theme", theme=name)
        self.page.wait_for_function(
            "name => document.body.dataset.jpThemeName === name"
            " && !document.querySelector('#jupyterlab-splash')",
            arg=name,
            timeout=20_000,
        )

    def screenshot(self, path: Path, *, width: int = 1200, height: int = 900) -> None:
        self.page.set_viewport_size({"width": width, "height": height})
        path.parent.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=str(path))


@contextmanager
def lab(
    root: Path,
    *,
    python: str = sys.executable,
    env: dict[str, str] | None = None,
    without: Sequence[str] = (),
) -> Iterator[Lab]:
    """A server on `root` and a page of it, without some of JupyterLab's extensions."""
    server = Server(python, root, env, without)
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
            page = browser.new_page(viewport={"width": 1200, "height": 3000})
            yield Lab(page, server)
            browser.close()
    finally:
        server.stop()
