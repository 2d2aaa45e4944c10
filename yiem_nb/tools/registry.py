"""The functions a model may call, as they are now.

A function of the notebook is kept by name and looked up in the notebook's namespace when it is needed, so a
cell that is run again replaces it, and `del` withdraws it. The schema is made again when the function
has changed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from yiem_nb.tools.base import AgentTool
from yiem_nb.tools.function import tool_from_function
from yiem_nb.tools.running import Runner, run_here

__all__ = ["ToolRegistry", "registry", "tool"]


@dataclass(slots=True)
class _Registered:
    function: Callable[..., Any]
    options: dict[str, Any]
    built: tuple[object, AgentTool] | None = None


@dataclass(slots=True)
class ToolRegistry:
    """Tools by name.

    Parameters
    ----------
    namespace
        Returns the notebook's variables.
    runner
        Where functions run.
    """

    namespace: Callable[[], Mapping[str, Any]] = field(
        default=lambda: sys.modules["__main__"].__dict__
    )
    runner: Runner = run_here
    _known: dict[str, _Registered] = field(default_factory=dict)

    def add(self, function: Callable[..., Any], **options: Any) -> AgentTool:
        """Register a function; the same name again replaces it."""
        made = tool_from_function(function, runner=self.runner, **options)
        self._known[made.name] = _Registered(function, options)
        return made

    def remove(self, name: str) -> None:
        """Withdraw a tool."""
        self._known.pop(name, None)

    def active(self) -> dict[str, AgentTool]:
        """Return the tools of this moment."""
        tools = {}
        for name, known in tuple(self._known.items()):
            function = self._present(known.function)
            if function is None:
                del self._known[name]
                continue
            tools[name] = self._tool(known, function)
        return tools

    def _tool(self, known: _Registered, function: Callable[..., Any]) -> AgentTool:
        mark = (_fingerprint(function), self.runner)
        if known.built is None or known.built[0] != mark:
            known.function = function
            known.built = (mark, tool_from_function(function, runner=self.runner, **known.options))
        return known.built[1]

    def _present(self, function: Callable[..., Any]) -> Callable[..., Any] | None:
        """Return what the name means now; ``None`` if it was deleted."""
        name = getattr(function, "__name__", "")
        if getattr(function, "__module__", "") != "__main__" or "." in _qualname(function):
            return function
        found = self.namespace().get(name)
        return found if callable(found) else None


def _qualname(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", ".")


def _fingerprint(function: Callable[..., Any]) -> object:
    code = getattr(function, "__code__", None)
    return (
        id(function),
        code,
        function.__doc__,
        repr(getattr(function, "__annotations__", None)),
        repr(getattr(function, "__defaults__", None)),
        repr(getattr(function, "__kwdefaults__", None)),
    )


registry = ToolRegistry()


def tool(
    function: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    ask: bool = False,
    sequential: bool = False,
) -> Any:
    """Let the model call a function; the decorator is the leave to do so.

    Use it bare, ``@yiem.tool``, or with options. The function itself stays as it is.

    Parameters
    ----------
    name
        What the model calls it.
    description
        What it does, instead of the docstring.
    ask
        Ask before each call.
    sequential
        Run alone, not beside other calls of the same answer.
    """

    def register(target: Callable[..., Any]) -> Callable[..., Any]:
        registry.add(target, name=name, description=description, ask=ask, sequential=sequential)
        return target

    return register if function is None else register(function)
