"""What may be spent: projected before a request leaves, asked about, and refused where nobody is asked."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.factories import call, tool
from yiem_nb.agent import Agent, AgentOptions
from yiem_nb.budget import Budget, Purse, Spending
from yiem_nb.errors import BudgetError, ErrorCode
from yiem_nb.kernel.spending import spending_table
from yiem_nb.messages import (
    AssistantMessage,
    StopReason,
    TextContent,
    Usage,
    UsageCost,
    UserMessage,
)
from yiem_nb.models import Model, ModelCost
from yiem_nb.providers import ScriptedProvider
from yiem_nb.session import MessageEntry

NOTHING = Spending()
MODEL = Model(id="m", provider="p", cost=ModelCost(input=1.0, output=10.0), max_tokens=1000)


def said(*content: Any, tokens: int = 500, cost: float = 0.05) -> AssistantMessage:
    usage = Usage(tokens, 0, cost=UsageCost(total=cost))
    calls = [part for part in content if not isinstance(part, str)]
    return AssistantMessage(
        [*(TextContent(part) for part in content if isinstance(part, str)), *calls],
        provider="p",
        model="m",
        usage=usage,
        stop_reason=StopReason.TOOL_USE if calls else StopReason.STOP,
    )


def agent(
    *turns: Any, spent: Spending = NOTHING, tools: Any = (), **caps: Any
) -> tuple[Agent, ScriptedProvider]:
    provider = ScriptedProvider(turns, size=1000)
    purse = Purse(Budget(**caps), spent)
    return Agent(AgentOptions(model=MODEL, purse=purse, tools=tools), provider), provider


async def test_a_request_that_might_pass_a_cap_is_not_sent_where_nobody_can_be_asked():
    one, provider = agent("never", tokens_per_turn=500)
    answer = await one.prompt("hi")
    assert answer.error_code == ErrorCode.BUDGET_EXCEEDED
    assert "the cap is 500 tokens" in str(answer.error_message)
    assert "Raise tokens_per_turn in [budget]" in str(answer.error_message)
    assert provider.requests == []
    one.options.purse.budget = Budget()
    assert (await one.prompt("hi")).text == "never"


async def test_money_is_counted_by_the_longest_answer():
    one, provider = agent("never", cost_per_turn=0.009)
    assert (await one.prompt("hi")).error_code == ErrorCode.BUDGET_EXCEEDED
    one.options.purse.budget = Budget(cost_per_turn=0.011)
    assert (await one.prompt("hi")).text == "never"
    assert len(provider.requests) == 1


async def test_whoever_is_asked_decides_and_is_asked_again_when_as_much_is_spent():
    asked: list[str] = []

    async def may(sentence: str) -> bool:
        asked.append(sentence)
        return len(asked) == 1

    one, provider = agent(
        said(call("c1")),
        said(call("c2", n=2)),
        "x",
        tools=[tool()],
        tokens_per_turn=900,
    )
    one.options.purse.ask = may
    answer = await one.prompt("hi")
    assert len(provider.requests) == 1
    assert len(asked) == 2
    assert answer.error_code == ErrorCode.BUDGET_EXCEEDED
    assert asked[1].endswith("500 tokens are spent, and the cap is 900 tokens.")


async def test_a_session_goes_on_where_it_was_and_a_turn_begins_anew():
    one, _ = agent("a", cost_per_session=1.0, spent=Spending(10, 0.995))
    assert (await one.prompt("hi")).error_code == ErrorCode.BUDGET_EXCEEDED
    one, _ = agent(said("a"), said("b"), tokens_per_turn=1600)
    assert (await one.prompt("hi")).text == "a"
    assert (await one.prompt("hi")).text == "b"


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.floats(0, 10)), max_size=8),
    st.integers(1, 5000),
    st.floats(0.001, 20),
)
async def test_no_more_than_the_caps_is_spent_unasked(requests, tokens, cost):
    purse = Purse(Budget(tokens_per_session=tokens, cost_per_session=cost))
    for used, paid in requests:
        try:
            await purse.check(Spending(used, paid))
        except BudgetError:
            continue
        purse.add(Usage(used, 0, cost=UsageCost(total=paid)))
    assert purse.session.tokens <= tokens
    assert purse.session.cost <= cost


@pytest.mark.parametrize("bad", [{"cost_per_turn": 0}, {"cost_per_turn": float("nan")}, {"cap": 1}])
def test_a_cap_that_is_none_is_refused(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        Budget(**bad)


def entry(message: Any, **fields: Any) -> MessageEntry:
    return MessageEntry.model_validate(
        {"id": "a", "parentId": None, "timestamp": "2026-12-01T00:00:00Z", "message": message}
        | fields
    )


def test_a_session_is_told_by_day_and_model_and_copies_count_once():
    one = said("a").model_copy(update={"timestamp": 1_796_000_000_000})
    entries = [entry(UserMessage("hi", 1)), entry(one), entry(one, copyOf="a"), entry(one)]
    table = spending_table(entries, Budget(cost_per_session=2))
    lines = table.splitlines()
    assert len(lines) == 3
    assert "p/m" in lines[0]
    assert "1,000 tokens" in lines[0]
    assert lines[1].split() == ["total", "1,000", "tokens", "$0.1000"]
    assert lines[2] == "cap: cost_per_session = 2"
    assert spending_table([], Budget()) == "Nothing was used yet."
