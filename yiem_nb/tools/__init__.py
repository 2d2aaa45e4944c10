"""Tools: the contract, functions as tools, and the registry of those a model may call."""

from __future__ import annotations

from yiem_nb.tools.approval import (
    APPROVAL_ENTRY,
    ApprovalDesk,
    ApprovalRequest,
    Approver,
    Decision,
)
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
from yiem_nb.tools.context import OutputStore, SavedOutput, ToolContext, Var
from yiem_nb.tools.decorator import tool
from yiem_nb.tools.function import FunctionExecute, call_function, tool_from_function
from yiem_nb.tools.gate import Allowed, Gate, Refused, Repeats
from yiem_nb.tools.governor import Governor
from yiem_nb.tools.policy import HeadlessPolicy, Leave, Policy, Rule
from yiem_nb.tools.registry import ToolChange, ToolRegistry, registry
from yiem_nb.tools.reprs import bounded_repr
from yiem_nb.tools.results import Formatter, bundle_result, failure_result, to_result
from yiem_nb.tools.running import CallLog, FunctionKind, Outcome, Runner, outcome_of
from yiem_nb.tools.text import clipped
from yiem_nb.tools.worker import call_in_thread

__all__ = [
    "APPROVAL_ENTRY",
    "EXECUTION_PARALLEL",
    "EXECUTION_SEQUENTIAL",
    "AgentTool",
    "Allowed",
    "ApprovalDesk",
    "ApprovalRequest",
    "Approver",
    "CallLog",
    "Decision",
    "Formatter",
    "FunctionExecute",
    "FunctionKind",
    "Gate",
    "Governor",
    "HeadlessPolicy",
    "Leave",
    "OnUpdate",
    "Outcome",
    "OutputStore",
    "Policy",
    "Refused",
    "Repeats",
    "Rule",
    "Runner",
    "SavedOutput",
    "ToolChange",
    "ToolContext",
    "ToolExecutionMode",
    "ToolRegistry",
    "Var",
    "bounded_repr",
    "bundle_result",
    "call_function",
    "call_in_thread",
    "clipped",
    "error_result",
    "failure_result",
    "outcome_of",
    "registry",
    "to_result",
    "tool",
    "tool_from_function",
    "validate_required_args",
    "validate_tool_arguments",
]
