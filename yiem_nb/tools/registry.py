"""The functions a model may call, as they are now.

A function of the notebook is kept by its name and looked up when it is needed, so a cell that is run
again replaces it, and `del` withdraws it. Its schema is made again whenever it has changed.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from yiem_nb.errors import InvalidParametersError, ToolNotFoundError
from yiem_nb.tools.base import AgentTool
from yiem_nb.tools.context import Namespace, OutputStore, main_namespace
from yiem_nb.tools.function import tool_from_function, tool_name
from yiem_nb.tools.policy import Policy, Predicate
from yiem_nb.tools.results import Formatter
from yiem_nb.tools.running import CallLog, Runner, run_here
from yiem_nb.tools.signature import UnresolvedAnnotationError, innermost

__all__ = ["ToolChange", "ToolOptions", "ToolRegistry", "registry"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOptions:
    """What `yiem.tool` was told about a function."""

    name: str | None = None
    description: str | None = None
    ask: bool | Predicate = False
    sequential: bool = False
    thread: bool = False
    timeout: float | None = None
    read_only: bool = False
    untrusted: bool = False


ChangeKind: TypeAlias = Literal["added", "changed", "withdrawn"]


@dataclass(frozen=True, slots=True)
class ToolChange:
    """Something that became of a tool since one was last asked.

    ``added`` and ``changed`` (its schema or description) hold from the next request on, with a
    reason where the user should hear of it; ``withdrawn`` says why, and is undone when the reason
    is.
    """

    kind: ChangeKind
    name: str
    reason: str = ""

    def __str__(self) -> str:
        """Say what the user should know of; empty where nothing is worth a word."""
        if self.kind == "withdrawn":
            return f"{self.name} is no longer offered to the model: {self.reason}"
        return f"{self.name}: {self.reason}" if self.reason else ""


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
    runner, thread_runner
        Where functions run, and where those do that were registered with ``thread=True``.
    formatter
        Returns what an object looks like by MIME type, as IPython's does.
    store
        Keeps the whole of results that are too long for the model.
    policy
        The user's rules about tools.

    Attributes
    ----------
    calls
        The calls that are under way, and those that were given up but run on.
    """

    namespace: Namespace = main_namespace
    runner: Runner = run_here
    thread_runner: Runner = run_here
    store: OutputStore | None = None
    policy: Policy = field(default_factory=Policy)
    calls: CallLog = field(default_factory=CallLog)
    formatter: Formatter | None = None
    _known: dict[str, _Registered] = field(default_factory=dict)
    _changes: list[ToolChange] = field(default_factory=list)
    #: Tools that are no functions of the notebook, and the names of those that are switched off.
    _provided: dict[str, AgentTool] = field(default_factory=dict)
    _off: set[str] = field(default_factory=set)

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

    def provide(self, tool: AgentTool, *, on: bool = True) -> None:
        """Add a tool that is no function of the notebook, or put it in place of the one before.

        Raises
        ------
        InvalidParametersError
            A function of the notebook has its name.
        """
        if tool.name in self._known:
            raise _taken(tool.name, self._known[tool.name])
        if tool.name not in self._provided and not on:
            self._off.add(tool.name)
        elif tool.name not in self._provided:
            self._changes.append(ToolChange("added", tool.name))
        self._provided[tool.name] = tool

    def remove(self, name: str) -> None:
        """Withdraw a tool."""
        known = self._known.pop(name, None) or self._provided.pop(name, None)
        if known is not None and name not in self._off:
            self._changes.append(ToolChange("withdrawn", name, "it was removed"))
        self._off.discard(name)

    def switch(self, name: str, *, on: bool) -> bool:
        """Offer a tool to the model, or do not; say whether that changes anything.

        Raises
        ------
        ToolNotFoundError
            There is no tool of this name.
        """
        if name not in self.names():
            known = ", ".join(sorted(self.names())) or "none"
            raise ToolNotFoundError(f"There is no tool {name}.", hint=f"There are: {known}.")
        if on == (name not in self._off):
            return False
        if on:
            self._off.discard(name)
        else:
            self._off.add(name)
        return True

    def names(self) -> set[str]:
        """Return the names of all tools, those that are switched off too."""
        return {*self._known, *self._provided}

    def active(self) -> dict[str, AgentTool]:
        """Return the tools of this moment; called before each request and after each cell."""
        return {name: tool for name, tool in self.all().items() if name not in self._off}

    def all(self) -> dict[str, AgentTool]:
        """Return every tool that could be called now, switched on or off."""
        return dict(self._present(self.namespace())) | self._provided

    @contextmanager
    def distrusting(self) -> Iterator[None]:
        """Let code of the model run: what it defines under a tool's name asks before it runs.

        The decorator is the user's leave only where the user has typed it. A cell of the user's that
        defines the function again gives the leave (reliability T22).
        """
        before = dict(self._marks_now())
        try:
            yield
        finally:
            for name, marks in self._marks_now():
                if name in before and _same(before[name], marks):
                    continue
                known = self._known[name]
                known.options, known.marks = replace(known.options, ask=True), ()
                reason = "code of the model defined it; it asks before it runs"
                kind: ChangeKind = "changed" if name in before else "added"
                self._changes.append(ToolChange(kind, name, reason))

    def _marks_now(self) -> list[tuple[str, tuple[Any, ...]]]:
        namespace = self.namespace()
        found = ((name, known.source.find(namespace)) for name, known in self._known.items())
        return [(name, _marks(function)) for name, function in found if callable(function)]

    def changes(self) -> list[ToolChange]:
        """Return what has changed since this was last called."""
        changes, self._changes = self._changes, []
        return changes

    def notices(self) -> list[str]:
        """Return what the user should hear of, in words, each once."""
        return [said for change in self.changes() if (said := str(change))]

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
        runner = self.thread_runner if options.thread else self.runner
        marks = (*_marks(function), runner, self.namespace, self.formatter, self.store)
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
            read_only=options.read_only,
            untrusted=options.untrusted,
            runner=runner,
            namespace=self.namespace,
            formatter=self.formatter,
            store=self.store,
            calls=self.calls,
        )
        known.marks, known.withdrawn = marks, ""
        if before is not None and _said(before) != _said(tool):
            self._changes.append(ToolChange("changed", name))
        return tool

    def _refuse_taken(
        self, name: str, function: Callable[..., Any], namespace: Mapping[str, Any]
    ) -> None:
        """One name is one function: another may have it when the first is gone."""
        if name in self._provided and name in self._off:
            del self._provided[name]  # a tool that nobody uses gives way
            self._off.discard(name)
        elif name in self._provided:
            raise InvalidParametersError(
                f"There is a tool {name!r} already, and it is no function of this notebook.",
                hint='Give this one another name with name="…".',
            )
        known = self._known.get(name)
        if known is None or known.identity == _identity(function):
            return
        if not callable(known.source.find(namespace)):
            return
        raise _taken(name, known)


def _taken(name: str, known: _Registered) -> InvalidParametersError:
    module, qualname = known.identity
    return InvalidParametersError(
        f"There is a tool {name!r} already: {qualname} of {module}.",
        hint='Give this one another name with name="…", or delete the other function.',
    )


def _said(tool: AgentTool) -> tuple[str, Any]:
    return tool.description, tool.parameters


registry = ToolRegistry()
