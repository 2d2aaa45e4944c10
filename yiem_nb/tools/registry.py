"""The functions a model may call, as they are now.

A function of the notebook is kept by its name and looked up when it is needed, so a cell that is run
again replaces it, and `del` withdraws it. Its schema is made again whenever it has changed.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from yiem_nb.errors import InvalidParametersError
from yiem_nb.tools.base import AgentTool
from yiem_nb.tools.context import Namespace, main_namespace
from yiem_nb.tools.function import tool_from_function, tool_name
from yiem_nb.tools.results import Formatter
from yiem_nb.tools.running import Runner, run_here
from yiem_nb.tools.signature import UnresolvedAnnotationError, innermost

__all__ = ["ToolChange", "ToolOptions", "ToolRegistry", "registry"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOptions:
    """What `yiem.tool` was told about a function."""

    name: str | None = None
    description: str | None = None
    ask: bool = False
    sequential: bool = False
    thread: bool = False
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class ToolChange:
    """Something that became of a tool since one was last asked.

    ``added`` and ``changed`` (its schema or description) hold from the next request on;
    ``withdrawn`` says why, and is undone when the reason is.
    """

    kind: Literal["added", "changed", "withdrawn"]
    name: str
    reason: str = ""


# --- Where a function is -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Named:
    """A function of the notebook, by the name it has there."""

    name: str

    def find(self, namespace: Mapping[str, Any]) -> Any:
        return namespace.get(self.name)


@dataclass(frozen=True, slots=True)
class _Method:
    """A method of an object of the notebook: both may be replaced."""

    owner: str
    name: str

    def find(self, namespace: Mapping[str, Any]) -> Any:
        return getattr(namespace.get(self.owner), self.name, None)


@dataclass(frozen=True, slots=True)
class _Held:
    """A function that has no name in the notebook."""

    function: Callable[..., Any]

    def find(self, namespace: Mapping[str, Any]) -> Any:
        return self.function


_WORD = re.compile(r"[^\W\d]\w*")

_Source: TypeAlias = _Named | _Method | _Held


def _source_of(function: Callable[..., Any], namespace: Mapping[str, Any]) -> _Source:
    if inspect.isfunction(function) and function.__module__ == "__main__":
        if function.__qualname__.isidentifier():
            return _Named(function.__name__)  # a decorator runs before the name is bound
        return _Held(function)
    if inspect.ismethod(function):
        owner = _name_of(function.__self__, namespace)
        return _Method(owner, function.__name__) if owner else _Held(function)
    name = _name_of(function, namespace)
    return _Named(name) if name else _Held(function)


def _name_of(value: Any, namespace: Mapping[str, Any]) -> str | None:
    """Return the name the user gave an object; IPython's own, such as ``_``, come and go."""
    names = (name for name, known in tuple(namespace.items()) if known is value)
    return next((name for name in names if not name.startswith("_")), None)


def _identity(function: Callable[..., Any]) -> tuple[str, str]:
    """Return what stays the same when a cell is run again."""
    target = innermost(function)
    return getattr(target, "__module__", ""), getattr(target, "__qualname__", "")


def _marks(function: Callable[..., Any]) -> tuple[Any, ...]:
    """Return everything a schema is made from; autoreload replaces it inside the same function."""
    target = innermost(function)
    hints = getattr(target, "__annotations__", None) or {}
    defaults = getattr(target, "__kwdefaults__", None) or {}
    scope = getattr(target, "__globals__", {})
    quoted = " ".join(each for each in hints.values() if isinstance(each, str))
    return (
        function,
        getattr(target, "__code__", None),
        function.__doc__,
        getattr(target, "__defaults__", None),
        *hints.values(),
        *defaults.values(),
        *(scope.get(name) for name in _WORD.findall(quoted)),  # a class whose cell was run again
    )


def _same(before: tuple[Any, ...], now: tuple[Any, ...]) -> bool:
    """Compare by identity: a default may be an array, whose ``==`` is no answer."""
    return len(before) == len(now) and all(a is b for a, b in zip(before, now, strict=True))


# --- The registry --------------------------------------------------------------------------


@dataclass(slots=True)
class _Registered:
    source: _Source
    identity: tuple[str, str]
    options: ToolOptions
    tool: AgentTool | None = None
    marks: tuple[Any, ...] = ()
    withdrawn: str = ""


@dataclass(slots=True)
class ToolRegistry:
    """Tools by name.

    Parameters
    ----------
    namespace
        Returns the notebook's variables.
    runner
        Where functions run, unless they were registered with ``thread=True``.
    formatter
        Returns what an object looks like by MIME type, as IPython's does.
    """

    namespace: Namespace = main_namespace
    runner: Runner = run_here
    formatter: Formatter | None = None
    _known: dict[str, _Registered] = field(default_factory=dict)
    _changes: list[ToolChange] = field(default_factory=list)

    def add(self, function: Callable[..., Any], **options: Any) -> AgentTool | None:
        """Register a function; when its cell is run again it replaces what it was.

        Returns
        -------
        AgentTool or None
            ``None`` while an annotation names a class that the notebook has not defined yet: the
            function joins when it has.

        Raises
        ------
        InvalidParametersError
            It cannot be a tool, or its name is another function's.
        """
        chosen = ToolOptions(**options)
        name = tool_name(function, chosen.name)
        namespace = self.namespace()
        self._refuse_taken(name, function, namespace)
        known = _Registered(_source_of(function, namespace), _identity(function), chosen)
        try:
            self._build(known, name, function)
        except UnresolvedAnnotationError:
            if known.identity[0] != "__main__":
                raise
        if name not in self._known:
            self._changes.append(ToolChange("added", name))
        self._known[name] = known
        return known.tool

    def remove(self, name: str) -> None:
        """Withdraw a tool."""
        if self._known.pop(name, None) is not None:
            self._changes.append(ToolChange("withdrawn", name, "it was removed"))

    def active(self) -> dict[str, AgentTool]:
        """Return the tools of this moment; called before each request."""
        return dict(self._present(self.namespace()))

    def changes(self) -> list[ToolChange]:
        """Return what has changed since this was last called."""
        changes, self._changes = self._changes, []
        return changes

    def _present(self, namespace: Mapping[str, Any]) -> Iterator[tuple[str, AgentTool]]:
        for name, known in tuple(self._known.items()):
            function = known.source.find(namespace)
            if not callable(function):
                self._known.pop(name, None)
                self._changes.append(ToolChange("withdrawn", name, "it is defined no more"))
                continue
            try:
                tool = self._build(known, name, function)
            except InvalidParametersError as error:
                self._withdraw(known, name, error.message)
            else:
                yield name, tool

    def _withdraw(self, known: _Registered, name: str, reason: str) -> None:
        """Say once why a function cannot be a tool as it is now."""
        if known.withdrawn != reason:
            known.withdrawn = reason
            self._changes.append(ToolChange("withdrawn", name, reason))

    def _build(self, known: _Registered, name: str, function: Callable[..., Any]) -> AgentTool:
        """Return the function's tool, made again if the function, or where it runs, has changed."""
        options = known.options
        runner = run_here if options.thread else self.runner
        marks = (*_marks(function), runner, self.namespace, self.formatter)
        before = known.tool
        if before is not None and _same(known.marks, marks) and not known.withdrawn:
            return before
        known.tool = tool = tool_from_function(
            function,
            name=name,
            description=options.description,
            ask=options.ask,
            sequential=options.sequential,
            timeout=options.timeout,
            runner=runner,
            namespace=self.namespace,
            formatter=self.formatter,
        )
        known.marks, known.withdrawn = marks, ""
        if before is not None and _said(before) != _said(tool):
            self._changes.append(ToolChange("changed", name))
        return tool

    def _refuse_taken(
        self, name: str, function: Callable[..., Any], namespace: Mapping[str, Any]
    ) -> None:
        """One name is one function: another may have it when the first is gone."""
        known = self._known.get(name)
        if known is None or known.identity == _identity(function):
            return
        if not callable(known.source.find(namespace)):
            return
        module, qualname = known.identity
        raise InvalidParametersError(
            f"There is a tool {name!r} already: {qualname} of {module}.",
            hint='Give this one another name with name="…", or delete the other function.',
        )


def _said(tool: AgentTool) -> tuple[str, Any]:
    return tool.description, tool.parameters


registry = ToolRegistry()
