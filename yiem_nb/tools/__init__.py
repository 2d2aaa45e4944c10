"""Tools: the contract, Python functions as tools, and (later) registry and policy."""

from __future__ import annotations

from yiem_nb.tools.base import (
    EXECUTION_PARALLEL,
    EXECUTION_SEQUENTIAL,
    AgentTool,
    OnUpdate,
    ToolExecutionMode,
    error_result,
    validate_required_args,
    validate_tool_arguments,
)
from yiem_nb.tools.worker import call_in_thread

__all__ = [
    "EXECUTION_PARALLEL",
    "EXECUTION_SEQUENTIAL",
    "AgentTool",
    "OnUpdate",
    "ToolExecutionMode",
    "call_in_thread",
    "error_result",
    "validate_required_args",
    "validate_tool_arguments",
]
