"""The gate before every call: whether it may run, must be asked about, or goes in circles.

A `Gate` belongs to a conversation. It knows what the user allowed for the session and whose words have
entered the context since: what files, tables, pages and servers say may try to use tools, so what
was allowed before they spoke is asked about again (reliability T04). Grants live in memory only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from yiem_nb.errors import ErrorCode
from yiem_nb.messages import AgentMessage, AgentToolCall, AgentToolResult, ToolResultMessage
from yiem_nb.tools.approval import ApprovalRequest, Approver, Decision
from yiem_nb.tools.base import AgentTool
from yiem_nb.tools.policy import AUTO, DENY, Policy

__all__ = ["ALLOWED", "Allowed", "Gate", "Refused", "Repeats", "Ruling"]

#: The same call with the same result is run this often less one.
SAME_CALLS = 3
#: After so many refused repetitions the run ends.
REFUSED_REPEATS = 3


@dataclass(frozen=True, slots=True)
class Allowed:
    """The call may run."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The call may not run; the model is told why."""

    reason: str
    code: ErrorCode = ErrorCode.EXECUTION_DENIED


ALLOWED = Allowed()
Ruling: TypeAlias = Allowed | Refused | ApprovalRequest


@dataclass(frozen=True, slots=True)
class _Voice:
    """Untrusted text in the context: where it is from, and of which tool, if of one."""

    source: str
    tool: str = ""
    #: Whether it is what others wrote, not what the tool itself says.
    foreign: bool = False

    def speaks_against(self, tool: AgentTool) -> bool:
        """Whether it may have talked the model into calling `tool`.

        What a tool itself returns, or says about itself, is part of what was allowed, unless it
        brings in what others wrote.
        """
        return self.foreign or self.tool != tool.name


@dataclass(slots=True)
class Gate:
    """Decides about each call.

    Parameters
    ----------
    policy
        The user's rules.
    approver
        Asks the user; ``None`` where nobody can be asked.

    Notes
    -----
    Used from one thread at a time: the run's.
    """

    policy: Policy = field(default_factory=Policy)
    approver: Approver | None = None
    _grants: dict[str, AgentTool] = field(default_factory=dict)
    #: A dictionary for its order.
    _heard: dict[_Voice, None] = field(default_factory=dict)

    # --- Whose words are in the context ------------------------------------------------

    @property
    def heard(self) -> tuple[str, ...]:
        """Where text that nobody here wrote has come from, oldest first."""
        return tuple(voice.source for voice in self._heard)

    def hear(self, source: str) -> None:
        """Note that the context holds untrusted text, and where it is from."""
        self._heard.setdefault(_Voice(source))

    def offered(self, tools: Iterable[AgentTool]) -> None:
        """Note which tools the model is told about: some describe themselves."""
        for tool in tools:
            if tool.untrusted:
                self._heard.setdefault(_Voice(f"the description of {tool.name}", tool.name))

    def saw(self, tool: AgentTool) -> None:
        """Note that a result of `tool` is in the context."""
        self._heard.setdefault(_Voice(f"results of {tool.name}", tool.name, tool.untrusted))

    def recall(self, messages: Iterable[AgentMessage], tools: Mapping[str, AgentTool]) -> None:
        """Note whose words are in a conversation that was read from a session."""
        for message in messages:
            if isinstance(message, ToolResultMessage):
                name, tool = message.tool_name, tools.get(message.tool_name)
                is_foreign = tool is None or tool.untrusted
                self._heard.setdefault(_Voice(f"results of {name}", name, is_foreign))

    def forget(self) -> None:
        """Begin with an empty context: what was heard is gone, what was allowed too."""
        self._heard.clear()
        self._grants.clear()

    def _voices(self, tool: AgentTool) -> list[str]:
        """Say whose words speak against what was allowed `tool` for the session.

        A tool without side effects can do nothing for them.
        """
        if tool.read_only:
            return []
        return [voice.source for voice in self._heard if voice.speaks_against(tool)]

    # --- One call ----------------------------------------------------------------------

    def judge(self, tool: AgentTool, call: AgentToolCall, arguments: dict[str, Any]) -> Ruling:
        """Rule on a call whose arguments are checked; an `ApprovalRequest` is to be asked."""
        rule = self.policy.rule_for(tool, arguments)
        if rule.leave is AUTO:
            return ALLOWED
        if rule.leave is DENY:
            return Refused(rule.why or f"Not run: the user does not allow {tool.name}.")
        if self.approver is None:
            if self.policy.headless.allows(tool.name):
                return ALLOWED
            return Refused("Not run: this tool asks first, and nobody can be asked here.")
        voices = self._voices(tool)
        granted = _same(self._grants.get(tool.name), tool)
        if granted and not voices:
            return ALLOWED
        return ApprovalRequest(
            tool_call_id=call.id,
            tool_name=tool.name,
            arguments=arguments,
            description=tool.description,
            reason=_reason(voices, granted=granted),
            offers_session=not voices,
        )

    async def ask(self, request: ApprovalRequest) -> Decision:
        """Ask; an answer to another question, or none of the known kinds, denies."""
        assert self.approver is not None
        decision = await self.approver(request)
        if not isinstance(decision, Decision) or decision.nonce != request.nonce:
            return _denied(request, "The answer belonged to another question.")
        if decision.kind == "session" and not request.offers_session:
            return _denied(request, "It cannot be allowed for the whole session now.")
        if decision.kind != "deny" and not decision.allows:
            return _denied(request, "The answer was not understood.")
        return decision

    def settle(self, tool: AgentTool, decision: Decision) -> Ruling:
        """Turn a decision into a ruling, and remember what it allows from now on."""
        if not decision.allows:
            reason = f" {decision.reason.strip()}" if decision.reason.strip() else ""
            return Refused(f"The user did not allow this call.{reason}")
        if decision.kind == "session":
            self._grants[tool.name] = tool
        return ALLOWED


def _reason(voices: list[str], *, granted: bool) -> str:
    if not voices:
        return "this tool asks first"
    sources = ", ".join(voices[:3]) + (f" and {len(voices) - 3} more" if len(voices) > 3 else "")
    told = f"the model has read what others may have written ({sources})"
    return f"allowed for the session, but {told} since" if granted else told


def _denied(request: ApprovalRequest, reason: str) -> Decision:
    return Decision(nonce=request.nonce, kind="deny", reason=reason)


def _same(granted: AgentTool | None, tool: AgentTool) -> bool:
    """Whether what was allowed is what would run: another function of the name is another tool."""
    return granted is not None and (granted is tool or granted.execute is tool.execute)


# --- The loop breaker ----------------------------------------------------------------------


class Repeats:
    """Notices a run that goes in circles: the same call, the same arguments, the same result.

    A call whose result changes, such as one that asks how far something is, may be repeated. Calls of
    one answer count as one: the model has seen no result between them.
    """

    def __init__(self) -> None:
        #: In how many answers in a row a call has had the same result.
        self._answers: dict[bytes, int] = {}
        self._results: dict[bytes, bytes] = {}
        self._now: set[bytes] = set()
        self.refused = 0

    @property
    def is_lost(self) -> bool:
        """Whether the model goes on repeating itself though it was told."""
        return self.refused >= REFUSED_REPEATS

    def next_answer(self) -> None:
        """Begin with the calls of another answer."""
        for key in self._now:
            self._answers[key] = self._answers.get(key, 0) + 1
        self._now.clear()

    def refusal(self, call: AgentToolCall) -> str | None:
        """Say why a call is not run, if it is one too many."""
        if self._answers.get(_key(call), 0) < SAME_CALLS - 1:
            return None
        self.refused += 1
        return (
            f"Not run: {call.name} was called {SAME_CALLS - 1} times with these arguments in this "
            "run and gave the same result. Use that result, change the arguments, or answer."
        )

    def saw(self, call: AgentToolCall, result: AgentToolResult) -> None:
        """Note a result; another than before makes the call worth repeating."""
        key = _key(call)
        text = f"{result.is_error} {result.text}"
        digest = hashlib.blake2b(text.encode(errors="replace"), digest_size=16).digest()
        if self._results.get(key, digest) != digest:
            self._answers[key] = 0
        self._results[key] = digest
        self._now.add(key)


def _key(call: AgentToolCall) -> bytes:
    text = json.dumps([call.name, call.arguments], sort_keys=True, default=repr)
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=16).digest()
