"""`@yiem.tool`: the leave to call a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from yiem_nb.tools.policy import Predicate
from yiem_nb.tools.registry import registry

__all__ = ["tool"]

F = TypeVar("F", bound=Callable[..., Any])


@overload
def tool(function: F) -> F: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    ask: bool | Predicate = False,
    sequential: bool = False,
    thread: bool = False,
    timeout: float | None = None,
    read_only: bool = False,
    untrusted: bool = False,
) -> Callable[[F], F]: ...


def tool(function: F | None = None, **options: Any) -> F | Callable[[F], F]:
    """Let the model call a function; the decorator is the leave to do so.

    Use it bare, ``@yiem.tool``, or with options. The function itself stays as it is.

    Parameters
    ----------
    name
        What the model calls it.
    description
        What it does, instead of the docstring.
    ask
        Ask before each call, or before those for whose arguments a function says so:
        ``ask=lambda arguments: arguments["n"] > 100``.
    sequential
        Run alone, not beside other calls of the same answer.
    thread
        Run in a thread of its own instead of the notebook's.
    timeout
        Seconds after which the model is told that it takes too long.
    read_only
        It changes nothing, so what was allowed for the session stays allowed whatever is read.
    untrusted
        It brings in what others wrote (pages, files, mail): its results take back what was allowed
        for the session.
    """

    def register(target: F) -> F:
        registry.add(target, **options)
        return target

    return register if function is None else register(function)
