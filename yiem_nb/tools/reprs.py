"""What an unknown object says about itself, however badly it behaves."""

from __future__ import annotations

import reprlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Any, TypeVar

__all__ = ["MAX_REPR", "REPR_SECONDS", "bounded_repr", "guarded"]

T = TypeVar("T")

MAX_REPR = 2_000
#: How long an object may take to describe itself.
REPR_SECONDS = 1.0

_SHORT = reprlib.Repr()
_SHORT.maxother = _SHORT.maxstring = _SHORT.maxlong = MAX_REPR
_SHORT.maxlist = _SHORT.maxdict = _SHORT.maxset = _SHORT.maxtuple = 50


class _Overtime(BaseException):
    """Not an `Exception`, so that the code it stops does not handle it."""


@contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    """Stop Python code that runs longer, on whatever thread this is.

    A trace function sees every step, so it stops ``while True`` too; a loop in C it does not see.
    """
    end = time.monotonic() + seconds

    def watch(frame: FrameType, event: str, argument: Any) -> Any:  # pragma: no cover - a tracer
        frame.f_trace_opcodes = True  # `while True: pass` never comes to another line
        if time.monotonic() > end:
            raise _Overtime
        return watch

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        yield
    finally:
        sys.settrace(before)


def guarded(
    describe: Callable[[], T], otherwise: Callable[[str], T], *, seconds: float | None = None
) -> T:
    """Return ``describe()``, or ``otherwise(why)`` if it raises, or runs longer than `seconds`."""
    try:
        with nullcontext() if seconds is None else _deadline(seconds):
            return describe()
    except _Overtime:
        why = "does not end"
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - SystemExit and worse: it is not the user's question
        why = f"raises {type(error).__name__}"
    return otherwise(why)


def bounded_repr(value: Any) -> str:
    """Return a short `repr` of anything."""
    kind = type(value).__name__
    text = guarded(
        lambda: _SHORT.repr(value),
        lambda why: f"<{kind} whose repr {why}>",
        seconds=REPR_SECONDS,
    )
    return text[:MAX_REPR]
