"""Which tool may run, and who must be asked (pure).

A tool's own word (`AgentTool.asks`) holds unless a rule that the user typed says otherwise. Nothing that
a model, a tool, a server or a session file says changes a policy (reliability T02, T04).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from yiem_nb.errors import CommandError
from yiem_nb.tools.base import AgentTool

__all__ = ["ASK", "AUTO", "DENY", "HeadlessPolicy", "Leave", "Policy", "Predicate", "Rule"]

#: Says of a call's arguments whether a rule, or a tool's wish to ask, is about it.
Predicate: TypeAlias = Callable[[Mapping[str, Any]], bool]


class Leave(StrEnum):
    """What a call needs before it runs."""

    AUTO = "auto"
    ASK = "ask"
    DENY = "deny"


AUTO, ASK, DENY = Leave.AUTO, Leave.ASK, Leave.DENY


@dataclass(frozen=True, slots=True)
class Rule:
    """What the user decided about some tools.

    Parameters
    ----------
    leave
        What their calls need.
    tools
        A name, or a pattern such as ``"mcp__files__*"``.
    when
        Called with the arguments; the rule holds only where it returns true. Where it raises the
        call is asked about: a rule that fails must not let a call through.
    why
        What the model is told where the rule denies.
    """

    leave: Leave
    tools: str = "*"
    when: Predicate | None = None
    why: str = ""


_NAME = re.compile(r"[A-Za-z_]\w*\*?")


@dataclass(frozen=True, slots=True)
class HeadlessPolicy:
    """What becomes of calls that want leave where nobody can be asked.

    Parameters
    ----------
    allow
        Names, or patterns, of the tools that run all the same. Empty: none.
    """

    allow: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> HeadlessPolicy:
        """Read ``deny``, or ``allow:NAME,NAME``.

        Raises
        ------
        CommandError
            It is neither; the hint says how it is written.
        """
        word, colon, names = text.strip().partition(":")
        if word == "deny" and not colon:
            return cls()
        allow = tuple(name.strip() for name in names.split(","))
        if word == "allow" and all(_NAME.fullmatch(name) for name in allow):
            return cls(allow)
        raise CommandError(
            f"headless={text.strip()} is no policy.",
            hint="Write headless=deny, or headless=allow:NAME,NAME with the tools that may run.",
        )

    def __str__(self) -> str:
        return f"allow:{','.join(self.allow)}" if self.allow else "deny"

    def allows(self, name: str) -> bool:
        """Whether this tool runs though nobody can be asked."""
        return any(fnmatchcase(name, pattern) for pattern in self.allow)


@dataclass(frozen=True, slots=True)
class Policy:
    """The user's rules; the newest that fits decides, else the tool's own word."""

    rules: tuple[Rule, ...] = ()
    headless: HeadlessPolicy = field(default_factory=HeadlessPolicy)

    def with_rule(self, rule: Rule) -> Policy:
        """Return a policy in which `rule` comes before all others; one it replaces is dropped."""
        kept = tuple(
            each for each in self.rules if (each.tools, each.when) != (rule.tools, rule.when)
        )
        return replace(self, rules=(rule, *kept))

    def rule_for(self, tool: AgentTool, arguments: Mapping[str, Any]) -> Rule:
        """Return what decides about a call of `tool`."""
        for rule in self.rules:
            if not fnmatchcase(tool.name, rule.tools):
                continue
            fits = _holds(rule.when, arguments)
            if fits is None:
                return Rule(ASK, tool.name)
            if fits:
                return rule
        wants = _holds(tool.asks, arguments) if callable(tool.asks) else tool.asks
        return Rule(AUTO if wants is False else ASK, tool.name)


def _holds(predicate: Predicate | None, arguments: Mapping[str, Any]) -> bool | None:
    """Ask a predicate; ``None`` where it fails."""
    if predicate is None:
        return True
    try:
        return bool(predicate(arguments))
    except (Exception, SystemExit):  # noqa: BLE001 - the user's code; the call is asked about
        return None
