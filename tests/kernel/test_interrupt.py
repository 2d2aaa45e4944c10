"""An interrupt at any instant: the cell ends, the connection closes, nothing is lost."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from tests.conftest import share
from tests.fake_openai import Reply, call, text
from tests.kernel.envs import wanted
from tests.kernel.scenes import SLOW_TOOL, entries, messages, notebook

pytestmark = pytest.mark.kernel

#: About when the first stream, the call and the last stream are under way, in seconds.
WINDOWS = ((0.02, 0.3), (0.34, 0.56), (0.6, 0.85))


def three_turns() -> list[Reply]:
    """A stream that ends in a call, a call of a quarter second, a stream."""
    first = text("first " * 20, delay=0.01)
    first.deltas += call("work", {"seconds": 0.25}).deltas
    first.finish = "tool_calls"
    return [first, text("last " * 20, delay=0.01)]


@pytest.mark.parametrize("version", wanted())
def test_an_interrupt_at_any_instant_ends_the_cell_and_loses_nothing(
    version: str, tmp_path: Path
) -> None:
    rng = random.Random(20261201)
    latencies: list[float] = []
    during_calls = 0
    with notebook(tmp_path, text("warm"), version=version) as (kernel, server):
        kernel.run(SLOW_TOOL)
        kernel.run("%%yiem\nwarm up")
        while len(latencies) < share(40, 8):
            server.replies[len(server.requests) :] = three_turns()
            cell = kernel.submit("%%yiem\ngo")
            # At random within each of the three turns by turns, so that few instants meet all.
            begin, end = WINDOWS[len(latencies) % 3]
            kernel.read_until(cell, cell.started + rng.uniform(begin, end))
            at = time.monotonic()
            kernel.interrupt()
            kernel.wait(cell)
            if cell.status == "error":
                latencies.append(cell.ended - at)
                during_calls += "■ work(" in cell.text
                assert "Traceback" not in cell.error
            server.replies[len(server.requests) :] = [text("fine")]
            assert "fine" in kernel.run("%%yiem\nstill there?").text
            assert server.open == 0
    latencies.sort()
    print(
        f"\nipykernel {version}: {len(latencies)} interrupts, {during_calls} during a call, "
        f"p50 {latencies[len(latencies) // 2] * 1000:.0f} ms, max {latencies[-1] * 1000:.0f} ms"
    )
    assert during_calls
    _check_tree(tmp_path)


def _check_tree(folder: Path) -> None:
    """Every line parses, every parent is there, every call of a whole answer has one result."""
    kept = entries(folder)
    ids = {e["id"] for e in kept}
    assert all(e["parentId"] is None or e["parentId"] in ids for e in kept[1:])
    results = [m["toolCallId"] for m in messages(folder) if m["role"] == "toolResult"]
    for message in messages(folder):
        if message["role"] == "assistant" and message["stopReason"] == "toolUse":
            assert all(b["id"] in results for b in message["content"] if b["type"] == "toolCall")


def test_cells_queued_behind_an_interrupted_one_do_not_run(tmp_path: Path) -> None:
    with notebook(tmp_path, Reply([{"content": "so-far"}], stall=True), text("never")) as (
        kernel,
        server,
    ):
        first, second = kernel.submit("%%yiem\none"), kernel.submit("%%yiem\ntwo")
        kernel.wait_for(first, "so-far")
        kernel.interrupt()
        kernel.wait(first)
        assert "■ interrupted" in first.error
        assert "the partial answer is kept" in first.text
        deadline = time.monotonic() + 10
        while not second.status and time.monotonic() < deadline:
            reply = kernel.client.get_shell_msg(timeout=10)
            if reply["parent_header"]["msg_id"] == second.id:
                second.status = reply["content"]["status"]
        assert second.status in ("aborted", "error")
        assert len(server.requests) == 1
