"""What `import yiem_nb`, `%load_ext` and the first cell cost, in CPU seconds above IPython."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys

PROBE = """
import json, sys, time
import socket
calls = []
real = socket.socket.connect
socket.socket.connect = lambda self, *a: calls.append(a)
from IPython.core.interactiveshell import InteractiveShell
ip = InteractiveShell.instance()
out = {}
def step(name, work):
    before = time.process_time(); work(); out[name] = time.process_time() - before
step("import", lambda: __import__("yiem_nb"))
step("load_ext", lambda: ip.run_line_magic("load_ext", "yiem_nb"))
heavy = ["pydantic", "mcp", "anywidget", "httpx", "griffe", "matplotlib", "pandas"]
out["heavy"] = [name for name in heavy if name in sys.modules]
def first():
    magics = ip.magics_manager.registry["YiemMagics"]
    magics.workspace
    from yiem_nb.providers.http import HttpProvider
    from yiem_nb.providers.local import LOCAL_MODEL
step("first cell", first)
out["sockets"] = len(calls)
out["modules"] = len(sys.modules)
print(json.dumps(out))
"""


def main(rounds: int = 5) -> None:
    """Print the median of some cold processes."""
    found = []
    for _ in range(rounds + 1):
        done = subprocess.run(
            [sys.executable, "-c", PROBE], capture_output=True, text=True, check=True
        )
        found.append(json.loads(done.stdout.splitlines()[-1]))
    found = found[1:]
    goals = {"import": 0.10, "load_ext": 0.15, "first cell": 0.60}
    for name, goal in goals.items():
        seconds = statistics.median(one[name] for one in found)
        print(f"{name:<12} {seconds:.3f} s CPU   (goal {goal:.2f})")
    print(f"heavy modules before the first cell: {found[-1]['heavy'] or 'none'}")
    print(f"connections: {found[-1]['sockets']}, modules: {found[-1]['modules']}")
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
