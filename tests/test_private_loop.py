"""The private loop, in processes of its own: what nest-asyncio patches, it patches for good."""

from __future__ import annotations

import subprocess
import sys
import textwrap

HEAD = """
import asyncio
from yiem_nb.kernel.private_loop import PrivateLoop
loop = PrivateLoop()
"""


def run(source: str) -> str:
    """What `source` prints, run by an interpreter of its own."""
    done = subprocess.run(
        [sys.executable, "-c", HEAD + textwrap.dedent(source)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_tool_may_call_the_agent_whose_tools_are_async_again() -> None:
    assert (
        run("""
        async def deep(level):
            await asyncio.sleep(0)
            return 0 if level == 0 else 1 + loop.run(deep(level - 1))
        async def beside_a_running_loop():
            return loop.run(deep(4))
        print(asyncio.run(beside_a_running_loop()))
        loop.close()
        loop.close()
    """)
        == "4\n"
    )


def test_an_interrupted_coroutine_cleans_up_and_the_loop_works_on() -> None:
    assert (
        run("""
        def interrupt():
            raise KeyboardInterrupt
        async def work():
            try:
                asyncio.get_running_loop().call_soon(interrupt)
                await asyncio.get_running_loop().create_future()
            finally:
                print("cleaned up")
        try:
            loop.run(work())
        except KeyboardInterrupt:
            print("interrupted")
        async def fail():
            raise ValueError("mine")
        try:
            loop.run(fail())
        except ValueError as error:
            print(error)
        loop.close()
    """)
        == "cleaned up\ninterrupted\nmine\n"
    )
