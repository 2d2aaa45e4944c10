"""A private event loop on the main thread, for ``async def`` functions of the notebook.

Such a function must run on the main thread, where its objects live, while the kernel's own loop is
busy running the cell. So it gets a loop of its own, patched by nest-asyncio so that a tool may call
the agent, whose tools may be async again. This is nest-asyncio's one place: on the kernel's loop it
loses queued cells (ipykernel 7.3 and 7.4 never answer them) and leaves HTTP streams running after an
interrupt.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["PrivateLoop"]

T = TypeVar("T")

#: How long an interrupted coroutine may take to clean up.
CLEANUP_SECONDS = 1.0


class PrivateLoop:
    """Runs coroutines to their end on the calling thread, nested ones included."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run `coroutine` and return what it returns.

        An interrupt cancels it, lets it clean up for `CLEANUP_SECONDS`, and goes on as
        `KeyboardInterrupt`.
        """
        loop = self._patched_loop()
        task = loop.create_task(coroutine)
        try:
            return loop.run_until_complete(task)
        except BaseException:
            if not task.done():
                task.cancel()
                loop.run_until_complete(asyncio.wait([task], timeout=CLEANUP_SECONDS))
            raise

    def close(self) -> None:
        """Close the loop, if there is one."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.close()
        self._loop = None

    def _patched_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            _nest_asyncio().apply(self._loop)
        return self._loop


def _nest_asyncio() -> Any:
    """Import the library; the original is archived and fails on Python 3.14, its fork does not."""
    return importlib.import_module(
        "nest_asyncio" if sys.version_info < (3, 14) else "nest_asyncio2"
    )
