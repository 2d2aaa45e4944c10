"""Every failure a user can meet, as one tree.

::

    YiemError                      code, message, next step
    ├── AgentError                 the caller asked for something the agent cannot do now
    │   ├── AgentBusyError         AGENT_BUSY
    │   ├── InvalidMessageRoleError  INVALID_MESSAGE_ROLE
    │   ├── SessionNotFoundError   AGENT_NOT_FOUND
    │   ├── RateLimitedError       RATE_LIMITED
    │   ├── BudgetError            BUDGET_EXCEEDED: a request that might cost more than may be spent
    │   └── CompactionError        COMPACTION_FAILED
    ├── ToolError                  a tool, its definition or its arguments
    │   ├── ToolNotFoundError      TOOL_NOT_FOUND
    │   ├── ToolNotSupportedError  TOOL_NOT_SUPPORTED
    │   ├── ToolTimeoutError       EXECUTION_TIMEOUT
    │   ├── ToolAbortedError       EXECUTION_ABORTED
    │   └── InvalidParametersError INVALID_PARAMETERS (also a ValueError)
    ├── ProviderError              the other side is at fault: PROVIDER_*
    │   └── OutputError            PROVIDER_OUTPUT: an answer of another form than was asked for
    ├── SessionError               the session file: SESSION_*
    └── CommandError               what was typed cannot be understood: COMMAND_INVALID

An error says its cause in one sentence and the next step in another; a notebook shows those
two lines and no traceback (`_render_traceback_` is IPython's own hook for that).
"""

from __future__ import annotations

import base64
import json
import os
import re
from enum import StrEnum
from functools import lru_cache
from urllib.parse import quote

__all__ = [
    "AgentBusyError",
    "AgentError",
    "BudgetError",
    "CommandError",
    "CompactionError",
    "ErrorCode",
    "InvalidMessageRoleError",
    "InvalidParametersError",
    "OutputError",
    "ProviderError",
    "RateLimitedError",
    "SessionError",
    "SessionNotFoundError",
    "ToolAbortedError",
    "ToolError",
    "ToolNotFoundError",
    "ToolNotSupportedError",
    "ToolTimeoutError",
    "YiemError",
    "keep_secret",
    "redact",
]


class ErrorCode(StrEnum):
    """What went wrong, for programs (SPEC-7.1, SPEC-7.2 and our own)."""

    AGENT_BUSY = "AGENT_BUSY"
    INVALID_MESSAGE_ROLE = "INVALID_MESSAGE_ROLE"
    AGENT_NOT_FOUND = "AGENT_NOT_FOUND"
    RATE_LIMITED = "RATE_LIMITED"
    BUDGET_EXCEEDED = "BUDGET_EXCEEDED"
    COMPACTION_FAILED = "COMPACTION_FAILED"

    TOOL_NOT_FOUND = "TOOL_NOT_FOUND"
    EXECUTION_TIMEOUT = "EXECUTION_TIMEOUT"
    EXECUTION_ABORTED = "EXECUTION_ABORTED"
    EXECUTION_FAILED = "EXECUTION_FAILED"
    EXECUTION_DENIED = "EXECUTION_DENIED"
    TOOL_NOT_SUPPORTED = "TOOL_NOT_SUPPORTED"
    INVALID_PARAMETERS = "INVALID_PARAMETERS"

    PROVIDER_NOT_CHOSEN = "PROVIDER_NOT_CHOSEN"
    PROVIDER_CONFIG = "PROVIDER_CONFIG"
    PROVIDER_AUTH = "PROVIDER_AUTH"
    PROVIDER_NOT_FOUND = "PROVIDER_NOT_FOUND"
    PROVIDER_REJECTED = "PROVIDER_REJECTED"
    PROVIDER_OVERFLOW = "PROVIDER_OVERFLOW"
    PROVIDER_RATE_LIMITED = "PROVIDER_RATE_LIMITED"
    PROVIDER_UNREACHABLE = "PROVIDER_UNREACHABLE"
    PROVIDER_TIMEOUT = "PROVIDER_TIMEOUT"
    PROVIDER_UNAVAILABLE = "PROVIDER_UNAVAILABLE"
    PROVIDER_RESPONSE = "PROVIDER_RESPONSE"
    PROVIDER_INCOMPLETE = "PROVIDER_INCOMPLETE"
    PROVIDER_EMPTY = "PROVIDER_EMPTY"
    PROVIDER_FILTERED = "PROVIDER_FILTERED"
    PROVIDER_LOCAL = "PROVIDER_LOCAL"
    PROVIDER_OUTPUT = "PROVIDER_OUTPUT"

    SESSION_UNREADABLE = "SESSION_UNREADABLE"
    SESSION_ENTRY = "SESSION_ENTRY"
    SESSION_STORAGE = "SESSION_STORAGE"
    SESSION_READ_ONLY = "SESSION_READ_ONLY"
    SESSION_VERSION = "SESSION_VERSION"
    SESSION_BUSY = "SESSION_BUSY"

    COMMAND_INVALID = "COMMAND_INVALID"
    PROMPT_EMPTY = "PROMPT_EMPTY"
    KERNEL_UNAVAILABLE = "KERNEL_UNAVAILABLE"
    INTERNAL = "INTERNAL"


class YiemError(Exception):
    """A failure with a code, a sentence and a next step.

    Parameters
    ----------
    message
        One sentence that names the cause.
    hint
        What to do next; shown behind an arrow. Empty when there is nothing to do.
    code
        Overrides the class's own code.
    """

    code: ErrorCode = ErrorCode.INTERNAL

    def __init__(self, message: str, *, hint: str = "", code: ErrorCode | None = None) -> None:
        self.message = redact(message)
        self.hint = redact(hint)
        if code is not None:
            self.code = code
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message} → {self.hint}" if self.hint else self.message

    def _render_traceback_(self) -> list[str]:
        """Two lines instead of thirty: IPython calls this for an uncaught error."""
        return [f"✕ {self}", f"  [{self.code}]"]


class AgentError(YiemError):
    """The caller asked for something the agent cannot do in its present state."""


class AgentBusyError(AgentError):
    """A prompt, continuation or reset while a run is under way (SPEC-7.1)."""

    code = ErrorCode.AGENT_BUSY


class InvalidMessageRoleError(AgentError):
    """A message, or the last one of the history, has the wrong role for this call (SPEC-7.1)."""

    code = ErrorCode.INVALID_MESSAGE_ROLE


class SessionNotFoundError(AgentError):
    """A session that is not there (SPEC-7.1: AGENT_NOT_FOUND)."""

    code = ErrorCode.AGENT_NOT_FOUND


class RateLimitedError(AgentError):
    """One of our own limits was reached (SPEC-9.1); the hint says how to raise it."""

    code = ErrorCode.RATE_LIMITED


class CompactionError(AgentError):
    """A summary could not be made; the conversation is as it was."""

    code = ErrorCode.COMPACTION_FAILED


class BudgetError(AgentError):
    """A request might cost more than may be spent; it was not sent."""

    code = ErrorCode.BUDGET_EXCEEDED


class ToolError(YiemError):
    """A tool failed before, while or after it ran."""

    code = ErrorCode.EXECUTION_FAILED


class ToolNotFoundError(ToolError):
    """The model called a name nobody registered (SPEC-7.1)."""

    code = ErrorCode.TOOL_NOT_FOUND


class ToolNotSupportedError(ToolError):
    """The tool exists but is switched off or was withdrawn (SPEC-7.2)."""

    code = ErrorCode.TOOL_NOT_SUPPORTED


class ToolTimeoutError(ToolError):
    """The tool ran longer than it may (SPEC-7.2)."""

    code = ErrorCode.EXECUTION_TIMEOUT


class ToolAbortedError(ToolError):
    """The run was stopped while, or before, the tool ran (SPEC-7.2)."""

    code = ErrorCode.EXECUTION_ABORTED


class InvalidParametersError(ToolError, ValueError):
    """Arguments that do not fit, or a function whose signature cannot become a tool.

    Also a `ValueError`, which is what SP-024 asks for (its `ArgumentError`).
    """

    code = ErrorCode.INVALID_PARAMETERS


class ProviderError(YiemError):
    """The provider, its server or the way there is at fault.

    Attributes
    ----------
    status
        HTTP status, where there was one.
    retryable
        Whether the same request may succeed later.
    retry_after
        Seconds the server asked to wait.
    attempts
        Requests in all, where fewer than usual make sense.
    """

    code = ErrorCode.PROVIDER_UNAVAILABLE

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        code: ErrorCode | None = None,
        status: int | None = None,
        retryable: bool = False,
        retry_after: float | None = None,
        attempts: int | None = None,
    ) -> None:
        super().__init__(message, hint=hint, code=code)
        self.status = status
        self.retryable = retryable
        self.retry_after = retry_after
        self.attempts = attempts


class OutputError(ProviderError):
    """An answer that is not of the form that was asked for; `text` is what it said."""

    code = ErrorCode.PROVIDER_OUTPUT

    def __init__(
        self, message: str, *, hint: str = "", code: ErrorCode | None = None, text: str = ""
    ) -> None:
        super().__init__(message, hint=hint, code=code)
        self.text = redact(text)


class SessionError(YiemError):
    """The session file cannot be read or written as asked."""

    code = ErrorCode.SESSION_STORAGE


class CommandError(YiemError):
    """What was typed cannot be understood; the hint names what is near."""

    code = ErrorCode.COMMAND_INVALID


# --- Secrets -------------------------------------------------------------------------------

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)
_SECRET_SHAPES = re.compile(
    r"sk-[A-Za-z0-9_-]{16,}|AIza[0-9A-Za-z_-]{30,}|gh[pousr]_[A-Za-z0-9]{30,}"
    r"|github_pat_[A-Za-z0-9_]{30,}|xox[abprs]-[A-Za-z0-9-]{10,}|AKIA[0-9A-Z]{16}"
    r"|gsk_[A-Za-z0-9]{30,}|hf_[A-Za-z0-9]{30,}"
)
_MIN_SECRET = 8
_loaded: dict[str, str] = {}


def keep_secret(value: str, name: str) -> None:
    """Remember a loaded key, so that `redact` finds it wherever it turns up, encoded or not."""
    if len(value) < _MIN_SECRET:
        return
    encoded = base64.b64encode(value.encode("utf-8", "surrogatepass")).decode().rstrip("=")
    for form in (value, encoded, quote(value, safe="", errors="replace"), json.dumps(value)[1:-1]):
        _loaded[form] = name


def redact(text: str) -> str:
    """Replace every known secret in `text` by ``[redacted:NAME]``.

    Known are keys that were loaded, values of environment variables whose name says so, and
    strings that have the shape of a well-known provider's key.
    """
    # The longest first: a secret may begin with another, and its rest is secret too.
    for value, name in sorted(_known_secrets().items(), key=lambda known: -len(known[0])):
        if value in text:
            text = text.replace(value, f"[redacted:{name}]")
    return _SECRET_SHAPES.sub("[redacted]", text)


def _known_secrets() -> dict[str, str]:
    # Names first: reading a variable decodes it, and this is asked for every result of a tool.
    secret = ((name, os.environ.get(name, "")) for name in os.environ if _is_secret_name(name))
    return {value: name for name, value in secret if len(value) >= _MIN_SECRET} | _loaded


@lru_cache(maxsize=4_096)
def _is_secret_name(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None
