"""An LLM agent that lives in the notebook's own kernel.

In a notebook::

    import yiem_nb as yiem
    %load_ext yiem_nb
    %yiem model local

    %%yiem
    What is a residual?

The names below are the front door. Each is resolved on first use, because pydantic alone costs more
than everything that ``%load_ext`` does.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from yiem_nb.agent import Agent as Agent
    from yiem_nb.agent import AgentOptions as AgentOptions
    from yiem_nb.errors import ErrorCode as ErrorCode
    from yiem_nb.errors import YiemError as YiemError
    from yiem_nb.events import AbortSignal as AbortSignal
    from yiem_nb.events import AgentEvent as AgentEvent
    from yiem_nb.magics import ask as ask
    from yiem_nb.magics import chat as chat
    from yiem_nb.magics import load_ipython_extension as load_ipython_extension
    from yiem_nb.magics import prompt as prompt
    from yiem_nb.magics import unload_ipython_extension as unload_ipython_extension
    from yiem_nb.magics import use as use
    from yiem_nb.messages import AgentToolResult as AgentToolResult
    from yiem_nb.messages import AssistantMessage as AssistantMessage
    from yiem_nb.messages import ImageContent as ImageContent
    from yiem_nb.messages import TextContent as TextContent
    from yiem_nb.messages import ToolResultMessage as ToolResultMessage
    from yiem_nb.messages import UserMessage as UserMessage
    from yiem_nb.models import Limits as Limits
    from yiem_nb.models import Model as Model
    from yiem_nb.models import ThinkingLevel as ThinkingLevel
    from yiem_nb.providers import ScriptedProvider as ScriptedProvider
    from yiem_nb.session import JsonlSessionStorage as JsonlSessionStorage
    from yiem_nb.session import SessionStats as SessionStats
    from yiem_nb.state import AgentState as AgentState
    from yiem_nb.tools import AgentTool as AgentTool
    from yiem_nb.tools import OnUpdate as OnUpdate
    from yiem_nb.tools import ToolContext as ToolContext
    from yiem_nb.tools import Var as Var
    from yiem_nb.tools import tool as tool

_ROOMS = {
    "agent": ("Agent", "AgentOptions"),
    "errors": ("ErrorCode", "YiemError"),
    "events": ("AbortSignal", "AgentEvent"),
    "magics": (
        "ask",
        "chat",
        "load_ipython_extension",
        "prompt",
        "unload_ipython_extension",
        "use",
    ),
    "messages": (
        "AgentToolResult",
        "AssistantMessage",
        "ImageContent",
        "TextContent",
        "ToolResultMessage",
        "UserMessage",
    ),
    "models": ("Limits", "Model", "ThinkingLevel"),
    "providers": ("ScriptedProvider",),
    "session": ("JsonlSessionStorage", "SessionStats"),
    "state": ("AgentState",),
    "tools": ("AgentTool", "OnUpdate", "ToolContext", "Var", "tool"),
}
_HOME = {name: room for room, names in _ROOMS.items() for name in names}

__all__ = ["__version__", *_HOME]  # noqa: PLE0604 - a tuple of literals, two lines above


def __getattr__(name: str) -> Any:
    room = _HOME.get(name)
    if room is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{room}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
