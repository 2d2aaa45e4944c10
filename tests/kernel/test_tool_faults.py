"""Real kernels survive what tools do: one call of each fault, and the kernel answers after it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fake_openai import call, text
from tests.kernel.envs import wanted
from tests.kernel.scenes import notebook

pytestmark = pytest.mark.kernel

#: Fault → body of the function, and what the model is told.
FAULTS = {
    "F31 raises": ("raise ValueError('bad')", "ValueError: bad"),
    "F32 exits": ("import sys; sys.exit(3)", "SystemExit: 3"),
    "F34 generator exit": ("raise GeneratorExit", "GeneratorExit"),
    "F34 cancelled": ("import asyncio; raise asyncio.CancelledError", "CancelledError"),
    "F34 odd": ("raise type('Odd', (BaseException,), {})('x')", "Odd: x"),
    "F39 a lock": ("import threading; return threading.Lock()", "lock"),
    "F41 recursion": ("return f()", "RecursionError"),
    "F41 a cycle": ("x = []; x.append(x); return x", "["),
    "F44 deletes itself": ("global f; del f; return 'gone'", "gone"),
    "F48 100 MB printed": ("print('y' * 100_000_000)", "characters"),
    "F48 200 MB returned": ("return 'z' * 200_000_000", "characters left out"),
    "F50 folder": ("import os; os.chdir('/')", "working directory was changed"),
    "F50 handler": (
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)",
        "interrupt handler was changed",
    ),
    "F50 streams": ("import sys; sys.stdout = sys.stderr = None; return 'ok'", "ok"),
    "nested ask": ("return yiem.ask('again')", "AGENT_BUSY|The agent is answering"),
}


@pytest.mark.parametrize("version", wanted())
def test_no_fault_of_a_tool_kills_the_kernel(version: str, tmp_path: Path) -> None:
    replies = [
        reply
        for n in range(len(FAULTS))
        for reply in (call("f", {}, id=f"c{n}"), text(f"told {n}"))
    ]
    deaths = []
    with notebook(tmp_path, *replies, version=version) as (kernel, server):
        pid = kernel.run("import os; print(os.getpid())").stream
        for number, (fault, (body, said)) in enumerate(FAULTS.items()):
            kernel.run(f"@yiem.tool\ndef f():\n    'F.'\n    {body}")
            cell = kernel.run("%%yiem --append\ngo")
            told = str(server.requests[2 * number + 1]["messages"][-1]["content"])
            assert any(word in told for word in said.split("|")), (fault, told[:500])
            assert len(told) <= 22_000, fault
            assert f"told {number}" in cell.text, fault
            if kernel.run("print(os.getpid())").stream != pid:
                deaths.append(fault)
        assert Path(kernel.run("print(os.getcwd())").stream.strip()) == tmp_path
    assert deaths == []
