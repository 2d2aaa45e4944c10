"""Tools for the kernel itself: run code, list the variables, look at one (off until switched on).

``python`` asks before each call. The other two only look: they call no code of the user's that could be
slow or raise without a guard, and names that say they hold a secret are never shown.
"""

from __future__ import annotations

import inspect as inspecting
import re
import sys
import types
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any

from yiem_nb.errors import InvalidParametersError, redact
from yiem_nb.kernel.user_code import CodeOutcome, UserCode
from yiem_nb.messages import AgentToolResult, ImageContent, MessageContent, TextContent
from yiem_nb.tools import (
    AgentTool,
    ToolRegistry,
    bundle_result,
    failure_result,
    to_result,
    tool_from_function,
)

__all__ = ["BUILT_IN", "provide_kernel_tools"]

BUILT_IN = ("python", "variables", "inspect")

MAX_VARIABLES = 200
_MAX_DOC = 4_000
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL", re.IGNORECASE)
#: Their length is known without running anybody's code.
_SIZED = (str, bytes, bytearray, list, tuple, dict, set, frozenset, range)
#: Libraries whose ``shape`` is a plain fact.
_SHAPED = ("numpy", "pandas", "polars", "torch", "jax", "tensorflow", "scipy", "xarray")


def provide_kernel_tools(registry: ToolRegistry, code: UserCode) -> None:
    """Add the built-in tools to `registry`, switched off."""
    tools = _KernelTools(registry, code)
    for name, make in (
        ("python", partial(tool_from_function, ask=True, sequential=True, untrusted=True)),
        ("variables", partial(tool_from_function, read_only=True)),
        ("inspect", partial(tool_from_function, read_only=True, untrusted=True)),
    ):
        if name not in registry.names():  # the user's own function of the name comes first
            tool = _with_registry(registry, make, getattr(tools, name), name)
            registry.provide(tool, on=False)


def _with_registry(
    registry: ToolRegistry, make: Callable[..., AgentTool], function: Callable[..., Any], name: str
) -> AgentTool:
    """Make a tool that runs, and is described, as functions of the notebook are."""
    return make(
        function,
        name=name,
        runner=registry.runner,
        namespace=registry.namespace,
        formatter=registry.formatter,
        calls=registry.calls,
    )


class _KernelTools:
    """The three functions, with what they work on."""

    def __init__(self, registry: ToolRegistry, code: UserCode) -> None:
        self._registry = registry
        self._code = code

    # Descriptions stand in the annotations: a section of a docstring would load its parser.

    def python(self, code: Annotated[str, "The code, as in a notebook cell."]) -> AgentToolResult:
        """Run Python code in the notebook's kernel, on its variables.

        What it assigns stays. You get what it prints and displays, and the value of its last expression.
        """
        values: list[AgentToolResult] = []
        describe = partial(to_result, format=self._registry.formatter, store=self._registry.store)
        with self._registry.distrusting():
            outcome = self._code.run(code, lambda value: values.append(describe(value)))
        return _code_result(outcome, values)

    def variables(self) -> str:
        """List the notebook's variables: names, types and sizes, no values."""
        found = [
            (name, value)
            for name, value in sorted(self._registry.namespace().items())
            if _is_variable(name, value)
        ]
        lines = [f"{name}: {_kind(value)}" for name, value in found[:MAX_VARIABLES]]
        if len(found) > MAX_VARIABLES:
            lines.append(f"… {len(found) - MAX_VARIABLES:,} more")
        return redact("\n".join(lines)) or "There are no variables yet."

    def inspect(
        self, name: Annotated[str, "A variable's name, or a path such as pd.DataFrame.merge."]
    ) -> AgentToolResult:
        """Look at one object: its type, its signature and documentation, and the head of its value."""
        value = _found(self._registry.namespace(), name)
        lines = [f"{name}: {_kind(value)}"]
        if any(_SECRET.search(part) for part in name.split(".")):
            return AgentToolResult(
                f"{lines[0]}\n(its value is not shown: its name says it is a secret)"
            )
        if callable(value) or isinstance(value, types.ModuleType):
            return AgentToolResult(redact("\n".join([*lines, *_documented(value)])))
        shown = to_result(value, format=self._registry.formatter)
        content = tuple(_redacted(block) for block in shown.content)
        return shown.model_copy(update={"content": (TextContent(lines[0]), *content)})


# --- python --------------------------------------------------------------------------------


def _code_result(outcome: CodeOutcome, values: list[AgentToolResult]) -> AgentToolResult:
    shown = [*map(bundle_result, outcome.displays), *values]
    content: list[MessageContent] = [block for each in shown for block in each.content]
    if outcome.dropped:
        content.append(TextContent(f"({outcome.dropped:,} more displays are left out)"))
    details: dict[str, Any] = {"names": outcome.names.record} if outcome.names.record else {}
    for each in shown:
        details |= {"saved": saved} if (saved := (each.details or {}).get("saved")) else {}
    if outcome.error is not None:
        failed = failure_result(outcome.error)
        return failed.model_copy(
            update={
                "content": (*content, *failed.content),
                "details": {**details, **(failed.details or {})},
            }
        )
    details["summary"] = _summary(outcome, values)
    if not any(isinstance(block, TextContent) for block in content):
        said = str(outcome.names) or "(no output)"
        content.insert(0, TextContent(said))
    return AgentToolResult(content, details=details)


def _summary(outcome: CodeOutcome, values: list[AgentToolResult]) -> str:
    if values:
        return str((values[-1].details or {}).get("summary", ""))
    return str(outcome.names)


# --- variables and inspect -----------------------------------------------------------------


def _is_variable(name: str, value: Any) -> bool:
    if name.startswith("_") or name in ("In", "Out", "exit", "quit", "get_ipython", "open"):
        return False
    return not issubclass(type(value), types.ModuleType)


def _kind(value: Any) -> str:
    """Say what a value is, and how large, without running its code."""
    # `isinstance` would ask the object, whose ``__class__`` may be code.
    kind = type(value)
    if issubclass(kind, type):
        return "class"
    if issubclass(kind, types.FunctionType | types.BuiltinFunctionType | types.MethodType):
        return "function"
    if issubclass(kind, types.ModuleType):
        return "module"
    if kind in _SIZED:
        return f"{kind.__name__} of {len(value):,}"
    if kind.__module__.partition(".")[0] in _SHAPED and kind.__module__ in sys.modules:
        shape = getattr(value, "shape", None)
        if type(shape) is tuple and all(type(size) is int for size in shape):
            dtype = getattr(value, "dtype", None)
            of = f" {dtype}" if type(dtype).__module__.startswith("numpy") else ""
            return f"{kind.__name__}{of} {' x '.join(map(str, shape)) or 'scalar'}"
    return kind.__name__


def _found(namespace: Mapping[str, Any], path: str) -> Any:
    """Follow a dotted path; only modules and classes are asked, so that no property runs."""
    first, *rest = path.strip().split(".")
    if first not in namespace:
        near = ", ".join(name for name in namespace if not name.startswith("_"))[:300]
        raise InvalidParametersError(f"There is no variable {first!r}.", hint=f"There are: {near}.")
    value = namespace[first]
    for name in rest:
        missing = object()
        found = inspecting.getattr_static(value, name, missing)
        if found is missing or isinstance(found, property | types.GetSetDescriptorType):
            raise InvalidParametersError(
                f"{path!r} cannot be looked at: {name!r} is no plain attribute.",
                hint="Look at the variable itself, or run code.",
            )
        value = found.__func__ if isinstance(found, staticmethod | classmethod) else found
    return value


def _documented(value: Any) -> list[str]:
    try:
        signature = str(inspecting.signature(value))[:_MAX_DOC]
    except Exception:  # noqa: BLE001 - builtins have none, and others raise what they like
        signature = ""
    doc = getattr(value, "__doc__", None)
    text = inspecting.cleandoc(doc)[:_MAX_DOC] if isinstance(doc, str) else "(no documentation)"
    return [line for line in (signature, text) if line]


def _redacted(block: MessageContent) -> MessageContent:
    if isinstance(block, ImageContent) or not isinstance(block, TextContent):
        return block
    return TextContent(redact(block.text))
