"""What may be spent, in tokens and dollars: projected before a request, asked about, never passed in silence (pure)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from yiem_nb.errors import BudgetError
from yiem_nb.messages import Usage
from yiem_nb.models import Model
from yiem_nb.state import AgentContext
from yiem_nb.tokens import ContextMeter

__all__ = ["Budget", "MaySpend", "Purse", "Spending"]

#: Asked with one sentence when a request might pass a cap; says whether it is sent all the same.
MaySpend: TypeAlias = Callable[[str], Awaitable[bool]]


class Budget(BaseModel):
    """Caps on what is spent; ``None`` is no cap.

    Parameters
    ----------
    tokens_per_turn, tokens_per_session
        Tokens of all kinds, of one prompt with all its requests, and of the whole session.
    cost_per_turn, cost_per_session
        The same in US dollars; a model whose price is unknown costs nothing here.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    tokens_per_turn: int | None = Field(default=None, gt=0)
    tokens_per_session: int | None = Field(default=None, gt=0)
    cost_per_turn: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    cost_per_session: float | None = Field(default=None, gt=0, allow_inf_nan=False)


@dataclass(frozen=True, slots=True)
class Spending:
    """Tokens of all kinds, and dollars."""

    tokens: int = 0
    cost: float = 0.0

    def __add__(self, other: Spending) -> Spending:
        """Return both together."""
        return Spending(self.tokens + other.tokens, self.cost + other.cost)

    @classmethod
    def of(cls, usage: Usage) -> Spending:
        """Return what an answer has used."""
        tokens = usage.input + usage.output + usage.cache_read + usage.cache_write
        return cls(tokens, usage.cost.total)

    @classmethod
    def at_most(cls, model: Model, tokens: int) -> Spending:
        """Return what a request of `tokens` may come to: its input, and the longest answer."""
        price = model.cost
        cost = (tokens * price.input + model.max_tokens * price.output) / 1e6
        return cls(tokens + model.max_tokens, cost)


@dataclass
class Purse:
    """What was spent, and what may be.

    Parameters
    ----------
    budget
        The caps.
    session
        What the session had used before.
    ask
        Asked when a request might pass a cap; without it such a request is not sent.
    """

    budget: Budget = field(default_factory=Budget)
    session: Spending = field(default_factory=Spending)
    ask: MaySpend | None = None
    turn: Spending = field(default_factory=Spending)
    #: What a person has allowed beyond a cap, by the cap's name.
    _allowed: dict[str, float] = field(default_factory=dict)

    def begin(self) -> None:
        """Begin a turn: what was allowed for the last one is over."""
        self.turn = Spending()
        self._allowed = {n: v for n, v in self._allowed.items() if n.endswith("session")}

    def add(self, usage: Usage) -> None:
        """Count an answer."""
        spent = Spending.of(usage)
        self.turn, self.session = self.turn + spent, self.session + spent

    async def request(self, model: Model, context: AgentContext) -> None:
        """Let a request pass, or not; see `check`."""
        if self.budget == Budget():
            return
        schemas = [tool.parameters for tool in (context.tools or {}).values()]
        held = ContextMeter(context.messages, context.system_prompt, schemas).tokens
        await self.check(Spending.at_most(model, held))

    async def check(self, projected: Spending) -> None:
        """Let a request pass, or not.

        A cap that a person lets be passed counts anew from there: they are asked again when as
        much has been spent once more.

        Raises
        ------
        BudgetError
            It might pass a cap, and nobody could be asked, or said no.
        """
        for name, cap in self.budget.model_dump(exclude_none=True).items():
            kind, _, scope = name.partition("_per_")
            spent = getattr(self.turn if scope == "turn" else self.session, kind)
            comes_to = spent + getattr(projected, kind)
            if comes_to <= max(cap, self._allowed.get(name, 0)):
                continue
            said = (
                f"This request may bring the {scope} to {_amount(kind, comes_to)};"
                f" {_amount(kind, spent)} are spent, and the cap is {_amount(kind, cap)}."
            )
            if self.ask is None or not await self.ask(said):
                raise BudgetError(
                    said, hint=f"Raise {name} in [budget] of config.toml, or ask a cheaper model."
                )
            self._allowed[name] = comes_to + cap


def _amount(kind: str, value: float) -> str:
    return f"{value:,.0f} tokens" if kind == "tokens" else f"${value:,.4f}"
