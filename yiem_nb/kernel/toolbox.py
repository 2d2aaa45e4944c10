"""``%yiem tools``: what the model may call, on whose leave, and what a call would come to."""

from __future__ import annotations

import json
import textwrap
import time
from collections.abc import Sequence
from typing import Any

from yiem_nb.errors import InvalidParametersError, ToolNotFoundError
from yiem_nb.messages import AgentToolCall
from yiem_nb.render.text import visible
from yiem_nb.tools import (
    AgentTool,
    FunctionExecute,
    Leave,
    Rule,
    ToolExecutionMode,
    ToolRegistry,
    bounded_repr,
    validate_tool_arguments,
)

__all__ = ["Toolbox"]

_SHOWN = 2_000


class Toolbox:
    """The commands about tools, each as the text it answers with.

    Parameters
    ----------
    registry
        The kernel's.
    """

    def __init__(self, registry: ToolRegistry) -> None:
        self._registry = registry

    def listed(self) -> str:
        """List the tools, those that are switched off last."""
        registry = self._registry
        on, every = registry.active(), registry.all()
        lines = [self._line(tool) for tool in on.values()]
        if not lines:
            lines.append("No tools. Put @yiem.tool above a function to let the model call it.")
        if off := [name for name in every if name not in on]:
            lines.append(f"off: {', '.join(off)}  (%yiem tools on NAME)")
        return "\n".join(lines)

    def _line(self, tool: AgentTool) -> str:
        parameters = ", ".join(tool.parameters.get("properties", {}))
        first = visible(tool.description.strip().splitlines()[0])
        leave = self._leave(tool)
        said = "" if leave is Leave.AUTO else f"  ({_LEAVES[leave]})"
        return f"{tool.name}({visible(parameters)})  {first}{said}"

    def _leave(self, tool: AgentTool) -> Leave:
        """Say what most calls of a tool need; arguments may matter."""
        return self._registry.policy.rule_for(tool, {}).leave

    def switched(self, names: Sequence[str], *, on: bool) -> str:
        """Switch tools on or off; all of them exist, or none is switched."""
        for name in names:
            self._found(name)
        for name in names:
            self._registry.switch(name, on=on)
        return f"{', '.join(names)}: {'on' if on else 'off'}\n{self.listed()}"

    def ruled(self, leave: str, names: Sequence[str]) -> str:
        """Make a rule for tools, by name or by a pattern that ends in ``*``."""
        for name in names:
            if not name.endswith("*"):
                self._found(name)
        registry = self._registry
        for name in names:
            registry.policy = registry.policy.with_rule(Rule(Leave(leave), name))
        return f"{', '.join(names)}: {_LEAVES[Leave(leave)]}, until this kernel ends"

    def shown(self, name: str) -> str:
        """Show a tool as the model is told of it, and what we know beside."""
        tool = self._found(name)
        state = "on" if name in self._registry.active() else "off"
        facts = [state, *self._facts(tool)]
        schema = json.dumps(tool.parameters, indent=1, ensure_ascii=False, default=repr)
        described = textwrap.indent(visible(tool.description.strip()), "  ")
        return f"{name}: {' · '.join(facts)}\n{described}\n{textwrap.indent(visible(schema), '  ')}"

    def _facts(self, tool: AgentTool) -> list[str]:
        execute = tool.execute
        facts = [_LEAVES[self._leave(tool)]]
        if callable(tool.asks):
            facts.append("depending on the arguments")
        if tool.execution_mode is ToolExecutionMode.SEQUENTIAL:
            facts.append("runs alone")
        if tool.read_only:
            facts.append("changes nothing")
        if tool.untrusted:
            facts.append("brings in what others wrote")
        if isinstance(execute, FunctionExecute) and execute.timeout is not None:
            facts.append(f"at most {execute.timeout:g} s")
        return facts

    def tried(self, name: str, arguments: str) -> str:
        """Say what a call would come to: the arguments as the function gets them, and the policy.

        Raises
        ------
        InvalidParametersError
            What the model would be told.
        """
        tool = self._found(name)
        given = _as_call(tool, arguments)
        shown = _received(tool, given)
        lines = [f"{name}, called with:"]
        lines += [f"  {key} = {visible(text)}" for key, text in shown.items()] or ["  nothing"]
        leave = self._registry.policy.rule_for(tool, given).leave
        lines.append(f"{' · '.join([_LEAVES[leave], *self._facts(tool)[1:]])} · not called")
        return "\n".join(lines)

    def running(self) -> str:
        """List the calls that were given up and still run: threads cannot be stopped from outside."""
        left = self._registry.calls.left
        now = time.monotonic()
        return (
            "\n".join(
                f"{call.tool_name}: running for {now - call.started:.0f} s, given up ({call.given_up})"
                for call in left
            )
            or "Nothing that was given up is still running."
        )

    def _found(self, name: str) -> AgentTool:
        every = self._registry.all()
        if name not in every:
            known = ", ".join(every) or "none"
            raise ToolNotFoundError(f"There is no tool {name}.", hint=f"There are: {known}.")
        return every[name]


_LEAVES = {Leave.AUTO: "runs without asking", Leave.ASK: "asks first", Leave.DENY: "is not allowed"}


def _as_call(tool: AgentTool, text: str) -> dict[str, Any]:
    """Read arguments, and check them as a model's are checked."""
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidParametersError(
            f"The arguments are no JSON: {error}.",
            hint=f'Write %yiem tools test {tool.name} {{"name": value}}',
        ) from None
    if not isinstance(arguments, dict):
        raise InvalidParametersError(
            f"The arguments are a JSON {type(arguments).__name__}, not an object.",
            hint=f'Write %yiem tools test {tool.name} {{"name": value}}',
        )
    if tool.prepare_arguments is not None:
        arguments = tool.prepare_arguments(arguments)
    return validate_tool_arguments(tool, AgentToolCall("trial", tool.name, arguments))


def _received(tool: AgentTool, arguments: dict[str, Any]) -> dict[str, str]:
    execute = tool.execute
    values = execute.dry_run(arguments) if isinstance(execute, FunctionExecute) else arguments
    return {
        name: f"{bounded_repr(value)[:_SHOWN]}  ({type(value).__name__})"
        for name, value in values.items()
    }
