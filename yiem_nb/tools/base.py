"""The tool contract and the checks every call passes (SPEC-1.3, 3.1, 3.2, 8.2, SP-023, SP-024)."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from yiem_nb.errors import ErrorCode, InvalidParametersError
from yiem_nb.events import AbortSignal
from yiem_nb.messages import AgentToolCall, AgentToolResult

__all__ = [
    "EXECUTION_PARALLEL",
    "EXECUTION_SEQUENTIAL",
    "MAX_NAME_LENGTH",
    "AgentTool",
    "Execute",
    "OnUpdate",
    "ToolExecutionMode",
    "error_result",
    "validate_required_args",
    "validate_tool_arguments",
]

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
MAX_NAME_LENGTH = 64


class ToolExecutionMode(StrEnum):
    """Whether the calls of one message may overlap (SPEC-1.3)."""

    SEQUENTIAL = "sequential"
    PARALLEL = "parallel"


EXECUTION_SEQUENTIAL = ToolExecutionMode.SEQUENTIAL
EXECUTION_PARALLEL = ToolExecutionMode.PARALLEL

OnUpdate: TypeAlias = Callable[[AgentToolResult], None]
Execute: TypeAlias = Callable[
    [str, dict[str, Any], AbortSignal, OnUpdate], AgentToolResult | Awaitable[AgentToolResult]
]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTool:
    """A tool as the loop sees it (SPEC-3.1).

    Parameters
    ----------
    name
        What the model calls it; ``^[a-zA-Z_][a-zA-Z0-9_]*$`` (SPEC-8.2), at most 64 characters,
        which is where providers stop.
    label
        What people read; the name where none is given.
    description
        What it does; never empty (SPEC-8.2).
    parameters
        JSON Schema of the arguments, an object (SP-016's ``inputSchema``).
    execute
        ``execute(tool_call_id, arguments, signal, on_update)``, plain or async, returns an
        `AgentToolResult` (SPEC-3.2). It may raise: the model then sees an error result. Once
        `signal` fires it should return soon; what it returns late is dropped.
    prepare_arguments
        Mends the model's arguments before they are checked.
    execution_mode
        ``SEQUENTIAL`` makes this tool run alone, earlier calls first; ``None`` leaves it to
        the run.
    validate_required_args
        Replaces the default check: ``(arguments) -> str | None``, the text of the complaint
        (SP-024).
    asks
        Whether a person is asked before a call: always, never, or where a function of the
        arguments says so.
    read_only
        It changes nothing; what was allowed for the session stays allowed whatever is read.
    untrusted
        Its description and its results hold what others wrote: a server, files, web pages.
    """

    name: str
    description: str
    execute: Execute
    label: str = ""
    parameters: dict[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    prepare_arguments: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    execution_mode: ToolExecutionMode | None = None
    validate_required_args: Callable[[dict[str, Any]], str | None] | None = None
    asks: bool | Callable[[Mapping[str, Any]], bool] = False
    read_only: bool = False
    untrusted: bool = False

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or len(self.name) > MAX_NAME_LENGTH:
            raise InvalidParametersError(
                f"{self.name!r} is no name for a tool.",
                hint="Use letters, digits and _, not starting with a digit, at most 64 characters.",
            )
        if not self.description.strip():
            raise InvalidParametersError(
                f"The tool {self.name!r} has no description.",
                hint="Say in one sentence what it does; the model chooses by it.",
            )
        if not self.label:
            object.__setattr__(self, "label", self.name)


def validate_required_args(args: Mapping[str, Any], input_schema: Mapping[str, Any]) -> str | None:
    """Name the required arguments that are missing, or return ``None`` (SP-023)."""
    missing = [name for name in input_schema.get("required") or () if name not in args]
    return f"Missing required arguments: {', '.join(missing)}" if missing else None


def validate_tool_arguments(tool: AgentTool, call: AgentToolCall) -> dict[str, Any]:
    """Return the call's arguments if they pass the tool's check (SP-024).

    Raises
    ------
    InvalidParametersError
        With the complaint as its message; also a `ValueError`.
    """
    if tool.validate_required_args is not None:
        complaint = tool.validate_required_args(call.arguments)
    else:
        complaint = validate_required_args(call.arguments, tool.parameters)
    if complaint is not None:
        raise InvalidParametersError(complaint)
    return call.arguments


def error_result(text: str, code: ErrorCode) -> AgentToolResult:
    """Build the result the model sees when a call fails; the code stands in the details."""
    return AgentToolResult(text, details={"code": str(code)}, is_error=True)
